"""How far models agree on what is good: every pair of models, three rank statistics, with uncertainty.

Knows a reward matrix; knows nothing of prompts, bases or developers (see `rsa` for those).
"""

from itertools import combinations

import numpy as np
import pandas as pd

from pessimal.analysis import influence
from pessimal.analysis.bootstrap import intervals
from pessimal.analysis.checks import check_rewards, check_varied
from pessimal.analysis.ranks import ranked
from pessimal.errors import TableError

RBO_PERSISTENCE = 0.9
RBO_DEPTH = 132


def agreement(
    rewards: pd.DataFrame, *, replicates: int = 1000, confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Kendall's tau-b, Spearman's rho and rank-biased overlap of every pair of models.

    Ties: tau-b corrects for them, rho takes mid-ranks, rank-biased overlap takes tied items in the order of
    the rows. Duplicates: each row counts as one item, so drop rows that were scored as the same input first.
    The intervals are item bootstraps of the linearised statistics (see `influence`): they say how far another
    draw of as many items would move the number, and nothing about another prompt or another model. Pairs that
    share a model are dependent, and so are their intervals.

    Args:
        rewards: items × models, float, none missing.
        replicates: bootstrap draws of items.
        confidence: of both intervals.
        seed: of the draws; the same draws serve every pair.

    Returns:
        One row per unordered pair, in the order of the columns: model_a, model_b, n (items), kendall, low,
        high (of Kendall's tau), spearman, spearman_low, spearman_high, rbo.

    Raises:
        TableError: fewer than two models or three items, a missing reward, a model with one reward for all.

    Source: Christian et al. 2025, Figures 2A and A1.
    """
    check_rewards(rewards, least_models=2)
    check_varied(rewards)
    columns = {model: rewards[model].to_numpy() for model in rewards}
    ranks = {model: ranked(values) for model, values in columns.items()}
    heads = {model: highest(values, depth=RBO_DEPTH) for model, values in columns.items()}
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
            "rbo": [rank_biased_overlap(heads[a], heads[b]) for a, b in pairs],
        }
    )


def highest(values: np.ndarray, *, depth: int) -> np.ndarray:
    """Row numbers of the `depth` highest values, highest first, equals in the order of the rows."""
    return np.argsort(-values, kind="stable")[:depth]


def rank_biased_overlap(a: np.ndarray, b: np.ndarray, *, persistence: float = RBO_PERSISTENCE) -> float:
    """Rank-biased overlap of two rankings to their common depth D, in [0, 1 − persistence^D].

    (1 − p) Σ_d p^(d−1) · |first d of a ∩ first d of b| / d, summed to D without extrapolation: what lies
    below D counts as disagreement (at p = .9 and D = 132, less than 10⁻⁶).

    Args:
        a: (D,) distinct items, best first.
        b: (D,) likewise.
        persistence: p, the chance that a reader goes on to the next rank.

    Source: Webber, Moffat & Zobel 2010, equation 7, truncated.
    """
    depth = len(a)
    in_b = {item: place for place, item in enumerate(b.tolist())}
    met_at = [max(place, in_b[item]) for place, item in enumerate(a.tolist()) if item in in_b]
    overlap = np.cumsum(np.bincount(met_at, minlength=depth)) if met_at else np.zeros(depth)
    d = np.arange(1, depth + 1)
    return float((1 - persistence) * np.sum(persistence ** (d - 1) * overlap / d))


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
