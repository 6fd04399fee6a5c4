"""The choice of score tables that are compared: of files, or of a registry."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pessimal.catalogue import names_of, published_models
from pessimal.errors import TableError
from pessimal.rewards.named import answering_to
from pessimal.rewards.spec import Mode
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.score_table import REWARD, ScoreProvenance, SharedColumns
from pessimal.tracking.registry import Manifest, Registry

log = logging.getLogger(__name__)

TABLE = {"model": str, "prompt": str, "candidates": str}
"""What is read of a score table's summary."""


@dataclass(frozen=True)
class Choice:
    """Which score tables are compared; an empty list chooses all."""

    models: list[str]
    prompts: list[str]
    sets: list[str]
    mode: Mode | None

    def among(self, models: Collection[str]) -> "Choice":
        """The same, with models as those that are there are called."""
        return replace(self, models=answering_to(self.models, models))

    @property
    def fields(self) -> list[tuple[str, list[str], str]]:
        """A field of a provenance or summary, what is chosen of it, and the option of a scan that
        makes one more."""
        items = "candidates=items mode=text candidates.path=FILE candidates.name="
        return [
            ("model", self.models, "model="),
            ("prompt", self.prompts, "prompts="),
            ("candidates", self.sets, items),
        ]

    def takes(self, table: Mapping, *, every: bool = True) -> bool:
        """Whether a table is of the model, prompt and candidate set chosen; or, unless `every`, of
        one of them."""
        if every:
            return all(not chosen or table[field] in chosen for field, chosen, _ in self.fields)
        return any(table[field] in chosen for field, chosen, _ in self.fields)

    def takes_mode(self, provenance: ScoreProvenance) -> bool:
        """Whether it is of the mode asked for; published scores and log-probabilities have no
        choice of one."""
        free = provenance.mode == "published" or provenance.score != REWARD
        return free or self.mode is None or provenance.mode == self.mode.value

    def __str__(self) -> str:
        parts = [f"{field}: {', '.join(names)}" for field, names, _ in self.fields if names]
        return "; ".join([*parts, f"mode: {self.mode.value}"] if self.mode else parts)


Chosen = list[tuple[ScoreTable, str | None]]
"""Tables with their references, where they are from a registry."""


def choose_tables(
    registry: Registry, choice: Choice, paths: Sequence[str] | None, *, beside: str | None = None
) -> Chosen:
    """The tables of files and folders where some are given, else of the registry.

    Args:
        beside: `published` for the ten published models beside those that are chosen.

    Raises:
        TableError: something is chosen that no table has.
        InputError: a file has changed.
    """
    chosen = read_tables(paths, choice) if paths else registered_tables(registry, choice)
    return chosen if beside is None else add_published(registry, chosen)


def read_tables(paths: Sequence[str], choice: Choice) -> Chosen:
    """The tables of files and folders."""
    files: dict[Path, None] = {}  # a file that is named twice is one
    for path in map(Path, paths):
        below = sorted(path.rglob("scores.parquet")) if path.is_dir() else [path]
        if not below:
            raise TableError(f"tables={str(path)!r}: no scores.parquet below this folder")
        files |= dict.fromkeys(file.resolve() for file in below)
    shared = SharedColumns()
    tables: Chosen = [(shared.of(read_score_table(file)), None) for file in files]
    choice = choice.among({table.provenance.model for table, _ in tables})
    where = "the tables named"
    _check_there(choice, [asdict(table.provenance) for table, _ in tables], where=where)
    return _chosen(choice, tables, where)


def registered_tables(registry: Registry, choice: Choice) -> Chosen:
    """The registry's tables that are asked for, verified, with their references."""
    current = _current(registry)
    summaries = [manifest.summary for _, manifest in current]  # spares opening the others
    choice = choice.among({summary["model"] for summary in summaries})
    _check_there(choice, summaries, where=str(registry.root))
    shared = SharedColumns()
    tables: Chosen = []
    for folder, manifest in current:
        if choice.takes(manifest.summary):
            registry.verify(folder)
            tables.append((shared.of(read_score_table(folder)), manifest.reference))
    if current and not tables:
        partly = [s for s in summaries if choice.takes(s, every=False)]
        near = sorted({f"{s['model']} on {s['prompt']}" for s in partly})
        raise TableError(
            f"no score table in {registry.root} has all of it ({choice}). There are: "
            f"{'; '.join(near[:8])}"
        )
    return _chosen(choice, tables, str(registry.root))


