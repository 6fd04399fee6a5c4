"""Did the edits do what was asked? Shares that complied, flip rates given that they did, and what else was moved.

Knows the table of outcomes and amounts the judge measured. Does not know texts, detectors or models.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.errors import TableError
from pessimal.explain.attribute import Amount, Attribute, Direction
from pessimal.explain.outcomes import as_table, groups
from pessimal.explain.shares import share_interval

PERTURBATION = ["comparison", "response", "attribute", "direction", "seed", "perturber"]
"""What names one perturbation; several models that share it have a row each."""
SHARES = ["n", "comparisons", "share", "low", "high"]
EDITS = ("all", "complied", "not complied", "not judged")


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
        confidence: of the intervals, which take edits of one comparison as dependent: see `share_interval`.

    Returns:
        One row a group: its columns, asked (perturbations), texts (of these, with a text), n (of these, judged),
        comparisons (among the judged), share, low, high. NaN where none was judged.

    Raises:
        TableError: a column is missing, or one perturbation carries different judgements.
    """
    _require(outcomes, [*PERTURBATION, *by, "edited", "complied"])
    _check_confidence(confidence)
    named = [*dict.fromkeys([*PERTURBATION, *by])]
    # What is missing may be None in one row and NaN in another, as tables were joined; they are the same answer.
    judged_rows = outcomes.assign(
        edited=outcomes["edited"].astype(object).where(outcomes["edited"].notna(), None),
        complied=outcomes["complied"].map({True: 1.0, False: 0.0}).astype(float),
    )
    once = judged_rows.drop_duplicates([*named, "edited", "complied"])
    if once.duplicated(named).any():
        first = once[once.duplicated(named)].iloc[0]
        raise TableError(
            f"One perturbation has different texts or judgements in different rows: {first[PERTURBATION].to_dict()}. "
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
    """The preference flip rate over all edits, over those that complied, and over those that did not.

    A low rate over all edits may mean that the model resists or that the edits failed; the rate over those that complied
    is the model's. Whoever complied is no random half: compare it between models, which meet the same edits.

    Returns:
        Four rows a group: its columns, edits (all, complied, not complied, not judged), n (edits with a text), comparisons,
        ties (share of n; they count as no flip), share (flips of n), low, high (see `share_interval`).

    Raises:
        TableError: a column is missing, or an outcome is none of CF, SF and tie.
    """
    _require(outcomes, [*by, "comparison", "outcome", "complied"])
    _check_confidence(confidence)
    valid = outcomes[outcomes["outcome"].notna()].reset_index(drop=True)
    if strange := sorted(set(valid["outcome"]) - {"CF", "SF", "tie"}, key=str):
        raise TableError(f"Outcomes are CF, SF or tie, not {', '.join(map(repr, strange))}.")
    judged = valid["complied"].map({True: "complied", False: "not complied"}).fillna("not judged")

    def rows(group: pd.DataFrame) -> Iterator[dict]:
        for edits in EDITS:
            kept = group if edits == "all" else group[judged[group.index] == edits]
            share = clustered_share(kept["outcome"] == "CF", kept["comparison"], confidence=confidence)
            yield {"edits": edits, "ties": float((kept["outcome"] == "tie").mean()), **share}

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
    _require(outcomes, [*PERTURBATION, "edited"])
    _check_confidence(confidence)
    if not outcomes.index.is_unique or not (
        outcomes.index.isin(before.index).all() and outcomes.index.isin(after.index).all()
    ):
        raise TableError(
            "The amounts must hold every row of the outcomes under its label, and labels must be distinct. "
            "Use `outcomes.reset_index(drop=True)` before measuring."
        )
    known = {attribute.name: attribute for attribute in attributes}
    originals = outcomes.drop_duplicates(["comparison", "response"]).index
    spread = before.loc[originals].std(ddof=1)
    once = outcomes[outcomes["edited"].notna()].drop_duplicates(PERTURBATION)
    signs = _signs(once, known)
    rows = []
    for (asked,), group in groups(once, ["attribute"]):
        moves = after.loc[group.index, before.columns] - before.loc[group.index]
        moves = moves.mul(signs[group.index], axis=0) / spread.where(spread > 0)
        for detector in before.columns:
            found = _clustered_mean(moves[detector], group["comparison"], confidence)
            rows.append({"asked": asked, "detector": detector, "on_target": asked == detector, **found})
    return as_table(rows, ["asked", "detector", "on_target", "n", "comparisons", "mean", "low", "high"])


def clustered_share(hits: pd.Series, clusters: pd.Series, *, confidence: float) -> dict[str, float]:
    """The share of items that hit, with its interval over clusters (see `share_interval`).

    Returns:
        n, comparisons (clusters), share, low, high; NaN without items, and bounds of 0 and 1 with a single cluster.
    """
    index, names = pd.factorize(clusters.to_numpy())
    units = np.bincount(index, minlength=len(names))
    hit = np.bincount(index, weights=hits.to_numpy(dtype=float), minlength=len(names))
    share = float(hit.sum() / len(hits)) if len(hits) else float("nan")
    low, high = share_interval(hit, units, confidence=confidence)
    return dict(zip(SHARES, (len(hits), len(names), share, low, high), strict=True))


def _clustered_mean(values: pd.Series, clusters: pd.Series, confidence: float) -> dict[str, float]:
    kept = values.notna()
    values, clusters = values[kept], clusters[kept]
    count = len(pd.unique(clusters))
    mean = float(values.mean())
    reach = float("nan")
    if count > 1:
        error = np.sqrt(_variance_of_mean(values.to_numpy(), clusters))
        reach = stats.t.ppf((1 + confidence) / 2, count - 1) * error
    return {"n": len(values), "comparisons": count, "mean": mean, "low": mean - reach, "high": mean + reach}


def _variance_of_mean(values: np.ndarray, clusters: pd.Series) -> float:
    """Of a mean of dependent values: squared sums of deviations within clusters, with the small-sample factor G / (G − 1)."""
    sums = np.bincount(pd.factorize(clusters.to_numpy())[0], values - values.mean())
    return float(len(sums) / (len(sums) - 1) * (sums**2).sum() / len(values) ** 2)


def _signs(outcomes: pd.DataFrame, known: Mapping[str, Attribute]) -> pd.Series:
    """1 where more of the asked attribute is asked for, −1 where less."""

    def sign(name: str, direction: str) -> int:
        return -1 if name in known and known[name].amount(Direction(direction)) is Amount.less else 1

    pairs = zip(outcomes["attribute"], outcomes["direction"], strict=True)
    return pd.Series([sign(*pair) for pair in pairs], index=outcomes.index, dtype=float)


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


def _require(outcomes: pd.DataFrame, columns: Sequence[str]) -> None:
    if missing := [column for column in dict.fromkeys(columns) if column not in outcomes]:
        raise TableError(
            f"The table of outcomes lacks {', '.join(missing)}; it has {', '.join(map(str, outcomes))}."
        )


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise TableError(f"The confidence is {confidence}, not between 0 and 1. Use confidence=0.95.")
