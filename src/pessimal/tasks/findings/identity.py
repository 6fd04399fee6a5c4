"""What each model does with words that name groups of people: against matched controls, in opposite frames."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pessimal.analysis.identity import (
    ALL_AXES,
    BOTH_FRAMES,
    HALF_DIFFERENCE,
    HALF_SUM,
    LEAST_STEMS,
    corrected,
)
from pessimal.analysis.matching import CONTROLS, ZIPF_CALIPER
from pessimal.config.schema import CompareConfig
from pessimal.figures.identity import identity_forest, identity_heatmap
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tasks.findings.group import Group
from pessimal.tasks.findings.identity_models import Found, measured, words_of
from pessimal.tasks.findings.model_words import Asked, prefix, tell_left_out
from pessimal.tasks.findings.sources import Sources

LEVEL = 0.05
BELOW, ABOVE = "farthest below", "farthest above"
NAMED = 10
"""Terms named at each end, a model."""


def identity_terms(
    members: Mapping[str, Group], config: CompareConfig, contents: Contents, sources: Sources
) -> None:
    """A section on identity terms: axes, opposite frames, single terms, controls, lists. Nothing without term lists."""
    if not config.identity or not members:
        return
    candidates = next(iter(members.values())).candidates
    section = contents.section(f"Identity terms · {candidates}", _introduction(sources))
    found = measured(members, config, sources)
    if found.effects:
        effects = corrected(pd.concat(found.effects, ignore_index=True))
        scene = _Scene(candidates, section, contents, config, found.asked, effects, found.labels)
        _axes(scene)
        _both_frames(scene)
        _single_terms(scene, found)
        _controls(scene, found)
    tell_left_out(section.entries, found.left_out)
    _lists(section, contents, config, found, candidates)


@dataclass(frozen=True)
class _Scene:
    candidates: str
    section: Section
    contents: Contents
    config: CompareConfig
    asked: Asked
    effects: pd.DataFrame
    labels: dict[str, str]

    @property
    def main(self) -> str:
        """The measure that comes first: the half-sum, or the first frame where none are opposite."""
        return HALF_SUM if self.asked.pair else next(iter(self.asked.columns))

    @property
    def opposite(self) -> str:
        return " and ".join(map(self.called, self.asked.pair))

    def called(self, column: str) -> str:
        return f"*{column}*" if len(self.asked.columns[column]) == 1 else f"*{column}* prompts, averaged,"

    def of(self, measure: str) -> pd.DataFrame:
        return self.effects[self.effects["measure"] == measure]

    def keep(self, name: str, piece: pd.DataFrame) -> None:
        columns = ["model", *(column for column in piece if column != "model")]
        self.contents.add_table(name, piece[columns], candidates=self.candidates)

    def tell(self, title: str, sentence: str, *, table: str, figure: str | None = None, **where: str) -> None:
        where = {"candidates": self.candidates, **where}
        self.section.entries.append(Entry(title, sentence, figure=figure, table=table, where=where))

    def stem(self, name: str) -> str:
        """Of a figure's files and of summary keys."""
        return f"{prefix(self.candidates)}identity-{name}"

    def named(self, row: pd.Series) -> str:
        axis = "all axes" if row["axis"] == ALL_AXES else row["axis"]
        return f"{literal(axis)} in {self.labels[row['model']]} ({_number(row['d'])})"


def _introduction(sources: Sources) -> str:
    lexicons = " and ".join(sources.lexicons) or "no lexicon"
    return (
        "Measured is the reward of a bare word that names a group of people, given as the whole answer to the question, "
        f"less the mean reward of up to {CONTROLS} control words that are as frequent (within {ZIPF_CALIPER:g} Zipf; "
        f"{sources.frequencies.source}) and as positive or negative (ratings of {lexicons}; words not rated are matched "
        "with words not rated). Not measured is how a model treats people, or text about people; nor whether anyone is "
        "harmed, what anyone intended, or what in the training caused it. Most of these words have other meanings too, "
        "and a control is as frequent and as positive, not alike in everything. How to read opposite frames: a word "
        "below its controls both where good and where bad things are asked for is avoided whatever is asked (half-sum "
        "below 0). Below where good things are asked for and above where bad ones are is another matter: a word taken "
        "for something bad (half-difference below 0)."
    )


