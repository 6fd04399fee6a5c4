"""Do models and people mean the same by good? Rank correlation of each model's scores with people's
valence of words.

Of reward models and language models alike, so that the two can be set beside one another: a
language model's score is the log-probability of saying the word. The contrast of opposite prompts,
such as *greatest* less *worst*, takes out what both prompts make likely, which in a language model
is nearly everything: its highest and lowest words are what a model means.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import (
    Heads,
    Needs,
    Options,
    States,
    analysis,
    by_heads,
    difference,
    heads_of,
    heads_of_model,
    of_random_heads,
    whose,
)
from pessimal.analyses.nulls import heads_on_ranks
from pessimal.analyses.ranks import dependence, intervals, p_values, ranked, spearman
from pessimal.errors import TableError
from pessimal.plots import Forest, TokenTable
from pessimal.statistics import LEVEL, holm
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet, labels_of, tokens_of
from pessimal.tables.word_lists import by_word, stem_groups, word_starts
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

    The interval and p (`ranks.fisher_interval`) are for other words of the language: words of one
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

    rated, groups = valence[shared].to_numpy(dtype=float), stem_groups(shared)
    values = scores.loc[shared].to_numpy(dtype=float)
    people = ranked(rated)
    statistics = [spearman(ranked(column), people) for column in values.T]
    dependent = dependence(shared, None)
    rho, low, high = intervals(statistics, dependent, confidence=confidence)
    columns = {"spearman": rho, "low": low, "high": high, "p": p_values(statistics, dependent)}
    table = pd.DataFrame({"prompt": list(scores), "n": len(shared), "stems": int(groups.max()) + 1})
    table = table.assign(**columns)
    table["random_head"] = table["heads_within"] = np.nan
    if heads is not None:
        states = [heads(shared.tolist(), outcome) for outcome in scores]
        untrained = heads_on_ranks(values, rated, groups, states)
        table["random_head"], table["heads_within"] = untrained.share, untrained.within
    return table


def contrast_words(contrast: pd.Series, *, k: int) -> pd.DataFrame:
    """The `k` words (fewer where there are not twice as many) with the highest and with the lowest
    difference: end (top or bottom), rank, word, difference."""
    ordered = contrast.sort_values(ascending=False, kind="stable")
    n = min(k, len(ordered) // 2)
    extremes = {"top": ordered[:n], "bottom": ordered[::-1][:n]}
    return pd.concat(
        (
            pd.DataFrame({"end": end, "word": words.index, "difference": words.to_numpy()})
            for end, words in extremes.items()
        ),
        ignore_index=True,
    ).assign(rank=[*range(1, n + 1)] * 2)[["end", "rank", "word", "difference"]]


@analysis("valence", Needs(models=0, prompts=0, lexicons=True), place=90)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Each model and lexicon, on each prompt and on the contrast of opposite ones; and the words at
    the contrast's ends."""
    pieces, ends, notes, labels = [], [], [], dict(tables.labels)
    heads_by_model: dict[str, Heads | None] = {
        model: heads_of_model(tables, model, options) for model in tables.models
    }
    for model, by_prompt in _language_tables(tables).items():
        heads_by_model[model] = heads_of({name: [t] for name, t in by_prompt.items()}, options)
    for kind, by_model in (
        (
            REWARD,
            {model: tables.tokens(model) for model in tables.models if tables.columns_of(model)},
        ),
        (LANGUAGE, _language_tokens(tables)),
    ):
        for model, tokens in by_model.items():
            words = tables.words(model) if kind == REWARD else by_word(tokens)
            opposite = {difference(a, b): words[a] - words[b] for a, b in _opposite(tables, words)}
            heads = heads_by_model[model]
            scores, is_word = words.assign(**opposite), words.index.isin(word_starts(tokens.index))
            for prompt, contrast in opposite.items():
                found = contrast_words(contrast[is_word], k=options.top)
                ends.append(found.assign(model=model, score=kind, prompt=prompt))
            for lexicon, valence in options.lexicons.items():
                try:
                    found = valence_agreement(
                        scores, valence, heads=heads, confidence=options.confidence
                    )
                except TableError as error:
                    notes.append(f"{model} with {lexicon}: {error}")
                    continue
                states = heads.of if heads else ""
                pieces.append(found.assign(model=model, score=kind, lexicon=lexicon, states=states))
    if not pieces:
        raise TableError(
            "; ".join(dict.fromkeys(notes)) or "no model was scanned on all prompts of a column"
        )
    labels |= labels_of([table for members in tables.language.values() for table in members])
    table = pd.concat(ends, ignore_index=True) if ends else pd.DataFrame()
    agreement = _agreement(pd.concat(pieces, ignore_index=True), table, labels, tables.candidates)
    notes += whose(heads_by_model, labels)
    results = [replace(agreement, notes=tuple(dict.fromkeys(notes)))]
    if ends:
        columns = ["model", "score", "prompt", "end", "rank", "word", "difference", "candidates"]
        table["candidates"] = tables.candidates
        drawn = TokenTable(text="word", value="difference", ends=("highest", "lowest"))
        results.append(Result("contrast_words", table[columns], plot=drawn, method="valence"))
    return results


