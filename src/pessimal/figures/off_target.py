"""Whether an edit changed what was asked for, and what else it changed: attributes × detectors.

Knows a matrix of numbers with names. Does not know detectors or texts.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pessimal.errors import TableError
from pessimal.figures import style
from pessimal.figures.style import INK, PAGE_WIDTH, new_figure, note, styled
from pessimal.figures.words import literal

MISSING = "#e6e6e6"
_GAP = 0.35  # of a cell, between what is an attribute and what is not


@styled
def off_target(
    matrix: pd.DataFrame,
    *,
    label: str,
    counts: pd.Series | None = None,
    apart: Sequence[str] = ("placebo",),
    title: str = "What edits change besides what was asked for",
) -> Figure:
    """Asked attribute × detector, each cell printed, the diagonal framed.

    A good perturber has large numbers in the frames and small ones beside them. Detectors of no asked attribute
    (length, say) stand apart on the right, rows of `apart` at the bottom.

    Args:
        matrix: indexed by the attribute that was asked for, one column a detector; NaN where nothing was detected.
        label: what a number is, its unit, and what its sign says.
        counts: perturbations each row rests on, by attribute.
        apart: rows that ask for no attribute.
        title: of the figure.

    Raises:
        TableError: an attribute or a detector stands there twice, or there is no number.
    """
    for names, what in ((matrix.index, "attribute"), (matrix.columns, "detector")):
        if names.has_duplicates:
            raise TableError(f"The {what} {names[names.duplicated()][0]!r} stands in the matrix twice.")
    values = matrix.to_numpy(dtype=float)
    if not np.isfinite(values).any():
        raise TableError("The matrix holds no number; there is nothing to draw.")
    asked = [name for name in matrix.index if name not in apart]
    controls = [name for name in matrix.index if name in apart]
    # The detectors of what was asked, in the same order, so that a diagonal is a diagonal.
    own = [name for name in asked if name in matrix.columns]
    others = [name for name in matrix.columns if name not in own]
    rows, columns = _places(asked, controls), _places(own, others)
    wide, high = max(columns.values()) + 1, max(rows.values()) + 1
    figure = new_figure(PAGE_WIDTH, 1.85 + min(0.24 * high, 5.0))
    axes = figure.subplots()
    widest = float(np.nanmax(np.abs(values))) or 1.0
    fontsize = 6.3 if wide <= 17 else 5
    for attribute, row in rows.items():
        for detector, column in columns.items():
            _cell(axes, column, row, float(matrix.loc[attribute, detector]), widest, fontsize)
    for name in own:
        frame = Rectangle((columns[name] - 0.5, rows[name] - 0.5), 1, 1, fill=False, ec=INK, lw=1.4, zorder=3)
        frame.set_clip_on(False)
        axes.add_patch(frame)
    axes.set(xlim=(-0.5, wide - 0.5), ylim=(high - 0.5, -0.5))
    axes.set_xticks(
        list(columns.values()),
        [literal(str(name)) for name in columns],
        rotation=40,
        ha="right",
        rotation_mode="anchor",
    )
    axes.set_yticks(list(rows.values()), [_named(name, counts) for name in rows])
    axes.set_xlabel("detected")
    axes.set_ylabel("asked for")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    style.title(figure, title)
    note(
        figure,
        f"{label[:1].upper()}{label[1:]}. Framed: the attribute that was asked for. Purple above 0, orange below; grey: "
        f"not known.{' In brackets: perturbations a row rests on.' if counts is not None else ''}",
    )
    return figure


def _places(first: list[str], then: list[str]) -> dict[str, float]:
    """A coordinate for every name, a gap before the second group."""
    gap = _GAP if first else 0.0
    return {name: float(place) for place, name in enumerate(first)} | {
        name: len(first) + gap + place for place, name in enumerate(then)
    }


def _cell(axes: Axes, x: float, y: float, number: float, widest: float, fontsize: float) -> None:
    """One coloured square and its number."""
    known = np.isfinite(number)
    colour = colormaps["PuOr"]((number / widest + 1) / 2) if known else MISSING
    axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fc=colour, ec="white", lw=0.4, zorder=1))
    if known:
        axes.text(
            x,
            y,
            f"{number:z.2f}".replace("-", "−"),
            ha="center",
            va="center",
            fontsize=fontsize,
            color="white" if np.dot(colour[:3], (0.2126, 0.7152, 0.0722)) < 0.5 else INK,
        )


def _named(name: str, counts: pd.Series | None) -> str:
    """An attribute, with what its row rests on."""
    n = None if counts is None else counts.get(name)
    return literal(str(name)) + ("" if n is None or pd.isna(n) else f" ({int(n):,})")
