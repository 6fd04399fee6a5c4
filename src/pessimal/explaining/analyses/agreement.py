"""How far models agree on which attributes matter, and the comparisons to show: the one most like a
model as a whole, and the one on which two models differ most.

Knows the table of outcomes. Does not know which attributes matter (see `flips`). The items are a
handful of attributes, each estimated from comparisons, so it is the comparisons that are resampled.
Rankings within a comparison rest on Δm, since flips tie massively.
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from pessimal.explaining.analyses.flips import Sums, sums
from pessimal.explaining.analyses.intervals import draws, percentiles
from pessimal.explaining.attribute import PLACEBO
from pessimal.explaining.outcomes import CHOSEN, valid_rows

RETURNED = ["perturber", "model_a", "model_b", "measure", "tau", "low", "high", "attributes"]
RETURNED += ["comparisons", "defined", "reason"]
LEAST_ATTRIBUTES = 5
"""Fewer than these with a valid perturbation give no tau between two rankings of them."""


def model_agreement(
    table: pd.DataFrame, *, replicates: int = 1000, confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Kendall's tau-b between the attribute vectors of every two models: flip rates, and mean
    changes of the margin.

    Both vectors are taken from the comparisons that both models decided, and attributes of which
    both have a valid perturbation there; the placebo is none. Mean changes keep their sign, as −1
    and +1 standard deviations are opposite tastes. The models may prefer different responses, so
    the edited texts differ where they do. Ties, which flip rates have many of, are corrected for;
    where a vector is constant no tau is defined, and it is NaN with the reason, not 0.

    Intervals are percentile bootstraps: these comparisons are drawn with all of their rows of both
    models, and both vectors and tau are computed anew; draws in which tau is not defined are left
    out (`defined` says how many are not). A draw adds noise to vectors that have some already, so
    replicates lie nearer to 0 than the estimate, and with few comparisons the interval may not hold
    it. The attributes are taken as given: nothing is said about others.

    Returns:
        One row per perturber, unordered pair of models in the order of the table, and measure:
        perturber, model_a, model_b, measure ("flip rate", "change"), tau, low, high, attributes,
        comparisons (that both decided), defined (share of draws in which tau is), reason (why there
        is no tau; empty otherwise).

    Source: Jiang et al. 2025 (tau between models); Kendall 1945 (ties).
    """
    rows = []
    of_attributes = table[table["attribute"] != PLACEBO]
    for perturber, edits in of_attributes.groupby("perturber", sort=False):
        by_model = dict(iter(edits.groupby("model", sort=False)))
        for a, b in combinations(by_model, 2):
            x, y, clusters = _shared(by_model[a], by_model[b])
            weights = np.empty((0, 0))
            if clusters:
                weights = draws(len(clusters), replicates=replicates, seed=seed)
            measures = {"flip rate": (x.flips, y.flips), "change": (x.change, y.change)}
            for measure, (of_x, of_y) in measures.items():
                one, other = x.of(of_x), y.of(of_y)
                tau = float(tau_b(one, other))
                drawn, low, high = np.empty(0), np.nan, np.nan
                if len(clusters) > 1 and len(x.attributes) > 1:
                    drawn = tau_b(x.replicated(of_x, weights), y.replicated(of_y, weights))
                if not np.isnan(tau):
                    low, high = percentiles(drawn, confidence=confidence)
                defined = float(np.mean(~np.isnan(drawn))) if len(drawn) else np.nan
                reason = no_tau({a: one, b: other}) if np.isnan(tau) else ""
                counts = len(x.attributes), len(clusters)
                rows.append((perturber, a, b, measure, tau, low, high, *counts, defined, reason))
    return pd.DataFrame(rows, columns=RETURNED)


