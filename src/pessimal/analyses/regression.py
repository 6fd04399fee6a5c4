"""Least squares whose errors hold for words, of unequal variance, and dependent where they share a
stem; and how much of a reward some direction of a network's states explains.

Knows designs, outcomes, groups of rows and their states. Knows nothing of words or models.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from pessimal.errors import TableError

LEAST_REMAINING = 1e-6
"""Share of the design's determinant that must remain without any one group; below, one group alone
decides a coefficient."""
LEAST_DIRECTION = 1e-9
"""A direction of the states in which the rows spread less than this, of the widest, is none."""
RATIOS = np.linspace(-14, 8, 23)
"""Logarithms of the ratio of taste to noise between which its likelihood is searched for its
maximum, one apart."""


class Fit(NamedTuple):
    """k coefficients of each of m outcomes on one design."""

    coefficients: np.ndarray
    """Estimates, (k, m)."""
    errors: np.ndarray
    """(k, m) standard errors."""
    deviations: np.ndarray | None
    """(groups, k, m): by how much each coefficient moves as a group is left out; None where errors
    are classical. The squared deviations of a linear combination of coefficients, summed over
    groups, are its variance."""
    freedom: int
    """Degrees of freedom for intervals."""


class DirectionEffect(NamedTuple):
    """By how much rewards follow some direction of the states, whatever it is: y = X b + E w + e,
    with w and e independent normal."""

    variance: np.ndarray
    """(m,) variance of each outcome's w, one number for all directions."""
    noise: np.ndarray
    """(m,) variance of e."""
    residuals: np.ndarray
    """(n, m): outcomes less the fitted X b and the expected E w."""
    freedom: np.ndarray
    """(m,) degrees of freedom of the variance of w: twice its Fisher information on the scale of
    logarithms."""
    unlikely: np.ndarray
    """(m,) −2 logarithms of the restricted likelihood, less a constant of the design."""


def share_beyond(
    estimate: np.ndarray, error: np.ndarray, freedom: np.ndarray | float = np.inf
) -> np.ndarray:
    """The share of Student's t about 0 (the normal distribution by default) that is at least as far
    from it as the estimate; missing where the error is."""
    with np.errstate(invalid="ignore", divide="ignore"):
        away = np.where((error == 0) & (estimate == 0), 0.0, np.abs(estimate) / error)
    return 2 * stats.t.sf(away, freedom)


def robust(design: np.ndarray, outcomes: np.ndarray, groups: np.ndarray) -> Fit:
    """Ordinary least squares with cluster-robust errors CR3: one group of rows left out at a time
    (HC3 where each row is a group of its own). Ours, as statsmodels has CR0 and CR1 only.

    Args:
        design: (n, k), a column of ones included where an intercept is wanted.
        outcomes: (n, m).
        groups: (n,) which group a row belongs to, whole numbers from 0; a number may be absent.

    Raises:
        TableError: too few rows or groups, columns that depend on one another, or one group that
            alone decides a coefficient.

    Source: Bell & McCaffrey 2002 (CR3); MacKinnon & White 1985 (HC3).
    """
    k, m = design.shape[1], outcomes.shape[1]
    size = int(groups.max()) + 1 if len(groups) else 0
    sizes = np.bincount(groups, minlength=size)
    present = int(np.count_nonzero(sizes))
    _check(design, present, things="groups of rows")
    gram = design.T @ design
    weights = np.linalg.solve(gram, design.T)  # (k, n)
    coefficients = weights @ outcomes
    basis = np.linalg.qr(design)[0]
    residuals = outcomes - design @ coefficients
    deviations = np.zeros((size, k, m))
    order = np.argsort(groups, kind="stable")
    for count in np.unique(sizes[sizes > 0]).tolist():  # groups of one size at once
        # (groups of this size, count)
        rows = order[sizes[groups[order]] == count].reshape(-1, count)
        near = basis[rows]
        left = np.eye(count) - near @ near.transpose(0, 2, 1)  # (groups, count, count)
        if np.linalg.det(left).min() < LEAST_REMAINING:
            raise TableError(
                f"One group of rows alone decides a coefficient: without it, the {k} columns of "
                "the design depend on one another, and no error can be given. Give more words."
            )
        inside = np.moveaxis(residuals[rows], -1, 0)  # (m, groups, count)
        moved = np.linalg.solve(left, inside[..., None])[..., 0]
        deviations[sizes == count] = -np.einsum("kgc,mgc->gkm", weights[:, rows], moved)
    errors = np.sqrt(np.square(deviations).sum(axis=0))
    return Fit(coefficients, errors, deviations, present - k)


