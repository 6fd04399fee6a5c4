"""`pessimal runs`: what is in the registry, where it came from, how two results differ, and whether
all of it is sound."""

import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from pessimal.config.schema import RunsAction, RunsConfig, RunsFormat
from pessimal.errors import InputError, VerdictError, did_you_mean
from pessimal.tracking.integrity import damages
from pessimal.tracking.registry import Manifest, Registry, figures, find_artifact
from pessimal.verbs.printing import (
    as_csv,
    as_json,
    shown,
    table_text,
    terminal_width,
    visible,
    write_out,
)
from pessimal.verbs.runs_diff import difference
from pessimal.verbs.runs_frame import (
    FIELDS,
    FIGURE,
    frame,
    in_order,
    key_figures,
    lineage,
    select,
)

log = logging.getLogger(__name__)

Published = dict[str, tuple[Path, Manifest]]
"""Folder and manifest of every artifact, by its reference."""


def run(config: RunsConfig) -> None:
    """Print what is asked for; nothing is written.

    Raises:
        InputError: there is no registry, or nothing of a name, type, model, prompt, figure or table
            that is asked for.
        VerdictError: `verify` found damage.
    """
    registry = Registry(Path(config.paths.registry))
    if not registry.root.is_dir():
        raise InputError(
            f"there is no registry in {registry.root} yet. Another one: paths.registry=FOLDER; to "
            "begin one: pessimal scan model=plain-wordpiece-0"
        )
    # A verification of everything says itself what cannot be read.
    whole = config.action is RunsAction.verify and not config.names
    published = {m.reference: (folder, m) for folder, m in ([] if whole else registry.manifests())}
    manifests = [manifest for _, manifest in published.values()]
    names = [_without_folder(name, registry.root) for name in config.names]
    named = [published[find_artifact(name, manifests).reference] for name in names]
    match config.action:
        case RunsAction.list:
            _list(config, registry, published)
        case RunsAction.show if config.format is RunsFormat.csv:
            registry.verify(named[0][0])
            write_out(as_csv(pd.read_parquet(chosen_table(*named[0], wanted=config.table))))
        case RunsAction.show:
            _show(config, *named[0], manifests)
        case RunsAction.diff:
            _diff(config, registry, *named)
        case RunsAction.verify:
            _verify(config, registry, [folder for folder, _ in named] or None)


def _without_folder(given: str, root: Path) -> str:
    """`type/name/vN` of a folder in the registry, as the verbs print it; other names as they
    are."""
    folder, root = Path(given).resolve(), root.resolve()
    inside = folder.is_dir() and folder.is_relative_to(root)
    return folder.relative_to(root).as_posix() if inside else given


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
        older = len({(m.type, m.name) for _, m in published.values()}) < len(published)
        hidden = "; older versions are left out (all=true lists them)"
        left_out = hidden if older and not config.all else ""
        log.info("%d of %d artifacts%s", len(found), len(published), left_out)


def list_text(found: Sequence[Manifest], *, width: int | None) -> str:
    """One line an artifact; where all are of one type, its key figures have columns of their own.
    What an artifact is called is never cut: it is what one types next."""
    chosen = [key_figures(m) for m in found]
    names = list(dict.fromkeys(name for one in chosen for name in one))
    begin = [[f"{m.name}:v{m.version}", m.created[:16].replace("T", " "), m.run_id] for m in found]
    header = ["artifact", "created (UTC)", "run"]
    if len({m.type for m in found}) == 1:
        header += names
        rows = [[*row, *map(one.get, names)] for row, one in zip(begin, chosen, strict=True)]
        return table_text(header, rows, width=width, keep=3)
    values = ["  ".join(f"{visible(k)}={shown(v)}" for k, v in one.items()) for one in chosen]
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


