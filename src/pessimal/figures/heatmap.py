"""How far every two models agree, as a matrix of numbers, similar models side by side.

Knows a model × model similarity and model descriptors.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from pessimal.analysis.geometry import order
from pessimal.figures import style
from pessimal.figures.style import GREY, INK, PAGE_WIDTH, colours, grouped_legend, new_figure, note, styled
from pessimal.figures.words import literal, short_names

GROUPS = ("developer", "base")


@styled
def heatmap(
    similarity: pd.DataFrame,
    *,
    descriptors: pd.DataFrame | None = None,
    floor: pd.Series | None = None,
    label: str = "Kendall's τ",
    title: str = "Agreement between models",
) -> Figure:
    """The similarity matrix, in hierarchical order, each cell printed; strips show developer and base.

    The colour scale spans the cells off the diagonal, so that small differences show; with a number in every
    cell there is no colour bar to look up.

    Args:
        similarity: model × model with a unit diagonal.
        descriptors: indexed by model: developer, base. Without them there are no strips.
        floor: the same statistic between a model and its own rescan, by model, for the cells on the diagonal; models
            without one are not in it.
        label: what the similarity is.
        title: of the figure.

    Raises:
        TableError: not square and symmetric.

    Source: Christian et al. 2025, Figure 2A.
    """
    models = order(similarity)
    values = similarity.loc[models, models].to_numpy(dtype=float)
    n = len(models)
    names = list(short_names(models).values())
    figure = new_figure(PAGE_WIDTH, 1.75 + min(0.37 * n, 4.5))  # wider than 4.5 in it would not fit the page
    axes = figure.subplots()
    _cells(axes, values, names, floor=[None if floor is None else floor.get(model) for model in models])
    axes.set_title(title)
    if descriptors is not None:
        _strips(figure, axes, descriptors, models)
    told = f"{label}; the colours span the cells off the diagonal. Models in the order of an average-linkage tree."
    if floor is not None and len(floor):
        told += (
            " On the diagonal: a model with its own rescan in another precision or batch (the noise floor)."
        )
    note(figure, told)
    return figure


@styled
def heatmaps(similarities: Mapping[str, pd.DataFrame], *, title: str) -> Figure:
    """Several similarities of the same models side by side, all in the order of the first.

    Args:
        similarities: model × model with a unit diagonal, by what they are.
        title: of the figure.

    Source: Christian et al. 2025, Figure A1.
    """
    first = next(iter(similarities.values()))
    models = order(first)
    names = list(short_names(models).values())
    figure = new_figure(PAGE_WIDTH, 1.4 + min(0.2 * len(models), 3.2))
    for place, (axes, (label, matrix)) in enumerate(
        zip(figure.subplots(1, len(similarities), sharey=True), similarities.items(), strict=True)
    ):
        _cells(axes, matrix.loc[models, models].to_numpy(dtype=float), names, fontsize=5)
        axes.tick_params(labelsize=6, labelleft=place == 0)
        axes.set_title(label, fontsize=7.5, fontweight="normal")
    style.title(figure, title)
    note(
        figure,
        "The colours of a panel span its cells off the diagonal. Models in one order, by the first panel.",
    )
    return figure


def _cells(
    axes: Axes,
    values: np.ndarray,
    names: list[str],
    *,
    floor: Sequence[float | None] = (),
    fontsize: float = 7,
) -> None:
    """Coloured cells with their numbers; on the diagonal the noise floor where it is known."""
    n = len(values)
    off_diagonal = ~np.eye(n, dtype=bool)
    low, high = values[off_diagonal].min(), values[off_diagonal].max()
    if low == high:  # two models, or all pairs alike: the middle of the scale
        low, high = low - 0.5, high + 0.5
    scale = colormaps["cividis"].with_extremes(bad="#e6e6e6")
    axes.imshow(np.where(off_diagonal, values, np.nan), cmap=scale, vmin=low, vmax=high)
    middle = (low + high) / 2
    centred = {"ha": "center", "va": "center"}
    for row, column in zip(*np.nonzero(off_diagonal), strict=True):
        number = values[row, column]
        colour = "white" if number < middle else INK
        axes.text(column, row, _short(number), color=colour, fontsize=fontsize, **centred)
    for place, number in enumerate(floor):
        if number is not None:
            axes.text(
                place, place, _short(number), color=GREY, fontsize=fontsize - 1, style="italic", **centred
            )
    axes.set_xticks(range(n), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(n), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_anchor("NW")


def _short(number: float) -> str:
    """Two decimals without the leading zero, as the cells are small; what only rounds to 1 is not called 1, and
    zero has no minus."""
    if 0.995 <= number < 1:
        return ">.99"
    size = f"{abs(number):.2f}"
    sign = "−" if number < 0 and float(size) else ""
    return sign + size.removeprefix("0")  # not `replace`: 10.52 has a "0." as well


def _strips(figure: Figure, axes: Axes, descriptors: pd.DataFrame, models: list[str]) -> None:
    """A thin coloured column for each grouping, right of the matrix, and what its colours stand for."""
    n = len(models)
    # Coloured in the order of the descriptors, so that a developer has its colour of the map here too; no colour
    # stands in both strips.
    palette = colours((group, label) for group in GROUPS for label in descriptors[group])
    for place, group in enumerate(GROUPS):
        left = n - 0.4 + 0.38 * place
        for row, label in enumerate(descriptors.loc[models, group]):
            axes.add_patch(Rectangle((left, row - 0.5), 0.3, 1, color=palette[group, label], lw=0))
        axes.text(left + 0.15, n - 0.4, group, rotation=90, ha="center", va="top", fontsize=6, color=GREY)
    axes.set_xlim(-0.5, n - 0.4 + 0.38 * len(GROUPS))
    handles = {
        group: [
            Patch(color=palette[group, label], label=literal(str(label)))
            for label in dict.fromkeys(descriptors.loc[models, group])
        ]
        for group in GROUPS
    }
    grouped_legend(figure, handles)
