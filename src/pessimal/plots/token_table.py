"""Tokens at both ends, a column for each model: optimal ones above, pessimal ones below.

Tokens are hostile strings: they are drawn literally, with escapes for what cannot be seen.
"""

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pessimal.plots import TokenTable, style
from pessimal.plots.style import distinct, needed, rows_with
from pessimal.texts import literal, significant

ACROSS = 5
"""Columns beside one another at most."""
ENDS = {"top": style.BLUE, "bottom": style.VERMILION}
WIDE, GAP = 1.8, 0.16
"""Inches: a column at most, and between two."""
TEXT, SMALL = 6.5, 6.0  # points
LONGEST = 28
"""Characters of a token that are shown."""


def token_table(plot: TokenTable, table: pd.DataFrame, palette: Mapping[object, str]) -> Figure:
    """A block for each value of `column`: its best tokens from the top, its worst to the bottom."""
    needed(table, plot.column, plot.end, plot.rank, plot.text, plot.value)
    table = table[table[plot.rank] <= plot.shown]
    columns = distinct(table, plot.column)
    depth = max(int(table[plot.rank].max()), 1)
    down = -(-len(columns) // ACROSS)
    across = -(-len(columns) // down)  # 8 in two lines of 4, not of 5 and 3
    room = min((style.PAGE_WIDTH - 0.1 + GAP) / across, WIDE) - GAP
    names = style.shown_names(columns, plot.column, limit=60)
    heads = {column: _wrapped(name, room) for column, name in names.items()}
    lines = max(len(head) for head in heads.values())
    height, width = (2 * depth + 3.6 + lines) * style.LINE, across * (room + GAP) - GAP + 0.1
    none = [None] * len(columns)
    figure, places = style.frame(
        none, height=height, left=0.05, right=0.05, below=0.1, width=width, columns=across
    )
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
    while style.inches([shown := literal(text, limit=limit)], size=TEXT) > room and limit > 4:
        limit = min(limit, len(shown)) - 1
    return shown


def _wrapped(name: str, room: float) -> list[str]:
    """A heading in one line or two, broken behind a hyphen or the like where it can be."""
    if style.inches([name], weight="bold") <= room:
        return [name]
    fits = max(
        (n for n in range(1, len(name)) if style.inches([name[:n]], weight="bold") <= room),
        default=1,
    )
    breaks = [n for n in range(1, fits + 1) if name[n - 1] in "-_/ ·"]
    first = breaks[-1] if breaks and breaks[-1] > fits / 3 else fits
    rest = name[first:]
    while len(rest) > 2 and style.inches([rest], weight="bold") > room:
        rest = rest[:-2] + "…"
    return [name[:first], rest]
