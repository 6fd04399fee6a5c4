"""Points, some of them with their names; thousands of points become a density with the named ones
on top."""

from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from pessimal.plots import Scatter, Violin, style
from pessimal.plots.style import distinct, needed, number, rows_with, shown_names
from pessimal.texts import literal

MANY = 3000
"""More points are drawn as a density."""
CELL = 1 / 72
"""Inches: a cell of the density's picture; a lone point is as large as one."""
LABEL = 6.5  # points
SIDES: tuple[tuple[float, float], ...] = ((1, 0), (0, 1), (0, -1), (-1, 0))
SIDES += ((0.7, 1), (-0.7, 1), (0.7, -1), (-0.7, -1), (1, 1), (-1, 1), (1, -1), (-1, -1))
REACHES = (0, 5, 12, 22, 36, 54)
"""Pixels: how far from its point a label may stand; beyond `NEAR` a hairline leads to it."""
NEAR, ROUNDS = 5, 3


def scatter(plot: Scatter, table: pd.DataFrame) -> Figure:
    """A panel for each value of `panel`, a colour and a mark for each of `group`."""
    needed(table, plot.x, plot.y, plot.name, plot.named)
    table = table[np.isfinite(table[[plot.x, plot.y]].to_numpy(dtype=float)).all(axis=1)]
    panels = distinct(table, plot.panel)
    looks = style.looks(distinct(table, plot.group))
    many = plot.dense or max(len(rows_with(table, plot.panel, panel)) for panel in panels) > MANY
    across = style.side_by_side(len(panels), plot.across)
    left = 0.55 if plot.axes else 0.25 if plot.ylabel else 0.08
    line: dict[str, Any] = {"lw": 1.4, "ls": "-"} if plot.line else {"ls": "", "ms": 4.5}
    figure, places = style.frame(
        panels,
        height=3.7 if across == 1 else (style.PAGE_WIDTH - left) / across * 0.95,
        columns=plot.across,
        left=left,
        below=0.42 if plot.axes else 0.24 if plot.xlabel else 0.08,
        xlabel=_name_tabs(plot.xlabel, plot, table),
        ylabel=_name_tabs(plot.ylabel, plot, table),
        handles=style.key(looks, **line) if plot.line or not many else [],
    )
    # A group may be too small for a line.
    y = pd.concat([table[c] for c in (plot.y, plot.line) if c is not None]).dropna()
    _limits(places[0], table[plot.x], y, equal=plot.equal, has_names=plot.name is not None)
    for axes, panel in zip(places, panels, strict=True):
        part = rows_with(table, plot.panel, panel)
        _lines(axes, plot)
        if many:
            _density(axes, *part[[plot.x, plot.y]].to_numpy(dtype=float).T)
        for group, (colour, mark) in looks.items():
            rows = rows_with(part, plot.group, group)
            if not many:
                _points(axes, plot, rows, colour, mark)
            if plot.line is not None:
                _fitted(axes, plot, rows, colour)
        if plot.name is not None:
            _label(axes, plot, part[_has_name(plot, part)], crowded=many)
    return figure


def _name_tabs(label: str, plot: Scatter, table: pd.DataFrame) -> str:
    """The label with the value of each tab column in place of its name in braces."""
    for column in {*plot.tabs} & {*table}:
        label = label.replace(f"{{{column}}}", str(table[column].iloc[0]))
    return label


def _limits(axes: Axes, x: pd.Series, y: pd.Series, *, equal: bool, has_names: bool) -> None:
    """Limits with room for labels at the edges; of a map, one unit as long both ways."""
    centre = np.array([(values.min() + values.max()) / 2 for values in (x, y)], dtype=float)
    half = np.array([np.ptp(values) / 2 or 0.5 for values in (x, y)], dtype=float)
    half *= 1.16 if has_names else 1.06
    if equal:
        size = np.array(style.inches_of(axes))
        half = size * (half / size).max()
    (left, bottom), (right, top) = centre - half, centre + half
    axes.set(xlim=(left, right), ylim=(bottom, top))


