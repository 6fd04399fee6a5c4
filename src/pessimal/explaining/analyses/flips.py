"""Flip rates: how much each attribute moves a model's preferences, whether more than a placebo
does, and whether the edits did what was asked.

Knows the table of outcomes, and amounts that a judge measured. Does not know texts, detectors or
models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.explaining.analyses.intervals import (
    cluster_index,
    draws,
    ratio_interval,
    replicated,
    share_interval,
)
from pessimal.explaining.attribute import OVERALL, PLACEBO, Amount
from pessimal.explaining.outcomes import (
    CHOSEN,
    COUNTERFACTUAL,
    TIE,
    against_polarity,
    valid_rows,
)
from pessimal.statistics import benjamini_hochberg, sign_flip

MOVED = "moved/"
"""Columns of the table so named say by how many standard deviations of its detector, over the
responses as they stand, an edit moved an attribute; NaN without a text or an opinion."""
RETURNED = ["model", "perturber", "attribute", "liked", "which_is", "asked", "n", "comparisons"]
RETURNED += ["counterfactuals", "ties", "flip_rate", "flip_low", "flip_high"]
RETURNED += ["change", "change_low", "change_high", "size", "size_low", "size_high"]
RETURNED += ["flip_rank", "flip_first", "change_rank", "change_first"]
RETURNED += ["pairs", "flip_excess", "flip_excess_low", "flip_excess_high", "flip_p", "flip_q"]
RETURNED += ["change_excess", "change_p", "change_q"]
SHARES = ["n", "comparisons", "share", "low", "high"]
EDITS = ("all", "complied", "not complied", "not judged")
NULLS = {"rules": "placebo"}
"""Perturbers whose null is made by another name."""
OTHER = {Amount.more.value: Amount.less.value, Amount.less.value: Amount.more.value}


def null_makers(perturber: str) -> set[str]:
    """Whose placebo edits are of the same kind as the edits of a perturber: its own, or its
    counterpart's. Rewrites by a language model are not held against one-word edits by rule."""
    return {perturber, NULLS.get(perturber, perturber)}


def liked(attribute: str, side: str, amount: str | None) -> str:
    """The amount of an attribute that a model would like whose preference such an edit speaks
    against."""
    if attribute == PLACEBO or amount is None:
        return ""
    return OTHER[amount] if side == CHOSEN else amount


