"""Coloured cells with their numbers: models against models, or rows against columns."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from pessimal.errors import TableError
from pessimal.plots import Heatmap, style
from pessimal.plots.style import (
    FAINT,
    GREY,
    ON_DARK,
    ON_LIGHT,
    PAGE_WIDTH,
    distinct,
    needed,
    number,
    rows_with,
    shown_names,
)
from pessimal.texts import literal

DIVERGING = LinearSegmentedColormap.from_list("diverging", [style.BLUE, "#f4f4f2", style.VERMILION])
NUMBERS = 24
"""Up to so many columns, cells carry their numbers; beyond, a colour bar does."""
LARGEST, WIDEST, TALLEST = 0.42, 4.0, 7.0
"""Inches: a cell's side, and the whole."""
SLOPE = 40
"""Degrees: of the names below."""
CENTRED = {"ha": "center", "va": "center_baseline"}
STRIP, GAP = 0.13, 0.045
"""Inches: a strip's width, and the space before it."""


def heatmap(plot: Heatmap, table: pd.DataFrame, palette: Mapping[object, str]) -> Figure:
    """A matrix for each value of `panel`, all on one colour scale, in the order of the first."""
    needed(table, plot.row, plot.column, plot.value)
    panels = distinct(table, plot.panel)
    matrices = [_matrix(plot, rows_with(table, plot.panel, panel)) for panel in panels]
    if plot.symmetric:
        names = list(dict.fromkeys(name for matrix in matrices for name in matrix.index))
        first = matrices[0].reindex(index=names, columns=names)
        names = similar_together(first) if plot.order else names
        rows = columns = names
    else:
        rows, columns = distinct(table, plot.row), distinct(table, plot.column)
    matrices = [matrix.reindex(index=rows, columns=columns) for matrix in matrices]
    names = shown_names(rows, plot.row), shown_names(columns, plot.row if plot.symmetric else plot.column)
    figure, places = _frame(plot, len(panels), names)
    cells, scale = _scale(plot, matrices)
    for axes, panel, matrix in zip(places, panels, matrices, strict=True):
        side = axes.get_position().width * figure.get_figwidth() / len(columns)
        _cells(axes, plot, matrix, names, lambda value: cells(scale(value)), side=side)
        label = plot.label if panel is None else f"{panel}: {plot.label}" if plot.label else panel
        style.subheading(axes, label or None, limit=60)
    if plot.groups is not None and plot.symmetric and len(panels) == 1:
        _strips(figure, places[0], plot, names[0])
    if len(columns) > NUMBERS:
        box, width = places[-1].get_position(), figure.get_figwidth()
        beside = figure.add_axes((box.x1 + 0.1 / width, box.y0, 0.09 / width, box.height / 2))
        figure.colorbar(ScalarMappable(scale, cells), cax=beside).outline.set_visible(False)
        style.few_ticks(beside.yaxis)
    return figure


def _frame(plot: Heatmap, panels: int, names: Sequence[Mapping[object, str]]) -> tuple[Figure, list[Axes]]:
    """Panels in which the cells have the size that was meant for them."""
    rows, columns = (list(one.values()) for one in names)
    beside = min(panels, 3)
    slope = np.radians(SLOPE)
    sloped = style.inches(columns)
    left = max(style.inches(rows) + 0.12, style.inches(columns[:1]) * np.cos(slope) + 0.1)
    right = 0.12
    if plot.groups is not None and plot.symmetric and panels == 1:
        shown = [str(value) for column in plot.groups for value in (column, *plot.groups[column])]
        right += len(plot.groups.columns) * (STRIP + GAP) + 0.3 + style.inches(shown)
    if len(columns) > NUMBERS:
        right = max(right, 0.6)
    room = min(WIDEST if beside == 1 else PAGE_WIDTH, PAGE_WIDTH - left - right) - style.PANEL_GAP * (
        beside - 1
    )
    # Where rows and columns are different things, wide cells are read more easily than square ones.
    wide = min(LARGEST if plot.symmetric else 0.6, max(room, 1.5) / beside / len(columns))
    high = min(wide, LARGEST if plot.symmetric else 0.24, TALLEST / len(rows))
    wide = high if plot.symmetric else wide
    return style.frame(
        panels,
        height=high * len(rows),
        left=left,
        right=right,
        below=sloped * np.sin(slope) + 0.22,
        width=left + right + beside * wide * len(columns) + style.PANEL_GAP * (beside - 1),
        headed=bool(plot.label) or plot.panel is not None,
    )


