"""Flip rates: how much each attribute moves a model's preferences, whether more than a placebo does, and whether the edits
did what was asked.

Knows the table of outcomes, and amounts that a judge measured. Does not know texts, detectors or models.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.errors import TableError
from pessimal.explain.attribute import PLACEBO, Amount, Attribute, Direction
from pessimal.explain.intervals import (
    benjamini_hochberg,
    check_resampling,
    cluster_index,
    draws,
    ratio_interval,
    replicated,
    share_interval,
)
from pessimal.explain.outcomes import (
    CHOSEN,
    COUNTERFACTUAL,
    EDIT,
    KEY,
    SEMIFACTUAL,
    TIE,
    against_polarity,
    as_table,
    check_outcomes,
    groups,
    in_order,
    require,
)
from pessimal.explain.perturbation import Status
from pessimal.statistics import sign_flip

USED = [*KEY, "side", "status", "change_in_sd", "outcome"]
RETURNED = ["model", "perturber", "attribute", "liked", "which_is", "asked", "n", "comparisons"]
RETURNED += ["counterfactuals", "ties", "flip_rate", "flip_low", "flip_high", "change", "change_low"]
RETURNED += ["change_high", "size", "size_low", "size_high", "flip_rank", "flip_first", "change_rank"]
RETURNED += ["change_first", "pairs", "flip_excess", "flip_p", "flip_q", "change_excess", "change_p", "change_q"]  # fmt: skip
SHARES = ["n", "comparisons", "share", "low", "high"]
EDITS = ("all", "complied", "not complied", "not judged")
NULLS = {"rules": "placebo"}
"""Perturbers whose null is made by another name."""


def is_null_of(placebo: str, perturber: str) -> bool:
    """Whether the placebo edits of the perturber `placebo` are of the same kind as the edits of `perturber`: made by the
    same one, or by its counterpart. Rewrites by a language model are not held against one-word edits by rule."""
    return placebo in (perturber, NULLS.get(perturber))


def attribute_flip_rates(
    table: pd.DataFrame,
    *,
    replicates: int = 1000,
    confidence: float = 0.95,
    permutations: int = 10_000,
    seed: int = 0,
) -> pd.DataFrame:
    """Flip rate and mean change of the margin, by model, perturber, attribute and direction of taste.

    Each attribute is asked about twice where edits were made both ways: would a model flip that likes *more* of it (the
    chosen response was given less, or the rejected more), and one that likes *less*? One of the two is what polarity
    calls better. The placebo is a row like the others, and has no taste.

    *Flip rate*: CFs over valid perturbations, those with a changed text; ties are in the denominator. *Change*: mean Δm
    over the same, in standard deviations of the model's rewards; negative where edits speak against the preference.
    *Size*: the mean of |Δm|; noise alone makes it positive. Intervals are over comparisons: of flip rates exact binomial
    (see `share_interval`), of the others bootstraps, in which one draw of comparisons serves all attributes.

    *Against the placebo*: within each response in which both have valid edits, the attribute's mean less the placebo's;
    averaged over the responses of a comparison, then over comparisons: the excess. Its p flips the sign of each
    comparison: one-sided for flips, two-sided for the change; exact up to `permutations` patterns, else
    (k + 1) / (permutations + 1). Assumed: without an effect a comparison's difference is as likely to have the other sign.
    q: Benjamini and Hochberg over all rows of one model and perturber (tests share the placebo, which ties them together
    positively; the procedure holds for that). Placebos of another kind than the edits test nothing (see `is_null_of`).

    *Ranks* (1: most sensitive, ties share their mean) are by flip rate and by |change|, over the attributes of one model,
    perturber and taste; `first` is the share of bootstrap draws in which an attribute is first, split among ties.

    Args:
        table: of outcomes.
        replicates: bootstrap draws of comparisons.
        confidence: of the intervals.
        permutations: most patterns of signs.
        seed: of the draws; every model starts from it anew, and so does every test.

    Returns:
        One row per model, perturber, attribute and taste: liked (more, less; empty for the placebo and for tables of
        earlier editions), which_is (better, worse by polarity), asked (requests), n (valid perturbations), comparisons,
        and the columns of `RETURNED`. NaN where nothing is valid or nothing is tested.

    Raises:
        TableError: a column is missing, a perturbation is there twice, or no such bootstrap or test.

    Source: Jiang et al. 2025 (flip rate, ranks); Phipson & Smyth 2010 (the p of drawn permutations); Benjamini & Hochberg
    1995; Benjamini & Yekutieli 2001. Both tastes, Δm and the null are ours.
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
        placebos = valid_rows(of_model[of_model["attribute"] == PLACEBO])
        for (perturber,), made in groups(of_model, ["perturber"]):
            own_kind = [is_null_of(maker, perturber) for maker in placebos["perturber"]]
            null = placebos[np.array(own_kind, dtype=bool)]
            polar = against_polarity(made)
            arms = []
            for which_is, rows in (("better", made[polar]), ("worse", made[~polar])):
                if rows.empty:
                    continue
                arm = _described(rows, clusters, weights, confidence=confidence)
                tests = [_tested(rows, name, null, clusters, permutations, seed) for name in arm["attribute"]]
                arm = arm.join(pd.DataFrame(tests))
                arms.append(arm.assign(which_is=[which_is if n != PLACEBO else "" for n in arm["attribute"]]))
            piece = pd.concat(arms, ignore_index=True)
            for test in ("flip", "change"):
                piece[f"{test}_q"] = benjamini_hochberg(piece[f"{test}_p"].to_numpy(dtype=float))
            pieces.append(piece)
    return pd.concat(pieces, ignore_index=True)[RETURNED] if pieces else as_table([], RETURNED)


