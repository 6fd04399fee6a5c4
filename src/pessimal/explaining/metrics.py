"""The quality of a perturber's explanations of a model: coverage, brittleness, distances, fluency,
diversity, and what failed; and intervals over comparisons, of shares and of means.

The comparison is what is drawn, with all of its edits, since these share two responses and a
margin. Knows the table of outcomes, with distances already in it. Does not know how a distance is
measured, nor attributes one by one (see `flips`).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
from scipy.special import betaincinv

from pessimal.explaining.attribute import PLACEBO
from pessimal.explaining.distances import embed, syntactic
from pessimal.explaining.outcomes import CHOSEN, COUNTERFACTUAL, KEY, REJECTED, SEMIFACTUAL
from pessimal.explaining.perturbers import Status

ANY, BOTH, ALL = "any", "both", "all"
SUBSETS, SIDES = (ALL, COUNTERFACTUAL, SEMIFACTUAL), (CHOSEN, REJECTED, ANY)
DISTANCES = ("syntactic", "semantic")
RATIO = "perplexity_ratio"
"""Column of the table of outcomes: perplexity of the edited response over that of the response; NaN
without a text."""
MAX_FLUENT_RATIO = 1.5
"""Largest ratio of a fluent edit. No threshold is published; this is half as much again as the
response had."""
RETURNED = ["model", "perturber", "placebo", "metric", "among", "side", "value", "low", "high"]
RETURNED += ["standard_error", "n", "unit", "comparisons", "seeds"]


def metrics(
    table: pd.DataFrame,
    *,
    diversity: bool = False,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """The metrics of every model and perturber, each a mean over units that are counted.

    A perturbation is *valid* if there is a changed text. What is averaged, and over what:

    * coverage (among CF or SF): over decided comparisons that were asked about, one unit a
      comparison and seed, whether at least one valid perturbation of the side has this outcome;
      `both`: one on each side; `any`: on either. A comparison of which all perturbations failed
      counts as not covered. More seeds do not raise it.
    * brittleness: over valid perturbations, whether the preference flips. Ties are no flips and are
      in the denominator.
    * each distance: over valid perturbations with a known distance, all of them and among CF, SF.
    * fluent, where the table has that column: over valid perturbations with a known perplexity
      ratio, all of them and among CF, SF, whether it is at most `MAX_FLUENT_RATIO`.
    * complied, where the edits were judged: over those with a verdict, whether they did what was
      asked.
    * diversity: over sets of at least two valid perturbations of one response and seed (all, CF,
      SF), the mean distance of their pairs. Texts of the two sides are never paired: these differ
      as the responses do. Equal texts are at distance 0.
    * changed, not applicable, refused, failed: over all requests; the four add to 1.

    Placebo edits are a group of their own, also where the same perturber made them. Intervals are
    over comparisons: those of shares (all but distances and diversity) exact
    binomial ones at the effective number of units (see `share_interval`), those of means percentile
    bootstraps (see `ratio_interval`). Standard errors are over seeds, on these comparisons: the
    standard deviation of the seeds' own values over the root of their number.

    Args:
        table: of outcomes, with a column for each of `DISTANCES`, NaN where it is not known.
        diversity: measure it too, for which every edited text is embedded.

    Returns:
        One row a metric: model, perturber, placebo (bool), metric, among (all, CF, SF), side
        (chosen, rejected, both, any), value (NaN where n = 0), low, high (NaN with one comparison),
        standard_error (NaN for fewer than two seeds), n, unit (what
        n counts), comparisons and seeds (that have a unit).
    """
    rows = []
    table = table.assign(placebo=table["attribute"] == PLACEBO)
    for key, group in table.groupby(["model", "perturber", "placebo"], sort=False):
        group = group.sort_values(KEY, kind="stable")  # the same bits in whatever order rows come
        clusters = sorted(set(group["comparison"]))
        weights = draws(len(clusters), replicates=replicates, seed=seed)
        for metric, among, side, unit, units in _units(group, diversity):
            interval = share_interval
            if metric.startswith(DISTANCES):  # a mean, as a diversity is
                interval = partial(ratio_interval, weights=weights)
            numbers = _summary(units, clusters, partial(interval, confidence=confidence))
            value, ends, error, *counts = numbers
            rows.append((*key, metric, among, side, value, *ends, error, len(units), unit, *counts))
    return pd.DataFrame(rows, columns=RETURNED)


def _units(
    group: pd.DataFrame, diversity: bool
) -> Iterator[tuple[str, str, str, str, pd.DataFrame]]:
    """The units of one metric after another: metric, among, side, what a unit is, and the units
    (comparison, seed, value)."""
    valid = group[group["status"] == Status.changed.value]
    for outcome in (COUNTERFACTUAL, SEMIFACTUAL):
        for side, units in _coverage(group, outcome).items():
            yield "coverage", outcome, side, "comparisons × seeds", units
    edits = "perturbations"
    for _, side, rows in _parts(valid, (ALL,)):
        flips = rows.assign(value=(rows["outcome"] == COUNTERFACTUAL).astype(float))
        yield "brittleness", ALL, side, edits, flips
    for name in DISTANCES:
        for among, side, rows in _parts(valid.dropna(subset=[name])):
            yield name, among, side, edits, rows.assign(value=rows[name].astype(float))
    if RATIO in valid and valid[RATIO].notna().any():
        for among, side, rows in _parts(valid.dropna(subset=[RATIO])):
            fluent = (rows[RATIO] <= MAX_FLUENT_RATIO).astype(float)
            yield "fluent", among, side, edits, rows.assign(value=fluent)
    if "complied" in valid:
        for among, side, rows in _parts(valid.dropna(subset=["complied"])):
            yield "complied", among, side, edits, rows.assign(value=rows["complied"].astype(float))
    for name, sets in (_diversity(valid) if diversity else {}).items():
        for among, side, units in _parts(sets):
            yield f"{name} diversity", among, side, "sets", units
    for status in Status:
        requests = group.assign(value=(group["status"] == status.value).astype(float))
        yield status.value, ALL, ANY, "requests", requests


def _parts(
    rows: pd.DataFrame, subsets: Sequence[str] = SUBSETS
) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Rows by outcome (all, CF, SF; of sets the column `among`) and side."""
    column = rows["among" if "among" in rows else "outcome"]
    for among, side in product(subsets, SIDES):
        part = (column == among) | ((among == ALL) & (column.name == "outcome"))
        yield among, side, rows[part & ((side == ANY) | (rows["side"] == side))]


