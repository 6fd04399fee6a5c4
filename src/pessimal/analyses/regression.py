"""Least squares whose errors hold for words, of unequal variance, and dependent where they share a
stem; and what random heads on the states of a network would give.

Knows designs, outcomes, groups of rows and their states. Knows nothing of words or models.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from pessimal.errors import TableError

LEAST_REMAINING = 1e-6
"""Of the design's determinant, what must remain without any one group; below, one group alone
decides a coefficient."""
WITHIN = float(stats.norm.ppf(0.975))
"""Standard deviations about 0 within which 95 % of random heads lie."""
LEAST_ROWS = 10
"""Rows with states that each column of a design needs."""
LEAST_DIRECTION = 1e-9
"""A direction of the states in which the rows spread less than this, of the widest, is none."""
RULED_OUT = 2 * np.log(100)
"""A space in which an outcome is a hundred times less likely than in another is not where its head
is."""
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
    groups, are its variance."""
    freedom: int
    """Degrees of freedom for intervals."""


class Taste(NamedTuple):
    """How much rewards follow some direction of the states, whatever it is: y = X b + E w + e, with
    w and e independent normal."""

    variance: np.ndarray
    """(m,) of each outcome's w, one number for all directions."""
    noise: np.ndarray
    """(m,) variance of e."""
    residuals: np.ndarray
    """(n, m): less the fitted X b and the expected E w."""
    freedom: np.ndarray
    """(m,) degrees of freedom of the variance of w: twice its Fisher information on the scale of
    logarithms."""
    unlikely: np.ndarray
    """(m,) −2 logarithms of the restricted likelihood, less a constant of the design."""


class RandomHeads(NamedTuple):
    """What heads that nobody trained show on the same states, q combinations of coefficients of m
    outcomes."""

    share: np.ndarray
    """(q, m): of random heads, those that show as much, either way."""
    error: np.ndarray
    """(q, m): standard deviation of what they show about 0."""
    within: np.ndarray
    """(q, m): 95 % of them lie within ± this."""


def random_heads(
    design: np.ndarray,
    outcomes: np.ndarray,
    groups: np.ndarray,
    states: Sequence[np.ndarray],
    combinations: np.ndarray | None = None,
) -> RandomHeads:
    """The share of random heads that give least-squares coefficients as large as these.

    Args:
        design: (n, k), a column of ones included where an intercept is wanted.
        outcomes: (n, m).
        groups: (n,) which group a row belongs to.
        states: m arrays (n, spaces, directions); a head is in one of the spaces. Rows without
            states, not a number, are left out, of the coefficients too.
        combinations: (k, q) of the coefficients; each by itself where None.
    """
    if combinations is None:
        combinations = np.eye(design.shape[1])
    present = with_states(states)
    if present.sum() < LEAST_ROWS * design.shape[1]:
        missing = np.full((combinations.shape[1], outcomes.shape[1]), np.nan)
        return RandomHeads(missing, missing, missing)
    inside = design[present]
    weights = np.zeros((len(design), combinations.shape[1]))
    weights[present] = inside @ np.linalg.solve(inside.T @ inside, combinations)
    return heads_beyond(weights, design, outcomes, groups, states)


def heads_on_ranks(
    outcomes: np.ndarray, other: np.ndarray, groups: np.ndarray, states: Sequence[np.ndarray]
) -> RandomHeads:
    """`random_heads` against Spearman's ρ of each outcome (n, m) with another column (n,): the
    slope of standardised ranks on ranks. All fields are (m,)."""

    def standard(values: np.ndarray) -> np.ndarray:
        ranks = stats.rankdata(values, axis=0)
        return (ranks - ranks.mean(axis=0)) / ranks.std(axis=0)

    design = np.column_stack([np.ones(len(other)), standard(other)])
    found = random_heads(design, standard(outcomes), groups, states)
    return RandomHeads(*(one[1] for one in found))


def with_states(states: Sequence[np.ndarray]) -> np.ndarray:
    """(n,) the rows that have states in all of these arrays (n, spaces, directions)."""
    return np.all([np.isfinite(one[:, 0, 0]) for one in states], axis=0)


