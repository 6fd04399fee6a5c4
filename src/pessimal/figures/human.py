"""Models and people: how well they agree, and over which items they part.

Knows the tables of `analysis.human`.
"""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pessimal.figures import style
from pessimal.figures.style import GREY, INK, OKABE_ITO, PAGE_WIDTH, new_figure, note, styled
from pessimal.figures.words import literal, short_names

HUMAN, MODEL = OKABE_ITO[1], OKABE_ITO[0]


@styled
def forest(correlation: pd.DataFrame, *, title: str = "Agreement with people") -> Figure:
    """Each model's Spearman correlation with people, with its interval, highest first.

    Args:
        correlation: of `analysis.human.human_correlation`.
        title: of the figure.

    Source: Christian et al. 2025, Figure 5A.
    """
    table = correlation.sort_values("spearman", ascending=False, kind="stable")
    names = short_names(table["model"])
    figure = new_figure(PAGE_WIDTH, 1.0 + 0.24 * len(table))
    axes = figure.subplots()
    rows = range(len(table))
    axes.hlines(rows, table["low"], table["high"], color=MODEL, lw=1.4)
    axes.plot(table["spearman"], rows, "o", color=MODEL, ms=4.5)
    level = axes.get_yaxis_transform()
    for row, model in zip(rows, table.itertuples(), strict=True):
        numbers = f"{model.spearman:.3f}  [{model.low:.3f}, {model.high:.3f}]".replace("-", "−")
        axes.text(1.02, row, numbers, transform=level, va="center")
    if table["low"].min() < 0:
        axes.axvline(0, color=INK, lw=0.6)
    axes.set_yticks(rows, [names[model] for model in table["model"]])
    axes.set_ylim(len(table) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="#eeeeee", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("Spearman's ρ between rewards and human Elo scores")
    axes.set_title(title)
    note(
        figure,
        f"{int(table['n'].iloc[0]):,} items. Lines: bootstrap interval over items, the same items for all models.",
    )
    return figure


@styled
def rank_gaps(
    difference: pd.DataFrame, *, k: int = 12, title: str = "Where models and people part"
) -> Figure:
    """The k items that models rank farthest above people, and the k farthest below.

    Args:
        difference: of `analysis.human.rank_difference`.
        k: items per side.
        title: of the figure.

    Source: Christian et al. 2025, Figure 5B.
    """
    ordered = difference.sort_values("difference", kind="stable")
    figure = new_figure(PAGE_WIDTH, 1.15 + 0.18 * min(k, len(ordered)))
    left, right = figure.subplots(1, 2, sharex=True)
    _gaps(left, ordered.head(k), heading="models rank higher than people do")
    _gaps(right, ordered.tail(k).iloc[::-1], heading="models rank lower than people do")
    left.set_xlim(len(difference) * 1.04, -0.04 * len(difference))
    style.title(figure, title)
    handles = left.get_legend_handles_labels()
    figure.legend(*handles, loc="outside upper right", ncols=2)
    note(figure, f"Rank among {len(difference):,} items, 1 = best; models: median over models.")
    return figure


def _gaps(axes: Axes, items: pd.DataFrame, *, heading: str) -> None:
    """Each item's two ranks, joined."""
    rows = range(len(items))
    axes.hlines(rows, items["human_rank"], items["model_rank"], color="#cccccc", lw=1.2, zorder=1)
    axes.plot(items["human_rank"], rows, "o", color=HUMAN, ms=3.8, label="people")
    axes.plot(items["model_rank"], rows, "o", color=MODEL, ms=3.8, label="models")
    axes.set_yticks(rows, [literal(str(name), limit=26) for name in items["name"]])
    axes.set_ylim(len(items) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("rank (best on the right)")
    axes.set_title(heading, fontsize=7.5, fontweight="normal", color=GREY)
