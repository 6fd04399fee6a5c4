"""Least squares whose errors hold for words: of unequal variance, and dependent where they share a stem.

Knows designs, outcomes and groups of rows. Knows nothing of words or models.
"""

from typing import NamedTuple

import numpy as np
from scipy import stats

from pessimal.errors import TableError

LEAST_REMAINING = 1e-6
"""Of the design's determinant, what must remain without any one group; below, one group alone decides a coefficient."""


class Fit(NamedTuple):
    """k coefficients of each of m outcomes on one design."""

    coefficients: np.ndarray
    """(k, m)."""
    errors: np.ndarray
    """(k, m) standard errors."""
    deviations: np.ndarray | None
    """(groups, k, m): by how much each coefficient moves as a group is left out; None where errors are classical.
    The squared deviations of a linear combination of coefficients, summed over groups, are its variance."""
    freedom: int
    """Degrees of freedom for intervals."""


def robust(design: np.ndarray, outcomes: np.ndarray, groups: np.ndarray) -> Fit:
    """Ordinary least squares with cluster-robust errors CR3: one group of rows is left out at a time.

    Where each row is a group of its own they are HC3. Ours, as statsmodels has CR0 and CR1 only.

    Args:
        design: (n, k), a column of ones included where an intercept is wanted.
        outcomes: (n, m).
        groups: (n,) which group a row belongs to, whole numbers from 0; a number may be absent.

    Raises:
        TableError: too few rows or groups, columns that depend on one another, or one group that alone decides a
            coefficient.

    Source: Bell & McCaffrey 2002 (CR3); MacKinnon & White 1985 (HC3).
    """
    k = design.shape[1]
    size = int(groups.max()) + 1 if len(groups) else 0
    present = np.count_nonzero(np.bincount(groups, minlength=size))
    _check(design, present, things="groups of rows")
    whole = design.T @ design
    coefficients = np.linalg.solve(whole, design.T @ outcomes)
    residuals = outcomes - design @ coefficients
    remaining = whole - _sums(design[:, :, None] * design[:, None, :], groups, size)  # (groups, k, k)
    pulls = _sums(design[:, :, None] * residuals[:, None, :], groups, size)  # (groups, k, m)
    if np.linalg.det(remaining).min() < LEAST_REMAINING * np.linalg.det(whole):
        raise TableError(
            f"One group of rows alone decides a coefficient: without it, the {k} columns of the design depend on one "
            "another, so no error can be given. Give more words, or words that differ more."
        )
    deviations = -np.linalg.solve(remaining, pulls)
    return Fit(coefficients, np.sqrt(np.square(deviations).sum(axis=0)), deviations, present - k)


def classical(design: np.ndarray, outcomes: np.ndarray) -> Fit:
    """Ordinary least squares with textbook errors: independent rows of equal variance.

    Raises:
        TableError: too few rows, or columns that depend on one another.
    """
    from statsmodels.regression.linear_model import OLS  # .15 s, and only the published procedure needs it

    n, k = design.shape
    _check(design, n, things="rows")
    fits = [OLS(outcome, design).fit() for outcome in outcomes.T]
    coefficients, errors = (
        np.column_stack([getattr(fit, name) for fit in fits]) for name in ("params", "bse")
    )
    return Fit(coefficients, errors, None, n - k)


def interval(
    estimate: np.ndarray, error: np.ndarray, freedom: float, *, confidence: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower and upper bound by Student's t, and the two-sided p value against zero.

    An error of zero gives p = 0, or p = 1 where the estimate is zero as well.

    Raises:
        TableError: a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise TableError(f"confidence={confidence} is no level between 0 and 1; use confidence=0.95.")
    estimate, error = np.asarray(estimate, dtype=float), np.asarray(error, dtype=float)
    reach = stats.t.ppf((1 + confidence) / 2, freedom) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((error == 0) & (estimate == 0), 0.0, np.abs(estimate) / error)
    return estimate - reach, estimate + reach, 2 * stats.t.sf(ratio, freedom)


def _check(design: np.ndarray, units: int, *, things: str) -> None:
    n, k = design.shape
    if units <= k:
        raise TableError(
            f"A regression with {k} coefficients needs more than {k} {things}; given were {units}. Give more words."
        )
    if np.linalg.matrix_rank(design) < k:
        raise TableError(
            f"The {k} columns of the design depend on one another over these {n} rows (a column that does not vary, "
            "say). Give words that differ in each of them."
        )


def _sums(values: np.ndarray, groups: np.ndarray, size: int) -> np.ndarray:
    """Sums over groups: (n, a, b) → (groups, a, b)."""
    columns = values.reshape(len(values), -1).T
    sums = np.stack([np.bincount(groups, weights=column, minlength=size) for column in columns], axis=1)
    return sums.reshape(size, *values.shape[1:])
