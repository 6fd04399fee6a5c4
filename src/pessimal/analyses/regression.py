"""Least squares whose errors hold for words: of unequal variance, and dependent where they share a
stem or a meaning.

Knows designs, outcomes, groups of rows and vectors of meaning. Knows nothing of words or models.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from pessimal.errors import TableError

LEAST_REMAINING = 1e-6
"""Of the design's determinant, what must remain without any one group; below, one group alone
decides a coefficient."""
LEAST_DIRECTION = 1e-9
"""A direction of meaning in which the rows spread less than this, of the widest, is none."""
RATIOS = np.linspace(-14, 8, 23)
"""Logarithms of the ratio of taste to noise between which its likelihood is searched for its
maximum."""


class Fit(NamedTuple):
    """k coefficients of each of m outcomes on one design."""

    coefficients: np.ndarray
    """(k, m)."""
    errors: np.ndarray
    """(k, m) standard errors."""
    deviations: np.ndarray | None
    """(groups, k, m): by how much each coefficient moves as a group is left out; None where errors
    are classical. The squared deviations of a linear combination of coefficients, summed over
    groups, are its variance; but see `tastes`."""
    freedom: int
    """Degrees of freedom for intervals."""
    tastes: np.ndarray | None = None
    """(directions, k, m): by how much each coefficient moves with a typical taste for each
    direction of meaning. Their squares add to the variance as those of `deviations` do."""


class Taste(NamedTuple):
    """How much rewards follow some direction of meaning, whatever it is: y = X b + E w + e, w and e
    independent normal."""

    variance: np.ndarray
    """(m,) of each outcome's w, one number for all directions."""
    noise: np.ndarray
    """(m,) variance of e."""
    residuals: np.ndarray
    """(n, m): less the fitted X b and the expected E w."""
    basis: np.ndarray
    """(n, d) orthonormal: E less what the design explains of it."""
    kept: np.ndarray
    """(d, m): the share of the outcome along each column of `basis` that is taken for taste."""


