"""Words that a lexicon calls positive against words that it calls negative: does a model pay one
group more?

Only the signs of a lexicon's valences are used, so that one that only sorts words (Bing: ±1) will
do. For how much more per unit of valence see `sentiment`.
"""

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analyses.analysis import Meanings, Needs, Options, analysis, by_lexicon
from pessimal.analyses.regression import interval, robust
from pessimal.errors import TableError
from pessimal.plots import Forest
from pessimal.statistics import holm
from pessimal.tables.result import Effect, Estimate, Result, weight_of
from pessimal.tables.table_set import TableSet
from pessimal.tables.words import check_words, stem_groups

LEAST_WORDS = 10
"""Words that a group needs; intervals of fewer are not to be trusted."""


def lexicon_groups(
    words: pd.DataFrame,
    valence: pd.Series,
    *,
    repeated: bool = False,
    meanings: Meanings | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The probability that a positive word earns more than a negative one, and by how much they
    differ on average.

    The probability (AUC) is Mann and Whitney's U over the number of pairs; equal rewards count
    half. Words of valence 0 are in neither group. Words of one stem are taken to be dependent, of
    both groups as well ('hope', 'hopeless'), and so are words alike in meaning. The difference's
    error is that of `regression.robust`. The AUC's is DeLong's with stems for units, and what a
    taste for a direction of meaning does to the difference of the groups' mean ranks; its interval
    is made on the log-odds scale, with Student's t and as many degrees of freedom as the smaller
    group has stems, less 1. Where the groups do not overlap (AUC 0 or 1) there is neither interval
    nor p.
    Args:
        words: all words of the model's vocabulary × prompts, from `words.by_word` (`as_published`
            with `repeated`).
        valence: by word; above 0 is good.
        repeated: rows are tokens, so that the spellings of a word count each; their dependence is
            allowed for.
        meanings: vectors of meaning of words; without it, words of one meaning count as
            independent.

    Returns:
        One row per prompt: prompt, positive, negative (words), stems, auc, auc_low, auc_high, auc_p
            (against ½), tied
        (share of the pairs with equal rewards), difference (mean reward of the positive less that
        of the negative words), difference_sd, difference_low_sd, difference_high_sd (over the
        standard deviation of the rewards of all words), difference_p (against 0).

    Raises:
        TableError: see `words.check_words`; or a group has fewer than `LEAST_WORDS` words, or words
            of one stem only.

    Source: Christian et al. 2025, Figure A3; Obuchowski 1997 (clusters); DeLong et al. 1988.
    """
    check_words(words, repeated=repeated)
    place = valence.index.get_indexer(words.index)
    sign = np.where(
        place >= 0, np.sign(valence.to_numpy(dtype=float)[place]) if len(valence) else 0, 0
    )
    rated, positive = words[sign != 0], sign[sign != 0] > 0
    counts = {"positive": int(positive.sum()), "negative": int((~positive).sum())}
    for group, n in counts.items():
        if n < LEAST_WORDS:
            raise TableError(
                f"{n} words with a {group} valence were found; a comparison of the groups needs "
                f"{LEAST_WORDS} in each. Give a lexicon that rates more of these words, or a "
                "vocabulary instead of a short list."
            )
    stems = stem_groups(rated.index)
    rewards = rated.to_numpy(dtype=float)
    counts |= {"stems": int(stems.max()) + 1}
    # Of the rewards, and of their ranks: the groups' mean ranks differ by n · (AUC − ½).
    outcomes = np.hstack([rewards, stats.rankdata(rewards, axis=0) / len(rewards)])
    alike = meanings(rated.index.tolist()) if meanings else None
    fit = robust(np.column_stack([np.ones(len(rated)), positive]), outcomes, stems, alike)
    taste = (
        np.zeros(2 * len(rewards.T))
        if fit.tastes is None
        else np.square(fit.tastes[:, 1]).sum(axis=0)
    )
    m = len(words.columns)
    rows = [
        {"prompt": prompt, **counts, **_separation(column, positive, stems, taste_of, confidence)}
        for prompt, column, taste_of in zip(words, rewards.T, taste[m:], strict=True)
    ]
    difference, scale = fit.coefficients[1, :m], words.std(ddof=0).to_numpy()
    low, high, p = interval(difference, fit.errors[1, :m], fit.freedom, confidence=confidence)
    return pd.DataFrame(rows).assign(
        difference=difference,
        difference_sd=difference / scale,
        difference_low_sd=low / scale,
        difference_high_sd=high / scale,
        difference_p=p,
    )


def _separation(
    rewards: np.ndarray, positive: np.ndarray, stems: np.ndarray, taste: float, confidence: float
) -> dict[str, float]:
    """The AUC with its interval and p value, and the share of tied pairs. `taste` is added to the
    AUC's variance."""
    above, below = rewards[positive], rewards[~positive]
    # Of each word, the share of the other group that it beats (a positive one) or is beaten by (a
    # negative one).
    everywhere = stats.rankdata(rewards)
    share = np.empty(len(rewards))
    share[positive] = (everywhere[positive] - stats.rankdata(above)) / len(below)
    share[~positive] = 1 - (everywhere[~positive] - stats.rankdata(below)) / len(above)
    auc = float(share[positive].mean())
    size = int(stems.max()) + 1
    sums, groups = [], []
    for inside in (positive, ~positive):
        sums.append(
            np.bincount(stems[inside], weights=share[inside] - auc, minlength=size) / inside.sum()
        )
        groups.append(len(np.unique(stems[inside])))
    if min(groups) < 2:
        raise TableError(
            "All words of one group share a stem, so that no error can be given. Give other words."
        )
    variance = sum(
        g / (g - 1) * np.square(group_sums).sum()
        for g, group_sums in zip(groups, sums, strict=True)
    )
    variance += 2 * size / (size - 1) * (sums[0] * sums[1]).sum()
    ordered = np.sort(below)
    ties = np.searchsorted(ordered, above, side="right") - np.searchsorted(
        ordered, above, side="left"
    )
    low = high = p = np.array(np.nan)
    if 0 < auc < 1:
        odds = np.log(auc / (1 - auc))
        error = np.sqrt(max(variance, 0) + taste) / (auc * (1 - auc))
        low, high, p = interval(odds, error, min(groups) - 1, confidence=confidence)
        low, high = 1 / (1 + np.exp(-low)), 1 / (1 + np.exp(-high))
    tied = ties.sum() / (len(above) * len(below))
    return {
        "auc": auc,
        "auc_low": float(low),
        "auc_high": float(high),
        "auc_p": float(p),
        "tied": float(tied),
    }


