"""The one look that all figures share: type, colours, marks, and how wide a journal's page is.

Knows matplotlib; knows nothing of what is drawn. No figure has a title: the page and captions give
it.
"""

import colorsys
import functools
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import font_manager, rc_context, rc_params_from_file
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from pessimal.errors import TableError
from pessimal.texts import literal, short_names, signed

COLUMN_WIDTH, PAGE_WIDTH = 5.6, 7.2  # inches: one panel, and a journal's page
LINE, PANEL_GAP = 0.145, 0.28
"""Inches: a line of small text, and the space between two panels."""
INK, GREY, FAINT, RULE, PAPER = "#222222", "#555555", "#8a8a8a", "#e2e2e2", "#ffffff"
VARIABLES = {INK: "--ink", GREY: "--grey", FAINT: "--faint", RULE: "--rule", PAPER: "--paper"}
"""Colours that a page may replace in the SVG, and the CSS variables by which it does."""
ON_DARK, ON_LIGHT = "#fdfdfd", "#1c1c1c"
"""Text on coloured cells: the cell stays as it is on a dark page, and so must its text."""
# Okabe & Ito 2008, distinct with any colour vision. Their black is ink, which a dark page turns
# white; in place of their yellow, which no line can have on white, stands Tol's olive.
OKABE_ITO = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", INK, "#999933")
BLUE, VERMILION = OKABE_ITO[:2]
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
MODEL_COLUMNS = ("model", "model_a", "model_b")

# DejaVu comes with matplotlib, so every machine lays figures out alike; it has no Chinese,
# Japanese, Korean or emoji. Tokens are full of them: the PNG takes what the machine has, the SVG
# leaves it to the browser.
_WIDER = ("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans", "Noto Sans Symbols", "Noto Emoji")
_INSTALLED = {font.name for font in font_manager.fontManager.ttflist}
FONTS = (
    "'Helvetica Neue', Arial, 'Liberation Sans', 'DejaVu Sans', 'Noto Sans', 'Noto Sans CJK SC', "
    "sans-serif"
)
"""In the SVG. No wider than DejaVu, by which room was made."""
SIZE = 7.0  # points, as in pessimal.mplstyle
SLOPE = 40  # degrees, of names below an axis
SLOPED: dict[str, Any] = {"rotation": SLOPE, "ha": "right", "rotation_mode": "anchor"}
STYLE = rc_params_from_file(
    Path(__file__).with_name("pessimal.mplstyle"), use_default_template=False
) | {"font.family": ["DejaVu Sans", *(name for name in _WIDER if name in _INSTALLED)]}


@contextmanager
def styled() -> Iterator[None]:
    """Draw under the shared style, without one warning for each character that no installed font
    has."""
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def frame(
    headings: Sequence[object],
    *,
    height: float,
    left: float,
    right: float = 0.12,
    below: float = 0.4,
    width: float | None = None,
    columns: int = 3,
    xlabel: str = "",
    ylabel: str = "",
    handles: Sequence[Artist] = (),
) -> tuple[Figure, list[Axes]]:
    """A figure of panels on one scale, laid out in inches: everything has its place before it is
    drawn.

    Args:
        headings: of the panels, None for one without; `columns` side by side at most, four in two
            rows.
        height: of a panel.
        left, right: of the panels: room for names of rows, and of lines.
        below: each row of panels: room for ticks and label.
        width: of the whole figure.
        xlabel: one for all, centred below the panels.
        ylabel: of the panels at the left.
        handles: of a legend over everything.
    """
    headed = any(heading is not None for heading in headings)
    across = side_by_side(len(headings), columns)
    down = -(-len(headings) // across)
    width = width or (COLUMN_WIDTH if across == 1 else PAGE_WIDTH)
    lines, per_line = _legend_lines(handles, width - 0.1)
    top = lines * LINE + 0.05 + (0.0 if headed else 0.1) * bool(lines)
    row = height + below + (0.2 if headed else 0.0)
    total = top + down * row
    panel_width = (width - left - right - (across - 1) * PANEL_GAP) / across
    figure = Figure(figsize=(width, total))
    FigureCanvasAgg(figure)
    panels: list[Axes] = []
    for place, heading in enumerate(headings):
        bottom, column = total - top - (place // across + 1) * row + below, place % across
        start = (left + column * (panel_width + PANEL_GAP)) / width
        box = start, bottom / total, panel_width / width, height / total
        first = panels[0] if panels else None
        axes = figure.add_axes(box, sharex=first, sharey=first)
        axes.set_axisbelow(True)
        if heading is not None:
            axes.set_title(literal(str(heading), limit=60 if across == 1 else 40))
        if column:
            axes.tick_params(labelleft=False)
        elif ylabel:
            axes.set_ylabel(ylabel)
        panels.append(axes)
    if handles:
        corner: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.05 / width, 1)}
        figure.legend(handles=handles, ncols=per_line, **corner)
    if xlabel:
        middle = (left + (width - left - right) / 2) / width
        figure.text(middle, 0.05 / total, xlabel, ha="center", va="bottom")
    return figure, panels


def inches_of(axes: Axes) -> tuple[float, float]:
    """Width and height of a panel."""
    box, figure = axes.get_position(), axes.get_figure(root=True)
    assert figure is not None
    width, height = figure.get_size_inches()
    return box.width * width, box.height * height


