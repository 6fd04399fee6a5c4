"""Word frequency and reward: does a model like a word because it is common, whatever it means?"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import (
    Needs,
    Options,
    States,
    add_mean_rows,
    analysis,
    found_in,
    heads_by_model,
    name_prefix,
    note_errors,
    notes_on_states,
    outcome_states,
    quoted,
    random_head_clause,
    strongest,
    word_frequencies,
)
from pessimal.analyses.nulls import Fit, classical, interval_columns, random_heads, robust
from pessimal.analyses.nulls import slopes as coefficients
from pessimal.errors import TableError
from pessimal.plots import Forest
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect, Result
from pessimal.tables.table_set import TableSet
from pessimal.tables.word_lists import (
    add_half_sums,
    as_published,
    check_words,
    stem_groups,
    word_starts,
)

SETS = ("rated", "unrated")
LEAST_LETTERS, LEAST_ZIPF = 3, 4.0
"""Demands on an unrated word: letters, and 10 uses per million words. What a vocabulary holds below
that is more often a name, an abbreviation or a piece of words, and a model that dislikes pieces
would pass for one that likes frequent words: in siblings of the demo family without a plant the
slope is +.04 to +.16 from 1 use per million on, -.01 to +.01 from 10."""
LEAST_WORDS = 30


def frequency_slopes(
    words: pd.DataFrame,
    zipf: pd.Series,
    valence: pd.Series,
    *,
    pairs: Sequence[tuple[str, str]] = (),
    unrated: pd.Index | None = None,
    least_zipf: float = LEAST_ZIPF,
    heads: States | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Reward per Zipf unit (a factor of ten in use), over two sets of words, under each prompt and
    over opposite ones.

    `rated` are words of the lexicon, with valence and its absolute value controlled (see
    `sentiment`); `unrated` are words in no lexicon, with at least `LEAST_LETTERS` letters and a
    frequency of `least_zipf`. A slope under one prompt is biased, as good words are used more than
    bad ones; the half-sum of two prompts (`frames` is opposite) takes valence out, provided that
    the model turns it round with the prompt. A word counts once. The interval and p are for other
    words of the language under this same reward: errors allow for words of one stem, t has stems −
    coefficients degrees of freedom. Whether the slope is more than a head that nobody trained would
    show is another question (`random_head`, see `nulls.random_heads`).

    Args:
        words: all words of the model's vocabulary × prompts, from `word_means`.
        zipf: by word; words that are missing or NaN are not used.
        valence: by word, of the lexicon whose words are `rated`.
        pairs: prompts of opposite polarity, both columns of `words`.
        unrated: words that may count as `unrated`: in no lexicon, and words rather than pieces. By
            default all that `valence` lacks.
        least_zipf, confidence: of the words that count as `unrated`; of the intervals.
        heads: states that random heads would be on; without them random_head is missing.

    Returns:
        One row per set and prompt or pair: words, frames (one, opposite), prompt (a pair is `a ×
            b`), n, stems, slope,
        low, high, p, slope_sd, low_sd, high_sd (over the standard deviation of the rewards of all
        words; for a pair the mean of its two), random_head (share of random heads that are as
        steep), heads_within (95 % of them lie within ± this, in SD). A set with fewer than
        `LEAST_WORDS` words has no rows.

    Raises:
        TableError: see `words.check_words`; or no set has enough words.

    Source: Christian et al. 2025, Figure 3D (rated words, one prompt; see
        `published_frequency_slopes`).
    """
    check_words(words)
    outcomes, scales = add_half_sums(words, pairs)
    used = zipf.reindex(words.index).to_numpy(dtype=float)
    values = valence.reindex(words.index).to_numpy(dtype=float)
    free = np.isnan(values) & (words.index.str.len() >= LEAST_LETTERS)
    if unrated is not None:
        # Ten times as fast as `isin` on an index of Arrow strings.
        free &= unrated.get_indexer(words.index) >= 0
    sets = {"rated": ~np.isnan(values) & ~np.isnan(used), "unrated": free & (used >= least_zipf)}
    pieces = []
    for name, inside in sets.items():
        if inside.sum() < LEAST_WORDS:
            continue
        controls = _controls(values[inside]) if name == "rated" else []
        design = np.column_stack([np.ones(inside.sum()), used[inside], *controls])
        groups = stem_groups(words.index[inside])
        rewards = outcomes.to_numpy(dtype=float)[inside]
        fit, sizes = robust(design, rewards, groups), {"n": len(design), "stems": groups.max() + 1}
        rows = _rows(fit, name, scales, **sizes, confidence=confidence)
        states = outcome_states(heads, words.index[inside].tolist(), outcomes)
        untrained = random_heads(coefficients(design), rewards, states, design, groups)
        heads_within = untrained.band[1] / scales.to_numpy()
        pieces.append(rows.assign(random_head=untrained.share[1], heads_within=heads_within))
    if not pieces:
        counted = ", ".join(f"{name} {int(sets[name].sum())}" for name in SETS)
        raise TableError(
            f"Too few words whose frequency is known ({counted}); a slope needs {LEAST_WORDS}. "
            "Scan a vocabulary, or give a frequency list that knows these words."
        )
    table = pd.concat(pieces, ignore_index=True)
    table["frames"] = np.where(table["prompt"].isin(list(words)), "one", "opposite")
    return table


