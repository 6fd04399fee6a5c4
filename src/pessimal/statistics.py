"""Inference that several rooms need: intervals from resampling, tests by permutation, correction
for many tests.

Knows numbers. Does not know what they were measured on.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from pessimal.errors import TableError

LEVEL = 0.05
"""Of corrected p values: up to it an effect is called significant, in headlines, figures and cards
alike."""
RESAMPLES_AT_ONCE = (
    32  # 32 × 128,000 weights are 33 MB, and the matrix product already runs at full speed
)
KEPT_WEIGHTS = 2**27  # bytes: 1000 draws of 128,000 items


def holm(p: pd.Series) -> pd.Series:
    """p values corrected for how many there are (Holm 1979: any dependence); missing ones stay
    missing, uncounted."""
    # Not statsmodels' multipletests: it collects garbage at every call, .1 s each where tables are
    # in memory.
    ordered = p.dropna().sort_values(kind="stable")
    stepped = ordered.to_numpy(dtype=float) * np.arange(len(ordered), 0, -1)
    corrected = np.minimum(np.maximum.accumulate(stepped), 1) if len(ordered) else stepped
    return pd.Series(corrected, index=ordered.index, dtype=float).reindex(p.index)


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """p values (n,) at their false discovery rate; NaN is no test and counts for nothing."""
    from scipy import stats  # half a second, which a command that only reads need not wait for

    adjusted, tested = np.full(len(p), np.nan), ~np.isnan(p)
    if tested.any():
        adjusted[tested] = stats.false_discovery_control(p[tested])
    return adjusted


def holm_confidence(p: pd.Series, confidence: float) -> np.ndarray:
    """(n,) the confidence at which the interval of each test says what its p says that `holm`
    corrected: 1 − (1 − confidence) / m, where correction multiplies this p by m."""
    corrected, tests = holm(p), max(int(p.notna().sum()), 1)
    exact = (p > 0) & (corrected < 1)
    times = (corrected / p.where(exact)).fillna(tests).to_numpy(dtype=float)
    return 1 - (1 - confidence) / times


def sign_flip(differences: np.ndarray, *, two_sided: bool, permutations: int, seed: int) -> float:
    """p of a mean (n,) that is not above 0 (two-sided: not 0), were each number as likely to have
    had the other sign.

    Exact where there are no more than `permutations` patterns of signs. NaN where there are no
    numbers.

    Source: Phipson & Smyth 2010 (the p of drawn permutations).
    """
    if not len(differences):
        return np.nan
    moved = differences[differences != 0]  # zeros change nothing, but double the number of patterns
    if not len(moved):
        return 1.0
    if len(moved) == 1:  # scipy wants two; the two patterns are the number and its negative
        return 1.0 if two_sided or moved[0] < 0 else 0.5
    from scipy import stats  # half a second, which a command that only reads need not wait for

    tested = stats.permutation_test(
        (moved,),
        lambda x, axis: np.abs(np.sum(x, axis=axis)) if two_sided else np.sum(x, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=permutations,
        batch=1000,
        alternative="greater",
        rng=np.random.default_rng(seed),
    )
    return float(tested.pvalue)


def bootstrap_linear(
    estimates: np.ndarray, influences: np.ndarray, *, replicates: int, confidence: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile intervals of m statistics of the same n items, from their influence values.

    Items are drawn with replacement; each draw serves all statistics, as it would if each were
    recomputed. The estimate plus the mean influence of the drawn items stands for the recomputed
    statistic. Items are taken to be independent; the bounds are kept within [−1, 1], so the
    statistics must be correlations or shares.

    Args:
        estimates: (m,).
        influences: (n, m), each column of mean 0.
        replicates: draws of n items, at least 100.
        confidence: the share of draws inside the interval, between 0 and 1.
        seed: of the draws.

    Returns:
        lower and upper bounds, (m,) each.

    Raises:
        TableError: too few replicates, or a confidence outside (0, 1).
    """
    if replicates < 100 or not 0 < confidence < 1:
        raise TableError(
            "An interval needs at least 100 replicates and a confidence between 0 and 1; given "
            f"were replicates={replicates} and confidence={confidence}"
        )
    n = len(influences)
    drawn = _kept_weights if n * replicates <= KEPT_WEIGHTS else _weights
    # One thread: with two the products below took 13 s of CPU instead of 1, most of it spent
    # waiting for each other.
    with threadpool_limits(1, user_api="blas"):
        deviations = np.concatenate(
            [block.astype(float) @ influences / n for block in drawn(n, replicates, seed)]
        )
    tail = (1 - confidence) / 2
    low, high = np.asarray(estimates) + np.quantile(deviations, [tail, 1 - tail], axis=0)
    return np.clip(low, -1, 1), np.clip(high, -1, 1)


def _weights(n: int, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """How often each of n items is in each draw of n: blocks (rows, n), uint8 (more than 255 times
    would be a wonder)."""
    rng = np.random.default_rng(seed)
    for start in range(0, replicates, RESAMPLES_AT_ONCE):
        rows = min(RESAMPLES_AT_ONCE, replicates - start)
        block = np.empty((rows, n), dtype=np.uint8)
        for row in block:
            row[:] = np.bincount(rng.integers(n, size=n, dtype=np.int32), minlength=n)
        yield block


@lru_cache(maxsize=2)
def _kept_weights(n: int, replicates: int, seed: int) -> list[np.ndarray]:
    """`_weights`, kept: prompts and models of one vocabulary are resampled alike, and drawing takes
    half of the time."""
    return list(_weights(n, replicates, seed))


def median_interval(ascending: np.ndarray, *, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Exact interval of the median of a population from each row's sorted sample (rows, n); NaN if
    too few.

    The k-th value from either end, with the largest k for which both ends together miss the median
    with a chance of at most 1 − confidence: 2 · P(Binomial(n, ½) < k).

    Source: Conover 1999, section 3.2.
    """
    n, tail = ascending.shape[-1], (1 - confidence) / 2
    from scipy import stats  # half a second, which a command that only reads need not wait for

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
    from scipy import stats  # half a second, which a command that only reads need not wait for

    reach = stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(variance)
    return np.sqrt(variance), estimates - reach, estimates + reach
