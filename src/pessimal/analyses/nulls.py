"""The five nulls that every inference uses by name, and the errors beneath them.

1. **Another draw of items or words**: `intervals` and `p_values` of statistics with influence
   values, at the effective number of independent items (`Dependence`).
2. **Correction for many tests**: `tables.result.Effect` declares the family and corrects.
3. **A head that nobody trained**: `random_heads` on the states that rewards are read from.
4. **Relabelling**: `permutation_p` of statistics under permutations of models, within blocks.
5. **Signs and clusters**: `largest_by_sign_flips` of candidates in the same contexts
   (`statistics.sign_flip` of one mean), `robust` errors over clusters, with `interval`.

Knows rewards, states, designs and clusters. Knows nothing of words or models.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from scipy import optimize, stats

from pessimal.errors import TableError

LEAST, SMALL = 10, 100
"""Independent items. Below the first there is no interval. Below the second a statistic at its
bound has none, as a sample in which all pairs agree says nothing of its own error."""
DRAWS = 1000
WITHIN = float(stats.norm.ppf(0.975))
"""Standard deviations about 0 within which 95 % of random heads lie."""
LEAST_ROWS = 10
"""Rows with states that each column of a design needs."""
RULED_OUT = 2 * np.log(100)
"""A space in which rewards are a hundred times less likely than in another is not where their head
is."""
Measure = Callable[[np.ndarray], np.ndarray]
"""Rows of the design that are measured (bool) → weights (q, rows) whose sums with rewards are the
effects."""
LEAST_REMAINING = 1e-6
"""Share of the design's determinant that must remain without any one group; below, one group alone
decides a coefficient."""
LEAST_DIRECTION = 1e-9
"""A direction of the states in which the rows spread less than this, of the widest, is none."""
EXACT, FLIPS = 10, 1000
"""Contexts up to which every pattern of signs is tried, and how many are drawn of more."""
RATIOS = np.linspace(-14, 8, 23)
"""Logarithms of the ratio of taste to noise between which its likelihood is searched for its
maximum, one apart."""


# --- Another draw of items.


@dataclass(frozen=True)
class Dependence:
    """Clusters of n candidates, and how alike in meaning words of different clusters are."""

    clusters: np.ndarray
    """(n,) which cluster, from 0 in order of appearance. A word's spellings and the words of its
    stem are one; a piece, a byte or an unused id is one by itself."""
    words: np.ndarray
    """(n,) whether the candidate spells a word or a phrase."""
    pairs: tuple[np.ndarray, np.ndarray]
    """Every two of the sampled words that are not of one cluster."""
    strata: np.ndarray
    """Stratum of each pair by likeness in meaning; none where no meaning is known."""

    @classmethod
    def from_clusters(cls, clusters: np.ndarray, words: np.ndarray | None = None) -> "Dependence":
        """The dependence within clusters (n,) of any labels alone."""
        codes = np.unique(clusters, return_inverse=True)[1]
        nothing = np.zeros(0, dtype=np.int64)
        words = np.zeros(len(codes), bool) if words is None else words
        return cls(codes, words, (nothing, nothing), nothing)

    @cached_property
    def _sizes(self) -> np.ndarray:
        """(strata,) pairs of each stratum; counting millions takes as long as a correlation."""
        return np.bincount(self.strata)

    def alike(self, values: np.ndarray) -> np.ndarray:
        """Mean correlation of the values (n,) of two words in each stratum, (strata,)."""
        if not len(self.strata):
            return np.zeros(0)
        of_words = values[self.words]
        z = (values - of_words.mean()) / (of_words.std() or 1.0)
        first, second = self.pairs
        return np.bincount(self.strata, weights=z[first] * z[second]) / self._sizes

    def likeness(self, *correlations: np.ndarray) -> float:
        """Mean correlation of the influence values of two words of different clusters, at least 0.

        Where influence values are products of fields, they correlate as the product of the fields'
        correlations: of two columns that have nothing to do with one another for a correlation, of
        one column taken twice for a variance and three times for a skewness (the Hermite
        polynomials).

        Args:
            correlations: of `alike`, one for each factor.

        Source: Clifford, Richardson & Hémon 1989, for a correlation of two fields in the plane;
            there the strata are of distance.
        """
        if not len(self.strata):
            return 0.0
        shares = self._sizes / len(self.strata)
        return max(0.0, float(shares @ np.prod(correlations, axis=0)))

    def summed(self, influences: np.ndarray, likeness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Influence values of clusters, whose mean is the candidates', and by what likeness in
        meaning multiplies their variance; those of words are scaled by the root of it.

        Args:
            influences: (n, m).
            likeness: (m,) of `likeness`.

        Returns:
            (clusters, m) and (m,).
        """
        size = int(self.clusters.max(initial=-1)) + 1
        sums = np.stack(
            [np.bincount(self.clusters, weights=column, minlength=size) for column in influences.T],
            axis=1,
        )
        of_words = np.zeros(size, dtype=bool)
        of_words[self.clusters[self.words]] = True
        inflations = np.ones(influences.shape[1])
        if of_words.any():
            # Around the words' own mean, so that all clusters together keep the mean 0.
            centre = sums[of_words].mean(axis=0)
            between = np.square(sums[of_words] - centre).sum(axis=0)
            about = influences[self.words] - influences[self.words].mean(axis=0)
            shared = (int(self.words.sum()) - 1) * np.square(about).sum(axis=0)
            inflations += np.divide(
                likeness * shared, between, out=np.zeros_like(between), where=between > 0
            )
            sums[of_words] = centre + (sums[of_words] - centre) * np.sqrt(inflations)
        return sums * (size / len(influences)), inflations


