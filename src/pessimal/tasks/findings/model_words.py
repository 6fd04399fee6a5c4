"""One model's rewards word by word, and the prompts as an analysis over words sees them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from pessimal.config.schema import CompareConfig
from pessimal.report.contents import Entry
from pessimal.tables import ScoreTable
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
    """Two columns with opposite frames, the positive one first."""


@dataclass(frozen=True)
class ModelWords:
    """One model's rewards, token by token."""

    model: str
    label: str
    tokens: pd.DataFrame
    """Tokens × columns, index = text."""
    pairs: list[tuple[str, str]]
    """At most one."""


def asked_in(members: Mapping[str, Group], config: CompareConfig) -> Asked:
    """The prompts of one candidate set with their signs, averaged by sign where they are many, and one opposite pair."""
    signs = {prompt: sign for prompt in members if (sign := _sign(prompt, config)) is not None}
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
    found = [*known, *((a, b) for a in positive for b in negative)]
    return Asked(columns, signs, found[0] if found else None)


def _sign(prompt: str, config: CompareConfig) -> int | None:
    """That of the prompt's key, or of the level in the key of a factorial wording."""
    if prompt in config.frames:
        return config.frames[prompt]
    levels = prompt.split("_")
    if len(levels) != len(config.wording.factors):
        return None
    signs = {config.frames[level] for level in levels if level in config.frames}
    return signs.pop() if len(signs) == 1 else None


def models_in(
    members: Mapping[str, Group], asked: Asked, config: CompareConfig
) -> tuple[list[ModelWords], list[LeftOut]]:
    """Each model's rewards; and, in words, what could not be used."""
    by_model: dict[str, dict[str, ScoreTable]] = {}
    labels: dict[str, str] = {}
    for prompt, group in members.items():
        labels |= group.labels()
        for table in group.tables:
            by_model.setdefault(table.identity.model, {})[prompt] = table
    used = {prompt for prompts in asked.columns.values() for prompt in prompts}
    left_out = [
        LeftOut("", f"prompt {p}", "the frame is not known, and the other prompts are averaged")
        for p in members
        if p not in used
    ]
    if len(set(labels.values())) < len(labels):  # two models that figures would show as one
        labels = {model: model for model in labels}
    models = []
    for model in sorted(by_model):
        tables = by_model[model]
        first = next(iter(tables.values())).identity
        # Between two modes the mode would pass for the prompt.
        other = [
            prompt
            for prompt, table in tables.items()
            if (table.identity.mode, table.identity.candidates_digest)
            != (first.mode, first.candidates_digest)
        ]
        left_out += [
            LeftOut(labels[model], f"on {p}", f"scanned in another mode than {first.prompt}") for p in other
        ]
        tables = {prompt: table for prompt, table in tables.items() if prompt not in other}
        # An average over other wordings than the rest's is another column.
        columns = {n: p for n, p in asked.columns.items() if all(prompt in tables for prompt in p)}
        left_out += [
            LeftOut(labels[model], f"on {n}", "not scanned") for n in asked.columns if n not in columns
        ]
        if not columns:
            continue
        rows = next(iter(tables.values())).rows
        of_words = rows["kind"].isin(("normal", "item")).to_numpy()
        rewards = {
            name: np.mean([tables[p].rows["reward"].to_numpy(dtype=float) for p in prompts], axis=0)[of_words]
            for name, prompts in columns.items()
        }
        tokens = pd.DataFrame(rewards, index=pd.Index(rows["text"][of_words], name="text"))
        paired = asked.pair is not None and not config.paper and set(asked.pair) <= set(columns)
        models.append(ModelWords(model, labels[model], tokens, [asked.pair] if paired else []))
    return models, left_out


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
