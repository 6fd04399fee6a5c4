"""The quality of a perturber's explanations of a model: coverage, brittleness, distances, fluency,
diversity, and what failed.

Knows the table of outcomes, with distances already in it. Does not know how a distance is measured,
nor attributes one by one (see `flips`). Intervals are over comparisons (see `intervals`).
"""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pandas as pd

from pessimal.explaining.analyses.intervals import (
    cluster_index,
    draws,
    median_interval,
    ratio_interval,
    share_interval,
)
from pessimal.explaining.attribute import PLACEBO
from pessimal.explaining.edits.distances import embed, syntactic
from pessimal.explaining.outcomes import CHOSEN, COUNTERFACTUAL, KEY, REJECTED, SEMIFACTUAL
from pessimal.explaining.perturbers import Status

ANY, BOTH, ALL = "any", "both", "all"
SHARE, MEAN, MEDIAN = "share", "mean", "median"
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
    * perplexity ratio and fluent, where the table has that column: over valid perturbations with a
      known ratio, all of them and among CF, SF, the median ratio and whether it is at most
      `MAX_FLUENT_RATIO`.
    * diversity: over sets of at least two valid perturbations of one response and seed (all, CF,
      SF), the mean distance of their pairs. Texts of the two sides are never paired: these differ
      as the responses do. Equal texts are at distance 0.
    * changed, not applicable, refused, failed: over all requests; the four add to 1.

    Placebo edits are a group of their own, also where the same perturber made them. Intervals are
    over comparisons: those of shares (coverage, brittleness, fluent and the four above) exact
    binomial ones at the effective number of units (see `share_interval`), those of means and
    medians percentile bootstraps (see `ratio_interval`). Standard errors are over seeds, on these
    comparisons: the standard deviation of the seeds' own values over the root of their number.

    Args:
        table: of outcomes, with a column for each of `DISTANCES`, NaN where it is not known.
        diversity: measure it too, for which every edited text is embedded.

    Returns:
        One row a metric: model, perturber, placebo (bool), metric, among (all, CF, SF), side
        (chosen, rejected, both, any), value (NaN where n = 0), low, high (with one comparison 0 and
        1 for a share, NaN for a mean), standard_error (NaN for fewer than two seeds), n, unit (what
        n counts), comparisons and seeds (that have a unit).
    """
    rows = []
    table = table.assign(placebo=table["attribute"] == PLACEBO)
    for key, group in table.groupby(["model", "perturber", "placebo"], sort=False):
        group = group.sort_values(KEY, kind="stable")  # the same bits in whatever order rows come
        clusters = sorted(set(group["comparison"]))
        weights = draws(len(clusters), replicates=replicates, seed=seed)
        for metric, among, side, unit, kind, units in _units(group, diversity):
            numbers = _summary(units, clusters, weights, kind=kind, confidence=confidence)
            value, low, high, error, n, *counts = numbers
            row = (*key, metric, among, side, value, low, high, error, n, unit, *counts)
            rows.append(row)
    return pd.DataFrame(rows, columns=RETURNED)


Units = tuple[str, str, str, str, str, pd.DataFrame]
"""metric, among, side, unit, what it is (SHARE, MEAN or MEDIAN), and its units (comparison, seed,
value)."""


def _units(group: pd.DataFrame, diversity: bool) -> Iterator[Units]:
    """The units of one metric after another."""
    valid = group[group["status"] == Status.changed.value]
    for outcome in (COUNTERFACTUAL, SEMIFACTUAL):
        for side, units in _coverage(group, outcome).items():
            yield "coverage", outcome, side, "comparisons × seeds", SHARE, units
    edits = "perturbations"
    for _, side, rows in _parts(valid, (ALL,)):
        flips = rows.assign(value=(rows["outcome"] == COUNTERFACTUAL).astype(float))
        yield "brittleness", ALL, side, edits, SHARE, flips
    for name in DISTANCES:
        for among, side, rows in _parts(valid.dropna(subset=[name])):
            yield name, among, side, edits, MEAN, rows.assign(value=rows[name].astype(float))
    if RATIO in valid and valid[RATIO].notna().any():
        for among, side, rows in _parts(valid.dropna(subset=[RATIO])):
            fluent = (rows[RATIO] <= MAX_FLUENT_RATIO).astype(float)
            ratios = rows.assign(value=rows[RATIO])
            yield "perplexity ratio", among, side, edits, MEDIAN, ratios
            yield "fluent", among, side, edits, SHARE, rows.assign(value=fluent)
    for name, sets in (_diversity(valid) if diversity else {}).items():
        for among, side, units in _parts(sets):
            yield f"{name} diversity", among, side, "sets", MEAN, units
    for status in Status:
        requests = group.assign(value=(group["status"] == status.value).astype(float))
        yield status.value, ALL, ANY, "requests", SHARE, requests


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
    units: pd.DataFrame,
    clusters: Sequence[str],
    weights: np.ndarray,
    *,
    kind: str,
    confidence: float,
) -> tuple[float, float, float, float, int, int, int]:
    """Mean (or median) of the values of some units, its interval and standard error, units,
    comparisons and seeds."""
    index = cluster_index(units["comparison"], clusters)
    values = units["value"].to_numpy(dtype=float)
    counts = np.bincount(index, minlength=len(clusters))
    sums = np.bincount(index, weights=values, minlength=len(clusters))
    value = float(sums.sum() / counts.sum()) if len(units) else np.nan
    if kind == MEDIAN:
        value = float(np.median(values)) if len(units) else np.nan
        ends = median_interval(values, index, weights, confidence=confidence)
    elif kind == MEAN:
        ends = ratio_interval(sums, counts, weights, confidence=confidence)
    else:
        ends = share_interval(sums, counts, confidence=confidence)
    by_seed = units.groupby("seed")["value"].agg(MEDIAN if kind == MEDIAN else MEAN)
    error = float(by_seed.std(ddof=1) / np.sqrt(len(by_seed))) if len(by_seed) > 1 else np.nan
    return value, *ends, error, len(units), int(np.count_nonzero(counts)), len(by_seed)
