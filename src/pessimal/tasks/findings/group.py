"""Score tables put side by side, and what every finding over them needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tables import ScoreIdentity, ScoreTable
from pessimal.tasks.findings.scans import Key, Modes

CORE = ("greatest", "best", "worst")
"""Prompts that come first, in the paper's order."""


@dataclass(frozen=True)
class Group:
    """One candidate set, one prompt, one table a model."""

    candidates: str
    prompt: str
    tables: list[ScoreTable]
    """In order of model name."""

    @property
    def stem(self) -> str:
        """Beginning of the group's file names and summary keys."""
        return self.prompt if self.candidates == "vocabulary" else f"{self.candidates}-{self.prompt}"

    @property
    def where(self) -> dict[str, str]:
        """The columns that tell the group's rows from others'."""
        return {"prompt": self.prompt, "candidates": self.candidates}

    @property
    def things(self) -> str:
        """What is counted, for sentences."""
        return "tokens" if self.candidates == "vocabulary" else "items"

    def labels(self) -> dict[str, str]:
        """Model names as figures show them: the models' own where two labels are the same."""
        labels = {t.identity.model: t.description.label or t.identity.model for t in self.tables}
        return labels if len(set(labels.values())) == len(labels) else {model: model for model in labels}

    def relabelled(self, matrix: pd.DataFrame) -> pd.DataFrame:
        """A model × model matrix with figure names."""
        return matrix.rename(index=self.labels(), columns=self.labels())

    def descriptors(self, *, shown: bool = False) -> pd.DataFrame:
        """What is known of each model; for figures (`shown`) by label, and in words where nothing is known."""
        frame = pd.DataFrame(
            [
                {
                    "model": t.identity.model,
                    "base": t.description.base,
                    "developer": t.description.developer,
                    "parameters": t.description.parameters,
                    "rank": t.description.rank,
                }
                for t in self.tables
            ]
        ).set_index("model")
        frame[["parameters", "rank"]] = frame[["parameters", "rank"]].astype(float)
        if shown:
            frame = frame.rename(index=self.labels())
            frame[["base", "developer"]] = frame[["base", "developer"]].astype(object).fillna("not stated")
        return frame


@dataclass(frozen=True)
class Scene:
    """A group with its reward matrix, and the section of the contents that its findings go to."""

    group: Group
    rewards: pd.DataFrame
    """Rewards of the shared items: index = text, one column a model."""
    config: CompareConfig
    contents: Contents
    section: Section

    @property
    def shared(self) -> str:
        """What the reward matrix rests on, for sentences."""
        things = f"{len(self.rewards):,} {self.group.things}"
        models = len(self.group.tables)
        return (
            f"{things} with a text of their own"
            if models == 1
            else f"{things} that all {models} models share"
        )

    def tell(self, title: str, sentence: str, *, name: str, figure: Figure, table: str | None = None) -> None:
        """Add a finding: its figure as `<group>-<name>`, and the table that holds its numbers."""
        stem = f"{self.group.stem}-{name}"
        self.contents.figures[stem] = figure
        where = self.group.where if table else {}
        self.section.entries.append(Entry(title, sentence, figure=stem, table=table, where=where))

    def say(self, title: str, sentence: str, *, table: str) -> None:
        """Add a finding that has a table and no figure."""
        self.section.entries.append(Entry(title, sentence, table=table, where=self.group.where))

    def keep(self, table: str, piece: pd.DataFrame) -> None:
        """Add rows to a table of the comparison."""
        self.contents.add_table(table, piece, **self.group.where)

    def note(self, name: str, value: float | str) -> None:
        """Add a figure to the comparison's summary."""
        self.contents.summary[f"{self.group.stem}/{name}"] = value


def groups(tables: Sequence[ScoreTable]) -> list[Group]:
    """Tables by candidate set and prompt, the core prompts first, models in order of name.

    `tables` hold one of each model, prompt and candidate set (see `scans.by_mode`). Raises TableError where those of
    one prompt cannot be put side by side.
    """
    found: dict[tuple[str, str], dict[str, ScoreTable]] = {}
    for table in tables:
        identity = table.identity
        members = found.setdefault((identity.candidates, identity.prompt), {})
        for other in members.values():
            _check_comparable(identity, other.identity)
        members[identity.model] = table
    return [
        Group(*key, [found[key][model] for model in sorted(found[key])]) for key in sorted(found, key=_place)
    ]


def in_several_modes(group: Group, scans: Mapping[Key, Modes]) -> dict[str, Modes]:
    """Of a group's models those with more than one mode."""
    models = [table.identity.model for table in group.tables]
    found = {model: scans[group.candidates, group.prompt, model] for model in models}
    return {model: modes for model, modes in found.items() if len(modes) > 1}


def _check_comparable(a: ScoreIdentity, b: ScoreIdentity) -> None:
    """TableError where two tables go by the same names but were asked other things."""
    told = f"models {a.model!r} and {b.model!r} cannot be compared on {a.prompt!r}: "
    if a.prompt_text and b.prompt_text and a.prompt_text != b.prompt_text:
        raise TableError(f"{told}one was asked {a.prompt_text!r}, the other {b.prompt_text!r}")
    if a.candidates != "vocabulary" and a.candidates_digest != b.candidates_digest:
        raise TableError(f"{told}their lists of items, both named {a.candidates!r}, are not the same")
    if a.mode != b.mode and "published" not in (a.mode, b.mode):
        raise TableError(
            f"{told}one was scanned in mode {a.mode}, the other in mode {b.mode}; type mode={a.mode} or mode={b.mode}"
        )


def _place(key: tuple[str, str]) -> tuple[str, int, str]:
    """Where a (candidate set, prompt) comes in the order of sections."""
    candidates, prompt = key
    return candidates, CORE.index(prompt) if prompt in CORE else len(CORE), prompt
