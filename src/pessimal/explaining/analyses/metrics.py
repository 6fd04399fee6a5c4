"""How good a perturber's explanations of a model are: coverage, brittleness, distances, fluency,
diversity, and what failed.

Knows the table of outcomes, with distances already in it. Does not know how a distance is measured,
nor attributes one by one (see `flips`). Intervals are over comparisons (see `intervals`).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import numpy as np
import pandas as pd

from pessimal.explaining.analyses.fluency import FLUENT, RATIO
from pessimal.explaining.analyses.intervals import (
    cluster_index,
    draws,
    median_interval,
    ratio_interval,
    share_interval,
)
from pessimal.explaining.attribute import PLACEBO
from pessimal.explaining.edits.distances import embed, syntactic
from pessimal.explaining.outcomes import (
    CHOSEN,
    COUNTERFACTUAL,
    KEY,
    REJECTED,
    SEMIFACTUAL,
)
from pessimal.explaining.perturbation import Status

ANY, BOTH, ALL = "any", "both", "all"
SHARE, MEAN, MEDIAN = "share", "mean", "median"
SUBSETS, SIDES = (ALL, COUNTERFACTUAL, SEMIFACTUAL), (CHOSEN, REJECTED, ANY)
DISTANCES = ("syntactic", "semantic")
RETURNED = ["model", "perturber", "placebo", "metric", "among", "side", "value", "low", "high"]
RETURNED += ["standard_error", "n", "unit", "comparisons", "seeds", "count"]


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
      `FLUENT`.
    * diversity: over sets of at least two valid perturbations of one response and seed (all, CF,
      SF), the mean distance of their pairs. Texts of the two sides are never paired: these differ
      as the responses do. Equal texts are at distance 0.
    * changed, not applicable, refused, failed: over all requests; the four add to 1.

    Placebo edits are a group of their own, also where the same perturber made them. Intervals are
    over comparisons: those of shares (coverage, brittleness and the four above) exact binomial ones
    at the effective number of units (see `share_interval`), those of means and medians percentile
    bootstraps (see `ratio_interval`). Standard errors are over seeds, on these comparisons: the
    standard deviation of the seeds' own values over the root of their number.

    Args:
        table: of outcomes, with a column for each of `DISTANCES`, NaN where it is not known.
        diversity: measure it too, for which every edited text is embedded.

    Returns:
        One row a metric: model, perturber, placebo (bool), metric, among (all, CF, SF), side
        (chosen, rejected, both, any), value (NaN where n = 0), low, high (with one comparison 0 and
        1 for a share, NaN for a mean), standard_error (NaN for fewer than two seeds), n, unit (what
        n counts), comparisons and seeds (that have a unit), count (units for which a share holds;
        NaN for means and medians).
    """
    rows = []
    table = table.assign(placebo=table["attribute"] == PLACEBO)
    for (model, perturber, is_placebo), group in table.groupby(
        ["model", "perturber", "placebo"], sort=False
    ):
        group = group.sort_values(KEY, kind="stable")  # the same bits in whatever order rows come
        clusters = sorted(set(group["comparison"]))
        weights = draws(len(clusters), replicates=replicates, seed=seed)
        for metric, subset, side, unit, kind, units in _units(group, diversity):
            summary = _summary(units, clusters, weights, kind=kind, confidence=confidence)
            row = {"model": model, "perturber": perturber, "placebo": bool(is_placebo)}
            row |= {"metric": metric, "among": subset, "side": side, "unit": unit}
            rows.append(row | summary)
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
    flips = valid.assign(value=(valid["outcome"] == COUNTERFACTUAL).astype(float))
    for side in SIDES:
        yield "brittleness", ALL, side, "perturbations", SHARE, _of_side(flips, side)
    for name in DISTANCES:
        for subset, side, rows in _parts(valid.dropna(subset=[name])):
            units = rows.assign(value=rows[name].astype(float))
            yield name, subset, side, "perturbations", MEAN, units
    with_ratio = valid.dropna(subset=[RATIO]) if RATIO in valid else valid.head(0)
    for subset, side, rows in _parts(with_ratio) if len(with_ratio) else ():
        ratios = rows.assign(value=rows[RATIO])
        yield "perplexity ratio", subset, side, "perturbations", MEDIAN, ratios
        fluent = rows.assign(value=(rows[RATIO] <= FLUENT).astype(float))
        yield "fluent", subset, side, "perturbations", SHARE, fluent
    for name, sets in (_diversity(valid) if diversity else {}).items():
        for subset, side in product(SUBSETS, SIDES):
            units = _of_side(sets[sets["among"] == subset], side)
            yield f"{name} diversity", subset, side, "sets", MEAN, units
    for status in Status:
        requests = group.assign(value=(group["status"] == status.value).astype(float))
        yield status.value, ALL, ANY, "requests", SHARE, requests


def _parts(rows: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Rows by outcome (all, CF, SF) and side."""
    for subset, side in product(SUBSETS, SIDES):
        among = rows if subset == ALL else rows[rows["outcome"] == subset]
        yield subset, side, _of_side(among, side)


def _coverage(group: pd.DataFrame, outcome: str) -> dict[str, pd.DataFrame]:
    """By side: for each comparison and seed asked about, whether it has the outcome there."""
    by = [group["comparison"], group["seed"]]
    chosen, rejected = (
        ((group["outcome"] == outcome) & (group["side"] == side)).groupby(by, sort=False).any()
        for side in (CHOSEN, REJECTED)
    )
    shown = {CHOSEN: chosen, REJECTED: rejected, BOTH: chosen & rejected, ANY: chosen | rejected}
    return {side: hits.astype(float).rename("value").reset_index() for side, hits in shown.items()}


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
        for (name, distances), subset in product(between.items(), SUBSETS):
            members = np.flatnonzero((outcome == subset) | (subset == ALL))
            if (k := len(members)) > 1:
                inside = distances[np.ix_(members, members)]
                mean = float((inside.sum() - np.trace(inside)) / (k * (k - 1)))
                rows[name].append((*key, subset, mean))
    return {name: pd.DataFrame(sets, columns=names) for name, sets in rows.items()}


def _of_side(rows: pd.DataFrame, side: str) -> pd.DataFrame:
    return rows if side == ANY else rows[rows["side"] == side]


def _summary(
    units: pd.DataFrame,
    clusters: Sequence[str],
    weights: np.ndarray,
    *,
    kind: str,
    confidence: float,
) -> dict[str, float]:
    """Mean (or median), interval and standard error of the values of some units."""
    index = cluster_index(units["comparison"], clusters)
    counts = np.bincount(index, minlength=len(clusters))
    sums = np.bincount(index, weights=units["value"], minlength=len(clusters))
    interval = share_interval if kind == SHARE else partial(ratio_interval, weights=weights)
    low, high = interval(sums, counts, confidence=confidence)
    value = float(sums.sum() / counts.sum()) if len(units) else np.nan
    by_seed = units.groupby("seed")["value"].agg(MEDIAN if kind == MEDIAN else MEAN)
    if kind == MEDIAN:
        values = units["value"].to_numpy(dtype=float)
        value = float(np.median(values)) if len(values) else np.nan
        low, high = median_interval(values, index, weights, confidence=confidence)
    error = float(by_seed.std(ddof=1) / np.sqrt(len(by_seed))) if len(by_seed) > 1 else np.nan
    return {
        "value": value,
        "low": low,
        "high": high,
        "standard_error": error,
        "n": len(units),
        "comparisons": int(np.count_nonzero(counts)),
        "seeds": len(by_seed),
        "count": float(sums.sum()) if kind == SHARE else np.nan,
    }