def _lines(axes: Axes, plot: Scatter) -> None:
    """The diagonal, the axes of a map, or a frame with ticks."""
    if plot.diagonal:
        limits = axes.get_xlim(), axes.get_ylim()
        axes.axline((0, 0), slope=1, color=style.FAINT, lw=0.7, ls=(0, (4, 3)), zorder=2.5)
        axes.set(xlim=limits[0], ylim=limits[1])  # its far end means nothing
    if plot.axes:
        style.few_ticks(axes.xaxis)
        style.few_ticks(axes.yaxis)
        return
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
    axes.spines[:].set(color=style.RULE, linewidth=0.6)
    axes.axhline(0, color=style.RULE, lw=0.5, zorder=0)
    axes.axvline(0, color=style.RULE, lw=0.5, zorder=0)


def _fitted(axes: Axes, plot: Scatter, table: pd.DataFrame, colour: str) -> None:
    """A line through the fitted values of one group, on a light edge so that it is seen over many
    points."""
    ends = table.dropna(subset=plot.line).sort_values(plot.x)
    axes.plot(ends[plot.x], ends[plot.line], color=style.PAPER, lw=2.6, zorder=4)
    axes.plot(ends[plot.x], ends[plot.line], color=colour, lw=1.4, zorder=4)


def _points(axes: Axes, plot: Scatter, table: pd.DataFrame, colour: str, mark: str) -> None:
    """Points of one group: named ones one by one, with what the pointer reads, the others as
    one."""
    has_name = _has_name(plot, table)
    rest = table[~has_name]
    axes.plot(rest[plot.x], rest[plot.y], mark, color=colour, ms=2.6, mew=0, alpha=0.6, zorder=3)
    columns = [plot.x, plot.y, *filter(None, [plot.name])]
    for x, y, name in table.loc[has_name, columns].itertuples(index=False):
        (point,) = axes.plot(x, y, mark, color=colour, ms=5.4, mec=style.PAPER, mew=0.6, zorder=4)
        style.tip(point, f"{literal(str(name), limit=60)}: {number(x)}, {number(y)}")


def _has_name(plot: Scatter, table: pd.DataFrame) -> np.ndarray:
    """Whether each point has a name."""
    if plot.name is None or plot.named is None:
        return np.full(len(table), plot.name is not None)
    return table[plot.named].to_numpy(dtype=bool)