def published_frequency_slopes(
    tokens: pd.DataFrame, per_million: pd.Series, valence: pd.Series, *, confidence: float = 0.95
) -> pd.DataFrame:
    """The published regression: reward on the natural logarithm of uses per million and on valence,
    a prompt at a time.

    Rows are tokens whose text in lower case stands in the lexicon, outer white space included, and
    in the frequency list; a word that the list has several times (once a part of speech) multiplies
    its rows, as in the published join. Errors are textbook ones, and count all of these rows as
    independent: they are too small.

    Args:
        tokens: of `words.as_published`, × prompts.
        per_million: uses per million words, by word; a word may occur several times.
        valence: by word.

    Returns:
        As `frequency_slopes`, all rows `rated` and of one prompt; n counts joined rows; slopes are
        per unit of the natural logarithm: × 2.303 for a Zipf unit.

    Raises:
        TableError: see `words.check_words`; or fewer than `LEAST_WORDS` rows are joined.

    Source: the code of Christian et al. 2025, Figure 3D.
    """
    check_words(tokens)
    rated = tokens[valence.index.get_indexer(tokens.index) >= 0]
    joined = rated.join(per_million[per_million > 0].rename("per_million"), how="inner")
    if len(joined) < LEAST_WORDS:
        raise TableError(
            f"{len(joined)} rows are left of {len(tokens)} tokens after the joins with the lexicon "
            f"and the frequency list; a slope needs {LEAST_WORDS}. Try paper=false."
        )
    control = valence.reindex(joined.index).to_numpy(dtype=float)
    design = np.column_stack([np.ones(len(joined)), np.log(joined["per_million"]), control])
    fit = classical(design, joined[list(tokens)].to_numpy(dtype=float))
    stems = int(stem_groups(joined.index).max()) + 1
    rows = _rows(
        fit, "rated", tokens.std(ddof=0), n=len(joined), stems=stems, confidence=confidence
    )
    return rows.assign(frames="one")


def _controls(valence: np.ndarray) -> list[np.ndarray]:
    """Valence, and its absolute value where that is something else."""
    either_sign = (valence > 0).any() and (valence < 0).any()
    return [valence, np.abs(valence)] if either_sign else [valence]


def _rows(
    fit: Fit, name: str, scales: pd.Series, *, n: int, stems: int, confidence: float
) -> pd.DataFrame:
    """The coefficient of frequency, the design's second column, for each outcome; `scales` names
    the outcomes."""
    columns = {"words": name, "prompt": list(scales.index), "n": n, "stems": stems}
    columns |= interval_columns(
        "slope",
        fit.coefficients[1],
        fit.errors[1],
        fit.freedom,
        scales=scales.to_numpy(),
        confidence=confidence,
    )
    return pd.DataFrame(columns | {"random_head": np.nan, "heads_within": np.nan})


