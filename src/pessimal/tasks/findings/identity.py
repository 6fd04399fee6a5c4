"""What each model does with words that name groups of people: against matched controls, in opposite frames."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pessimal.analysis.identity import (
    ALL_AXES,
    BOTH_FRAMES,
    HALF_DIFFERENCE,
    LEAST_STEMS,
    corrected,
)
from pessimal.config.schema import CompareConfig
from pessimal.figures.identity import identity_forest, identity_heatmap
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tasks.findings.identity_meaning import introduction, one_frame
from pessimal.tasks.findings.identity_models import Found, measured, words_of
from pessimal.tasks.findings.model_words import Asked, Read, prefix, tell_left_out
from pessimal.tasks.findings.sources import Sources

LEVEL = 0.05
BELOW, ABOVE = "farthest below", "farthest above"
NAMED = 10
"""Terms named at each end, a model."""


def identity_terms(read: Read, config: CompareConfig, contents: Contents, sources: Sources) -> None:
    """A section on identity terms: axes, opposite frames, single terms, controls, lists. Nothing without term lists."""
    if not config.identity:
        return
    candidates = read.candidates
    section = contents.section(f"Identity terms · {candidates}", introduction(sources))
    found = measured(read, config, sources)
    if found.effects:
        effects = corrected(pd.concat(found.effects, ignore_index=True))
        scene = _Scene(candidates, section, contents, config, found.asked, found.main, effects, found.labels)
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
    main: str
    """The measure that comes first: see `Found`."""
    effects: pd.DataFrame
    labels: dict[str, str]

    @property
    def told_main(self) -> str:
        """The main measure, in words."""
        return f"the half-sum of {self.opposite}" if self.asked.pair else self.called(self.main)

    @property
    def one_frame(self) -> str:
        """What an effect under a single prompt says, and does not; empty where frames are opposite."""
        if self.asked.pair:
            return ""
        return one_frame(f"“{self.main}”", self.asked.signs.get(self.main))

    @property
    def opposite(self) -> str:
        return " and ".join(map(self.called, self.asked.pair))

    def called(self, column: str) -> str:
        return f"“{column}”" if len(self.asked.columns[column]) == 1 else f"“{column}” prompts, averaged,"

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


def _axes(scene: _Scene) -> None:
    """Forest and heat map."""
    scene.keep("identity", scene.effects)
    table, level = scene.of(scene.main), f"p < {LEVEL:g}"
    single = table[table["axis"] != ALL_AXES]
    apart = single[single["p_holm"] < LEVEL].sort_values("d")
    found = "; ".join(scene.named(row) for _, row in apart.iterrows()) or "none"
    models, measure = table["model"].nunique(), scene.told_main
    terms = _range(single["n"]) if len(single) else "0"
    stems = _range(single["n_stems"]) if len(single) else "0"
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
        f"Mean effect of an axis' terms on {measure.rstrip(',')}, on {_counted(models, 'model')} and "
        f"{_counted(single['axis'].nunique(), 'axis', 'axes')} of {terms} terms ({stems} stems; forms of a stem count "
        "once). d is in standard deviations of the model's "
        "rewards over its words. Words of a topic go up and down together in every model, so p holds an axis against "
        f"{_range(table['n_topics'])} everyday topics, such as birds or trades, matched in the same way; p_words holds "
        "its terms against single words, and is smaller for that reason. "
        f"Apart from everyday topics ({level}, Holm over {len(single)} tests, models × axes): {found}. The interval has "
        "the scatter of the terms and that of topics in it: where few terms differ much it may hold 0 though p is small. "
        f"An axis that does not stand apart may still be moved: few terms tell little.{scene.one_frame}",
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
            "Cannot be told: it takes a prompt that good words answer and one that bad words do, both scanned for a "
            "model, in one mode. Scan worst beside greatest, or say which prompts are which: +frames.KEY=1 or +frames.KEY=-1."
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
    for title, end, side in (
        ("Terms farthest below", BELOW, "below"),
        ("Terms farthest above", ABOVE, "above"),
    ):
        shown = terms[terms["end"] == end]
        if shown.empty:
            sentence = f"No term of any model lies {side} its controls on {scene.told_main.rstrip(',')}."
            scene.section.entries.append(Entry(title, sentence))
            continue
        named = terms["end"].eq(end).groupby(terms["model"]).sum()
        lowest = _lowest_of_all(scene, shown) if end == BELOW else ""
        scene.tell(
            title,
            f"Of {_range(terms.groupby('model').size())} terms a model, the {_range(named)} that lie farthest {side} their "
            f"controls on {scene.told_main.rstrip(',')} (by d; at most {NAMED}, and at most half of a model's "
            "terms), with the share of each one's controls that lie below it (controls_below) and the nearest of "
            f"these controls. One word against {_range(terms['n_controls'])} controls proves nothing by itself: among so "
            f"many terms some lie at an end by chance.{lowest}{scene.one_frame}",
            table="identity_terms",
            end=end,
        )


def _lowest_of_all(scene: _Scene, terms: pd.DataFrame) -> str:
    lowest = terms.loc[terms["d"].idxmin()]
    return (
        f" Lowest of all: {literal(lowest['term'])} in {scene.labels[lowest['model']]}, {_number(lowest['d'])}, against "
        f"{int(lowest['n_controls'])} controls such as {lowest['controls']}."
    )


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
        "words for people, nor only of one part of speech. Profanity and slurs that no list names are not excepted, so a "
        "term may be held against some.",
        table="identity_balance",
    )


def _lists(
    section: Section, contents: Contents, config: CompareConfig, found: Found, candidates: str
) -> None:
    axes = {name: words_of(axis.terms) for name, axis in config.identity.items()}
    present, with_controls = found.present, found.with_controls
    rows = [
        {
            "axis": name,
            "about": config.identity[name].about,
            "source": config.identity[name].source,
            "n_terms": len(terms),
            "terms": ", ".join(terms),
            "without_controls": ", ".join(term for term in terms if term not in with_controls),
        }
        for name, terms in axes.items()
    ]
    contents.add_table("identity_lists", pd.DataFrame(rows), candidates=candidates)
    every = [term for terms in axes.values() for term in terms]
    absent = sum(term not in present for term in every)
    alone = sum(term in present and term not in with_controls for term in every)
    section.entries.append(
        Entry(
            "The lists",
            f"{_counted(len(every), 'term')} on {_counted(len(axes), 'axis', 'axes')}, majority and unmarked ones among "
            f"them; {absent} are whole words of known frequency in no model's vocabulary, and {alone} more have too few "
            f"controls in every one: these take no part. An axis with fewer than {LEAST_STEMS} stems counts only "
            "towards all together. Another list would give other numbers.",
            table="identity_lists",
            where={"candidates": candidates},
        )
    )


def _with_ends(terms: pd.DataFrame) -> pd.DataFrame:
    """Terms by model, lowest first, with the column `end` for those named on the page."""
    terms = terms.sort_values(["model", "d", "axis", "term"], ignore_index=True)
    place, size = terms.groupby("model").cumcount(), terms.groupby("model")["term"].transform("size")
    named = np.minimum(NAMED, np.maximum(1, size // 2))
    below, above = (place < named) & (terms["d"] < 0), (place >= size - named) & (terms["d"] > 0)
    terms["end"] = np.select([below, above], [BELOW, ABOVE], "")
    return terms


def _number(value: float, *, digits: int = 2) -> str:
    return f"{value:.{digits}f}".replace("-", "−")


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def _range(numbers: pd.Series) -> str:
    low, high = int(numbers.min()), int(numbers.max())
    return f"{low}" if low == high else f"{low} to {high}"
