"""`pessimal compare`: score tables in, one comparison out: tables, figures, and what they say."""

import logging
from pathlib import Path

from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.report.contents import Contents
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tasks.common import config_hash, registry_of, tracked
from pessimal.tasks.findings import findings
from pessimal.tracking.mirror import MAX_TABLE_ROWS, Mirror
from pessimal.tracking.registry import Registry

log = logging.getLogger(__name__)


def run(config: CompareConfig) -> None:
    """Compare the tables that the configuration names; publish a `comparison` artifact."""
    registry = registry_of(config)
    found = _named(config) if config.tables else _registered(config, registry)
    tables, inputs = [table for table, _ in found], [reference for _, reference in found if reference]
    log.info("comparing %d score tables of %d models", len(tables), len({t.identity.model for t in tables}))
    with tracked(config, name=f"compare {config.name}", inputs=inputs) as mirror:
        contents = findings(tables, config)
        folder, manifest = registry.publish(
            "comparison",
            config.name,
            contents.write,
            inputs=inputs,
            config_hash=config_hash(config),
            run_id=mirror.run_id,
            summary={"models": len({t.identity.model for t in tables}), "tables": len(tables)},
        )
        _tell(mirror, contents, folder)
        mirror.artifact(folder, manifest, {"inputs": inputs})
    for section in contents.sections:
        for entry in section.entries:
            log.info("%s | %s: %s", section.title, entry.title, entry.sentence)
    log.info("%s", folder)


def _named(config: CompareConfig) -> list[tuple[ScoreTable, str | None]]:
    found = []
    for path in map(Path, config.tables):
        files = sorted(path.rglob("scores.parquet")) if path.is_dir() else [path]
        if not files:
            raise TableError(f"tables={str(path)!r}: no scores.parquet below this folder")
        found += [(read_score_table(file), None) for file in files]
    _check_known(
        config,
        models={table.identity.model for table, _ in found},
        prompts={table.identity.prompt for table, _ in found},
        sets={table.identity.candidates for table, _ in found},
        where="the tables named",
    )
    return _chosen(config, found, "the tables named")


def _registered(config: CompareConfig, registry: Registry) -> list[tuple[ScoreTable, str | None]]:
    latest = registry.latest("score-table")
    # Summaries spare opening what is not asked for.
    wanted = [
        (folder, manifest)
        for folder, manifest in latest
        if (not config.models or manifest.summary.get("model") in config.models)
        and (not config.prompts or manifest.summary.get("prompt") in config.prompts)
        and (not config.sets or manifest.summary.get("candidates") in config.sets)
    ]
    _check_known(
        config,
        models={manifest.summary.get("model") for _, manifest in latest},
        prompts={manifest.summary.get("prompt") for _, manifest in latest},
        sets={manifest.summary.get("candidates") for _, manifest in latest},
        where=str(registry.root),
    )
    for folder, _ in wanted:
        registry.verify(folder)
    return _chosen(config, [(read_score_table(f), m.reference) for f, m in wanted], str(registry.root))


def _check_known(
    config: CompareConfig, *, models: set[str], prompts: set[str], sets: set[str], where: str
) -> None:
    """TableError where a model or prompt was asked for that no table has: half a comparison is not what was meant."""
    asked = (
        ("model", config.models, models, "pessimal scan model="),
        ("prompt", config.prompts, prompts, "pessimal scan prompts="),
        (
            "candidate set",
            config.sets,
            sets,
            "pessimal scan candidates=items mode=text candidates.path=FILE candidates.name=",
        ),
    )
    for kind, wanted, known, command in asked:
        if missing := [name for name in wanted if name not in known]:
            raise TableError(
                f"no score table of {kind} {', '.join(map(repr, missing))} in {where}. There are tables of: "
                f"{', '.join(sorted(known)) or f'no {kind} yet'}. To make one: {command}{missing[0]}"
            )


def _chosen(
    config: CompareConfig, found: list[tuple[ScoreTable, str | None]], where: str
) -> list[tuple[ScoreTable, str | None]]:
    chosen = [
        (table, reference)
        for table, reference in found
        if (not config.models or table.identity.model in config.models)
        and (not config.prompts or table.identity.prompt in config.prompts)
        and (not config.sets or table.identity.candidates in config.sets)
        and (config.mode is None or table.identity.mode in (config.mode.value, "published"))
    ]
    if not chosen:
        there = sorted({f"{t.identity.model} on {t.identity.prompt} ({t.identity.mode})" for t, _ in found})
        raise TableError(
            f"nothing to compare in {where}: {'; '.join(there[:8]) or 'no score tables'}. Scan or import first, for "
            "example: pessimal scan model=plain-wordpiece-0"
        )
    return chosen


def _tell(mirror: Mirror, contents: Contents, folder: Path) -> None:
    mirror.summary(contents.summary)
    for name, table in contents.whole_tables().items():
        if len(table) <= MAX_TABLE_ROWS:
            mirror.table(name, table)
    for section in contents.sections:
        for entry in section.entries:
            if entry.figure:
                mirror.image(
                    f"figures/{entry.figure}", folder / "figures" / f"{entry.figure}.png", entry.sentence
                )
