"""The page: one self-contained HTML file over a published comparison.

Knows a comparison's folder and HTML. No network, no script; figures are embedded, and every string that came from
a vocabulary or a file is escaped.
"""

import base64
import io
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from PIL import Image

from pessimal.figures.words import literal
from pessimal.report.contents import Entry, Section, read_sections
from pessimal.report.edits import View, from_json

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


def page(comparisons: list[Comparison], *, title: str) -> str:
    """The HTML of the page, UTF-8."""
    environment = Environment(
        loader=PackageLoader("pessimal.report", "."),
        autoescape=select_autoescape(default_for_string=True, default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = _cell
    template = environment.get_template("page.html.jinja")
    return template.render(
        title=title,
        parts=[_part(comparison, number) for number, comparison in enumerate(comparisons)],
    )


def _part(comparison: Comparison, number: int) -> dict:
    sections, version = read_sections(comparison.folder)
    provenance = pd.read_parquet(comparison.folder / "tables" / "provenance.parquet")
    return {
        "reference": comparison.reference,
        "created": comparison.created,
        "version": version,
        "models": provenance["model"].nunique(),
        "of_scans": "certified" in provenance,
        "sections": [
            _section(comparison.folder, section, f"part{number}-section{i}")
            for i, section in enumerate(sections)
        ],
        "provenance": _table(provenance),
    }


def _section(folder: Path, section: Section, anchor: str) -> dict:
    entries = [_entry(folder, entry) for entry in section.entries]
    return {"anchor": anchor, "title": section.title, "sentence": section.sentence, "entries": entries}


def _entry(folder: Path, entry: Entry) -> dict:
    image = table = None
    if entry.figure:
        image = (
            "data:image/png;base64,"
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
    """A figure's PNG with 256 colours, a third of the bytes: a page over fifteen models would have 26 MB otherwise.

    PNG, since an SVG's text would be set in whatever font the reader's machine puts in place of ours.
    """
    sink = io.BytesIO()
    with Image.open(file) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(sink, "PNG", optimize=True)
    return sink.getvalue()


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
