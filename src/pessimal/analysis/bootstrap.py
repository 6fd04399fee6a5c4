"""Bootstrap intervals of linearised statistics.

Knows influence values, not what they are influences of.
"""

import numpy as np

from pessimal.errors import TableError

RESAMPLES_AT_ONCE = 32  # 32 × 128,000 weights are 33 MB, and the matrix product already runs at full speed


def intervals(
    estimates: np.ndarray, influences: np.ndarray, *, replicates: int, confidence: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile intervals of m statistics of the same n items, from their influence values.

    Items are drawn with replacement; each draw serves all statistics, as it would if each were recomputed.
    The estimate plus the mean influence of the drawn items stands for the recomputed statistic. Items are
    taken to be independent; the bounds are kept within [−1, 1], so the statistics must be correlations or shares.

    Args:
        estimates: (m,).
        influences: (n, m), each column of mean 0.
        replicates: draws of n items, at least 100.
        confidence: the share of draws inside the interval, between 0 and 1.
        seed: of the draws.

    Returns:
        lower and upper bounds, (m,) each.

    Raises:
        TableError: too few replicates, or a confidence outside (0, 1).
    """
    if replicates < 100 or not 0 < confidence < 1:
        raise TableError(
            f"An interval needs at least 100 replicates and a confidence between 0 and 1; given were "
            f"replicates={replicates} and confidence={confidence}. Use replicates=1000, confidence=0.95."
        )
    rng = np.random.default_rng(seed)
    n = len(influences)
    deviations = np.empty((replicates, len(estimates)))
    for start in range(0, replicates, RESAMPLES_AT_ONCE):
        rows = min(RESAMPLES_AT_ONCE, replicates - start)
        weights = np.empty((rows, n))
        for row in weights:
            row[:] = np.bincount(rng.integers(n, size=n, dtype=np.int32), minlength=n)
        deviations[start : start + rows] = weights @ influences / n
    tail = (1 - confidence) / 2
    low, high = np.asarray(estimates) + np.quantile(deviations, [tail, 1 - tail], axis=0)
    return np.clip(low, -1, 1), np.clip(high, -1, 1)