def tau_b(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Kendall's tau-b along the last axis, many at once; x and y (…, n) broadcast against one
    another.

    A value that is NaN in either is left out of that tau. NaN where fewer than two are left, or one
    side is constant. For vectors of up to some hundred: all pairs are formed, O(n²).
    """
    x, y = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    first, second = np.triu_indices(x.shape[-1], k=1)
    of_x = np.sign(x[..., first] - x[..., second])  # (…, pairs)
    of_y = np.sign(y[..., first] - y[..., second])
    missing = np.isnan(of_x) | np.isnan(of_y)
    of_x, of_y = np.where(missing, 0, of_x), np.where(missing, 0, of_y)
    untied = np.sqrt((of_x**2).sum(axis=-1) * (of_y**2).sum(axis=-1))
    net = (of_x * of_y).sum(axis=-1)
    return np.divide(net, untied, out=np.full(np.shape(net), np.nan), where=untied > 0)


def no_tau(vectors: dict[str, np.ndarray]) -> str:
    """Why there is no tau between two named vectors."""
    shared = ~np.any([np.isnan(values) for values in vectors.values()], axis=0)
    if shared.sum() < 2:
        return f"{int(shared.sum())} attributes in common; two are needed"
    constant = [name for name, values in vectors.items() if np.ptp(values[shared]) == 0]
    return f"the same value for every attribute: {', '.join(constant)}"


def shared_attributes(one: pd.DataFrame, other: pd.DataFrame) -> list[str]:
    """Attributes that both tables ask about, without the placebo, in the order of the first."""
    both = set(other["attribute"]) - {PLACEBO}
    return [name for name in dict.fromkeys(one["attribute"]) if name in both]


def _shared(a: pd.DataFrame, b: pd.DataFrame) -> tuple[Sums, Sums, Sequence[str]]:
    """Sums of two models over the comparisons that both decided, and attributes of which both have
    something valid."""
    clusters = sorted(set(a["comparison"]) & set(b["comparison"]))
    names = shared_attributes(a, b)
    x, y = sums(a, clusters, names), sums(b, clusters, names)
    both = (x.valid.sum(axis=0) > 0) & (y.valid.sum(axis=0) > 0)
    valid = [name for name, has in zip(names, both, strict=True) if has]
    return sums(a, clusters, valid), sums(b, clusters, valid), clusters


def representative(table: pd.DataFrame, model: str, *, perturber: str) -> pd.DataFrame:
    """A model's decided comparisons, the one whose local ranking of attributes agrees best with the
    global one first.

    Local: each attribute's Δm, the mean over seeds of each response, then over the responses.
    Global: its mean Δm over all valid perturbations, as in `flip_rate`, this comparison's own among
    them. Agreement is Kendall's tau-b over the attributes that the comparison has; the placebo is
    none. Equal tau: more attributes first, then the larger margin (the clearer preference), then
    the key in order. Comparisons with fewer than `LEAST_ATTRIBUTES`, or no tau, come last; a single
    comparison with edits would be compared with itself, which says nothing, so that it has no tau.

    Returns:
        One row a comparison, best first: comparison, tau (NaN where there is none), attributes (how
        many), margin, reason (why there is no tau; empty otherwise). The first is representative if
        its tau is a number.

    Source: Jiang et al. 2025 (representative examples); tau-b on Δm is ours.
    """
    rows = _of(table, model, perturber)
    names = shared_attributes(rows, rows)
    clusters = sorted(set(rows["comparison"]))
    totals = sums(rows, clusters, names)
    ranking = _ranking(local_changes(rows, clusters, names), totals.of(totals.change))
    if (ranking["attributes"] > 0).sum() < 2:
        alone = "only one comparison has edits, and the whole ranking is its own"
        ranking["reason"] = ranking["reason"].where(ranking["tau"].isna(), alone)
        ranking["tau"] = float("nan")
    keys = pd.Series(clusters, dtype=object)
    ranking = ranking.assign(comparison=keys, margin=_margins(rows, clusters))
    columns = ["comparison", "tau", "attributes", "margin", "reason"]
    by = ["tau", "attributes", "margin"]  # equal ones stay in the order of their keys
    return _ordered(ranking, by, ascending=[False, False, False])[columns]


def examples(table: pd.DataFrame, ranking: pd.DataFrame, *, perturber: str, n: int) -> pd.DataFrame:
    """Outcomes of the n comparisons that lead the ranking, to be read in full: edits nearest to a
    flip first. Where there is no ranking, the widest margins lead. Empty where no edit came
    about."""
    with_edits = ranking[ranking["attributes"] > 0]
    ranked = with_edits.dropna(subset=["tau"])
    if ranked.empty:
        ranked = with_edits.sort_values("margin", ascending=False, kind="stable")
    edits = table[table["edited"].notna() & (table["perturber"] == perturber)]
    rows = [
        edits[edits["comparison"] == key].sort_values("new_margin", kind="stable")
        for key in ranked["comparison"].head(n)
    ]
    return pd.concat(rows) if rows else edits.head(0)


def contested(table: pd.DataFrame, model_a: str, model_b: str, *, perturber: str) -> pd.DataFrame:
    """Comparisons in which two models prefer the same response, the one with the most different
    reasons first.

    Reasons are the models' local rankings of attributes by Δm (see `representative`); as both
    prefer the same response, both judge the same texts. Differ: the lower Kendall's tau-b over the
    attributes that both have, the more. Equal tau: more attributes first, then the key in order
    (margins of two models are on two scales). Comparisons without a tau come last.

    Returns:
        One row a comparison, most different first: comparison, tau, attributes, margin_a, margin_b,
        reason. Empty where the models share no preference.

    Source: Jiang et al. 2025 (representative examples for two models).
    """
    a, b = (_of(table, model, perturber) for model in (model_a, model_b))
    preferred_a, preferred_b = _preferred(a), _preferred(b)
    agreed = (key for key, response in preferred_a.items() if preferred_b.get(key) == response)
    clusters, names = sorted(agreed), shared_attributes(a, b)
    ranking = _ranking(local_changes(a, clusters, names), local_changes(b, clusters, names))
    margins = {"margin_a": _margins(a, clusters), "margin_b": _margins(b, clusters)}
    ranking = ranking.assign(comparison=pd.Series(clusters, dtype=object), **margins)
    columns = ["comparison", "tau", "attributes", "margin_a", "margin_b", "reason"]
    return _ordered(ranking, ["tau", "attributes"], ascending=[True, False])[columns]


def _ordered(ranking: pd.DataFrame, by: list[str], *, ascending: list[bool]) -> pd.DataFrame:
    """Rows in order, those without a tau last."""
    keys = [
        ranking[name] * (1 if rising else -1) for name, rising in zip(by, ascending, strict=True)
    ]
    return ranking.iloc[np.lexsort(keys[::-1])].reset_index(drop=True)


def local_changes(rows: pd.DataFrame, comparisons: list[str], attributes: list[str]) -> np.ndarray:
    """Mean Δm in standard deviations, (comparisons, attributes): over seeds, then over responses;
    NaN without a valid one.

    A response of which fewer seeds came out weighs as much as the other.
    """
    by = ["comparison", "attribute", "response"]
    changes = valid_rows(rows).groupby(by)["change_in_sd"].mean()
    means = changes.groupby(level=[0, 1]).mean().unstack()
    return means.reindex(index=comparisons, columns=attributes).to_numpy(dtype=float)


def _of(table: pd.DataFrame, model: str, perturber: str) -> pd.DataFrame:
    """Rows of one model and perturber, without the placebo."""
    chosen = (table["model"] == model) & (table["perturber"] == perturber)
    return table[chosen & (table["attribute"] != PLACEBO)]


def _margins(rows: pd.DataFrame, comparisons: list[str]) -> list[float]:
    """The margin of each comparison."""
    first = rows.drop_duplicates("comparison").set_index("comparison")
    return first["margin"].loc[comparisons].tolist()


def _preferred(rows: pd.DataFrame) -> dict[str, int]:
    """The response that the model scores higher, by comparison."""
    chosen = rows["response"].where(rows["side"] == CHOSEN, 1 - rows["response"])
    return dict(zip(rows["comparison"], chosen.tolist(), strict=True))


def _ranking(one: np.ndarray, other: np.ndarray) -> pd.DataFrame:
    """tau, attributes and reason of each row (comparisons, attributes) of two arrays; the second
    may be one row for all."""
    one, other = np.broadcast_arrays(one, other)
    attributes = (~np.isnan(one) & ~np.isnan(other)).sum(axis=1)
    tau = np.where(attributes >= LEAST_ATTRIBUTES, tau_b(one, other), np.nan)
    reasons = [
        f"{n} attributes; {LEAST_ATTRIBUTES} are needed"
        if n < LEAST_ATTRIBUTES
        else no_tau({"one ranking": a, "the other": b})
        for n, a, b in zip(attributes, one, other, strict=True)
    ]
    reason = np.where(np.isnan(tau), np.array(reasons, dtype=object), "")
    return pd.DataFrame({"tau": tau, "attributes": attributes, "reason": reason})
