"""How far a model agrees with itself: its rewards computed a second time, in another precision, batch or version.

Knows the rewards of one model on one prompt, several times; knows nothing of how they were computed. No agreement
between two models can mean more than a model's with itself.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pessimal.analysis.agreement import RBO_DEPTH, RBO_PERSISTENCE, TOP, agreement
from pessimal.analysis.checks import align, check_rewards, check_varied

STATISTICS = [
    "kendall",
    "low",
    "high",
    "spearman",
    "rbo",
    "rbo_extrapolated",
    "top",
    "top_overlap",
    "bottom_overlap",
]


def noise_floor(
    rewards: pd.Series,
    rescans: Mapping[str, pd.Series],
    *,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    persistence: float = RBO_PERSISTENCE,
    depth: int = RBO_DEPTH,
    top: int = TOP,
) -> pd.DataFrame:
    """Agreement of one model with itself, between the scan that stands for it and each other scan of the same.

    Args:
        rewards: index = candidate_id.
        rescans: rewards of the same candidates, by what tells the rescan from the first (`bfloat16`).
        replicates, confidence, seed, persistence, depth, top: of `agreement`.

    Returns:
        One row per rescan: rescan, n, kendall, low, high, spearman, rbo, rbo_extrapolated, top, top_overlap,
        bottom_overlap (all as in `agreement`), largest_difference and rms_difference (of two rewards of one
        candidate, in units of reward), relative (rms_difference over the standard deviation of the rewards).

    Raises:
        TableError: other candidates in a rescan, a missing reward, or one reward for all.
    """
    rows = []
    for name, rescan in rescans.items():
        again = align(rewards, rescan, left_name="the scan", right_name=f"its rescan {name!r}")
        pair = pd.DataFrame({"scan": rewards.astype(float), "rescan": again.astype(float)})
        check_rewards(pair, least_models=2)
        check_varied(pair)
        statistics = agreement(
            pair,
            replicates=replicates,
            confidence=confidence,
            seed=seed,
            persistence=persistence,
            depth=depth,
            top=top,
        ).iloc[0]
        difference = (pair["scan"] - pair["rescan"]).to_numpy()
        rms = float(np.sqrt(np.mean(difference**2)))
        rows.append(
            {
                "rescan": name,
                "n": len(pair),
                **statistics[STATISTICS],
                "largest_difference": float(np.abs(difference).max()),
                "rms_difference": rms,
                "relative": rms / float(pair["scan"].std(ddof=0)),
            }
        )
    return pd.DataFrame(rows)