def chosen_table(folder: Path, manifest: Manifest, *, wanted: str | None) -> Path:
    """The parquet file of an artifact's table of this name; without a name, of the only one.

    Raises:
        InputError: there is none such, or there are several and none is named.
    """
    files = {
        PurePosixPath(name).with_suffix("").as_posix().removeprefix("tables/"): folder / name
        for name in manifest.files
        if name.endswith(".parquet")
    }
    if wanted is None and len(files) == 1:
        return next(iter(files.values()))
    if wanted in files:
        return files[wanted]
    show = f"pessimal runs show {manifest.reference}"
    if not files:
        raise InputError(f"{manifest.reference} has no table; its files: {show}")
    asked = (
        f"has {len(files)} tables"
        if wanted is None
        else f"has no table {wanted!r}.{did_you_mean(wanted, list(files))} Its tables"
    )
    raise InputError(
        f"{manifest.reference} {asked}: {', '.join(sorted(files))}. Type for example: {show} "
        f"format=csv table={min(files)}"
    )


def _show(
    config: RunsConfig, folder: Path, manifest: Manifest, manifests: Sequence[Manifest]
) -> None:
    up, down = (lineage(manifest.reference, manifests, upwards=way) for way in (True, False))
    if config.format is RunsFormat.json:
        write_out(as_json(record(manifest) | {"made_from": up, "made_into": down}))
        return
    fields = {name: getattr(manifest, name) for name in FIELDS[3:-1]}
    sizes = {
        name: (folder / name).stat().st_size if (folder / name).is_file() else "missing"
        for name in manifest.files
    }
    sections = {
        "": [[name, value] for name, value in fields.items() if value is not None],
        "figures": [[visible(name), value] for name, value in figures(manifest.summary).items()],
        f"files ({len(sizes)}): bytes, sha256": [
            [name, size, manifest.files[name][:12]] for name, size in sizes.items()
        ],
        "made from": [[lineage_line(node)] for node in up],
        "what was made from it": [[lineage_line(node)] for node in down],
    }
    parts = [visible(manifest.reference)]
    for title, rows in sections.items():
        parts += [f"\n{title}"] if title else []
        none = [""] * len(rows[0]) if rows else []
        text = (
            table_text(none, rows, width=terminal_width(), keep=1, indent=2) if rows else "  none"
        )
        parts.append(text)
    write_out("\n".join(parts))
    log.info("%s", folder)


def lineage_line(node: dict[str, Any]) -> str:
    """One of `runs_frame.lineage`, further in the deeper it is."""
    notes = ("" if node["known"] else " (not in this registry)") + " (see above)" * node["repeated"]
    return "· " * (node["depth"] - 1) + node["reference"] + notes


def _diff(
    config: RunsConfig, registry: Registry, a: tuple[Path, Manifest], b: tuple[Path, Manifest]
) -> None:
    found = difference(registry, a, b)
    if config.format is RunsFormat.json:
        rows = found.to_dict("records")
        write_out(as_json({"a": a[1].reference, "b": b[1].reference, "differences": rows}))
    elif config.format is RunsFormat.csv:
        write_out(as_csv(found))
    else:
        write_out(f"A  {a[1].reference}\nB  {b[1].reference}\n")
        write_out(difference_text(found, width=terminal_width()))


def difference_text(found: pd.DataFrame, *, width: int | None) -> str:
    """A line a difference; `null` where a value is none, so that it can be told from what is not
    there."""
    if found.empty:
        return "no difference"
    rows = [
        [visible(part), visible(name), *("null" if v is None else v for v in (a, b)), *rest]
        for part, name, a, b, *rest in found.to_numpy(dtype=object).tolist()
    ]
    header = ["", "", "A", "B", "B − A", "rows that differ", "largest at"]
    return table_text(header, rows, width=width, keep=2)


def _verify(config: RunsConfig, registry: Registry, only: Sequence[Path] | None) -> None:
    files: list[int] = []
    found = list(damages(registry, only=only, checked=files.append))
    checked = f"{sum(files)} files of {len(files)} artifacts in {registry.root}"
    if config.format is RunsFormat.json:
        listed = [asdict(damage) for damage in found]
        write_out(as_json({"files": sum(files), "artifacts": len(files), "damages": listed}))
    elif found:
        lines = [f"{visible(d.where)}: {visible(d.what)}\n    {visible(d.mend)}" for d in found]
        write_out("\n".join(lines))
    if found:
        raise VerdictError(
            f"{checked} were checked: {len(found)} things are not as they were published (listed "
            "above)"
        )
    log.info("%s are as they were published", checked)
