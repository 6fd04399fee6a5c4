"""One model's rewards word by word, and the prompts as an analysis over words sees them."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from pessimal.analysis.words import by_word, word_starts
from pessimal.config.schema import CompareConfig
from pessimal.report.contents import Entry
from pessimal.tables import ScoreTable
from pessimal.tasks.findings.factorial import sign_of
from pessimal.tasks.findings.group import Group

PAIRS = (("greatest", "worst"), ("best", "worst"))
"""Opposite frames, the first that is there."""
MOST_PROMPTS = 6
"""Where there are more, those of one sign are averaged: 54 wordings are no 54 findings."""

NAMED = 3
"""Models named one by one where they are left out for one reason; more are counted."""


class LeftOut(NamedTuple):
    """What could not be used."""

    who: str
    """A model's label; empty for all."""
    where: str
    """With which lexicon, on which prompt."""
    why: str


@dataclass(frozen=True)
class Asked:
    """The prompts as these analyses see them."""

    columns: dict[str, list[str]]
    """The prompts averaged into each column."""
    signs: dict[str, int]
    """1 for a column that good words answer, −1 for one that bad words do."""
    pair: tuple[str, str] | None
    """Two columns with opposite frames, the positive one first; some model has both."""


@dataclass(frozen=True)
class ModelWords:
    """One model's rewards, token by token."""

    model: str
    label: str
    tokens: pd.DataFrame
    """Tokens × columns, index = text."""
    pairs: list[tuple[str, str]]
    """At most one."""

    @cached_property
    def words(self) -> pd.DataFrame:
        """Words × columns: the spellings of a word averaged."""
        return by_word(self.tokens)

    @cached_property
    def starts(self) -> pd.Index:
        """Words that some token spells as the start of a word."""
        return word_starts(self.tokens.index)


class Read(NamedTuple):
    """One candidate set as the analyses over words see it; read once for all of them."""

    candidates: str
    asked: Asked
    models: list[ModelWords]
    left_out: list[LeftOut]


def read_words(members: Mapping[str, Group], config: CompareConfig) -> Read:
    """The prompts of one candidate set, each model's rewards, and what could not be used."""
    asked = asked_in(members, config)
    return Read(next(iter(members.values())).candidates, asked, *models_in(members, asked, config))


@dataclass(frozen=True)
class _Scans:
    """One model's tables by prompt."""

    tables: dict[str, ScoreTable]
    """Those of one mode, that of the first prompt."""
    apart: list[str]
    """Prompts scanned in another mode: beside the rest, the mode would pass for the prompt."""

    @property
    def first(self) -> ScoreTable:
        return next(iter(self.tables.values()))


def asked_in(members: Mapping[str, Group], config: CompareConfig) -> Asked:
    """The prompts of one candidate set with their signs, averaged by sign where they are many, and one opposite pair.

    The pair is that of `PAIRS`, or else of the first columns, that most models have both columns of; none where no
    model has both.
    """
    signs = {prompt: sign for prompt in members if (sign := sign_of(prompt, config)) is not None}
    columns = {prompt: [prompt] for prompt in members}
    if len(members) > MOST_PROMPTS and signs:
        columns = {}
        for sign, name in ((1, "positive"), (-1, "negative")):
            if averaged := [prompt for prompt in members if signs.get(prompt) == sign]:
                columns[f"{len(averaged)} {name}"] = averaged
        signs = {name: signs[prompts[0]] for name, prompts in columns.items()}
    positive = [name for name in columns if signs.get(name) == 1]
    negative = [name for name in columns if signs.get(name) == -1]
    known = [pair for pair in PAIRS if pair[0] in positive and pair[1] in negative]
    pairs = list(dict.fromkeys([*known, *((a, b) for a in positive for b in negative)]))
    had = [_had(columns, scans) for scans in _scans(members).values()]
    models = {pair: sum(set(pair) <= own for own in had) for pair in pairs}
    most = max(models.values(), default=0)
    return Asked(columns, signs, next(pair for pair in pairs if models[pair] == most) if most else None)


