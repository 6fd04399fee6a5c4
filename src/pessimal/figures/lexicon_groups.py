"""Rewards of the words that a lexicon calls positive, above those of the words that it calls negative, model by model.

Knows the tables of `analysis.lexicon_groups`, of several models under one another (column model).
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pessimal.figures import style
from pessimal.figures.style import GREY, INK, OKABE_ITO, PAGE_WIDTH, new_figure, note, styled, subheading
from pessimal.figures.words import literal, short_names

GROUPS = {"positive": (OKABE_ITO[0], -1), "negative": (OKABE_ITO[1], 1)}
"""Colour, and on which side of the model's line: rows go downwards, so −1 is above."""
MOST_DOTS = 400
"""Of a group."""
BINS = 90
"""Dots of one bin stand on one another; the bins span the panel."""
REACH = 0.44
"""Of a row's height, how far the highest pile goes."""
ROW, TALLEST_ROW, ROWS = 0.36, 0.7, 2.0
"""Inches that a model takes at least and at most, and that a few models share."""


@styled
def beeswarms(
    words: pd.DataFrame,
    separation: pd.DataFrame,
    *,
    lexicon: str,
    unit: str = "words",
    title: str = "Positive words against negative words",
) -> Figure:
    """For each prompt a panel, for each model a row: piles of dots, positive words above the line, negative below.

    Of a group with more than `MOST_DOTS` words so many are drawn, at equal steps through their order, so that the shape
    is kept; medians and numbers are of all. All piles of a panel have one scale; none stands for a number of words.

    Args:
        words: of `analysis.lexicon_groups.lexicon_groups`, with the column model.
        separation: likewise.
        lexicon: its name.
        unit: what a dot is.
        title: of the figure.

    Source: Christian et al. 2025, Figure A3.
    """
    prompts = list(dict.fromkeys(separation["prompt"]))
    models = list(dict.fromkeys(separation["model"]))
    columns = min(len(prompts), 3)
    rows = -(-len(prompts) // columns)
    row = max(ROW, min(TALLEST_ROW, ROWS / len(models)))
    figure = new_figure(PAGE_WIDTH, 0.75 + rows * (0.65 + row * len(models)))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(prompts) :]:
        axes.set_visible(False)
    edges = np.linspace(words["z"].min(), words["z"].max(), BINS + 1)
    for axes, prompt in zip(grid.flat, prompts, strict=False):
        of_prompt = words[words["prompt"] == prompt]
        _swarms(axes, of_prompt, models, edges)
        _printed(axes, separation[separation["prompt"] == prompt].set_index("model").reindex(models))
        subheading(axes, literal(prompt, limit=20))
        axes.set_xlabel("reward (z)")
        axes.tick_params(axis="x", labelbottom=True)  # a panel may have none below it
    first = grid[0, 0]
    first.set_yticks(range(len(models)), list(short_names(models, limit=24).values()))
    first.set_ylim(len(models) - 0.45, -0.55)
    style.title(figure, title)
    handles = [
        Line2D([], [], color=colour, marker="o", ls="", ms=3, label=f"{group} {unit}")
        for group, (colour, _) in GROUPS.items()
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, handletextpad=0.2)
    drawn = min(MOST_DOTS, words.groupby(["model", "prompt", "group"]).size().max())
    note(
        figure,
        f"{literal(lexicon, limit=30)}: {_counts(separation)} {unit} of each model's own vocabulary; at most {drawn} dots a "
        "group, at equal steps through its order, so that piles show shape and not number. Tick: median of the group. z: reward less its mean over the vocabulary, "
        f"over its standard deviation. AUC: how often a positive {unit.removesuffix('s')} earns more than a negative one (.50: the groups lie alike).",
    )
    return figure


def thinned(values: np.ndarray, *, most: int = MOST_DOTS) -> np.ndarray:
    """At most so many of the values, at equal steps through their order, lowest and highest among them; shuffled.

    In order, the dots of a pile would lean to the right, as if that meant something.
    """
    ordered = np.sort(values)
    if len(ordered) > most:
        ordered = ordered[np.linspace(0, len(ordered) - 1, most).round().astype(int)]
    return np.random.default_rng(0).permutation(ordered)


def piled(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """For each value how many before it share its bin: the height of its dot in the pile."""
    bins = np.searchsorted(edges, values, side="right")
    return pd.Series(bins).groupby(bins).cumcount().to_numpy()


def _swarms(axes: Axes, words: pd.DataFrame, models: list[str], edges: np.ndarray) -> None:
    """Dots and medians of all models under one prompt, piles on one scale."""
    swarms = {}
    for key, part in words.groupby(["model", "group"], sort=False):
        shown = thinned(part["z"].to_numpy())
        swarms[key] = shown, piled(shown, edges), part["z"].median()
    highest = max(height.max() for _, height, _ in swarms.values()) + 1
    step = min(REACH / highest, 0.04)
    for (model, group), (shown, height, median) in swarms.items():
        colour, side = GROUPS[group]
        row = models.index(model)
        axes.plot(
            shown,
            row + side * (0.02 + step * (height + 0.5)),
            "o",
            color=colour,
            ms=1.3,
            mew=0,
            rasterized=True,  # 15 models × 3 prompts are 36,000 dots, and a page of 10 MB
        )
        axes.plot([median, median], [row, row + side * REACH], color=INK, lw=0.9, zorder=3)
    for row in range(len(models)):
        axes.axhline(row, color="#cccccc", lw=0.5, zorder=0)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _printed(axes: Axes, separation: pd.DataFrame) -> None:
    """Each model's AUC right of its row."""
    level = axes.get_yaxis_transform()
    axes.text(1.02, 1.0, "AUC", transform=axes.transAxes, fontsize=6.5, color=GREY, va="bottom")
    for row, auc in enumerate(separation["auc"]):
        if not np.isnan(auc):
            axes.text(1.02, row, auc_text(auc), transform=level, va="center", fontsize=6.5)


def auc_text(auc: float) -> str:
    """Two decimals without the leading zero; what only rounds to 0 or 1 is not called so."""
    if 0.995 <= auc < 1:
        return ">.99"
    if 0 < auc < 0.005:
        return "<.01"
    return f"{auc:.2f}".removeprefix("0")


def _counts(separation: pd.DataFrame) -> str:
    """How many, over models: `606 positive and 870 negative`."""
    told = []
    for group in GROUPS:
        low, high = separation[group].min(), separation[group].max()
        told.append(f"{low:,} {group}" if low == high else f"{low:,} to {high:,} {group}")
    return " and ".join(told)
