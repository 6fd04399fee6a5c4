"""Flip rates: how much each attribute moves a model's preferences, whether more than a placebo and
more than prices of words do; and slopes, a description.

Knows the table of outcomes, and amounts that a judge measured. Does not know detectors or models.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd

from pessimal.analyses.nulls import taste
from pessimal.errors import TableError
from pessimal.explaining.attribute import PLACEBO, Amount
from pessimal.explaining.distances import tokens
from pessimal.explaining.metrics import cluster_index, draws, ratio_interval, share_interval
from pessimal.explaining.outcomes import (
    CHOSEN,
    COUNTERFACTUAL,
    TIE,
    against_polarity,
    reward_sign,
    valid_rows,
)
from pessimal.statistics import LEVEL, correct_p, sign_flip
from pessimal.tables.result import POWER
from pessimal.texts import strip_layout

MOVED = "moved/"
"""Columns of the table so named say by how many standard deviations of its detector, over the
responses as they stand, an edit moved an attribute; NaN without a text or an opinion."""
RETURNED = ["model", "perturber", "attribute", "liked", "which_is", "asked", "n", "comparisons"]
RETURNED += ["counterfactuals", "ties", "flip_rate", "flip_low", "flip_high", "complied"]
RETURNED += ["flip_rate_complied", "change", "change_low", "change_high"]
RETURNED += ["pairs", "flip_excess", "flip_p"]
SLOPES = ["model", "perturber", "attribute", "n", "comparisons", "slope", "inflation", "explained"]
NULLS = {"rules": "placebo"}
"""Perturbers whose null is made by another name."""
OTHER = {Amount.more.value: Amount.less.value, Amount.less.value: Amount.more.value}
MAX_WORDS = 2000
"""Changes in number of more words than these are projected to so many, by one random matrix."""
DRAWS = 1000
"""Number of random prices of words."""


def null_makers(perturber: str) -> set[str]:
    """Perturbers whose placebo edits are of the same kind as the edits of one: its own, or its
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
    negative where edits speak against the preference. Intervals are over comparisons: of flip rates
    exact binomial (see `share_interval`), of changes bootstraps.

    *Against the placebo*: within each response in which both have valid edits, the attribute's flip
    rate less the placebo's; averaged over the responses of a comparison, then over comparisons: the
    excess. Its p, one-sided, flips the sign of each comparison; exact up to `permutations`
    patterns, else (k + 1) / (permutations + 1). Assumed: without an effect a comparison's
    difference is as likely to have the other sign. Placebos of another kind than the edits test
    nothing (see `null_makers`).

    Returns:
        One row per model, perturber, attribute and taste: liked (more, less; empty for the placebo
        and for tables of earlier editions), which_is (better, worse by polarity), asked (requests),
        n (valid perturbations), comparisons, complied (share of the judged edits that did what was
        asked), flip_rate_complied (of those), excess_error (standard error of the excess) and the
        other columns of `RETURNED`. NaN
        where nothing is valid, judged or tested.

    Source: Jiang et al. 2025 (flip rate); Phipson & Smyth 2010 (the p of drawn permutations). Both
    tastes, Δm and the null are ours.
    """
    rows = []
    polarity = np.where(against_polarity(table), "better", "worse")
    for model, edits in table.assign(which_is=polarity).groupby("model", sort=False):
        clusters = sorted(set(edits["comparison"]))
        weights = draws(len(clusters), replicates=replicates, seed=seed)  # the same for every model
        placebos = valid_rows(edits[edits["attribute"] == PLACEBO])
        for key, arm in edits.groupby(["perturber", "attribute", "which_is"], sort=False):
            perturber, name, which_is = key
            valid, first = valid_rows(arm), arm.iloc[0]
            n, flips, change = (each[:, 0] for each in totals(valid, clusters, [name]))
            null = placebos[placebos["perturber"].isin(null_makers(perturber))]
            excess = pd.Series(dtype=float)
            if name != PLACEBO:
                rates = _response_rates(valid, clusters) - _response_rates(null, clusters)
                excess = rates.mean(axis=1).dropna()
            p = sign_flip(excess.to_numpy(), two_sided=False, permutations=permutations, seed=seed)
            row = (
                *(model, perturber, name, liked(name, first["side"], first.get("amount"))),
                *(which_is if name != PLACEBO else "", len(arm), len(valid), np.count_nonzero(n)),
                *(int(flips.sum()), int((arm["outcome"] == TIE).sum()), _flip_share(valid)),
                *share_interval(flips, n, confidence=confidence),
                *_complied_shares(valid),
                valid["change_in_sd"].mean(),
                *ratio_interval(change, n, weights, confidence=confidence),
                *(len(excess), excess.mean(), p, excess.sem()),
            )
            rows.append(row)
    rates = pd.DataFrame(rows, columns=[*RETURNED, "excess_error"])
    return rates.astype({"flip_p": float})


def _flip_share(valid: pd.DataFrame) -> float:
    return float((valid["outcome"] == COUNTERFACTUAL).mean())


def _complied_shares(valid: pd.DataFrame) -> tuple[float, float]:
    """The share of judged edits that did what was asked, and the flip rate of those; NaN without a
    judge."""
    if "complied" not in valid:
        return np.nan, np.nan
    judged = valid[valid["complied"].notna()]
    complied = judged["complied"].astype(bool)
    return float(complied.mean()), _flip_share(judged[complied])


def totals(
    valid: pd.DataFrame, clusters: Sequence[str], attributes: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Valid perturbations by comparison and attribute, three arrays (clusters, attributes): how
    many, how many are counterfactuals, and their sum of Δm in standard deviations of the reward.
    Those of other comparisons and attributes are left out."""
    row = cluster_index(valid["comparison"], clusters)
    column = cluster_index(valid["attribute"], attributes)
    inside = (row >= 0) & (column >= 0)
    cells = row[inside], column[inside]
    n, flips, change = np.zeros((3, len(clusters), len(attributes)))
    np.add.at(n, cells, 1)
    np.add.at(flips, cells, (valid["outcome"] == COUNTERFACTUAL)[inside])
    np.add.at(change, cells, valid["change_in_sd"].to_numpy(dtype=float)[inside])
    return n, flips, change


