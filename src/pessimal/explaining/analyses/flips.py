"""Flip rates: how much each attribute moves a model's preferences, whether more than a placebo and
more than prices of words do, and whether the edits did what was asked.

Knows the table of outcomes, and amounts that a judge measured. Does not know detectors or models.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from pessimal.analyses.regression import taste
from pessimal.explaining.analyses.intervals import (
    cluster_index,
    clustered_share,
    draws,
    ratio_interval,
    share_interval,
)
from pessimal.explaining.attribute import PLACEBO, Amount
from pessimal.explaining.edits.distances import tokens
from pessimal.explaining.outcomes import (
    CHOSEN,
    COUNTERFACTUAL,
    TIE,
    against_polarity,
    reward_sign,
    valid_rows,
)
from pessimal.statistics import benjamini_hochberg, sign_flip
from pessimal.texts import strip_layout

MOVED = "moved/"
"""Columns of the table so named say by how many standard deviations of its detector, over the
responses as they stand, an edit moved an attribute; NaN without a text or an opinion."""
RETURNED = ["model", "perturber", "attribute", "liked", "which_is", "asked", "n", "comparisons"]
RETURNED += ["counterfactuals", "ties", "flip_rate", "flip_low", "flip_high"]
RETURNED += ["change", "change_low", "change_high"]
RETURNED += ["pairs", "flip_excess", "flip_excess_low", "flip_excess_high", "flip_p", "flip_q"]
SHARES = ["n", "comparisons", "share", "low", "high"]
JUDGED = {True: "complied", False: "not complied"}
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
    excess, with a bootstrap interval. Its p, one-sided, flips the sign of each comparison; exact up
    to `permutations` patterns, else (k + 1) / (permutations + 1). Assumed: without an effect a
    comparison's difference is as likely to have the other sign. q: Benjamini and Hochberg over all
    rows of one model and perturber (tests share the placebo, which ties them together positively;
    the procedure holds for that). Placebos of another kind than the edits test nothing (see
    `null_makers`).

    Returns:
        One row per model, perturber, attribute and taste: liked (more, less; empty for the placebo
        and for tables of earlier editions), which_is (better, worse by polarity), asked (requests),
        n (valid perturbations), comparisons, and the columns of `RETURNED`. NaN where nothing is
        valid or nothing is tested.

    Source: Jiang et al. 2025 (flip rate); Phipson & Smyth 2010 (the p of drawn permutations);
    Benjamini & Hochberg 1995; Benjamini & Yekutieli 2001. Both tastes, Δm and the null are ours.
    """
    rows = []
    interval = partial(ratio_interval, confidence=confidence)
    test = partial(sign_flip, two_sided=False, permutations=permutations, seed=seed)
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
            rates = [_response_rates(each, clusters) for each in (valid, null)]
            excess = (rates[0] - rates[1]).mean(axis=1)
            paired = excess.notna().to_numpy() & (name != PLACEBO)
            values = excess[paired].to_numpy()
            ones = np.ones(len(values))
            ends = {
                "flip": share_interval(flips, n, confidence=confidence),
                "change": interval(change, n, weights),
                "flip_excess": interval(values, ones, weights[:, paired]),
            }
            row = {
                **{"model": model, "perturber": perturber, "attribute": name},
                "liked": liked(name, first["side"], first.get("amount")),
                "which_is": which_is if name != PLACEBO else "",
                "asked": len(arm),
                "n": int(n.sum()),
                "comparisons": np.count_nonzero(n),
                "counterfactuals": int(flips.sum()),
                "ties": int((arm["outcome"] == TIE).sum()),
                "flip_rate": ratio(flips, n),
                "change": ratio(change, n),
                "pairs": len(values),
                "flip_excess": values.mean() if len(values) else np.nan,
                "flip_p": test(values),
                **{f"{stem}_low": low for stem, (low, _) in ends.items()},
                **{f"{stem}_high": high for stem, (_, high) in ends.items()},
            }
            rows.append(row)
    rates = pd.DataFrame(rows, columns=RETURNED)
    return rates.assign(flip_q=_corrected(rates, rates["flip_p"].astype(float)))


def totals(
    valid: pd.DataFrame, clusters: Sequence[str], attributes: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Valid perturbations by comparison and attribute, three arrays (clusters, attributes): how
    many, how many are counterfactuals, and their sum of Δm in standard deviations of the reward.
    Those of other comparisons and attributes are left out."""
    row = cluster_index(valid["comparison"], clusters)
    column = cluster_index(valid["attribute"], attributes)
    inside = (row >= 0) & (column >= 0)
    cell, shape = row[inside] * len(attributes) + column[inside], (len(clusters), len(attributes))
    n, flips, change = (
        np.bincount(cell, weights=values[inside], minlength=shape[0] * shape[1]).reshape(shape)
        for values in (
            np.ones(len(valid)),
            (valid["outcome"] == COUNTERFACTUAL).to_numpy(dtype=float),
            valid["change_in_sd"].to_numpy(dtype=float),
        )
    )
    return n, flips, change


def ratio(values: np.ndarray, n: np.ndarray) -> float:
    """The sum of values over the sum of n; NaN where that is 0."""
    return float(values.sum() / n.sum()) if n.sum() else np.nan


def _corrected(rates: pd.DataFrame, p: pd.Series) -> pd.Series:
    """p at its false discovery rate, over the rows of each model and perturber."""
    return p.groupby([rates["model"], rates["perturber"]]).transform(
        lambda family: benjamini_hochberg(family.to_numpy(dtype=float))
    )


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
        often) and beyond_q (the larger of flip_p and random_words, corrected as flip_q is); NaN
        where flip_p is.

    Source: ours.
    """
    rates = rates.assign(random_words=np.nan)
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
    larger = rates[["flip_p", "random_words"]].max(axis=1, skipna=False)
    return rates.assign(beyond_q=_corrected(rates, larger))


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


def compliance(
    outcomes: pd.DataFrame,
    *,
    by: Sequence[str] = ("attribute", "side", "perturber"),
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The share of one model's edits that moved their attribute the asked way, of those the judge
    has an opinion on: a row a group, with its columns and `SHARES`."""
    judged = outcomes[outcomes["edited"].notna() & outcomes["complied"].notna()]
    return _shares(judged, judged["complied"].astype(bool), by, confidence)


def flip_rates(outcomes: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """The flip rate over all edits, over those that complied, and over those that did not.

    A low rate over all edits may mean that the model resists or that the edits failed; the rate
    over those that complied is the model's. Whoever complied is no random half: compare it between
    models, which meet the same edits.

    A row a model, attribute and edits (all, complied, not complied, not judged) of which there are
    some: `SHARES` of the edits with a text that flip; ties count as no flip.
    """
    valid = outcomes[outcomes["outcome"].notna()]
    judged = valid["complied"].map(JUDGED).fillna("not judged")
    twice = [valid.assign(edits="all"), valid.assign(edits=judged)]
    rows = pd.concat(twice, ignore_index=True)
    flips = rows["outcome"] == COUNTERFACTUAL
    return _shares(rows, flips, ["model", "attribute", "edits"], confidence)


def _shares(
    rows: pd.DataFrame, hits: pd.Series, by: Sequence[str], confidence: float
) -> pd.DataFrame:
    """The share of rows that hit, a line a group."""
    lines = [
        (*key, *clustered_share(hits[group.index], group["comparison"], confidence=confidence))
        for key, group in rows.groupby(list(by), sort=False)
    ]
    return pd.DataFrame(lines, columns=[*by, *SHARES])
