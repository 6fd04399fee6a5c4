"""Flip rates: how much each attribute moves a model's preferences, and whether more than a placebo does.

Knows the table of outcomes. Does not know why: an attribute whose edits change little looks like one that the model does
not mind (read it beside the compliance of the edits).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control, rankdata

from pessimal.errors import TableError
from pessimal.explain.attribute import PLACEBO
from pessimal.explain.metrics import check_resampling, cluster_index, draws, ratio_interval, replicated
from pessimal.explain.outcomes import (
    COUNTERFACTUAL,
    KEY,
    TIE,
    as_table,
    check_outcomes,
    groups,
    in_order,
)
from pessimal.explain.perturbation import Status
from pessimal.explain.shares import share_interval
from pessimal.statistics import sign_flip

USED = [*KEY, "side", "status", "change_in_sd", "outcome"]
RETURNED = ["model", "perturber", "attribute", "asked", "n", "comparisons", "counterfactuals", "ties"]
RETURNED += ["flip_rate", "flip_low", "flip_high", "change", "change_low", "change_high"]
RETURNED += ["size", "size_low", "size_high", "flip_rank", "flip_first", "change_rank", "change_first"]
RETURNED += ["pairs", "flip_excess", "flip_p", "flip_q", "change_excess", "change_p", "change_q"]


def attribute_flip_rates(
    table: pd.DataFrame,
    *,
    replicates: int = 1000,
    confidence: float = 0.95,
    permutations: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Flip rate and mean change of the margin, by model, perturber and attribute; the placebo is a row like the others.

    The *flip rate* (PFR) is CFs over valid perturbations, those with a changed text; ties are in the denominator and are
    neither CF nor SF. The *change* is the mean Δm over the same perturbations, in standard deviations of the model's rewards:
    negative where the edits speak against the preference, as they were meant to. The *size* is the mean of |Δm|, in the same
    unit; noise alone makes it positive. Intervals are over comparisons, each with all of its rows: that of the flip rate exact
    binomial at the effective number of edits (see `share_interval`), those of change and size bootstraps
    over the model's comparisons, in which one draw serves all attributes, perturbers and the placebo. The interval of the
    placebo's own row is what the flip rates of the others are to be seen against.

    *Against the placebo*: within each response in which both have valid edits, the attribute's mean less the placebo's;
    averaged over the responses of a comparison; averaged over comparisons, this is the excess. Its p is the share of patterns
    of signs, one sign a comparison, that give at least as much: one-sided for flips (more than the placebo's), two-sided for
    the change. Exact where there are no more than `permutations` patterns, else (k + 1) / (permutations + 1). What is assumed:
    without an effect a comparison's difference is as likely to have the other sign. The q are p after Benjamini and Hochberg,
    over the attributes of one model and perturber, for flips and change apart; attributes without a p are not in the family.
    All tests of a family share the placebo, which ties them together positively; the procedure holds for that (Benjamini &
    Yekutieli 2001). Placebo rows of the model count whoever made them.

    *Ranks* (1 = most sensitive, ties share their mean) are by flip rate and by |change|, over the attributes of one model and
    perturber without the placebo; `first` is the share of bootstrap draws in which an attribute is first, split among ties.

    Args:
        table: of outcomes.
        replicates: bootstrap draws of comparisons.
        confidence: of the intervals.
        permutations: most patterns of signs.
        seed: of the draws; every model starts from it anew, and so does every test.

    Returns:
        One row per model, perturber and attribute, in their order in the table: model, perturber, attribute, asked (requests),
        n (valid perturbations), comparisons (that have one), counterfactuals, ties, flip_rate, flip_low, flip_high, change,
        change_low, change_high, size, size_low, size_high, flip_rank, flip_first, change_rank, change_first, pairs
        (comparisons in which attribute and placebo meet), flip_excess, flip_p, flip_q, change_excess, change_p, change_q. NaN
        where nothing is valid; intervals of change and size need two comparisons (that of the flip rate is 0 to 1); tests need a placebo, and are NaN for itself.

    Raises:
        TableError: a column is missing, a perturbation is there twice, or no such bootstrap or test.

    Source: Jiang et al. 2025 (flip rate, ranks); Phipson & Smyth 2010 (the p of drawn permutations); Benjamini & Hochberg 1995.
    """
    check_outcomes(table, columns=USED)
    check_resampling(replicates=replicates, confidence=confidence)
    if permutations < 100:
        raise TableError(
            f"permutations={permutations} cannot give a small p; give at least 100, such as 10000."
        )
    pieces = []
    for _, of_model in groups(table, ["model"]):
        clusters = sorted(set(of_model["comparison"]))
        weights = draws(len(clusters), replicates=replicates, seed=seed)
        placebo = valid_rows(of_model[of_model["attribute"] == PLACEBO])
        for _, made in groups(of_model, ["perturber"]):
            piece = _described(made, clusters, weights, confidence=confidence)
            tests = [
                _tested(made, name, placebo, clusters, permutations, seed) for name in piece["attribute"]
            ]
            piece = piece.join(pd.DataFrame(tests))
            for test in ("flip", "change"):
                piece[f"{test}_q"] = benjamini_hochberg(piece[f"{test}_p"].to_numpy(dtype=float))
            pieces.append(piece)
    return pd.concat(pieces, ignore_index=True)[RETURNED] if pieces else as_table([], RETURNED)


