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
from scipy.stats import rankdata

from pessimal.analyses.analysis import Meanings, Needs, Options, analysis
from pessimal.analyses.regression import interval, robust
from pessimal.errors import TableError
from pessimal.plots import Forest, TokenTable
from pessimal.statistics import holm
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet, labels_of
from pessimal.tables.words import by_word, stem_groups, word_starts
from pessimal.texts import literal, signed

LEAST_WORDS = 50
"""Rated words that a correlation needs."""
REWARD, LANGUAGE = "reward", "log-probability"


def valence_agreement(
    scores: pd.DataFrame,
    valence: pd.Series,
    *,
    meanings: Meanings | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Spearman's ρ of each column of scores with valence, over the words that have both.

    It is the slope of ranks on ranks, so its errors are those of the other analyses of words: they
    allow for words of one stem, and for a taste for any direction of meaning (`regression.robust`).

    Args:
        scores: words × columns, index = word.
        valence: by word, above 0 is good.

    Returns:
        A row per column: prompt (its name), n (words), stems, spearman, low, high, p.

    Raises:
        TableError: fewer than LEAST_WORDS words have both.
    """
    shared = scores.index.intersection(valence.index)
    if len(shared) < LEAST_WORDS:
        raise TableError(
            f"{len(shared)} words are rated; {LEAST_WORDS} are needed. Give a lexicon that rates "
            "more of them"
        )

    def standard(values: np.ndarray) -> np.ndarray:
        ranks = rankdata(values, axis=0)
        return (ranks - ranks.mean(axis=0)) / ranks.std(axis=0)

    rated = standard(valence[shared].to_numpy(dtype=float))
    groups = stem_groups(shared)
    fit = robust(
        np.column_stack([np.ones(len(shared)), rated]),
        standard(scores.loc[shared].to_numpy(dtype=float)),
        groups,
        meanings(shared.tolist()) if meanings else None,
    )
    low, high, p = interval(fit.coefficients[1], fit.errors[1], fit.freedom, confidence=confidence)
    sizes = {"n": len(shared), "stems": len(np.unique(groups))}
    columns = {
        "spearman": fit.coefficients[1],
        "low": np.clip(low, -1, 1),
        "high": np.clip(high, -1, 1),
        "p": p,
    }
    return pd.DataFrame({"prompt": list(scores), **sizes, **columns})


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
    for kind, by_model in (
        (
            REWARD,
            {model: tables.tokens(model) for model in tables.models if tables.columns_of(model)},
        ),
        (LANGUAGE, _language_tokens(tables)),
    ):
        for model, tokens in by_model.items():
            words = tables.words(model) if kind == REWARD else by_word(tokens)
            opposite = {f"{a} − {b}": words[a] - words[b] for a, b in _opposite(tables, words)}
            scores, is_word = words.assign(**opposite), words.index.isin(word_starts(tokens.index))
            for prompt, contrast in opposite.items():
                found = contrast_words(contrast[is_word], k=options.top)
                ends.append(found.assign(model=model, score=kind, prompt=prompt))
            for lexicon, valence in options.lexicons.items():
                try:
                    found = valence_agreement(
                        scores, valence, meanings=options.meanings, confidence=options.confidence
                    )
                except TableError as error:
                    notes.append(f"{model} with {lexicon}: {error}")
                    continue
                pieces.append(found.assign(model=model, score=kind, lexicon=lexicon))
    if not pieces:
        raise TableError(
            "; ".join(dict.fromkeys(notes)) or "no model was scanned on all prompts of a column"
        )
    labels |= labels_of([table for members in tables.language.values() for table in members])
    table = pd.concat(ends, ignore_index=True) if ends else pd.DataFrame()
    agreement = _agreement(pd.concat(pieces, ignore_index=True), table, labels, tables.candidates)
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
    table["candidates"] = candidates
    sizes, numbers = ["n", "stems"], ["spearman", "low", "high", "p", "p_holm"]
    columns = ["model", "score", "lexicon", "prompt", *sizes, *numbers, "candidates"]
    lexicon = table["lexicon"].iloc[0]
    prompt = (
        table["prompt"].iloc[-1] if " − " in table["prompt"].iloc[-1] else table["prompt"].iloc[0]
    )
    first = table[(table["lexicon"] == lexicon) & (table["prompt"] == prompt)]
    spoken = first[first["score"] == LANGUAGE]
    shown = spoken if len(spoken) else first
    row = shown.loc[shown["spearman"].abs().idxmax()]
    others = first[first["score"] == REWARD]
    beside = ""
    if len(spoken) and len(others):
        beside = (
            f"; rewards: {signed(others['spearman'].min())} to {signed(others['spearman'].max())}"
        )
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
        p="p_holm",
        null=0.0,
        of="words",
        symbol="spearman",
    )
    # Of a reward model it is expected, and says what the lexicon says; of a language model it is
    # news.
    return Result.of_row(
        row,
        "valence",
        table[columns],
        effect,
        f"On {prompt}, {labels[row['model']]}{words} follows {lexicon} valence: ρ = "
        f"{signed(row['spearman'])}{beside}.",
        share=1 if len(spoken) else 1 / 4,
        plot=Forest.of(
            effect,
            p=None,
            group="prompt",
            tabs=("lexicon",),
            xlabel="Spearman's ρ with people's valence",
        ),
        method="valence",
    )


def _language_tokens(tables: TableSet) -> dict[str, pd.DataFrame]:
    """Log-probabilities of tokens that can be words, by language model: texts × prompts."""
    by_model: dict[str, dict[str, ScoreTable]] = {}
    for prompt, members in tables.language.items():
        for table in members:
            by_model.setdefault(table.provenance.model, {})[prompt] = table
    tokens = {}
    for model, by_prompt in by_model.items():
        rows = next(iter(by_prompt.values())).rows
        of_words = rows["kind"].isin(("normal", "item")).to_numpy()
        scores = {
            prompt: table.rows["reward"].to_numpy(dtype=float)[of_words]
            for prompt, table in by_prompt.items()
            if len(table.rows) == len(rows)
        }
        tokens[model] = pd.DataFrame(scores, index=pd.Index(rows["text"][of_words], name="text"))
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
