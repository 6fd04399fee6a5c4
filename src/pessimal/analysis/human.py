"""Models against people: rewards of named items beside the items' human Elo scores.

Knows a reward matrix and one human score per item; knows nothing of who the people were.
"""

import numpy as np
import pandas as pd

from pessimal.analysis import influence
from pessimal.analysis.bootstrap import intervals
from pessimal.analysis.checks import align, check_rewards, check_varied
from pessimal.analysis.ranks import ranked


def human_correlation(
    rewards: pd.DataFrame, elo: pd.Series, *, replicates: int = 1000, confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Rank correlation of each model's rewards with the human scores.

    Ties take mid-ranks (Spearman) and are corrected for (Kendall's tau-b). The interval is an item bootstrap of
    the linearised statistic; all models see the same items, so differences between models are surer than
    overlapping intervals suggest. The human scores' own error is not in it.

    Args:
        rewards: items × models.
        elo: human score per item, higher is better, indexed by the same items.
        replicates: bootstrap draws of items.
        confidence: of the interval.
        seed: of the draws.

    Returns:
        One row per model: model, n, spearman, kendall, low, high (both of Spearman's rho).

    Raises:
        TableError: see `checks.check_rewards`; or the items differ, or the human scores do not vary.

    Source: Christian et al. 2025, Figure 5A.
    """
    check_rewards(rewards)
    check_varied(rewards)
    people = align(rewards, elo, left_name="the rewards", right_name="the human scores").astype(float)
    check_rewards(people.to_frame("human scores"))
    check_varied(people.to_frame("human scores"))
    human = ranked(people.to_numpy())
    ranks = [ranked(rewards[model].to_numpy()) for model in rewards]
    rhos = [influence.spearman(model, human) for model in ranks]
    estimates = np.array([rho.estimate for rho in rhos])
    influences = np.stack([rho.influence for rho in rhos], axis=1)  # (n, models)
    low, high = intervals(estimates, influences, replicates=replicates, confidence=confidence, seed=seed)
    return pd.DataFrame(
        {
            "model": list(rewards),
            "n": len(rewards),
            "spearman": estimates,
            "kendall": [influence.kendall(model, human).estimate for model in ranks],
            "low": low,
            "high": high,
        }
    )


def rank_difference(rewards: pd.DataFrame, elo: pd.Series, *, paper: bool = False) -> pd.DataFrame:
    """Where models and people part: each item's median rank over the models less its human rank.

    Rank 1 is the highest; ties share their average rank. The median of several raters shrinks towards the
    middle, so an item that people rank first or last can hardly show a difference of zero: read the far ends of
    this table as candidates, not as a test. The published median is over the models *and* the people (`paper`),
    which pulls every difference towards zero.

    Args:
        rewards: items × models.
        elo: human score per item, higher is better, indexed by the same items.
        paper: count the people among the raters, as published.

    Returns:
        One row per item, in the order of `rewards`: name, human_rank, model_rank, difference (model − human:
        negative where models rank the item higher than people do).

    Raises:
        TableError: see `checks.check_rewards`; or the items differ.

    Source: Christian et al. 2025, Figure 5B.
    """
    check_rewards(rewards)
    people = align(rewards, elo, left_name="the rewards", right_name="the human scores").astype(float)
    check_rewards(people.to_frame("human scores"))
    human = people.rank(ascending=False).to_numpy()
    raters = rewards.rank(ascending=False).to_numpy()
    if paper:
        raters = np.column_stack([raters, human])
    model = np.median(raters, axis=1)
    table = pd.DataFrame({"human_rank": human, "model_rank": model, "difference": model - human})
    # The index as it is: a list of its items would become Arrow strings, which cannot hold a lone surrogate.
    table.insert(0, "name", rewards.index)
    return table
