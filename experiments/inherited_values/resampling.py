"""Intervals of medians, and of estimates that vary in several crossed ways at once."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats


def median_interval(ascending: np.ndarray, *, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Exact interval of the median of a population from each row's sorted sample (rows, n); NaN if
    too few.

    The k-th value from either end, with the largest k for which both ends together miss the median
    with a chance of at most 1 − confidence: 2 · P(Binomial(n, ½) < k).

    Source: Conover 1999, section 3.2.
    """
    n, tail = ascending.shape[-1], (1 - confidence) / 2
    k = int(stats.binom.ppf(tail, n, 0.5))
    # ppf gives the least k with P(≤ k) ≥ tail, so P(< k) < tail; where P(≤ k) equals the tail, one
    # more will do.
    k += bool(stats.binom.cdf(k, n, 0.5) <= tail)
    if k < 1:
        nothing = np.full(len(ascending), np.nan)
        return nothing, nothing
    return ascending[:, k - 1], ascending[:, n - k]


class Spread(NamedTuple):
    """How far an estimate moves with one way of drawing again."""

    variance: np.ndarray
    """Of the estimates."""
    units: int
    """How many were left out in turn; the degrees of freedom are one less."""


def jackknife(replicates: np.ndarray) -> Spread:
    """Jackknife variance of m estimates from g replicates, each with one of g units left out.

    Args:
        replicates: (g, m), at least 2.

    Source: Efron & Stein 1981; for blocks of items instead of single ones, Shao & Wu 1989.
    """
    units = len(replicates)
    deviations = replicates - replicates.mean(axis=0)
    return Spread((units - 1) / units * np.sum(deviations**2, axis=0), units)


def crossed_interval(
    estimates: np.ndarray, spreads: Sequence[Spread], *, confidence: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Standard errors and Student t intervals of estimates that vary in several crossed ways at
    once.

    The variances of all ways are added. With crossed ways (each token meets each wording) this
    counts what only happens to one combination more than once, so the interval is too wide rather
    than too narrow (Owen 2007). Degrees of freedom after Satterthwaite: few models or wordings make
    wide intervals, as they should.

    Returns:
        standard errors, lower and upper bounds, (m,) each; not a number where nothing could be left
        out.
    """
    if not spreads:
        missing = np.full(np.shape(estimates), np.nan)
        return missing, missing, missing
    variance = sum(spread.variance for spread in spreads)
    squares = sum(spread.variance**2 / (spread.units - 1) for spread in spreads)
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = np.where(squares > 0, variance**2 / squares, np.inf)
    reach = stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(variance)
    return np.sqrt(variance), estimates - reach, estimates + reach
