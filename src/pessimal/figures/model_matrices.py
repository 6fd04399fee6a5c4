"""Agreement between models beside what the models have in common, pair by pair.

Knows model × model matrices and the table of `analysis.rsa.rsa`.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pessimal.analysis.geometry import order
from pessimal.analysis.rsa import ESTIMATED
from pessimal.errors import TableError
from pessimal.figures import style
from pessimal.figures.rsa import WORDS, p_text
from pessimal.figures.style import FAINT, GREY, PAGE_WIDTH, new_figure, note, styled
from pessimal.figures.words import short_names


@styled
def model_matrices(
    similarity: pd.DataFrame,
    matrices: Mapping[str, pd.DataFrame],
    *,
    table: pd.DataFrame | None = None,
    label: str = "Kendall's τ",
    title: str = "Agreement, and what models have in common",
) -> Figure:
    """The observed similarity, large, and each factor's matrix, small, all in one order of the models.

    The order is the hierarchical one of the observed similarity, so that a factor which explains it shows the same
    blocks. The observed matrix is coloured from its least to its greatest cell off the diagonal, its numbers are in
    the figure of the agreement; factors are coloured from 0, nothing in common, to 1, the same. Under each factor
    stand its β and p, or why it was left out of the regression.

    Args:
        similarity: model × model, symmetric.
        matrices: of `analysis.descriptors.model_matrices`, by factor; they may hold more models.
        table: of `analysis.rsa.rsa`, of the same models; without it there are no β.
        label: what the similarity is.
        title: of the figure.

    Raises:
        TableError: a factor's matrix lacks a model, there is no factor, or the similarity is not square.

    Source: Christian et al. 2025, Figure 2C.
    """
    models = order(similarity)
    for factor, matrix in matrices.items():
        if missing := [str(model) for model in models if model not in matrix.index]:
            raise TableError(
                f"The matrix of {factor!r} lacks {', '.join(missing)}; give all models' descriptors."
            )
    if not matrices:
        raise TableError("No factor's matrix was given; models need a base, a developer, a size or a rank.")
    found = None if table is None else table.set_index("factor")
    names = list(short_names(models, limit=24).values())
    figure = new_figure(PAGE_WIDTH, 4.0 if len(models) <= 12 else 4.3)
    # Names take what they need; of the rest the observed matrix gets half, four factors a quarter of it each.
    grid = figure.add_gridspec(2, 4, width_ratios=[1, 1, 1, 1])
    observed = figure.add_subplot(grid[:, :2])
    _matrix(observed, similarity, models)
    observed.set_title(label, fontsize=7.5)
    size = 7 if len(models) <= 12 else 6
    observed.set_yticks(range(len(models)), names, fontsize=size)
    observed.set_xticks(
        range(len(models)), names, rotation=45, ha="right", rotation_mode="anchor", fontsize=size
    )
    for place, factor in enumerate(dict.fromkeys([*([] if found is None else found.index), *matrices])):
        panel = figure.add_subplot(grid[place // 2, 2 + place % 2])
        panel.set_title(WORDS.get(factor, factor), fontsize=7.5, fontweight="normal")
        if factor in matrices:
            _matrix(panel, matrices[factor], models, limits=(0, 1))
            panel.set_xticks([])
            panel.set_yticks([])
        else:
            panel.set_box_aspect(1)
            panel.set_axis_off()
        if found is not None and factor in found.index:
            _verdict(panel, found.loc[factor])
    style.title(figure, title)
    note(
        figure,
        f"{len(models)} models in one order, that of an average-linkage tree of {label}; yellow: its most similar pair, "
        "blue: its least. Factors: yellow the same, blue nothing in common. Grey: a model with itself."
        + ("" if found is None else " β: joint regression of all pairs; p: permuting the models (MRQAP)."),
    )
    return figure


def _matrix(
    axes: Axes, matrix: pd.DataFrame, models: list[str], *, limits: tuple[float, float] | None = None
) -> None:
    """The cells off the diagonal, in the order of the models, coloured between limits or over their range."""
    values = matrix.loc[models, models].to_numpy(dtype=float).copy()
    np.fill_diagonal(values, np.nan)
    low, high = limits or (np.nanmin(values), np.nanmax(values))
    scale = colormaps["cividis"].with_extremes(bad="#e6e6e6")
    # Where all pairs are alike there is no range; they get the scale's middle.
    low, high = (low, high) if high > low else (low - 1, low + 1)
    axes.imshow(values, cmap=scale, vmin=low, vmax=high)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _verdict(axes: Axes, factor: pd.Series) -> None:
    """What the regression says of a factor, under its matrix; in its place where there is none."""
    text = {"transform": axes.transAxes, "ha": "center", "fontsize": 6.5}
    if factor["status"] != ESTIMATED:
        reason = factor["status"].replace(": ", ":\n", 1)
        place = (0.5, -0.04, "top") if axes.axison else (0.5, 0.5, "center")
        axes.text(*place[:2], reason, va=place[2], color=FAINT, style="italic", **text)
        return
    beta = f"β = {factor['beta']:z.2f}".replace("-", "−")
    axes.text(
        0.5, -0.04, f"{beta},  {p_text(factor['p_value'])}", va="top", color=GREY, **text | {"fontsize": 7}
    )
