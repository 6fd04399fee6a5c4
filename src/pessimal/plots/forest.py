"""Rows of points with intervals: one number a model, an attribute, a factor, side by side."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from pessimal.plots import Forest, style
from pessimal.plots.style import (
    INK,
    PAPER,
    RULE,
    VERMILION,
    distinct,
    needed,
    number,
    rows_with,
    shown_names,
)
from pessimal.statistics import LEVEL
from pessimal.texts import literal

MIN_PITCH, MAX_HEIGHT = 0.19, 8.4
"""Inches: between two rows, and of rows with several marks each, which then stand closer."""


def forest(plot: Forest, table: pd.DataFrame) -> Figure:
    """A panel for each value of `panel`, a row for each of `row`, a mark for each of `group`."""
    needed(table, plot.row, plot.estimate, plot.p)
    table = table[table[plot.estimate].notna()]
    rows, panels = distinct(table, plot.row), distinct(table, plot.panel)
    names = shown_names(rows, plot.row, limit=34 if len(panels) < 3 else 28)
    looks = style.looks(distinct(table, plot.group))
    handles: list[Artist] = [*style.key(looks, ms=3.8, lw=1.2)]
    if plot.p is not None and (table[plot.p] > LEVEL).any():
        hollow: dict[str, Any] = {"marker": "o", "mfc": PAPER, "mew": 0.9, "ms": 3.8, "lw": 0}
        handles.append(Line2D([], [], color=INK, label="hollow: corrected p > .05", **hollow))
    if plot.band is not None and table[plot.band].notna().any():
        handles.append(Patch(color=RULE, label="95 % of random heads"))
    line: dict[str, Any] = {"color": VERMILION, "ls": "--", "lw": 1}
    if plot.limit is not None:
        handles.append(Line2D([], [], label="limit", **line))
    pitch = max(MIN_PITCH, min(0.085 * len(looks) + 0.09, MAX_HEIGHT / max(len(rows), 1)))
    figure, places = style.frame(
        panels,
        height=pitch * len(rows) + 0.05,
        left=style.inches(names.values()) + 0.14,
        xlabel=plot.xlabel,
        handles=handles,
    )
    spread = 0.31 if len(looks) > 2 else 0.21
    offsets = np.linspace(-spread, spread, len(looks)) if len(looks) > 1 else [0.0]
    heights = {row: place for place, row in enumerate(rows)}
    for axes, panel in zip(places, panels, strict=True):
        if plot.reference is not None:
            axes.axvline(plot.reference, color=INK, lw=0.6, zorder=1)
        if plot.limit is not None:
            axes.axvline(plot.limit, zorder=1, **line)
        part = rows_with(table, plot.panel, panel)
        for (group, look), offset in zip(looks.items(), offsets, strict=True):
            suffix = "" if group is None else f", {literal(str(group), limit=40)}"
            for record in rows_with(part, plot.group, group).to_dict("records"):
                row = record[plot.row]
                _mark(axes, plot, record, heights[row] + offset, *look, names[row] + suffix)
        style.name_rows(axes, list(names.values()))
        style.few_ticks(axes.xaxis, limit=8 if len(panels) == 1 else 5)
        axes.grid(axis="x", color=RULE, lw=0.5)
    return figure


def _mark(
    axes: Axes, plot: Forest, record: dict, height: float, colour: str, mark: str, title: str
) -> None:
    """One point with its interval, hollow where its test finds nothing."""
    estimate = record[plot.estimate]
    low, high = (record.get(end, np.nan) if end else np.nan for end in (plot.low, plot.high))
    title += f": {number(estimate)}"
    bar: dict[str, Any] = {"solid_capstyle": "butt"}
    if plot.band is not None and np.isfinite(record[plot.band]):
        middle, half = plot.reference or 0.0, record[plot.band]
        ends = [middle - half, middle + half]
        axes.plot(ends, [height, height], color=RULE, lw=5, zorder=1.5, **bar)
    if np.isfinite([low, high]).all():
        axes.plot([low, high], [height, height], color=colour, lw=1.2, zorder=2, **bar)
        title += f" [{number(low)}, {number(high)}]"
    p = None if plot.p is None else record[plot.p]
    if p is not None and np.isfinite(p):
        title += f", p = {number(p)}"
    elif p is not None:
        colour = style.GREY  # not tested, a mean of models say
    face = PAPER if p is not None and p > LEVEL else colour
    size = 4.6 if mark == "*" else 3.8
    (point,) = axes.plot(estimate, height, mark, color=colour, mfc=face, ms=size, mew=0.9, zorder=3)
    style.tip(point, title)
