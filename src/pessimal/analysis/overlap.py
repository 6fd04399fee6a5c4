"""How alike two rankings begin: rank-biased overlap and shared tops, the same whatever the order of ties.

Knows values and depths; knows nothing of models. Tied items are taken in every order at once: an item of a group of
equals that spans ranks t to b counts (d − t + 1) / (b − t + 1) at a depth d inside it, the share of orders that have it
so high. Sorting ties one way or the other, as published, moves the result by chance.
"""

from typing import NamedTuple

import numpy as np


class Head(NamedTuple):
    """The beginning of one ranking: groups of equals, best first, as far as they begin within the depth."""

    group: np.ndarray
    """(n,) int32: the item's group; −1 where its group begins below the depth."""
    first: np.ndarray
    """(groups,) int: rank, counted from 0, at which the group begins."""
    size: np.ndarray
    """(groups,) int: items in the group; the last may reach beyond the depth."""
    depth: int

    @property
    def counted(self) -> np.ndarray:
        """How much an item of each group counts at each depth 1 … D, (groups, D), in [0, 1]."""
        inside = np.arange(1, self.depth + 1) - self.first[:, None]
        return np.clip(inside / self.size[:, None], 0, 1)


def head(values: np.ndarray, *, depth: int) -> Head:
    """The `depth` highest of values (n,), ties whole; a depth beyond n is n."""
    n = len(values)
    depth = min(depth, n)
    threshold = np.partition(values, n - depth)[n - depth]
    items = np.flatnonzero(values >= threshold)
    distinct, inverse, size = np.unique(-values[items], return_inverse=True, return_counts=True)
    group = np.full(n, -1, dtype=np.int32)
    group[items] = inverse
    first = np.concatenate([[0], np.cumsum(size)[:-1]])
    return Head(group, first[: len(distinct)], size, depth)


def overlap_by_depth(a: Head, b: Head) -> np.ndarray:
    """Items that both rankings hold among their first d, for d = 1 … D, (D,): a mean over all orders of ties."""
    both = (a.group >= 0) & (b.group >= 0)
    pairs = a.group[both].astype(np.int64) * len(b.size) + b.group[both]
    together = np.bincount(pairs, minlength=len(a.size) * len(b.size)).reshape(len(a.size), len(b.size))
    return np.sum(a.counted * (together @ b.counted), axis=0)


def top_overlap(a: Head, b: Head, *, k: int) -> float:
    """Share of the k highest that are common to both, a mean over all orders of ties; k at most the depth."""
    return float(overlap_by_depth(a, b)[k - 1] / k)


def rank_biased_overlap(a: Head, b: Head, *, persistence: float, extrapolate: bool = False) -> float:
    """Rank-biased overlap of two rankings of the same items to their common depth D.

    (1 − p) Σ_d p^(d−1) A_d, where A_d is the agreement of the first d: |first d of a ∩ first d of b| / d without ties;
    with ties divided, as Kendall's tau-b is, by what each ranking agrees with itself (RBO_b), so that a ranking has
    overlap 1 with itself. Without extrapolation what lies below D counts as disagreement (at most p^D, 10⁻⁶ at p = .9
    and D = 132); with it, agreement goes on as at D.

    Args:
        a: of `head`.
        b: of `head`, same items, same depth.
        persistence: p in (0, 1), the chance that a reader goes on to the next rank.
        extrapolate: count what lies below D as agreeing as much as D.

    Source: Webber, Moffat & Zobel 2010 (equations 7 and 23); Corsi & Urbano 2024 for the ties.
    """
    itself = [np.sum(one.size[:, None] * one.counted**2, axis=0) for one in (a, b)]
    agreement = overlap_by_depth(a, b) / np.sqrt(itself[0] * itself[1])
    weights = (1 - persistence) * persistence ** np.arange(a.depth)
    below = agreement[-1] * persistence**a.depth if extrapolate else 0.0
    return float(weights @ agreement + below)
