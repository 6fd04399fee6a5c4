"""Ranks and concordance: against the definition, item by item and pair by pair."""

import numpy as np
import pytest

from pessimal.compare.ranks import earlier_smaller, net_concordance, ranked


def levels(kind: str, size: int, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=size)
    return {"distinct": values, "some ties": values.round(1), "few levels": values.round()}[kind]


def test_ranked_counts_smaller_and_equal_items():
    ranks = ranked(np.array([2.0, 7.0, 2.0, -1.0]))
    assert ranks.dense.tolist() == [1, 2, 1, 0]
    assert ranks.below.tolist() == [1, 3, 1, 0]
    assert ranks.equal.tolist() == [2, 1, 2, 1]
    assert ranks.tied


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 100])
def test_earlier_smaller_is_what_a_double_loop_counts(size):
    permutation = np.random.default_rng(size).permutation(size)
    expected = [sum(permutation[:place] < value) for place, value in enumerate(permutation)]
    assert earlier_smaller(permutation).tolist() == expected


@pytest.mark.parametrize("a_kind", ["distinct", "some ties", "few levels"])
@pytest.mark.parametrize("b_kind", ["distinct", "some ties", "few levels"])
def test_net_concordance_is_the_sum_of_products_of_signs(a_kind, b_kind):
    a, b = levels(a_kind, 83, 0), levels(b_kind, 83, 1)
    by_pairs = np.sign(a[:, None] - a) * np.sign(b[:, None] - b)
    assert net_concordance(ranked(a), ranked(b)).tolist() == by_pairs.sum(axis=1).tolist()