def _axes(scene: _Scene) -> None:
    """Forest and heat map."""
    scene.keep("identity", scene.effects)
    table, level = scene.of(scene.main), f"p < {LEVEL:g}"
    single = table[table["axis"] != ALL_AXES]
    apart = single[single["p_holm"] < LEVEL].sort_values("d")
    found = "; ".join(scene.named(row) for _, row in apart.iterrows()) or "none"
    measure = f"the half-sum of {scene.opposite}" if scene.asked.pair else scene.called(scene.main)
    shown = scene.effects.assign(model=scene.effects["model"].map(scene.labels))
    forest, heat = scene.stem("forest"), scene.stem("heatmap")
    scene.contents.figures[forest] = identity_forest(
        shown,
        measure=scene.main,
        level=LEVEL,
        confidence=scene.config.confidence,
        title=f"Identity terms: {measure.rstrip(',').replace('*', '')}",
    )
    scene.tell(
        "Axes against their controls",
        f"Mean effect of an axis' terms on {measure}, on {table['model'].nunique()} models and {single['axis'].nunique()} "
        f"axes of {single['n'].min()} to {single['n'].max()} terms ({single['n_stems'].min()} to "
        f"{single['n_stems'].max()} stems; forms of a stem count once). d is in standard deviations of the model's "
        "rewards over its words. Words of a topic go up and down together in every model, so p holds an axis against "
        f"{_range(table['n_topics'])} everyday topics, such as birds or trades, matched in the same way; p_words holds "
        "its terms against single words, and is smaller for that reason. "
        f"Apart from everyday topics ({level}, Holm over {len(single)} tests, models × axes): {found}. The interval has "
        "the scatter of the terms and that of topics in it: where few terms differ much it may hold 0 though p is small. "
        "An axis that does not stand apart may still be moved: few terms tell little.",
        table="identity",
        figure=forest,
        measure=scene.main,
    )
    if scene.asked.pair:
        scene.contents.figures[heat] = identity_heatmap(shown, level=LEVEL)
        scene.tell(
            "Avoided, or taken for something bad",
            f"Left: the half-sum of {scene.opposite}, what is added to a word whatever is asked. Right: their "
            "half-difference, how far a word is taken for good rather than bad, beyond what the lexicons' ratings make of "
            f"it; its numbers are in the table. Stars: {level} after Holm's correction over the panel.",
            table="identity",
            figure=heat,
            measure=HALF_DIFFERENCE,
        )
    together = table[table["axis"] == ALL_AXES]
    for row in together.itertuples():
        scene.contents.summary[f"{scene.stem('terms')}/{row.model}/d"] = float(row.d)
        scene.contents.summary[f"{scene.stem('terms')}/{row.model}/p_holm"] = float(row.p_holm)
    scene.contents.summary[scene.stem("axes_apart")] = len(apart)


def _both_frames(scene: _Scene) -> None:
    """Penalised whatever is asked, as a test of its own."""
    title = "Penalised in both frames"
    if not scene.asked.pair:
        sentence = (
            "Cannot be told: it takes a prompt that good words answer and one that bad words do, both scanned for every "
            "model. Scan worst beside greatest, or say which prompts are which: frames={KEY: 1, KEY: -1}."
        )
        scene.section.entries.append(Entry(title, sentence))
        return
    table = scene.of(BOTH_FRAMES)
    sure = table[table["p_holm"] < LEVEL].sort_values("d")
    found = "; ".join(scene.named(row) for _, row in sure.iterrows()) or "none"
    scene.tell(
        title,
        f"The effect is that of the frame, of {scene.opposite}, in which the terms are penalised less; below 0 they lie "
        f"below their controls in both. p is the larger of both one-sided p values (intersection-union test), so it is "
        f"small only where both frames are sure. Below {LEVEL:g} after Holm's correction over models × axes (all axes: "
        f"over models): {found}.",
        table="identity",
        measure=BOTH_FRAMES,
    )
    scene.contents.summary[scene.stem("both_frames")] = int((sure["axis"] != ALL_AXES).sum())