def side_by_side(panels: int, columns: int = 3) -> int:
    """Number of panels in a row: four in two rows of two."""
    return panels if panels <= columns else 2 if panels == 4 else columns


def _legend_lines(handles: Sequence[Artist], width: float) -> tuple[int, int]:
    """Number of lines of a legend in so many inches, and how many entries stand on one."""
    widths = [inches([str(handle.get_label())]) + 0.46 for handle in handles]
    for lines in range(1, len(handles) + 1):  # entries run down the columns
        across = -(-len(handles) // lines)
        columns = [widths[place : place + lines] for place in range(0, len(widths), lines)]
        if sum(map(max, columns)) <= width:
            return lines, across
    return len(handles), 1


def inches(texts: Iterable[str], *, size: float = SIZE, weight: str = "normal") -> float:
    """The width of the widest text."""
    return max((_width(text, size, weight) for text in texts), default=0.0)


@functools.lru_cache(maxsize=4096)
def _width(text: str, size: float, weight: str) -> float:
    font = font_manager.FontProperties(family=STYLE["font.family"], size=size, weight=weight)
    return _RULER.get_text_width_height_descent(text, font, False)[0] / 72 if text else 0.0


_RULER = RendererAgg(1, 1, 72)


def colours(categories: Iterable[object]) -> dict[object, str]:
    """A colour for each category, in order of first appearance; no two are the same: from the ninth
    on, hues around the circle, light and dark by turns."""
    return {category: _colour(place) for place, category in enumerate(dict.fromkeys(categories))}


def _colour(place: int) -> str:
    if place < len(OKABE_ITO):
        return OKABE_ITO[place]
    turn = place - len(OKABE_ITO)
    lightness, saturation = (0.62, 0.38, 0.5)[turn % 3], (0.45, 0.6, 0.8)[turn // 3 % 3]
    rgb = colorsys.hls_to_rgb(turn * 0.618034 % 1, lightness, saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


def looks(groups: Iterable[object]) -> dict[object, tuple[str, str]]:
    """Colour and mark of each group; marks repeat from the eleventh on."""
    pairs = zip(colours(groups).items(), cycle(MARKERS), strict=False)
    return {group: (colour, mark) for (group, colour), mark in pairs}


def key(looks: Mapping[object, tuple[str, str]], **line: Any) -> list[Line2D]:
    """Handles of a legend: what each group's colour and mark stand for."""
    return [
        Line2D([], [], label=literal(str(group), limit=40), color=colour, **{"marker": mark} | line)
        for group, (colour, mark) in looks.items()
        if group is not None
    ]


def distinct(table: pd.DataFrame, column: str | None) -> list:
    """The values of a column in order of first appearance; [None] where no column was named."""
    if column is None:
        return [None]
    needed(table, column)
    return list(dict.fromkeys(table[column]))


def rows_with(table: pd.DataFrame, column: str | None, value: object) -> pd.DataFrame:
    """The rows with this value; all of them where no column was named."""
    return table if column is None else table[table[column] == value]


def needed(table: pd.DataFrame, *columns: str | None) -> None:
    """Raise where the declaration names a column that the table lacks."""
    if missing := [column for column in columns if column and column not in table]:
        names = ", ".join(map(str, table.columns))
        raise TableError(f"A figure needs the column {missing[0]!r}; the table has {names}.")


def shown_names(
    values: Sequence[object], column: str | None = None, *, limit: int = 30
) -> dict[object, str]:
    """Name of each value: models without their organisation, everything literal, as short
    as `limit` where no two look alike by it."""
    texts = {value: str(value) for value in values}
    for longer in range(limit, limit + 60, 5):
        short = {text: literal(text, limit=longer) for text in texts.values()}
        if column in MODEL_COLUMNS:
            short = short_names(texts.values(), limit=longer)
        lengths = [len(name) for name in {*short.values()}]
        if len(lengths) == len(short) and max(lengths, default=0) <= longer:
            break
    return {value: short[text] for value, text in texts.items()}


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Rows from the top, named on the left: no line or ticks there, and every second one shaded."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if len(names) > 2:
        for row in range(1, len(names), 2):
            axes.axhspan(row - 0.5, row + 0.5, color=FAINT, alpha=0.09, lw=0, zorder=0)


def few_ticks(axis: Axis, *, limit: int = 6) -> None:
    """Round numbers, not too many for a narrow panel."""
    axis.set_major_locator(MaxNLocator(limit, steps=[1, 2, 5, 10]))


def log_ticks(axis: Axis) -> None:
    """Powers of ten written out: matplotlib's own labels are formulas, which no figure of ours
    parses."""
    axis.set_major_locator(LogLocator(numticks=7))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def tip(artist: Artist, text: str) -> None:
    """Text that the SVG shows when the pointer rests on this mark; the artist stands in its figure
    already."""
    tips = artist.get_figure(root=True).__dict__.setdefault("tips", {})
    artist.set_gid(f"tip{len(tips)}")
    tips[artist.get_gid()] = text


def number(value: float) -> str:
    """A number for a tip: three significant digits and a true minus."""
    form = ",.0f" if abs(value) >= 1000 else ".3g"
    return signed(value, form) if np.isfinite(value) else "–"
