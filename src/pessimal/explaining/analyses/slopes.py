"""What a model rewards in itself, where edits move several attributes together: more length goes
along with more help.

Knows the table of outcomes with what the detectors saw move. Does not know texts, nor which
attribute an edit was asked for. Flip rates and mean changes are of edits as they come
(`flip_rate`); here the attributes' parts in them are separated.
"""

from collections import Counter

import numpy as np
import pandas as pd
from scipy import stats
from scipy.sparse import csr_array

from pessimal.analyses.regression import heads_beyond, taste
from pessimal.errors import TableError
from pessimal.explaining.analyses.flips import MOVED
from pessimal.explaining.analyses.intervals import cluster_index
from pessimal.explaining.edits.distances import tokens
from pessimal.explaining.outcomes import CHOSEN, against_polarity, valid_rows
from pessimal.statistics import benjamini_hochberg

RETURNED = ["model", "perturber", "attribute", "n", "comparisons", "held", "slope", "slope_low"]
RETURNED += ["slope_high", "slope_p", "slope_q", "slope_q_low", "slope_q_high"]
RETURNED += ["random_words", "words_within", "beyond_q", "inflation", "explained"]
LEAST = 4
"""Comparisons that errors need."""
LENGTH = "verbosity"
"""The attribute that measures length."""
OTHERS = "the other attributes"
ROUNDING = 1e-9
WORDS = 2000
"""Of more words that edits add or take, their changes in number are projected to so many, by one
random matrix."""
DRAWS = 1000
"""Of random prices of words."""


