"""Figures of declarations, on demand, and on disk as SVG and PNG: the same bytes each time.

Matplotlib's SVG is made small, and fit to stand beside others in a page: its colours, ids and
tooltips. Knows tables, declarations and files; knows no verb and no page.
"""

import io
import logging
import multiprocessing
import os
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from pessimal.errors import TableError
from pessimal.plots import Forest, Heatmap, Lines, Plot, Scatter, TokenTable, Violin, tabs_of
from pessimal.plots.forest import forest
from pessimal.plots.heatmap import heatmap, token_table
from pessimal.plots.lines import lines
from pessimal.plots.scatter import scatter, violin
from pessimal.plots.style import FONTS, INK, MODEL_COLUMNS, PAPER, SIZE, VARIABLES, needed, styled

log = logging.getLogger(__name__)

PRIMITIVES: dict[type[Plot], Callable[[Any, pd.DataFrame], Figure]] = {
    Forest: forest,
    Heatmap: heatmap,
    Scatter: scatter,
    Lines: lines,
    Violin: violin,
    TokenTable: token_table,
}
NAMED = ("row", "column", "group", "name", "x", "thin", "panel")
"""Fields of declarations whose columns may hold models."""
FEW = 8
"""Figures from which on the drawing is reported."""
MANY = 32
"""Figures from which on processes draw side by side."""
MOST = 8
"""Such processes."""


_Job = tuple[str, str, str, Plot, pd.DataFrame, bool]
"""One figure: the result's name, tab, stem, declaration, rows, and whether there is a PNG."""


def draw(
    plot: Plot,
    table: pd.DataFrame,
    labels: Mapping[str, str] | None = None,
) -> dict[str, Figure]:
    """The figures of a declaration, by tab.

    Args:
        plot: what to draw; its own `data` comes before the table.
        table: of the result.
        labels: names of models as people see them, by model.

    Returns:
        A figure for each combination of values of the tab columns, in order of first appearance;
        its name is the values joined by " · ", empty where the table has no tab column. Nothing
        where there is nothing to draw.

    Raises:
        TableError: the table lacks a column that is declared.
    """
    plot, pieces = _pieces(plot, table, dict(labels or {}))
    primitive = PRIMITIVES[type(plot)]
    with styled():
        return {tab: primitive(plot, rows) for tab, rows in pieces.items()}


def save_figures(
    results: Sequence[Any],
    folder: Path,
    labels: Mapping[str, str] | None = None,
    begin: Callable[[int], AbstractContextManager[Callable[[str], None]]] | None = None,
) -> dict[str, dict[str, str]]:
    """Write `folder/STEM.svg` for every figure of every result, and `folder/STEM.png` for the first
    tab of each.

    A figure that cannot be drawn is logged and left out: numbers are not lost for it. A full disk
    is raised.

    Args:
        results: each has a `name`, a `table` and a `plot`, the declaration of how to draw it, or
            None (`tables.result.Result`).
        begin: given the number of figures, a context whose function is called with the stem of each
            that is done.

    Returns:
        The stems by tab, by name of the result. A stem is the result's name where there is one
        figure, else `NAME--TAB`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    jobs: list[_Job] = []
    for result in results:
        if result.plot is None:
            continue
        try:
            plot, pieces = _pieces(result.plot, result.table, dict(labels or {}))
        except TableError as error:
            log.error("the figure of %s cannot be drawn: %s", result.name, error)
            continue
        for place, (tab, stem) in enumerate(_stems(result.name, pieces)):
            jobs.append((result.name, tab, stem, plot, pieces[tab], place == 0))
    saved: dict[str, dict[str, str]] = {}
    progress = begin(len(jobs)) if begin and len(jobs) > FEW else nullcontext(lambda stem: None)
    with progress as step, _processes(len(jobs)) as in_order:
        errors = in_order(partial(_written, folder=folder), jobs)
        for (name, tab, stem, *_), wrong in zip(jobs, errors, strict=True):
            if wrong is None:
                saved.setdefault(name, {})[tab] = stem
            else:
                log.error("the figure %s cannot be drawn: %s", stem, wrong)
            step(stem)
    return saved


@contextmanager
def _processes(figures: int) -> Iterator[Callable[..., Iterable[str | None]]]:
    """`map`, by processes side by side where figures are many. They are forks: a fresh process
    loads its libraries for as long as it then draws."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if figures < MANY or cores < 2:
        yield map
        return
    with ProcessPoolExecutor(min(cores, MOST), multiprocessing.get_context("fork")) as pool:
        yield pool.map


