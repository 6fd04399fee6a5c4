"""Representational similarity analysis: does agreement follow base, developer, size or rank?

Knows a similarity of models and their descriptors. The unit is the dyad, a pair of models, and dyads that
share a model are dependent; so every p value comes from permuting models, never from counting dyads.
"""

import numpy as np
import pandas as pd

from pessimal.analysis.checks import check_square
from pessimal.analysis.descriptors import FACTORS, model_matrices
from pessimal.errors import TableError

ESTIMATED = "estimated"
TINY = 1e-9  # what rounding leaves of a vector of standardised dyads that should be zero
NULL_SHARE = 0.95  # the share of permuted coefficients between null_low and null_high


def rsa(
    similarity: pd.DataFrame,
    descriptors: pd.DataFrame,
    *,
    permutations: int = 10_000,
    seed: int = 0,
    paper: bool = False,
) -> pd.DataFrame:
    """Regress the similarity of models on what they have in common, over all dyads at once.

    Multiple regression quadratic assignment (MRQAP) with double semi-partialling: a factor's residuals on the
    other factors are permuted over models, the regression is run again, and t statistics are compared. This
    keeps its level when factors are correlated and when dyads are dependent. Mantel's test takes each factor
    alone, permuting the similarity. Both are two-sided, p = (k + 1) / (permutations + 1), so ties with the
    observed statistic count against the factor; with few models few permutations differ and p cannot be small
    (4 models: 24).

    Args:
        similarity: model × model, such as Kendall's tau; the diagonal is not used.
        descriptors: indexed by model, holding at least these models (see `descriptors.model_matrices`).
        permutations: of the models.
        seed: of the permutations.
        paper: the factors as published.

    Returns:
        One row per factor: factor, beta (standardised, multiple regression), p_value (MRQAP, of beta and of
        partial_r alike), null_low, null_high (the middle 95 % of beta under permutation), partial_r (its partial
        correlation with the similarity beside the other factors: the effect on a scale of −1 to 1 that does not
        grow where factors are correlated; NaN where the others explain everything), mantel_r, mantel_p, n_models,
        n_dyads, r_squared (of the whole regression), status ("estimated", or why the factor was left out; its
        numbers are then NaN).

    Raises:
        TableError: fewer than four models, no descriptors for one, no factor that varies, not enough dyads
            for the factors, or a similarity that is the same for all pairs.

    Source: Christian et al. 2025, Figure 2C; Dekker, Krackhardt & Snijders 2007 for the test.
    """
    check_square(similarity, name="similarity", least=4)
    models = list(similarity.index)
    if unknown := [str(model) for model in models if model not in descriptors.index]:
        raise TableError(
            f"No descriptors for {', '.join(unknown)}; give each model base, developer, parameters, rank."
        )
    if permutations < 100:
        raise TableError(
            f"permutations={permutations} cannot give a p value below {1 / (permutations + 1):.2f}; use 10000."
        )
    matrices = model_matrices(descriptors.loc[models], paper=paper)
    status = _usable(matrices, n_models=len(models))
    factors = [factor for factor in FACTORS if status[factor] == ESTIMATED]

    n_models, n_dyads = len(models), len(models) * (len(models) - 1) // 2
    if not factors or n_dyads < len(factors) + 2:
        reasons = "; ".join(f"{factor}: {why}" for factor, why in status.items())
        raise TableError(f"No regression is possible with {n_models} models ({n_dyads} pairs). {reasons}.")
    outcome = similarity.to_numpy(dtype=float)
    if np.ptp(_dyads(outcome)) == 0:
        raise TableError("All pairs of models are equally similar; there is nothing to explain.")

    rng = np.random.default_rng(seed)
    shuffles = np.argsort(rng.random((permutations, n_models)), axis=1)  # (permutations, models)
    y = _standardised(_dyads(outcome))
    x = np.stack([_standardised(_dyads(matrices[factor].to_numpy())) for factor in factors], axis=1)
    beta, *_ = np.linalg.lstsq(x, y, rcond=None)
    r_squared = 1 - np.mean((y - x @ beta) ** 2)
    y_shuffled = _standardised(_shuffled(outcome, shuffles))  # (permutations, dyads)

    rows = []
    for factor in FACTORS:
        row = {"factor": factor}
        if factor in factors:
            k = factors.index(factor)
            others = np.delete(x, k, axis=1)
            row |= {"beta": beta[k]} | _semi_partial_test(y, x[:, k], others, shuffles)
            mantel_r = np.mean(x[:, k] * y)
            row |= {"mantel_r": mantel_r, "mantel_p": _p_value(mantel_r, y_shuffled @ x[:, k] / n_dyads)}
        rows.append(
            row | {"n_models": n_models, "n_dyads": n_dyads, "r_squared": r_squared, "status": status[factor]}
        )
    columns = ["factor", "beta", "p_value", "null_low", "null_high", "partial_r", "mantel_r", "mantel_p"]
    return pd.DataFrame(rows).reindex(columns=[*columns, "n_models", "n_dyads", "r_squared", "status"])


