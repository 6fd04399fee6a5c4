"""The shape of each model's rewards: mean, variance, skewness, with standard errors; densities for
violins.

Rewards of different models are on different scales: compare skewness, not means.
"""

import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter1d

from pessimal.analyses.analysis import Needs, Options, analysis, by_prompt
from pessimal.analyses.checks import check_rewards
from pessimal.plots import Violin
from pessimal.tables.result import Estimate, Result
from pessimal.tables.table_set import TableSet

BINS = 512


def moments(rewards: pd.DataFrame) -> pd.DataFrame:
    """Mean, variance (ddof 0) and biased skewness of each model's rewards over the items.

    Standard errors come from influence values and so assume no shape, only independent items; a
    skewed reward's own skewness makes them several times the textbook √(6/n). Ties need no
    treatment; duplicate items count as often as they are given.

    Returns:
        One row per model: model, n, mean, variance, skewness, mean_se, variance_se, skewness_se.
            The
        skewness of a model with one reward for all items is NaN.

    Raises:
        TableError: see `checks.check_rewards`.

    Source: Christian et al. 2025, Table 3.
    """
    check_rewards(rewards)
    values = rewards.to_numpy(dtype=float)  # (items, models)
    n = len(values)
    mean = values.mean(axis=0)
    variance = values.var(axis=0)
    varied = np.ptp(values, axis=0) > 0
    z = (values - mean) / np.where(varied, np.sqrt(variance), np.nan)
    skewness = np.mean(z**3, axis=0)
    influences = {
        "mean": values - mean,
        "variance": (values - mean) ** 2 - variance,
        # The third moment's own influence, less what estimating the mean and the scale contributes.
        "skewness": z**3 - skewness - 3 * z - 1.5 * skewness * (z**2 - 1),
    }
    table = pd.DataFrame(
        {"model": list(rewards), "n": n, "mean": mean, "variance": variance, "skewness": skewness}
    )
    for name, influence in influences.items():
        table[f"{name}_se"] = np.sqrt(np.mean(influence**2, axis=0) / n)
    return table


def density(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A Gaussian kernel density on a grid, highest point 1: (grid (BINS,), density (BINS,)).

    Binned first, so that 128,000 items cost as much as a thousand. Bandwidth: Silverman's rule of
    thumb (1986, equation 3.31), which takes the smaller of two measures of spread and so is not
    blown up by a long tail.
    """
    counts, edges = np.histogram(values, bins=BINS)
    upper, lower = np.percentile(values, [75, 25])
    spread = min(s for s in (values.std(), (upper - lower) / 1.34) if s > 0)
    bandwidth = 0.9 * spread * len(values) ** -0.2
    smooth = gaussian_filter1d(
        counts.astype(float), bandwidth / (edges[1] - edges[0]), mode="constant"
    )
    return (edges[:-1] + edges[1:]) / 2, smooth / smooth.max()


def _densities(rewards: pd.DataFrame) -> pd.DataFrame:
    """Densities of standardised rewards, every fourth point of the grid: model, x (standard
    deviations), density."""
    pieces = []
    for model in rewards:
        values = rewards[model].to_numpy(dtype=float)
        if np.ptp(values) > 0:
            grid, height = density((values - values.mean()) / values.std())
            visible = height > 0.002
            pieces.append(
                pd.DataFrame(
                    {"model": model, "x": grid[visible][::4], "density": height[visible][::4]}
                )
            )
    return pd.concat(pieces) if pieces else pd.DataFrame()


@analysis("moments", Needs(prompts=1), place=30)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """How each model's rewards are distributed over the shared candidates."""
    failed: list[str] = []
    table = by_prompt(tables, lambda prompt: moments(tables.matrix(prompt)), failed=failed)
    first = table[table["prompt"] == table["prompt"].iloc[0]]
    skewed = int((first["skewness"] > 2 * first["skewness_se"]).sum())
    most = (
        first.loc[first["skewness"].abs().idxmax()]
        if first["skewness"].notna().any()
        else first.iloc[0]
    )
    return [
        Result(
            "moments",
            table,
            headline=f"On {first['prompt'].iloc[0]}, rewards are skewed to the right in {skewed} "
            f"of {len(first)} models; most skewed is {tables.labels[most['model']]}, "
            f"{most['skewness']:+.2f}.",
            plot=Violin(
                data=by_prompt(tables, lambda prompt: _densities(tables.matrix(prompt))),
                ylabel="reward (standard deviations)",
            ),
            method="moments",
            notes=tuple(failed),
            estimate=Estimate(
                "skewness",
                most["skewness"],
                int(most["n"]),
                tables.things,
                most["skewness"] - 2 * most["skewness_se"],
                most["skewness"] + 2 * most["skewness_se"],
            ),
        )
    ]