def _density(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """A picture of how many points lie in each small cell: more are darker on a white page and
    fuller on a dark one."""
    limits = axes.get_xlim(), axes.get_ylim()
    bins = np.maximum(np.array(style.inches_of(axes)) / CELL, 2).astype(int)
    counts = np.histogram2d(x, y, bins=bins, range=limits)[0].T  # (y, x)
    share = np.log1p(counts) / np.log1p(max(counts.max(), 1))
    light, full = np.array(to_rgb(style.OKABE_ITO[4])), np.array(to_rgb(style.BLUE))
    colour = light + (full - light) * share[..., None]
    picture = np.dstack([colour, np.where(counts > 0, 0.5 + 0.5 * share, 0)])
    picture = np.round(picture * 255).astype(np.uint8)
    place: dict[str, Any] = {"extent": (*limits[0], *limits[1]), "origin": "lower", "zorder": 2}
    axes.imshow(picture, aspect="auto", interpolation="none", **place)


def _label(axes: Axes, plot: Scatter, table: pd.DataFrame, *, crowded: bool) -> None:
    """Names beside their points, with a hairline to the point where they had to move away."""
    if table.empty:
        return
    places = table[[plot.x, plot.y]].to_numpy(dtype=float)
    names = table[plot.name].map(shown_names(distinct(table, plot.name), plot.name)).tolist()
    if crowded:
        axes.plot(*places.T, "o", color=style.INK, mfc="none", ms=3.4, mew=0.7, zorder=4)
        for (x, y), name in zip(places, names, strict=True):
            (point,) = axes.plot(x, y, "o", color="none", ms=5, zorder=4)
            style.tip(point, f"{name}: {number(x)}, {number(y)}")
    dpi = axes.figure.dpi
    radius = (2.2 if crowded else 3.6) * dpi / 72  # pixels
    points = axes.transData.transform(places)
    sizes = [(style.inches([name], size=LABEL) * dpi, 1.25 * LABEL * dpi / 72) for name in names]
    half = np.array(sizes) / 2 + 1
    window = axes.get_window_extent()
    centres = place_labels(points, half, radius, np.array([window.min, window.max]))
    back = axes.transData.inverted().transform
    for point, centre, size, name in zip(points, centres, half, names, strict=True):
        x, y = back(centre)
        axes.text(x, y, name, fontsize=LABEL, ha="center", va="center", zorder=5)
        edge = np.clip(point, centre - size, centre + size)
        if np.linalg.norm(edge - point) > radius + NEAR:
            axes.plot(*back([point, edge]).T, color=style.GREY, lw=0.4, zorder=2.6)


def place_labels(
    points: np.ndarray, half: np.ndarray, radius: float, window: np.ndarray
) -> np.ndarray:
    """Centres of labels (n, 2): each on the nearest side of its point where it covers little,
    others being as they are.

    Each label in turn takes its best place among those of `SIDES` and `REACHES`; in further rounds
    it looks again, now that the later ones have theirs.

    Args:
        points: (n, 2), pixels.
        half: half of each label's width and height, (n, 2), pixels.
        radius: of a point's mark.
        window: the least and the greatest corner that a label may reach, (2, 2).
    """
    centres = np.full(points.shape, np.inf)  # not placed yet: far from everything
    sides, reach = (np.array(each) for each in zip(*product(SIDES, REACHES), strict=True))
    far = 4 * (reach + np.abs(sides).sum(axis=1))
    for _ in range(ROUNDS):
        for i, (point, size) in enumerate(zip(points, half, strict=True)):
            at = point + sides * (size + radius + reach[:, None])  # (places, 2)
            rest = np.arange(len(points)) != i
            gap = np.abs(at[:, None] - centres[rest])
            overlap, largest = size + half[rest] - gap, 2 * np.minimum(size, half[rest])
            covered = np.clip(overlap, 0, largest).prod(axis=-1).sum(axis=1)
            inside = np.minimum(at + size, window[1]) - np.maximum(at - size, window[0])
            outside = 4 * size.prod() - inside.clip(0).prod(axis=1)
            marks = (np.abs(at[:, None] - points) < size + radius).all(axis=2).sum(axis=1)
            centres[i] = at[np.argmin(covered + outside + 60 * marks + far)]
    return centres


def violin(plot: Violin, table: pd.DataFrame) -> Figure:
    """A violin a row: the bar is the middle half, the dot the median, both read from the
    density."""
    needed(table, plot.row, plot.x, plot.density)
    rows = distinct(table, plot.row)
    names = shown_names(rows, plot.row, limit=34)
    left = style.inches(names.values()) + 0.14
    height = 0.3 * len(rows) + 0.1
    figure, (axes,) = style.frame([None], height=height, left=left, xlabel=plot.ylabel)
    axes.axvline(0, color=style.FAINT, lw=0.6, ls=(0, (4, 3)), zorder=1)
    for place, row in enumerate(rows):
        curve = rows_with(table, plot.row, row).sort_values(plot.x)
        x, height = curve[plot.x].to_numpy(dtype=float), curve[plot.density].to_numpy(dtype=float)
        height = height / height.max()
        mass = np.cumsum(height * np.gradient(x)) if len(x) > 1 else np.ones(1)
        lower, median, upper = np.interp([0.25, 0.5, 0.75], mass / mass[-1], x)
        ends = place - 0.43 * height, place + 0.43 * height
        body = axes.fill_between(x, *ends, color=style.BLUE, alpha=0.5, lw=0)
        middle = f"median {number(median)}, middle half {number(lower)} to {number(upper)}"
        style.tip(body, f"{names[row]}: {middle}")
        axes.plot(x[[0, -1]], [place, place], color=style.INK, lw=0.5)
        axes.plot([lower, upper], [place, place], color=style.INK, lw=2.6, solid_capstyle="butt")
        axes.plot(median, place, "o", color=style.INK, mfc=style.PAPER, mew=0.6, ms=3)
    style.name_rows(axes, list(names.values()))
    style.few_ticks(axes.xaxis, limit=8)
    axes.grid(axis="x", color=style.RULE, lw=0.5)
    return figure
