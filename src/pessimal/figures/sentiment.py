"""Reward and valence: curves, and the slopes on either side of zero.

Knows the tables of `analysis.sentiment`, of several models under one another (column model).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pessimal.figures import style
from pessimal.figures.style import (
    GREY,
    INK,
    OKABE_ITO,
    PAGE_WIDTH,
    new_figure,
    note,
    rows_of_marks,
    styled,
    subheading,
)
from pessimal.figures.words import literal, short_names

ARMS = {"positive": (OKABE_ITO[0], "o"), "negative": (OKABE_ITO[1], "s")}
ROW = 0.25
"""Inches that a model takes."""


@styled
def curves(
    curve: pd.DataFrame, slopes: pd.DataFrame, *, lexicon: str, title: str = "Reward by valence"
) -> Figure:
    """Mean reward by valence under each prompt, a thin line a model, with the two lines fitted to either side of zero.

    Args:
        curve: of `analysis.sentiment.sentiment`, with the column model.
        slopes: likewise.
        lexicon: its name.
        title: of the figure.

    Source: Christian et al. 2025, Figures 3A–C.
    """
    prompts = list(dict.fromkeys(curve["prompt"]))
    models = curve["model"].nunique()
    figure, panels = _panels(prompts, height=2.3)
    for axes, prompt in zip(panels, prompts, strict=True):
        shown = curve[curve["prompt"] == prompt]
        for _, line in shown.groupby("model", sort=False) if models > 1 else ():
            axes.plot(line["valence"], line["z"], color="#bbbbbb", lw=0.6, zorder=1)
        mean = shown.groupby("valence")["z"].mean()
        axes.plot(mean.index, mean, "o", color=INK, ms=3, zorder=3)
        _fitted(axes, slopes[slopes["prompt"] == prompt], reach=curve["valence"])
        axes.axhline(0, color=INK, lw=0.5, zorder=0)
        axes.axvline(0, color="#cccccc", lw=0.5, zorder=0)
        subheading(axes, literal(prompt, limit=26))
        axes.set_xlabel(f"valence ({literal(lexicon, limit=20)})")
    panels[0].set_ylabel("reward (z)")
    style.title(figure, title)
    line = Line2D([], [], color="#bbbbbb", lw=0.8, label="one model")
    dots = Line2D(
        [], [], color=INK, marker="o", ls="", ms=3, label="mean of models" if models > 1 else "mean"
    )
    fits = [Line2D([], [], color=colour, lw=1.8, label=f"{arm} words") for arm, (colour, _) in ARMS.items()]
    handles = [line, dots, *fits] if models > 1 else [dots, *fits]
    figure.legend(handles=handles, loc="outside upper right", ncols=4, columnspacing=1.2, handlelength=1.4)
    note(
        figure,
        f"{_words(slopes)} words of {'one model' if models == 1 else f'each of {models} models'}. z: reward less its mean "
        "over all words of the vocabulary, over its standard deviation. Thick: least-squares lines"
        + (", mean of the models'." if models > 1 else "."),
    )
    return figure


@styled
def slope_forest(
    slopes: pd.DataFrame, *, lexicon: str, paper: bool = False, title: str = "Slopes by valence"
) -> Figure:
    """Each model's slope over positive and over negative words, under each prompt, with intervals.

    Args:
        slopes: of `analysis.sentiment.sentiment`, with the column model.
        lexicon: its name.
        paper: the slopes are those of the published procedure.
        title: of the figure.

    Source: Christian et al. 2025, Figure A4.
    """
    models = list(dict.fromkeys(slopes["model"]))
    prompts = list(dict.fromkeys(slopes["prompt"]))
    figure, panels = _panels(prompts, height=0.75 + ROW * len(models))
    for axes, prompt in zip(panels, prompts, strict=True):
        shown = slopes[slopes["prompt"] == prompt]
        for shift, (arm, (colour, mark)) in zip((-0.16, 0.16), ARMS.items(), strict=True):
            part = shown[shown["arm"] == arm].set_index("model").reindex(models)
            rows = np.arange(len(models)) + shift
            _marks(axes, rows, part, estimate="slope_sd", colour=colour, mark=mark)
        _named(axes, models, prompt=prompt, first=axes in _first_column(panels))
        axes.set_xlabel("slope (z per unit of valence)")
    style.title(figure, title)
    handles = [
        Line2D([], [], color=colour, marker=mark, ms=3.5, lw=1.2, label=f"{arm} words")
        for arm, (colour, mark) in ARMS.items()
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2)
    note(
        figure,
        f"{literal(lexicon, limit=30)}: {_words(slopes)} words of each model's own vocabulary; a line for each side of "
        f"zero. Bars: {'textbook intervals' if paper else 'intervals over words, those of one stem taken as dependent'}.",
    )
    return figure


@styled
def asymmetry_forest(
    asymmetry: pd.DataFrame,
    across: pd.DataFrame,
    *,
    lexicon: str,
    title: str = "Which words a frame tells apart",
) -> Figure:
    """How much steeper each model is on positive words than on negative ones, and the mean of the models.

    Args:
        asymmetry: of `analysis.sentiment.sentiment`, with the column model.
        across: of `analysis.asymmetry.asymmetry_across_models`, of the same lexicon.
        lexicon: its name.
        title: of the figure.
    """
    models = list(dict.fromkeys(asymmetry["model"]))
    prompts = list(dict.fromkeys(asymmetry["prompt"]))
    figure, panels = _panels(prompts, height=0.95 + ROW * (len(models) + 1))
    for axes, prompt in zip(panels, prompts, strict=True):
        part = asymmetry[asymmetry["prompt"] == prompt].set_index("model").reindex(models)
        opposite = bool((part["frames"] == "opposite").any())
        colour = OKABE_ITO[2] if opposite else GREY
        _marks(axes, np.arange(len(models)), part, estimate="steeper_sd", colour=colour, mark="o")
        mean = across[across["prompt"] == prompt].iloc[0]
        below = len(models) + 0.3
        axes.plot([mean["low"], mean["high"]], [below, below], color=INK, lw=1.4)
        axes.plot(mean["mean"], below, "D", color=INK, ms=4.5)
        _named(axes, models, prompt=prompt, first=axes in _first_column(panels), last="mean")
        axes.set_xlabel("difference (z)")
    style.title(figure, title)
    note(
        figure,
        f"Slope on positive words less slope on negative ones, in the frame's direction, z per unit of {literal(lexicon, limit=30)}. Of two opposite frames "
        "(×, green), half the difference: right of 0, each frame is steeper on the words that it asks for. Bars: intervals "
        f"over words; the mean's over words and {_models(across)}.",
    )
    return figure


def _panels(prompts: Sequence[str], *, height: float) -> tuple[Figure, list[Axes]]:
    """A panel for each prompt, at most three beside one another, or four where they are four; equal scales."""
    columns = len(prompts) if len(prompts) <= 4 else 3
    rows = -(-len(prompts) // columns)
    figure = new_figure(PAGE_WIDTH, 0.65 + rows * height)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[len(prompts) :]:
        axes.set_visible(False)
    for axes in grid.flat:
        axes.tick_params(axis="x", labelbottom=True)  # a panel may have none below it
    return figure, list(grid.flat[: len(prompts)])


def _first_column(panels: Sequence[Axes]) -> list[Axes]:
    return [axes for axes in panels if axes.get_subplotspec().is_first_col()]


def _fitted(axes: Axes, slopes: pd.DataFrame, *, reach: pd.Series) -> None:
    """The mean of the models' lines, on each side of zero."""
    mean = slopes.groupby("arm")[["level_sd", "slope_sd"]].mean()
    for arm, (colour, _) in ARMS.items():
        end = reach.max() if arm == "positive" else reach.min()
        ends = np.array([0.0, end])
        axes.plot(
            ends, mean.loc[arm, "level_sd"] + mean.loc[arm, "slope_sd"] * ends, color=colour, lw=1.8, zorder=2
        )