class Statistic(NamedTuple):
    """An estimate, and what each item contributes to its error."""

    estimate: float
    influence: np.ndarray
    """(n,) float64, mean 0; the estimate's standard error is about `influence.std() / sqrt(n)`,
    were items independent."""
    share: bool = False
    """Lies in [0, 1]; else, as a correlation, in [−1, 1]."""
    likeness: float = 0.0
    """Likeness in it of two words, on average (`Dependence.likeness`)."""


def intervals(
    statistics: Sequence[Statistic],
    dependence: Dependence | None = None,
    /,
    *,
    confidence: float | np.ndarray = 0.95,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimates, lower and upper bounds of statistics of the same n items, (m,) each.

    Bounds are Student's on Fisher's scale, on which the error hardly depends on the size of a
    statistic; `confidence` may be of each its own, (m,). At a bound (r = ±1) the interval is the
    bound itself from `SMALL` independent items on, and NaN below.

    Source: Fisher 1921 for the scale.
    """
    place, error, freedom = _places(statistics, dependence)
    half = _halves(statistics)
    reach = stats.t.ppf((1 + np.asarray(confidence)) / 2, np.maximum(freedom, 1)) * error
    estimates = np.array([statistic.estimate for statistic in statistics])
    at_bound = np.isnan(place) & (freedom + 1 >= SMALL)
    low, high = (half + (1 - half) * np.tanh(place + sign * reach) for sign in (-1, 1))
    return estimates, np.where(at_bound, estimates, low), np.where(at_bound, estimates, high)


def p_values(statistics: Sequence[Statistic], dependence: Dependence | None = None) -> np.ndarray:
    """(m,) two-sided p of no association (a correlation of 0, a share of ½), of the same error as
    `intervals`. 0 at a bound, NaN below `LEAST` independent items."""
    place, error, freedom = _places(statistics, dependence)
    p = 2 * stats.t.sf(np.abs(place) / error, np.maximum(freedom, 1))
    return np.where(np.isnan(place) & (freedom + 1 >= LEAST), 0.0, p)


def _places(
    statistics: Sequence[Statistic], dependence: Dependence | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places on Fisher's scale (atanh of r, where a share s is r = 2s − 1; NaN where the estimate
    is at its bound, or of fewer than `LEAST` units: a sample in which all pairs agree says nothing
    of its own error), their standard errors, and how many independent items there would be as sure,
    less one; (m,) each."""
    influences = np.stack([statistic.influence for statistic in statistics], axis=1)  # (n, m)
    inflations = np.ones(len(statistics))
    if dependence is not None:
        likeness = np.array([statistic.likeness for statistic in statistics])
        influences, inflations = dependence.summed(influences, likeness)
    n, half = len(influences), _halves(statistics)
    units = n / inflations
    r = (np.array([statistic.estimate for statistic in statistics]) - half) / (1 - half)
    error = np.sqrt(np.sum(influences**2, axis=0) / (n * max(n - 1, 1))) / (1 - half)
    r = np.where((np.abs(r) < 1 - 1e-12) & (units >= LEAST), r, np.nan)
    return np.arctanh(r), error / (1 - r**2), units - 1


def _halves(statistics: Sequence[Statistic]) -> np.ndarray:
    """(m,) the middle of each statistic's range: ½ of a share, 0 of a correlation."""
    return np.where([statistic.share for statistic in statistics], 0.5, 0.0)


# --- A head that nobody trained.


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


class RandomHeads(NamedTuple):
    """The effects of heads that nobody trained, on the same states: q effects of m outcomes."""

    share: np.ndarray
    """(q, m): share of random heads whose effect is as large, either way; by a normal tail through
    the `band`, so that it goes on below one in `DRAWS`."""
    band: np.ndarray
    """(q, m): 95 % of them lie within ± this."""


def random_heads(
    measure: Measure,
    outcomes: np.ndarray,
    states: Sequence[np.ndarray] | None,
    design: np.ndarray,
    groups: np.ndarray,
    *,
    rows: np.ndarray | None = None,
) -> RandomHeads:
    """The share of random heads that show effects as large as these rewards do.

    Of the spaces that are not ruled out the one counts whose heads show as much most often.

    Args:
        measure: of linear effects, which are 0 where nothing is.
        outcomes: (n, m).
        states: m arrays (n, spaces, directions); a head is in one of the spaces. Rows without
            states, not a number, are left out, of the effects too. Without any, shares are missing.
        design: (n, k), what rewards follow besides.
        groups: (n,) rows of one group are not independent.
        rows: (n,) the rows that `measure` sees, where it looks at few.
    """
    present = np.zeros(len(outcomes), bool) if states is None else have_states(states)
    seen = present if rows is None else present & rows
    weights = measure(seen)
    effects = weights @ outcomes[seen]  # (q, m)
    if states is None or present.sum() < LEAST_ROWS * design.shape[1]:
        return RandomHeads(*np.full((2, *effects.shape), np.nan))
    table = np.empty((2, *effects.shape))
    vectors = {id(array): array[present] for array in states}
    arrays = [vectors[id(array)] for array in states]
    fits = fit_directions(outcomes[present], arrays, design[present])
    for j in range(len(states)):
        spaces = draw_heads(fits[j : j + 1], arrays[j : j + 1], groups[present], rows=seen[present])
        shares = []
        for (heads,) in spaces:
            reach = np.quantile(np.abs(heads.effects(weights)), 0.95, axis=1)
            shares.append((share_beyond(effects[:, j], reach / WITHIN), reach))
        cautious = np.argmax([share for share, _ in shares], axis=0)
        table[:, :, j] = np.take_along_axis(np.array(shares), cautious[None, None], axis=0)[0]
    return RandomHeads(*table)


def fit_directions(
    rewards: np.ndarray, states: Sequence[np.ndarray], design: np.ndarray
) -> list[list[DirectionEffect]]:
    """Share of each prompt's rewards that some direction of its states explains: by prompt, then by
    space. Prompts whose states are one array are solved together.

    Args:
        rewards: (n, p).
        states: p arrays (n, spaces, directions).
        design: (n, k), what rewards follow besides.
    """
    fits: list[list[DirectionEffect]] = [[] for _ in states]
    for array in {id(array): array for array in states}.values():
        columns = [j for j, other in enumerate(states) if other is array]
        for space in range(array.shape[1]):
            fit = taste(design, rewards[:, columns], array[:, space])
            for place, column in enumerate(columns):
                fits[column].append(DirectionEffect(*(part[..., [place]] for part in fit)))
    return fits


class HeadDraws(NamedTuple):
    """Rewards of random heads under one prompt, in parts: states @ heads + residuals with signs."""

    states: np.ndarray
    """(rows, directions), about their mean."""
    heads: np.ndarray
    """(directions, draws)."""
    residuals: np.ndarray
    """(rows,)."""
    groups: np.ndarray
    """(rows,) which signs a row has."""
    signs: np.ndarray
    """(groups, draws) of -1 and 1."""

    def rewards(self) -> np.ndarray:
        """Rewards of every head, (rows, draws) float32, which do for their order."""
        states, heads, residuals = (
            part.astype(np.float32) for part in (self.states, self.heads, self.residuals)
        )
        return states @ heads + residuals[:, None] * self.signs[self.groups]

    def effects(self, weights: np.ndarray) -> np.ndarray:
        """`weights` (q, rows) times the rewards, (q, draws); the rewards are not written out, which
        would take as long as all the rest."""
        sums = [np.bincount(self.groups, row, len(self.signs)) for row in weights * self.residuals]
        return (weights @ self.states) @ self.heads + np.array(sums) @ self.signs


def draw_heads(
    fits: Sequence[Sequence[DirectionEffect]],
    states: Sequence[np.ndarray],
    groups: np.ndarray,
    *,
    rows: np.ndarray | slice = slice(None),
    draws: int = DRAWS,
) -> list[list[HeadDraws]]:
    """Random heads under p prompts, for each space that is not ruled out: p draws of heads.

    A reward is y = X b + H w + e (`nulls.taste`). A head is one normal direction of the states
    for all prompts, as strong as fits each; as that is estimated, its variance is drawn too. The
    rest are the residuals at the size that fits, with signs drawn by group.

    Args:
        fits: of `fit_directions`, by prompt.
        states: p arrays (n, spaces, directions).
        groups: as in `random_heads`.
        rows: (n,) the rows for which rewards are drawn.

    Source: ours; for the mixed model Kang et al. 2008 (EMMA), for the signs Cameron, Gelbach &
        Miller 2008 (wild cluster bootstrap).
    """
    unlikely = np.sum([[fit.unlikely[0] for fit in spaces] for spaces in fits], axis=0)
    random = np.random.default_rng(0)
    pieces: list[list[HeadDraws]] = []
    for s in np.flatnonzero(unlikely <= unlikely.min() + RULED_OUT).tolist():
        heads = random.standard_normal((states[0].shape[2], draws))
        pieces.append([])
        for spaces, vectors in zip(fits, states, strict=True):
            fit = spaces[s]
            strength = fit.variance * random.lognormal(0, np.sqrt(2 / fit.freedom), draws)
            centred = vectors[:, s] - vectors[:, s].mean(axis=0)
            left = fit.residuals[:, 0]
            left = left * np.sqrt(fit.noise[0] / max(np.square(left).mean(), 1e-300))
            signs = random.integers(0, 2, (int(groups.max()) + 1, draws), dtype=np.int8) * 2 - 1
            scaled = heads * np.sqrt(strength)
            pieces[-1].append(HeadDraws(centred[rows], scaled, left[rows], groups[rows], signs))
    return pieces


def slopes(design: np.ndarray, combinations: np.ndarray | None = None) -> Measure:
    """The measure of least-squares coefficients, or of (k, q) combinations of them."""

    def measure(rows: np.ndarray) -> np.ndarray:
        weights = np.linalg.pinv(design[rows])
        return weights if combinations is None else combinations.T @ weights

    return measure


def heads_on_ranks(
    outcomes: np.ndarray, other: np.ndarray, groups: np.ndarray, states: Sequence[np.ndarray] | None
) -> RandomHeads:
    """`random_heads` against Spearman's ρ of each outcome (n, m) with another column (n,): the
    slope of standardised ranks on ranks. Both fields are (m,)."""
    design = np.column_stack([np.ones(len(other)), stats.zscore(stats.rankdata(other))])
    ranks = stats.zscore(stats.rankdata(outcomes, axis=0), axis=0)
    heads = random_heads(slopes(design), ranks, states, design, groups)
    return RandomHeads(heads.share[1], heads.band[1])


def have_states(states: Sequence[np.ndarray]) -> np.ndarray:
    """(n,) the rows that have states in all of these arrays (n, spaces, directions)."""
    return np.all([np.isfinite(vectors[:, 0, 0]) for vectors in states], axis=0)


def random_head_share(
    changes: np.ndarray, untouched: np.ndarray, effect: float, *, draws: int = DRAWS, seed: int = 0
) -> float:
    """Share of random heads that move answers at least as far as a reward does.

    A head is a normal direction on the states; its effect is the mean change of its rewards over
    their standard deviation on the untouched answers.

    Args:
        changes: (n, d) changes of the last hidden states of n answers.
        untouched: (n, d) states of the answers as they are.
        effect: mean change of the reward, in standard deviations of the untouched answers' rewards.
    """
    heads = np.random.default_rng(seed).standard_normal((changes.shape[1], draws))
    spread = (untouched @ heads).std(axis=0, ddof=1)
    return float((np.abs(changes.mean(axis=0) @ heads) >= abs(effect) * spread).mean())


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


# --- Clusters, signs and relabelling.


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


def share_interval(
    wins: np.ndarray, clusters: np.ndarray, confidence: float = 0.95
) -> tuple[float, float, float]:
    """A share with its exact interval, where answers of one cluster depend on one another.

    Args:
        wins: (n,) 1, 0, or one half for a tie.
        clusters: (n,) labels.

    Returns:
        share, low, high: the interval of Clopper and Pearson at the effective number of pairs,
        which is n where every cluster has one.

    Source: Korn & Graubard 1998 (exact intervals of proportions from surveys).
    """
    n, share = len(wins), float(np.mean(wins))
    sums = _cluster_sums(wins - share, clusters)
    clusters_n, variance = len(sums), float((sums**2).sum()) / n**2
    effective = float(clusters_n)
    if variance > 0:
        effective = min(n, share * (1 - share) / variance)
    elif 0 < share < 1:  # ties alone
        effective = float(n)
    tail = (1 - confidence) / 2
    if 1 < clusters_n < n:
        effective *= (stats.t.ppf(tail, n - 1) / stats.t.ppf(tail, clusters_n - 1)) ** 2
    x = share * effective
    low = stats.beta.ppf(tail, x, effective - x + 1) if share > 0 else 0.0
    high = stats.beta.ppf(1 - tail, x + 1, effective - x) if share < 1 else 1.0
    return share, float(low), float(high)


def cluster_mean(values: np.ndarray, clusters: np.ndarray) -> tuple[float, float, int]:
    """A mean, its standard error over clusters, and the degrees of freedom.

    Source: Liang & Zeger 1986 (the sandwich with one score per cluster).
    """
    mean = float(values.mean())
    sums = _cluster_sums(values - mean, clusters)
    groups = len(sums)
    if groups < 2:
        return mean, np.nan, 0
    return mean, float(np.sqrt(groups / (groups - 1) * (sums**2).sum())) / len(values), groups - 1


def _cluster_sums(values: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """(clusters,) the sum of the values (n,) of each cluster, by label."""
    return np.bincount(np.unique(clusters, return_inverse=True)[1], weights=values)


def largest_by_sign_flips(scaled: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """The largest absolute mean of any candidate (patterns,), falling, were each context as likely
    to have had its differences (n, t) with the other sign; all candidates change together, so that
    their dependence stays. The observed pattern is among them.

    Source: Westfall & Young 1993 (the maximum of all statistics), with exact flips of signs.
    """
    n = len(scaled)
    if n <= EXACT:
        signs = np.array([(1, *rest) for rest in itertools.product((1, -1), repeat=n - 1)])
    else:
        signs = np.random.default_rng(seed).choice((1, -1), size=(FLIPS, n))
        signs[0] = 1
    return np.sort([np.abs(pattern @ scaled).max() / n for pattern in signs])[::-1]


def permutation_p(statistic: float, permuted: np.ndarray) -> float:
    """Two-sided p of a statistic among those of permuted data (permutations,); the observed
    arrangement is one of those counted, so that p is never 0.

    Source: Phipson & Smyth 2010.
    """
    # Rounding must not untie equal arrangements.
    as_extreme = np.sum(np.abs(permuted) >= abs(statistic) - 1e-12)
    return float((as_extreme + 1) / (len(permuted) + 1))


def interval(
    estimate: np.ndarray,
    error: np.ndarray,
    freedom: np.ndarray | float,
    *,
    confidence: np.ndarray | float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower and upper bound by Student's t, and the two-sided p value against zero.

    An error of zero gives p = 0, or p = 1 where the estimate is zero as well.

    Raises:
        TableError: a confidence outside (0, 1).
    """
    if not np.all((np.asarray(confidence) > 0) & (np.asarray(confidence) < 1)):
        raise TableError(f"confidence={confidence} is not between 0 and 1; use confidence=0.95.")
    estimate, error = np.asarray(estimate, dtype=float), np.asarray(error, dtype=float)
    reach = stats.t.ppf((1 + confidence) / 2, freedom) * error
    return estimate - reach, estimate + reach, share_beyond(estimate, error, freedom)


def interval_columns(
    name: str,
    estimate: np.ndarray,
    error: np.ndarray,
    freedom: np.ndarray | float,
    *,
    scales: np.ndarray,
    confidence: float,
) -> dict[str, np.ndarray]:
    """The columns `name`, low, high and p of `interval`, and the first three over `scales`, with
    the suffix _sd."""
    low, high, p = interval(estimate, error, freedom, confidence=confidence)
    numbers = {name: estimate, "low": low, "high": high}
    return numbers | {"p": p} | {f"{column}_sd": x / scales for column, x in numbers.items()}


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