def _single_terms(scene: _Scene, found: Found) -> None:
    terms = _with_ends(pd.concat(found.terms, ignore_index=True))
    scene.keep("identity_terms", terms)
    lowest = terms.loc[terms["d"].idxmin()]
    sentence = (
        f"Of {_range(terms.groupby('model').size())} terms a model, the {NAMED} that lie farthest {{}} their controls "
        "(d), with the share of each one's controls that lie below it (controls_below) and the nearest of these controls. One word against "
        f"{_range(terms['n_controls'])} controls proves nothing by itself: among so many terms some lie at an end by chance."
    )
    scene.tell(
        "Terms farthest below",
        f"{sentence.format('below')} Lowest of all: {literal(lowest['term'])} in {scene.labels[lowest['model']]}, "
        f"{_number(lowest['d'])}, against {int(lowest['n_controls'])} controls such as {lowest['controls']}.",
        table="identity_terms",
        end=BELOW,
    )
    scene.tell("Terms farthest above", sentence.format("above"), table="identity_terms", end=ABOVE)


def _controls(scene: _Scene, found: Found) -> None:
    table = pd.concat(found.balance, ignore_index=True)
    scene.keep("identity_balance", table)
    worst = table.loc[table["after"].abs().idxmax()]
    scene.tell(
        "How alike terms and controls are",
        "Standardised differences between terms and other words, before and after matching; .1 is what is called "
        f"balanced. Largest after matching: {_number(worst['after'], digits=3)} ({literal(worst['covariate'])}, "
        f"{scene.labels[worst['model']]}); largest before: {_number(table['before'].abs().max())}. Controls are any words "
        "of three letters or more that the vocabulary holds whole, identity terms and their forms excepted: not only "
        "words for people, nor only of one part of speech.",
        table="identity_balance",
    )


def _lists(
    section: Section, contents: Contents, config: CompareConfig, found: Found, candidates: str
) -> None:
    axes = {name: words_of(axis.terms) for name, axis in config.identity.items()}
    present = found.present
    rows = [
        {
            "axis": name,
            "about": config.identity[name].about,
            "source": config.identity[name].source,
            "n_terms": len(terms),
            "terms": ", ".join(terms),
            "without_controls": ", ".join(term for term in terms if term not in present),
        }
        for name, terms in axes.items()
    ]
    contents.add_table("identity_lists", pd.DataFrame(rows), candidates=candidates)
    every = [term for terms in axes.values() for term in terms]
    section.entries.append(
        Entry(
            "The lists",
            f"{len(every)} terms on {len(axes)} axes, majority and unmarked ones among them; "
            f"{sum(term not in present for term in every)} are whole words of known frequency in no model's vocabulary, "
            f"or have too few controls there, and take no part; an axis with fewer than {LEAST_STEMS} stems counts only "
            "towards all together. Another list would give other numbers.",
            table="identity_lists",
            where={"candidates": candidates},
        )
    )


def _with_ends(terms: pd.DataFrame) -> pd.DataFrame:
    """Terms by model, lowest first, with the column `end` for those named on the page."""
    terms = terms.sort_values(["model", "d", "axis", "term"], ignore_index=True)
    place, size = terms.groupby("model").cumcount(), terms.groupby("model")["term"].transform("size")
    named = np.minimum(NAMED, size // 2)
    terms["end"] = np.select([place < named, place >= size - named], [BELOW, ABOVE], "")
    return terms


def _number(value: float, *, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def _range(numbers: pd.Series) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low}" if low == high else f"{low} to {high}"
