"""Intervals over comparisons: exact binomial ones of shares, bootstraps of means; and corrected p
values.

The comparison is what is drawn, with all of its edits, since these share two responses and a
margin. Knows hits and units by cluster. Does not know what a hit is. Every flip rate, coverage and
share has its bounds from here.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import betaincinv


def share_interval(
    hits: np.ndarray, units: np.ndarray, *, confidence: float
) -> tuple[float, float]:
    """The exact binomial interval (Clopper and Pearson's) of hits over units, at the effective
    number of independent units.

    Clusters are independent draws from many; the units of one may depend on each other in any way.
    Data of no hits, or of nothing but hits, show no variance and so no design effect: units of a
    cluster are then taken to go together, one unit a cluster where these are of one size. So 0 of
    92 edits in 12 comparisons give 0 to 27 %; a narrower bound would assume that they are
    independent. More comparisons narrow it; more edits of each do not.

    At a confidence of .95 and clusters of 1 to 8 units it held the truth in at least 95 of 100
    draws for shares of .02 to .5 and 2 to 60 clusters, where the percentile bootstrap held a share
    of .02 in 77 (experiments/LOG.md).

    Args:
        hits: (clusters,), units of each that hit.
        units: (clusters,); clusters without any are left out.

    Returns:
        Lower and upper bound, the share between them; 0 and 1 where one cluster has all units, NaN
        where there are none.

    Source: Clopper & Pearson 1934; Korn & Graubard 1998 for the effective size in it.
    """
    hits, units = np.asarray(hits, dtype=float), np.asarray(units, dtype=float)
    hits, units = hits[units > 0], units[units > 0]
    if len(units) < 2:
        return (0.0, 1.0) if len(units) else (np.nan, np.nan)
    n = n_eff(hits, units)
    x = n * hits.sum() / units.sum()
    tail = (1 - confidence) / 2
    none, every = hits.sum() == 0, hits.sum() == units.sum()
    low = 0.0 if none else float(betaincinv(x, n - x + 1, tail))
    high = 1.0 if every else float(betaincinv(x + 1, n - x, 1 - tail))
    return low, high


def clustered_share(
    hits: pd.Series, clusters: pd.Series, *, confidence: float
) -> tuple[int, int, float, float, float]:
    """The share of items that hit, with its interval over clusters: items, clusters, share, low,
    high (see `share_interval`); NaN without items."""
    index, names = pd.factorize(clusters.to_numpy())
    units = np.bincount(index, minlength=len(names))
    hit = np.bincount(index, weights=hits.to_numpy(dtype=float), minlength=len(names))
    share = float(hit.sum() / len(hits)) if len(hits) else float("nan")
    return len(hits), len(names), share, *share_interval(hit, units, confidence=confidence)


def n_eff(hits: np.ndarray, units: np.ndarray) -> float:
    """The effective number of independent units (two or more clusters, each with a unit): units
    over their design effect.

    The design effect is the jackknife variance of the share over the variance of independent units.
    From few hits this ratio is mostly too small, so it is averaged with the effect of units that go
    together (the mean size of a unit's cluster); the ratio weighs as many hits or misses as were
    seen, this guess one. It is never less than 1.
    """
    total, count = units.sum(), len(units)
    share = hits.sum() / total
    # fsum: the same bits in whatever order clusters come.
    without = math.fsum(((hits - units * share) / (total - units)) ** 2) * (count - 1) / count
    together = (units**2).sum() / total
    # About as many as there are hits or misses, whichever are rarer.
    independent = total * share * (1 - share)
    effect = (without * total**2 + together) / (independent + 1)
    return float(total / max(effect, 1.0))


def draws(clusters: int, *, replicates: int, seed: int) -> np.ndarray:
    """Times that each cluster is drawn, (replicates, clusters) float64: as many as there are, with
    replacement."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=replicates).astype(float)


def replicated(numerator: np.ndarray, denominator: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The ratio of two sums over clusters (clusters,) in each draw, (replicates,); NaN where the
    denominator is 0.

    One column at a time: a product of matrices would round differently with the number of its
    columns, so that a result would depend on what else was asked.
    """
    below = weights @ np.ascontiguousarray(denominator, dtype=float)
    above = weights @ np.ascontiguousarray(numerator, dtype=float)
    return np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0)


def ratio_interval(
    numerator: np.ndarray, denominator: np.ndarray, weights: np.ndarray, *, confidence: float
) -> tuple[float, float]:
    """Percentile bootstrap interval of a mean, the ratio of two sums over clusters (clusters,); not
    for shares.

    Few comparisons make it too narrow: at .95 and units that go together, 30 clusters held a mean
    91 of 100 times, 10 held it 89. Draws without a unit are left out. NaN where fewer than two
    clusters have a unit.
    """
    if np.count_nonzero(denominator) < 2:
        return np.nan, np.nan
    return percentiles(replicated(numerator, denominator, weights), confidence=confidence)


def median_interval(
    values: np.ndarray, index: np.ndarray, weights: np.ndarray, *, confidence: float
) -> tuple[float, float]:
    """Percentile bootstrap interval of a median of units (n,), whose clusters are `index` (n,) int,
    drawn as often as `weights` (replicates, clusters) say. Draws without a unit are left out. NaN
    where fewer than two clusters have a unit."""
    if len(np.unique(index)) < 2:
        return np.nan, np.nan
    order = np.argsort(values, kind="stable")
    ordered = np.asarray(values)[order]
    until = np.cumsum(weights[:, index[order]], axis=1)  # (replicates, n)
    half = until[:, -1:] / 2
    middle = (ordered[(until >= half).argmax(axis=1)] + ordered[(until > half).argmax(axis=1)]) / 2
    return percentiles(np.where(half[:, 0] > 0, middle, np.nan), confidence=confidence)


def percentiles(replicates: np.ndarray, *, confidence: float) -> tuple[float, float]:
    """The middle `confidence` of the replicates that are numbers; NaN where none is."""
    numbers = replicates[~np.isnan(replicates)]
    if not len(numbers):
        return np.nan, np.nan
    low, high = np.quantile(numbers, [(1 - confidence) / 2, 1 - (1 - confidence) / 2])
    return float(low), float(high)


def cluster_index(comparisons: pd.Series, clusters: Sequence[str]) -> np.ndarray:
    """The number of each row's comparison in the clusters, (rows,) int; −1 where it is none of
    them."""
    return pd.Index(clusters, dtype=object).get_indexer(comparisons.astype(object))
