"""Reward and word frequency: each model's slopes, in opposite frames and in one.

Knows the table of `analysis.frequency`, of several models under one another (column model).
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pessimal.figures import style
from pessimal.figures.style import (
    INK,
    PAGE_WIDTH,
    colours,
    markers,
    new_figure,
    note,
    rows_of_marks,
    styled,
    subheading,
)
from pessimal.figures.words import literal, short_names

BESIDE_TITLE = 80
"""Characters of a legend that has room beside the title."""
HEADINGS = {"rated": "rated words, valence controlled", "unrated": "common words in no lexicon"}


@styled
def slope_forest(
    slopes: pd.DataFrame, *, unit: str, paper: bool = False, title: str = "Reward and word frequency"
) -> Figure:
    """Each model's slope of reward on frequency: of opposite frames with its interval, of single frames small beside it.

    Where there are no opposite frames, single ones carry their intervals.

    Args:
        slopes: of `analysis.frequency.frequency_slopes` or `published_frequency_slopes`, with the column model.
        unit: of frequency, for the axis.
        paper: the slopes are those of the published procedure.
        title: of the figure.

    Source: Christian et al. 2025, Figure 3D.
    """
    models = list(dict.fromkeys(slopes["model"]))
    sets = list(dict.fromkeys(slopes["words"]))
    single = list(dict.fromkeys(slopes.loc[slopes["frames"] == "one", "prompt"]))
    pairs = list(dict.fromkeys(slopes.loc[slopes["frames"] == "opposite", "prompt"]))
    figure = new_figure(PAGE_WIDTH, 1.35 + 0.27 * len(models))
    panels = figure.subplots(1, len(sets), sharex=True, sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, sets, strict=True):
        shown = slopes[slopes["words"] == name]
        _panel(axes, shown, models, single=single, pairs=pairs)
        subheading(axes, _heading(name, shown))
        axes.set_xlabel(f"slope (z per {unit})")
    names = short_names(models)
    panels[0].set_yticks(range(len(models)), [names[model] for model in models])
    panels[0].set_ylim(len(models) - 0.4, -0.6)
    style.title(figure, title)
    looks = _looks(single, pairs)
    handles = [
        Line2D([], [], color=colour, marker=mark, ms=4, ls="", mfc=face, label=literal(prompt, limit=34))
        for prompt, (colour, mark, face) in looks.items()
    ]
    if sum(len(handle.get_label()) + 6 for handle in handles) < BESIDE_TITLE:
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles), columnspacing=1.2)
    else:
        figure.legend(handles=handles, loc="outside right upper")
    intervals = (
        "textbook intervals" if paper else "intervals over words, those of one stem taken as dependent,"
    )
    note(
        figure,
        f"Bars: {intervals} of {'the mean of opposite frames (×)' if pairs else 'the slope under each prompt'}. "
        "A slope under one prompt is biased: good words are used more. "
        "z: reward over its standard deviation over all words of the model's vocabulary under one prompt.",
    )
    return figure


def _panel(
    axes: Axes, shown: pd.DataFrame, models: list[str], *, single: list[str], pairs: list[str]
) -> None:
    looks = _looks(single, pairs)
    with_bars = pairs or single
    shifts = dict(zip(with_bars, _spread(len(with_bars)), strict=True))
    for prompt, (colour, mark, face) in looks.items():
        part = shown[shown["prompt"] == prompt].set_index("model").reindex(models)
        rows = np.arange(len(models)) + shifts.get(prompt, 0)
        if prompt in shifts:
            axes.hlines(rows, part["low_sd"], part["high_sd"], color=colour, lw=1.4, zorder=2)
        axes.plot(part["slope_sd"], rows, mark, color=colour, mfc=face, ms=4, mew=0.8, zorder=3)
    axes.axvline(0, color=INK, lw=0.6, zorder=1)
    rows_of_marks(axes)


def _looks(single: list[str], pairs: list[str]) -> dict[str, tuple[str, str, str]]:
    """Colour, mark and filling of each prompt and pair: pairs filled, single prompts hollow beside them."""
    order = [*pairs, *single]
    shades, marks = colours(order), markers(order)
    return {
        prompt: (shades[prompt], marks[prompt], "white" if pairs and prompt in single else shades[prompt])
        for prompt in [*single, *pairs]
    }


def _spread(count: int) -> np.ndarray:
    """Where in a model's row each of several bars lies."""
    return np.linspace(-0.22, 0.22, count) if count > 1 else np.zeros(1)


def _heading(name: str, shown: pd.DataFrame) -> str:
    n = shown["n"]
    counted = f"{n.min():,}" if n.min() == n.max() else f"{n.min():,} to {n.max():,}"
    return f"{HEADINGS.get(name, name)} (n = {counted})"
