"""Do models and people mean the same by good? Rank correlation of each model's scores with people's
valence of words.

Of reward models and language models alike, so that the two can be set beside one another: a
language model's score is the log-probability of saying the word. The contrast of opposite prompts,
such as *greatest* less *worst*, takes out what both prompts make likely, which in a language model
is nearly everything: its highest and lowest words are what a model means.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import (
    Heads,
    Needs,
    Options,
    States,
    analysis,
    difference,
    heads_of,
    heads_of_model,
    note_errors,
    notes_on_states,
    outcome_states,
    quoted,
    random_head_clause,
)
from pessimal.analyses.nulls import heads_on_ranks, intervals, p_values
from pessimal.analyses.ranks import dependence, ranked, spearman
from pessimal.errors import TableError
from pessimal.plots import Forest, TokenTable
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet, labels_of, tokens_of
from pessimal.tables.word_lists import stem_groups, word_means, word_starts
from pessimal.texts import literal, signed

LEAST_WORDS = 50
"""Rated words that a correlation needs."""
REWARD, LANGUAGE = "reward", "log-probability"


def valence_agreement(
    scores: pd.DataFrame,
    valence: pd.Series,
    *,
    heads: States | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Spearman's ρ of each column of scores with valence, over the words that have both.

    The interval and p (`nulls.intervals`) are for other words of the language: words of one
    stem are dependent. Random heads are
    held against it as the slope of ranks on ranks (`nulls.heads_on_ranks`).

    Args:
        scores: words × columns, index = word.
        valence: by word, above 0 is good.
        heads: states that random heads would be on; without them random_head is missing.

    Returns:
        A row per column: prompt (its name), n (words), stems, spearman, low, high, p, random_head,
        heads_within.

    Raises:
        TableError: fewer than LEAST_WORDS words have both.
    """
    shared = scores.index.intersection(valence.index)
    if len(shared) < LEAST_WORDS:
        raise TableError(
            f"{len(shared)} words are rated; {LEAST_WORDS} are needed. Give a lexicon that rates "
            "more of them"
        )
    rated, values = valence[shared].to_numpy(dtype=float), scores.loc[shared].to_numpy(dtype=float)
    statistics = [spearman(ranked(column), ranked(rated)) for column in values.T]
    dependent, groups = dependence(shared, None), stem_groups(shared)
    rho, low, high = intervals(statistics, dependent, confidence=confidence)
    table = pd.DataFrame({"prompt": list(scores), "n": len(shared), "stems": int(groups.max()) + 1})
    p = p_values(statistics, dependent)
    states = outcome_states(heads, shared.tolist(), scores)
    untrained = heads_on_ranks(values, rated, groups, states)
    table = table.assign(spearman=rho, low=low, high=high, p=p)
    return table.assign(random_head=untrained.share, heads_within=untrained.band)


