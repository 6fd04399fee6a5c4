"""The shape of every model's rewards on one prompt, one violin a model.

Knows a reward matrix; the moments printed are those of `analysis.moments`.
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.ndimage import gaussian_filter1d

from pessimal.analysis.moments import moments
from pessimal.figures.style import FAINT, GREY, INK, OKABE_ITO, PAGE_WIDTH, new_figure, note, styled
from pessimal.figures.words import short_names, significant

BINS = 512


@styled
def violin(rewards: pd.DataFrame, *, title: str = "Distribution of rewards") -> Figure:
    """Violins of standardised rewards, with each model's raw mean, standard deviation and skewness beside it.

    Standardised, because models' rewards are on scales that differ a hundredfold and one axis cannot show them;
    what standardising takes away is printed. A violin reaches from the lowest to the highest reward; the bar
    is the middle half, the white dot the median, the dashed line the mean of every model.

    Args:
        rewards: items × models.
        title: of the figure.

    Raises:
        TableError: see `analysis.checks.check_rewards`.

    Source: Christian et al. 2025, Figure 1 and Table 3.
    """
    table = moments(rewards)
    names = short_names(rewards)
    figure = new_figure(PAGE_WIDTH, 1.1 + 0.36 * len(table))
    axes, numbers = figure.subplots(1, 2, sharey=True, width_ratios=(2.2, 1))
    axes.axvline(0, color=FAINT, lw=0.6, ls=(0, (4, 3)), zorder=0)
    for row, model in enumerate(table["model"]):
        _one(axes, rewards[model].to_numpy(dtype=float), row)
    axes.set_yticks(range(len(table)), [names[model] for model in table["model"]])
    axes.set_ylim(len(table) - 0.4, -0.9)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("reward, standardised within the model (standard deviations from its mean)")
    axes.set_title(title)
    _print_moments(numbers, table)
    note(
        figure,
        f"{len(rewards):,} items. Bar: middle half; dot: median; whiskers: lowest to highest. Skewness ± standard error.",
    )
    return figure


def density(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian kernel density on a grid, highest point 1: (grid (BINS,), density (BINS,)).

    Binned first, so that 128,000 items cost as much as a thousand. Bandwidth: Silverman's rule of thumb (1986,
    equation 3.31), which takes the smaller of two measures of spread and so is not blown up by a long tail.
    """
    counts, edges = np.histogram(values, bins=BINS)
    upper, lower = np.percentile(values, [75, 25])
    spread = min(s for s in (values.std(), (upper - lower) / 1.34) if s > 0)
    bandwidth = 0.9 * spread * len(values) ** -0.2
    smooth = gaussian_filter1d(counts.astype(float), bandwidth / (edges[1] - edges[0]), mode="constant")
    return (edges[:-1] + edges[1:]) / 2, smooth / smooth.max()


def _one(axes: Axes, values: np.ndarray, row: int) -> None:
    """One model's violin on its row."""
    if np.ptp(values) == 0:
        axes.plot(0, row, "|", color=INK)
        return
    z = (values - values.mean()) / values.std()
    grid, height = density(z)
    thick = np.flatnonzero(height > 0.002)  # what is thinner lies under the whisker
    seen = slice(thick[0], thick[-1] + 1, 2)  # every second: half the SVG, and no corner to be seen
    grid, height = grid[seen], height[seen]
    axes.fill_between(grid, row - 0.42 * height, row + 0.42 * height, color=OKABE_ITO[0], alpha=0.55, lw=0)
    lower, median, upper = np.percentile(z, [25, 50, 75])
    axes.plot([z.min(), z.max()], [row, row], color=INK, lw=0.5, marker="|", ms=3)
    axes.plot([lower, upper], [row, row], color=INK, lw=3, solid_capstyle="butt")
    axes.plot(median, row, "o", color="white", ms=2.6)


def _print_moments(axes: Axes, table: pd.DataFrame) -> None:
    """Three columns of numbers, level with the violins."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    columns = {
        "mean": [significant(mean) for mean in table["mean"]],
        "sd": [significant(variance**0.5) for variance in table["variance"]],
        "skewness": [
            f"{skewness:.2f} ± {error:.2f}".replace("-", "−")
            for skewness, error in zip(table["skewness"], table["skewness_se"], strict=True)
        ],
    }
    for (name, numbers), right in zip(columns.items(), (0.22, 0.54, 1.0), strict=True):
        axes.text(right, -0.75, name, ha="right", va="center", color=GREY)
        for row, number in enumerate(numbers):
            axes.text(right, row, number, ha="right", va="center")
