"""How good the gradient is at one response: where the truly best single change stands in the gradient's order.

Compares a gradient with the exact values that a coordinate pass computes anyway. Knows tables of numbers. Does not know
models or searches.
"""

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from torch import Tensor


def gradient_quality(
    values: Tensor,  # (L, V)
    gradient: Tensor,  # (L, V)
    response: Tensor,  # (L,)
    *,
    top_k: int,
) -> pd.DataFrame:
    """One row a position: how the gradient orders the single changes there, against what they truly bring.

    Args:
        values: as `polish.neighbour_values` gives them: exact values of every allowed token at every position, -inf
            elsewhere, the response's own value where its own token stands.
        gradient: d value / d one-hot at the response.
        top_k: candidates that a search keeps for each position.

    Returns:
        position: from 0.
        best_id: the token whose change truly brings most; the lowest id of equal ones. Never the one that stands there.
        gain: its value − the response's own, in units of value; negative where no change is better.
        gradient_rank: its place in the gradient's order, 1 = first. Tokens with an equal gradient stand before it: no
            rank is better than it is certain to be.
        within_top_k: whether it is among the first `top_k`.
        regret: its value − that of the best of the gradient's first `top_k`, in units of value; equal gradients in the
            order of ids.
        spearman: rank correlation of gradient and true change over the n changes (ties: mean ranks); NaN where either
            is constant, or n is below 3. The changes share the response, so it describes this position: no test.
        n: changes compared: allowed tokens other than the one that stands there.
        top_k: as given.

    Positions without any allowed change are left out. All allowed tokens are compared, whether or not a text gives them.
    """
    exact = values.double().cpu().numpy()
    slopes = gradient.detach().double().cpu().numpy()
    rows = [
        _at_position(position, exact[position], slopes[position], token, top_k)
        for position, token in enumerate(response.tolist())
        if np.isfinite(np.delete(exact[position], token)).any()
    ]
    return pd.DataFrame(rows, columns=_COLUMNS)


_COLUMNS = [
    "position", "best_id", "gain", "gradient_rank", "within_top_k", "regret", "spearman", "n", "top_k",
]  # fmt: skip


def _at_position(
    position: int, values: np.ndarray, slopes: np.ndarray, token: int, top_k: int
) -> dict[str, object]:
    others = np.flatnonzero(np.isfinite(values))
    others = others[others != token]
    gains, slopes = values[others] - values[token], slopes[others] - slopes[token]
    best = int(gains.argmax())
    rank = int((slopes >= slopes[best]).sum())
    kept = np.argsort(-slopes, kind="stable")[:top_k]
    constant = len(others) < 3 or np.ptp(gains) == 0 or np.ptp(slopes) == 0
    return {
        "position": position,
        "best_id": int(others[best]),
        "gain": float(gains[best]),
        "gradient_rank": rank,
        "within_top_k": rank <= top_k,
        "regret": float(gains[best] - gains[kept].max()),
        "spearman": float("nan") if constant else float(spearmanr(slopes, gains).statistic),
        "n": len(others),
        "top_k": top_k,
    }
