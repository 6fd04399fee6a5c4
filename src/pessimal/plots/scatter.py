"""Points, some of them with their names; thousands of points become a density with the named ones on top."""

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pandas as pd
from adjustText import adjust_text
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from pessimal.plots import Scatter, style
from pessimal.plots.style import (
    BLUE,
    COLUMN_WIDTH,
    FAINT,
    GREY,
    INK,
    OKABE_ITO,
    PAPER,
    RULE,
    distinct,
    needed,
    number,
    rows_with,
    shown_names,
)
from pessimal.texts import literal

MANY = 3000
"""More points are drawn as a density."""
CELL = 1 / 72
"""Inches: a cell of the density's picture; a lone point is as large as one."""
LABEL = 6.5  # points
SIDES = (
    (1, 0),
    (0, 1),
    (0, -1),
    (-1, 0),
    (0.7, 1),
    (-0.7, 1),
    (0.7, -1),
    (-0.7, -1),
    (1, 1),
    (-1, 1),
    (1, -1),
    (-1, -1),
)
REACHES = (0, 5, 12, 22, 36, 54)  # pixels
ADJUST = {
    "iter_lim": 200, "avoid_self": False, "expand": (1.02, 1.1), "force_text": (0.1, 0.3), "force_static": (0.05, 0.2),
    "force_explode": (0.0, 0.0), "min_arrow_len": 10,
}  # fmt: skip
"""Of adjustText. Rounds are counted, not timed, so that the same table gives the same picture."""


def scatter(plot: Scatter, table: pd.DataFrame, palette: Mapping[object, str]) -> Figure:
    """A panel for each value of `panel`, a colour and a mark for each of `group`."""
    needed(table, plot.x, plot.y, *filter(None, [plot.name, plot.named]))
    table = table[np.isfinite(table[[plot.x, plot.y]].to_numpy(dtype=float)).all(axis=1)]
    groups, panels = distinct(table, plot.group), distinct(table, plot.panel)
    colour, mark = style.colours(groups, palette), style.markers(groups)
    many = max(len(rows_with(table, plot.panel, panel)) for panel in panels) > MANY
    handles = [
        Line2D(
            [],
            [],
            ls="",
            color=colour[group],
            marker=mark[group],
            ms=4.5,
            label=literal(str(group), limit=40),
        )
        for group in groups
        if group is not None and not many
    ]
    across = min(len(panels), 3)
    left = 0.55 if plot.axes else 0.25 if plot.ylabel else 0.08
    figure, places = style.frame(
        len(panels),
        height=3.7 if across == 1 else (style.PAGE_WIDTH - left) / across * 0.95,
        width=COLUMN_WIDTH if across == 1 else None,
        left=left,
        below=0.42 if plot.axes else 0.24 if plot.xlabel else 0.08,
        headed=plot.panel is not None,
        handles=handles,
    )
    _limits(places[0], table[plot.x], table[plot.y], equal=plot.equal, named=plot.name is not None)
    for axes, panel in zip(places, panels, strict=True):
        shown = rows_with(table, plot.panel, panel)
        _lines(axes, plot)
        if many:
            _density(axes, shown[plot.x].to_numpy(dtype=float), shown[plot.y].to_numpy(dtype=float))
        else:
            for group in groups:
                _points(axes, plot, rows_with(shown, plot.group, group), colour[group], mark[group])
        style.subheading(axes, panel)
        if style.is_first(axes):
            axes.set_ylabel(plot.ylabel)
    style.label_below(figure, places, plot.xlabel)
    if plot.name is not None:
        for axes, panel in zip(places, panels, strict=True):
            shown = rows_with(table, plot.panel, panel)
            _label(axes, plot, shown, crowded=many)
    return figure


def _limits(axes: Axes, x: pd.Series, y: pd.Series, *, equal: bool, named: bool) -> None:
    """Limits with room for labels at the edges; of a map, one unit as long both ways."""
    centre = np.array([(values.min() + values.max()) / 2 for values in (x, y)], dtype=float)
    half = np.array([np.ptp(values) / 2 or 0.5 for values in (x, y)], dtype=float) * (1.16 if named else 1.06)
    if equal:
        box = axes.get_position()
        size = np.array([box.width, box.height]) * axes.get_figure(root=True).get_size_inches()
        half = size * (half / size).max()
    axes.set(xlim=(centre[0] - half[0], centre[0] + half[0]), ylim=(centre[1] - half[1], centre[1] + half[1]))


def _lines(axes: Axes, plot: Scatter) -> None:
    """The diagonal, the axes of a map, or a frame with ticks."""
    if plot.diagonal:
        limits = axes.get_xlim(), axes.get_ylim()
        axes.axline((0, 0), slope=1, color=FAINT, lw=0.7, ls=(0, (4, 3)), zorder=2.5)
        axes.set(xlim=limits[0], ylim=limits[1])  # its far end means nothing
    if plot.axes:
        style.few_ticks(axes.xaxis)
        style.few_ticks(axes.yaxis)
        return
    axes.tick_params(length=0, labelbottom=False, labelleft=False)
    axes.spines[:].set_visible(True)
    axes.spines[:].set(color=RULE, linewidth=0.6)
    axes.axhline(0, color=RULE, lw=0.5, zorder=0)
    axes.axvline(0, color=RULE, lw=0.5, zorder=0)