def _scans(members: Mapping[str, Group]) -> dict[str, _Scans]:
    """By model, in order of name."""
    by_model: dict[str, dict[str, ScoreTable]] = {}
    for prompt, group in members.items():
        for table in group.tables:
            by_model.setdefault(table.identity.model, {})[prompt] = table
    found = {}
    for model in sorted(by_model):
        tables = by_model[model]
        first = _mode(next(iter(tables.values())))
        kept = {prompt: table for prompt, table in tables.items() if _mode(table) == first}
        found[model] = _Scans(kept, [prompt for prompt in tables if prompt not in kept])
    return found


def _mode(table: ScoreTable) -> tuple[str, str]:
    return table.identity.mode, table.identity.candidates_digest


def _had(columns: Mapping[str, list[str]], scans: _Scans) -> set[str]:
    """The columns that a model has all prompts of; an average over other wordings is another column."""
    return {name for name, prompts in columns.items() if all(prompt in scans.tables for prompt in prompts)}


def models_in(
    members: Mapping[str, Group], asked: Asked, config: CompareConfig
) -> tuple[list[ModelWords], list[LeftOut]]:
    """Each model's rewards; and, in words, what could not be used."""
    labels: dict[str, str] = {}
    for group in members.values():
        labels |= group.labels()
    used = {prompt for prompts in asked.columns.values() for prompt in prompts}
    left_out = [
        LeftOut("", f"prompt {p}", "the frame is not known, and the other prompts are averaged")
        for p in members
        if p not in used
    ]
    if len(set(labels.values())) < len(labels):  # two models that figures would show as one
        labels = {model: model for model in labels}
    models = []
    for model, scans in _scans(members).items():
        had = _had(asked.columns, scans)
        left_out += _lacking(labels[model], asked, scans, had)
        if not had:
            continue
        rows = scans.first.rows
        of_words = rows["kind"].isin(("normal", "item")).to_numpy()
        rewards = {
            name: np.mean([scans.tables[p].rows["reward"].to_numpy(dtype=float) for p in prompts], axis=0)[
                of_words
            ]
            for name, prompts in asked.columns.items()
            if name in had
        }
        tokens = pd.DataFrame(rewards, index=pd.Index(rows["text"][of_words], name="text"))
        paired = asked.pair is not None and not config.paper and set(asked.pair) <= had
        models.append(ModelWords(model, labels[model], tokens, [asked.pair] if paired else []))
    return models, left_out


def _lacking(label: str, asked: Asked, scans: _Scans, had: Collection[str]) -> Iterator[LeftOut]:
    """Why a model has not all columns: a reason for each prompt in another mode, and for each column not scanned."""
    for prompt in scans.apart:
        yield LeftOut(label, f"on {prompt}", f"scanned in another mode than {scans.first.identity.prompt}")
    scanned = {*scans.tables, *scans.apart}
    for name, prompts in asked.columns.items():
        if name in had:
            continue
        missing = [prompt for prompt in prompts if prompt not in scanned]
        if missing == prompts:
            yield LeftOut(label, f"on {name}", "not scanned")
        elif missing:
            yield LeftOut(label, f"on {name}", f"{len(missing)} of its {len(prompts)} prompts not scanned")
        elif len(prompts) > 1:
            yield LeftOut(label, f"on {name}", "its prompts were not scanned in one mode")


def tell_left_out(entries: list[Entry], left_out: Iterable[LeftOut]) -> None:
    """An entry on what was left out, if anything was; models that share a reason are named with it once."""
    found: dict[tuple[str, str], list[str]] = {}
    for who, where, why in left_out:
        found.setdefault((where, why.rstrip(".")), []).append(who)
    told = []
    for (where, why), who in found.items():
        models = ", ".join(who) if len(who) <= NAMED else f"{len(who)} models, such as {who[0]},"
        told.append(f"{' '.join(part for part in (models, where) if part)}: {why}.")
    if told:
        entries.append(Entry("Left out", " ".join(told)))


def keys_first(table: pd.DataFrame) -> pd.DataFrame:
    """With the columns that say which model and lexicon in front."""
    front = [column for column in ("model", "lexicon") if column in table]
    return table[[*front, *(column for column in table if column not in front)]]


def with_labels(table: pd.DataFrame, labels: Mapping[str, str]) -> pd.DataFrame:
    """Models named as figures show them."""
    return table.assign(model=table["model"].map(labels)) if "model" in table else table


def prefix(candidates: str) -> str:
    """Beginning of file names and summary keys."""
    return "" if candidates == "vocabulary" else f"{candidates}-"
