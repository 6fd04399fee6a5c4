"""What a model rewards in itself, where edits move several attributes together: more length goes along with more help.

Knows the table of outcomes with what the detectors saw move. Does not know texts, nor which attribute an edit was asked for.
Flip rates and mean changes are of edits as they come (`flip_rate`); here the attributes' parts in them are separated.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.errors import TableError
from pessimal.explain.flips import valid_rows
from pessimal.explain.intervals import benjamini_hochberg, cluster_index
from pessimal.explain.outcomes import KEY, as_table, check_outcomes, groups

MOVED = "moved/"
"""Columns of the table so named say by how many standard deviations of its detector an edit moved an attribute."""
USED = [*KEY, "side", "status", "change_in_sd", "outcome"]
RETURNED = [
    "model",
    "perturber",
    "attribute",
    "n",
    "comparisons",
    "slope",
    "slope_low",
    "slope_high",
    "slope_p",
    "slope_q",
]
RETURNED += ["inflation", "explained"]


def slopes(table: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """By how much the reward rises as an attribute is raised and all others are held, by model and perturber.

    A least-squares line through all valid edits, of both sides and along all attributes: the change of the edited response's
    reward, in standard deviations of the model's rewards, on the changes of all detectors, each in standard deviations over
    the responses as they stand, and on a constant (what any edit does). Errors are the jackknife's over comparisons, so that
    they allow for whatever the edits of one have in common, with Student's t at comparisons − 1. A detector without an opinion counts as unmoved; one that
    no edit moves is left out. What no detector sees is credited to those that move along with it.

    Args:
        table: of outcomes, with a column `moved/NAME` for each detector.
        confidence: of the intervals.

    Returns:
        One row per model, perturber (the placebo's edits are a part of every one's) and attribute: model, perturber,
        attribute, n (edits), comparisons, slope (SD of reward per SD of the attribute), slope_low, slope_high, slope_p,
        slope_q (Benjamini-Hochberg over the attributes), inflation (of the slope's variance, by what the attributes have in
        common; 1: nothing, above 10 hardly separable), explained (R², of all attributes together). Errors are NaN with no
        more comparisons than attributes; slopes too with no more edits.

    Source: MacKinnon, Nielsen & Webb 2023 (the cluster jackknife, CV3).

    Raises:
        TableError: a column is missing, or nothing was detected.
    """
    check_outcomes(table, columns=USED)
    rows = []
    for (model,), of_model in groups(valid_rows(table), ["model"]):
        placebo = of_model["perturber"] == "placebo"
        for (perturber,), made in groups(of_model[~placebo] if (~placebo).any() else of_model, ["perturber"]):
            whole = pd.concat([made, of_model[placebo]]) if (~placebo).any() else made
            named = dict.fromkeys(RETURNED, np.nan) | {"model": model, "perturber": perturber}
            rows += [named | row for row in _fitted(whole, confidence)]
    return as_table(rows, RETURNED)


def detectors(table: pd.DataFrame) -> list[str]:
    """Attributes that some edit moved, in the table's order. TableError where the table has no such column."""
    columns = [column for column in table if column.startswith(MOVED)]
    if not columns:
        raise TableError(
            f"The table of outcomes has no column `{MOVED}NAME`, so that attributes cannot be separated; join what the detectors "
            "saw."
        )
    return [column.removeprefix(MOVED) for column in columns if table[column].fillna(0).ne(0).any()]


def drawn_slopes(
    rows: pd.DataFrame, clusters: Sequence[str], weights: np.ndarray
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The attributes, their slopes (k,), and those of bootstrap draws (replicates, k).

    Args:
        rows: valid edits of one model.
        clusters: comparisons.
        weights: (replicates, clusters) how often each is drawn.
    """
    names, design, change = _equation(rows)
    gram, moment = _sums(design, change, cluster_index(rows["comparison"], clusters), len(clusters))
    whole = _solved(gram.sum(0), moment.sum(0))
    drawn = _solved(np.tensordot(weights, gram, 1), weights @ moment)
    return names, whole[1:], drawn[:, 1:]


def _fitted(rows: pd.DataFrame, confidence: float) -> list[dict]:
    names, design, change = _equation(rows)
    clusters = sorted(set(rows["comparison"]))
    n, c = len(rows), len(clusters)
    counts = {"n": n, "comparisons": c}
    if n <= design.shape[1] or not names:
        return [{"attribute": name, **counts} for name in names]
    gram, moment = _sums(design, change, cluster_index(rows["comparison"], clusters), c)
    whole = _solved(gram.sum(0), moment.sum(0))
    error = np.full(len(whole), np.nan)
    if c > design.shape[1]:
        without = _solved(gram.sum(0) - gram, moment.sum(0) - moment)  # (clusters, 1 + k)
        error = np.sqrt((c - 1) / c * ((without - without.mean(0)) ** 2).sum(0))
    reach = stats.t.ppf((1 + confidence) / 2, c - 1) * error
    p = 2 * stats.t.sf(np.abs(whole) / error, c - 1)[1:]
    q, inflation = benjamini_hochberg(p), _inflation(design)
    residual = change - design @ whole
    explained = 1 - residual.var() / change.var() if change.var() > 0 else np.nan
    return [
        {
            "attribute": name,
            **counts,
            "slope": float(whole[i]),
            "slope_low": float(whole[i] - reach[i]),
            "slope_high": float(whole[i] + reach[i]),
            "slope_p": float(p[i - 1]),
            "slope_q": float(q[i - 1]),
            "inflation": float(inflation[i - 1]),
            "explained": float(explained),
        }
        for i, name in enumerate(names, start=1)
    ]


def _sums(
    design: np.ndarray, change: np.ndarray, index: np.ndarray, clusters: int
) -> tuple[np.ndarray, np.ndarray]:
    """Products of the columns (clusters, 1 + k, 1 + k), and with the change (clusters, 1 + k), summed by comparison."""
    k = design.shape[1]
    gram, moment = np.zeros((clusters, k, k)), np.zeros((clusters, k))
    np.add.at(gram, index, design[:, :, None] * design[:, None, :])
    np.add.at(moment, index, design * change[:, None])
    return gram, moment


def _solved(gram: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Least-squares coefficients (…, 1 + k); the smallest ones where columns cannot be separated."""
    return (np.linalg.pinv(gram) @ moment[..., None])[..., 0]


def _equation(rows: pd.DataFrame) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Attributes, (n, 1 + k) a constant and by how much each was moved, and (n,) the change of the edited reward in SDs."""
    names = detectors(rows)
    moved = rows[[MOVED + name for name in names]].fillna(0.0).to_numpy(dtype=float)
    # The margin falls where the preferred response loses, or the other gains.
    sign = np.where(rows["side"] == "chosen", 1.0, -1.0)
    change = sign * rows["change_in_sd"].to_numpy(dtype=float)
    return names, np.column_stack([np.ones(len(rows)), moved]), change


def _inflation(design: np.ndarray) -> np.ndarray:
    """Variance inflation factors (k,) of the columns behind the constant."""
    correlation = np.atleast_2d(np.corrcoef(design[:, 1:], rowvar=False))
    return np.diag(np.linalg.pinv(correlation))
