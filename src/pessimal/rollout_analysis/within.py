"""Features and rewards within groups, in which the prompt is held: what rewards pay for.

Knows features and numbers. Knows no file and no grader.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy import sparse

from pessimal.analyses.nulls import interval
from pessimal.rollout_analysis.features import Feature, Features
from pessimal.statistics import LEVEL, holm

PERMUTATIONS, HALF_PERMUTATIONS = 200, 100
MIN_LIVE = 10
"""Groups in which both a feature and the rewards vary that a question needs."""
SAME = 0.9
"""Jaccard's likeness, or correlation within groups, from which two features count as one."""
HALF_LEVEL = LEVEL**0.5
"""Level at which one half of the prompts selects what the other is asked to confirm."""
CONFIRMED = 500
"""Permutations behind the p of one feature."""
MAX_SELECTED = 8
"""Features that one forward selection names at most."""
REFINED = 25
"""Texts of the largest association whose exact containment is looked at."""
NOTHING_LEFT = 1e-6
"""Share of the rewards' variance below which nothing is left to explain."""
PART = 20_000
"""Features that are permuted at once, which bounds the memory."""


def center(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Values (n,) or (n, m) less their means in groups (n,), whole numbers from 0."""
    counts = np.maximum(np.bincount(groups), 1)
    columns = values[:, None] if values.ndim == 1 else values
    means = np.empty((len(counts), columns.shape[1]))
    for at, column in enumerate(columns.T):
        means[:, at] = np.bincount(groups, column) / counts
    return values - means[groups].reshape(values.shape)


def contain(responses: Sequence[str], text: str) -> np.ndarray:
    """(n,) whether each response contains a text, 0 or 1."""
    return np.fromiter((text in response for response in responses), float, len(responses))


class FeatureTest:
    """The rollouts of some rows, with what does not depend on rewards computed once."""

    def __init__(self, features: Features, groups: np.ndarray, rows: np.ndarray | None = None):
        """
        Args:
            groups: (n,) whole numbers from 0.
            rows: (n,) bool, the rollouts that are looked at.
        """
        rows = np.ones(len(groups), bool) if rows is None else rows
        self.features, self.rows = features, np.flatnonzero(rows)
        self.groups = np.unique(groups[self.rows], return_inverse=True)[1]
        self.matrix = features.matrix if rows.all() else features.matrix[:, self.rows]
        self.sizes = np.bincount(self.groups)
        n = len(self.rows)
        member = sparse.csr_matrix((np.ones(n, np.float32), (np.arange(n), self.groups)))
        flags_vary, spreads = [sparse.csr_matrix((0, len(self.sizes)), dtype=bool)], []
        for start in range(0, features.flags, PART):
            varies = self.matrix[start : start + PART] @ member  # counts, then their spreads
            varies.data -= varies.data**2 / self.sizes[varies.indices]
            spreads.append(np.asarray(varies.sum(axis=1)).ravel())
            varies.data = varies.data > 1e-6
            varies.eliminate_zeros()
            flags_vary.append(varies)
        self._flags_vary = sparse.vstack(flags_vary, format="csr")
        """(flags, groups) bool."""
        self.numbers = center(features.numbers.to_numpy(dtype=float)[self.rows], self.groups)
        square = np.square(self.numbers).sum(axis=0)
        self.spread = np.concatenate([*spreads, square])
        """(features,) sums of squares of a feature less its means in groups."""
        moves = [np.bincount(self.groups, column**2) > 1e-12 for column in self.numbers.T]
        self._numbers_vary = np.array(moves, dtype=float).reshape(-1, len(self.sizes))

    def live(self, rewards: np.ndarray) -> np.ndarray:
        """(features,) groups in which both a feature and the rewards (n,) vary."""
        spread = (np.bincount(self.groups, center(rewards, self.groups) ** 2) > 1e-12).astype(float)
        return np.append(self._flags_vary @ spread, self._numbers_vary @ spread).astype(int)

    def phi(self, rewards: np.ndarray) -> np.ndarray:
        """(features,) or (features, m): correlation of each feature with rewards (n,) or (n, m),
        both less their means in groups."""
        scale = np.sqrt(np.multiply.outer(self.spread, np.square(rewards).sum(axis=0)) + 1e-300)
        return np.concatenate([self.matrix @ rewards, self.numbers.T @ rewards]) / scale

    def largest(
        self,
        rewards: np.ndarray,
        family: np.ndarray | None = None,
        *,
        pairs: bool = False,
        seed: int = 0,
        draws: int = PERMUTATIONS,
    ) -> np.ndarray:
        """(draws,), rising: the largest |φ| of any tested feature (of a family, by number),
        were the rewards (n,) permuted within groups, or of pairs their signs flipped."""
        random, centred = np.random.default_rng(seed), center(rewards, self.groups)
        if pairs:
            signs = random.choice((-1.0, 1.0), (len(self.sizes), draws))
            permuted = centred[:, None] * signs[self.groups]
        else:
            place = np.argsort(self.groups, kind="stable")
            permuted = np.empty((len(centred), draws))
            for draw in range(draws):
                order = np.lexsort((random.random(len(centred)), self.groups))
                permuted[place, draw] = centred[order]
        permuted = permuted.astype(np.float32)
        scale = np.sqrt(self.spread * (centred**2).sum() + 1e-300)
        scale[self.live(rewards) < MIN_LIVE] = np.inf
        if family is not None:
            scale[np.setdiff1d(np.arange(len(scale)), family)] = np.inf
        numbers = self.numbers.T @ permuted / scale[self.features.flags :, None]
        largest = np.abs(numbers).max(axis=0, initial=0)
        tested = np.flatnonzero(np.isfinite(scale[: self.features.flags]))
        for start in range(0, len(tested), PART):
            rows = tested[start : start + PART]
            scaled = np.abs(self.matrix[rows] @ permuted) / scale[rows, None]
            largest = np.maximum(largest, scaled.max(axis=0, initial=0))
        return np.sort(largest)


def p_of_largest(phi: float, largest: np.ndarray) -> float:
    """The share of permutations whose largest |φ| is at least as large, the data's among them."""
    beyond = len(largest) - np.searchsorted(largest, abs(phi) - 1e-9)
    return float((beyond + 1) / (len(largest) + 1))


@dataclass(frozen=True)
class Selected:
    """A feature that rewards follow beyond those selected before it."""

    index: int
    feature: Feature
    phi: float
    """Correlation with what the rewards are less the features before it."""
    p: float
    """Share of permutations in which the largest |φ| of all features is at least as large."""
    values: np.ndarray
    """(n,) of the rows."""


def select_forward(
    test: FeatureTest,
    rewards: np.ndarray,
    *,
    positive: bool = False,
    lengths_first: bool = False,
    responses: Sequence[str] | None = None,
    explained: Sequence[np.ndarray] = (),
    pairs: bool = False,
    at_most: int = MAX_SELECTED,
    level: float = LEVEL,
    draws: int = PERMUTATIONS,
) -> list[Selected]:
    """Features in the order in which each explains most of what the earlier ones leave, as long as
    each is significant among all features.

    Args:
        rewards: (n,) of the rows of `test`.
        positive: only features that are paid, and none that costs.
        lengths_first: the length that rewards follow most comes before the others, where it holds
            among lengths.
        responses: (n,) their texts: a text is then looked for as a substring, which its pieces are
            not, and with the blanks about it that fit the rewards best.
        explained: columns (n,) of what explains rewards before all features.
        pairs: as in `FeatureTest.largest`.
        at_most: features.
        level: of the permutation test of each.
        draws: permutations.

    Source: Westfall & Young 1993 (the largest of all statistics under permutation).
    """
    centred = center(rewards, test.groups)
    columns, rest = [center(column, test.groups) for column in explained], centred
    tested, names = test.live(rewards) >= MIN_LIVE, test.features.features
    selected = list[Selected]()
    lengths = test.features.length_numbers if lengths_first else []
    while len(selected) < at_most and tested.any():
        if columns:
            design = np.stack(columns, axis=1)
            rest = centred - design @ np.linalg.lstsq(design, centred, rcond=None)[0]
        if (rest**2).sum() <= NOTHING_LEFT * (centred**2).sum():
            break
        phi = np.where(tested, test.phi(rest), 0.0)
        size = phi if positive else np.abs(phi)
        best = lengths[int(size[lengths].argmax())] if lengths else int(size.argmax())
        choice = Selected(best, names[best], float(phi[best]), 1.0, _values(test, best))
        family = np.array(lengths) if lengths else None
        largest = test.largest(rest, family, pairs=pairs, seed=len(selected), draws=draws)
        p = p_of_largest(choice.phi, largest)  # before it is sharpened, as permutations are not
        if responses is not None:
            top = np.argsort(-size, kind="stable")[:REFINED]
            texts = [index for index in top.tolist() if names[index].kind == "text"]
            choice = _sharpen(test, rest, choice, texts, responses)
        if p <= level and (choice.phi > 0 or not positive):
            selected.append(replace(choice, p=p))
            columns.append(center(choice.values, test.groups))
        elif not lengths:
            break
        lengths = []
    return selected


def _values(test: FeatureTest, index: int) -> np.ndarray:
    return test.features.values(index)[test.rows]


def _sharpen(
    test: FeatureTest,
    rest: np.ndarray,
    choice: Selected,
    texts: Sequence[int],
    responses: Sequence[str],
) -> Selected:
    """The feature, or a text of these features that goes further with what is left as a substring;
    of those that go as far the shortest."""
    best = choice
    for index in texts:
        name = test.features.features[index].name
        for text in dict.fromkeys((name, name.strip(" "), name + " ", name.lstrip(" ") + " ")):
            has = contain(responses, text)
            centred = center(has, test.groups)
            scale = np.sqrt((centred**2).sum() * (rest**2).sum()) or 1.0
            phi = float(centred @ rest / scale)
            shorter = len(text) < len(best.feature.name) and best.feature.kind == "text"
            if text and (
                abs(phi) > abs(best.phi) + 1e-9 or (abs(phi) > abs(best.phi) - 1e-9 and shorter)
            ):
                aliases = test.features.features[index].aliases
                best = Selected(index, Feature("text", text, aliases), phi, 1.0, has)
    return best


def difference(
    values: np.ndarray, rewards: np.ndarray, groups: np.ndarray, before: np.ndarray | None = None
) -> tuple[float, float]:
    """By how much rewards rise with a feature, within groups and given columns `before` (n, k) that
    are centred in them, and the standard error by group."""
    has, centred = center(values, groups), center(rewards, groups)
    if before is not None:
        columns = np.column_stack([has, centred])
        has, centred = (columns - before @ np.linalg.lstsq(before, columns, rcond=None)[0]).T
    return clustered_slope(has, centred, groups)


def clustered_slope(x: np.ndarray, y: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """The least-squares slope of centred columns (n,), and its standard error by group."""
    square = max(float((x**2).sum()), 1e-300)
    slope = float(x @ y) / square
    sums = np.bincount(groups, x * (y - slope * x))
    g = len(sums)
    return slope, float(np.sqrt((sums**2).sum() * g / max(g - 1, 1))) / square


def name_paid(
    features: Features,
    groups: np.ndarray,
    rewards: np.ndarray,
    *,
    pairs: bool = False,
    seed: int = 0,
) -> list[dict[str, float]]:
    """Features that one half of the prompts selects, lengths first, and that the other half
    confirms, given those before: its own difference of rewards with the 95 % interval, and p by
    permutation, corrected by Holm over all that either half selects. The interval excludes 0, too.
    First stands what explains most of the rewards given the others.

    Source: Wasserman & Roeder 2009 (screen on one part, test on the other).
    """
    if groups.max() + 1 < 2 * MIN_LIVE:
        return []
    half = np.random.default_rng(seed).permutation(int(groups.max()) + 1) % 2
    sides = [FeatureTest(features, groups, half[groups] == side) for side in (0, 1)]
    rows = list[dict[str, float]]()
    for side, other in (sides, sides[::-1]):
        choices = select_forward(
            *(side, rewards[side.rows]),
            lengths_first=True,
            pairs=pairs,
            level=HALF_LEVEL,
            draws=HALF_PERMUTATIONS,
        )
        centred = center(rewards[other.rows], other.groups)
        before = np.zeros((len(centred), 0))
        for choice in choices:
            values = _values(other, choice.index)
            slope, error = difference(values, centred, other.groups, before)
            rest = centred - before @ np.linalg.lstsq(before, centred, rcond=None)[0]
            phi = float(other.phi(rest)[choice.index])
            family = np.array([choice.index])
            permuted = other.largest(rest, family, pairs=pairs, seed=seed, draws=CONFIRMED)
            low, high, _ = interval(
                np.array(slope), np.array(error), max(len(other.sizes) - 1, 1), confidence=0.95
            )
            row = {"index": choice.index, "paid_more": slope, "low": float(low)}
            row |= {"high": float(high), "p": p_of_largest(phi, permuted), "n": len(centred)}
            if np.sign(slope) == np.sign(choice.phi):
                rows.append(row)
            before = np.column_stack([before, center(values, other.groups)])
    for row, p in zip(rows, holm(pd.Series([row["p"] for row in rows], dtype=float)), strict=True):
        row["p_corrected"] = p
    rows = [row for row in rows if row["p_corrected"] <= LEVEL and row["low"] * row["high"] > 0]
    return _drop_twins(features, groups, rows, rewards)


def _drop_twins(
    features: Features, groups: np.ndarray, rows: list[dict[str, float]], rewards: np.ndarray
) -> list[dict[str, float]]:
    """The rows without what both halves name, which counts once: lengths, then the smallest p; what
    explains most of the rewards given the others is first."""
    lengths, rows_left = {*features.length_numbers}, list[dict[str, float]]()
    columns = list[np.ndarray]()
    for row in sorted(rows, key=lambda row: (row["index"] not in lengths, row["p"])):
        index = int(row["index"])
        values = center(features.values(index), groups)
        twins = [abs(np.corrcoef(values, column)[0, 1]) for column in columns]
        if max(twins, default=0.0) < SAME and not (
            index in lengths and any(r["index"] in lengths for r in rows_left)
        ):
            rows_left.append(row)
            columns.append(values)
    for at, row in enumerate(rows_left):
        rest = np.column_stack([np.zeros(len(groups)), *columns[:at], *columns[at + 1 :]])
        slope, error = difference(columns[at], rewards, groups, rest)
        row["own"] = abs(slope) / max(error, 1e-300)
    return sorted(rows_left, key=lambda row: -row["own"])
