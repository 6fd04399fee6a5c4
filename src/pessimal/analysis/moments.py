"""The shape of each model's rewards: mean, variance, skewness, with standard errors.

Knows a reward matrix. Rewards of different models are on different scales: compare skewness, not means.
"""

import numpy as np
import pandas as pd

from pessimal.analysis.checks import check_rewards


def moments(rewards: pd.DataFrame) -> pd.DataFrame:
    """Mean, variance (ddof 0) and biased skewness of each model's rewards over the items.

    Standard errors come from influence values and so assume no shape, only independent items; a skewed
    reward's own skewness makes them several times the textbook √(6/n). Ties need no treatment; duplicate
    items count as often as they are given.

    Returns:
        One row per model: model, n, mean, variance, skewness, mean_se, variance_se, skewness_se. The
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
