"""All models under two prompts: how much of each one's order turns round, and along which axis its rewards vary.

Knows the table of `analysis.framing.framings`.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pessimal.figures import style
from pessimal.figures.style import (
    FAINT,
    OKABE_ITO,
    PAGE_WIDTH,
    new_figure,
    note,
    rows_of_marks,
    styled,
    subheading,
)
from pessimal.figures.words import literal, short_names

HALF = 0.5  # of unrelated orders, and of two axes that vary alike


@styled
def two_axes(
    table: pd.DataFrame, *, first: str, second: str, title: str = "Two prompts, all models"
) -> Figure:
    """Each model's reversal score and its share of variance along the axis first − second, with intervals.

    Models from the highest reversal score to the lowest. Dashed: a half, which is what unrelated orders give.

    Args:
        table: of `analysis.framing.framings`.
        first: the one prompt's name.
        second: the other's.
        title: of the figure.

    Source: Christian et al. 2025, Figure 4, in numbers.
    """
    table = table.sort_values("reversal", ascending=False, kind="stable")
    names = short_names(table["model"])
    figure = new_figure(PAGE_WIDTH, 1.3 + 0.2 * len(table))
    left, right = figure.subplots(1, 2, sharey=True)
    first, second = literal(first, limit=20), literal(second, limit=20)
    _forest(left, table, "reversal", colour=OKABE_ITO[0])
    left.set_xlabel("0: one order   ·   1: mirror image")
    subheading(left, "reversal score")
    _forest(right, table, "share_difference", colour=OKABE_ITO[1])
    right.set_xlabel("0: all along the sum   ·   1: all along the difference")
    subheading(right, f"share of variance along {first} − {second}")
    left.set_yticks(range(len(table)), [names[model] for model in table["model"]])
    left.set_ylim(len(table) - 0.4, -0.6)
    style.title(figure, title)
    counts = " or ".join(f"{n:,}" for n in sorted(table["n"].unique()))
    note(
        figure,
        f"Each model over its own {counts} items. Lines: bootstrap intervals over items, often narrower than the dot. "
        f"Reversal score: of the pairs of items that {first} and {second} both order, the share in opposite order.",
    )
    return figure


def _forest(axes: Axes, table: pd.DataFrame, value: str, *, colour: str) -> None:
    """A share of each model with its interval, between 0 and 1, the number beside it."""
    rows = range(len(table))
    axes.axvline(HALF, color=FAINT, lw=0.7, ls=(0, (4, 3)), zorder=1)
    axes.hlines(rows, table[f"{value}_low"], table[f"{value}_high"], color=colour, lw=1.4)
    axes.plot(table[value], rows, "o", color=colour, ms=4)
    level = axes.get_yaxis_transform()
    for row, share in zip(rows, table[value], strict=True):
        axes.text(1.03, row, f"{share:.3f}", transform=level, va="center", fontsize=7)
    axes.set_xlim(-0.02, 1.02)
    rows_of_marks(axes)