def _coverage(group: pd.DataFrame, outcome: str) -> dict[str, pd.DataFrame]:
    """By side: for each comparison and seed asked about, whether it has the outcome there."""
    by = [group["comparison"], group["seed"]]
    preferred, other = (
        ((group["outcome"] == outcome) & (group["side"] == side)).groupby(by, sort=False).any()
        for side in (CHOSEN, REJECTED)
    )
    sides = {CHOSEN: preferred, REJECTED: other, BOTH: preferred & other, ANY: preferred | other}
    return {side: hits.astype(float).rename("value").reset_index() for side, hits in sides.items()}


def _diversity(valid: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """By distance, comparison, seed, side, among, value: mean distance of the pairs of each set of
    two or more texts."""
    names = ["comparison", "seed", "side", "among", "value"]
    rows: dict[str, list[tuple]] = {name: [] for name in DISTANCES}
    for key, texts in valid.groupby(names[:3], sort=False):
        edited, outcome = texts["edited"].tolist(), texts["outcome"].to_numpy()
        vectors = embed(edited).astype(float)
        between = {
            "syntactic": np.array([[syntactic(a, b) for b in edited] for a in edited]),
            "semantic": np.clip(1 - vectors @ vectors.T, 0, 2),
        }
        for (name, distances), among in product(between.items(), SUBSETS):
            members = np.flatnonzero((outcome == among) | (among == ALL))
            if (k := len(members)) > 1:
                inside = distances[np.ix_(members, members)]
                mean = float((inside.sum() - np.trace(inside)) / (k * (k - 1)))
                rows[name].append((*key, among, mean))
    return {name: pd.DataFrame(sets, columns=names) for name, sets in rows.items()}


def _summary(
    units: pd.DataFrame, clusters: Sequence[str], interval: Callable[..., tuple[float, float]]
) -> tuple[float, tuple[float, float], float, int, int]:
    """Mean of the values of some units, its interval (of sums and counts by comparison) and its
    standard error over seeds; comparisons and seeds that have a unit."""
    index = cluster_index(units["comparison"], clusters)
    values = units["value"].to_numpy(dtype=float)
    counts = np.bincount(index, minlength=len(clusters))
    sums = np.bincount(index, weights=values, minlength=len(clusters))
    value = float(sums.sum() / counts.sum()) if len(units) else np.nan
    by_seed = units.groupby("seed")["value"].mean()
    error = by_seed.std(ddof=1) / np.sqrt(len(by_seed))
    return value, interval(sums, counts), error, int(np.count_nonzero(counts)), len(by_seed)


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
        Lower and upper bound, the share between them; NaN where fewer than two clusters have a
        unit, which says nothing of others.

    Source: Clopper & Pearson 1934; Korn & Graubard 1998 for the effective size in it.
    """
    hits, units = np.asarray(hits, dtype=float), np.asarray(units, dtype=float)
    hits, units = hits[units > 0], units[units > 0]
    if len(units) < 2:
        return np.nan, np.nan
    n = n_eff(hits, units)
    x = n * hits.sum() / units.sum()
    tail = (1 - confidence) / 2
    none, every = hits.sum() == 0, hits.sum() == units.sum()
    low = 0.0 if none else float(betaincinv(x, n - x + 1, tail))
    high = 1.0 if every else float(betaincinv(x + 1, n - x, 1 - tail))
    return low, high


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
