"""Ranks, ties, and how many items each item is concordant with.

Knows order and nothing else: no statistic is defined here. Everything is exact and O(n log n), because the
vocabularies are 30,000 to 256,000 items long and every pair of models needs it.
"""

from typing import NamedTuple

import numpy as np


class Ranked(NamedTuple):
    """One column of values, reduced to its order. All arrays are (n,)."""

    dense: np.ndarray
    """Which distinct value the item has, counted from 0 for the smallest (int64)."""
    below: np.ndarray
    """How many items are strictly smaller (int64)."""
    equal: np.ndarray
    """How many items have this value, itself included (int64)."""

    @property
    def tied(self) -> bool:
        """Whether any two items share a value."""
        return bool(self.dense.max() + 1 < len(self.dense))

    @property
    def centred(self) -> np.ndarray:
        """Mid-distribution function minus one half: in (−½, ½), mean exactly 0, ties sharing their middle."""
        n = len(self.below)
        return (self.below + 0.5 * self.equal) / n - 0.5


def ranked(values: np.ndarray) -> Ranked:
    """Reduce values (n,) to their order."""
    order = np.argsort(values)
    ascending = values[order]
    opens = np.r_[True, ascending[1:] != ascending[:-1]]  # (n,): the first of each group of equals
    starts = np.flatnonzero(opens)
    sizes = np.diff(np.r_[starts, len(values)])
    dense = np.empty(len(values), dtype=np.int64)
    dense[order] = np.cumsum(opens) - 1
    return Ranked(dense=dense, below=starts[dense], equal=sizes[dense])


def net_concordance(a: Ranked, b: Ranked) -> np.ndarray:
    """For each item, the number of items concordant with it minus the number discordant, (n,) int64.

    A pair tied in `a` or in `b` counts as neither. Summed over items and halved this is Kendall's numerator.
    """
    n = len(a.dense)
    same_b_below_a, _ = _below_within(b, a)
    same_a_below_b, equal_in_both = _below_within(a, b)
    both_below = _below_in_both(a, b)
    # Inclusion–exclusion over the four quadrants around the item, with the ties on their borders counted out.
    return (
        4 * both_below
        + 2 * (same_b_below_a + same_a_below_b)
        + equal_in_both
        + n
        - 2 * (a.below + b.below)
        - (a.equal + b.equal)
    )


def _below_within(group: Ranked, other: Ranked) -> tuple[np.ndarray, np.ndarray]:
    """Of the items tied in `group` with each item: how many are below it in `other`, how many equal."""
    n = len(group.dense)
    if not group.tied:  # half the time of a pair of untied columns
        return np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
    joint = ranked(group.dense * n + other.dense)
    return joint.below - group.below, joint.equal


def _below_in_both(a: Ranked, b: Ranked) -> np.ndarray:
    """For each item, how many items are strictly below it in both columns, (n,) int64."""
    n = len(a.dense)
    # Walk up `a`. Among equals in `a` the larger `b` comes first, so that no equal counts as "earlier and smaller".
    order = np.argsort(a.dense * n - b.dense)
    # Positions in `b`, all distinct; among equals in `b` the later in the walk takes the smaller, for the same reason.
    backwards = np.argsort(b.dense[order][::-1], kind="stable")
    position = np.empty(n, dtype=np.int64)
    position[backwards] = np.arange(n)
    result = np.empty(n, dtype=np.int64)
    result[order] = earlier_smaller(position[::-1])
    return result


def earlier_smaller(permutation: np.ndarray) -> np.ndarray:
    """For each element of a permutation of 0…n−1, how many elements before it are smaller, (n,) int64.

    A wavelet tree taken level by level: elements stay in their order inside blocks that share their leading
    bits; at each bit, a 1 is larger than every 0 before it in its block. ⌈log₂ n⌉ passes of vectorised O(n)
    work: 128,000 elements in 50 ms, where a merge sort that sorts at every level took 71 ms.
    """
    n = len(permutation)
    count = np.zeros(n, dtype=np.int64)
    values, place = permutation, np.arange(n)
    for bit in reversed(range((n - 1).bit_length())):
        is_one = (values >> bit) & 1 == 1
        block = values >> (bit + 1) << (bit + 1)  # the smallest value of a block is where it begins
        zeros = np.cumsum(~is_one)
        zeros_before = zeros - ~is_one  # before this place, anywhere
        zeros_before -= zeros_before[block]  # before this place, in this block
        count[values[is_one]] += zeros_before[is_one]
        target = np.where(is_one, place + (1 << bit) - zeros_before, block + zeros_before)
        values = _scatter(values, target)
    return count[permutation]


def _scatter(values: np.ndarray, target: np.ndarray) -> np.ndarray:
    """`values` moved so that element i lies at `target[i]`."""
    moved = np.empty_like(values)
    moved[target] = values
    return moved
