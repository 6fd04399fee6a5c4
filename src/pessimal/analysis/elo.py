"""How surely people's Elo scores are known: what an item's number of matches can tell of its strength.

Knows scores and match counts of items; knows nothing of models. All of it is a lower bound on the error: the
published scores come without errors, and without the matches, from which better could be had.
"""

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from pessimal.errors import TableError

POINTS = 400 / np.log(10)
"""Elo points to one unit of log odds: 400 points are odds of ten to one."""
DRAWS_AT_ONCE = 100  # of ranks; 100 × 7,530 float64 are 6 MB


def least_error(matches: pd.Series) -> pd.Series:
    """The standard error, in Elo points, below which no unbiased estimate from so many matches can be.

    The chance to win is 1 / (1 + 10^(−Δ / 400)), so one match tells p (1 − p) (ln 10 / 400)² about Δ, at most a
    quarter of (ln 10 / 400)², when the two are equal. Over n matches against opponents whose strength is known,
    the error (Cramér–Rao) is at least (400 / ln 10) · 2 / √n ≈ 347 / √n points. What comes on top is not in the
    published file: unequal opponents tell less; opponents' strengths are themselves estimates; and a rating that
    is moved by up to K points at each match remembers the last 695 / K or so matches only, so it never comes
    nearer than √(87 K) points (K = 32: 53), and begins at the same value for every item.

    Args:
        matches: of each item.

    Returns:
        Elo points, indexed as `matches`.

    Raises:
        TableError: an item without matches, or a count that is missing.

    Source: Bradley & Terry 1952 for the model, Elo 1978 for the scale.
    """
    counts = pd.to_numeric(matches, errors="coerce").astype(float)
    if bad := int((~(counts >= 1)).sum()):
        name = counts.index[~(counts >= 1)][0]
        raise TableError(
            f"{bad} of {len(counts)} items {'has' if bad == 1 else 'have'} no count of matches, or none played (first: "
            f"{name!r}). Leave {'it' if bad == 1 else 'these items'} out, or give no matches at all."
        )
    return 2 * POINTS / np.sqrt(counts)


def reliability(elo: pd.Series, matches: pd.Series) -> float:
    """The share of the items' variance in Elo that is not error, at most.

    One minus the mean squared `least_error` over the variance of the scores. A perfect judge of the items would
    correlate with these scores by about its root and no more; that is, models agree with people's true order
    better than with this estimate of it, by a factor of at least one over the root.

    Raises:
        TableError: see `least_error`; or the errors are as large as the whole spread, so that these scores
            order nothing.
    """
    error = np.mean(np.square(least_error(matches).to_numpy()))
    spread = np.var(elo.to_numpy(dtype=float))
    if not error < spread:
        raise TableError(
            f"The items' Elo scores have a standard deviation of {np.sqrt(spread):.0f} points, and an error of at "
            f"least {np.sqrt(error):.0f} points from their match counts: they order nothing. Keep the items with many "
            "matches."
        )
    return float(1 - error / spread)


def rank_intervals(
    elo: pd.Series, matches: pd.Series, *, draws: int = 1000, confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Between which ranks each item's true strength may lie, as far as the match counts tell.

    True strengths are drawn, given the scores, and ranked; the interval holds the middle of an item's ranks. A
    strength is drawn from its normal posterior under an empirical prior, that of a normal population of items:
    with a share w = τ² / (τ² + se²) for the item's own score. Adding the error to the scores instead would widen
    the field once more and push both of its ends inwards: with the match counts of EloEverything, the 300 items
    at the ends then had their true rank in the 95 % interval 83–86 % of the time; so it is 95 %. Errors are
    taken to be independent between items and to be the least possible, so true intervals are wider.

    Args:
        elo: human score per item, higher is better.
        matches: of each item, in the same order.
        draws: of all strengths.
        confidence: of each item's interval, one item at a time.
        seed: of the draws.

    Returns:
        Indexed as `elo`: rank (1 = highest, ties at their average), low, high (the interval, widened to the
        item's own rank where this is outside), error (the least, in Elo points).

    Raises:
        TableError: see `reliability`; or too few draws, or a confidence outside (0, 1).
    """
    if draws < 100 or not 0 < confidence < 1:
        raise TableError(
            f"A rank interval needs at least 100 draws and a confidence between 0 and 1; given were draws={draws} "
            f"and confidence={confidence}. Use draws=1000, confidence=0.95."
        )
    error = least_error(matches).to_numpy()
    scores = elo.to_numpy(dtype=float)
    true = reliability(elo, matches) * np.var(scores)  # τ², points²
    own = true / (true + error**2)
    centre, spread = scores.mean() + own * (scores - scores.mean()), np.sqrt(own) * error
    ranks = _ranks_of_draws(centre, spread, draws=draws, rng=np.random.default_rng(seed))
    tail = (1 - confidence) / 2
    low, high = np.quantile(ranks, [tail, 1 - tail], axis=0)
    rank = rankdata(-scores)
    return pd.DataFrame(
        {"rank": rank, "low": np.minimum(low, rank), "high": np.maximum(high, rank), "error": error},
        index=elo.index,
    )


def _ranks_of_draws(
    centre: np.ndarray, spread: np.ndarray, *, draws: int, rng: np.random.Generator
) -> np.ndarray:
    """Ranks of normal draws around each item's centre, 1 = highest, (draws, items) float32."""
    items = len(centre)
    ranks = np.empty((draws, items), dtype=np.float32)
    places = np.arange(1, items + 1, dtype=np.float32)
    for start in range(0, draws, DRAWS_AT_ONCE):
        rows = min(DRAWS_AT_ONCE, draws - start)
        drawn = centre + spread * rng.standard_normal((rows, items))
        for row, order in enumerate(np.argsort(-drawn, axis=1), start=start):
            ranks[row, order] = places  # normal draws do not tie
    return ranks