def _marks(
    axes: Axes, rows: np.ndarray, table: pd.DataFrame, *, estimate: str, colour: str, mark: str
) -> None:
    axes.hlines(rows, table["low_sd"], table["high_sd"], color=colour, lw=1.2)
    axes.plot(table[estimate], rows, mark, color=colour, ms=3.5)


def _named(axes: Axes, models: list[str], *, prompt: str, first: bool, last: str | None = None) -> None:
    """Rows named on the left, zero marked, the prompt above."""
    names = [*short_names(models, limit=24).values(), *([last] if last else [])]
    places = [*range(len(models)), *([len(models) + 0.3] if last else [])]
    axes.set_yticks(places, names)
    axes.set_ylim(places[-1] + 0.6, -0.6)
    axes.tick_params(axis="y", labelleft=first)
    axes.axvline(0, color=INK, lw=0.6, zorder=1)
    rows_of_marks(axes)
    subheading(axes, literal(prompt, limit=26))


def _words(slopes: pd.DataFrame) -> str:
    """How many words, over models: `606 positive and 870 negative`."""
    told = []
    for arm in ARMS:
        n = slopes.loc[slopes["arm"] == arm, "n"]
        told.append(f"{n.min():,} {arm}" if n.min() == n.max() else f"{n.min():,} to {n.max():,} {arm}")
    return " and ".join(told)


def _models(across: pd.DataFrame) -> str:
    """How many models, over prompts."""
    low, high = across["n"].min(), across["n"].max()
    return "one model" if high == 1 else f"{high} models" if low == high else f"{low} to {high} models"
