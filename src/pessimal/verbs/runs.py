"""`pessimal runs`: what is in the registry, where it came from, how two results differ, and whether all of it is sound."""

import logging
from dataclasses import asdict
from pathlib import Path

from pessimal.config.schema import RunsAction, RunsConfig, RunsFormat
from pessimal.errors import InputError, WorkError
from pessimal.tracking.conditions import read_condition
from pessimal.tracking.diff import ArtifactDifference, compare_artifacts, paired
from pessimal.tracking.integrity import damages
from pessimal.tracking.lineage import downwards, upwards
from pessimal.tracking.listing import Wanted, in_order, select
from pessimal.tracking.listing_text import as_csv, as_json, as_table, record
from pessimal.tracking.named import find_artifact, find_artifacts
from pessimal.tracking.plain_text import terminal_width, write_out
from pessimal.tracking.registry import Manifest, Registry
from pessimal.tracking.runs_text import artifact_text, damages_text, difference_text

log = logging.getLogger(__name__)

Published = dict[str, tuple[Path, Manifest]]
"""Folder and manifest of every artifact, by its reference."""


def run(config: RunsConfig) -> None:
    """Print what is asked for; nothing is written but the registry's index, where it has to be mended.

    Raises:
        InputError: there is no registry, or nothing of a name, type, model, prompt or figure that is asked for.
        WorkError: `verify` found damage.
    """
    registry = Registry(Path(config.paths.registry))
    if not registry.root.is_dir():
        raise InputError(
            f"there is no registry in {registry.root} yet. Another one: paths.registry=FOLDER; to begin one: "
            "pessimal scan model=plain-wordpiece-0"
        )
    if config.action is RunsAction.verify:
        return _verify(config, registry)
    published = {manifest.reference: (folder, manifest) for folder, manifest in registry.manifests()}
    actions = {RunsAction.list: _list, RunsAction.show: _show, RunsAction.diff: _diff}
    actions[config.action](config, registry, published)


def _list(config: RunsConfig, registry: Registry, published: Published) -> None:
    manifests = [manifest for _, manifest in published.values()]
    conditions = [read_condition(text) for text in config.where]
    wanted = Wanted(
        type=config.type,
        model=config.of_model,
        prompt=config.prompt,
        name=config.name,
        since=config.since_time(),
        where=conditions,
        all=config.all,
    )
    if not manifests and config.format is RunsFormat.table:
        log.info("nothing is published in %s yet", registry.root)
        return
    # Of an empty registry nothing can be mistyped.
    found = select(manifests, wanted) if manifests else []
    found = in_order(found, config.sort, descending=config.descending)
    if config.format is RunsFormat.json:
        write_out(as_json([record(manifest) for manifest in found]))
    elif config.format is RunsFormat.csv:
        write_out(as_csv(found))
    else:
        write_out(as_table(found, width=terminal_width()))
        _report_number(found, manifests, everything=config.all)


def _report_number(found: list[Manifest], manifests: list[Manifest], *, everything: bool) -> None:
    older = len(manifests) - len({(m.type, m.name) for m in manifests})
    hidden = "; older versions are left out (all=true lists them)" if older and not everything else ""
    log.info("%d of %d artifacts%s", len(found), len(manifests), hidden)


def _show(config: RunsConfig, registry: Registry, published: Published) -> None:
    manifests = [manifest for _, manifest in published.values()]
    manifest = find_artifact(config.names[0], manifests)
    folder, _ = published[manifest.reference]
    up, down = (tree(manifest.reference, manifests) for tree in (upwards, downwards))
    if config.format is RunsFormat.json:
        write_out(as_json(record(manifest) | {"made_from": asdict(up), "made_into": asdict(down)}))
        return
    sizes = {
        name: (folder / name).stat().st_size if (folder / name).is_file() else None for name in manifest.files
    }
    write_out(artifact_text(manifest, sizes, up, down, width=terminal_width()))
    log.info("%s", folder)


def _diff(config: RunsConfig, registry: Registry, published: Published) -> None:
    a, b = (find_artifacts(name, [m for _, m in published.values()]) for name in config.names)
    pairs, alone = paired(a, b) if len(a) > 1 or len(b) > 1 else ([(a[0], b[0])], [])
    if not pairs:
        raise InputError(
            f"{config.names[0]} and {config.names[1]} have nothing to put side by side: {_references(a)} and "
            f"{_references(b)}. Name one artifact of each"
        )
    found = [
        compare_artifacts(registry, published[one.reference], published[other.reference])
        for one, other in pairs
    ]
    if config.format is RunsFormat.json:
        pieces = {"pairs": [_difference_record(one) for one in found], "alone": [m.reference for m in alone]}
        write_out(as_json(pieces))
        return
    write_out("\n\n".join(difference_text(one, width=terminal_width()) for one in found))
    if alone:
        write_out(f"\nwithout a partner: {_references(alone)}")


def _verify(config: RunsConfig, registry: Registry) -> None:
    only, files = None, []
    if config.names:
        published = {manifest.reference: folder for folder, manifest in registry.manifests()}
        manifests = [manifest for _, manifest in registry.manifests()]
        only = [published[m.reference] for m in find_artifacts(config.names[0], manifests)]
    found = list(damages(registry, only=only, checked=files.append))
    if only is None:
        registry.manifests()  # mends the index, after it was looked at
    checked = f"{sum(files)} files of {len(files)} artifacts in {registry.root}"
    if config.format is RunsFormat.json:
        write_out(
            as_json({"files": sum(files), "artifacts": len(files), "damages": [asdict(d) for d in found]})
        )
    elif found:
        write_out(damages_text(found))
    if found:
        raise WorkError(
            f"{checked} were checked: {len(found)} things are not as they were published (listed above)"
        )
    log.info("%s are as they were published", checked)


def _difference_record(found: ArtifactDifference) -> dict:
    """A difference as JSON has it: tables as lists of their rows."""
    plain = vars(found) | {
        name: [asdict(d) for d in getattr(found, name)] for name in ("configuration", "provenance", "summary")
    }
    tables = {
        name: vars(table) | {"columns": table.columns.to_dict("records")}
        for name, table in found.tables.items()
    }
    return plain | {"tables": tables}


def _references(manifests: list[Manifest]) -> str:
    return ", ".join(manifest.reference for manifest in manifests)