def _written(job: _Job, folder: Path) -> str | None:
    """Draw and write one figure; what is wrong where it cannot be drawn."""
    _, _, stem, plot, rows, raster = job
    try:
        with styled():
            save(PRIMITIVES[type(plot)](plot, rows), folder, stem, raster=raster)
    except OSError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def vector(figure: Figure, stem: str) -> str:
    """The figure as SVG, transparent, fit to stand in a page; figures of one page differ in the
    stem. Under `styled`."""
    matplotlib.rcParams["svg.hashsalt"] = stem
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", facecolor="none", metadata={"Date": None, "Creator": None})
    return finished(buffer.getvalue(), stem=stem, tips=figure.__dict__.get("tips", {}))


def save(figure: Figure, folder: Path, stem: str, *, raster: bool = True) -> None:
    """Write `folder/stem.svg`, transparent, for the page, and with `raster` `folder/stem.png`,
    white, for everything else.

    Deterministic on one machine and one matplotlib: no dates, no version, no random ids. A glyph
    that no installed font has is an empty box in the PNG only. Under `styled`.
    """
    (folder / f"{stem}.svg").write_text(vector(figure, stem), encoding="utf-8")
    if raster:
        figure.savefig(folder / f"{stem}.png", facecolor=PAPER, metadata={"Software": None})


def _pieces(
    plot: Plot, table: pd.DataFrame, labels: dict[str, str]
) -> tuple[Plot, dict[str, pd.DataFrame]]:
    """The declaration with people's names, and the rows of each of its figures by tab."""
    table = plot.data if plot.data is not None else table
    for column, wanted in plot.where.items():
        needed(table, column)
        values = wanted if isinstance(wanted, list | tuple | set) else [wanted]
        table = table[table[column].isin(values)]
    roles: list[Any] = [*MODEL_COLUMNS, *(getattr(plot, name, None) for name in NAMED)]
    for column in {*roles} & {*table.columns} if labels else ():
        if table[column].dtype.kind not in "biufc":
            names = [labels.get(value, value) for value in table[column].tolist()]
            table = table.assign(**{column: names})
    fields = [getattr(plot, name, None) for name in ("estimate", "value", "y")]
    return plot, dict(tabs_of(plot.tabs, table, next(filter(None, fields), None)))


def _stems(name: str, tabs: Mapping[str, object]) -> list[tuple[str, str]]:
    """Each tab, and a name of its files: letters and digits only, none twice."""
    if len(tabs) == 1:
        return [(tab, name) for tab in tabs]
    stems: dict[str, str] = {}
    for tab in tabs:
        safe = re.sub(r"[^\w.]+", "-", tab, flags=re.ASCII).strip("-.") or "all"
        stem, again = f"{name}--{safe}", 2
        while stem.lower() in stems:  # some file systems know no case
            stem, again = f"{name}--{safe}-{again}", again + 1
        stems[stem.lower()] = stem
    return list(zip(tabs, stems.values(), strict=True))


_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_MARKED = re.compile(r"url\(#([^)]+)\)")
_LONG = re.compile(r"-?\d*\.\d{3,}(?:e-?\d+)?")
_SIZE = f"{SIZE:g}px"
_DEFAULTS = {("font-size", _SIZE), ("stroke-linejoin", "round"), ("text-anchor", "start")}
_ROOT = {
    "font-family": FONTS,
    "font-size": _SIZE,
    "stroke-linejoin": "round",
    "role": "img",
    "fill": INK,
    "style": f"fill:var({VARIABLES[INK]},{INK})",
}