def contrast_words(contrast: pd.Series, *, k: int) -> pd.DataFrame:
    """The `k` words (fewer where there are not twice as many) with the highest and with the lowest
    difference: end (top or bottom), rank, word, difference."""
    ordered = contrast.sort_values(ascending=False, kind="stable")
    n = min(k, len(ordered) // 2)
    ends = pd.concat([ordered[:n], ordered[::-1][:n]])
    columns = {"end": np.repeat(["top", "bottom"], n), "rank": [*range(1, n + 1)] * 2}
    return pd.DataFrame(columns | {"word": ends.index, "difference": ends.to_numpy()})


@analysis("valence", Needs(models=0, prompts=0, lexicons=True), place=90)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Each model and lexicon, on each prompt and on the contrast of opposite ones; and the words at
    the contrast's ends.

    Tables:
        valence: Do models rank words as people's valence does? A row a model, lexicon and prompt.
            - as everywhere: model, lexicon, n, stems, low, high, p, candidates, p_corrected,
                detectable, random_head, heads_within, states
            - score: reward, or log-probability of saying the word
            - prompt: key of the prompt; `a − b` is the difference of the scores under two opposite
                prompts
            - spearman: Spearman's ρ of the scores with the valences
        contrast_words: The words whose scores differ most between two opposite prompts, either way.
            - as everywhere: model, end, candidates
            - score: reward, or log-probability of saying the word
            - prompt: the two opposite prompts, `a − b`
            - rank: 1 at each end
            - word: a word that a token spells whole, its spellings averaged
            - difference: score under the first less score under the second
    """
    pieces, ends = [], []
    notes: list[str] = []
    heads: dict[str, Heads | None] = {}
    for score, model, tokens, words, on in _models(tables, options):
        heads[model] = on
        opposite = {difference(a, b): words[a] - words[b] for a, b in _opposite(tables, words)}
        is_word = word_starts(tokens.index).get_indexer(words.index) >= 0
        for prompt, contrast in opposite.items():
            listed = contrast_words(contrast[is_word], k=options.top)
            ends.append(listed.assign(model=model, score=score, prompt=prompt))
        for lexicon, valence in options.lexicons.items():
            with note_errors(notes, model, f"with {lexicon}"):
                rows = valence_agreement(
                    words.assign(**opposite), valence, heads=on, confidence=options.confidence
                )
                about = {"model": model, "score": score, "lexicon": lexicon}
                pieces.append(rows.assign(**about, states=on.of if on else ""))
    if not pieces:
        raise TableError("; ".join(notes) or "no model was scanned on all prompts of a column")
    spoken = [table for members in tables.language.values() for table in members]
    labels = dict(tables.labels) | labels_of(spoken)
    table = pd.concat(pieces, ignore_index=True)
    table["candidates"] = tables.candidates
    words = pd.concat(ends, ignore_index=True) if ends else pd.DataFrame()
    notes += notes_on_states(heads, labels)
    results = [_agreement(table, words, labels, tuple(notes))]
    if ends:
        plot = TokenTable(text="word", value="difference", ends=("highest", "lowest"))
        words["candidates"] = tables.candidates
        results.append(Result("contrast_words", words, plot=plot, method="valence"))
    return results


def _agreement(
    table: pd.DataFrame, ends: pd.DataFrame, labels: Mapping[str, str], notes: tuple[str, ...]
) -> Result:
    """The correlations; the headline is about the first lexicon, language models where there are
    such, and the contrast of prompts where there is one."""
    effect = Effect(
        "spearman",
        "ρ with valence",
        "low",
        "high",
        p="p_corrected",
        null=0.0,
        of="words",
        symbol="spearman",
        band="heads_within",
    )
    table = effect.correct(table)
    lexicon, prompts = table["lexicon"].iloc[0], table["prompt"]
    prompt = prompts.iloc[-1] if " − " in prompts.iloc[-1] else prompts.iloc[0]
    first = table[(table["lexicon"] == lexicon) & (prompts == prompt)]
    spoken = first[first["score"] == LANGUAGE]
    rows = spoken if len(spoken) else first
    row = rows.loc[rows["spearman"].abs().idxmax()]
    rho = f"ρ {signed(row['spearman'])} with {lexicon}'s ratings"
    label, words = labels[row["model"]], ""
    if len(ends):
        same = (ends[["model", "score", "prompt"]] == row[["model", "score", "prompt"]]).all(axis=1)
        outermost = [literal(word) for word in ends.loc[same & (ends["rank"] == 1), "word"]]
        words = " Highest is {}, lowest {}.".format(*outermost) if outermost else ""
    prompt, _, opposite = prompt.partition(" − ")
    on = f"on {quoted(prompt)}" + (f" than on {quoted(opposite)}" if opposite else "")
    headline = f"No model is found to score words {on} by how positive they are; nearest, {label}: "
    headline += f"{rho}{random_head_clause(row)}."
    if row["p_corrected"] <= LEVEL:
        kind = "positive" if row["spearman"] > 0 else "negative"
        how = f"finds {kind} words likelier" if len(spoken) else f"scores {kind} words higher"
        headline = f"{label} {how} {on}: {rho}.{words}"
    # Of a reward model it is expected, and says what the lexicon says; of a language model it is
    # news.
    share = 1 if len(spoken) else 1 / 4
    xlabel = "Spearman's ρ with people's valence"
    plot = Forest.of(effect, group="prompt", tabs=("lexicon",), xlabel=xlabel)
    return Result.of_row(
        row,
        "valence",
        table,
        effect,
        headline,
        share=share,
        plot=plot,
        method="valence",
        notes=notes,
    )


def _models(
    tables: TableSet, options: Options
) -> Iterator[tuple[str, str, pd.DataFrame, pd.DataFrame, Heads | None]]:
    """Kind of score, model, its tokens, its words, and random heads of every reward model and
    language model."""
    for model in filter(tables.columns_of, tables.models):
        heads = heads_of_model(tables, model, options)
        yield REWARD, model, tables.tokens(model), tables.words(model), heads
    by_model: dict[str, dict[str, list[ScoreTable]]] = {}
    for prompt, members in tables.language.items():
        for table in members:
            by_model.setdefault(table.provenance.model, {})[prompt] = [table]
    for model, columns in by_model.items():
        (first,) = next(iter(columns.values()))
        heads = heads_of(columns, options)
        columns = {p: [t] for p, (t,) in columns.items() if len(t.rows) == len(first.rows)}
        tokens = tokens_of(first, columns)
        yield LANGUAGE, model, tokens, word_means(tokens), heads


def _opposite(tables: TableSet, words: pd.DataFrame) -> list[tuple[str, str]]:
    """The opposite pairs of which both prompts are columns: the set's own, else the first of either
    polarity."""
    pairs = [pair for pair in tables.opposite_pairs() if set(pair) <= set(words)]
    if pairs:
        return pairs
    sign = {prompt: tables.reading.polarity_of(prompt) for prompt in words}
    good, bad = ([p for p, s in sign.items() if s == way] for way in (1, -1))
    return [(good[0], bad[0])] if good and bad else []
