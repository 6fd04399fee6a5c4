"""Agreement of models on which attributes matter, and the comparisons to show: the one most like a
model as a whole, and the one on which two models differ most.

Knows the table of outcomes. Does not know which attributes matter (see `flips`). The items are a
handful of attributes, each estimated from comparisons, so it is the comparisons that are resampled.
Rankings within a comparison rest on Δm, since flips tie massively.
"""

from itertools import combinations

import numpy as np
import pandas as pd

from pessimal.explaining.attribute import PLACEBO
from pessimal.explaining.flips import totals
from pessimal.explaining.metrics import draws, percentiles, replicated
from pessimal.explaining.outcomes import CHOSEN, valid_rows

RETURNED = ["perturber", "model_a", "model_b", "measure", "tau", "low", "high", "attributes"]
RETURNED += ["comparisons"]
MIN_ATTRIBUTES = 5
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
    with fewer than two attributes, or where a vector is constant, no tau is defined, and it is NaN.

    Intervals are percentile bootstraps: these comparisons are drawn with all of their rows of both
    models, and both vectors and tau are computed anew; draws in which tau is not defined are left
    out. A draw adds noise to vectors that have some already, so replicates lie nearer to 0 than the
    estimate, and with few comparisons the interval may not hold it. The attributes are taken as
    given: nothing is said about others.

    Returns:
        One row per perturber, unordered pair of models in the order of the table, and measure:
        perturber, model_a, model_b, measure ("flip rate", "change"), tau, low, high, attributes,
        comparisons (that both decided).

    Source: Jiang et al. 2025 (tau between models); Kendall 1945 (ties).
    """
    rows = []
    for perturber, edits in table[table["attribute"] != PLACEBO].groupby("perturber", sort=False):
        for a, b in combinations(dict.fromkeys(edits["model"]), 2):
            pair = [edits[edits["model"] == model] for model in (a, b)]
            valid = [valid_rows(each) for each in pair]
            clusters = sorted(set.intersection(*(set(each["comparison"]) for each in pair)))
            decided = [each[each["comparison"].isin(clusters)] for each in valid]
            common = set.intersection(*(set(each["attribute"]) for each in decided))
            names = sorted(common)
            weights = draws(max(len(clusters), 1), replicates=replicates, seed=seed)
            sums = [totals(each, clusters, names) for each in decided]
            for number, measure in ((1, "flip rate"), (2, "change")):
                tau = float(tau_b(*(each[number].sum(0) / each[0].sum(0) for each in sums)))
                low, high = np.nan, np.nan
                if len(clusters) > 1 and not np.isnan(tau):
                    columns = [zip(each[number].T, each[0].T, strict=True) for each in sums]
                    draw = [[replicated(*pair, weights) for pair in pairs] for pairs in columns]
                    vectors = [np.stack(vector, axis=1) for vector in draw]
                    low, high = percentiles(tau_b(*vectors), confidence=confidence)
                counts = len(names), len(clusters)
                rows.append((perturber, a, b, measure, tau, low, high, *counts))
    return pd.DataFrame(rows, columns=RETURNED)


def tau_b(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Kendall's tau-b along the last axis, many at once; x and y (…, n) broadcast against one
    another.

    A value that is NaN in either is left out of that tau. NaN where fewer than two are left, or one
    side is constant. For vectors of up to some hundred: all pairs are formed, O(n²).
    """
    x, y = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(y, dtype=float))
    first, second = np.triu_indices(x.shape[-1], k=1)
    signs = [np.sign(each[..., first] - each[..., second]) for each in (x, y)]  # (…, pairs)
    missing = np.isnan(signs[0]) | np.isnan(signs[1])
    signs_x, signs_y = (np.where(missing, 0, each) for each in signs)
    untied = np.sqrt((signs_x**2).sum(axis=-1) * (signs_y**2).sum(axis=-1))
    net = (signs_x * signs_y).sum(axis=-1)
    return np.divide(net, untied, out=np.full(np.shape(net), np.nan), where=untied > 0)