@dataclass(frozen=True)
class Sums:
    """Valid perturbations by comparison and attribute: what ratios of sums are made of."""

    attributes: tuple[str, ...]
    """Columns of the arrays."""
    valid: np.ndarray
    """(clusters, attributes): how many."""
    flips: np.ndarray
    """(clusters, attributes): how many are counterfactuals."""
    change: np.ndarray
    """(clusters, attributes): sum of Δm, in standard deviations of the reward."""
    size: np.ndarray
    """(clusters, attributes): sum of |Δm|, in the same unit."""

    def of(self, values: np.ndarray) -> np.ndarray:
        """Mean of one of the sums over valid perturbations, (attributes,); NaN where there is none."""
        below = self.valid.sum(axis=0)
        return np.divide(values.sum(axis=0), below, out=np.full(len(below), np.nan), where=below > 0)

    def replicated(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The same in every draw of clusters, (replicates, attributes)."""
        columns = [replicated(own, valid, weights) for own, valid in zip(values.T, self.valid.T, strict=True)]
        return np.stack(columns, axis=1) if columns else np.empty((len(weights), 0))


def sums(rows: pd.DataFrame, clusters: Sequence[str], attributes: Sequence[str]) -> Sums:
    """Sums of the valid perturbations among `rows`, whose comparisons are among the clusters; others are left out."""
    rows = valid_rows(rows)
    column = {name: number for number, name in enumerate(attributes)}
    known = set(clusters)
    pairs = zip(rows["comparison"], rows["attribute"], strict=True)
    rows = rows[np.array([key in known and name in column for key, name in pairs], dtype=bool)]
    of_attribute = np.array([column[name] for name in rows["attribute"]], dtype=np.intp)
    cell = cluster_index(rows["comparison"], clusters) * len(attributes) + of_attribute
    change = rows["change_in_sd"].to_numpy(dtype=float)
    flips = (rows["outcome"] == COUNTERFACTUAL).to_numpy(dtype=float)
    shape = (len(clusters), len(attributes))
    arrays = [
        np.bincount(cell, weights=values, minlength=shape[0] * shape[1]).reshape(shape)
        for values in (np.ones(len(rows)), flips, change, np.abs(change))
    ]
    return Sums(tuple(attributes), *arrays)


def valid_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Those with a changed text, in the order of their keys."""
    return in_order(rows[rows["status"] == Status.changed.value])


def benjamini_hochberg(p: np.ndarray) -> np.ndarray:
    """Adjusted p (n,), over those that are numbers."""
    adjusted = np.full(len(p), np.nan)
    known = ~np.isnan(p)
    if known.any():
        adjusted[known] = false_discovery_control(p[known])
    return adjusted


def _described(
    made: pd.DataFrame, clusters: Sequence[str], weights: np.ndarray, *, confidence: float
) -> pd.DataFrame:
    """Estimates, intervals and ranks of one model and perturber."""
    names = list(dict.fromkeys(made["attribute"]))
    found = sums(made, clusters, names)
    table = pd.DataFrame(
        {
            "model": pd.Series([made["model"].iloc[0]] * len(names), dtype=object),
            "perturber": pd.Series([made["perturber"].iloc[0]] * len(names), dtype=object),
            "attribute": pd.Series(names, dtype=object),
            "asked": [int((made["attribute"] == name).sum()) for name in names],
            "n": found.valid.sum(axis=0).astype(int),
            "comparisons": np.count_nonzero(found.valid, axis=0),
            "counterfactuals": found.flips.sum(axis=0).astype(int),
            "ties": [int(((made["attribute"] == name) & (made["outcome"] == TIE)).sum()) for name in names],
        }
    )
    for stem, estimate, values, interval in (
        ("flip", "flip_rate", found.flips, share_interval),
        ("change", "change", found.change, partial(ratio_interval, weights=weights)),
        ("size", "size", found.size, partial(ratio_interval, weights=weights)),
    ):
        table[estimate] = found.of(values)
        ends = [
            interval(own, valid, confidence=confidence)
            for own, valid in zip(values.T, found.valid.T, strict=True)
        ]
        table[f"{stem}_low"], table[f"{stem}_high"] = zip(*ends, strict=True)
    ranked = [number for number, name in enumerate(names) if name != PLACEBO]
    for stem, values in (("flip", found.flips), ("change", found.change)):
        estimates = np.abs(found.of(values))[ranked]
        table[[f"{stem}_rank", f"{stem}_first"]] = np.nan
        table.loc[ranked, f"{stem}_rank"] = rankdata(-estimates, nan_policy="omit")
        table.loc[ranked, f"{stem}_first"] = _first(np.abs(found.replicated(values, weights)[:, ranked]))
    return table


def _first(replicates: np.ndarray) -> np.ndarray:
    """Share of the draws (draws, attributes) in which each attribute is largest, ties split; draws without any are left out."""
    drawn = replicates[~np.isnan(replicates).all(axis=1)]
    if not drawn.size:
        return np.full(replicates.shape[1], np.nan)
    largest = drawn == np.nanmax(drawn, axis=1, keepdims=True)
    shares = (largest / largest.sum(axis=1, keepdims=True)).mean(axis=0)
    return np.where(np.isnan(drawn).all(axis=0), np.nan, shares)


def _tested(
    made: pd.DataFrame,
    attribute: str,
    placebo: pd.DataFrame,
    clusters: Sequence[str],
    permutations: int,
    seed: int,
) -> dict[str, float]:
    """The attribute against the placebo, comparison by comparison."""
    if attribute == PLACEBO:
        nothing = dict.fromkeys(("flip_excess", "flip_p", "change_excess", "change_p"), np.nan)
        return {"pairs": 0, **nothing}
    own = valid_rows(made[made["attribute"] == attribute])
    away = _by_response(own, clusters) - _by_response(
        placebo, clusters
    )  # (flip and change, comparisons, responses)
    meet = ~np.isnan(away[0])
    paired = meet.any(axis=1)
    flips, change = np.where(meet, away, 0).sum(axis=2)[:, paired] / meet.sum(axis=1)[paired]
    return {
        "pairs": int(paired.sum()),
        "flip_excess": float(flips.mean()) if len(flips) else np.nan,
        "flip_p": sign_flip(flips, two_sided=False, permutations=permutations, seed=seed),
        "change_excess": float(change.mean()) if len(change) else np.nan,
        "change_p": sign_flip(change, two_sided=True, permutations=permutations, seed=seed),
    }


def _by_response(valid: pd.DataFrame, clusters: Sequence[str]) -> np.ndarray:
    """Flip rate and mean change of the valid perturbations of each response, (2, clusters, 2); NaN without one."""
    cell = 2 * cluster_index(valid["comparison"], clusters) + valid["response"].to_numpy(dtype=np.intp)
    n = np.bincount(cell, minlength=2 * len(clusters))
    flips = (valid["outcome"] == COUNTERFACTUAL).to_numpy(dtype=float)
    change = valid["change_in_sd"].to_numpy(dtype=float)
    totals = np.stack([np.bincount(cell, weights=values, minlength=len(n)) for values in (flips, change)])
    means = np.divide(totals, n, out=np.full(totals.shape, np.nan), where=n > 0)
    return means.reshape(2, len(clusters), 2)
