"""Tables as figures: coloured cells with their numbers, models against models or rows against
columns; and tokens at both ends, a column for each model.

Tokens are hostile strings: they are drawn literally, with escapes for what cannot be seen.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from pessimal.errors import TableError
from pessimal.plots import Heatmap, TokenTable, style
from pessimal.plots.style import SLOPE, SLOPED, distinct, needed, number, rows_with, shown_names
from pessimal.texts import literal, signed, significant

DIVERGING = LinearSegmentedColormap.from_list("diverging", [style.BLUE, "#f4f4f2", style.VERMILION])
NUMBERS = 24
"""Up to so many columns, cells carry their numbers; beyond, a colour bar does."""
LARGEST, WIDEST, TALLEST = 0.42, 4.0, 7.0
"""Inches: a cell's side, and the whole."""
Names = Mapping[object, str]


def heatmap(plot: Heatmap, table: pd.DataFrame) -> Figure:
    """A matrix for each value of `panel`, all on one colour scale, in the order of the first."""
    needed(table, plot.row, plot.column, plot.value)
    panels = distinct(table, plot.panel)
    matrices = [_matrix(plot, rows_with(table, plot.panel, panel)) for panel in panels]
    rows, columns = distinct(table, plot.row), distinct(table, plot.column)
    if plot.symmetric:
        rows = list(dict.fromkeys(name for matrix in matrices for name in matrix.index))
        if plot.order:
            rows = similar_together(matrices[0].reindex(rows, columns=rows))
        columns = rows
    matrices = [matrix.reindex(index=rows, columns=columns) for matrix in matrices]
    kind = plot.row if plot.symmetric else plot.column
    names = shown_names(rows, plot.row), shown_names(columns, kind)
    label = f": {plot.label}" if plot.label else ""
    headings = [plot.label or None if panel is None else f"{panel}{label}" for panel in panels]
    figure, places = _frame(plot, headings, *names)
    colours, scale = _scale(plot, matrices)
    for axes, matrix in zip(places, matrices, strict=True):
        _cells(axes, plot, matrix, names, ScalarMappable(scale, colours))
    if len(columns) > NUMBERS:
        box, width = places[-1].get_position(), figure.get_figwidth()
        bar = figure.add_axes((box.x1 + 0.1 / width, box.y0, 0.09 / width, box.height / 2))
        figure.colorbar(ScalarMappable(scale, colours), cax=bar).outline.set_visible(False)
        style.few_ticks(bar.yaxis)
    return figure


def _frame(
    plot: Heatmap, headings: Sequence[object], rows: Names, columns: Names
) -> tuple[Figure, list[Axes]]:
    """Panels in which the cells have the size that was meant for them."""
    across, slope = style.side_by_side(len(headings), plot.across), np.radians(SLOPE)
    gaps = style.PANEL_GAP * (across - 1)
    first = style.inches(list(columns.values())[:1])
    left = max(style.inches(rows.values()) + 0.12, first * np.cos(slope) + 0.1)
    right = 0.6 if len(columns) > NUMBERS else 0.12
    room = min(WIDEST if across == 1 else style.PAGE_WIDTH, style.PAGE_WIDTH - left - right) - gaps
    # Where rows and columns are different things, wide cells are read more easily than square ones.
    wide = min(LARGEST if plot.symmetric else 0.6, max(room, 1.5) / across / len(columns))
    high = min(wide, LARGEST if plot.symmetric else 0.24, TALLEST / len(rows))
    heads = min(style.inches(map(str, headings)) + 0.1, room / across) if across > 1 else 0.0
    wide = high if plot.symmetric else max(wide, heads / len(columns))
    return style.frame(
        headings,
        height=high * len(rows),
        left=left,
        right=right,
        below=style.inches(columns.values()) * np.sin(slope) + 0.22,
        width=left + right + across * wide * len(columns) + gaps,
        columns=plot.across,
    )