def heads_beyond(
    weights: np.ndarray,
    design: np.ndarray,
    outcomes: np.ndarray,
    groups: np.ndarray,
    states: Sequence[np.ndarray],
) -> RandomHeads:
    """The share of random heads on which weighted sums of rewards are as large as these.

    The sum is a'y. A random head on the states H gives y = X b + H w + e, with w and e independent
    normal; their variances are those that fit the outcome best (`taste`), so that a'y has the
    variance |a'H|² var(w) + |a|² var(e) about 0. Where rows of one group share what is left, the
    second term is the sum over groups of the squares of theirs, if that is larger. As var(w) is
    estimated, Student's t stands in place of the normal, with Satterthwaite's degrees of freedom.
    Of the spaces that are not ruled out (`RULED_OUT`) the one counts whose heads show as much most
    often.

    Args:
        weights: (n, q) of the rows; those without states weigh nothing.
        design, outcomes, groups, states: as in `random_heads`.

    Source: ours; for the mixed model Kang et al. 2008 (EMMA).
    """
    estimates = weights.T @ outcomes  # (q, m)
    found = np.empty((3, *estimates.shape))
    for vectors in {id(one): one for one in states}.values():
        same = [j for j, one in enumerate(states) if one is vectors]
        rows = with_states([vectors])
        a, groups_here = weights[rows], groups[rows]
        spaces, unlikely = [], []
        for space in np.moveaxis(vectors[rows], 1, 0):
            liking = taste(design[rows], outcomes[rows][:, same], space)
            left = liking.residuals[:, None] * a[:, :, None]  # (n, q, same)
            together = np.zeros((int(groups.max()) + 1, *left.shape[1:]))
            np.add.at(together, groups_here, left)
            clustered = np.square(together).sum(axis=0) * len(a) / (len(a) - design.shape[1])
            independent = np.square(a).sum(axis=0)[:, None] * liking.noise
            moved = np.square(a.T @ space).sum(axis=1)[:, None] * liking.variance
            rest = np.maximum(independent, clustered)
            informed = moved**2 / liking.freedom + rest**2 / (len(a) - design.shape[1])
            with np.errstate(invalid="ignore", divide="ignore"):
                freedom = np.nan_to_num((moved + rest) ** 2 / informed, nan=1.0)
            error = np.sqrt(moved + rest)
            share = share_beyond(estimates[:, same], error, freedom)
            spaces.append((share, error, stats.t.ppf(0.975, freedom) * error))
            unlikely.append(liking.unlikely)
        held = np.array(spaces)  # (spaces, 3, q, same)
        ruled_out = np.array(unlikely) - np.min(unlikely, axis=0) > RULED_OUT
        worst = np.where(ruled_out[:, None, None], -1, held[:, :1]).argmax(axis=0, keepdims=True)
        found[:, :, same] = np.take_along_axis(held, worst, axis=0)[0]
    return RandomHeads(*found)


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


def taste(design: np.ndarray, outcomes: np.ndarray, meanings: np.ndarray) -> Taste:
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
    scale = np.log(spread.mean()) if len(spread) else 0.0
    ratios, noise, unlikely = np.zeros((3, outcomes.shape[1]))
    for j, (squares, rest) in enumerate(zip(np.square(along).T, beyond, strict=True)):
        if squares.sum() + rest > 0:  # else the design explains all of it
            ratios[j], noise[j] = _likeliest(squares, rest, spread, scale, freedom)
            directions_used = np.log(ratios[j] * spread + 1).sum()
            unlikely[j] = freedom * np.log(max(noise[j], 1e-300)) + directions_used
    kept = ratios * spread[:, None] / (ratios * spread[:, None] + 1)  # (d, m)
    informed = np.maximum(np.square(kept).sum(axis=0), 1.0)
    left = residuals - less @ (turned @ (kept * along))
    return Taste(ratios * noise, noise, left, informed, unlikely)


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