def similar_together(similarity: pd.DataFrame) -> list:
    """The names in an order that keeps similar ones together: leaves of an average-linkage tree.

    Among the orders that the tree allows, the one whose neighbours are most similar (Bar-Joseph et al. 2001), read from
    the end that was given first. Pairs without a number count as the least similar ones.

    Args:
        similarity: symmetric, names × names; the diagonal is not looked at.
    """
    values = similarity.to_numpy(dtype=float, copy=True)
    off = ~np.eye(len(values), dtype=bool)
    if len(values) < 3 or not np.isfinite(values[off]).any():
        return list(similarity.index)
    values[~np.isfinite(values)] = np.nanmin(values[off])
    distances = values[off].max() - values
    np.fill_diagonal(distances, 0.0)
    tree = linkage(squareform(distances, checks=False), method="average", optimal_ordering=True)
    leaves = list(leaves_list(tree))
    if leaves[0] > leaves[-1]:
        leaves.reverse()
    return [similarity.index[leaf] for leaf in leaves]


def _matrix(plot: Heatmap, table: pd.DataFrame) -> pd.DataFrame:
    """The values as a matrix; of a symmetric one both halves, and a diagonal where the table has one."""
    if twice := int(table.duplicated([plot.row, plot.column]).sum()):
        raise TableError(
            f"{twice} cells of a heat map have several rows; divide the table by `tabs`, `where` or `panel`."
        )
    values = table.pivot(index=plot.row, columns=plot.column, values=plot.value)
    values = values.reindex(index=distinct(table, plot.row), columns=distinct(table, plot.column))
    if not plot.symmetric:
        return values
    names = list(dict.fromkeys([*table[plot.row], *table[plot.column]]))
    values = values.reindex(index=names, columns=names)
    return values.combine_first(values.T).reindex(index=names, columns=names)


def _scale(plot: Heatmap, matrices: Sequence[pd.DataFrame]) -> tuple[Colormap, Normalize]:
    """Colours that span all the cells, so that small differences show."""
    seen = [m.mask(np.eye(len(m), dtype=bool)) if plot.symmetric else m for m in matrices]
    every = np.concatenate([matrix.to_numpy(dtype=float).ravel() for matrix in seen])
    every = every[np.isfinite(every)]
    low, high = (every.min(), every.max()) if len(every) else (0.0, 1.0)
    if plot.diverging:
        high = max(abs(low), abs(high), 1e-12)
        low = -high
    elif low == high:  # two models, or all pairs alike: the middle of the scale
        low, high = low - 0.5, high + 0.5
    return DIVERGING if plot.diverging else colormaps["cividis"], Normalize(low, high)