def _usable(matrices: dict[str, pd.DataFrame], *, n_models: int) -> dict[str, str]:
    """For each factor `ESTIMATED`, or the reason why it is left out."""
    status, kept = {}, [np.ones(n_models * (n_models - 1) // 2)]
    for factor in FACTORS:
        if factor not in matrices:
            status[factor] = "left out: not known for every model"
            continue
        values = _dyads(matrices[factor].to_numpy())
        if np.ptp(values) < 1e-9:
            status[factor] = "left out: the same for every pair of models"
        elif np.linalg.matrix_rank(np.stack([*kept, values])) == len(kept):
            status[factor] = "left out: follows from the factors before it"
        else:
            status[factor] = ESTIMATED
            kept.append(values)
    return status


def _semi_partial_test(
    y: np.ndarray, x: np.ndarray, others: np.ndarray, shuffles: np.ndarray
) -> dict[str, float]:
    """Partial correlation and MRQAP p value of factor x (dyads,) beside others (dyads, factors), and null betas."""
    annihilator = _annihilator(others)
    residual_y, residual_x = annihilator @ y, annihilator @ x
    scale = np.linalg.norm(residual_y)
    if scale < TINY:  # the other factors leave nothing to explain
        return {"p_value": 1.0, "null_low": 0.0, "null_high": 0.0, "partial_r": np.nan}
    n_models = shuffles.shape[1]
    square = np.zeros((n_models, n_models))
    square[np.triu_indices(n_models, k=1)] = residual_x
    permuted = _shuffled(square + square.T, shuffles) @ annihilator  # (permutations, dyads)
    length = np.linalg.norm(permuted, axis=1)
    # Of very few models, a permutation can make the factor a copy of the others: no regression, no t.
    permuted, length = permuted[length > TINY], length[length > TINY]
    # The partial correlation orders permutations as |t| does and needs no division by a residual variance.
    along = permuted @ residual_y
    observed = residual_x @ residual_y / (np.linalg.norm(residual_x) * scale)
    tail = (1 - NULL_SHARE) / 2
    low, high = np.quantile(along / length**2, [tail, 1 - tail])
    p_value = _p_value(observed, along / (length * scale))
    return {"p_value": p_value, "null_low": low, "null_high": high, "partial_r": float(observed)}


def _annihilator(others: np.ndarray) -> np.ndarray:
    """The projection (dyads, dyads) that takes a vector to its residuals on an intercept and the others."""
    design = np.column_stack([np.ones(len(others)), others])
    return np.eye(len(others)) - design @ np.linalg.pinv(design)


def _p_value(observed: float, null: np.ndarray) -> float:
    """Two-sided permutation p value; the observed arrangement is one of those counted."""
    as_extreme = np.sum(np.abs(null) >= abs(observed) - 1e-12)  # rounding must not untie equal arrangements
    return float((as_extreme + 1) / (len(null) + 1))


def _dyads(square: np.ndarray) -> np.ndarray:
    """The upper triangle of a model × model matrix, row by row, (dyads,)."""
    return square[np.triu_indices(len(square), k=1)]


def _shuffled(square: np.ndarray, shuffles: np.ndarray) -> np.ndarray:
    """The dyads of a symmetric matrix with its models permuted, (permutations, dyads)."""
    rows, columns = np.triu_indices(len(square), k=1)
    return square[shuffles[:, rows], shuffles[:, columns]]


def _standardised(values: np.ndarray) -> np.ndarray:
    """Mean 0 and variance 1 along the last axis."""
    return (values - values.mean(axis=-1, keepdims=True)) / values.std(axis=-1, keepdims=True)