def attribute_flip_rates(
    table: pd.DataFrame,
    *,
    replicates: int = 1000,
    confidence: float = 0.95,
    permutations: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Flip rate and mean change of the margin, by model, perturber, attribute and direction of
    taste.

    Each attribute is asked about twice where edits were made both ways: would a model flip that
    likes *more* of it (the chosen response was given less, or the rejected more), and one that
    likes *less*? One of the two is what polarity calls better. The placebo is a row like the
    others, and has no taste.

    *Flip rate*: CFs over valid perturbations, those with a changed text; ties are in the
    denominator. *Change*: mean Δm over the same, in standard deviations of the model's rewards;
    negative where edits speak against the preference. *Size*: the mean of |Δm|; noise alone makes
    it positive. Intervals are over comparisons: of flip rates exact binomial (see
    `share_interval`), of the others bootstraps, in which one draw of comparisons serves all
    attributes.

    *Against the placebo*: within each response in which both have valid edits, the attribute's mean
    less the placebo's; averaged over the responses of a comparison, then over comparisons: the
    excess. Its p flips the sign of each comparison: one-sided for flips, two-sided for the change;
    exact up to `permutations` patterns, else (k + 1) / (permutations + 1). The excess of flips has
    a bootstrap interval. Assumed: without an
    effect a comparison's difference is as likely to have the other sign. q: Benjamini and Hochberg
    over all rows of one model and perturber (tests share the placebo, which ties them together
    positively; the procedure holds for that). Placebos of another kind than the edits test nothing
    (see `null_makers`).

    *Ranks* (1: most sensitive, ties share their mean) are by flip rate and by |change|, over the
    attributes of one model, perturber and taste; `first` is the share of bootstrap draws in which
    an attribute is first, split among ties.

    Returns:
        One row per model, perturber, attribute and taste: liked (more, less; empty for the placebo
        and for tables of earlier editions), which_is (better, worse by polarity), asked (requests),
        n (valid perturbations), comparisons, and the columns of `RETURNED`. NaN where nothing is
        valid or nothing is tested.

    Source: Jiang et al. 2025 (flip rate, ranks); Phipson & Smyth 2010 (the p of drawn
    permutations); Benjamini & Hochberg 1995; Benjamini & Yekutieli 2001. Both tastes, Δm and the
    null are ours.
    """
    pieces = []
    for _, of_model in table.groupby("model", sort=False):
        clusters = sorted(set(of_model["comparison"]))
        weights = draws(len(clusters), replicates=replicates, seed=seed)  # the same for every model
        placebos = valid_rows(of_model[of_model["attribute"] == PLACEBO])
        for perturber, edits in of_model.groupby("perturber", sort=False):
            same_kind = placebos["perturber"].isin(null_makers(perturber))
            test = partial(
                _tested,
                null=_by_response(placebos[same_kind], clusters),
                clusters=clusters,
                permutations=permutations,
                seed=seed,
                weights=weights,
                confidence=confidence,
            )
            polar = against_polarity(edits)
            piece = pd.concat(
                [
                    _arm(rows, clusters, weights, test, confidence).assign(which_is=which_is)
                    for which_is, rows in (("better", edits[polar]), ("worse", edits[~polar]))
                    if len(rows)
                ],
                ignore_index=True,
            )
            piece["which_is"] = piece["which_is"].where(piece["attribute"] != PLACEBO, "")
            for stem in ("flip", "change"):
                piece[f"{stem}_q"] = benjamini_hochberg(piece[f"{stem}_p"].to_numpy(dtype=float))
            pieces.append(piece[RETURNED])
    return pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=RETURNED)


@dataclass(frozen=True)
class Sums:
    """Valid perturbations by comparison and attribute: what ratios of sums are made of. Arrays
    (clusters, attributes)."""

    attributes: tuple[str, ...]
    valid: np.ndarray  # how many
    flips: np.ndarray  # how many are counterfactuals
    change: np.ndarray  # sum of Δm, in standard deviations of the reward
    size: np.ndarray  # sum of |Δm|, in the same unit

    def of(self, values: np.ndarray) -> np.ndarray:
        """Mean of one of the sums over valid perturbations, (attributes,); NaN where there is
        none."""
        below = self.valid.sum(axis=0)
        return np.divide(
            values.sum(axis=0), below, out=np.full(len(below), np.nan), where=below > 0
        )

    def replicated(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The same in every draw of clusters, (replicates, attributes)."""
        pairs = zip(values.T, self.valid.T, strict=True)
        columns = [replicated(column, valid, weights) for column, valid in pairs]
        return np.stack(columns, axis=1) if columns else np.empty((len(weights), 0))


def sums(rows: pd.DataFrame, clusters: Sequence[str], attributes: Sequence[str]) -> Sums:
    """Sums of the valid perturbations among `rows`; those of other comparisons and attributes are
    left out."""
    rows = valid_rows(rows)
    row = cluster_index(rows["comparison"], clusters)
    column = cluster_index(rows["attribute"], attributes)
    inside = (row >= 0) & (column >= 0)
    cell = row[inside] * len(attributes) + column[inside]
    change = rows["change_in_sd"].to_numpy(dtype=float)[inside]
    flips = (rows["outcome"] == COUNTERFACTUAL).to_numpy(dtype=float)[inside]
    shape = (len(clusters), len(attributes))
    arrays = [
        np.bincount(cell, weights=values, minlength=shape[0] * shape[1]).reshape(shape)
        for values in (np.ones(len(cell)), flips, change, np.abs(change))
    ]
    return Sums(tuple(attributes), *arrays)


def _arm(
    edits: pd.DataFrame,
    clusters: Sequence[str],
    weights: np.ndarray,
    test: Callable[[pd.DataFrame], dict[str, float]],
    confidence: float,
) -> pd.DataFrame:
    """Estimates, intervals, tests and ranks of one model, perturber and taste."""
    names = list(dict.fromkeys(edits["attribute"]))
    totals = sums(edits, clusters, names)
    bootstrap = partial(ratio_interval, weights=weights)
    lines = []
    for number, name in enumerate(names):
        rows, valid = edits[edits["attribute"] == name], totals.valid[:, number]
        first = rows.iloc[0]
        line = {key: first[key] for key in ("model", "perturber", "attribute")} | {
            "liked": liked(name, first["side"], first.get("amount")),
            "asked": len(rows),
            "n": int(valid.sum()),
            "comparisons": int(np.count_nonzero(valid)),
            "counterfactuals": int(totals.flips[:, number].sum()),
            "ties": int((rows["outcome"] == TIE).sum()),
        }
        for stem, estimate, values, interval in (
            ("flip", "flip_rate", totals.flips, share_interval),
            ("change", "change", totals.change, bootstrap),
            ("size", "size", totals.size, bootstrap),
        ):
            low, high = interval(values[:, number], valid, confidence=confidence)
            line |= {estimate: totals.of(values)[number], f"{stem}_low": low, f"{stem}_high": high}
        lines.append(line | test(rows))
    table = pd.DataFrame(lines)
    ranked = [number for number, name in enumerate(names) if name != PLACEBO]
    for stem, values in (("flip", totals.flips), ("change", totals.change)):
        estimates = np.abs(totals.of(values))[ranked]
        replicates = np.abs(totals.replicated(values, weights)[:, ranked])
        table[[f"{stem}_rank", f"{stem}_first"]] = np.nan
        table.loc[ranked, f"{stem}_rank"] = stats.rankdata(-estimates, nan_policy="omit")
        table.loc[ranked, f"{stem}_first"] = _first(replicates)
    return table


def _first(replicates: np.ndarray) -> np.ndarray:
    """Share of the draws (draws, attributes) in which each attribute is largest, ties split; draws
    without any are left out."""
    drawn = replicates[~np.isnan(replicates).all(axis=1)]
    if not drawn.size:
        return np.full(replicates.shape[1], np.nan)
    largest = drawn == np.nanmax(drawn, axis=1, keepdims=True)
    shares = (largest / largest.sum(axis=1, keepdims=True)).mean(axis=0)
    return np.where(np.isnan(drawn).all(axis=0), np.nan, shares)


def _tested(
    rows: pd.DataFrame,
    *,
    null: np.ndarray,
    clusters: Sequence[str],
    permutations: int,
    seed: int,
    weights: np.ndarray,
    confidence: float,
) -> dict[str, float]:
    """One attribute's edits against the placebo's (see `_by_response`), comparison by
    comparison."""
    # (flip and change, comparisons, responses)
    difference = _by_response(valid_rows(rows), clusters) - null
    if rows["attribute"].iloc[0] == PLACEBO:
        difference[:] = np.nan
    both = ~np.isnan(difference[0])
    paired = both.any(axis=1)
    sums_of_pairs = np.where(both, difference, 0).sum(axis=2)[:, paired]
    flips, change = sums_of_pairs / both.sum(axis=1)[paired]
    test = partial(sign_flip, permutations=permutations, seed=seed)
    low, high = ratio_interval(
        flips, np.ones(len(flips)), weights[:, paired], confidence=confidence
    )
    return {
        "pairs": int(paired.sum()),
        "flip_excess": float(flips.mean()) if len(flips) else np.nan,
        "flip_excess_low": low,
        "flip_excess_high": high,
        "flip_p": test(flips, two_sided=False),
        "change_excess": float(change.mean()) if len(change) else np.nan,
        "change_p": test(change, two_sided=True),
    }


def _by_response(valid: pd.DataFrame, clusters: Sequence[str]) -> np.ndarray:
    """Flip rate and mean change of the valid perturbations of each response, (2, clusters, 2); NaN
    without one."""
    response = valid["response"].to_numpy(dtype=np.intp)
    cell = 2 * cluster_index(valid["comparison"], clusters) + response
    n = np.bincount(cell, minlength=2 * len(clusters))
    flips = (valid["outcome"] == COUNTERFACTUAL).to_numpy(dtype=float)
    change = valid["change_in_sd"].to_numpy(dtype=float)
    totals = np.stack([np.bincount(cell, each, minlength=len(n)) for each in (flips, change)])
    means = np.divide(totals, n, out=np.full(totals.shape, np.nan), where=n > 0)
    return means.reshape(2, len(clusters), 2)


def compliance(
    outcomes: pd.DataFrame,
    *,
    by: Sequence[str] = ("attribute", "side", "perturber"),
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The share of one model's edits that moved their attribute the asked way, of those the judge
    has an opinion on.

    One row a group ([]: one over all): its columns, asked (perturbations), texts (of these, with a
    text), n (of these, judged), comparisons (among the judged), share, low, high (see
    `share_interval`). NaN where none was judged.
    """
    rows = []
    for key, group in outcomes.groupby(list(by), sort=False) if by else [((), outcomes)]:
        texts = group["edited"].notna()
        judged = group[texts & group["complied"].notna()]
        complied, comparisons = judged["complied"].astype(bool), judged["comparison"]
        share = clustered_share(complied, comparisons, confidence=confidence)
        counts = {"asked": len(group), "texts": int(texts.sum())}
        rows.append(dict(zip(by, key, strict=True)) | counts | share)
    return pd.DataFrame(rows, columns=[*by, "asked", "texts", *SHARES])


def flip_rates(outcomes: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """The flip rate over all edits, over those that complied, and over those that did not.

    A low rate over all edits may mean that the model resists or that the edits failed; the rate
    over those that complied is the model's. Whoever complied is no random half: compare it between
    models, which meet the same edits.

    Four rows a model and attribute: edits (all, complied, not complied, not judged), n (edits with
    a text), comparisons, ties (share of n; they count as no flip), share (flips of n), low, high
    (see `share_interval`).
    """
    by = ["model", "attribute"]
    valid = outcomes[outcomes["outcome"].notna()]
    judged = valid["complied"].map({True: EDITS[1], False: EDITS[2]}).fillna(EDITS[3])
    rows = []
    for key, group in valid.assign(judged=judged).groupby(by, sort=False):
        for edits in EDITS:
            chosen = group if edits == "all" else group[group["judged"] == edits]
            flips = chosen["outcome"] == COUNTERFACTUAL
            share = clustered_share(flips, chosen["comparison"], confidence=confidence)
            ties = {"edits": edits, "ties": float((chosen["outcome"] == TIE).mean())}
            rows.append(dict(zip(by, key, strict=True)) | ties | share)
    return pd.DataFrame(rows, columns=[*by, "edits", *SHARES[:2], "ties", *SHARES[2:]])


def off_target(outcomes: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """What one model's edits along one attribute moved in each attribute, by the judge's detectors
    (columns `moved/NAME`).

    In standard deviations (divisor n − 1) of the detector over the distinct original responses,
    times −1 where less of the asked attribute was asked for: "as `asked` is raised, `detector`
    moves by". The placebo has no such direction; its edits count as they are. Each comparison
    weighs as many edits as it has.

    Args:
        confidence: of Student t intervals over comparisons, robust to dependence within them.

    Returns:
        One row a pair, asked × detector: asked, detector, on_target, n, comparisons, mean, low,
        high. Bounds are NaN with one comparison; the mean too for a detector that gives all
        originals the same amount.
    """
    edits = outcomes[outcomes["edited"].notna()]
    less = (edits["amount"] == Amount.less.value) & ~edits["attribute"].isin([PLACEBO, OVERALL])
    moves = edits.filter(like=MOVED).mul(np.where(less, -1.0, 1.0), axis=0)
    rows = []
    for asked, group in edits.groupby("attribute", sort=False):
        for column in moves:
            detector = column.removeprefix(MOVED)
            mean = _clustered_mean(moves.loc[group.index, column], group["comparison"], confidence)
            names = {"asked": asked, "detector": detector, "on_target": asked == detector}
            rows.append(names | mean)
    columns = ["asked", "detector", "on_target", "n", "comparisons", "mean", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def clustered_share(hits: pd.Series, clusters: pd.Series, *, confidence: float) -> dict[str, float]:
    """The share of items that hit, with its interval over clusters: n, comparisons, share, low,
    high (see `share_interval`); NaN without items."""
    index, names = pd.factorize(clusters.to_numpy())
    units = np.bincount(index, minlength=len(names))
    hit = np.bincount(index, weights=hits.to_numpy(dtype=float), minlength=len(names))
    share = float(hit.sum() / len(hits)) if len(hits) else float("nan")
    low, high = share_interval(hit, units, confidence=confidence)
    return dict(zip(SHARES, (len(hits), len(names), share, low, high), strict=True))


def _clustered_mean(values: pd.Series, clusters: pd.Series, confidence: float) -> dict[str, float]:
    """Mean of dependent values with a t interval: squared sums of deviations within clusters, times
    G / (G − 1)."""
    given = values.notna()
    values, clusters = values[given], clusters[given]
    count, mean = len(pd.unique(clusters)), float(values.mean())
    reach = float("nan")
    if count > 1:
        within = np.bincount(pd.factorize(clusters.to_numpy())[0], values.to_numpy() - mean)
        error = np.sqrt(count / (count - 1) * (within**2).sum()) / len(values)
        reach = stats.t.ppf((1 + confidence) / 2, count - 1) * error
    ends = {"low": mean - reach, "high": mean + reach}
    return {"n": len(values), "comparisons": count, "mean": mean, **ends}
