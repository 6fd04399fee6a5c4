"""Nulls that look like the data: heads that are drawn at random on a base's own states.

Knows rewards, states and designs. Knows nothing of words or models.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from pessimal.analyses.regression import DirectionEffect, share_beyond, taste

DRAWS = 1000
WITHIN = float(stats.norm.ppf(0.975))
"""Standard deviations about 0 within which 95 % of random heads lie."""
LEAST_ROWS = 10
"""Rows with states that each column of a design needs."""
RULED_OUT = 2 * np.log(100)
"""A space in which rewards are a hundred times less likely than in another is not where their head
is."""
Measure = Callable[[np.ndarray], np.ndarray]
"""Which rows of the design are measured (bool) → weights (q, rows) whose sums with rewards are the
effects."""


class RandomHeads(NamedTuple):
    """The effects of heads that nobody trained, on the same states: q effects of m outcomes."""

    share: np.ndarray
    """(q, m): share of random heads whose effect is as large, either way; by a normal tail through
    the 95 % of them that lie `within`, so that it goes on below one in `DRAWS`."""
    within: np.ndarray
    """(q, m): 95 % of them lie within ± this."""


def random_heads(
    measure: Measure,
    outcomes: np.ndarray,
    states: Sequence[np.ndarray],
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
            states, not a number, are left out, of the effects too.
        design: (n, k), what rewards follow besides.
        groups: (n,) rows of one group are not independent.
        rows: (n,) the rows that `measure` sees, where it looks at few.
    """
    present = have_states(states)
    seen = present if rows is None else present & rows
    weights = measure(seen)
    effects = weights @ outcomes[seen]  # (q, m)
    if present.sum() < LEAST_ROWS * design.shape[1]:
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
    """How much of each prompt's rewards some direction of its states explains: by prompt, then by
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

    A reward is y = X b + H w + e (`regression.taste`). A head is one normal direction of the states
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
    outcomes: np.ndarray, other: np.ndarray, groups: np.ndarray, states: Sequence[np.ndarray]
) -> RandomHeads:
    """`random_heads` against Spearman's ρ of each outcome (n, m) with another column (n,): the
    slope of standardised ranks on ranks. Both fields are (m,)."""
    design = np.column_stack([np.ones(len(other)), stats.zscore(stats.rankdata(other))])
    ranks = stats.zscore(stats.rankdata(outcomes, axis=0), axis=0)
    heads = random_heads(slopes(design), ranks, states, design, groups)
    return RandomHeads(heads.share[1], heads.within[1])


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
