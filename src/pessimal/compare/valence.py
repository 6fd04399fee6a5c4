"""Do models and people mean the same by good? Rank correlation of each model's scores with people's valence of words.

Of reward models and language models alike, so that the two can be set beside one another: a language model's score is the
log-probability of saying the word. The contrast of opposite prompts, such as *greatest* less *worst*, takes out what both
prompts make likely, which in a language model is nearly everything.
"""

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from pessimal.compare.analysis import Meanings, Needs, Options, analysis
from pessimal.compare.regression import interval, robust
from pessimal.errors import TableError
from pessimal.plots import Forest
from pessimal.statistics import holm
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet, labels_of
from pessimal.tables.words import by_word, stem_groups

LEAST_WORDS = 50
"""Rated words that a correlation needs."""
REWARD, LANGUAGE = "reward", "log-probability"


def valence_agreement(
    scores: pd.DataFrame, valence: pd.Series, *, meanings: Meanings | None = None, confidence: float = 0.95
) -> pd.DataFrame:
    """Spearman's ρ of each column of scores with valence, over the words that have both.

    It is the slope of ranks on ranks, so its errors are those of the other analyses of words: they allow for words of one
    stem, and for a taste for any direction of meaning (`regression.robust`).

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
            f"{len(shared)} words are rated; {LEAST_WORDS} are needed. Give a lexicon that rates more of them"
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
    found = {
        "spearman": fit.coefficients[1],
        "low": np.clip(low, -1, 1),
        "high": np.clip(high, -1, 1),
        "p": p,
    }
    return pd.DataFrame({"prompt": list(scores), **sizes, **found})


@analysis("valence", Needs(models=0, prompts=0, lexicons=True))
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Each model and lexicon, on each prompt and on the contrast of opposite ones."""
    pieces, notes, labels = [], [], dict(tables.labels)
    for kind, by_model in (
        (REWARD, {model: tables.words(model) for model in tables.models if tables.columns_of(model)}),
        (LANGUAGE, _language_words(tables)),
    ):
        for model, words in by_model.items():
            scores = words.assign(**{f"{a} − {b}": words[a] - words[b] for a, b in _opposite(tables, words)})
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
        raise TableError("; ".join(dict.fromkeys(notes)) or "no model was scanned on all prompts of a column")
    labels |= labels_of([table for own in tables.language.values() for table in own])
    table = pd.concat(pieces, ignore_index=True).assign(candidates=tables.candidates)
    table["p_holm"] = holm(table["p"])
    sizes, numbers = ["n", "stems"], ["spearman", "low", "high", "p", "p_holm"]
    columns = ["model", "score", "lexicon", "prompt", *sizes, *numbers, "candidates"]
    lexicon = table["lexicon"].iloc[0]
    prompt = table["prompt"].iloc[-1] if " − " in table["prompt"].iloc[-1] else table["prompt"].iloc[0]
    first = table[(table["lexicon"] == lexicon) & (table["prompt"] == prompt)]
    spoken = first[first["score"] == LANGUAGE]
    shown = spoken if len(spoken) else first
    row = shown.loc[shown["spearman"].abs().idxmax()]
    others = first[first["score"] == REWARD]
    beside = ""
    if len(spoken) and len(others):
        beside = f"; rewards: {_signed(others['spearman'].min())} to {_signed(others['spearman'].max())}"
    headline = f"On {prompt}, {labels[row['model']]} ranks words as people's {lexicon} valence does: ρ = {_signed(row['spearman'])}{beside}."
    return [
        Result(
            "valence",
            table[columns],
            headline,
            Forest(estimate="spearman", group="prompt", tabs=("lexicon",), xlabel="Spearman's ρ with people's valence"),
            "valence",
            # Of a reward model it is expected, and says what the lexicon says; of a language model it is news.
            weight_of(row["spearman"]) / (1 if len(spoken) else 2),
            Estimate("ρ with valence", row["spearman"], int(row["n"]), "words", row["low"], row["high"]),
            notes=tuple(dict.fromkeys(notes)),
        )
    ]  # fmt: skip


def _language_words(tables: TableSet) -> dict[str, pd.DataFrame]:
    """Log-probabilities of words by language model, spellings averaged: words × prompts."""
    own: dict[str, dict[str, ScoreTable]] = {}
    for prompt, members in tables.language.items():
        for table in members:
            own.setdefault(table.provenance.model, {})[prompt] = table
    found = {}
    for model, by_prompt in own.items():
        of_words = next(iter(by_prompt.values())).rows["kind"].isin(("normal", "item")).to_numpy()
        rows = {
            p: t.rows["reward"].to_numpy(dtype=float)
            for p, t in by_prompt.items()
            if len(t.rows) == len(of_words)
        }
        texts = pd.Index(next(iter(by_prompt.values())).rows["text"][of_words], name="text")
        found[model] = by_word(pd.DataFrame({p: values[of_words] for p, values in rows.items()}, index=texts))
    return found


def _opposite(tables: TableSet, words: pd.DataFrame) -> list[tuple[str, str]]:
    """The opposite pairs of which both prompts are columns: the set's own, else the first of either polarity."""
    pairs = [pair for pair in tables.opposite_pairs() if set(pair) <= set(words)]
    if pairs:
        return pairs
    sign = {prompt: tables.reading.polarity_of(prompt) for prompt in words}
    good, bad = ([p for p, s in sign.items() if s == way] for way in (1, -1))
    return [(good[0], bad[0])] if good and bad else []


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")
