"""A list of artifacts as people and as machines read it: columns, CSV, JSON.

Pure: takes manifests, gives text.
"""

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any

from pessimal.tracking.conditions import figures
from pessimal.tracking.listing import created, key_figures
from pessimal.tracking.plain_text import cell, columns, shown
from pessimal.tracking.registry import Manifest


def as_table(manifests: Sequence[Manifest], *, width: int | None) -> str:
    """One line an artifact; where all are of one type, its key figures have columns of their own."""
    chosen = [key_figures(m) for m in manifests]
    names = list(dict.fromkeys(name for one in chosen for name in one))
    one_type = len({m.type for m in manifests}) == 1
    if one_type:
        header = ["artifact", "created (UTC)", "run", *map(shown, names)]
        rows = [
            [*_begin(m), *(one.get(name) for name in names)] for m, one in zip(manifests, chosen, strict=True)
        ]
    else:
        header = ["type", "artifact", "created (UTC)", "run", "figures"]
        rows = [[m.type, *_begin(m), _named_values(one)] for m, one in zip(manifests, chosen, strict=True)]
    # What an artifact is called is never cut: it is what one types next.
    return columns(header, rows, width=width, keep=len(header) - (len(names) if one_type else 1))


def as_csv(manifests: Sequence[Manifest]) -> str:
    """One row an artifact, and a column for every figure that one of them has. Safe to open in a spreadsheet."""
    all_figures = [figures(m.summary) for m in manifests]
    names = sorted({name for one in all_figures for name in one})
    file = io.StringIO()
    # Lines that end in a line feed alone would leave a carriage return in a cell unquoted: the row would be torn in two.
    writer = csv.writer(file, lineterminator="\r\n")
    header = ["type", "name", "version", "created", "run_id", "key", "config_hash", "inputs"]
    writer.writerow([*header, *(cell(f"summary.{name}") for name in names)])
    for manifest, one in zip(manifests, all_figures, strict=True):
        fixed = [getattr(manifest, name) for name in header[:-1]]
        values = [" ".join(manifest.inputs), *(one.get(name) for name in names)]
        writer.writerow([cell(json.dumps(v) if isinstance(v, list) else v) for v in [*fixed, *values]])
    return file.getvalue().rstrip("\r\n")


def record(manifest: Manifest) -> dict[str, Any]:
    """An artifact as JSON has it; its `path` counts from the registry's root."""
    return {
        "reference": manifest.reference,
        "path": f"{manifest.type}/{manifest.name}/v{manifest.version}",
        **vars(manifest),
    }


def as_json(value: Any) -> str:
    """JSON in ASCII; a number that JSON cannot have becomes the text "NaN", "Infinity" or "-Infinity"."""
    return json.dumps(_finite(value), indent=2)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _begin(manifest: Manifest) -> list[str | None]:
    made = created(manifest)
    when = f"{made:%Y-%m-%d %H:%M}" if made else shown(manifest.created)
    return [f"{manifest.name}:v{manifest.version}", when, manifest.run_id]


def _named_values(one: dict[str, Any]) -> str:
    return "  ".join(f"{shown(name)}={shown(value)}" for name, value in one.items())