def representative(table: pd.DataFrame, model: str, *, perturber: str) -> pd.DataFrame:
    """A model's decided comparisons, the one whose local ranking of attributes agrees best with the
    global one first.

    Local: each attribute's Δm, the mean over seeds of each response, then over the responses.
    Global: its mean Δm over all valid perturbations, as in `flip_rate`, this comparison's own among
    them. Agreement is Kendall's tau-b over the attributes that the comparison has; the placebo is
    none. Equal tau: more attributes first, then the larger margin (the clearer preference), then
    the key in order. Comparisons with fewer than `MIN_ATTRIBUTES`, or no tau, come last; a single
    comparison with edits would be compared with itself, which says nothing, so that it has no tau.

    Returns:
        One row a comparison, best first: comparison, tau (NaN where there is none), attributes (how
        many), margin. The first is representative if its tau is a number.

    Source: Jiang et al. 2025 (representative examples); tau-b on Δm is ours.
    """
    rows = _select(table, model, perturber)
    changes = local_changes(rows)
    means = valid_rows(rows).groupby("attribute")["change_in_sd"].mean()
    ranking = _ranking(changes, means.reindex(changes.columns).to_frame().T)
    if (ranking["attributes"] > 0).sum() < 2:
        ranking["tau"] = float("nan")
    ranking["margin"] = rows.groupby("comparison")["margin"].first()
    return _order(ranking, ["tau", "attributes", "margin"], ascending=False)


def examples(table: pd.DataFrame, ranking: pd.DataFrame, *, perturber: str, n: int) -> pd.DataFrame:
    """Outcomes of the n comparisons that lead the ranking, to be read in full: edits nearest to a
    flip first. Empty where no edit came about."""
    edits = table[table["edited"].notna() & (table["perturber"] == perturber)]
    leading = ranking[ranking["attributes"] > 0]["comparison"].head(n)
    nearest = edits.sort_values("new_margin", kind="stable")
    rows = [nearest[nearest["comparison"] == key] for key in leading]
    return pd.concat(rows) if rows else edits.head(0)


def contested(table: pd.DataFrame, model_a: str, model_b: str, *, perturber: str) -> pd.DataFrame:
    """Comparisons in which two models prefer the same response, the one with the most different
    reasons first.

    Reasons are the models' local rankings of attributes by Δm (see `representative`); as both
    prefer the same response, both judge the same texts. Differ: the lower Kendall's tau-b over the
    attributes that both have, the more. Equal tau: more attributes first, then the key in order
    (margins of two models are on two scales). Comparisons without a tau come last.

    Returns:
        One row a comparison, most different first: comparison, tau, attributes, margin_a, margin_b.
        Empty where the models share no preference.

    Source: Jiang et al. 2025 (representative examples for two models).
    """
    a, b = (_select(table, model, perturber) for model in (model_a, model_b))
    preferred_a, preferred_b = _preferred(a), _preferred(b)
    agreed = [key for key, response in preferred_a.items() if preferred_b.get(key) == response]
    a, b = (rows[rows["comparison"].isin(agreed)] for rows in (a, b))
    changes = local_changes(a)
    ranking = _ranking(changes, local_changes(b).reindex(columns=changes.columns))
    for name, rows in (("margin_a", a), ("margin_b", b)):
        ranking[name] = rows.groupby("comparison")["margin"].first()
    return _order(ranking, ["tau", "attributes"], ascending=[True, False])


def local_changes(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean Δm in standard deviations, (comparisons, attributes): over seeds, then over responses;
    NaN without a valid one.

    A response of which fewer seeds came out weighs as much as the other.
    """
    by = ["comparison", "attribute", "response"]
    changes = valid_rows(rows).groupby(by)["change_in_sd"].mean()
    means = changes.groupby(level=[0, 1]).mean().unstack()
    return means.reindex(sorted(set(rows["comparison"]))).astype(float)


def _select(table: pd.DataFrame, model: str, perturber: str) -> pd.DataFrame:
    """Rows of one model and perturber, without the placebo."""
    rows = table[(table["model"] == model) & (table["perturber"] == perturber)]
    return rows[rows["attribute"] != PLACEBO].astype({"comparison": object, "attribute": object})


def _preferred(rows: pd.DataFrame) -> dict[str, int]:
    """The response that the model scores higher, by comparison."""
    responses = rows["response"].where(rows["side"] == CHOSEN, 1 - rows["response"])
    return dict(zip(rows["comparison"], responses.tolist(), strict=True))


def _ranking(changes: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """tau and attributes of each comparison between two tables of changes; the second may be one
    row for all."""
    x, y = np.broadcast_arrays(changes.to_numpy(), other.to_numpy(dtype=float))
    attributes = (~np.isnan(x) & ~np.isnan(y)).sum(axis=1)
    tau = np.where(attributes >= MIN_ATTRIBUTES, tau_b(x, y), np.nan)
    return pd.DataFrame({"tau": tau, "attributes": attributes}, index=changes.index)


def _order(ranking: pd.DataFrame, by: list[str], *, ascending: bool | list[bool]) -> pd.DataFrame:
    """Rows in order, equal ones by their keys and those without a tau last."""
    ordered = ranking.sort_values(by, ascending=ascending, kind="stable")
    return ordered.rename_axis("comparison").reset_index()
