"""Distributions beside one another, of densities computed before."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pessimal.plots import Violin, style
from pessimal.plots.style import distinct, needed, number, rows_with, shown_names


def violin(plot: Violin, table: pd.DataFrame, palette: Mapping[object, str]) -> Figure:
    """A violin a row: the bar is the middle half, the dot the median, both read from the
    density."""
    needed(table, plot.row, plot.x, plot.density)
    rows = distinct(table, plot.row)
    names = shown_names(rows, plot.row, limit=34)
    left = style.inches(names.values()) + 0.14
    figure, (axes,) = style.frame(
        [None], height=0.3 * len(rows) + 0.1, left=left, xlabel=plot.ylabel
    )
    axes.axvline(0, color=style.FAINT, lw=0.6, ls=(0, (4, 3)), zorder=1)
    for place, row in enumerate(rows):
        shown = rows_with(table, plot.row, row).sort_values(plot.x)
        x, height = shown[plot.x].to_numpy(dtype=float), shown[plot.density].to_numpy(dtype=float)
        height = height / height.max()
        mass = np.cumsum(height * np.gradient(x)) if len(x) > 1 else np.ones(1)
        lower, median, upper = np.interp([0.25, 0.5, 0.75], mass / mass[-1], x)
        body = axes.fill_between(
            x, place - 0.43 * height, place + 0.43 * height, color=style.BLUE, alpha=0.5, lw=0
        )
        middle = f"median {number(median)}, middle half {number(lower)} to {number(upper)}"
        style.tip(body, f"{names[row]}: {middle}")
        axes.plot(x[[0, -1]], [place, place], color=style.INK, lw=0.5)
        axes.plot([lower, upper], [place, place], color=style.INK, lw=2.6, solid_capstyle="butt")
        axes.plot(median, place, "o", color=style.INK, mfc=style.PAPER, mew=0.6, ms=3)
    style.name_rows(axes, list(names.values()))
    style.few_ticks(axes.xaxis, most=8)
    axes.grid(axis="x", color=style.RULE, lw=0.5)
    return figure