def _points(axes: Axes, plot: Scatter, table: pd.DataFrame, colour: str, mark: str) -> None:
    """Points of one group: named ones one by one, with what the pointer reads, the others as one."""
    named = _named(plot, table)
    rest = table[~named]
    axes.plot(rest[plot.x], rest[plot.y], mark, color=colour, ms=2.6, mew=0, alpha=0.6, zorder=3)
    for x, y, name in table.loc[named, [plot.x, plot.y, *filter(None, [plot.name])]].itertuples(index=False):
        (point,) = axes.plot(x, y, mark, color=colour, ms=5.4, mec=PAPER, mew=0.6, zorder=4)
        style.tip(point, f"{literal(str(name), limit=60)}: {number(x)}, {number(y)}")


def _named(plot: Scatter, table: pd.DataFrame) -> np.ndarray:
    """Which points have a name."""
    if plot.name is None:
        return np.zeros(len(table), dtype=bool)
    return np.ones(len(table), dtype=bool) if plot.named is None else table[plot.named].to_numpy(dtype=bool)


def _density(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """A picture of how many points lie in each small cell: more are darker on a white page and fuller on a dark one."""
    box = axes.get_position()
    width, height = np.array([box.width, box.height]) * axes.get_figure(root=True).get_size_inches()
    extent = (*axes.get_xlim(), *axes.get_ylim())
    bins = (max(int(width / CELL), 2), max(int(height / CELL), 2))
    counts, _, _ = np.histogram2d(x, y, bins=bins, range=(extent[:2], extent[2:]))
    share = np.log1p(counts.T) / np.log1p(max(counts.max(), 1))  # (y, x)
    light, full = np.array(to_rgb(OKABE_ITO[4])), np.array(to_rgb(BLUE))
    picture = np.empty((*share.shape, 4))
    picture[..., :3] = light + (full - light) * share[..., None]
    picture[..., 3] = np.where(counts.T > 0, 0.5 + 0.5 * share, 0)
    picture = np.round(picture * 255).astype(np.uint8)
    axes.imshow(picture, extent=extent, origin="lower", aspect="auto", interpolation="none", zorder=2)


def _label(axes: Axes, plot: Scatter, table: pd.DataFrame, *, crowded: bool) -> None:
    """Names beside their points, moved apart, with a hairline to the point where they had to move away."""
    chosen = table[_named(plot, table)]
    if chosen.empty:
        return
    places = chosen[[plot.x, plot.y]].to_numpy(dtype=float)
    names = shown_names(list(dict.fromkeys(chosen[plot.name])), plot.name, limit=30)
    if crowded:
        axes.plot(*places.T, "o", color=INK, mfc="none", ms=3.4, mew=0.7, zorder=4)
        for (x, y), name in zip(places, chosen[plot.name], strict=True):
            (point,) = axes.plot(x, y, "o", color="none", ms=5, zorder=4)
            style.tip(point, f"{names[name]}: {number(x)}, {number(y)}")
    radius = (2.2 if crowded else 3.6) * axes.get_figure(root=True).dpi / 72  # pixels
    centres = axes.transData.transform(places)
    texts = [
        axes.text(0, 0, names[name], fontsize=LABEL, ha="center", va="center", parse_math=False, zorder=5)
        for name in chosen[plot.name]
    ]
    back = axes.transData.inverted().transform
    for text, centre in zip(texts, _beside(axes, texts, centres, radius), strict=True):
        text.set_position(back(centre))
    marks = [Bbox([back(centre - radius), back(centre + radius)]) for centre in centres]
    fixed = {"ax": axes, "objects": marks, "target_x": places[:, 0], "target_y": places[:, 1], **ADJUST}
    # Lines are kept from crossing by swapping labels, which then overlap: they are moved apart once more.
    adjust_text(texts, prevent_crossings=True, **fixed)
    line = {"arrowstyle": "-", "color": GREY, "lw": 0.4, "shrinkA": 0, "shrinkB": 2}
    adjust_text(texts, prevent_crossings=False, arrowprops=line, **fixed)


def _beside(axes: Axes, texts: Sequence[Text], centres: np.ndarray, radius: float) -> np.ndarray:
    """Where labels begin, before they are moved apart: the nearest side of the mark on which little is covered.

    From there most labels stay where they are; left to itself, adjustText drives them farther than they need.

    Args:
        centres: of the marks, pixels (labels, 2).

    Returns:
        Centres of the labels, pixels (labels, 2).
    """
    renderer, frame = axes.get_figure(root=True).canvas.get_renderer(), axes.get_window_extent()
    taken: list[Bbox] = []
    for text, centre in zip(texts, centres, strict=True):
        extent = text.get_window_extent(renderer)
        half = np.array([extent.width, extent.height]) / 2 + 1
        best, least = None, np.inf
        for reach, (dx, dy) in product(REACHES, SIDES):
            at = centre + np.array([dx, dy]) * (half + radius + reach)
            box = Bbox([at - half, at + half])
            near = ((centres > box.min - radius) & (centres < box.max + radius)).all(axis=1).sum()
            covered = sum(_shared(box, other) for other in taken) + 4 * half.prod() - _shared(box, frame)
            cost = covered + 60 * near + 4 * (reach + abs(dx) + abs(dy))
            if cost < least:
                best, least = box, cost
        taken.append(best)
    return np.array([(box.min + box.max) / 2 for box in taken])


def _shared(a: Bbox, b: Bbox) -> float:
    """Pixels² that two boxes share."""
    width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
    return max(width, 0.0) * max(height, 0.0)