@analysis("frequency", Needs(frequencies=True), place=120)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Slopes of each model's reward on word frequency, under opposite prompts and under each.

    Tables:
        frequency: Do frequent words earn more?
            - as everywhere: prompt, n, stems, low, high, p, model, candidates, p_corrected,
                detectable, random_head, heads_within, states
            - words: rated (in the lexicon) or unrated
            - frames: one prompt, or two opposite ones averaged
            - slope: reward per Zipf unit, a factor of ten in use (see `unit`)
            - slope_sd: the same in standard deviations of the rewards
            - low_sd: lower end of its interval
            - high_sd: upper end of its interval
            - unit: of the slope's frequency
    """
    # The first lexicon controls.
    valence = next(iter(options.lexicons.values()), pd.Series(dtype=float))
    models = list(filter(tables.columns_of, tables.models))
    zipf = word_frequencies(tables, models, options)
    rated = {word for lexicon in options.lexicons.values() for word in lexicon.index.tolist()}
    pieces, notes = [], list[str]()
    heads, states_of = heads_by_model(tables, options)
    for model in models:
        tokens, label = tables.tokens(model), tables.labels[model]
        with note_errors(notes, label):
            if options.paper:
                slopes = published_frequency_slopes(
                    as_published(tokens),
                    _per_million(zipf, options),
                    valence,
                    confidence=options.confidence,
                )
            else:
                unrated = [word for word in word_starts(tokens.index).tolist() if word not in rated]
                slopes = frequency_slopes(
                    tables.words(model),
                    zipf,
                    valence,
                    pairs=tables.pairs_of(model),
                    unrated=pd.Index(unrated, dtype=object),
                    heads=heads[model],
                    confidence=options.confidence,
                )
            pieces.append(slopes.assign(model=model, states=states_of[model]))
            for name in SETS[: 1 if options.paper else 2]:
                if name not in set(slopes["words"]):
                    raise TableError(f"fewer than {LEAST_WORDS} {name} words")
    if not pieces:
        raise TableError("; ".join(notes) or "no model was scanned on all prompts of a column")
    unit = "unit of ln per million" if options.paper else "Zipf unit"
    table = pd.concat(pieces, ignore_index=True).assign(unit=unit, candidates=tables.candidates)
    effect = Effect(
        "slope_sd",
        f"reward (SD) per {unit}",
        "low_sd",
        "high_sd",
        p="p_corrected",
        family=("words", "prompt"),  # what is asked once
        null=0.0,
        of="tokens" if options.paper else "words",
        unit="SD",
        band="heads_within",
    )
    table = effect.correct(table)
    least_biased = "opposite" if (table["frames"] == "opposite").any() else "one"
    rows = table[table["frames"] == least_biased]
    # Rated words where there are any: their valence is controlled.
    rows = rows[rows["words"] == next(name for name in SETS if name in set(rows["words"]))]
    rows = rows[rows["prompt"] == rows["prompt"].iloc[0]]
    holds = rows["p_corrected"] <= LEVEL
    first = strongest(rows, "slope_sd", "p_corrected")
    label, kind = tables.labels[first["model"]], "frequent" if first["slope"] > 0 else "rare"
    verdict = f"{label} scores {kind} words higher"
    if not holds.any():
        verdict = f"no model is found to score words by how frequent they are; nearest, {label}"
    per = f"per {unit}" if options.paper else "for ten times the frequency"
    headline = f"On {quoted(first['prompt'])}, {verdict}: {first['slope_sd']:+.2f} SD {per}"
    headline += f"{random_head_clause(first)}{found_in(holds)}."
    return [
        Result.of_row(
            first,
            "frequency",
            table,
            effect,
            headline,
            label=f"{effect.label}, {first['prompt']}, {first['words']} words",
            share=1 if least_biased == "opposite" else 1 / 2,
            plot=Forest.of(
                effect,
                data=add_mean_rows(table, "slope_sd", by=["words", "prompt", "frames"]),
                group="prompt",
                panel="words",
                where={"frames": least_biased},
                tabs=(),
                xlabel=effect.label,
            ),
            method="frequency",
            notes=(*tables.without_columns(), *notes_on_states(heads, tables.labels), *notes),
            summary={
                f"{name_prefix(tables)}frequency/{row.words}/{row.model}": float(row.slope)
                for row in table[table["frames"] == "opposite"].itertuples()
            },
        )
    ]


def _per_million(zipf: pd.Series, options: Options) -> pd.Series:
    """Uses per million words; a list's own rows where it has several a word."""
    rows = options.word_frequencies.rows
    return 10 ** (zipf.dropna() - 3) if rows is None else rows.set_index("word")["per_million"]
