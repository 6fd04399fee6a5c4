"""How far models agree on what is good: every pair of models, in rank statistics, with uncertainty.

Knows a reward matrix; knows nothing of prompts, bases or developers (see `rsa` for those).
"""

from itertools import combinations

import numpy as np
import pandas as pd

from pessimal.analysis import influence
from pessimal.analysis.bootstrap import intervals
from pessimal.analysis.checks import check_rewards, check_varied
from pessimal.analysis.overlap import head, rank_biased_overlap, top_overlap
from pessimal.analysis.ranks import ranked
from pessimal.errors import TableError

RBO_PERSISTENCE = 0.9
RBO_DEPTH = 132
"""Both as published."""
TOP = 20


def agreement(
    rewards: pd.DataFrame,
    *,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    persistence: float = RBO_PERSISTENCE,
    depth: int = RBO_DEPTH,
    top: int = TOP,
) -> pd.DataFrame:
    """Kendall's tau-b, Spearman's rho, rank-biased overlap and the shared ends of every pair of models.

    Ties: tau-b corrects for them, rho takes mid-ranks, overlaps are means over all orders of ties (see `overlap`).
    Duplicates: each row counts as one item, so drop rows that were scored as the same input first.
    The intervals are item bootstraps of the linearised statistics (see `influence`): they say how far another
    draw of as many items would move the number, and nothing about another prompt or another model. Pairs that
    share a model are dependent, and so are their intervals. Overlaps rest on the few items at one end, of which a
    vocabulary holds no other draw: they have no interval, and are to be read beside those of a model with its own
    rescan (see `noise_floor`).

    Args:
        rewards: items × models, float, none missing.
        replicates: bootstrap draws of items.
        confidence: of both intervals.
        seed: of the draws; the same draws serve every pair.
        persistence: p of rank-biased overlap.
        depth: of rank-biased overlap, in ranks.
        top: k, items at each end.

    Returns:
        One row per unordered pair, in the order of the columns: model_a, model_b, n (items), kendall, low,
        high (of Kendall's tau), spearman, spearman_low, spearman_high, rbo (not extrapolated, as published),
        rbo_extrapolated, top (k, less where there are fewer items), top_overlap, bottom_overlap (shares of k).

    Raises:
        TableError: fewer than two models or three items, a missing reward, a model with one reward for all, or a
            persistence or depth of which there is no overlap.

    Source: Christian et al. 2025, Figures 2A and A1.
    """
    check_rewards(rewards, least_models=2)
    check_varied(rewards)
    if not 0 < persistence < 1 or depth < 1 or top < 1:
        raise TableError(
            f"Rank-biased overlap needs a persistence between 0 and 1, and depths of at least 1; given were "
            f"persistence={persistence}, depth={depth}, top={top}. Published: .9 and 132."
        )
    columns = {model: rewards[model].to_numpy() for model in rewards}
    top = min(top, len(rewards))
    ranks = {model: ranked(values) for model, values in columns.items()}
    begun = {model: head(values, depth=depth) for model, values in columns.items()}
    best = {model: head(values, depth=top) for model, values in columns.items()}
    worst = {model: head(-values, depth=top) for model, values in columns.items()}
    pairs = list(combinations(columns, 2))
    taus = [influence.kendall(ranks[a], ranks[b]) for a, b in pairs]
    rhos = [influence.spearman(ranks[a], ranks[b]) for a, b in pairs]
    estimates = np.array([statistic.estimate for statistic in taus + rhos])
    influences = np.stack([statistic.influence for statistic in taus + rhos], axis=1)  # (n, 2 · pairs)
    low, high = intervals(estimates, influences, replicates=replicates, confidence=confidence, seed=seed)
    tau, rho = slice(None, len(pairs)), slice(len(pairs), None)
    return pd.DataFrame(
        {
            "model_a": [a for a, _ in pairs],
            "model_b": [b for _, b in pairs],
            "n": len(rewards),
            "kendall": estimates[tau],
            "low": low[tau],
            "high": high[tau],
            "spearman": estimates[rho],
            "spearman_low": low[rho],
            "spearman_high": high[rho],
            "rbo": [rank_biased_overlap(begun[a], begun[b], persistence=persistence) for a, b in pairs],
            "rbo_extrapolated": [
                rank_biased_overlap(begun[a], begun[b], persistence=persistence, extrapolate=True)
                for a, b in pairs
            ],
            "top": top,
            "top_overlap": [top_overlap(best[a], best[b], k=top) for a, b in pairs],
            "bottom_overlap": [top_overlap(worst[a], worst[b], k=top) for a, b in pairs],
        }
    )


def as_matrix(agreement: pd.DataFrame, value: str) -> pd.DataFrame:
    """One column of `agreement` as a symmetric model × model matrix with a unit diagonal.

    Raises:
        TableError: no such column, or a pair of models is missing.
    """
    if value not in agreement:
        raise TableError(f"No column {value!r} in the agreement table; there are {list(agreement.columns)}.")
    models = list(dict.fromkeys([*agreement["model_a"], *agreement["model_b"]]))
    matrix = pd.DataFrame(np.nan, index=models, columns=models)
    for a, b, number in zip(agreement["model_a"], agreement["model_b"], agreement[value], strict=True):
        matrix.loc[a, b] = matrix.loc[b, a] = number
    for model in models:
        matrix.loc[model, model] = 1.0
    if matrix.isna().any(axis=None):
        a, b = matrix.isna().stack().idxmax()
        raise TableError(
            f"The agreement table has no row for {a} and {b}; it needs one for every pair of its models."
        )
    return matrix
