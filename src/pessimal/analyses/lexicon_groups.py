"""Words that a lexicon calls positive against words that it calls negative: does a model pay one
group more?

Only the signs of a lexicon's valences are used, so that one that only sorts words (Bing: ±1) will
do. For how much more per unit of valence see `sentiment`.
"""

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analyses.analysis import (
    Needs,
    Options,
    States,
    analysis,
    fit_lexicons,
    heads_by_model,
    notes_on_states,
    outcome_states,
    random_head_clause,
    word_frequencies,
)
from pessimal.analyses.nulls import Statistic, intervals, p_values, random_heads, slopes
from pessimal.analyses.ranks import dependence
from pessimal.errors import TableError
from pessimal.plots import Forest
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect, Result
from pessimal.tables.table_set import TableSet
from pessimal.tables.word_lists import check_words, stem_groups

LEAST_WORDS = 10
"""Words that a group needs; intervals of fewer are not to be trusted."""


def lexicon_groups(
    words: pd.DataFrame,
    valence: pd.Series,
    *,
    heads: States | None = None,
    zipf: pd.Series | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The probability that a positive word earns more than a negative one.

    The probability (AUC) is Mann and Whitney's U over the number of pairs; equal rewards count
    half. Words of valence 0 are in neither group. Intervals and p (`nulls.intervals`, for an
    AUC on the scale of log odds) are for other words of the language; words of one stem are taken
    to be dependent, of both groups as well ('hope', 'hopeless').

    Good words are used more than bad ones. So random heads are held against the AUC among words of
    like frequency: ½ and the difference of the groups' mean ranks within fifths of frequency.

    Args:
        words: all words of the model's vocabulary × prompts, from `words.by_word` (`as_published`
            where rows are tokens: the spellings of a word then count each, as dependent ones).
        valence: by word; above 0 is good.
        heads: states that random heads would be on; without them random_head is missing.
        zipf: frequency by word; without it all words count as equally frequent.

    Returns:
        One row per prompt: prompt, positive, negative (words), stems, auc, auc_low, auc_high, auc_p
            (against ½), auc_matched (among words of like frequency), random_head (share of random
            heads whose auc_matched is as far from ½), heads_within (95 % of them lie within ± this
            of ½).

    Raises:
        TableError: see `words.check_words`; or a group has fewer than `LEAST_WORDS` words.

    Source: Christian et al. 2025, Figure A3; Obuchowski 1997 (clusters).
    """
    check_words(words)
    sign = np.sign(valence.reindex(words.index).to_numpy(dtype=float))  # NaN where not rated
    inside = np.abs(sign) == 1
    rated, positive = words[inside], sign[inside] > 0
    counts = {"positive": int(positive.sum()), "negative": int((~positive).sum())}
    for group, n in counts.items():
        if n < LEAST_WORDS:
            raise TableError(
                f"{n} words with a {group} valence were found; a comparison of the groups needs "
                f"{LEAST_WORDS} in each. Give a lexicon that rates more of these words."
            )
    groups, rewards = stem_groups(rated.index), rated.to_numpy(dtype=float)
    statistics = [_separation(column, positive) for column in rewards.T]
    dependent = dependence(rated.index, None)
    auc, low, high = intervals(statistics, dependent, confidence=confidence)
    p = p_values(statistics, dependent)
    apart = (auc <= 0) | (auc >= 1)  # groups that do not overlap say nothing of an error
    low, high, p = (np.where(apart, np.nan, column) for column in (low, high, p))
    ranks = stats.rankdata(rewards, axis=0) / len(rewards)
    design = np.column_stack([np.ones(len(rated)), positive, *_fifths(rated.index, zipf)])
    matched = np.linalg.lstsq(design, ranks, rcond=None)[0][1]
    table = pd.DataFrame({"prompt": list(words), **counts, "stems": int(groups.max()) + 1})
    table = table.assign(auc=auc, auc_low=low, auc_high=high, auc_p=p, auc_matched=0.5 + matched)
    states = outcome_states(heads, rated.index.tolist(), words)
    untrained = random_heads(slopes(design), ranks, states, design, groups)
    return table.assign(random_head=untrained.share[1], heads_within=untrained.within[1])


def _fifths(words: pd.Index, zipf: pd.Series | None) -> list[np.ndarray]:
    """A column of 0 and 1 for each fifth of the words by frequency but the first; words of unknown
    frequency are in the first."""
    if zipf is None:
        return []
    used = zipf.reindex(words).fillna(0.0).to_numpy(dtype=float)
    edges = np.unique(np.quantile(used, [0.2, 0.4, 0.6, 0.8]))
    place = np.searchsorted(edges, used, side="right")
    return [(place == fifth).astype(float) for fifth in np.unique(place)[1:]]


def _separation(rewards: np.ndarray, positive: np.ndarray) -> Statistic:
    """The AUC with its influence values."""
    everywhere, share = stats.rankdata(rewards), np.empty(len(rewards))
    for group in (positive, ~positive):  # the share of the other group that a word beats
        share[group] = (everywhere[group] - stats.rankdata(rewards[group])) / (~group).sum()
    share[~positive] = 1 - share[~positive]
    auc = float(share[positive].mean())
    sizes = np.where(positive, positive.sum(), (~positive).sum())
    return Statistic(auc, (share - auc) * len(rewards) / sizes, share=True)


@analysis("lexicon_groups", Needs(lexicons=True), place=110)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """The separation of each lexicon's positive words from its negative ones by each model's
    rewards."""
    heads, states = heads_by_model(tables, options)
    zipf = None
    if options.frequencies is not None:
        zipf = word_frequencies(tables, tables.models, options)
    pieces, notes = fit_lexicons(
        tables,
        options,
        lambda model, words, valence: lexicon_groups(
            words, valence, heads=heads[model], zipf=zipf, confidence=options.confidence
        ),
    )
    table = pd.concat(pieces, names=["model", "lexicon", "row"]).reset_index().drop(columns="row")
    table = table.assign(candidates=tables.candidates, states=table["model"].map(states))
    effect = Effect(
        "auc",
        "AUC",
        "auc_low",
        "auc_high",
        p="auc_p_corrected",
        family=("lexicon",),
        null=0.5,
        n="stems",
        of="stems",
        symbol="auc",
        band="heads_within",
    )
    table = effect.correct(table)
    lexicon, prompt = table.loc[0, ["lexicon", "prompt"]]
    first = table[(table["lexicon"] == lexicon) & (table["prompt"] == prompt)]
    holds = first[effect.p] <= LEVEL
    among = first[holds] if holds.any() else first
    row = among.loc[(among["auc"] - 0.5).abs().idxmax()]
    label = tables.labels[row["model"]]
    who = (
        f"{holds.sum()} of {len(first)} models tell" if holds.any() else "no model is found to tell"
    )
    prefix = "" if tables.candidates == "vocabulary" else f"{tables.candidates}-"
    means = table.groupby(["lexicon", "prompt"], sort=False)["auc"].mean()
    return [
        Result.of_row(
            row,
            "lexicon_groups",
            table,
            effect,
            f"On {prompt}, {who} {lexicon}'s positive words from negative ones; most, {label}: "
            f"{row['auc']:.0%} of pairs{random_head_clause(row)}.",
            share=1 / 2,  # expected of every model
            plot=Forest.of(
                effect,
                panel="prompt",
                xlabel="AUC, positive against negative words",
                tabs=("lexicon",),
            ),
            method="lexicon_groups",
            notes=(*tables.without_columns(), *notes_on_states(heads, tables.labels), *notes),
            summary={
                f"{prefix}sentiment/{lexicon}/{prompt}/auc": float(auc)
                for (lexicon, prompt), auc in means.items()
            },
        )
    ]