@dataclass(frozen=True)
class Sums:
    """Valid perturbations by comparison and attribute: what ratios of sums are made of. Arrays (clusters, attributes)."""

    attributes: tuple[str, ...]
    valid: np.ndarray
    """How many."""
    flips: np.ndarray
    """How many are counterfactuals."""
    change: np.ndarray
    """Sum of Δm, in standard deviations of the reward."""
    size: np.ndarray
    """Sum of |Δm|, in the same unit."""

    def of(self, values: np.ndarray) -> np.ndarray:
        """Mean of one of the sums over valid perturbations, (attributes,); NaN where there is none."""
        below = self.valid.sum(axis=0)
        return np.divide(values.sum(axis=0), below, out=np.full(len(below), np.nan), where=below > 0)

    def replicated(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """The same in every draw of clusters, (replicates, attributes)."""
        columns = [replicated(own, valid, weights) for own, valid in zip(values.T, self.valid.T, strict=True)]
        return np.stack(columns, axis=1) if columns else np.empty((len(weights), 0))


def sums(rows: pd.DataFrame, clusters: Sequence[str], attributes: Sequence[str]) -> Sums:
    """Sums of the valid perturbations among `rows`; those of other comparisons and attributes are left out."""
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


def _described(
    made: pd.DataFrame, clusters: Sequence[str], weights: np.ndarray, *, confidence: float
) -> pd.DataFrame:
    """Estimates, intervals and ranks of one model, perturber and taste."""
    names = list(dict.fromkeys(made["attribute"]))
    found = sums(made, clusters, names)
    of_name = [made[made["attribute"] == name] for name in names]
    table = pd.DataFrame(
        {
            "model": pd.Series([made["model"].iloc[0]] * len(names), dtype=object),
            "perturber": pd.Series([made["perturber"].iloc[0]] * len(names), dtype=object),
            "attribute": pd.Series(names, dtype=object),
            "liked": pd.Series([_liked(rows) for rows in of_name], dtype=object),
            "asked": [len(rows) for rows in of_name],
            "n": found.valid.sum(axis=0).astype(int),
            "comparisons": np.count_nonzero(found.valid, axis=0),
            "counterfactuals": found.flips.sum(axis=0).astype(int),
            "ties": [int((rows["outcome"] == TIE).sum()) for rows in of_name],
        }
    )
    for stem, estimate, values, interval in (
        ("flip", "flip_rate", found.flips, share_interval),
        ("change", "change", found.change, partial(ratio_interval, weights=weights)),
        ("size", "size", found.size, partial(ratio_interval, weights=weights)),
    ):
        table[estimate] = found.of(values)
        columns = zip(values.T, found.valid.T, strict=True)
        ends = [interval(own, valid, confidence=confidence) for own, valid in columns]
        table[f"{stem}_low"], table[f"{stem}_high"] = zip(*ends, strict=True)
    ranked = [number for number, name in enumerate(names) if name != PLACEBO]
    for stem, values in (("flip", found.flips), ("change", found.change)):
        estimates = np.abs(found.of(values))[ranked]
        table[[f"{stem}_rank", f"{stem}_first"]] = np.nan
        table.loc[ranked, f"{stem}_rank"] = stats.rankdata(-estimates, nan_policy="omit")
        table.loc[ranked, f"{stem}_first"] = _first(np.abs(found.replicated(values, weights)[:, ranked]))
    return table


def _liked(rows: pd.DataFrame) -> str:
    """The amount of the attribute that a model would like whose preference these edits speak against."""
    row = rows.iloc[0]
    if row["attribute"] == PLACEBO or "amount" not in rows:
        return ""
    other = {Amount.more.value: Amount.less.value, Amount.less.value: Amount.more.value}
    return other[row["amount"]] if row["side"] == CHOSEN else row["amount"]


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
    # (flip and change, comparisons, responses)
    away = _by_response(own, clusters) - _by_response(placebo, clusters)
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


def compliance(
    outcomes: pd.DataFrame,
    *,
    by: Sequence[str] = ("attribute", "side", "perturber"),
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The share of edits that moved their attribute the asked way, of those the judge has an opinion on.

    A perturbation that serves several models counts once (within a model if `model` is in `by`, and once a side if a
    side differs between models). What was asked for without a text coming back is counted, and is not part of the share.

    Args:
        outcomes: the table of outcomes.
        by: columns to group by; [] gives one row over all.
        confidence: of the intervals (see `share_interval`).

    Returns:
        One row a group: its columns, asked (perturbations), texts (of these, with a text), n (of these, judged),
        comparisons (among the judged), share, low, high. NaN where none was judged.

    Raises:
        TableError: a column is missing, or one perturbation carries different judgements.
    """
    require(outcomes, [*EDIT, *by, "edited", "complied"])
    _check_confidence(confidence)
    named = [*dict.fromkeys([*EDIT, *by])]
    # What is missing may be None in one row and NaN in another, as tables were joined; they are the same answer.
    judged_rows = outcomes.assign(
        edited=outcomes["edited"].astype(object).where(outcomes["edited"].notna(), None),
        complied=outcomes["complied"].map({True: 1.0, False: 0.0}).astype(float),
    )
    once = judged_rows.drop_duplicates([*named, "edited", "complied"])
    if once.duplicated(named).any():
        first = once[once.duplicated(named)].iloc[0]
        raise TableError(
            f"One perturbation has different texts or judgements in different rows: {first[EDIT].to_dict()}. "
            "Join the judge's answers to perturbations, not to single models' rows."
        )

    def rows(group: pd.DataFrame) -> Iterator[dict]:
        judged = group[group["edited"].notna() & group["complied"].notna()]
        share = clustered_share(judged["complied"].astype(bool), judged["comparison"], confidence=confidence)
        yield {"asked": len(group), "texts": int(group["edited"].notna().sum()), **share}

    return _grouped(once, by, rows, ["asked", "texts", *SHARES])


def flip_rates(
    outcomes: pd.DataFrame, *, by: Sequence[str] = ("model", "attribute"), confidence: float = 0.95
) -> pd.DataFrame:
    """The flip rate over all edits, over those that complied, and over those that did not.

    A low rate over all edits may mean that the model resists or that the edits failed; the rate over those that complied
    is the model's. Whoever complied is no random half: compare it between models, which meet the same edits.

    Returns:
        Four rows a group: its columns, edits (all, complied, not complied, not judged), n (edits with a text), comparisons,
        ties (share of n; they count as no flip), share (flips of n), low, high (see `share_interval`).

    Raises:
        TableError: a column is missing, or an outcome is none of CF, SF and tie.
    """
    require(outcomes, [*by, "comparison", "outcome", "complied"])
    _check_confidence(confidence)
    valid = outcomes[outcomes["outcome"].notna()].reset_index(drop=True)
    if strange := sorted(set(valid["outcome"]) - {COUNTERFACTUAL, SEMIFACTUAL, TIE}, key=str):
        raise TableError(f"Outcomes are CF, SF or tie, not {', '.join(map(repr, strange))}.")
    judged = valid["complied"].map({True: "complied", False: "not complied"}).fillna("not judged")

    def rows(group: pd.DataFrame) -> Iterator[dict]:
        for edits in EDITS:
            kept = group if edits == "all" else group[judged[group.index] == edits]
            share = clustered_share(kept["outcome"] == COUNTERFACTUAL, kept["comparison"], confidence=confidence)  # fmt: skip
            yield {"edits": edits, "ties": float((kept["outcome"] == TIE).mean()), **share}

    return _grouped(valid, by, rows, ["edits", "n", "comparisons", "ties", "share", "low", "high"])


def off_target(
    outcomes: pd.DataFrame,
    before: pd.DataFrame,
    after: pd.DataFrame,
    attributes: Sequence[Attribute],
    *,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """What an edit along one attribute moved in each attribute, by the judge's detectors.

    In standard deviations (divisor n − 1) of the detector over the distinct original responses, times −1 where less of the
    asked attribute was asked for: "as `asked` is raised, `detector` moves by". An attribute that is not among `attributes`
    (the placebo) has no such direction; its edits count as they are. A perturbation that serves several models counts
    once. Each comparison weighs as many edits as it has.

    Args:
        outcomes: the table of outcomes, with distinct row labels; rows without a text are left out.
        before, after: amounts of the original and the edited texts, one column a detector, rows labelled as `outcomes`;
            NaN where the judge has no opinion or there is no text.
        attributes: those asked for; says whether better means more or less.
        confidence: of Student t intervals over comparisons, robust to dependence within them.

    Returns:
        One row a pair, asked × detector: asked, detector, on_target, n, comparisons, mean, low, high. Bounds are NaN with
        one comparison; the mean too for a detector that gives all originals the same amount.

    Raises:
        TableError: a column or a row is missing, or row labels are not distinct.
    """
    require(outcomes, [*EDIT, "edited"])
    _check_confidence(confidence)
    labels = outcomes.index
    if not labels.is_unique or not (labels.isin(before.index).all() and labels.isin(after.index).all()):
        raise TableError(
            "The amounts must hold every row of the outcomes under its label, and labels must be distinct. "
            "Use `outcomes.reset_index(drop=True)` before measuring."
        )
    known = {attribute.name: attribute for attribute in attributes}
    originals = outcomes.drop_duplicates(["comparison", "response"]).index
    spread = before.loc[originals].std(ddof=1)
    once = outcomes[outcomes["edited"].notna()].drop_duplicates(EDIT)

    def sign(name: str, direction: str) -> float:
        return (
            -1.0 if name in known and known[name].amount(Direction(direction)) is Amount.less else 1.0
        )  # fmt: skip

    pairs = zip(once["attribute"], once["direction"], strict=True)
    signs = pd.Series([sign(*pair) for pair in pairs], index=once.index, dtype=float)
    rows = []
    for (asked,), group in groups(once, ["attribute"]):
        moves = after.loc[group.index, before.columns] - before.loc[group.index]
        moves = moves.mul(signs[group.index], axis=0) / spread.where(spread > 0)
        for detector in before.columns:
            found = _clustered_mean(moves[detector], group["comparison"], confidence)
            rows.append({"asked": asked, "detector": detector, "on_target": asked == detector, **found})
    return as_table(rows, ["asked", "detector", "on_target", "n", "comparisons", "mean", "low", "high"])


def clustered_share(hits: pd.Series, clusters: pd.Series, *, confidence: float) -> dict[str, float]:
    """The share of items that hit, with its interval over clusters: n, comparisons, share, low, high (see
    `share_interval`); NaN without items."""
    index, names = pd.factorize(clusters.to_numpy())
    units = np.bincount(index, minlength=len(names))
    hit = np.bincount(index, weights=hits.to_numpy(dtype=float), minlength=len(names))
    share = float(hit.sum() / len(hits)) if len(hits) else float("nan")
    low, high = share_interval(hit, units, confidence=confidence)
    return dict(zip(SHARES, (len(hits), len(names), share, low, high), strict=True))


def _clustered_mean(values: pd.Series, clusters: pd.Series, confidence: float) -> dict[str, float]:
    """Mean of dependent values with a t interval: squared sums of deviations within clusters, times G / (G − 1)."""
    kept = values.notna()
    values, clusters = values[kept], clusters[kept]
    count, mean = len(pd.unique(clusters)), float(values.mean())
    reach = float("nan")
    if count > 1:
        within = np.bincount(pd.factorize(clusters.to_numpy())[0], values.to_numpy() - mean)
        error = np.sqrt(count / (count - 1) * (within**2).sum()) / len(values)
        reach = stats.t.ppf((1 + confidence) / 2, count - 1) * error
    return {"n": len(values), "comparisons": count, "mean": mean, "low": mean - reach, "high": mean + reach}


def _grouped(
    table: pd.DataFrame,
    by: Sequence[str],
    rows: Callable[[pd.DataFrame], Iterator[dict]],
    columns: Sequence[str],
) -> pd.DataFrame:
    """The rows of every group behind its key, groups in order of appearance; no columns to group by make one group."""
    found = groups(table, by) if by else [((), table)]
    lines = [dict(zip(by, key, strict=True)) | row for key, group in found for row in rows(group)]
    return as_table(lines, [*by, *columns])


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise TableError(f"The confidence is {confidence}, not between 0 and 1. Use confidence=0.95.")
