"""What rewards have to do with how often a word is used."""

import pandas as pd

from pessimal.analysis.frequency import LEAST_WORDS, LEAST_ZIPF, frequency_slopes, published_frequency_slopes
from pessimal.analysis.regression import holm
from pessimal.analysis.words import as_published, half_sum
from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.figures.frequency import slope_forest
from pessimal.report.contents import Contents, Entry
from pessimal.tasks.findings.model_words import (
    Asked,
    LeftOut,
    Read,
    keys_first,
    prefix,
    tell_left_out,
    with_labels,
)
from pessimal.tasks.findings.sources import Sources


def frequency_of(read: Read, config: CompareConfig, contents: Contents, sources: Sources) -> None:
    """A section on slopes of reward on word frequency, in opposite frames and in each."""
    candidates, asked, models, left_out = read
    left_out = list(left_out)
    lexicon = next(iter(sources.lexicons), None)
    section = contents.section(
        f"Word frequency · {candidates}", _about_frequency(config, asked, lexicon, sources)
    )
    valence = sources.lexicons[lexicon] if lexicon else pd.Series(dtype=float)
    zipf = sources.frequencies.zipf(sorted(set().union(*(m.words.index for m in models))))
    known = set().union(*(other.index for other in sources.lexicons.values()))
    pieces = []
    for m in models:
        try:
            if config.paper:
                found = published_frequency_slopes(
                    as_published(m.tokens), _per_million(zipf, sources), valence, confidence=config.confidence
                )
            else:
                unrated = [word for word in m.starts if word not in known]
                found = frequency_slopes(
                    m.words, zipf, valence, pairs=m.pairs, unrated=pd.Index(unrated, dtype=object),
                    confidence=config.confidence,
                )  # fmt: skip
        except TableError as error:
            left_out.append(LeftOut(m.label, "", str(error)))
            continue
        left_out += [
            LeftOut(m.label, f"on {name} words", f"fewer than {LEAST_WORDS}") for name in ("rated", "unrated")
            if name not in set(found["words"]) and not config.paper
        ]  # fmt: skip
        pieces.append(found.assign(model=m.model))
    if pieces:
        unit = "unit of ln per million" if config.paper else "Zipf unit"
        table = keys_first(pd.concat(pieces, ignore_index=True)).assign(unit=unit)
        # Corrected within what is asked once: one set of words, under one prompt or pair.
        table["p_holm"] = table.groupby(["words", "prompt"], sort=False)["p"].transform(holm)
        contents.add_table("frequency", table, candidates=candidates)
        shown = with_labels(table, {m.model: m.label for m in models})
        stem = f"{prefix(candidates)}frequency"
        contents.figures[stem] = slope_forest(shown, unit=unit, paper=config.paper)
        section.entries.append(
            Entry(
                "Do frequent words earn more?",
                _told_frequency(shown, config),
                figure=stem,
                table="frequency",
                where={"candidates": candidates},
            )
        )
        for row in table[table["frames"] == "opposite"].itertuples():
            contents.summary[f"{prefix(candidates)}frequency/{row.words}/{row.model}"] = float(row.slope)
    tell_left_out(section.entries, left_out)


def _per_million(zipf: pd.Series, sources: Sources) -> pd.Series:
    """Uses per million words; a list's own rows where it has several a word."""
    if sources.frequencies.rows is not None:
        return sources.frequencies.rows.set_index("word")["per_million"]
    return 10 ** (zipf.dropna() - 3)


def _about_frequency(config: CompareConfig, asked: Asked, lexicon: str | None, sources: Sources) -> str:
    source = (
        f"controlled for the valence of {lexicon}"
        if lexicon
        else "no lexicon was given to control for valence"
    )
    if config.paper:
        return (
            f"Reward on the logarithm of word frequency, {source}, as published: one prompt at a time, tokens joined by "
            "their text in lower case, rows multiplied where the list has a word several times, textbook errors. A slope "
            "from one frame is biased, since good words are used more than bad ones; without paper=true opposite frames "
            f"are averaged. Frequencies: {sources.frequencies.source}."
        )
    averaged = (
        f"opposite frames are averaged ({half_sum(*asked.pair)}), in which valence cancels"
        if asked.pair
        else "opposite frames should be averaged, but these prompts have none (+frames.PROMPT=1 or -1 says which a prompt is)"
    )
    return (
        "Reward per tenfold use of a word (one Zipf unit). A slope from one frame is biased, since good words are used "
        f"more than bad ones and no lexicon rates them all: {averaged}; single frames are shown beside it. Two sets of "
        f"words: those of the lexicon ({source}), and words in no lexicon with at least {10 ** (LEAST_ZIPF - 3):.0f} uses "
        "per million, which strings that are no words hardly reach. Errors allow for unequal variance and take words of "
        "one stem for dependent; words alike in meaning still count as independent, so intervals are rather too narrow, "
        f"and say nothing about another training run. Frequencies: {sources.frequencies.source}."
    )


def _told_frequency(shown: pd.DataFrame, config: CompareConfig) -> str:
    frames = "opposite" if (shown["frames"] == "opposite").any() else "one"
    told = []
    for (words, prompt), part in shown[shown["frames"] == frames].groupby(["words", "prompt"], sort=False):
        sure = part[part["p_holm"] < 1 - config.confidence]
        named = sure.loc[sure["slope_sd"].abs().sort_values(ascending=False).index[:6]]
        listed = ", ".join(f"{r.model} {_interval(r)}" for r in named.itertuples())
        more = f"; largest beside their own spread: {listed}" if listed else ""
        told.append(
            f"{prompt}, {words} words: {len(sure)} of {len(part)} model{'' if len(part) == 1 else 's'} "
            f"{'differs' if len(part) == 1 else 'differ'} from 0{more}"
        )
    biased = (
        "" if frames == "opposite" else " Of one frame, so biased by whatever valence is not controlled for."
    )
    return (
        f"Reward per {shown['unit'].iloc[0]}, at level {1 - config.confidence:.2g} with Holm's correction over models. "
        f"{'. '.join(told)}.{biased} Over thousands of words a slope too small to matter differs from 0: read its size. An association, not a cause: whatever goes with frequency, such as length, age or concreteness, "
        "is in it."
    )


def _interval(row: tuple) -> str:
    return f"{row.slope:+.2f} [{row.low:+.2f}, {row.high:+.2f}]".replace("-", "−")
