"""Comparisons to show: the one most like a model as a whole, and the one on which two models differ most.

Knows the table of outcomes. Does not know texts beyond their keys. Rankings rest on Δm, since flips tie massively.
"""

import numpy as np
import pandas as pd

from pessimal.errors import ConfigError, TableError
from pessimal.explain.attribute import PLACEBO
from pessimal.explain.flip_rate import USED, sums, valid_rows
from pessimal.explain.model_agreement import no_tau, shared_attributes, tau_b
from pessimal.explain.outcomes import CHOSEN, check_outcomes

LEAST_ATTRIBUTES = 5


def representative(
    table: pd.DataFrame, model: str, *, perturber: str, least_attributes: int = LEAST_ATTRIBUTES
) -> pd.DataFrame:
    """A model's decided comparisons, the one whose local ranking of attributes agrees best with the global one first.

    Local: each attribute's Δm, the mean over seeds of each response, then over the responses. Global: its mean Δm over all
    valid perturbations, as in `flip_rate`, this comparison's own among them. Agreement is Kendall's tau-b over the
    attributes that the comparison has; the placebo is none. Equal tau: more attributes first, then the larger margin (the
    clearer preference), then the key in order. Comparisons with fewer than `least_attributes`, or no tau, come last.

    Args:
        table: of outcomes.
        model: its name.
        perturber: its name.
        least_attributes: fewer than these, with a valid perturbation in the comparison, give no tau.

    Returns:
        One row a comparison, best first: comparison, tau (NaN where there is none), attributes (how many), margin, reason (why
        there is no tau; empty otherwise). The first is representative if its tau is a number.

    Raises:
        TableError: a column is missing, a perturbation is there twice, or there is no row of this model and perturber.
        ConfigError: fewer than two attributes.

    Source: Jiang et al. 2025 (representative examples); tau-b on Δm is ours.
    """
    rows = _of(table, model, perturber, least_attributes=least_attributes)
    names = shared_attributes(rows, rows)
    clusters = sorted(set(rows["comparison"]))
    whole = sums(rows, clusters, names)
    ranking = _ranking(local_changes(rows, clusters, names), whole.of(whole.change), least=least_attributes)
    ranking = ranking.assign(comparison=pd.Series(clusters, dtype=object), margin=_margins(rows, clusters))
    order = np.lexsort(
        (-ranking["margin"], -ranking["attributes"], -ranking["tau"])
    )  # the keys are in order already
    return ranking.iloc[order][["comparison", "tau", "attributes", "margin", "reason"]].reset_index(drop=True)


def ranked(table: pd.DataFrame, model: str, *, perturber: str) -> pd.DataFrame:
    """As `representative`; a single comparison with edits is compared with itself, which says nothing, so that it has no
    tau."""
    ranking = representative(table, model, perturber=perturber)
    if (ranking["attributes"] > 0).sum() < 2:
        known = ranking["tau"].notna()
        ranking["tau"] = float("nan")
        ranking.loc[known, "reason"] = "only one comparison has edits, and the whole ranking is its own"
    return ranking


def examples(table: pd.DataFrame, ranking: pd.DataFrame, *, perturber: str, n: int) -> pd.DataFrame:
    """Outcomes of the n comparisons that lead the ranking, to be read in full: edits nearest to a flip first. Where there is
    no ranking, the widest margins lead. Empty where no edit came about."""
    edited = ranking[ranking["attributes"] > 0]
    best = edited.dropna(subset=["tau"])
    shown = best if len(best) else edited.sort_values("margin", ascending=False, kind="stable")
    made = table[table["edited"].notna() & (table["perturber"] == perturber)]
    rows = [
        made[made["comparison"] == key].sort_values("new_margin", kind="stable")
        for key in shown["comparison"].head(n)
    ]
    return pd.concat(rows) if rows else made.head(0)


