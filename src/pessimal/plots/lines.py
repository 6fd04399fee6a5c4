"""A line for each group, over x: curves, searches, ranks from rater to rater."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.optimize import isotonic_regression

from pessimal.plots import Lines, style
from pessimal.plots.style import INK, LINE, RULE, distinct, needed, number, rows_with, shown_names
from pessimal.texts import literal

THIN = "#9a9a9a"
"""Of single lines under a mean: read on white and on black."""


def lines(plot: Lines, table: pd.DataFrame, palette: Mapping[object, str]) -> Figure:
    """A panel for each value of `panel`; x may be numbers, or names in their order."""
    needed(table, plot.x, plot.y, *filter(None, [plot.low, plot.high, plot.thin]))
    table = table[table[plot.y].notna()]
    groups, panels = distinct(table, plot.group), distinct(table, plot.panel)
    colour, mark = _looks(plot, table, groups, palette)
    steps = None
    if not pd.api.types.is_numeric_dtype(table[plot.x]):
        values = distinct(table, plot.x)
        steps = shown_names(values, plot.x, limit=26)
        table = table.assign(
            **{plot.x: table[plot.x].map({value: place for place, value in enumerate(values)})}
        )
    names = shown_names([group for group in groups if group is not None], plot.group, limit=28)
    across = min(len(panels), 3)
    figure, places = style.frame(
        len(panels),
        height=max(2.3 if across == 1 else 1.75, LINE * (len(groups) + 1) if plot.ends else 0),
        left=0.58,
        right=style.inches(names.values()) + 0.3 if plot.ends else 0.12,
        below=0.42 if steps is None else style.inches(steps.values()) * np.sin(np.radians(40)) + 0.25,
        columns=1 if plot.ends else 3,
        width=style.PAGE_WIDTH if plot.ends or steps is not None else None,
        headed=plot.panel is not None,
        handles=[] if plot.ends else _handles(plot, table, names, colour, mark),
    )
    for axes, panel in zip(places, panels, strict=True):
        shown = rows_with(table, plot.panel, panel)
        _scales(axes, plot, steps)
        for group in groups:
            called = "" if group is None else names[group]
            _one(axes, plot, rows_with(shown, plot.group, group), called, colour[group], mark[group])
        style.subheading(axes, panel)
        if style.is_first(axes):
            axes.set_ylabel(plot.ylabel)
    style.label_below(figure, places, plot.xlabel)
    if plot.falling:
        places[0].invert_yaxis()
    for axes, panel in zip(places, panels, strict=True):
        if plot.ends:
            _ends(axes, plot, rows_with(table, plot.panel, panel), names, colour)
    return figure


def _looks(
    plot: Lines, table: pd.DataFrame, groups: list, palette: Mapping[object, str]
) -> tuple[dict, dict]:
    """Colour and mark of each group; where no group stands in two panels, each panel begins with the first again."""
    if plot.ends and plot.panel and plot.group and table.groupby(plot.group)[plot.panel].nunique().max() == 1:
        looks = [_looks(replace(plot, panel=None), rows, distinct(rows, plot.group), palette)
                 for _, rows in table.groupby(plot.panel, sort=False)]  # fmt: skip
        return tuple({group: look for pair in looks for group, look in pair[i].items()} for i in (0, 1))
    return style.colours(groups, palette), style.markers(groups)


def apart(heights: Sequence[float], *, gap: float, low: float, high: float) -> np.ndarray:
    """Heights for labels `gap` from one another, in the order of their places and as near to them as can be.

    With the gaps taken out it is a monotone regression; it is cut off at the ends, and the gaps are put back.
    """
    places = np.asarray(heights, dtype=float)
    order = np.argsort(-places, kind="stable")
    steps = gap * np.arange(len(places))
    fitted = isotonic_regression(places[order] + steps, increasing=False).x
    found = np.empty(len(places))
    found[order] = np.clip(fitted, low + steps[-1], max(high, low + steps[-1])) - steps
    return found


def _handles(
    plot: Lines, table: pd.DataFrame, names: Mapping, colour: Mapping, mark: Mapping
) -> list[Line2D]:
    """A legend: the groups, and what is thin."""
    look = {"lw": 1.5, "ms": 3.5}
    handles = [
        Line2D([], [], color=colour[group], marker=mark[group] if plot.marks else "", label=name, **look)
        for group, name in names.items()
    ]
    if plot.thin is not None and table[plot.thin].nunique() > 1:
        handles.append(Line2D([], [], color=THIN, lw=0.7, label=f"one {literal(plot.thin)}"))
        if not names:
            mean = f"mean of {table[plot.thin].nunique()} {literal(plot.thin)}s"
            handles.append(Line2D([], [], color=INK, marker="o" if plot.marks else "", label=mean, **look))
    return handles


def _scales(axes: Axes, plot: Lines, steps: Mapping[object, str] | None) -> None:
    """Ticks, a faint grid, and the reference."""
    axes.grid(axis="y", color=RULE, lw=0.5)
    axes.set_axisbelow(True)
    if plot.log_y:
        axes.set_yscale("log")
        style.log_ticks(axes.yaxis)
    else:
        style.few_ticks(axes.yaxis)
    if steps is not None:
        axes.set_xticks(
            range(len(steps)), list(steps.values()), rotation=40, ha="right", rotation_mode="anchor"
        )
    elif plot.log_x:
        axes.set_xscale("log")
        style.log_ticks(axes.xaxis)
    else:
        style.few_ticks(axes.xaxis)
    if plot.reference is not None:
        axes.axhline(plot.reference, color=INK, lw=0.6, zorder=1)


def _one(axes: Axes, plot: Lines, table: pd.DataFrame, called: str, colour: str, mark: str) -> None:
    """One group: thin lines and their mean, or a line with its band."""
    if table.empty:
        return
    draw = axes.step if plot.steps else axes.plot
    look = {"where": "post"} if plot.steps else {}
    if plot.thin is not None and table[plot.thin].nunique() > 1:
        for name, line in table.groupby(plot.thin, sort=False):
            line = line.sort_values(plot.x, kind="stable")
            (thin,) = draw(
                line[plot.x],
                line[plot.y],
                color=THIN if not called else colour,
                lw=0.6,
                alpha=0.6,
                zorder=2,
                **look,
            )
            style.tip(thin, literal(str(name), limit=60))
        table = table.groupby(plot.x, as_index=False)[plot.y].mean()
        colour = colour if called else INK
    table = table.sort_values(plot.x, kind="stable")
    band = [plot.low, plot.high]
    if all(band) and set(band) <= set(table):
        step = "post" if plot.steps else None
        axes.fill_between(
            table[plot.x], table[plot.low], table[plot.high], color=colour, alpha=0.18, lw=0, step=step
        )
    marks = {"marker": mark, "ms": 3.5} if plot.marks or len(table) == 1 else {}
    (line,) = draw(table[plot.x], table[plot.y], color=colour, lw=1.5, zorder=3, **marks, **look)
    style.tip(line, f"{called}, last: {number(table[plot.y].iloc[-1])}".lstrip(", "))


def _ends(axes: Axes, plot: Lines, table: pd.DataFrame, names: Mapping, colour: Mapping) -> None:
    """Each group's name right of its line, apart from one another."""
    last = {group: rows_with(table, plot.group, group).sort_values(plot.x, kind="stable") for group in names}
    last = {
        group: (rows[plot.x].iloc[-1], rows[plot.y].iloc[-1]) for group, rows in last.items() if len(rows)
    }
    if not last:
        return
    axes.get_xlim(), axes.get_ylim()  # limits settle only when they are asked for
    level = axes.transAxes.inverted().transform(
        axes.transData.transform(list(last.values()))
    )  # (groups, 2), shares
    height = axes.get_position().height * axes.get_figure(root=True).get_figheight()
    placed = apart(level[:, 1], gap=0.9 * LINE / height, low=0.0, high=1.0)
    width = axes.get_position().width * axes.get_figure(root=True).get_figwidth()
    for group, (x, y), at in zip(last, level, placed, strict=True):
        path = [x, 1 + 0.05 / width, 1 + 0.13 / width]
        axes.plot(path, [y, y, at], color=colour[group], lw=0.5, transform=axes.transAxes, clip_on=False)
        axes.text(
            1 + 0.16 / width, at, names[group], transform=axes.transAxes, color=colour[group], va="center"
        )