def robust(
    design: np.ndarray, outcomes: np.ndarray, groups: np.ndarray, meanings: np.ndarray | None = None
) -> Fit:
    """Ordinary least squares with errors that allow for dependent rows.

    Rows of one group: cluster-robust errors CR3, one group of rows left out at a time (HC3 where
    each row is a group of its own). Ours, as statsmodels has CR0 and CR1 only. Rows alike in
    meaning: rewards may follow any one direction of meaning, for a reason that has nothing to do
    with the design. How far they do is estimated (`taste`), and what such directions do to the
    coefficients by chance is added to the errors. The coefficients stay those of least squares: the
    mixed model's own are surer where it is true, and wrong more often where meaning is more than
    these vectors hold (measured in experiments/nulls).

    Args:
        design: (n, k), a column of ones included where an intercept is wanted.
        outcomes: (n, m).
        groups: (n,) which group a row belongs to, whole numbers from 0; a number may be absent.
        meanings: (n, directions) vectors of the rows' meanings; without them no taste is allowed
            for.

    Raises:
        TableError: too few rows or groups, columns that depend on one another, or one group that
            alone decides a coefficient.

    Source: Bell & McCaffrey 2002 (CR3); MacKinnon & White 1985 (HC3); for the mixed model, which
        genetics uses for
    kinship, Kang et al. 2008 (EMMA).
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
    if meanings is None:
        tastes, directions, kept = None, np.zeros((len(design), 0)), np.zeros((0, m))
        residuals = outcomes - design @ coefficients
    else:
        taste_found = taste(design, outcomes, meanings)
        directions, kept, residuals = taste_found.basis, taste_found.kept, taste_found.residuals
        tastes = (weights @ meanings).T[:, :, None] * np.sqrt(
            taste_found.variance
        )  # (directions, k, m)
    deviations = np.zeros((size, k, m))
    order = np.argsort(groups, kind="stable")
    for count in np.unique(sizes[sizes > 0]).tolist():  # groups of one size at once
        # (groups of this size, count)
        rows = order[sizes[groups[order]] == count].reshape(-1, count)
        near, along = basis[rows], directions[rows]
        explained = (along[:, :, None] * along[:, None]) @ kept  # (groups, count, count, m)
        explained += (near @ near.transpose(0, 2, 1))[..., None]
        left = np.moveaxis(np.eye(count)[..., None] - explained, -1, 0)  # (m, groups, count, count)
        if np.linalg.det(left).min() < LEAST_REMAINING:
            raise TableError(
                f"One group of rows alone decides a coefficient: without it, the {k} columns of "
                "the design depend on one another, so no error can be given. Give more words, or "
                "words that differ more."
            )
        inside = np.moveaxis(residuals[rows], -1, 0)  # (m, groups, count)
        moved = np.linalg.solve(left, inside[..., None])[..., 0]
        deviations[sizes == count] = -np.einsum("kgc,mgc->gkm", weights[:, rows], moved)
    variance = np.square(deviations).sum(axis=0)
    if tastes is not None:
        variance = variance + np.square(tastes).sum(axis=0)
    return Fit(coefficients, np.sqrt(variance), deviations, present - k, tastes)


def taste(design: np.ndarray, outcomes: np.ndarray, meanings: np.ndarray) -> Taste:
    """Variances of the linear mixed model whose random effect is a direction of meaning, by
    restricted maximum likelihood.

    Args:
        design, outcomes, meanings: as in `robust`.

    Source: Patterson & Thompson 1971 (restricted likelihood); Kang et al. 2008 for solving it by
        one decomposition.
    """
    basis = np.linalg.qr(design)[0]
    less = meanings - basis @ (basis.T @ meanings)
    spread, turned = np.linalg.eigh(less.T @ less)
    wide = spread > LEAST_DIRECTION * max(spread.max(initial=0.0), 1e-300)
    spread = spread[wide]
    directions = less @ (turned[:, wide] / np.sqrt(spread))  # (n, d) orthonormal
    residuals = outcomes - basis @ (basis.T @ outcomes)
    along = directions.T @ residuals  # (d, m)
    freedom = len(design) - design.shape[1]
    beyond = np.maximum(np.square(residuals).sum(axis=0) - np.square(along).sum(axis=0), 0.0)
    scale = np.log(spread.mean()) if len(spread) else 0.0
    ratios, noise = np.zeros(outcomes.shape[1]), np.zeros(outcomes.shape[1])
    for j, (squares, rest) in enumerate(zip(np.square(along).T, beyond, strict=True)):
        if squares.sum() + rest > 0:  # else the design explains all of it
            ratios[j], noise[j] = _likeliest(squares, rest, spread, scale, freedom)
    kept = ratios * spread[:, None] / (ratios * spread[:, None] + 1)  # (d, m)
    return Taste(ratios * noise, noise, residuals - directions @ (kept * along), directions, kept)


def _likeliest(
    squares: np.ndarray, rest: float, spread: np.ndarray, scale: float, freedom: int
) -> tuple[float, float]:
    """The ratio of taste to noise at which the restricted likelihood of one outcome is highest, and
    the noise there.

    Args:
        own: (d,) squares of the outcome along the directions, whose squared lengths are `spread`
            (d,); `rest` is the sum of its squares beyond them.
        scale: logarithm of a typical length, from which `RATIOS` count.
        freedom: rows less coefficients.
    """

    def variance(ratio: float) -> float:
        return ((squares / (ratio * spread + 1)).sum() + rest) / freedom

    def unlikely(log_ratio: float) -> float:
        ratio = np.exp(log_ratio - scale)
        return freedom * np.log(max(variance(ratio), 1e-300)) + np.log(ratio * spread + 1).sum()

    def rise(log_ratio: float) -> float:
        ratio = np.exp(log_ratio - scale)
        share = ratio * spread / (ratio * spread + 1)
        return share.sum() - (squares / (ratio * spread + 1) * share).sum() / max(
            variance(ratio), 1e-300
        )

    best = int(np.argmin([unlikely(ratio) for ratio in RATIOS]))
    low, high = RATIOS[max(best - 1, 0)], RATIOS[min(best + 1, len(RATIOS) - 1)]
    # A root, and not the least value, which no search finds to more than half of the digits.
    inside = rise(low) < 0 < rise(high)
    ratio = np.exp(
        (optimize.brentq(rise, low, high, xtol=1e-13) if inside else RATIOS[best]) - scale
    )
    return ratio, variance(ratio)


def classical(design: np.ndarray, outcomes: np.ndarray) -> Fit:
    """Ordinary least squares with textbook errors: independent rows of equal variance.

    Raises:
        TableError: too few rows, or columns that depend on one another.
    """
    # .15 s, and only the published procedure needs it.
    from statsmodels.regression.linear_model import (
        OLS,
    )

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
        raise TableError(
            f"confidence={confidence} is no level between 0 and 1; use confidence=0.95."
        )
    estimate, error = np.asarray(estimate, dtype=float), np.asarray(error, dtype=float)
    reach = stats.t.ppf((1 + confidence) / 2, freedom) * error
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where((error == 0) & (estimate == 0), 0.0, np.abs(estimate) / error)
    return estimate - reach, estimate + reach, 2 * stats.t.sf(ratio, freedom)


def _check(design: np.ndarray, units: int, *, things: str) -> None:
    n, k = design.shape
    if units <= k:
        raise TableError(
            f"A regression with {k} coefficients needs more than {k} {things}; given were {units}. "
            "Give more words."
        )
    if np.linalg.matrix_rank(design) < k:
        raise TableError(
            f"The {k} columns of the design depend on one another over these {n} rows (a column "
            "that does not vary, say). Give words that differ in each of them."
        )