def contested(
    table: pd.DataFrame,
    model_a: str,
    model_b: str,
    *,
    perturber: str,
    least_attributes: int = LEAST_ATTRIBUTES,
) -> pd.DataFrame:
    """Comparisons in which two models prefer the same response, the one with the most different reasons first.

    Reasons are the models' local rankings of attributes by Δm (see `representative`); as both prefer the same response, both
    judge the same texts. Differ: the lower Kendall's tau-b over the attributes that both have, the more. Equal tau: more
    attributes first, then the key in order (margins of two models are on two scales). Comparisons without a tau come last.

    Args:
        table: of outcomes, of both models.
        model_a: its name.
        model_b: its name, another.
        perturber: whose texts.
        least_attributes: fewer than these, valid in both, give no tau.

    Returns:
        One row a comparison, most different first: comparison, tau, attributes, margin_a, margin_b, reason. Empty where the
        models share no preference.

    Raises:
        TableError: as in `representative`, for either model; or the two are one.
        ConfigError: fewer than two attributes.

    Source: Jiang et al. 2025 (representative examples for two models).
    """
    if model_a == model_b:
        raise TableError(f"{model_a} cannot be compared with itself; name two models.")
    a, b = (_of(table, model, perturber, least_attributes=least_attributes) for model in (model_a, model_b))
    preferred_a, preferred_b = _preferred(a), _preferred(b)
    clusters = sorted(key for key, response in preferred_a.items() if preferred_b.get(key) == response)
    names = shared_attributes(a, b)
    ranking = _ranking(
        local_changes(a, clusters, names), local_changes(b, clusters, names), least=least_attributes
    )
    ranking = ranking.assign(comparison=pd.Series(clusters, dtype=object))
    for margin, rows in (("margin_a", a), ("margin_b", b)):
        ranking[margin] = _margins(rows, clusters)
    order = np.lexsort((-ranking["attributes"], ranking["tau"]))
    shown = ranking.iloc[order][["comparison", "tau", "attributes", "margin_a", "margin_b", "reason"]]
    return shown.reset_index(drop=True)


def local_changes(rows: pd.DataFrame, comparisons: list[str], attributes: list[str]) -> np.ndarray:
    """Mean Δm in standard deviations, (comparisons, attributes): over seeds, then over responses; NaN without a valid one.

    A response of which fewer seeds came out weighs as much as the other.
    """
    row = {key: number for number, key in enumerate(comparisons)}
    column = {name: number for number, name in enumerate(attributes)}
    valid = valid_rows(rows)
    totals, counts = np.zeros((2, len(comparisons), len(attributes), 2))  # the last axis: responses
    columns = (valid[name] for name in ("comparison", "attribute", "response", "change_in_sd"))
    for key, name, response, change in zip(*columns, strict=True):
        if key in row and name in column:
            totals[row[key], column[name], response] += change
            counts[row[key], column[name], response] += 1
    there = counts > 0
    means = np.divide(totals, counts, out=np.zeros_like(totals), where=there)
    responses = there.sum(axis=2)
    return np.divide(means.sum(axis=2), responses, out=np.full(responses.shape, np.nan), where=responses > 0)


def _of(table: pd.DataFrame, model: str, perturber: str, *, least_attributes: int) -> pd.DataFrame:
    """Rows of one model and perturber, without the placebo."""
    if least_attributes < 2:
        raise ConfigError(
            f"A ranking needs at least two attributes; least_attributes={least_attributes}. Give 5, or at least 2."
        )
    check_outcomes(table, columns=[*USED, "margin"])
    rows = table[
        (table["model"] == model) & (table["perturber"] == perturber) & (table["attribute"] != PLACEBO)
    ]
    if not len(rows):
        pairs = sorted({f"{a} by {b}" for a, b in zip(table["model"], table["perturber"], strict=True)})
        raise TableError(
            f"The table of outcomes has no row of the model {model} by the perturber {perturber}; it has {', '.join(pairs)}."
        )
    return rows


def _margins(rows: pd.DataFrame, comparisons: list[str]) -> list[float]:
    """The margin of each comparison."""
    known = dict(zip(rows["comparison"], rows["margin"], strict=True))
    return [known[key] for key in comparisons]


def _preferred(rows: pd.DataFrame) -> dict[str, int]:
    """The response that the model scores higher, by comparison."""
    chosen = np.where(rows["side"] == CHOSEN, rows["response"], 1 - rows["response"])
    return dict(zip(rows["comparison"], chosen.tolist(), strict=True))


def _ranking(one: np.ndarray, other: np.ndarray, *, least: int) -> pd.DataFrame:
    """tau, attributes and reason of each row (comparisons, attributes) of two arrays; the second may be one row for all."""
    one, other = np.broadcast_arrays(one, other)
    attributes = (~np.isnan(one) & ~np.isnan(other)).sum(axis=1)
    tau = np.where(attributes >= least, tau_b(one, other), np.nan)
    reasons = []
    for number, has, first, second in zip(tau, attributes, one, other, strict=True):
        if not np.isnan(number):
            reasons.append("")
        elif has < least:
            reasons.append(f"{has} attributes; {least} are needed")
        else:
            reasons.append(no_tau({"one ranking": first, "the other": second}))
    return pd.DataFrame({"tau": tau, "attributes": attributes, "reason": pd.Series(reasons, dtype=object)})