def _cells(
    axes: Axes,
    plot: Heatmap,
    matrix: pd.DataFrame,
    names: Sequence[Mapping[object, str]],
    colour_of: Callable[[float], tuple],
    *,
    side: float,
) -> None:
    """Coloured cells with their numbers; on the diagonal of a symmetric matrix the noise floor where it is known."""
    rows, columns = names
    size = min(style.SIZE, side * 15)
    numbered = len(columns) <= NUMBERS
    for place, (row, values) in enumerate(zip(matrix.index, matrix.to_numpy(dtype=float), strict=True)):
        for across, (column, value) in enumerate(zip(matrix.columns, values, strict=True)):
            box = Rectangle((across - 0.5, place - 0.5), 1, 1, lw=0, antialiased=False)
            axes.add_patch(box)
            if plot.symmetric and row == column:
                box.set(facecolor=FAINT, alpha=0.13)
                if np.isfinite(value) and numbered:
                    axes.text(
                        across, place, _short(value), color=GREY, fontsize=size, style="italic", **CENTRED
                    )
                    style.tip(box, f"{rows[row]}, scanned again: {number(value)}")
                continue
            if not np.isfinite(value):
                box.set(facecolor=FAINT, alpha=0.13)
                continue
            box.set_facecolor(colour_of(value))
            style.tip(box, f"{rows[row]} and {columns[column]}: {number(value)}")
            if numbered:
                dark = np.dot(colour_of(value)[:3], (0.299, 0.587, 0.114)) < 0.55
                axes.text(
                    across,
                    place,
                    _short(value),
                    color=ON_DARK if dark else ON_LIGHT,
                    fontsize=size,
                    **CENTRED,
                )
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks(
        range(len(columns)), list(columns.values()), rotation=SLOPE, ha="right", rotation_mode="anchor"
    )
    axes.set_yticks(range(len(rows)), list(rows.values()))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _short(value: float) -> str:
    """Two decimals without the leading zero, as cells are small; what only rounds to 1 is not called 1, and zero has no
    minus. Large numbers get fewer decimals."""
    if 0.995 <= value < 1:
        return ">.99"
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    size = f"{abs(value):,.{decimals}f}"
    sign = "−" if value < 0 and size.strip("0.,") else ""
    return sign + (size[1:] if size.startswith("0.") else size)


def strip_colours(groups: pd.DataFrame) -> dict[tuple[str, object], str]:
    """A colour for each value of each column, none twice; developers come first, so that they keep theirs in figures
    without the other strips."""
    columns = sorted(groups.columns, key=lambda column: column != "developer")
    return style.colours((column, value) for column in columns for value in groups[column])


def _strips(figure: Figure, axes: Axes, plot: Heatmap, names: Mapping[object, str]) -> None:
    """A thin coloured column for each grouping, right of the matrix, and what its colours stand for."""
    groups = plot.groups.reindex(list(names))
    shades = strip_colours(plot.groups)
    box, (width, _) = axes.get_position(), figure.get_size_inches()
    for place, column in enumerate(groups.columns):
        left = box.x1 + (GAP + place * (STRIP + GAP)) / width
        beside = figure.add_axes((left, box.y0, STRIP / width, box.height), sharey=axes)
        beside.set_axis_off()
        beside.set_xlim(0, 1)
        for row, (name, value) in enumerate(zip(names.values(), groups[column], strict=True)):
            patch = beside.add_patch(
                Rectangle(
                    (0, row - 0.5), 1, 1, color=shades.get((column, value), FAINT), lw=0, antialiased=False
                )
            )
            style.tip(patch, f"{name}: {column} {literal(str(value), limit=40)}")
        level = len(names) - 0.5 + 0.06 * len(names) / (box.height * figure.get_figheight())
        beside.text(0.5, level, literal(str(column)), rotation=90, ha="right", va="center", rotation_mode="anchor",
                    fontsize=6, color=GREY)  # fmt: skip
    left, top = left + (STRIP + 0.08) / width, box.y1
    for column in groups:
        values = [value for value in dict.fromkeys(groups[column]) if (column, value) in shades]
        figure.legend(
            handles=[Patch(color=shades[column, v], lw=0, label=literal(str(v))) for v in values],
            title=literal(str(column)), alignment="left", loc="upper left", bbox_to_anchor=(left, top),
            handlelength=1, handleheight=1, borderpad=0, labelspacing=0.35,
        ).get_title().set_color(GREY)  # fmt: skip
        top -= (len(values) + 1.6) * 0.135 / figure.get_figheight()
