"""What two models have in common, as model × model matrices: base, developer, size, rank.

Knows model descriptors; knows no rewards. `rsa` asks which of these explains agreement.
"""

import numpy as np
import pandas as pd

from pessimal.errors import TableError

FACTORS = ("base", "developer", "parameters", "rank")


def model_matrices(descriptors: pd.DataFrame, *, paper: bool = False) -> dict[str, pd.DataFrame]:
    """Similarity of every two models in each of four respects, unit diagonal.

    * base, developer: 1 if the same, else 0.
    * parameters: 1 / (1 + |Δ log₂ parameters|), so twice the size counts the same at every scale. With `paper`,
      1 / (1 + |Δ parameters in billions|) as published, which cannot tell models of a few million apart.
    * rank: 1 / (1 + |Δ rank|).

    Args:
        descriptors: indexed by model: base, developer (str), parameters (count), rank (float).
        paper: size as published.

    Returns:
        One model × model matrix per factor; a factor with a missing descriptor is left out, because a pair
        of models cannot be said to differ in what is not known.

    Raises:
        TableError: a column is missing, a model is described twice, or a parameter count is not positive.

    Source: Christian et al. 2025, Figure 2C. Its "base" is the family (Gemma, Llama), whatever the version or
    size: only that reading reproduces the published coefficients.
    """
    if missing := [factor for factor in FACTORS if factor not in descriptors]:
        raise TableError(
            f"The model descriptors lack {', '.join(missing)}; they need the columns {', '.join(FACTORS)} "
            "(a rank that is not known may be NaN)."
        )
    if not descriptors.index.is_unique:
        twice = descriptors.index[descriptors.index.duplicated()].unique()
        raise TableError(f"Models described more than once: {', '.join(map(str, twice))}.")
    if (descriptors["parameters"] <= 0).any():
        bad = descriptors.index[descriptors["parameters"] <= 0]
        raise TableError(f"Parameter counts must be positive; they are not for {', '.join(map(str, bad))}.")
    size = descriptors["parameters"] / 1e9 if paper else np.log2(descriptors["parameters"].astype(float))
    matrices = {
        "base": _same(descriptors["base"]),
        "developer": _same(descriptors["developer"]),
        "parameters": _nearness(size),
        "rank": _nearness(descriptors["rank"]),
    }
    return {
        factor: pd.DataFrame(matrix, index=descriptors.index, columns=descriptors.index)
        for factor, matrix in matrices.items()
        if descriptors[factor].notna().all()
    }


def _same(labels: pd.Series) -> np.ndarray:
    """1 where two models carry the same label, else 0, (models, models)."""
    values = labels.to_numpy(dtype=object)
    return (values[:, None] == values[None, :]).astype(float)


def _nearness(numbers: pd.Series) -> np.ndarray:
    """1 / (1 + distance) of every two models, (models, models)."""
    values = numbers.to_numpy(dtype=float)
    return 1 / (1 + np.abs(values[:, None] - values[None, :]))