def similar_together(similarity: pd.DataFrame) -> list:
    """The names in an order that keeps similar ones together: leaves of an average-linkage tree.

    Among the orders that the tree allows, the one whose neighbours are most similar (Bar-Joseph et
    al. 2001), read from the end that was given first. Pairs without a number count as the least
    similar ones.

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
    return list(similarity.index[leaves if leaves[0] < leaves[-1] else leaves[::-1]])


def _matrix(plot: Heatmap, table: pd.DataFrame) -> pd.DataFrame:
    """The values as a matrix; of a symmetric one both halves, and a diagonal where the table has
    one."""
    if n := int(table.duplicated([plot.row, plot.column]).sum()):
        raise TableError(f"{n} cells of a heat map have several rows: `tabs`, `where` or `panel`")
    values = table.pivot(index=plot.row, columns=plot.column, values=plot.value)
    if not plot.symmetric:
        return values
    names = list(dict.fromkeys([*table[plot.row], *table[plot.column]]))
    values = values.reindex(index=names, columns=names)
    return values.combine_first(values.T).reindex(index=names, columns=names)


def _scale(plot: Heatmap, matrices: Sequence[pd.DataFrame]) -> tuple[Colormap, Normalize]:
    """Colours that span all the cells, so that small differences show."""
    seen = [m.mask(np.eye(len(m), dtype=bool)) if plot.symmetric else m for m in matrices]
    every = np.array(seen, dtype=float)
    every = every[np.isfinite(every)]
    low, high = (every.min(), every.max()) if len(every) else (0.0, 1.0)
    if plot.diverging:
        high = max(abs(low), abs(high), 1e-12)
        low = -high
    elif low == high:  # two models, or all pairs alike: the middle of the scale
        low, high = low - 0.5, high + 0.5
    return DIVERGING if plot.diverging else colormaps["cividis"], Normalize(low, high)


def _cells(
    axes: Axes, plot: Heatmap, matrix: pd.DataFrame, names: Sequence[Names], colours: ScalarMappable
) -> None:
    """Coloured cells with their numbers; on the diagonal of a symmetric matrix the noise floor
    where it is known."""
    rows, columns = names
    values = matrix.to_numpy(dtype=float)
    shades = colours.to_rgba(values)  # (rows, columns, 4)
    dark = shades[..., :3] @ (0.299, 0.587, 0.114) < 0.55
    size = min(style.SIZE, style.inches_of(axes)[0] / len(columns) * 15)
    text: dict[str, Any] = {"fontsize": size, "ha": "center", "va": "center_baseline"}
    for (y, x), value in np.ndenumerate(values):
        row, column = matrix.index[y], matrix.columns[x]
        again = plot.symmetric and row == column
        box = Rectangle((x - 0.5, y - 0.5), 1, 1, lw=0, antialiased=False)
        # Unlike a patch it moves no limits, which takes as long as the drawing.
        axes.add_artist(box)
        box.set_facecolor(tuple(shades[y, x]))
        if again or not np.isfinite(value):
            box.set(facecolor=style.FAINT, alpha=0.13)
        if not np.isfinite(value):
            continue
        label = f"{rows[row]}, scanned again" if again else f"{rows[row]} and {columns[column]}"
        style.tip(box, f"{label}: {number(value)}")
        if len(columns) <= NUMBERS:
            colour = style.GREY if again else style.ON_DARK if dark[y, x] else style.ON_LIGHT
            slant = "italic" if again else "normal"
            axes.text(x, y, _short(value), color=colour, style=slant, **text)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    axes.set_xticks(range(len(columns)), list(columns.values()), **SLOPED)
    axes.set_yticks(range(len(rows)), list(rows.values()))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _short(value: float) -> str:
    """Two decimals without the leading zero, as cells are small; what only rounds to 1 is not
    called 1, and zero has no minus. Large numbers get fewer decimals."""
    if 0.995 <= value < 1:
        return ">.99"
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    text = signed(value, f"z,.{decimals}f")
    return text.replace("0.", ".") if abs(value) < 1 else text


ACROSS = 5
"""Columns beside one another at most."""
ENDS = {"top": style.BLUE, "bottom": style.VERMILION}
BLOCK_WIDTH, BLOCK_GAP = 1.8, 0.16
"""Inches: a column at most, and between two."""
TEXT, SMALL = 6.5, 6.0  # points
LONGEST = 28
"""Characters of a token that are shown."""


def token_table(plot: TokenTable, table: pd.DataFrame) -> Figure:
    """A block for each value of `column`: its best tokens from the top, its worst to the bottom."""
    needed(table, plot.column, plot.end, plot.rank, plot.text, plot.value)
    table = table[table[plot.rank] <= plot.shown]
    columns = distinct(table, plot.column)
    depth = max(int(table[plot.rank].max()), 1)
    down = -(-len(columns) // ACROSS)
    across = -(-len(columns) // down)  # 8 in two lines of 4, not of 5 and 3
    room = min((style.PAGE_WIDTH - 0.1 + BLOCK_GAP) / across, BLOCK_WIDTH) - BLOCK_GAP
    names = style.shown_names(columns, plot.column, limit=60)
    heads = {column: _wrapped(name, room) for column, name in names.items()}
    lines = max(len(head) for head in heads.values())
    height = (2 * depth + 3.6 + lines) * style.LINE
    width = across * (room + BLOCK_GAP) - BLOCK_GAP + 0.1
    edges: dict[str, Any] = {"left": 0.05, "right": 0.05, "below": 0.1}
    none = [None] * len(columns)
    figure, places = style.frame(none, height=height, width=width, columns=across, **edges)
    for axes, column in zip(places, columns, strict=True):
        axes.set_axis_off()
        axes.set(xlim=(0, 1), ylim=(2 * depth + 3.6, -lines))
        for line, text in enumerate(reversed(heads[column])):
            axes.text(0, -0.5 - line, text, fontweight="bold", va="center")
        axes.axhline(0.12, color=style.INK, lw=0.6)
        _block(axes, plot, rows_with(table, plot.column, column), depth, room)
    return figure


def _block(axes: Axes, plot: TokenTable, table: pd.DataFrame, depth: int, room: float) -> None:
    """k lines from the top and k lines to the very last, each with its number."""
    for (end, colour), word in zip(ENDS.items(), plot.ends, strict=True):
        head = 0.8 if end == "top" else 2 * depth + 2.8
        axes.text(0, head, word, color=style.GREY, fontsize=SMALL, va="center")
        for row in table[table[plot.end] == end].to_dict("records"):
            at = head + row[plot.rank] * (1 if end == "top" else -1)
            value = significant(row[plot.value], digits=3)
            axes.text(1, at, value, color=style.GREY, fontsize=SMALL, va="center", ha="right")
            text = _fitting(str(row[plot.text]), room - style.inches([value], size=SMALL) - 0.08)
            axes.text(0, at, text, color=colour, fontsize=TEXT, va="center")
    axes.axhline(depth + 1.8, color=style.RULE, lw=0.6)


def _fitting(text: str, room: float) -> str:
    """The text literally, cut to so many inches."""
    limit = LONGEST
    while style.inches([short := literal(text, limit=limit)], size=TEXT) > room and limit > 4:
        limit = min(limit, len(short)) - 1
    return short


def _wrapped(name: str, room: float) -> list[str]:
    """A heading in one line or two, broken behind a hyphen or the like where it can be."""
    if style.inches([name], weight="bold") <= room:
        return [name]
    lengths = range(1, len(name))
    fitting = [n for n in lengths if style.inches([name[:n]], weight="bold") <= room]
    fits = max(fitting, default=1)
    breaks = [n for n in range(1, fits + 1) if name[n - 1] in "-_/ ·"]
    first = breaks[-1] if breaks and breaks[-1] > fits / 3 else fits
    rest = name[first:]
    while len(rest) > 2 and style.inches([rest], weight="bold") > room:
        rest = rest[:-2] + "…"
    return [name[:first], rest]