def taste(design: np.ndarray, outcomes: np.ndarray, meanings: np.ndarray) -> DirectionEffect:
    """Variances of the linear mixed model whose random effect is a direction of the states, by
    restricted maximum likelihood.

    Args:
        design, outcomes: as in `robust`.
        meanings: (n, directions) states or vectors of meaning.

    Source: Patterson & Thompson 1971 (restricted likelihood); Kang et al. 2008 for solving it by
        one decomposition.
    """
    basis = np.linalg.qr(design)[0]
    less = meanings - basis @ (basis.T @ meanings)
    spread, turned = np.linalg.eigh(less.T @ less)
    wide = spread > LEAST_DIRECTION * max(spread.max(initial=0.0), 1e-300)
    spread = spread[wide]
    # `less @ turned` are orthonormal directions of the rows; they are never written out, which
    # would take as long as all the rest.
    turned = turned[:, wide] / np.sqrt(spread)
    residuals = outcomes - basis @ (basis.T @ outcomes)
    along = turned.T @ (less.T @ residuals)  # (d, m)
    freedom = len(design) - design.shape[1]
    beyond = np.maximum(np.square(residuals).sum(axis=0) - np.square(along).sum(axis=0), 0.0)
    typical = spread.mean() if len(spread) else 1.0

    def likelihood(
        log_ratio: float, squares: np.ndarray, rest: float
    ) -> tuple[float, float, float]:
        """Noise at this ratio of taste to noise, −2 logarithms of the likelihood, their slope."""
        widths = np.exp(log_ratio) / typical * spread + 1
        noise = max(((squares / widths).sum() + rest) / freedom, 1e-300)
        shares = 1 - 1 / widths
        slope = shares.sum() - (squares / widths * shares).sum() / noise
        return noise, freedom * np.log(noise) + np.log(widths).sum(), slope

    ratios, noise, unlikely = np.zeros((3, outcomes.shape[1]))
    for j, (squares, rest) in enumerate(zip(np.square(along).T, beyond, strict=True)):
        if squares.sum() + rest > 0:  # else the design explains all of it
            at = partial(likelihood, squares=squares, rest=rest)
            ratio = RATIOS[int(np.argmin([at(ratio)[1] for ratio in RATIOS]))]
            # A root, and not the minimum, which no search finds to more than half of the digits.
            if at(ratio - 1)[2] < 0 < at(ratio + 1)[2]:
                ratio = optimize.brentq(
                    lambda ratio, at=at: at(ratio)[2], ratio - 1, ratio + 1, xtol=1e-13
                )
            ratios[j] = np.exp(ratio) / typical
            noise[j], unlikely[j], _ = at(ratio)
    shares = ratios * spread[:, None] / (ratios * spread[:, None] + 1)  # (d, m)
    informed = np.maximum(np.square(shares).sum(axis=0), 1.0)
    residuals = residuals - less @ (turned @ (shares * along))
    return DirectionEffect(ratios * noise, noise, residuals, informed, unlikely)


def classical(design: np.ndarray, outcomes: np.ndarray) -> Fit:
    """Ordinary least squares with textbook errors: independent rows of equal variance.

    Raises:
        TableError: too few rows, or columns that depend on one another.
    """
    n, k = design.shape
    _check(design, n, things="rows")
    inverse = np.linalg.inv(design.T @ design)
    coefficients = inverse @ design.T @ outcomes
    variance = np.square(outcomes - design @ coefficients).sum(axis=0) / (n - k)
    return Fit(coefficients, np.sqrt(np.outer(np.diag(inverse), variance)), None, n - k)


def interval(
    estimate: np.ndarray, error: np.ndarray, freedom: float, *, confidence: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower and upper bound by Student's t, and the two-sided p value against zero.

    An error of zero gives p = 0, or p = 1 where the estimate is zero as well.

    Raises:
        TableError: a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise TableError(f"confidence={confidence} is not between 0 and 1; use confidence=0.95.")
    estimate, error = np.asarray(estimate, dtype=float), np.asarray(error, dtype=float)
    reach = stats.t.ppf((1 + confidence) / 2, freedom) * error
    return estimate - reach, estimate + reach, share_beyond(estimate, error, freedom)


def _check(design: np.ndarray, units: int, *, things: str) -> None:
    n, k = design.shape
    if units <= k:
        raise TableError(
            f"A regression with {k} coefficients needs more than {k} {things}; given were {units}"
        )
    if np.linalg.matrix_rank(design) < k:
        raise TableError(
            f"The {k} columns of the design depend on one another over these {n} rows (a column "
            "that does not vary, say). Give words that differ in each of them."
        )