def slopes(table: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """By how much the reward rises as an attribute is raised and all others are held, by model and
    perturber.

    A least-squares line through all valid edits, of both sides and along all attributes: the change
    of the edited response's reward, in standard deviations of the model's rewards, on the changes
    of all detectors, each in standard deviations over the responses as they stand, and on a
    constant (what any edit does). Errors are the jackknife's over comparisons, so that they allow
    for whatever the edits of one have in common, with Student's t at the effective number of
    comparisons − 1: an attribute that the edits of a few comparisons move rests on those. A
    detector without an opinion counts as unmoved; one that no edit moves is left out. What no
    detector sees is credited to those that move along with it.

    With no more comparisons than attributes such a line has no errors. Then length comes first: the
    slope of `LENGTH` is that of a line on it alone, of any other attribute on itself and `LENGTH`.

    Edits along an attribute share their wording, so a reward that has a price for every word, and a
    taste for nothing, has slopes too, which hold for other comparisons. So each slope is also held
    against prices drawn at random, as large as fit what the attributes do not explain
    (`regression.heads_beyond`).

    Args:
        table: of outcomes, with a column `moved/NAME` for each detector.

    Returns:
        One row per model, perturber (the placebo's edits are a part of every one's) and attribute:
        model, perturber, attribute, n (edits), comparisons, held (what is held: the other
        attributes, `LENGTH`, or nothing), slope (SD of reward per SD of the attribute), slope_low,
        slope_high and slope_p (of this attribute alone), slope_q (Benjamini-Hochberg over the
        attributes), slope_q_low and slope_q_high (an interval corrected as slope_q is, which holds
        0 exactly where slope_q is above 1 − confidence), random_words (share of random prices of
        words that give so large a slope), words_within (95 % of them lie within ± this), beyond_q
        (the larger of slope_p and random_words, corrected as slope_q is), inflation (of the slope's
        variance, by what the attributes have in common; 1: nothing, above 10 hardly separable),
        explained (R² of all attributes together; where length comes first, what this attribute adds
        to it). Errors
        are NaN with three comparisons or fewer; slopes too with no more edits than attributes.

    Raises:
        TableError: no column of a detector.

    Source: MacKinnon, Nielsen & Webb 2023 (the cluster jackknife, CV3); Carter, Schnepel &
    Steigerwald 2017 (the effective number of clusters); Benjamini & Yekutieli 2005 (intervals).
    """
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


def flips_beyond_words(rates: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Flip rates (`flips.attribute_flip_rates`), each held against prices of words drawn at random.

    Edits along an attribute are larger than placebo edits, so a reward with a price for every word
    flips more by them, whatever the attribute. The prices are normal, with what is left over; both
    are as large as fits all edits of this model and perturber, whose mean change is kept.

    Returns:
        `rates` with random_words (share of `DRAWS` random prices under which these edits flip as
        often), words_within (95 % of them flip at most so much) and beyond_q (the larger of flip_p
        and random_words, corrected as flip_q is); NaN where flip_p is.

    Source: ours.
    """
    found = rates.assign(random_words=np.nan, words_within=np.nan)
    for (model, perturber), edits in valid_rows(table).groupby(["model", "perturber"], sort=False):
        of_these = (found["model"] == model) & (found["perturber"] == perturber)
        tested = found.index[of_these & found["flip_p"].notna()]
        if not len(tested):
            continue
        sign, polar = _sign(edits), against_polarity(edits)
        change = sign * edits["change_in_sd"].to_numpy(dtype=float)
        words = changed_words(edits[["original", "edited"]])
        fit = taste(np.ones((len(edits), 1)), change[:, None], words)
        rng = np.random.default_rng(0)
        random = words @ rng.normal(0, np.sqrt(fit.variance[0]), (words.shape[1], DRAWS))
        random += rng.normal(change.mean(), np.sqrt(fit.noise[0]), random.shape)
        sd = edits["change"].abs().sum() / edits["change_in_sd"].abs().sum()
        margins = edits["margin"].to_numpy(dtype=float) / sd
        flips = margins[:, None] + sign[:, None] * random < 0  # (edits, draws)
        for row in found.loc[tested].itertuples():
            own = (edits["attribute"] == row.attribute) & (polar == (row.which_is == "better"))
            drawn = flips[own.to_numpy()].mean(axis=0)
            beyond = (1 + (drawn >= row.flip_rate).sum()) / (1 + DRAWS)
            found.loc[row.Index, "random_words"] = beyond
            found.loc[row.Index, "words_within"] = np.quantile(drawn, 0.95)
    both = found[["flip_p", "random_words"]].max(axis=1, skipna=False)
    corrected = both.groupby([found["model"], found["perturber"]]).transform(
        lambda p: benjamini_hochberg(p.to_numpy(dtype=float))
    )
    return found.assign(beyond_q=corrected)


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
    change = _sign(rows) * rows["change_in_sd"].to_numpy(dtype=float)
    clusters = sorted(set(rows["comparison"]))
    n, c, k = len(rows), len(clusters), len(names)
    counts = {"n": n, "comparisons": c}
    if n <= 1 + k or not names:
        return [{"attribute": name, **counts} for name in names]
    index = cluster_index(rows["comparison"], clusters)
    texts = rows[["original", "edited"]]
    if c > 1 + k:
        fit = fitted_line(moved, change, index, c)
        random = _of_random_words(moved, np.arange(k), change, index, changed_words(texts))
        lines = pd.DataFrame({"held": OTHERS, **fit, **random})
    else:
        words = changed_words(texts)
        length = moved[:, [names.index(LENGTH)]] if LENGTH in names else moved[:, :0]
        alone = fitted_line(length, change, index, c)["explained"] if LENGTH in names else 0.0
        fits = []
        for name, column in zip(names, moved.T, strict=True):
            first = length[:, :0] if name == LENGTH else length
            both = np.column_stack([first, column])
            fit = fitted_line(both, change, index, c)
            fit |= _of_random_words(both, np.array([both.shape[1] - 1]), change, index, words)
            added = fit.pop("explained") - (0.0 if name == LENGTH else alone)
            last = {key: values[-1] for key, values in fit.items()}
            held = LENGTH if first.size else "nothing"
            fits.append({"held": held, **last, "explained": added})
        lines = pd.DataFrame(fits)
    p = 2 * stats.t.sf(np.abs(lines["slope"]) / lines["error"], lines["freedom"])
    # A slope that is 0 but for rounding has an error that is, too.
    p = np.where((np.abs(lines["slope"]) < ROUNDING) & lines["error"].notna(), 1.0, p)
    q = benjamini_hochberg(p)
    beyond = benjamini_hochberg(np.where(np.isnan(p), p, np.maximum(p, lines["random_words"])))
    # The level at which as many intervals leave out 0 as slopes hold, and one where none does.
    corrected = 1 - (1 - confidence) * max((q <= 1 - confidence).sum(), 1) / k
    ends: dict[str, pd.Series] = {}
    for stem, level in (("slope", confidence), ("slope_q", corrected)):
        reach = stats.t.ppf((1 + level) / 2, lines["freedom"]) * lines["error"]
        ends |= {f"{stem}_low": lines["slope"] - reach, f"{stem}_high": lines["slope"] + reach}
    correlations = np.atleast_2d(np.corrcoef(moved, rowvar=False))
    inflation = np.diag(np.linalg.pinv(correlations))
    table = lines.drop(columns=["error", "freedom"]).assign(
        attribute=names,
        **counts,
        **ends,
        slope_p=p,
        slope_q=q,
        beyond_q=beyond,
        inflation=inflation,
    )
    return table.to_dict("records")


def _sign(rows: pd.DataFrame) -> np.ndarray:
    """The margin falls where the preferred response loses, or the other gains."""
    return np.where(rows["side"] == CHOSEN, 1.0, -1.0)


def changed_words(texts: pd.DataFrame) -> np.ndarray:
    """(n, at most WORDS): by how many each word or mark is more in `edited` than in `original`,
    case apart, of those that some edit adds or takes; of more words than rows, as many columns
    as rows, with the same products."""
    places: dict[str, int] = {}
    values, rows, columns = [], [], []
    for row, (original, edited) in enumerate(texts.itertuples(index=False)):
        count = Counter(map(str.lower, tokens(edited)))
        count.subtract(map(str.lower, tokens(original)))
        for word, more in count.items():
            if more:
                values.append(float(more))
                rows.append(row)
                columns.append(places.setdefault(word, len(places)))
    sparse = csr_array((values, (rows, columns)), shape=(len(texts), len(places)))
    if len(places) > WORDS:
        drawn = np.random.default_rng(0).standard_normal((len(places), WORDS))
        moved = sparse @ drawn / np.sqrt(WORDS)
    else:
        moved = sparse.toarray()
    if moved.shape[1] > len(moved):
        left, sizes, _ = np.linalg.svd(moved, full_matrices=False)
        moved = left * sizes
    return moved


def _of_random_words(
    moved: np.ndarray, which: np.ndarray, change: np.ndarray, index: np.ndarray, words: np.ndarray
) -> dict:
    """random_words and words_within of some coefficients of a line of the change (n,) on what moved
    (n, k)."""
    if not words.size:  # no edit changes a word
        return dict.fromkeys(("random_words", "words_within"), np.zeros(len(which)))
    design = np.column_stack([np.ones(len(change)), moved])
    weights = np.linalg.pinv(design).T[:, 1 + which]  # (n, coefficients)
    found = heads_beyond(weights, design, change[:, None], index, [words[:, None]])
    return {"random_words": found.share[:, 0], "words_within": found.within[:, 0]}


def fitted_line(moved: np.ndarray, change: np.ndarray, index: np.ndarray, c: int) -> dict:
    """A least-squares line of the change (n,) on a constant and what moved (n, k), its errors the
    jackknife's over c groups (`index`, int (n,)): slope, error and freedom (degrees of it), each
    (k,), and explained (R²). Errors are NaN with three groups or fewer."""
    design = np.column_stack([np.ones(len(change)), moved])  # (n, 1 + k)
    columns = design.shape[1]
    # Products of the columns, by comparison.
    gram, moment = np.zeros((c, columns, columns)), np.zeros((c, columns))
    np.add.at(gram, index, design[:, :, None] * design[:, None, :])
    np.add.at(moment, index, design * change[:, None])
    slope, error = _solved(gram.sum(0), moment.sum(0)), np.full(columns, np.nan)
    freedom = np.full(columns, np.nan)
    if c > columns and c >= LEAST:
        without = _solved(gram.sum(0) - gram, moment.sum(0) - moment)  # (clusters, 1 + k)
        error = np.sqrt((c - 1) / c * ((without - without.mean(0)) ** 2).sum(0))
        # What each comparison weighs in a slope: that of its part that the others do not explain.
        inverse = np.linalg.pinv(gram.sum(0))
        weight = np.einsum("ki,cij,jk->ck", inverse, gram, inverse)
        squares = np.maximum((weight**2).sum(0), np.finfo(float).tiny)
        freedom = np.maximum(weight.sum(0) ** 2 / squares - 1, 1.0)
    residual = change - design @ slope
    explained = 1 - residual.var() / change.var() if change.var() > 0 else np.nan
    parts = {"slope": slope[1:], "error": error[1:], "freedom": freedom[1:]}
    return parts | {"explained": explained}


def _solved(gram: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Least-squares coefficients (…, 1 + k); the smallest ones where columns cannot be
    separated."""
    return (np.linalg.pinv(gram) @ moment[..., None])[..., 0]
