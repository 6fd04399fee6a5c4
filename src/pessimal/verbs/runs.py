"""`pessimal runs`: what is in the registry, where it came from, how two results differ, and whether all of it is sound."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from pessimal.config.schema import RunsAction, RunsConfig, RunsFormat
from pessimal.errors import InputError, WorkError
from pessimal.tracking.diff import ArtifactDifference, Difference, TableDifference, compare_artifacts, paired
from pessimal.tracking.integrity import damages
from pessimal.tracking.listing import (
    FIELDS,
    FIGURE,
    figures,
    find_artifacts,
    frame,
    in_order,
    key_figures,
    lineage,
    select,
)
from pessimal.tracking.printing import (
    as_csv,
    as_json,
    shown,
    table_text,
    terminal_width,
    tree_text,
    visible,
    write_out,
)
from pessimal.tracking.registry import Manifest, Registry

log = logging.getLogger(__name__)

Published = dict[str, tuple[Path, Manifest]]
"""Folder and manifest of every artifact, by its reference."""
SAME = "  the same"


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
    if not published and config.format is RunsFormat.table:
        log.info("nothing is published in %s yet", registry.root)
        return
    artifacts = frame(manifest for _, manifest in published.values())
    if published:  # of an empty registry nothing can be mistyped
        artifacts = select(
            artifacts,
            type=config.type,
            model=config.of_model,
            prompt=config.prompt,
            name=config.name,
            since=config.since_time(),
            where=config.where,
            all=config.all,
        )
        artifacts = in_order(artifacts, config.sort, descending=config.descending)
    found = [published[reference][1] for reference in artifacts.index]
    if config.format is RunsFormat.json:
        write_out(as_json([record(manifest) for manifest in found]))
    elif config.format is RunsFormat.csv:
        write_out(as_csv(for_spreadsheet(artifacts)))
    else:
        write_out(list_text(found, width=terminal_width()))
        older = len(published) - len({(m.type, m.name) for _, m in published.values()})
        hidden = "; older versions are left out (all=true lists them)" if older and not config.all else ""
        log.info("%d of %d artifacts%s", len(found), len(published), hidden)


def list_text(found: Sequence[Manifest], *, width: int | None) -> str:
    """One line an artifact; where all are of one type, its key figures have columns of their own. What an artifact is
    called is never cut: it is what one types next."""
    chosen = [key_figures(m) for m in found]
    names = list(dict.fromkeys(name for one in chosen for name in one))
    begin = [[f"{m.name}:v{m.version}", m.created[:16].replace("T", " "), m.run_id] for m in found]
    header = ["artifact", "created (UTC)", "run"]
    if len({m.type for m in found}) == 1:
        rows = [[*row, *(one.get(name) for name in names)] for row, one in zip(begin, chosen, strict=True)]
        return table_text([*header, *names], rows, width=width, keep=3)
    values = ["  ".join(f"{visible(name)}={shown(value)}" for name, value in one.items()) for one in chosen]
    rows = [[m.type, *row, value] for m, row, value in zip(found, begin, values, strict=True)]
    return table_text(["type", *header, "figures"], rows, width=width, keep=4)


def for_spreadsheet(artifacts: pd.DataFrame) -> pd.DataFrame:
    """The fields of every artifact, and every figure that one of them has, by its name."""
    there = artifacts.dropna(axis=1, how="all").columns
    chosen = artifacts[[*FIELDS, *sorted(name for name in there if name.startswith(FIGURE))]]
    return chosen.assign(inputs=chosen["inputs"].map(" ".join))


def record(manifest: Manifest) -> dict[str, Any]:
    """An artifact as JSON has it; its `path` counts from the registry's root."""
    path = f"{manifest.type}/{manifest.name}/v{manifest.version}"
    return {"reference": manifest.reference, "path": path, **vars(manifest)}


def _show(config: RunsConfig, registry: Registry, published: Published) -> None:
    manifests = [manifest for _, manifest in published.values()]
    [manifest, *more] = find_artifacts(config.names[0], manifests)
    if more:
        several = _references([manifest, *more])
        raise InputError(f"the W&B run {config.names[0]} published {several}. Type one of these")
    folder, _ = published[manifest.reference]
    up, down = (lineage(manifest.reference, manifests, upwards=way) for way in (True, False))
    if config.format is RunsFormat.json:
        write_out(as_json(record(manifest) | {"made_from": up, "made_into": down}))
        return
    width = terminal_width()
    fields = [[name, getattr(manifest, name)] for name in FIELDS[3:-1] if getattr(manifest, name) is not None]
    summary = [[visible(name), value] for name, value in figures(manifest.summary).items()]
    files = [
        [name, (folder / name).stat().st_size if (folder / name).is_file() else "missing", digest[:12]]
        for name, digest in manifest.files.items()
    ]
    parts = [
        visible(manifest.reference),
        table_text(["", ""], fields, width=width, keep=1, indent=2),
        "\nfigures",
        table_text(["", ""], summary, width=width, keep=1, indent=2) if summary else "  none",
        f"\nfiles ({len(files)})",
        table_text(["file", "bytes", "sha256"], files, width=width, keep=1, indent=2),
        "\nmade from",
        tree_text(up, width=width, indent=2),
        "\nwhat was made from it",
        tree_text(down, width=width, indent=2),
    ]
    write_out("\n".join(parts))
    log.info("%s", folder)


