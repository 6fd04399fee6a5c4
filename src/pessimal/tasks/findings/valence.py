"""What rewards have to do with how good a word is to people. How often it is used: see `word_frequency`."""

from collections.abc import Mapping, Sequence

import pandas as pd

from pessimal.analysis.regression import holm
from pessimal.analysis.sentiment import asymmetry_across_models, sentiment
from pessimal.analysis.words import as_published, by_word
from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.figures.sentiment import asymmetry_forest, curves, slope_forest
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tasks.findings.group import Group
from pessimal.tasks.findings.lexicon_groups import lexicon_groups_of
from pessimal.tasks.findings.model_words import (
    Asked,
    LeftOut,
    ModelWords,
    asked_in,
    keys_first,
    models_in,
    prefix,
    tell_left_out,
    with_labels,
)
from pessimal.tasks.findings.sources import Sources
from pessimal.tracking.registry import safe_name

OPPOSITE = (
    " Half the difference between two opposite frames (×) is not: it is 0 for a model that turns its rewards round with "
    "the frame, and above 0 where each frame is steeper on the words that it asks for."
)


def sentiment_of(
    members: Mapping[str, Group], config: CompareConfig, contents: Contents, sources: Sources
) -> None:
    """A section on slopes by valence: for each lexicon a curve, the slopes, their asymmetry, and the two groups of words.

    A lexicon with one valence on each side of zero (Bing) has no slopes, which the page says, and the two groups only.
    """
    candidates = next(iter(members.values())).candidates
    how = (
        "As published: every token whose text in lower case stands in the lexicon is a row, a zero counts as negative, "
        "errors are textbook ones and take the spellings of a word for independent."
        if config.paper
        else "One row a word: the spellings of a model's own vocabulary (‘ love’, ‘Love’) are averaged. Errors allow for "
        "unequal variance and take words of one stem for dependent."
    )
    section = contents.section(
        f"Sentiment · {candidates}",
        "How rewards follow the valence that people give a word: a least-squares line for words rated above zero and one "
        f"for words below. {how} A steeper side may be the lexicon's doing, which opposite frames take out. These are "
        "associations over the words that a lexicon happens to hold.",
    )
    if not sources.lexicons:
        section.entries.append(
            Entry("No lexicon", "No lexicon was given; type for example lexicons={AFINN: afinn}")
        )
        return
    asked = asked_in(members, config)
    models, left_out = models_in(members, asked, config)
    words = {m.model: as_published(m.tokens) if config.paper else by_word(m.tokens) for m in models}
    tables = _tables(models, words, asked, config, sources, left_out)
    for name, table in tables.items():
        contents.add_table(name, table, candidates=candidates)
    labels = {m.model: m.label for m in models}
    sloped = set(tables["sentiment"]["lexicon"]) if tables else set()
    for lexicon, valence in sources.lexicons.items():
        if lexicon in sloped:
            own = {
                name: with_labels(table[table["lexicon"] == lexicon], labels)
                for name, table in tables.items()
            }
            _on_one_lexicon(lexicon, own, asked, config, contents, section, candidates=candidates)
        left_out += lexicon_groups_of(
            lexicon, valence, models, words, config, contents, section, candidates=candidates
        )
    tell_left_out(section.entries, left_out)


def _tables(
    models: Sequence[ModelWords],
    words: Mapping[str, pd.DataFrame],
    asked: Asked,
    config: CompareConfig,
    sources: Sources,
    left_out: list[LeftOut],
) -> dict[str, pd.DataFrame]:
    """Slopes, asymmetry, curve and the asymmetry over models, all lexicons under one another; adds to `left_out`."""
    pieces: dict[str, list[pd.DataFrame]] = {"slopes": [], "asymmetry": [], "curve": []}
    for m in models:
        for lexicon, valence in sources.lexicons.items():
            try:
                found = sentiment(
                    words[m.model], valence, signs=asked.signs, pairs=m.pairs,
                    confidence=config.confidence, paper=config.paper,
                )  # fmt: skip
            except TableError as error:
                left_out.append(LeftOut(m.label, f"with {lexicon}", str(error)))
                continue
            for name, piece in found._asdict().items():
                pieces[name].append(piece.assign(model=m.model, lexicon=lexicon))
    if not pieces["slopes"]:
        return {}
    slopes, asymmetry, curve = (keys_first(pd.concat(found, ignore_index=True)) for found in pieces.values())
    across = asymmetry_across_models(asymmetry, confidence=config.confidence)
    return {
        "sentiment": slopes,
        "sentiment_asymmetry": asymmetry.assign(p_holm=holm(asymmetry["p"])),
        "sentiment_curve": curve,
        "sentiment_models": across,
    }