def add_published(registry: Registry, chosen: Chosen) -> Chosen:
    """Tables of other models on items that the ten published reward models were scored on, and
    then theirs on the same items and prompts.

    Raises:
        TableError: theirs are not in the registry, no other model is chosen, or none has such a
            table.
    """
    ten = {name for repository in published_models() for name in names_of(repository)}
    of_them = [
        (folder, manifest)
        for folder, manifest in registry.latest("score-table", needs=TABLE)
        if manifest.summary["model"] in ten and manifest.summary["candidates"] != "vocabulary"
    ]
    if not of_them:
        raise TableError(
            f"reference=published: {registry.root} has no scores of the ten published models on "
            "lists of items. Take greatest_one_word.csv from "
            "https://github.com/brchristian/reward_model_optimal_pessimal_tokens and type: "
            "pessimal import format=eloeverything path=greatest_one_word.csv prompt=greatest"
        )
    there = dict.fromkeys((m.summary["candidates"], m.summary["prompt"]) for _, m in of_them)
    own = [pair for pair in chosen if pair[0].provenance.model not in ten]
    beside = [pair for pair in own if _items(pair[0].provenance) in there]
    if not beside:
        models = sorted({table.provenance.model for table, _ in own})
        first, prompt = next(iter(there))
        raise TableError(
            f"reference=published: {', '.join(models) or 'no model but these ten'} has no scores "
            "on items that the published models were scored on: "
            f"{'; '.join(f'{items} on {key}' for items, key in list(there)[:4])}. To scan them: "
            f"pessimal scan model=NAME prompts={prompt} mode=text candidates=items "
            f"candidates.path=FILE candidates.name={first}"
        )
    shared, same = SharedColumns(), {_items(table.provenance) for table, _ in beside}
    for folder, manifest in of_them:
        if (manifest.summary["candidates"], manifest.summary["prompt"]) in same:
            registry.verify(folder)
            beside.append((shared.of(read_score_table(folder)), manifest.reference))
    return beside


def _items(provenance: ScoreProvenance) -> tuple[str, str]:
    return provenance.candidates, provenance.prompt


def _current(registry: Registry) -> list[tuple[Path, Manifest]]:
    """The newest version of every score table, then older ones of the same key: what another batch
    or machine made of it, for the noise floor."""
    latest = registry.latest("score-table", needs=TABLE)
    newest = {manifest.name: manifest for _, manifest in latest}
    older = [
        (folder, manifest)
        for folder, manifest in registry.manifests("score-table", needs=TABLE)
        if manifest.key == newest[manifest.name].key
        and manifest.version < newest[manifest.name].version
    ]
    return latest + older


def _check_there(choice: Choice, tables: Sequence[Mapping], *, where: str) -> None:
    """TableError where something was asked for that no table has: half a comparison is not what was
    meant."""
    for field, chosen, option in choice.fields:
        values = sorted({table[field] for table in tables})
        if missing := [name for name in chosen if name not in values]:
            raise TableError(
                f"no score table of {field} {', '.join(map(repr, missing))} in {where}. There are "
                f"tables of: {', '.join(values) or f'no {field} yet'}. To make one: pessimal scan "
                f"{option}{missing[0]}"
            )


def _chosen(choice: Choice, tables: Chosen, where: str) -> Chosen:
    """Those that are chosen; TableError where there is none, or none of something chosen."""
    chosen = [
        (table, reference)
        for table, reference in tables
        if choice.takes(asdict(table.provenance)) and choice.takes_mode(table.provenance)
    ]
    if not chosen:
        provenances = [table.provenance for table, _ in tables]
        there = sorted({f"{p.model} on {p.prompt} ({p.mode})" for p in provenances})
        raise TableError(
            f"nothing to compare in {where}: {'; '.join(there[:8]) or 'no score tables'}. Scan or "
            "import first, for example: pessimal scan model=plain-wordpiece-0"
        )
    for field, names, _ in choice.fields:
        left = {getattr(table.provenance, field) for table, _ in chosen}
        if lost := [name for name in names if name not in left]:
            raise TableError(
                f"{field} {', '.join(map(repr, lost))} has score tables in {where}, but none that "
                f"all choices leave ({choice}). Leave one of them out, or scan what is missing"
            )
    return chosen
