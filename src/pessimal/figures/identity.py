"""Identity terms against their controls: every axis and model, beside what everyday topics do.

Knows the tables of `analysis.identity`.
"""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from pessimal.analysis.identity import ALL_AXES, HALF_DIFFERENCE, HALF_SUM
from pessimal.figures import style
from pessimal.figures.style import INK, OKABE_ITO, PAGE_WIDTH, new_figure, note, styled
from pessimal.figures.words import literal, short_names

ACROSS = 4
BAND = "#dddddd"
MEASURES = {
    HALF_SUM: "half-sum of frames: liked whatever is asked",
    HALF_DIFFERENCE: "half-difference: taken for something good",
}
"""What the measures of opposite frames say."""


@styled
def identity_forest(
    effects: pd.DataFrame,
    *,
    measure: str = HALF_SUM,
    level: float = 0.05,
    confidence: float = 0.95,
    title: str = "Identity terms, whatever is asked",
) -> Figure:
    """Each axis' effect on each model, with its interval, on the range in which an everyday topic would lie.

    Args:
        effects: of `analysis.identity.corrected`, with a column model.
        measure: which of its measures.
        level: corrected p (Holm) below which a dot is filled.
        confidence: that of the intervals; the grey bars hold the same share of topics.
        title: of the figure.
    """
    table = effects[effects["measure"] == measure]
    models, axes_names = list(dict.fromkeys(table["model"])), _in_order(table["axis"])
    across = min(ACROSS, len(axes_names))
    down = -(-len(axes_names) // across)
    height = 1.25 + down * (0.5 + 0.155 * len(models))
    figure = new_figure(PAGE_WIDTH, height)
    grid = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place >= len(axes_names):
            axes.set_visible(False)
            continue
        rows = table[table["axis"] == axes_names[place]].set_index("model").reindex(models)
        _forest_panel(axes, rows, level=level, confidence=confidence)
        axes.set_title(_axis_label(axes_names[place]), fontsize=7.5)
    names = short_names(models, limit=22)
    grid[0, 0].set_yticks(range(len(models)), [names[model] for model in models])
    grid[0, 0].set_ylim(len(models) - 0.4, -0.6)
    for axes in grid[:, 1:].flat:
        axes.tick_params(labelleft=False)
    # Panels above an empty place carry the numbers of the axis themselves.
    for place in range(len(axes_names) - across, len(axes_names)):
        grid.flat[place].tick_params(labelbottom=True)
    style.title(figure, title)
    note(
        figure,
        "Effect in standard deviations of each model's rewards over its words: mean over an axis' terms of a term's "
        f"reward less that of its controls, with {confidence:.0%} intervals. Grey: where {confidence:.0%} of lists as long "
        f"on everyday topics would lie. Filled: p < {level:g} against these topics, Holm over models × axes (all together: "
        f"over models). n: {_counts(table)}.",
    )
    return figure


@styled
def identity_heatmap(
    effects: pd.DataFrame, *, level: float = 0.05, title: str = "Identity terms: model × axis"
) -> Figure:
    """Effects of all axes on all models, both measures of opposite frames (or the only frame) side by side.

    Args:
        effects: of `analysis.identity.corrected`, with a column model.
        level: corrected p (Holm) below which a number is bold and marked.
        title: of the figure.
    """
    shown = [measure for measure in MEASURES if measure in set(effects["measure"])]
    shown = shown or [effects["measure"].iloc[0]]
    models, axes_names = list(dict.fromkeys(effects["model"])), _in_order(effects["axis"])
    widest = float(np.nanmax(np.abs(effects.loc[effects["measure"].isin(shown), "d"]))) or 1.0
    figure = new_figure(PAGE_WIDTH, 1.5 + 0.2 * len(models))
    grid = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    names = short_names(models, limit=22)
    for axes, measure in zip(grid, shown, strict=True):
        table = effects[effects["measure"] == measure]
        sizes = table.pivot(index="model", columns="axis", values="d").reindex(models, columns=axes_names)
        sure = table.pivot(index="model", columns="axis", values="p_holm").reindex(models, columns=axes_names)
        _cells(axes, sizes.to_numpy(), sure.to_numpy() < level, widest)
        axes.set_xticks(
            range(len(axes_names)),
            [_axis_label(axis) for axis in axes_names],
            rotation=40,
            ha="right",
            rotation_mode="anchor",
        )
        axes.set_title(MEASURES.get(measure, f"reward, {literal(measure)}"), fontsize=7.5)
    grid[0].set_yticks(range(len(models)), [names[model] for model in models])
    style.title(figure, title)
    note(
        figure,
        "Effect against controls, in standard deviations of each model's rewards over its words; orange below 0, purple "
        f"above. Bold with *: p < {level:g} against everyday topics, Holm over the models × axes of a panel (all "
        f"together: over the models). Grey: too few terms in the vocabulary. n: {_counts(effects)}.",
    )
    return figure


def _forest_panel(axes: Axes, rows: pd.DataFrame, *, level: float, confidence: float) -> None:
    """One axis: a row a model; models without it leave a gap."""
    axes.axvline(0, color=INK, lw=0.6, zorder=2)
    for row, model in enumerate(rows.itertuples()):
        if np.isnan(model.effect):
            continue
        reach = stats.t.ppf((1 + confidence) / 2, model.n_topics) * model.null_sd / model.reward_sd
        axes.barh(row, 2 * reach, left=-reach, height=0.78, color=BAND, lw=0, zorder=1)
        colour = OKABE_ITO[1] if model.effect < 0 else OKABE_ITO[0]
        axes.hlines(
            row, model.low / model.reward_sd, model.high / model.reward_sd, color=colour, lw=1.1, zorder=3
        )
        fill = colour if model.p_holm < level else "white"
        axes.plot(model.d, row, "o", ms=3.6, mfc=fill, mec=colour, mew=0.9, zorder=4)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _cells(axes: Axes, sizes: np.ndarray, sure: np.ndarray, widest: float) -> None:
    scale = colormaps["PuOr"].with_extremes(bad="#e6e6e6")
    axes.imshow(sizes, cmap=scale, vmin=-widest, vmax=widest, aspect="auto")
    for row, column in zip(*np.nonzero(np.isfinite(sizes)), strict=True):
        number, marked = sizes[row, column], sure[row, column]
        axes.text(
            column,
            row,
            _short(number) + ("*" if marked else ""),
            ha="center",
            va="center",
            fontsize=6.3,
            fontweight="bold" if marked else "normal",
            color="white" if abs(number) > 0.62 * widest else INK,
        )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _short(number: float) -> str:
    """Two decimals without a leading zero, as the cells are small; no minus before nothing."""
    size = f"{abs(number):.2f}"
    sign = "−" if number < 0 and float(size) else ""
    return sign + size.removeprefix("0")


def _in_order(names: pd.Series) -> list[str]:
    """Axes in order of appearance, all together last."""
    distinct = list(dict.fromkeys(names))
    return sorted(distinct, key=lambda name: name == ALL_AXES)


def _axis_label(axis: str) -> str:
    return "all together" if axis == ALL_AXES else literal(axis)


def _counts(table: pd.DataFrame) -> str:
    """Terms by axis, as a range where models differ."""
    told = []
    for axis in _in_order(table["axis"]):
        n = table.loc[table["axis"] == axis, "n"]
        told.append(f"{_axis_label(axis)} {n.min()}" + (f"–{n.max()}" if n.min() < n.max() else ""))
    return ", ".join(told)