def finished(svg: str, *, stem: str, tips: Mapping[str, str]) -> str:
    """The figure as it is published.

    Ink, greys and paper become CSS variables (`var(--ink, #222222)`, see `style.VARIABLES`) beside
    the plain colour, so that a page replaces them and any other viewer draws it. Ids are the stem's
    own. Text stays text. What carries no meaning goes: metadata, the style sheet (it would rule the
    page), groups around one thing, digits below 1/100 point.

    Args:
        svg: as matplotlib wrote it.
        stem: of the file; figures of one page differ in it.
        tips: what the pointer reads, by id of the group.
    """
    ET.register_namespace("", _SVG[1:-1])
    root = ET.fromstring(svg)
    for part in root.findall(f"{_SVG}metadata"):
        root.remove(part)
    links = (node.get(_LINK, "").removeprefix("#") for node in root.iter())
    values = (value for node in root.iter() for value in node.attrib.values())
    marked = (id for value in values for id in _MARKED.findall(value))
    referred, prefix = {*links, *marked}, "f" + sha256(stem.encode()).hexdigest()[:8]
    for node in root.iter():
        _rewrite(node, prefix, referred, tips)
    _flatten(root)
    root.attrib.pop("version", None)
    root.attrib |= _ROOT
    return ET.tostring(root, encoding="unicode") + "\n"


def _rewrite(node: ET.Element, prefix: str, referred: set[str], tips: Mapping[str, str]) -> None:
    """One element's ids, colours, numbers and tooltip."""
    identifier, link = node.attrib.pop("id", None), node.attrib.pop(_LINK, None)
    if identifier is not None and identifier in tips:
        title = ET.Element(f"{_SVG}title")
        title.text = tips[identifier]
        node.insert(0, title)
        node.set("class", "tip")
    elif identifier in referred:
        node.set("id", f"{prefix}{identifier}")
    if link is not None:
        node.set("href", f"#{prefix}{link[1:]}" if link.startswith("#") else link)
    if node.get("transform", "").startswith("rotate(-0 "):
        del node.attrib["transform"]
    for name in {"d", "x", "y", "points", "width", "height"} & node.attrib.keys():
        short = _LONG.sub(_rounded, node.attrib[name])
        short = re.sub(r"\s*([A-Za-z])\s*", r"\1", short) if name == "d" else short
        node.set(name, " ".join(short.split()))
    for name, value in node.attrib.items():
        node.set(name, _MARKED.sub(rf"url(#{prefix}\1)", value))
    if "style" in node.attrib:
        _restyle(node)


def _rounded(match: re.Match[str]) -> str:
    """A number of 1/100 point."""
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")


def _restyle(node: ET.Element) -> None:
    """Declarations as attributes; replaceable colours as both, so that viewers without variables
    draw them."""
    declared = (part.split(":", 1) for part in node.attrib.pop("style").split(";") if ":" in part)
    variables = []
    for name, value in ((name.strip(), value.strip()) for name, value in declared):
        inherited = (name, value) == ("fill", INK) and len(node) == 0 and node.tag == f"{_SVG}text"
        if inherited or name == "font-family" or (name, value) in _DEFAULTS:
            continue
        if variable := VARIABLES.get(value.lower()):
            variables.append(f"{name}:var({variable},{value})")
        node.set(name, value)
    if variables:
        node.set("style", ";".join(variables))


def _flatten(node: ET.Element) -> None:
    """Take groups away that say nothing, comments and white space between elements; keep the order
    of drawing."""
    children: list[ET.Element] = []
    for child in node:
        if not isinstance(child.tag, str) or child.tag == f"{_SVG}style":
            continue
        _flatten(child)
        child.tail = None
        kind = child.tag.removeprefix(_SVG)
        # The transparent ground of a figure or panel.
        ground = kind == "path" and child.get("fill") == "none" and not child.get("stroke")
        if (kind in ("g", "defs") and len(child) == 0) or (ground and "id" not in child.attrib):
            continue
        children += list(child) if kind == "g" and not child.attrib else [child]
    node[:] = children
    if len(node) and not (node.text or "").strip():
        node.text = None
