"""Slopes of the reward on the attributes, where edits move several of these together: more length
goes along with more help. A description: what no detector sees is credited to those that move along
with it, and a price for every word has slopes too, so that nothing is tested or named here.

Knows the table of outcomes with what the detectors saw move. Does not know texts, nor which
attribute an edit was asked for.
"""

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.errors import TableError
from pessimal.explaining.analyses.flips import MOVED
from pessimal.explaining.analyses.intervals import cluster_index
from pessimal.explaining.outcomes import reward_sign, valid_rows

RETURNED = ["model", "perturber", "attribute", "n", "comparisons", "slope", "slope_low"]
RETURNED += ["slope_high", "inflation", "explained"]
MIN_COMPARISONS = 4
"""Comparisons that errors need."""


def slopes(table: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """By how much the reward rises as an attribute is raised and all others are held, by model and
    perturber.

    A least-squares line through all valid edits, of both sides and along all attributes: the change
    of the edited response's reward, in standard deviations of the model's rewards, on the changes
    of all detectors, each in standard deviations over the responses as they stand, and on a
    constant (what any edit does). Errors are the jackknife's over comparisons, so that they allow
    for whatever the edits of one have in common, with Student's t at the effective number of
    comparisons − 1: an attribute that the edits of a few comparisons move rests on those. A
    detector without an opinion counts as unmoved; one that no edit moves is left out.

    Args:
        table: of outcomes, with a column `moved/NAME` for each detector.

    Returns:
        One row per model, perturber (the placebo's edits are a part of every one's) and attribute:
        model, perturber, attribute, n (edits), comparisons, slope (SD of reward per SD of the
        attribute), slope_low and slope_high (of this attribute alone), inflation (of the slope's
        variance, by what the attributes have in common; 1: nothing, above 10 hardly separable),
        explained (R² of the line). NaN with fewer than four comparisons, or with no more of them
        than attributes and one.

    Raises:
        TableError: no column of a detector.

    Source: MacKinnon, Nielsen & Webb 2023 (the cluster jackknife, CV3); Carter, Schnepel &
    Steigerwald 2017 (the effective number of clusters).
    """
    pieces = [pd.DataFrame(columns=RETURNED)]
    for model, edits in valid_rows(table).groupby("model", sort=False):
        placebo = edits["perturber"] == "placebo"
        for perturber in dict.fromkeys(edits["perturber"][placebo.all() | ~placebo]):
            lines = _fit(edits[(edits["perturber"] == perturber) | placebo], confidence)
            pieces.append(lines.assign(model=model, perturber=perturber))
    return pd.concat(pieces[1:] or pieces, ignore_index=True).reindex(columns=RETURNED)


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


def _fit(rows: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """Slopes of the edits of one model and perturber, a row an attribute."""
    names, clusters = detectors(rows), sorted(set(rows["comparison"]))
    moved = rows[[MOVED + name for name in names]].fillna(0.0).to_numpy(dtype=float)
    change = reward_sign(rows) * rows["change_in_sd"].to_numpy(dtype=float)
    lines = pd.DataFrame({"attribute": names, "n": len(rows), "comparisons": len(clusters)})
    if not MIN_COMPARISONS <= len(clusters) > 1 + len(names) or not names:
        return lines
    index = cluster_index(rows["comparison"], clusters)
    lines = lines.assign(**fit_line(moved, change, index))
    reach = stats.t.ppf((1 + confidence) / 2, lines["freedom"]) * lines["error"]
    inflation = np.diag(np.linalg.pinv(np.atleast_2d(np.corrcoef(moved, rowvar=False))))
    ends = {"slope_low": lines["slope"] - reach, "slope_high": lines["slope"] + reach}
    return lines.assign(inflation=inflation, **ends)


def fit_line(moved: np.ndarray, change: np.ndarray, index: np.ndarray) -> dict[str, np.ndarray]:
    """A least-squares line of the change (n,) on a constant and what moved (n, k), its errors the
    jackknife's over groups (`index`, int (n,)), of which there are more than columns: slope, error,
    freedom (degrees of it) and explained (R² of the line), each (k,)."""
    design = np.column_stack([np.ones(len(change)), moved])  # (n, 1 + k)
    groups, columns = int(index.max()) + 1, design.shape[1]
    # Products of the columns, by comparison.
    gram, moment = np.zeros((groups, columns, columns)), np.zeros((groups, columns))
    np.add.at(gram, index, design[:, :, None] * design[:, None, :])
    np.add.at(moment, index, design * change[:, None])
    slope = _solve(gram.sum(0), moment.sum(0))
    without = _solve(gram.sum(0) - gram, moment.sum(0) - moment)  # (groups, 1 + k)
    error = np.sqrt((groups - 1) / groups * ((without - without.mean(0)) ** 2).sum(0))
    # The weight of each comparison in a slope: that of its part that the others do not explain.
    inverse = np.linalg.pinv(gram.sum(0))
    weight = np.einsum("ki,cij,jk->ck", inverse, gram, inverse)
    squares = np.maximum((weight**2).sum(0), np.finfo(float).tiny)
    freedom = np.maximum(weight.sum(0) ** 2 / squares - 1, 1.0)
    rest = (change - design @ slope).var()
    explained = np.full(columns, 1 - rest / change.var() if change.var() > 0 else np.nan)
    parts = {"slope": slope, "error": error, "freedom": freedom, "explained": explained}
    return {name: values[1:] for name, values in parts.items()}


def _solve(gram: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Least-squares coefficients (…, 1 + k); the smallest ones where columns cannot be
    separated."""
    return (np.linalg.pinv(gram) @ moment[..., None])[..., 0]
