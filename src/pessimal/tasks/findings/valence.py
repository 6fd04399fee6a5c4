"""What rewards have to do with how good a word is to people. How often it is used: see `word_frequency`."""

from collections.abc import Mapping, Sequence

import pandas as pd

from pessimal.analysis.asymmetry import asymmetry_across_models
from pessimal.analysis.regression import holm
from pessimal.analysis.sentiment import sentiment
from pessimal.analysis.words import as_published
from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.figures.sentiment import asymmetry_forest, curves, slope_forest
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tasks.findings.lexicon_groups import lexicon_groups_of
from pessimal.tasks.findings.model_words import (
    Asked,
    LeftOut,
    ModelWords,
    Read,
    keys_first,
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
FEW = 30
"""Words on a side, below which the page warns."""


def sentiment_of(read: Read, config: CompareConfig, contents: Contents, sources: Sources) -> None:
    """A section on slopes by valence: for each lexicon a curve, the slopes, their asymmetry, and the two groups of words.

    A lexicon with one valence on each side of zero (Bing) has no slopes, which the page says, and the two groups only.
    """
    candidates, asked, models, left_out = read
    left_out = list(left_out)
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
            Entry("No lexicon", "No lexicon was given; type for example +lexicons.AFINN=afinn")
        )
        return
    words = {m.model: as_published(m.tokens) if config.paper else m.words for m in models}
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
    influences: dict[tuple[str, str], pd.DataFrame | None] = {}
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
            for name, found_pieces in pieces.items():
                found_pieces.append(getattr(found, name).assign(model=m.model, lexicon=lexicon))
            influences[m.model, lexicon] = found.influence
    if not pieces["slopes"]:
        return {}
    slopes, asymmetry, curve = (keys_first(pd.concat(found, ignore_index=True)) for found in pieces.values())
    across = asymmetry_across_models(asymmetry, influences, confidence=config.confidence)
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
            Entry(f"Reward by valence: {lexicon}", _told_curve(slopes, config), figure=f"{stem}-curves"),
            Entry(
                f"Slopes above and below zero: {lexicon}",
                _told_slopes(slopes, config),
                figure=f"{stem}-slopes",
                table="sentiment",
                where=where,
            ),
            Entry(
                f"Steeper on which words: {lexicon}",
                _told_asymmetry(across, slopes, asked, config),
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
                _told_models(across, config),
                table="sentiment_models",
                where=where,
            )
        )
    for row in across.itertuples():
        contents.summary[f"{prefix(candidates)}sentiment/{lexicon}/{row.prompt}/steeper"] = float(row.mean)


def _told_curve(slopes: pd.DataFrame, config: CompareConfig) -> str:
    models = slopes["model"].nunique()
    lines = "one model" if models == 1 else f"a thin line for each of {models} models"
    return (
        f"Mean standardised reward of the {_unit(config)} of each valence, {lines}. {_sides(slopes, config)} The ends of the "
        f"scale hold few. The lines are fitted to {_unit(config)}, not to the means."
    )


def _told_slopes(slopes: pd.DataFrame, config: CompareConfig) -> str:
    mean = slopes.groupby(["prompt", "arm"], sort=False)["slope_sd"].mean()
    over, each = _over(slopes.groupby("prompt", sort=False)["model"].nunique())
    found = "; ".join(
        f"{prompt}{each[prompt]} {_signed(mean[prompt, 'positive'])} above zero and {_signed(mean[prompt, 'negative'])} below"
        for prompt in dict.fromkeys(slopes["prompt"])
    )
    return (
        f"Standard deviations of reward per unit of valence, {over}: {found}. {_sides(slopes, config)} In the "
        f"table: slope, low and high ({config.confidence:.0%}) in the model's own reward units, the same over the standard "
        f"deviation of its rewards (_sd); n {_unit(config)} of so many stems."
    )


def _told_asymmetry(across: pd.DataFrame, slopes: pd.DataFrame, asked: Asked, config: CompareConfig) -> str:
    over, each = _over(across.set_index("prompt")["n"])
    found = "; ".join(
        f"{r.prompt}{each[r.prompt]} {_signed(r.mean)}{_interval(r)}" for r in across.itertuples()
    )
    unknown = [prompt for prompt in across["prompt"] if prompt not in asked.signs and " × " not in prompt]
    return (
        "How much steeper a model is on positive words than on negative ones, taken in the frame's direction (below 0: "
        f"steeper on negative words). {over.capitalize()}: {found}. "
        + ("Intervals are over words and models together. " if (across["n"] > 1).any() else "")
        + f"{_sides(slopes, config)} Under one prompt this is the "
        "lexicon's doing as much as the model's."
        + (OPPOSITE if across["prompt"].str.contains(" × ").any() else "")
        + (
            f" No frame is known for {', '.join(unknown)}: the slopes' own sign stands for it."
            if unknown
            else ""
        )
    )


def _told_models(across: pd.DataFrame, config: CompareConfig) -> str:
    unknown = across.loc[(across["n"] > 1) & across["p"].isna(), "prompt"]
    return (
        "The mean over models of how much steeper each is on positive words. Words and models are both samples: all models "
        "are asked about the same words, so the interval has in it how far the mean moves as the words of one stem are left "
        f"out of all models (error_words) beside the spread between models (error_models); {config.confidence:.0%} interval "
        "and p by Student's t with Satterthwaite's degrees of freedom, p corrected by Holm's method over all prompts and "
        "lexicons of this section. Models of one family are not independent of one another, and count as if they were."
        + (f" No interval for {', '.join(unknown)}: one stem alone decides a slope." if len(unknown) else "")
    )


def _signed(number: float) -> str:
    return f"{number:+.2f}".replace("-", "−")


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"= {value:.3f}"


def _interval(row: tuple) -> str:
    """Of a mean over models; nothing where there is none."""
    if pd.isna(row.p):
        return ""
    return f" [{_signed(row.low)}, {_signed(row.high)}], Holm's p {_p(row.p_holm)}"


def _unit(config: CompareConfig) -> str:
    return "tokens" if config.paper else "words"


def _sides(slopes: pd.DataFrame, config: CompareConfig) -> str:
    """How many words there are on each side of zero; with a warning where they are few."""
    told = []
    for arm in ("positive", "negative"):
        low, high = slopes.loc[slopes["arm"] == arm, "n"].agg(["min", "max"])
        told.append(f"{low:,} {arm}" if low == high else f"{low:,} to {high:,} {arm}")
    few = slopes["n"].min() < FEW
    return f"There are {' and '.join(told)} {_unit(config)}{f'; with fewer than {FEW} on a side, single ones decide its slope' if few else ''}."


def _over(models: pd.Series) -> tuple[str, dict[str, str]]:
    """What a mean is over, of a number of models by prompt: in general, and what is added to each prompt."""
    low, high = models.min(), models.max()
    if low == high:
        return ("one model" if high == 1 else f"mean of {high} models"), dict.fromkeys(models.index, "")
    each = {prompt: f" ({n} model{'' if n == 1 else 's'})" for prompt, n in models.items()}
    return "mean of the models scanned on each prompt", each
