"""Figures of declarations, on demand, and on disk as SVG and PNG: the same bytes each time.

Knows tables, declarations and files; knows no verb and no page.
"""

import io
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import joblib
import pandas as pd
from matplotlib.figure import Figure

from pessimal.errors import TableError
from pessimal.plots import Forest, Heatmap, Lines, Plot, Scatter, TokenTable, Violin, tabs_of
from pessimal.plots.forest import forest
from pessimal.plots.heatmap import heatmap, strip_colours
from pessimal.plots.lines import lines
from pessimal.plots.scatter import scatter
from pessimal.plots.style import MODEL_COLUMNS, PAPER, needed, styled
from pessimal.plots.svg import finished
from pessimal.plots.token_table import token_table
from pessimal.plots.violin import violin

if TYPE_CHECKING:
    from pessimal.tables.result import Result

log = logging.getLogger(__name__)

PRIMITIVES = {
    Forest: forest, Heatmap: heatmap, Scatter: scatter, Lines: lines, Violin: violin, TokenTable: token_table,
}  # fmt: skip
NAMED = ("row", "column", "group", "name", "x", "thin", "panel")
"""Fields of declarations whose columns may hold models."""
FEW, MOST = 8, 4
"""Figures from which on several processes draw, and how many at most."""


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
        palette: colours of categories that other figures show as well; used where it has all of a figure's.

    Returns:
        A figure for each combination of values of the tab columns, in order of first appearance; its name is the values
        joined by " · ", empty where the table has no tab column. Nothing where there is nothing to draw.

    Raises:
        TableError: the table lacks a column that is declared.
    """
    plot, pieces = _pieces(plot, table, dict(labels or {}))
    with styled():
        return {tab: PRIMITIVES[type(plot)](plot, rows, palette or {}) for tab, rows in pieces}


def save_figures(
    results: Sequence["Result"],
    folder: Path,
    labels: Mapping[str, str] | None = None,
    begin: Callable[[int], AbstractContextManager[Callable[[str], None]]] | None = None,
) -> dict[str, dict[str, str]]:
    """Write `folder/STEM.svg` for every figure of every result, and `folder/STEM.png` for the first tab of each.

    A figure that cannot be drawn is logged and left out: numbers are not lost for it.

    Args:
        begin: given the number of figures, a context whose function is called with the stem of each that is done.

    Returns:
        The stems by tab, by name of the result. A stem is the result's name where there is one figure, else `NAME--TAB`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    palette, saved, jobs = shared_colours(results, labels or {}), {}, []
    for result in results:
        if result.plot is None:
            continue
        try:
            plot, found = _pieces(result.plot, result.table, dict(labels or {}))
            pieces = dict(found)
        except TableError as error:
            log.error("the figure of %s cannot be drawn: %s", result.name, error)
            continue
        stems = dict(zip(pieces, _stems(result.name, list(pieces)), strict=True))
        saved[result.name] = stems
        plot = replace(plot, data=None)  # the rows are the piece's
        jobs += [
            joblib.delayed(_draw_and_save)(
                plot, rows, palette, folder, stems[tab], raster=tab == next(iter(stems))
            )
            for tab, rows in pieces.items()
        ]
    # loky's processes need no `__main__` guard in a script that calls this.
    processes = joblib.cpu_count() if len(jobs) > FEW else 1
    lost = set()
    with begin(len(jobs)) if begin and len(jobs) > FEW else nullcontext(lambda stem: None) as step:
        for stem, error in joblib.Parallel(n_jobs=min(processes, MOST), return_as="generator_unordered")(
            jobs
        ):
            step(stem)
            if error:
                log.error("the figure %s cannot be drawn: %s", stem, error)
                lost.add(stem)
    saved = {name: {tab: s for tab, s in stems.items() if s not in lost} for name, stems in saved.items()}
    return {name: stems for name, stems in saved.items() if stems}


def _draw_and_save(
    plot: Plot, rows: pd.DataFrame, palette: Mapping[object, str], folder: Path, stem: str, *, raster: bool
) -> tuple[str, str]:
    """The stem, and why it could not be drawn (empty: it was). A full disk is no such reason, and is raised."""
    try:
        with styled():
            save(PRIMITIVES[type(plot)](plot, rows, palette), folder, stem, raster=raster)
    except OSError:
        raise
    except Exception as error:
        return stem, f"{type(error).__name__}: {error}"
    return stem, ""


def save(figure: Figure, folder: Path, stem: str, *, raster: bool = True) -> None:
    """Write `folder/stem.svg`, transparent, for the page, and with `raster` `folder/stem.png`, white, for everything else.

    Deterministic on one machine and one matplotlib: no dates, no version, no random ids. A glyph that no installed font
    has is an empty box in the PNG only.
    """
    with styled(**{"svg.hashsalt": stem}):
        vector = io.StringIO()
        figure.savefig(vector, format="svg", facecolor="none", metadata={"Date": None, "Creator": None})
        text = finished(vector.getvalue(), stem=stem, tips=figure.__dict__.get("tips", {}))
        (folder / f"{stem}.svg").write_text(text, encoding="utf-8")
        if raster:
            figure.savefig(folder / f"{stem}.png", facecolor=PAPER, metadata={"Software": None})


def shared_colours(results: Sequence["Result"], labels: Mapping[str, str]) -> dict[object, str]:
    """Colours by name of what the strips of the heat maps show: a developer has one colour in all figures."""
    frames = [r.plot.groups for r in results if isinstance(r.plot, Heatmap) and r.plot.groups is not None]
    found: dict[object, str] = {}
    for (_, value), colour in (strip_colours(max(frames, key=len)) if frames else {}).items():
        found.setdefault(value, colour)
    return found


def _pieces(
    plot: Plot, table: pd.DataFrame, labels: dict[str, str]
) -> tuple[Plot, Iterator[tuple[str, pd.DataFrame]]]:
    """The declaration with people's names, and the rows of each of its figures."""
    table = plot.data if plot.data is not None else table
    for column, wanted in plot.where.items():
        needed(table, column)
        wanted = wanted if isinstance(wanted, list | tuple | set) else [wanted]
        table = table[table[column].isin(list(wanted))]
    columns = {*MODEL_COLUMNS, *(getattr(plot, name, None) for name in NAMED)} & set(table.columns)
    renamed = {
        c: table[c].map(lambda v: labels.get(v, v)) for c in columns if table[c].dtype.kind not in "biufc"
    }
    table = table.assign(**renamed) if labels else table
    if isinstance(plot, Heatmap):
        plot = replace(
            plot,
            groups=None if plot.groups is None else plot.groups.rename(index=labels),
        )
    value = getattr(plot, "estimate", None) or getattr(plot, "value", None) or getattr(plot, "y", None)
    return plot, tabs_of(plot.tabs, table, value)


def _stems(name: str, tabs: Sequence[str]) -> list[str]:
    """A name of files for each tab, letters and digits only, none twice."""
    if len(tabs) == 1:
        return [name]
    stems: list[str] = []
    for tab in tabs:
        safe = re.sub(r"[^\w.]+", "-", tab, flags=re.ASCII).strip("-.") or "all"
        stem, again = f"{name}--{safe}", 2
        while stem.lower() in {one.lower() for one in stems}:  # some file systems know no case
            stem, again = f"{name}--{safe}-{again}", again + 1
        stems.append(stem)
    return stems
