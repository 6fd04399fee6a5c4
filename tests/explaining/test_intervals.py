"""Intervals of clustered shares: the exact binomial one as oracle, bounds no dependence breaks, and
how often they hold."""

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from pessimal.explaining.metrics import share_interval


def interval(hits, units, confidence: float = 0.95) -> tuple[float, float]:
    return share_interval(np.asarray(hits), np.asarray(units), confidence=confidence)


def exact(hits: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    found = binomtest(hits, n).proportion_ci(confidence, method="exact")
    return found.low, found.high


def drawn(rng: np.random.Generator, clusters: int, share: float, correlation: float):
    """Hits of beta-binomial clusters of 1 to 8 units."""
    units = rng.integers(1, 9, size=clusters)
    if not correlation:
        return rng.binomial(units, share), units
    rest = (1 - correlation) / correlation
    return rng.binomial(units, rng.beta(share * rest, (1 - share) * rest, size=clusters)), units


@pytest.mark.parametrize("correlation", [0, 0.6])
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_the_interval_holds_the_truth_as_often_as_it_says_and_is_not_absurdly_wide(
    share, correlation
):
    rng = np.random.default_rng([int(100 * share), int(10 * correlation)])
    held, width, known = [], [], []
    for _ in range(500):
        hits, units = drawn(rng, 30, share, correlation)
        low, high = interval(hits, units)
        held.append(low <= share <= high)
        width.append(high - low)
        effect = 1 + ((units**2).sum() / units.sum() - 1) * correlation
        known.append(2 * 1.96 * math.sqrt(share * (1 - share) * effect / units.sum()))
    assert np.mean(held) >= 0.93
    # Against the normal interval of someone who knows the share and the correlation.
    assert np.mean(width) <= 1.55 * np.mean(known)


def test_it_holds_where_one_cluster_in_ten_is_large():
    rng = np.random.default_rng(3)
    held = []
    for _ in range(500):
        units = np.where(rng.random(30) < 0.1, 40, rng.integers(1, 5, size=30))
        low, high = interval(rng.binomial(units, rng.beta(0.8, 3.2, size=30)), units)
        held.append(low <= 0.2 <= high)
    assert np.mean(held) >= 0.93


@pytest.mark.parametrize(("clusters", "each"), [(12, 1), (12, 8), (30, 5)])
def test_without_a_hit_clusters_of_one_size_count_once_each(clusters, each):
    units = np.full(clusters, each)
    assert interval(0 * units, units) == pytest.approx(exact(0, clusters))
    assert interval(units, units) == pytest.approx(exact(clusters, clusters))


def test_the_bound_without_a_hit_holds_even_if_units_always_go_together():
    """Exact, without drawing: no hit comes about with (1 − share)^clusters, and then the bound must
    reach the share."""
    _, high = interval(np.zeros(12), np.full(12, 8))
    assert (1 - high) ** 12 == pytest.approx(0.025)


def test_the_bits_do_not_depend_on_the_order_nor_on_clusters_without_units():
    rng = np.random.default_rng(7)
    hits, units = drawn(rng, 50, 0.3, 0.2)
    for order in (rng.permutation(50) for _ in range(20)):
        assert interval(hits[order], units[order]) == interval(hits, units)
    assert interval(np.append(hits, [0, 0]), np.append(units, [0, 0])) == interval(hits, units)