def _agreement(
    table: pd.DataFrame, ends: pd.DataFrame, labels: Mapping[str, str], candidates: str
) -> Result:
    """The Result, of rows as `analyse` collects them and the words at the ends of contrasts."""
    table["p_holm"] = holm(table["p"])
    table["random_head_holm"] = holm(table["random_head"])
    table["candidates"] = candidates
    sizes, numbers = ["n", "stems"], ["spearman", "low", "high", "p", "p_holm"]
    numbers += ["random_head", "random_head_holm", "heads_within", "states"]
    columns = ["model", "score", "lexicon", "prompt", *sizes, *numbers, "candidates"]
    lexicon = table["lexicon"].iloc[0]
    prompt = (
        table["prompt"].iloc[-1] if " − " in table["prompt"].iloc[-1] else table["prompt"].iloc[0]
    )
    first = table[(table["lexicon"] == lexicon) & (table["prompt"] == prompt)]
    spoken = first[first["score"] == LANGUAGE]
    shown = spoken if len(spoken) else first
    row = shown.loc[shown["spearman"].abs().idxmax()]
    tested, band = by_heads(table)
    rho = f"ρ {signed(row['spearman'])}{of_random_heads(row)}"
    words, of_row = "", ends
    for column in ("model", "score", "prompt"):
        of_row = of_row[of_row[column] == row[column]] if len(of_row) else of_row
    if len(of_row):
        best, worst = (literal(word) for word in of_row.loc[of_row["rank"] == 1, "word"])
        words = f" puts {best} highest, {worst} lowest, and"
    effect = Effect(
        "spearman",
        "ρ with valence",
        "low",
        "high",
        p=tested,
        null=0.0,
        of="words",
        symbol="spearman",
        band=band,
    )
    # Of a reward model it is expected, and says what the lexicon says; of a language model it is
    # news.
    return Result.of_row(
        row,
        "valence",
        table[columns],
        effect,
        f"On {prompt}, {labels[row['model']]}{words} follows {lexicon} valence: {rho}."
        if row[tested] <= LEVEL
        else f"On {prompt}, no model is found to follow {lexicon} valence by itself; nearest, "
        f"{labels[row['model']]}: {rho}.",
        share=1 if len(spoken) else 1 / 4,
        plot=Forest.of(
            effect,
            group="prompt",
            tabs=("lexicon",),
            xlabel="Spearman's ρ with people's valence",
        ),
        method="valence",
    )


def _language_tables(tables: TableSet) -> dict[str, dict[str, ScoreTable]]:
    """Tables of language models, by model and prompt."""
    by_model: dict[str, dict[str, ScoreTable]] = {}
    for prompt, members in tables.language.items():
        for table in members:
            by_model.setdefault(table.provenance.model, {})[prompt] = table
    return by_model


def _language_tokens(tables: TableSet) -> dict[str, pd.DataFrame]:
    """Log-probabilities of tokens that can be words, by language model: texts × prompts."""
    tokens = {}
    for model, by_prompt in _language_tables(tables).items():
        first = next(iter(by_prompt.values()))
        of_same = {p: [t] for p, t in by_prompt.items() if len(t.rows) == len(first.rows)}
        tokens[model] = tokens_of(first, of_same)
    return tokens


def _opposite(tables: TableSet, words: pd.DataFrame) -> list[tuple[str, str]]:
    """The opposite pairs of which both prompts are columns: the set's own, else the first of either
    polarity."""
    pairs = [pair for pair in tables.opposite_pairs() if set(pair) <= set(words)]
    if pairs:
        return pairs
    sign = {prompt: tables.reading.polarity_of(prompt) for prompt in words}
    good, bad = ([p for p, s in sign.items() if s == way] for way in (1, -1))
    return [(good[0], bad[0])] if good and bad else []
