"""How far every two models agree, as a matrix of numbers, similar models side by side.

Knows a model × model similarity and model descriptors.
"""

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from pessimal.analysis.geometry import order
from pessimal.figures.style import GREY, INK, PAGE_WIDTH, colours, grouped_legend, new_figure, note, styled
from pessimal.figures.words import literal, short_names

GROUPS = ("developer", "base")


@styled
def heatmap(
    similarity: pd.DataFrame,
    *,
    descriptors: pd.DataFrame | None = None,
    label: str = "Kendall's τ",
    title: str = "Agreement between models",
) -> Figure:
    """The similarity matrix, in hierarchical order, each cell printed; strips show developer and base.

    The colour scale spans the cells off the diagonal, so that small differences show; with a number in every
    cell there is no colour bar to look up.

    Args:
        similarity: model × model with a unit diagonal.
        descriptors: indexed by model: developer, base. Without them there are no strips.
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
    off_diagonal = ~np.eye(n, dtype=bool)
    low, high = values[off_diagonal].min(), values[off_diagonal].max()

    figure = new_figure(PAGE_WIDTH, 1.75 + min(0.37 * n, 4.5))  # wider than 4.5 in it would not fit the page
    axes = figure.subplots()
    scale = colormaps["cividis"].with_extremes(bad="#e6e6e6")
    axes.imshow(np.where(off_diagonal, values, np.nan), cmap=scale, vmin=low, vmax=high)
    middle = (low + high) / 2
    for row, column in zip(*np.nonzero(off_diagonal), strict=True):
        number = values[row, column]
        axes.text(
            column,
            row,
            _short(number),
            ha="center",
            va="center",
            color="white" if number < middle else INK,
            fontsize=7,
        )
    axes.set_xticks(range(n), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(n), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_anchor("NW")
    axes.set_title(title)
    if descriptors is not None:
        _strips(figure, axes, descriptors, models)
    note(
        figure,
        f"{label}; the colours span the cells off the diagonal. Models in the order of an average-linkage tree.",
    )
    return figure


def _short(number: float) -> str:
    """Two decimals without the leading zero, as the cells are small."""
    return f"{number:.2f}".replace("0.", ".").replace("-", "−")


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