@analysis("lexicon_groups", Needs(lexicons=True), place=110)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """How well each model's rewards set each lexicon's positive words apart from its negative
    ones."""
    separations, notes = by_lexicon(
        tables,
        options,
        lambda model, words, valence: lexicon_groups(
            words,
            valence,
            repeated=options.paper,
            meanings=options.meanings,
            confidence=options.confidence,
        ),
    )
    table = pd.concat(
        (
            one.assign(model=model, lexicon=lexicon, candidates=tables.candidates)
            for (model, lexicon), one in separations.items()
        ),
        ignore_index=True,
    )
    table["auc_p_holm"] = table.groupby("lexicon", sort=False)["auc_p"].transform(holm)
    lexicon, prompt = table.loc[0, ["lexicon", "prompt"]]
    first = table[(table["lexicon"] == lexicon) & (table["prompt"] == prompt)]
    mean = float(first["auc"].mean())
    prefix = "" if tables.candidates == "vocabulary" else f"{tables.candidates}-"
    effect = Effect(
        "auc",
        "AUC",
        "auc_low",
        "auc_high",
        p="auc_p_holm",
        null=0.5,
        n="stems",
        of="stems",
        symbol="auc",
    )
    means = table.groupby(["lexicon", "prompt"], sort=False)["auc"].mean()
    return [
        Result(
            "lexicon_groups",
            table,
            headline=f"On {prompt}, a word that {lexicon} calls positive earns more than a "
            f"negative one in {mean:.0%} of pairs (mean of {len(first)} models).",
            plot=Forest.of(
                effect,
                panel="prompt",
                xlabel="AUC, positive against negative words",
                tabs=("lexicon",),
            ),
            method="lexicon_groups",
            weight=weight_of(2 * mean - 1, share=1 / 2),  # expected of every model
            estimate=Estimate("AUC, mean", mean, len(first), "models", null=0.5),
            notes=(*tables.without_columns(), *notes),
            summary={
                f"{prefix}sentiment/{lexicon}/{prompt}/auc": float(auc)
                for (lexicon, prompt), auc in means.items()
            },
            effect=effect,
        )
    ]
