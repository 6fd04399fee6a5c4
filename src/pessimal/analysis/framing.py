"""One model under two opposite prompts: is "worst" the mirror image of "best"?

Knows two columns of rewards of the same items. A model that understood the frame would score the items along
best − worst; one that likes some tokens whatever the question scores them along best + worst.
"""

import numpy as np
import pandas as pd

from pessimal.analysis import influence
from pessimal.analysis.bootstrap import intervals
from pessimal.analysis.checks import align, check_rewards, check_varied
from pessimal.analysis.ranks import ranked


def framing(
    best: pd.Series, worst: pd.Series, *, replicates: int = 1000, confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """How one model's rewards for *best* and *worst* hang together.

    The shares divide the variance of the items between the axis of evaluation, best − worst, and the axis
    orthogonal to it, best + worst; they add to one. They are taken of raw rewards, because both columns are in
    one model's own units and a prompt that moves the rewards more should weigh more; of standardised rewards
    they would be (1 ∓ pearson) / 2 and say nothing new. Intervals are item bootstraps of the linearised
    statistics. Spearman takes mid-ranks; duplicate items count as often as given.

    Args:
        best: reward per item under the positive prompt.
        worst: reward per item under the negative prompt, same items.
        replicates: bootstrap draws of items.
        confidence: of the intervals.
        seed: of the draws.

    Returns:
        One row: n, pearson, pearson_low, pearson_high, spearman, spearman_low, spearman_high,
        share_difference, share_difference_low, share_difference_high (of best − worst), share_sum.

    Raises:
        TableError: the items differ, a reward is missing, or one column does not vary.

    Source: Christian et al. 2025, Figure 4.
    """
    pair = _pair(best, worst)
    check_varied(pair)
    x, y = pair["best"].to_numpy(), pair["worst"].to_numpy()
    statistics = {
        "pearson": influence.pearson(x, y),
        "spearman": influence.spearman(ranked(x), ranked(y)),
        "share_difference": _share_of_difference(x, y),
    }
    estimates = np.array([statistic.estimate for statistic in statistics.values()])
    influences = np.stack([statistic.influence for statistic in statistics.values()], axis=1)
    low, high = intervals(estimates, influences, replicates=replicates, confidence=confidence, seed=seed)
    row: dict[str, float] = {"n": len(pair)}
    for name, estimate, lower, upper in zip(statistics, estimates, low, high, strict=True):
        row |= {name: estimate, f"{name}_low": lower, f"{name}_high": upper}
    return pd.DataFrame([row | {"share_sum": 1 - row["share_difference"]}])


def axes(best: pd.Series, worst: pd.Series) -> pd.DataFrame:
    """Each item's place on the two axes, for listing the tokens at their ends.

    Returns:
        One row per item, in the order of `best`: text, best, worst, difference (best − worst), total
        (best + worst).

    Raises:
        TableError: the items differ, or a reward is missing.

    Source: Christian et al. 2025, Tables A8 (best + worst) and A9 (best − worst).
    """
    pair = _pair(best, worst)
    pair = pair.assign(difference=pair["best"] - pair["worst"], total=pair["best"] + pair["worst"])
    return pair.rename_axis("text").reset_index()


def _pair(best: pd.Series, worst: pd.Series) -> pd.DataFrame:
    """Both columns, item by item."""
    worst = align(best, worst, left_name="best", right_name="worst")
    pair = pd.DataFrame(
        {"best": best.to_numpy(dtype=float), "worst": worst.to_numpy(dtype=float)}, index=best.index
    )
    check_rewards(pair)
    return pair


def _share_of_difference(x: np.ndarray, y: np.ndarray) -> influence.Statistic:
    """The share of x − y in the variance along x − y and x + y together, and its influence values."""
    x, y = x - x.mean(), y - y.mean()
    difference, both = (x - y) ** 2, 2 * (x * x + y * y)
    share = difference.mean() / both.mean()
    return influence.Statistic(float(share), (difference - share * both) / both.mean())