def _diff(config: RunsConfig, registry: Registry, published: Published) -> None:
    a, b = (find_artifacts(name, [m for _, m in published.values()]) for name in config.names)
    pairs, alone = paired(a, b) if len(a) > 1 or len(b) > 1 else ([(a[0], b[0])], [])
    if not pairs:
        raise InputError(
            f"{config.names[0]} and {config.names[1]} have nothing to put side by side: {_references(a)} and "
            f"{_references(b)}. Name one artifact of each"
        )
    found = [compare_artifacts(registry, published[x.reference], published[y.reference]) for x, y in pairs]
    if config.format is RunsFormat.json:
        pieces = {"pairs": [asdict(one) for one in found], "alone": [m.reference for m in alone]}
        write_out(as_json(pieces))
        return
    write_out("\n\n".join(difference_text(one, width=terminal_width()) for one in found))
    if alone:
        write_out(f"\nwithout a partner: {_references(alone)}")


def difference_text(difference: ArtifactDifference, *, width: int | None) -> str:
    """Everything that differs, in sections; numbers are B − A."""
    d, note = difference, difference.configuration_note
    parts = [f"A  {visible(d.a)}", f"B  {visible(d.b)}"]
    parts += ["\nconfiguration", f"  {visible(note)}" if note else _values(d.configuration, width)]
    parts += ["\nprovenance", _values(d.provenance, width)]
    parts += ["\ninputs", *(_sides(d.inputs_a, d.inputs_b) or [SAME])]
    parts += ["\nfigures", _values(d.summary, width)]
    parts += [f"\nfiles ({d.files_same} the same to the byte)"]
    parts += [f"  differs: {visible(name)}" for name in d.files_differ] + _sides(d.files_a, d.files_b)
    for name, table in d.tables.items():
        parts += [f"\n{visible(name)}", *_table(table, width)]
    return "\n".join(parts)


def _sides(a: Sequence[str], b: Sequence[str]) -> list[str]:
    return [f"  only in {side}: {visible(name)}" for side, names in (("A", a), ("B", b)) for name in names]


def _values(differing: Sequence[Difference], width: int | None) -> str:
    rows = [[visible(d.name), _or_null(d.a), _or_null(d.b), d.difference] for d in differing]
    header = ["", "A", "B", "B − A"]
    return table_text(header, rows, width=width, keep=1, indent=2) if rows else SAME


def _table(table: TableDifference, width: int | None) -> list[str]:
    if table.unmatched:
        return [f"  {table.unmatched}: not compared ({table.only_a} rows in A, {table.only_b} in B)"]
    lines = [
        f"  {table.matched} rows in both, matched by {', '.join(map(visible, table.keys))}",
        f"  rows only in A: {table.only_a}, only in B: {table.only_b}",
        *(f"  column{line[6:]}" for line in _sides(table.columns_a, table.columns_b)),
    ]
    if table.matched and table.columns:
        names = [
            "column",
            "rows that differ",
            "largest B − A",
            "largest at",
            "median |B − A|",
            "n",
            "in one only",
        ]
        rows = [
            [[*map(_or_null, value)] if isinstance(value, tuple) else value for value in one.values()]
            for one in table.columns
        ]
        lines.append(table_text(names, rows, width=width, keep=1, indent=2))
    return lines


def _or_null(value: Any) -> Any:
    return "null" if value is None else value


def _verify(config: RunsConfig, registry: Registry) -> None:
    only, files = None, []
    if config.names:
        published = {manifest.reference: (folder, manifest) for folder, manifest in registry.manifests()}
        named = find_artifacts(config.names[0], [manifest for _, manifest in published.values()])
        only = [published[m.reference][0] for m in named]
    found = list(damages(registry, only=only, checked=files.append))
    if only is None:
        registry.manifests()  # mends the index, after it was looked at
    checked = f"{sum(files)} files of {len(files)} artifacts in {registry.root}"
    if config.format is RunsFormat.json:
        listed = [asdict(damage) for damage in found]
        write_out(as_json({"files": sum(files), "artifacts": len(files), "damages": listed}))
    elif found:
        write_out("\n".join(f"{visible(d.where)}: {visible(d.what)}\n    {visible(d.mend)}" for d in found))
    if found:
        raise WorkError(
            f"{checked} were checked: {len(found)} things are not as they were published (listed above)"
        )
    log.info("%s are as they were published", checked)


def _references(manifests: Sequence[Manifest]) -> str:
    return ", ".join(manifest.reference for manifest in manifests)
