"""`pessimal compare`: score tables in, one comparison out: tables, figures, and what they say."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.report.contents import Contents
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.score_table import REWARD
from pessimal.tables.shared_columns import SharedColumns
from pessimal.tasks.common import config_hash, registry_of, tracked
from pessimal.tasks.compare_explanations import chosen_explanations, compare_explanations
from pessimal.tasks.findings import findings
from pessimal.tasks.findings.arranged import arrange
from pessimal.tasks.findings.sources import read_sources
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Manifest, Registry
from pessimal.tracking.remote import fetch_artifacts
from pessimal.tracking.tell import tell_contents

log = logging.getLogger(__name__)


def run(config: CompareConfig) -> None:
    """Compare the tables, or the explanations, that the configuration names; publish a `comparison` artifact."""
    registry = registry_of(config)
    if config.explanations:
        chosen = chosen_explanations(config, registry)
        inputs = [manifest.reference for _, manifest in chosen]
        with tracked(config, name=f"compare {config.name}", inputs=inputs) as mirror:
            contents = compare_explanations(chosen, config)
            _publish(config, registry, mirror, contents, inputs, {"explanations": len(chosen)})
        return
    sources = read_sources(config)
    found = _named(config) if config.tables else _registered(config, _source(config, registry))
    tables, inputs = [table for table, _ in found], [reference for _, reference in found if reference]
    log.info("comparing %d score tables of %d models", len(tables), len({t.identity.model for t in tables}))
    arranged = arrange(tables)
    if several := {key: modes for key, modes in arranged.scans.items() if len(modes) > 1}:
        log.info(
            "%s: scanned in several modes (%s), which a section of its own compares; all else rests on mode %s. To "
            "compare scans of one mode only: mode=text",
            ", ".join(dict.fromkeys(model for _, _, model in several)),
            ", ".join(dict.fromkeys(mode for modes in several.values() for mode in modes)),
            " or ".join(dict.fromkeys(next(iter(modes)) for modes in several.values())),
        )
    with tracked(config, name=f"compare {config.name}", inputs=inputs) as mirror:
        contents = findings(arranged, config, sources)
        counts = {"models": len({t.identity.model for t in tables}), "tables": len(tables)}
        _publish(config, registry, mirror, contents, inputs, counts)


def _publish(
    config: CompareConfig,
    registry: Registry,
    mirror: Mirror,
    contents: Contents,
    inputs: list[str],
    counts: dict[str, int],
) -> None:
    """Publish the comparison, tell W&B, and say what was found."""
    folder, manifest = registry.publish(
        "comparison",
        config.name,
        contents.write,
        inputs=inputs,
        config_hash=config_hash(config),
        run_id=mirror.run_id,
        summary=counts,
    )
    tell_contents(mirror, contents, folder)
    mirror.artifact(folder, manifest, {"inputs": inputs})
    for section in contents.sections:
        for entry in section.entries:
            log.info("%s | %s: %s", section.title, entry.title, entry.sentence)
    log.info("%s", folder)


def _source(config: CompareConfig, registry: Registry) -> Registry:
    """The registry that score tables are read from: with source=wandb one of what a server has, fetched and verified."""
    if config.source != "wandb":
        return registry
    tracking = config.tracking
    own = Path(config.paths.cache) / "fetched" / (tracking.entity or "own") / tracking.project
    into = Registry(own / "registry")
    fetched = fetch_artifacts(tracking.project, tracking.entity, config.models, list(config.prompts), into)
    log.info(
        "%d score tables of %s, %d of them fetched now",
        len(fetched.artifacts),
        tracking.project,
        fetched.downloaded,
    )
    return into


def _named(config: CompareConfig) -> list[tuple[ScoreTable, str | None]]:
    files: dict[Path, None] = {}  # a file that is named twice is one
    for path in map(Path, config.tables):
        below = sorted(path.rglob("scores.parquet")) if path.is_dir() else [path]
        if not below:
            raise TableError(f"tables={str(path)!r}: no scores.parquet below this folder")
        files |= dict.fromkeys(file.resolve() for file in below)
    shared = SharedColumns()
    found = [(shared.of(read_score_table(file)), None) for file in files]
    _check_known(config, [asdict(table.identity) for table, _ in found], where="the tables named")
    return _chosen(config, found, "the tables named")


def _registered(config: CompareConfig, registry: Registry) -> list[tuple[ScoreTable, str | None]]:
    there = _current(registry)
    told = [manifest.summary for _, manifest in there]  # spares opening what is not asked for
    wanted = [pair for pair, what in zip(there, told, strict=True) if _asked_for(config, what)]
    _check_known(config, told, where=str(registry.root))
    for folder, _ in wanted:
        registry.verify(folder)
    shared = SharedColumns()
    found = [(shared.of(read_score_table(folder)), manifest.reference) for folder, manifest in wanted]
    if there and not found:
        raise TableError(
            f"no score table in {registry.root} has all of it ({_told_choices(config)}). There are: "
            + "; ".join(
                sorted({f"{what['model']} on {what['prompt']}" for what in told if _touches(config, what)})[
                    :8
                ]
            )
        )
    return _chosen(config, found, str(registry.root))


def _current(registry: Registry) -> list[tuple[Path, Manifest]]:
    """The newest version of every score table, then older ones of the same identity: what another batch or machine
    made of it, for the noise floor."""
    latest = registry.latest("score-table")
    newest = {manifest.name: manifest for _, manifest in latest}
    older = [
        (folder, manifest)
        for folder, manifest in registry.manifests("score-table")
        if manifest.key == newest[manifest.name].key and manifest.version < newest[manifest.name].version
    ]
    return latest + older


def _choices(config: CompareConfig) -> list[tuple[str, list[str], str]]:
    """What may be chosen: its field in an identity or summary, the choice, and the command that makes one more."""
    items = "candidates=items mode=text candidates.path=FILE candidates.name="
    return [
        ("model", config.models, "model="),
        ("prompt", list(config.prompts), "prompts="),
        ("candidates", config.sets, items),
    ]


def _asked_for(config: CompareConfig, what: Mapping) -> bool:
    """Whether a table of this model, prompt and candidate set takes part."""
    return all(not chosen or what[field] in chosen for field, chosen, _ in _choices(config))


def _touches(config: CompareConfig, what: Mapping) -> bool:
    """Whether a table has one of the things asked for."""
    return any(chosen and what[field] in chosen for field, chosen, _ in _choices(config))


def _check_known(config: CompareConfig, there: Sequence[Mapping], *, where: str) -> None:
    """TableError where something was asked for that no table has: half a comparison is not what was meant."""
    for field, chosen, override in _choices(config):
        known = sorted({what[field] for what in there})
        if missing := [name for name in chosen if name not in known]:
            raise TableError(
                f"no score table of {field} {', '.join(map(repr, missing))} in {where}. There are tables of: "
                f"{', '.join(known) or f'no {field} yet'}. To make one: pessimal scan {override}{missing[0]}"
            )


def _chosen(
    config: CompareConfig, found: list[tuple[ScoreTable, str | None]], where: str
) -> list[tuple[ScoreTable, str | None]]:
    chosen = [
        (table, reference)
        for table, reference in found
        if _asked_for(config, asdict(table.identity)) and _in_mode(config, table)
    ]
    if not chosen:
        there = sorted({f"{t.identity.model} on {t.identity.prompt} ({t.identity.mode})" for t, _ in found})
        raise TableError(
            f"nothing to compare in {where}: {'; '.join(there[:8]) or 'no score tables'}. Scan or import first, for "
            "example: pessimal scan model=plain-wordpiece-0"
        )
    for field, names, _ in _choices(config):
        left = {getattr(table.identity, field) for table, _ in chosen}
        if lost := [name for name in names if name not in left]:
            raise TableError(
                f"{field} {', '.join(map(repr, lost))} has score tables in {where}, but none that all choices leave "
                f"({_told_choices(config)}). Leave one of them out, or scan what is missing"
            )
    return chosen


def _in_mode(config: CompareConfig, table: ScoreTable) -> bool:
    """Whether a table is of the mode asked for; published scores and log-probabilities have no choice of one."""
    identity = table.identity
    free = identity.mode == "published" or identity.score != REWARD
    return free or config.mode is None or identity.mode == config.mode.value


def _told_choices(config: CompareConfig) -> str:
    told = [f"{field}: {', '.join(names)}" for field, names, _ in _choices(config) if names]
    return "; ".join([*told, f"mode: {config.mode.value}"] if config.mode else told)
