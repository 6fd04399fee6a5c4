"""The page: one self-contained HTML file over a published comparison.

Knows a comparison's folder and HTML. No network; figures are embedded; every string that came from a vocabulary or a
file is escaped, or carried as data that no browser takes for markup. Only our own scripts run, by their digests, and
without them everything but the explorer and the charts is there.
"""

import base64
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from PIL import Image

from pessimal.figures.words import literal
from pessimal.report.charts import chart_of
from pessimal.report.contents import Entry, Section, read_sections
from pessimal.report.edits import View, from_json
from pessimal.report.explorer import Explorer
from pessimal.report.scripts import library, own_script, policy

# Long tables stay in the artifact; the page shows their beginning and says so.
MAX_ROWS = 400


@dataclass(frozen=True)
class Comparison:
    """A published comparison to be shown."""

    reference: str
    """`comparison/name:vN`."""
    folder: Path
    created: str
    """UTC time of publishing."""


def page(comparisons: list[Comparison], *, title: str, explorer: Explorer | None = None) -> str:
    """The HTML of the page, UTF-8; with scripts where there is an explorer or a chart for them."""
    environment = Environment(
        loader=PackageLoader("pessimal.report", "."),
        autoescape=select_autoescape(default_for_string=True, default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = _cell
    environment.filters["json"] = _json
    charts: list[dict] = []
    parts = [_part(comparison, number, charts) for number, comparison in enumerate(comparisons)]
    scripts = [own_script(), *library()] if explorer or charts else []
    return environment.get_template("page.html.jinja").render(
        title=title,
        parts=parts,
        explorer=explorer,
        charts=charts,
        policy=Markup(policy(scripts)),
        script=scripts[0] if scripts else None,
        library=scripts[1:],
    )


def _part(comparison: Comparison, number: int, charts: list[dict]) -> dict:
    sections, version = read_sections(comparison.folder)
    provenance = pd.read_parquet(comparison.folder / "tables" / "provenance.parquet")
    return {
        "reference": comparison.reference,
        "created": comparison.created,
        "version": version,
        "models": provenance["model"].nunique(),
        "of_scans": "certified" in provenance,
        "sections": [
            _section(comparison.folder, section, f"part{number}-section{i}", charts)
            for i, section in enumerate(sections)
        ],
        "provenance": _table(provenance),
    }


def _section(folder: Path, section: Section, anchor: str, charts: list[dict]) -> dict:
    entries = [
        _entry(folder, entry) | {"chart": _chart(folder, entry, section, charts)} for entry in section.entries
    ]
    return {"anchor": anchor, "title": section.title, "sentence": section.sentence, "entries": entries}


def _chart(folder: Path, entry: Entry, section: Section, charts: list[dict]) -> int | None:
    """The number under which an entry's chart is carried, if it has one."""
    chart = chart_of(folder, entry, section.entries)
    if chart is None:
        return None
    charts.append(chart)
    return len(charts) - 1


def _entry(folder: Path, entry: Entry) -> dict:
    image = table = None
    if entry.figure:
        image = (
            "data:image/webp;base64,"
            + base64.b64encode(_small(folder / "figures" / f"{entry.figure}.png")).decode()
        )
    if entry.table:
        frame = pd.read_parquet(folder / "tables" / f"{entry.table}.parquet")
        for column, value in entry.where.items():
            frame = frame[frame[column] == value]
        table = _table(frame.drop(columns=list(entry.where)))
    return {
        "title": entry.title,
        "sentence": entry.sentence,
        "image": image,
        "table": table,
        "figure": entry.figure,
        "views": _views(folder / "views" / f"{entry.views}.json") if entry.views else [],
    }


def _views(file: Path) -> list[View]:
    return from_json(file.read_text(encoding="utf-8"))


def _small(file: Path) -> bytes:
    """A figure as a lossless WebP of 64 colours, a sixth of the PNG's bytes; the artifact keeps that and the SVG.

    No SVG, since its text would be set in whatever font the reader's machine puts in place of ours. Measured over
    fifteen models: a PNG of 256 colours takes 1.7 times the bytes, lossy WebP 1.5 times.
    """
    sink = io.BytesIO()
    with Image.open(file) as image:
        few = image.convert("RGB").quantize(64, dither=Image.Dither.NONE)
        few.convert("RGB").save(sink, "WEBP", lossless=True, quality=80, method=4)
    return sink.getvalue()


def _json(document: object) -> Markup:
    """A document for a JSON data block: ASCII, and without the three characters that could end the block."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _table(frame: pd.DataFrame) -> dict:
    frame = frame.dropna(axis="columns", how="all")
    return {
        "columns": list(frame.columns),
        "numeric": [pd.api.types.is_numeric_dtype(frame[column]) for column in frame.columns],
        "rows": frame.head(MAX_ROWS).to_numpy(dtype=object).tolist(),
        "left_out": max(0, len(frame) - MAX_ROWS),
    }


def _cell(value: object) -> str:
    """A table cell as text: numbers to four digits, control characters visible, nothing for what is missing."""
    if isinstance(value, str):
        return literal(value, limit=60)
    if value is None or value is pd.NA or value != value:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:.4g}"
    return f"{int(value):,}"
