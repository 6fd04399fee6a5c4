"""Figures of declarations, on demand, and on disk as SVG and PNG: the same bytes each time.

Knows tables, declarations and files; knows no verb and no page.
"""

import io
import logging
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from pessimal.errors import TableError
from pessimal.plots import Forest, Heatmap, Lines, Plot, Scatter, TokenTable, Violin, tabs_of
from pessimal.plots.forest import forest
from pessimal.plots.heatmap import heatmap, strip_colours
from pessimal.plots.lines import lines
from pessimal.plots.scatter import scatter, violin
from pessimal.plots.style import MODEL_COLUMNS, PAPER, needed, styled
from pessimal.plots.svg import finished
from pessimal.plots.token_table import token_table

log = logging.getLogger(__name__)

PRIMITIVES: dict[type[Plot], Callable[[Any, pd.DataFrame, Mapping[object, str]], Figure]] = {
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


class _Job(NamedTuple):
    """One figure of a result."""

    name: str
    tab: str
    stem: str
    plot: Plot
    rows: pd.DataFrame
    raster: bool


class Drawable(Protocol):
    """What a figure is made of: a table with a name and a declaration of how to draw it."""

    @property
    def name(self) -> str: ...
    @property
    def table(self) -> pd.DataFrame: ...
    @property
    def plot(self) -> Plot | None: ...


def draw(
    plot: Plot,
    table: pd.DataFrame,
    labels: Mapping[str, str] | None = None,
    palette: Mapping[object, str] | None = None,
) -> dict[str, Figure]:
    """The figures of a declaration, by tab.

    Args:
        plot: what to draw; its own `data` comes before the table.
        table: of the result.
        labels: names of models as people see them, by model.
        palette: colours of categories that other figures show as well; used where it has all of a
            figure's.

    Returns:
        A figure for each combination of values of the tab columns, in order of first appearance;
        its name is the values joined by " · ", empty where the table has no tab column. Nothing
        where there is nothing to draw.

    Raises:
        TableError: the table lacks a column that is declared.
    """
    plot, pieces = _pieces(plot, table, dict(labels or {}))
    with styled():
        return {
            tab: PRIMITIVES[type(plot)](plot, rows, palette or {}) for tab, rows in pieces.items()
        }


def save_figures(
    results: Sequence[Drawable],
    folder: Path,
    labels: Mapping[str, str] | None = None,
    begin: Callable[[int], AbstractContextManager[Callable[[str], None]]] | None = None,
) -> dict[str, dict[str, str]]:
    """Write `folder/STEM.svg` for every figure of every result, and `folder/STEM.png` for the first
    tab of each.

    A figure that cannot be drawn is logged and left out: numbers are not lost for it. A full disk
    is raised.

    Args:
        begin: given the number of figures, a context whose function is called with the stem of each
            that is done.

    Returns:
        The stems by tab, by name of the result. A stem is the result's name where there is one
        figure, else `NAME--TAB`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    palette: Mapping[object, str] = shared_colours(results)
    jobs: list[_Job] = []
    for result in results:
        if result.plot is None:
            continue
        try:
            plot, pieces = _pieces(result.plot, result.table, dict(labels or {}))
        except TableError as error:
            log.error("the figure of %s cannot be drawn: %s", result.name, error)
            continue
        jobs += [
            _Job(result.name, tab, stem, plot, pieces[tab], raster=place == 0)
            for place, (tab, stem) in enumerate(_stems(result.name, pieces))
        ]
    saved: dict[str, dict[str, str]] = {}
    progress = begin(len(jobs)) if begin and len(jobs) > FEW else nullcontext(lambda stem: None)
    with progress as step, _processes(len(jobs)) as in_order:
        errors = in_order(partial(_written, folder=folder, palette=palette), jobs)
        for job, wrong in zip(jobs, errors, strict=True):
            if wrong is None:
                saved.setdefault(job.name, {})[job.tab] = job.stem
            else:
                log.error("the figure %s cannot be drawn: %s", job.stem, wrong)
            step(job.stem)
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


def _written(job: _Job, folder: Path, palette: Mapping[object, str]) -> str | None:
    """Draw and write one figure; what is wrong where it cannot be drawn."""
    try:
        with styled():
            figure = PRIMITIVES[type(job.plot)](job.plot, job.rows, palette)
            save(figure, folder, job.stem, raster=job.raster)
    except OSError:
        raise
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def vector(figure: Figure, stem: str) -> str:
    """The figure as SVG, transparent, fit to stand in a page; figures of one page differ in the
    stem. Under `styled`."""
    matplotlib.rcParams["svg.hashsalt"] = stem
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", facecolor="none", metadata={"Date": None, "Creator": None})
    return finished(drawn.getvalue(), stem=stem, tips=figure.__dict__.get("tips", {}))


def save(figure: Figure, folder: Path, stem: str, *, raster: bool = True) -> None:
    """Write `folder/stem.svg`, transparent, for the page, and with `raster` `folder/stem.png`,
    white, for everything else.

    Deterministic on one machine and one matplotlib: no dates, no version, no random ids. A glyph
    that no installed font has is an empty box in the PNG only. Under `styled`.
    """
    (folder / f"{stem}.svg").write_text(vector(figure, stem), encoding="utf-8")
    if raster:
        figure.savefig(folder / f"{stem}.png", facecolor=PAPER, metadata={"Software": None})


def shared_colours(results: Sequence[Drawable]) -> dict[object, str]:
    """Colours by name of what the strips of the heat maps show: a developer has one colour in all
    figures."""
    frames = [
        r.plot.groups for r in results if isinstance(r.plot, Heatmap) and r.plot.groups is not None
    ]
    colours: dict[object, str] = {}
    for (_, value), colour in (strip_colours(max(frames, key=len)) if frames else {}).items():
        colours.setdefault(value, colour)
    return colours


def _pieces(
    plot: Plot, table: pd.DataFrame, labels: dict[str, str]
) -> tuple[Plot, dict[str, pd.DataFrame]]:
    """The declaration with people's names, and the rows of each of its figures by tab."""
    table = plot.data if plot.data is not None else table
    for column, wanted in plot.where.items():
        needed(table, column)
        table = table[
            table[column].isin(wanted if isinstance(wanted, list | tuple | set) else [wanted])
        ]
    columns = {*MODEL_COLUMNS, *(getattr(plot, name, None) for name in NAMED)} & set(table.columns)
    for column in filter(None, columns if labels else ()):
        if table[column].dtype.kind not in "biufc":
            table = table.assign(
                **{column: table[column].map(lambda value: labels.get(value, value))}
            )
    if isinstance(plot, Heatmap) and plot.groups is not None:
        plot = replace(plot, groups=plot.groups.rename(index=labels))
    values = (getattr(plot, name, None) for name in ("estimate", "value", "y"))
    value = next(filter(None, values), None)
    return plot, dict(tabs_of(plot.tabs, table, value))


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
