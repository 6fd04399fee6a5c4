"""Overlap of two rankings' beginnings: by hand without ties, by brute force over all orders with them."""

from itertools import permutations

import numpy as np
import pytest

from pessimal.analysis.overlap import head, overlap_by_depth, rank_biased_overlap, top_overlap


def all_orders(values: np.ndarray) -> list[list[int]]:
    """Every ranking, best first, that the values allow."""
    n = len(values)
    return [list(order) for order in permutations(range(n)) if all(np.diff(values[list(order)]) <= 0)]


def test_without_ties_by_hand():
    # Depths 1, 2, 3 share 0, 2 and 2 items: (1 − p)(0 + p · 2/2 + p² · 2/3) at p = ½.
    a, b = head(np.array([9.0, 8, 7, 0]), depth=3), head(np.array([8.0, 9, 0, 7]), depth=3)
    assert overlap_by_depth(a, b).tolist() == [0, 2, 2]
    assert rank_biased_overlap(a, b, persistence=0.5) == pytest.approx(0.5 * (0.5 + 0.25 * 2 / 3))
    extrapolated = rank_biased_overlap(a, b, persistence=0.5, extrapolate=True)
    assert extrapolated == pytest.approx(0.5 * (0.5 + 0.25 * 2 / 3) + 0.5**3 * 2 / 3)
    assert top_overlap(a, b, k=1) == 0
    assert top_overlap(a, b, k=2) == 1


def test_rankings_without_a_common_item_have_none():
    a, b = head(np.array([4.0, 3, 2, 1]), depth=2), head(np.array([1.0, 2, 3, 4]), depth=2)
    assert rank_biased_overlap(a, b, persistence=0.9, extrapolate=True) == 0


@pytest.mark.parametrize("seed", range(6))
def test_with_ties_it_is_the_mean_over_all_orders(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 3, size=(2, 6)).astype(float)
    depth = 4
    orders_x, orders_y = all_orders(x), all_orders(y)
    expected = np.mean(
        [
            [len(set(one[:d]) & set(other[:d])) for d in range(1, depth + 1)]
            for one in orders_x
            for other in orders_y
        ],
        axis=0,
    )
    assert overlap_by_depth(head(x, depth=depth), head(y, depth=depth)) == pytest.approx(expected)


def test_a_ranking_with_ties_has_overlap_one_with_itself():
    values = np.random.default_rng(0).integers(0, 4, size=200).astype(float)
    one = head(values, depth=50)
    assert rank_biased_overlap(one, one, persistence=0.9, extrapolate=True) == pytest.approx(1)
    assert rank_biased_overlap(one, one, persistence=0.9) == pytest.approx(1 - 0.9**50)


def test_the_order_of_the_rows_does_not_matter():
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 20, size=(2, 500)).astype(float)
    order = rng.permutation(500)
    told = rank_biased_overlap(head(x, depth=80), head(y, depth=80), persistence=0.9)
    again = rank_biased_overlap(head(x[order], depth=80), head(y[order], depth=80), persistence=0.9)
    assert again == pytest.approx(told, abs=1e-12)


def test_a_depth_beyond_the_items_is_all_of_them():
    a = head(np.array([1.0, 1.0, 0.0]), depth=132)
    assert a.depth == 3
    assert top_overlap(a, a, k=3) == 1


def test_half_the_vocabulary_tied_is_no_trouble():
    values = np.zeros(128_000)
    values[:10] = 1
    one = head(values, depth=132)
    assert rank_biased_overlap(one, one, persistence=0.9, extrapolate=True) == pytest.approx(1)
