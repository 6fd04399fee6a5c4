"""What one model rewards in itself: the slope of its reward on each attribute with all others held.

Knows the table of slopes (columns are named below). Does not know how they were fitted.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from pessimal.errors import TableError
from pessimal.figures import style
from pessimal.figures.sensitivity import (
    SLOPE,
    checked,
    least_to_most,
    marks,
    most_sensitive_first,
)
from pessimal.figures.style import GREY, INK, OKABE_ITO, PAGE_WIDTH, new_figure, note, rows_of_marks, styled
from pessimal.figures.words import literal, short_names


@styled
def slopes_forest(
    table: pd.DataFrame, *, confidence: float = 0.95, level: float = 0.05, title: str | None = None
) -> Figure:
    """One model's reward per attribute with all others held, the largest on top, with intervals.

    Args:
        table: a row an attribute: model, attribute, n, comparisons, slope, slope_low, slope_high (SDs of reward per SD of
            the attribute; missing where there are too few comparisons), slope_q (corrected p), inflation, explained.
        confidence: that of the intervals.
        level: q below which a mark is filled.
        title: of the figure.

    Raises:
        TableError: rows of more than one model, or two rows for one attribute.
    """
    table, attributes, _ = checked(table, SLOPE)
    models = list(dict.fromkeys(table["model"]))
    if len(models) > 1:
        raise TableError(
            f"This figure shows one model; given were {', '.join(map(str, models))}. Select one."
        )
    rows = table.set_index("attribute").loc[attributes]
    rows = rows.loc[most_sensitive_first(rows[SLOPE].abs(), SLOPE)]
    figure = new_figure(PAGE_WIDTH, 1.4 + 0.19 * len(rows))
    axes = figure.subplots()
    marks(axes, rows, SLOPE, colour=OKABE_ITO[4], level=level)
    axes.axvline(0, color=INK, lw=0.6, zorder=1)
    axes.set_xlabel("SDs of reward per SD of the attribute")
    rows_of_marks(axes)
    small = {"color": GREY, "fontsize": 7, "transform": axes.get_yaxis_transform(), "va": "center"}
    for row, inflation in enumerate(rows["inflation"]):
        axes.text(1.02, row, f"{inflation:.1f}" if np.isfinite(inflation) else "", **small)
    axes.text(1.02, -1, "inflation", **small)
    axes.set_yticks(range(len(rows)), [literal(name) for name in rows.index])
    axes.set_ylim(len(rows) - 0.4, -1.4)
    style.title(figure, title or f"What {short_names(models)[models[0]]} rewards, others held")
    explained = rows["explained"].iloc[0]
    sure = np.isfinite(rows["slope_low"].to_numpy(dtype=float)).any()
    note(
        figure,
        f"{least_to_most(rows['n'], 'edit')} of {least_to_most(rows['comparisons'], 'comparison')}"
        + (
            f"; together the attributes explain {explained:.0%} of what the edits do to the reward. "
            if np.isfinite(explained)
            else ". "
        )
        + (
            f"Lines: {confidence:.0%} intervals; filled: q < {level:g}. "
            if sure
            else "Too few comparisons for intervals or tests. "
        )
        + "Inflation: of the variance, by what attributes have in common.",
    )
    return figure