def _response_rates(valid: pd.DataFrame, clusters: Sequence[str]) -> pd.DataFrame:
    """Flip rate of the valid perturbations of each response, (clusters, 2); NaN without one."""
    flips = (valid["outcome"] == COUNTERFACTUAL).astype(float)
    means = flips.groupby([valid["comparison"].astype(object), valid["response"]]).mean().unstack()
    return means.reindex(index=clusters, columns=[0, 1]).astype(float)


def flips_beyond_words(rates: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Flip rates (`attribute_flip_rates`), each held against prices of words drawn at random.

    Edits along an attribute are larger than placebo edits, so a reward with a price for every word
    flips more by them, whatever the attribute. The prices are normal, with what is left over; both
    are as large as fits all edits of this model and perturber, whose mean change is kept.

    Returns:
        `rates` with random_words (share of `DRAWS` random prices under which these edits flip as
        often), p_corrected: the larger of flip_p and random_words at its false discovery rate, over
        the rows of a model and perturber (Benjamini & Hochberg 1995; tests share the placebo, which
        ties them together positively, and the procedure holds for that: Benjamini & Yekutieli
        2001), NaN where flip_p is; and detectable: the smallest excess that would have been found
        with a chance of `POWER`, were errors normal and this p the smallest of its family (NaN
        where the comparisons are too few for any), in place of excess_error.

    Source: ours.
    """
    from scipy.stats import norm  # half a second, which whoever only reads need not wait for

    rates = rates.assign(random_words=np.nan, detectable=np.nan)
    for (model, perturber), edits in valid_rows(table).groupby(["model", "perturber"], sort=False):
        family = (rates["model"] == model) & (rates["perturber"] == perturber)
        tested = rates.index[family & rates["flip_p"].notna()]
        if not len(tested):
            continue
        sign, polar = reward_sign(edits), against_polarity(edits)
        change = sign * edits["change_in_sd"].to_numpy(dtype=float)
        words = changed_words(edits[["original", "edited"]])
        fit = taste(np.ones((len(edits), 1)), change[:, None], words)
        rng = np.random.default_rng(0)
        random = words @ rng.normal(0, np.sqrt(fit.variance[0]), (words.shape[1], DRAWS))
        random += rng.normal(change.mean(), np.sqrt(fit.noise[0]), random.shape)
        sd = edits["change"].abs().sum() / edits["change_in_sd"].abs().sum()
        margins = edits["margin"].to_numpy(dtype=float) / sd
        flips = margins[:, None] + sign[:, None] * random < 0  # (edits, draws)
        for row in rates.loc[tested].itertuples():
            arm = (edits["attribute"] == row.attribute) & (polar == (row.which_is == "better"))
            shares = flips[arm.to_numpy()].mean(axis=0)
            beyond = (1 + (shares >= row.flip_rate).sum()) / (1 + DRAWS)
            rates.loc[row.Index, "random_words"] = beyond
            level = LEVEL / len(tested)
            if 2.0**-row.pairs <= level:
                words_excess = np.quantile(shares, 1 - level) - (row.flip_rate - row.flip_excess)
                threshold = max(norm.isf(level) * row.excess_error, words_excess)
                rates.loc[row.Index, "detectable"] = threshold + norm.ppf(POWER) * row.excess_error
    columns, family = ("flip_p", "random_words"), ("model", "perturber")
    p, _ = correct_p(rates, columns, family, method="Benjamini-Hochberg")
    return rates.assign(p_corrected=p).drop(columns="excess_error")


def changed_words(texts: pd.DataFrame) -> np.ndarray:
    """(n, at most MAX_WORDS): by how many each word or mark is more in `edited` than in `original`,
    case and layout apart, of those that some edit adds or takes; of more words than rows, as many
    columns as rows, with the same products."""
    from sklearn.feature_extraction import DictVectorizer  # a second, which not every table needs

    changes = []
    for original, edited in texts.itertuples(index=False):
        count = Counter(map(str.lower, tokens(strip_layout(edited))))
        count.subtract(map(str.lower, tokens(strip_layout(original))))
        changes.append({word: more for word, more in count.items() if more})
    sparse = DictVectorizer(sort=False).fit_transform(changes)
    if (n := sparse.shape[1]) > MAX_WORDS:
        sparse @= np.random.default_rng(0).standard_normal((n, MAX_WORDS)) / np.sqrt(MAX_WORDS)
    moved = np.asarray(sparse if n > MAX_WORDS else sparse.toarray())
    if moved.shape[1] > len(moved):
        left, sizes, _ = np.linalg.svd(moved, full_matrices=False)
        moved = left * sizes
    return moved


def slopes(table: pd.DataFrame) -> pd.DataFrame:
    """By how much the reward rises as an attribute is raised and all others are held, by model and
    perturber: a description. More length goes along with more help, so that edits move several
    attributes together; but what no detector sees is credited to those that move along with it, and
    a price for every word has slopes too. So nothing is tested or named by them.

    A least-squares line through all valid edits, of both sides and along all attributes: the change
    of the edited response's reward, in standard deviations of the model's rewards, on the changes
    of all detectors, each in standard deviations over the responses as they stand, and on a
    constant (what any edit does). A detector without an opinion counts as unmoved; one that no edit
    moves is left out.

    Args:
        table: of outcomes, with a column `moved/NAME` for each detector.

    Returns:
        One row per model, perturber (the placebo's edits are a part of every one's) and attribute:
        model, perturber, attribute, n (edits), comparisons, slope (SD of reward per SD of the
        attribute), inflation (of the slope's variance, by what the attributes have in common; 1:
        nothing, above 10 hardly separable), explained (R² of the line). NaN with no more
        comparisons than attributes and one.

    Raises:
        TableError: no column of a detector.
    """
    pieces = [pd.DataFrame(columns=SLOPES)]
    for model, edits in valid_rows(table).groupby("model", sort=False):
        placebo = edits["perturber"] == "placebo"
        for perturber in dict.fromkeys(edits["perturber"][placebo.all() | ~placebo]):
            lines = _fit_line(edits[(edits["perturber"] == perturber) | placebo])
            pieces.append(lines.assign(model=model, perturber=perturber))
    return pd.concat(pieces[1:] or pieces, ignore_index=True).reindex(columns=SLOPES)


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


def _fit_line(rows: pd.DataFrame) -> pd.DataFrame:
    """Slopes of the edits of one model and perturber, one row per attribute."""
    names, comparisons = detectors(rows), rows["comparison"].nunique()
    lines = pd.DataFrame({"attribute": names, "n": len(rows), "comparisons": comparisons})
    if not names or comparisons <= 1 + len(names):
        return lines
    moved = rows[[MOVED + name for name in names]].fillna(0.0).to_numpy(dtype=float)
    change = reward_sign(rows) * rows["change_in_sd"].to_numpy(dtype=float)
    design = np.column_stack([np.ones(len(rows)), moved])
    coefficients = np.linalg.lstsq(design, change, rcond=None)[0]
    return lines.assign(
        slope=coefficients[1:],
        inflation=np.diag(np.linalg.pinv(np.atleast_2d(np.corrcoef(moved, rowvar=False)))),
        explained=1 - (change - design @ coefficients).var() / (change.var() or np.nan),
    )