def _on_one_lexicon(
    lexicon: str,
    tables: Mapping[str, pd.DataFrame],
    asked: Asked,
    config: CompareConfig,
    contents: Contents,
    section: Section,
    *,
    candidates: str,
) -> None:
    """Figures, entries and summary of one lexicon; `tables` are its rows, models by label."""
    slopes, asymmetry, curve, across = tables.values()
    where = {"lexicon": lexicon, "candidates": candidates}
    shown = literal(lexicon, limit=24)
    stem = f"{prefix(candidates)}sentiment-{safe_name(lexicon)}"
    drawn = {
        "curves": curves(curve, slopes, lexicon=lexicon, title=f"Reward by valence: {shown}"),
        "slopes": slope_forest(
            slopes, lexicon=lexicon, paper=config.paper, title=f"Slopes by valence: {shown}"
        ),
        "asymmetry": asymmetry_forest(
            asymmetry, across, lexicon=lexicon, title=f"Steeper on which words: {shown}"
        ),
    }
    contents.figures.update({f"{stem}-{name}": figure for name, figure in drawn.items()})
    section.entries.extend(
        [
            Entry(f"Reward by valence: {lexicon}", _told_curve(slopes), figure=f"{stem}-curves"),
            Entry(
                f"Slopes above and below zero: {lexicon}",
                _told_slopes(slopes, config),
                figure=f"{stem}-slopes",
                table="sentiment",
                where=where,
            ),
            Entry(
                f"Steeper on which words: {lexicon}",
                _told_asymmetry(across, asked),
                figure=f"{stem}-asymmetry",
                table="sentiment_asymmetry",
                where=where,
            ),
        ]
    )
    if across["n"].max() > 1:
        section.entries.append(
            Entry(
                f"Steeper on which words, over models: {lexicon}",
                "The mean over models of how much steeper each is on positive words, with Student's t and Wilcoxon's "
                "signed-rank test, p values corrected by Holm's method over all prompts and lexicons of this section. The "
                "models are the sample, and models of one family are not independent of one another.",
                table="sentiment_models",
                where=where,
            )
        )
    for row in across.itertuples():
        contents.summary[f"{prefix(candidates)}sentiment/{lexicon}/{row.prompt}/steeper"] = float(row.mean)


def _told_curve(slopes: pd.DataFrame) -> str:
    models = slopes["model"].nunique()
    low, high = slopes.groupby("model")["n"].max().agg(["min", "max"])
    lines = "one model" if models == 1 else f"a thin line for each of {models} models"
    return (
        f"Mean standardised reward of the words of each valence, {lines}. The larger side "
        f"of zero has {low:,}{'' if low == high else f' to {high:,}'} words; the ends of the scale hold few. The lines are "
        "fitted to words, not to the means."
    )


def _told_slopes(slopes: pd.DataFrame, config: CompareConfig) -> str:
    mean = slopes.groupby(["prompt", "arm"], sort=False)["slope_sd"].mean()
    found = "; ".join(
        f"{prompt} {_signed(mean[prompt, 'positive'])} above zero and {_signed(mean[prompt, 'negative'])} below"
        for prompt in dict.fromkeys(slopes["prompt"])
    )
    return (
        f"Standard deviations of reward per unit of valence, {_over(slopes['model'].nunique())}: {found}. In the "
        f"table: slope, low and high ({config.confidence:.0%}) in the model's own reward units, the same over the standard "
        "deviation of its rewards (_sd); n words of so many stems."
    )


def _told_asymmetry(across: pd.DataFrame, asked: Asked) -> str:
    found = "; ".join(
        f"{r.prompt} {_signed(r.mean)}"
        + (f" [{_signed(r.low)}, {_signed(r.high)}], Holm's p {_p(r.p_holm)}" if r.n > 1 else "")
        for r in across.itertuples()
    )
    unknown = [prompt for prompt in across["prompt"] if prompt not in asked.signs and " × " not in prompt]
    return (
        "How much steeper a model is on positive words than on negative ones, taken in the frame's direction (below 0: "
        f"steeper on negative words). {_over(across['n'].max()).capitalize()}: {found}. Under one prompt this is the "
        "lexicon's doing as much as the model's."
        + (OPPOSITE if across["prompt"].str.contains(" × ").any() else "")
        + (
            f" No frame is known for {', '.join(unknown)}: the slopes' own sign stands for it."
            if unknown
            else ""
        )
    )


def _signed(number: float) -> str:
    return f"{number:+.2f}".replace("-", "−")


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def _over(models: int) -> str:
    return "one model" if models == 1 else f"mean of {models} models"
