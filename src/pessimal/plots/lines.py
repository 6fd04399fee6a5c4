"""A line for each group, over x: curves, searches, ranks from rater to rater."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.optimize import isotonic_regression

from pessimal.plots import Lines, style
from pessimal.plots.style import (
    INK,
    LINE,
    RULE,
    SLOPE,
    SLOPED,
    distinct,
    needed,
    number,
    rows_with,
    shown_names,
)
from pessimal.texts import literal, signed

THIN = "#9a9a9a"
"""Colour of single lines under a mean: read on white and on black."""


def lines(plot: Lines, table: pd.DataFrame) -> Figure:
    """A panel for each value of `panel`; x may be numbers, or names in their order."""
    needed(table, plot.x, plot.y, plot.low, plot.high, plot.thin, plot.beside)
    table, panels = table[table[plot.y].notna()], distinct(table, plot.panel)
    steps = None
    if not pd.api.types.is_numeric_dtype(table[plot.x]):
        places_of_x, values = pd.factorize(table[plot.x])
        steps = _steps(plot, table, list(values))
        table = table.assign(**{plot.x: places_of_x})
    groups = distinct(table, plot.group)
    looks = style.looks(groups)
    apart_by = plot.panel if plot.ends and plot.group else None
    if apart_by and table.groupby(plot.group)[apart_by].nunique().max() == 1:
        # Each panel begins with the first colour again.
        for _, rows in table.groupby(apart_by, sort=False):
            looks |= style.looks(distinct(rows, plot.group))
    names = shown_names([group for group in groups if group is not None], plot.group, limit=28)
    height, below = 2.3 if len(panels) == 1 else 1.75, 0.42
    if steps is not None:
        below = style.inches(steps.values()) * np.sin(np.radians(SLOPE)) + 0.25
    figure, places = style.frame(
        panels,
        height=max(height, LINE * (len(groups) + 1) if plot.ends else 0),
        left=0.58,
        right=style.inches(names.values()) + 0.3 if plot.ends else 0.12,
        below=below,
        columns=1 if plot.ends else 3,
        width=style.PAGE_WIDTH if plot.ends or steps is not None else None,
        xlabel=plot.xlabel,
        ylabel=plot.ylabel,
        handles=[] if plot.ends else _handles(plot, table, looks),
    )
    for axes, panel in zip(places, panels, strict=True):
        part = rows_with(table, plot.panel, panel)
        _scales(axes, plot, steps)
        for group, look in looks.items():
            _line(axes, plot, rows_with(part, plot.group, group), names.get(group, ""), *look)
    if plot.falling:
        places[0].invert_yaxis()
    for axes, panel in zip(places, panels, strict=True):
        if plot.ends:
            _ends(axes, plot, rows_with(table, plot.panel, panel), names, looks)
    return figure


def _steps(plot: Lines, table: pd.DataFrame, values: Sequence[object]) -> dict[object, str]:
    """Label of each x: its name, and its number where the declaration has one."""
    names = shown_names(values, plot.x, limit=26)
    if plot.beside is None:
        return names
    numbers = table.groupby(plot.x, sort=False)[plot.beside].first()
    for value in names:
        if np.isfinite(numbers[value]):
            names[value] += f" ({literal(plot.beside)} = {signed(numbers[value])})"
    return names


def apart(heights: Sequence[float], *, gap: float, low: float, high: float) -> np.ndarray:
    """Heights for labels `gap` from one another, in the order of their places and as near to them
    as can be.

    With the gaps taken out it is a monotone regression; it is cut off at the ends, and the gaps are
    put back.
    """
    places = np.asarray(heights, dtype=float)
    order = np.argsort(-places, kind="stable")
    steps = gap * np.arange(len(places))
    fitted = isotonic_regression(places[order] + steps, increasing=False).x
    placed = np.empty(len(places))
    placed[order] = np.clip(fitted, low + steps[-1], max(high, low + steps[-1])) - steps
    return placed


def _handles(
    plot: Lines, table: pd.DataFrame, looks: Mapping[object, tuple[str, str]]
) -> list[Line2D]:
    """A legend: the groups, and what is thin."""
    look: dict[str, Any] = {"lw": 1.5, "ms": 3.5} | ({} if plot.marks else {"marker": ""})
    handles = style.key(looks, **look)
    if plot.thin is not None and (many := table[plot.thin].nunique()) > 1:
        thing, look = literal(plot.thin), look | {"marker": "o" if plot.marks else ""}
        mean = Line2D([], [], color=INK, label=f"mean of {many} {thing}s", **look)
        thin = Line2D([], [], color=THIN, lw=0.7, label=f"one {thing}")
        handles += [thin] if handles else [thin, mean]
    return handles


def _scales(axes: Axes, plot: Lines, steps: Mapping[object, str] | None) -> None:
    """Ticks, a faint grid, and the reference."""
    axes.grid(axis="y", color=RULE, lw=0.5)
    axes.set(yscale="log" if plot.log_y else "linear")
    axes.set(xscale="log" if plot.log_x and steps is None else "linear")
    for axis in (axes.yaxis, axes.xaxis):
        (style.log_ticks if axis.get_scale() == "log" else style.few_ticks)(axis)
    if steps is not None:
        axes.set_xticks(range(len(steps)), list(steps.values()), **SLOPED)
    if plot.reference is not None:
        axes.axhline(plot.reference, color=INK, lw=0.6, zorder=1)


def _line(axes: Axes, plot: Lines, table: pd.DataFrame, title: str, colour: str, mark: str) -> None:
    """One group: thin lines and their mean, or a line with its band."""
    if table.empty:
        return
    how: dict[str, Any] = {"drawstyle": "steps-post"} if plot.steps else {}
    if plot.thin is not None and table[plot.thin].nunique() > 1:
        for name, line in table.groupby(plot.thin, sort=False):
            line = line.sort_values(plot.x, kind="stable")
            look = how | {"color": colour if title else THIN, "lw": 0.6, "alpha": 0.6, "zorder": 2}
            (thin,) = axes.plot(line[plot.x], line[plot.y], **look)
            style.tip(thin, literal(str(name), limit=60))
        table = table.groupby(plot.x, as_index=False)[plot.y].mean()
        colour = colour if title else INK
    table = table.sort_values(plot.x, kind="stable")
    x, y = table[plot.x], table[plot.y]
    if plot.low in table and plot.high in table:
        band: dict[str, Any] = {"step": "post"} if plot.steps else {}
        band |= {"color": colour, "alpha": 0.18, "lw": 0}
        axes.fill_between(x, table[plot.low], table[plot.high], **band)
    marks: dict[str, Any] = {"marker": mark, "ms": 3.5} if plot.marks or len(table) == 1 else {}
    (line,) = axes.plot(x, y, color=colour, lw=1.5, zorder=3, **marks, **how)
    style.tip(line, f"{title}, last: {number(y.iloc[-1])}".lstrip(", "))


def _ends(axes: Axes, plot: Lines, table: pd.DataFrame, names: Mapping, looks: Mapping) -> None:
    """Each group's name right of its line, apart from one another."""
    table = table.sort_values(plot.x, kind="stable")
    lines = {group: rows_with(table, plot.group, group)[[plot.x, plot.y]] for group in names}
    ends = {group: tuple(rows.iloc[-1]) for group, rows in lines.items() if len(rows)}
    if not ends:
        return
    axes.get_xlim(), axes.get_ylim()  # limits settle only when they are asked for
    width, height = style.inches_of(axes)
    # (groups, 2)
    shares = axes.transAxes.inverted().transform(axes.transData.transform(list(ends.values())))
    placed = apart(shares[:, 1].tolist(), gap=0.9 * LINE / height, low=0.0, high=1.0)
    for group, (x, y), at in zip(ends, shares, placed, strict=True):
        look = {"color": looks[group][0], "transform": axes.transAxes}
        bends = [x, 1 + 0.05 / width, 1 + 0.13 / width]
        axes.plot(bends, [y, y, at], lw=0.5, clip_on=False, **look)
        axes.text(1 + 0.16 / width, at, names[group], va="center", **look)
