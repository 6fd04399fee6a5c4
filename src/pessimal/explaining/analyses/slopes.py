"""What a model rewards in itself, where edits move several attributes together: more length goes
along with more help.

Knows the table of outcomes with what the detectors saw move. Does not know texts, nor which
attribute an edit was asked for. Flip rates and mean changes are of edits as they come
(`flip_rate`); here the attributes' parts in them are separated.
"""

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.errors import TableError
from pessimal.explaining.analyses.flips import MOVED, USED
from pessimal.explaining.analyses.intervals import benjamini_hochberg, cluster_index
from pessimal.explaining.outcomes import CHOSEN, check_outcomes, valid_rows

RETURNED = ["model", "perturber", "attribute", "n", "comparisons", "slope", "slope_low"]
RETURNED += ["slope_high", "slope_p", "slope_q", "inflation", "explained"]


def slopes(table: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """By how much the reward rises as an attribute is raised and all others are held, by model and
    perturber.

    A least-squares line through all valid edits, of both sides and along all attributes: the change
    of the edited response's reward, in standard deviations of the model's rewards, on the changes
    of all detectors, each in standard deviations over the responses as they stand, and on a
    constant (what any edit does). Errors are the jackknife's over comparisons, so that they allow
    for whatever the edits of one have in common, with Student's t at comparisons − 1. A detector
    without an opinion counts as unmoved; one that no edit moves is left out. What no detector sees
    is credited to those that move along with it.

    Args:
        table: of outcomes, with a column `moved/NAME` for each detector.

    Returns:
        One row per model, perturber (the placebo's edits are a part of every one's) and attribute:
        model, perturber, attribute, n (edits), comparisons, slope (SD of reward per SD of the
        attribute), slope_low, slope_high, slope_p, slope_q (Benjamini-Hochberg over the
        attributes), inflation (of the slope's variance, by what the attributes have in common; 1:
        nothing, above 10 hardly separable), explained (R², of all attributes together). Errors are
        NaN with no more comparisons than attributes; slopes too with no more edits.

    Raises:
        TableError: a column is missing, or nothing was detected.

    Source: MacKinnon, Nielsen & Webb 2023 (the cluster jackknife, CV3).
    """
    check_outcomes(table, columns=USED)
    rows = []
    for model, of_model in valid_rows(table).groupby("model", sort=False):
        placebo = of_model["perturber"] == "placebo"
        edits = of_model if placebo.all() else of_model[~placebo]
        for perturber, group in edits.groupby("perturber", sort=False):
            if not placebo.all():
                group = pd.concat([group, of_model[placebo]])
            names = dict.fromkeys(RETURNED, np.nan) | {"model": model, "perturber": perturber}
            rows += [names | row for row in _fitted(group, confidence)]
    return pd.DataFrame(rows, columns=RETURNED)


def detectors(table: pd.DataFrame) -> list[str]:
    """Attributes that some edit moved, in the table's order. TableError where the table has no such
    column."""
    columns = [column for column in table if column.startswith(MOVED)]
    if not columns:
        raise TableError(
            f"The table of outcomes has no column `{MOVED}NAME`, so that attributes cannot be "
            "separated; join what the detectors saw."
        )
    return [column.removeprefix(MOVED) for column in columns if table[column].fillna(0).ne(0).any()]


def _fitted(rows: pd.DataFrame, confidence: float) -> list[dict]:
    names = detectors(rows)
    moved = rows[[MOVED + name for name in names]].fillna(0.0).to_numpy(dtype=float)
    design = np.column_stack([np.ones(len(rows)), moved])  # (n, 1 + k)
    # The margin falls where the preferred response loses, or the other gains.
    sign = np.where(rows["side"] == CHOSEN, 1.0, -1.0)
    change = sign * rows["change_in_sd"].to_numpy(dtype=float)
    clusters = sorted(set(rows["comparison"]))
    n, c, k = len(rows), len(clusters), len(names)
    counts = {"n": n, "comparisons": c}
    if n <= 1 + k or not names:
        return [{"attribute": name, **counts} for name in names]
    # Products of the columns, by comparison.
    gram, moment = np.zeros((c, 1 + k, 1 + k)), np.zeros((c, 1 + k))
    index = cluster_index(rows["comparison"], clusters)
    np.add.at(gram, index, design[:, :, None] * design[:, None, :])
    np.add.at(moment, index, design * change[:, None])
    slope, error = _solved(gram.sum(0), moment.sum(0)), np.full(1 + k, np.nan)
    if c > 1 + k:
        without = _solved(gram.sum(0) - gram, moment.sum(0) - moment)  # (clusters, 1 + k)
        error = np.sqrt((c - 1) / c * ((without - without.mean(0)) ** 2).sum(0))
    reach = stats.t.ppf((1 + confidence) / 2, c - 1) * error
    p = 2 * stats.t.sf(np.abs(slope) / error, c - 1)[1:]
    residual = change - design @ slope
    correlations = np.atleast_2d(np.corrcoef(moved, rowvar=False))
    table = pd.DataFrame(
        {
            "attribute": names,
            **counts,
            "slope": slope[1:],
            "slope_low": (slope - reach)[1:],
            "slope_high": (slope + reach)[1:],
            "slope_p": p,
            "slope_q": benjamini_hochberg(p),
            "inflation": np.diag(np.linalg.pinv(correlations)),
            "explained": 1 - residual.var() / change.var() if change.var() > 0 else np.nan,
        }
    )
    return table.to_dict("records")


def _solved(gram: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Least-squares coefficients (…, 1 + k); the smallest ones where columns cannot be
    separated."""
    return (np.linalg.pinv(gram) @ moment[..., None])[..., 0]
