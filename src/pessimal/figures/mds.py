"""A map of the models: near means alike.

Knows places in the plane and model descriptors; `analysis.geometry.mds` finds the places.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pessimal.figures.labels import place_labels
from pessimal.figures.style import (
    FAINT,
    PAGE_WIDTH,
    colours,
    grouped_legend,
    markers,
    new_figure,
    note,
    styled,
)
from pessimal.figures.words import literal, short_names

SMALLEST, LARGEST = 35, 190  # points², the areas of the smallest and the largest model


@styled
def mds(
    places: pd.DataFrame,
    *,
    stress: float,
    descriptors: pd.DataFrame | None = None,
    title: str = "Map of the models",
) -> Figure:
    """Models at their places, coloured by developer, shaped by base, larger where they have more parameters.

    Args:
        places: model, x, y.
        stress: normalised stress-1 of the map, printed below it.
        descriptors: indexed by model: developer, base, parameters. Without them all points look alike.
        title: of the figure.

    Source: Christian et al. 2025, Figure 2B.
    """
    models = list(places["model"])
    if descriptors is None:
        known = pd.DataFrame({"developer": "", "base": "", "parameters": 1.0}, index=models)
        colour, marker = colours([""]), markers([""])
    else:
        known = descriptors.loc[models]
        # Of all the descriptors, in their order: a developer keeps its colour from figure to figure.
        colour, marker = colours(descriptors["developer"]), markers(descriptors["base"])
    figure = new_figure(PAGE_WIDTH, 4.6)
    axes = figure.subplots()
    axes.axhline(0, color="#eeeeee", lw=0.6, zorder=0)
    axes.axvline(0, color="#eeeeee", lw=0.6, zorder=0)
    areas = _areas(known["parameters"].to_numpy(dtype=float))
    for x, y, area, developer, base in zip(
        places["x"], places["y"], areas, known["developer"], known["base"], strict=True
    ):
        axes.scatter(
            x, y, s=area, color=colour[developer], marker=marker[base], edgecolor="white", lw=0.6, zorder=3
        )
    axes.set_aspect("equal", adjustable="datalim")
    axes.margins(0.16)
    axes.set_xlabel("first principal axis (1 − similarity)")
    axes.set_ylabel("second principal axis")
    axes.set_title(title)
    if descriptors is not None:
        _legend(
            figure,
            {name: colour[name] for name in dict.fromkeys(known["developer"])},
            {name: marker[name] for name in dict.fromkeys(known["base"])},
        )
    note(
        figure,
        f"Metric multidimensional scaling of {len(models)} models, normalised stress {stress:.3f} "
        f"({_verdict(stress)}). Directions have no meaning."
        + (" Area: parameters." if descriptors is not None else ""),
    )
    place_labels(
        axes, places[["x", "y"]].to_numpy(), list(short_names(models).values()), radius=LARGEST**0.5 / 2
    )
    return figure


def _areas(parameters: np.ndarray) -> np.ndarray:
    """Marker areas (models,), even in the logarithm of the parameter count; of middle size if it is not known."""
    logs = np.log(parameters)
    smallest, largest = np.nanmin(logs, initial=np.inf), np.nanmax(logs, initial=-np.inf)
    share = (logs - smallest) / (largest - smallest) if largest > smallest else np.full(len(logs), 0.5)
    return SMALLEST + np.nan_to_num(share, nan=0.5) * (LARGEST - SMALLEST)


def _verdict(stress: float) -> str:
    """Kruskal's 1964 words for stress-1."""
    words = [(0.025, "excellent"), (0.05, "good"), (0.1, "fair"), (0.2, "poor")]
    return next((word for bound, word in words if stress <= bound), "very poor: read distances with care")


def _legend(figure: Figure, colour: dict[str, str], marker: dict[str, str]) -> None:
    """What the colours and the shapes stand for."""
    developers = [
        Line2D([], [], ls="", marker="o", color=c, label=literal(str(name))) for name, c in colour.items()
    ]
    bases = [
        Line2D([], [], ls="", marker=m, color=FAINT, label=literal(str(name))) for name, m in marker.items()
    ]
    grouped_legend(figure, {"developer": developers, "base": bases})
