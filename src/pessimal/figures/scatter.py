"""One model under two prompts: every item a point.

Knows two columns of rewards; knows nothing of the prompts but their names.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter

from pessimal.analysis.checks import align, check_rewards
from pessimal.analysis.framing import outermost
from pessimal.figures.labels import place_labels
from pessimal.figures.style import FAINT, INK, PAGE_WIDTH, new_figure, note, styled
from pessimal.figures.words import literal

GRID = 120
CELLS = 450  # to a side: a third of a dot's width on the page


@styled
def scatter(
    x: pd.Series,
    y: pd.Series,
    *,
    x_name: str,
    y_name: str,
    extreme: int = 2,
    title: str = "One model, two prompts",
) -> Figure:
    """Rewards under one prompt against rewards under another, coloured by density, the extremes named.

    Named are the `extreme` items at either end of x, of y, of x − y and of x + y. Points are drawn as one picture
    inside the SVG, so that 128,000 of them stay small; names, axes and lines are vectors. Of points that lie within
    a third of a dot of one another one is drawn, which looks the same: 128,000 take 1.1 s to draw and save, not 2.3.

    Args:
        x: reward per item under the first prompt.
        y: reward per item under the second prompt, same items.
        x_name: the first prompt's name.
        y_name: the second prompt's name.
        extreme: items named at each of the eight ends; many of them meet.
        title: of the figure.

    Raises:
        TableError: the items differ, or a reward is missing.

    Source: Christian et al. 2025, Figures 4 and A2.
    """
    y = align(x, y, left_name=x_name, right_name=y_name)
    points = pd.DataFrame({"x": x.to_numpy(dtype=float), "y": y.to_numpy(dtype=float)}, index=x.index)
    check_rewards(points)
    places = points.to_numpy()
    figure = new_figure(0.75 * PAGE_WIDTH, 0.72 * PAGE_WIDTH)
    axes = figure.subplots()
    crowd = crowding(places)
    sparse_first = np.argsort(crowd, kind="stable")
    drawn = sparse_first[seen(places[sparse_first])]
    dots = axes.scatter(
        *places[drawn].T, c=crowd[drawn], s=4, lw=0, cmap="viridis_r", rasterized=True, zorder=2
    )
    axes.axline((0, 0), slope=1, color=FAINT, lw=0.7, ls=(0, (4, 3)), zorder=1)
    # The diagonal must not widen the axes: its far end means nothing.
    axes.set_xlim(*_padded(places[:, 0]))
    axes.set_ylim(*_padded(places[:, 1]))
    axes.set_xlabel(f"reward, {literal(x_name, limit=60)}")
    axes.set_ylabel(f"reward, {literal(y_name, limit=60)}")
    axes.set_title(title)
    bar = figure.colorbar(dots, ax=axes, shrink=0.5, aspect=18, pad=0.02)
    bar.set_label("items nearby, relative (log)")
    bar.set_ticks([])
    bar.outline.set_visible(False)
    r = np.corrcoef(places.T)[0, 1]
    crosses = max(axes.get_xlim()[0], axes.get_ylim()[0]) < min(axes.get_xlim()[1], axes.get_ylim()[1])
    diagonal = "Dashed: equal rewards." if crosses else "No item comes near equal rewards."
    note(figure, f"{len(points):,} items, Pearson r = {r:.2f}. {diagonal}".replace("-", "−"))
    named = most_extreme(places, count=extreme)
    axes.scatter(*places[named].T, s=9, facecolor="none", edgecolor=INK, lw=0.6, zorder=3)
    crowd_sample = places[:: max(1, len(places) // 2000)]
    dots.set_visible(False)  # finding room for the labels draws the figure, and the cloud moves nothing in it
    place_labels(
        axes, places[named], [literal(str(points.index[item])) for item in named], avoid=crowd_sample
    )
    dots.set_visible(True)
    return figure


def crowding(places: np.ndarray) -> np.ndarray:
    """How many items lie near each item, as a logarithm, (n,): counts on a grid, smoothed, read back."""
    counts, *edges = np.histogram2d(*places.T, bins=GRID)
    smooth = np.log1p(gaussian_filter(counts, 1.5))
    cells = [
        np.clip(np.searchsorted(edge, column, side="right") - 1, 0, GRID - 1)
        for edge, column in zip(edges, places.T, strict=True)
    ]
    return smooth[tuple(cells)]


def seen(places: np.ndarray) -> np.ndarray:
    """Row numbers of the points that are not as good as hidden: of those in one cell of a fine grid the last drawn."""
    if len(places) < 10_000:
        return np.arange(len(places))
    low, span = places.min(axis=0), np.ptp(places, axis=0)
    cells = np.floor((places - low) / np.where(span > 0, span, 1.0) * CELLS).astype(np.int64)
    _, from_the_end = np.unique((cells[:, 0] * (CELLS + 1) + cells[:, 1])[::-1], return_index=True)
    return np.sort(len(places) - 1 - from_the_end)


def most_extreme(places: np.ndarray, *, count: int) -> np.ndarray:
    """Row numbers of the items at both ends of x, y, x − y and x + y, each once; equals in the order of the rows."""
    x, y = places.T
    directions = (x, y, x - y, x + y)
    ends = [outermost(sign * values, count=count) for values in directions for sign in (-1, 1)]
    return np.array(list(dict.fromkeys(np.concatenate(ends).tolist())), dtype=np.int64)


def _padded(values: np.ndarray) -> tuple[float, float]:
    """Axis limits with room for labels at both ends."""
    pad = 0.2 * (np.ptp(values) or 1.0)
    return values.min() - pad, values.max() + pad
