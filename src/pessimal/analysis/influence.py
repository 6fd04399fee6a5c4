"""Correlations together with their influence functions.

The influence of item i on a statistic is the derivative of the statistic as a little weight is put on i. Its
mean over the items is 0, and a statistic on resampled items is, to first order, the statistic plus the mean
influence of the resampled items. That turns a bootstrap which would sort 128,000 items a thousand times for
each pair of models into one matrix product (see `bootstrap`). Knows nothing of tables or of resampling.
"""

from typing import NamedTuple

import numpy as np

from pessimal.analysis.ranks import Ranked, net_concordance


class Statistic(NamedTuple):
    """An estimate, and what each item contributes to its error."""

    estimate: float
    influence: np.ndarray
    """(n,) float64, mean 0; the estimate's standard error is about `influence.std() / sqrt(n)`."""


def kendall(a: Ranked, b: Ranked) -> Statistic:
    """Kendall's tau-b of two columns without missing values, neither constant; exact, O(n log n).

    tau-b = s / sqrt(u_a · u_b): s is concordant minus discordant pairs, u the pairs untied in one column, each
    as a share of all pairs. All three are U-statistics of order two, so an item's influence on each is twice
    its own share minus the mean; the delta method joins them (Hoeffding 1948; Kendall 1945 for the ties).
    """
    others = len(a.dense) - 1
    net = net_concordance(a, b) / others  # (n,): the item's own share of concordant minus discordant pairs
    untied_a = 1 - (a.equal - 1) / others
    untied_b = 1 - (b.equal - 1) / others
    scale = np.sqrt(untied_a.mean() * untied_b.mean())
    tau = net.mean() / scale
    influence = 2 * (net / scale - tau / 2 * (untied_a / untied_a.mean() + untied_b / untied_b.mean()))
    return Statistic(float(tau), influence)


def spearman(a: Ranked, b: Ranked) -> Statistic:
    """Spearman's rho (Pearson's r of mid-ranks) of two columns, neither constant; O(n) once they are ranked.

    An item moves the ranks of all items above it as well as its own product of ranks; both are in its influence.
    """
    u, v = a.centred, b.centred
    covariance, variance_u, variance_v = np.mean(u * v), np.mean(u * u), np.mean(v * v)
    scale = np.sqrt(variance_u * variance_v)
    rho = covariance / scale
    # 3 × the mean: once for the product itself, once for each of the two distribution functions in it.
    d_covariance = u * v + _mean_above(a, v) + _mean_above(b, u) - 3 * covariance
    d_variance_u = u * u + 2 * _mean_above(a, u) - 3 * variance_u
    d_variance_v = v * v + 2 * _mean_above(b, v) - 3 * variance_v
    influence = d_covariance / scale - rho / 2 * (d_variance_u / variance_u + d_variance_v / variance_v)
    return Statistic(float(rho), influence)


def pearson(x: np.ndarray, y: np.ndarray) -> Statistic:
    """Pearson's r of two columns, neither constant; O(n)."""
    x, y = (x - x.mean()) / x.std(), (y - y.mean()) / y.std()
    r = np.mean(x * y)
    return Statistic(float(r), x * y - r / 2 * (x * x + y * y))


def _mean_above(order: Ranked, values: np.ndarray) -> np.ndarray:
    """For each item, the sum of `values` over the items above it in `order`, equals counting half, over n."""
    per_group = np.bincount(order.dense, weights=values)
    from_here_up = np.cumsum(per_group[::-1])[::-1]
    return (from_here_up - per_group / 2)[order.dense] / len(values)
