"""`pessimal compare`: score tables in, one comparison out."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pessimal.api.compare import compare_tables, counted_words, publish_comparison
from pessimal.api.store import Artifact, Store
from pessimal.catalogue import names_of, published_models
from pessimal.config.reading import read_analyses, read_options, reading_of
from pessimal.config.schema import CompareConfig
from pessimal.config.schema.shared import TrackingSpec
from pessimal.errors import TableError
from pessimal.rewards.named import answering_to
from pessimal.rewards.spec import Mode
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.result import Results
from pessimal.tables.score_table import REWARD, ScoreProvenance, SharedColumns
from pessimal.tracking.push import fetch_score_tables
from pessimal.tracking.registry import Manifest, Registry, read_manifest
from pessimal.verbs.common import store_of
from pessimal.verbs.compare_explanations import chosen_explanations, compare_explanations
from pessimal.verbs.printing import print_headlines, print_path

log = logging.getLogger(__name__)

TABLE = {"model": str, "prompt": str, "candidates": str}
"""What is read of a score table's summary."""


def run(config: CompareConfig) -> None:
    """Compare the tables, explanations, searches or pairs of answers that the configuration names;
    publish a `comparison` artifact."""
    if isinstance(config.pairs, str):
        from pessimal.verbs.compare_pairs import compare_pairs  # torch

        compare_pairs(config)
        return
    store = store_of(config)
    results = _compare(config, store)
    assert results.folder is not None
    title = f"{config.name}: {counted_words(read_manifest(results.folder).summary)}"
    print_headlines(results, title=title, asked="forecast" if config.policy else "")
    print_path(results.folder)


def _compare(config: CompareConfig, store: Store) -> Results:
    registry, progress = store.registry, config.progress
    if config.searches:
        from pessimal.verbs.compare_searches import chosen_searches, compare_searches  # torch

        searches = chosen_searches(config, registry)
        inputs = [manifest.reference for _, manifest in searches]
        counts = {"searches": len(searches)}
        artifact = Artifact("comparison", config.name, inputs=inputs, summary=counts)
        found = compare_searches(searches, config, registry)
        return publish_comparison(artifact, found, store=store, progress=progress)
    if config.explanations:
        explanations = chosen_explanations(config, registry)
        found, labels, files = compare_explanations(explanations, config)
        inputs = [manifest.reference for _, manifest in explanations]
        counts = {"explanations": len(explanations)}
        artifact = Artifact(
            "comparison", config.name, inputs=inputs, summary=counts, labels=labels, files=files
        )
        return publish_comparison(artifact, found, store=store, progress=progress)
    # What is wrong with a path or an analysis is reported before any table is opened.
    analyses, options, reading = read_analyses(config), read_options(config), reading_of(config)
    choice = Choice(config.models, list(config.prompts), config.sets, config.mode)
    if config.tables:
        chosen = named(config.tables, choice)
    elif config.source == "wandb":
        chosen = registered(fetched(config.tracking, choice, Path(config.paths.cache)), choice)
    else:
        chosen = registered(registry, choice)
    if config.reference is not None:
        chosen = beside_published(registry, chosen)
    return compare_tables(
        chosen, reading, options, analyses, name=config.name, store=store, progress=progress
    )


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


def fetched(tracking: TrackingSpec, choice: Choice, cache: Path) -> Registry:
    """A registry of what a W&B project has, fetched and verified."""
    own = cache / "fetched" / (tracking.entity or "own") / tracking.project
    into = Registry(own / "registry")
    names = list(dict.fromkeys(name for model in choice.models for name in names_of(model)))
    got = fetch_score_tables(tracking.project, tracking.entity, names, choice.prompts, into)
    new = sum(downloaded for _, _, downloaded in got)
    log.info("%d score tables of %s, %d of them fetched now", len(got), tracking.project, new)
    return into


def named(paths: Sequence[str], choice: Choice) -> Chosen:
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


def registered(registry: Registry, choice: Choice) -> Chosen:
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


def beside_published(registry: Registry, chosen: Chosen) -> Chosen:
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
