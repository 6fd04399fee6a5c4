"""Nulls that look like the data: heads that are drawn at random on a base's own states.

Knows rewards, states and designs. Knows nothing of words or models.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from pessimal.analyses.regression import share_beyond, taste

DRAWS = 1000
WITHIN = float(stats.norm.ppf(0.975))
"""Standard deviations about 0 within which 95 % of random heads lie."""
LEAST_ROWS = 10
"""Rows with states that each column of a design needs."""
RULED_OUT = 2 * np.log(100)
"""A space in which rewards are a hundred times less likely than in another is not where their head
is."""
Measure = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Rewards (n, draws) and which rows of the design they are (bool) → their effects (q, draws)."""


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
        measure: of a linear effect, which is 0 where nothing is.
        outcomes: (n, m).
        states: m arrays (n, spaces, directions); a head is in one of the spaces. Rows without
            states, not a number, are left out, of the effects too.
        design: (n, k), what rewards follow besides.
        groups: (n,) rows of one group are not independent.
        rows: (n,) the rows that `measure` sees, where it looks at few.
    """
    present = have_states(states)
    seen = present if rows is None else present & rows
    effects = measure(outcomes[seen], seen)  # (q, m)
    if present.sum() < LEAST_ROWS * design.shape[1]:
        return RandomHeads(*np.full((2, *effects.shape), np.nan))
    table = np.empty((2, *effects.shape))
    for j, vectors in enumerate(states):
        columns = outcomes[present, j : j + 1], [vectors[present]]
        shares = []
        spaces = draw_rewards(*columns, design[present], groups[present], rows=seen[present])
        for (rewards,) in spaces:
            reach = np.quantile(np.abs(measure(rewards, seen)), 0.95, axis=1)
            shares.append((share_beyond(effects[:, j], reach / WITHIN), reach))
        cautious = np.argmax([share for share, _ in shares], axis=0)
        table[:, :, j] = np.take_along_axis(np.array(shares), cautious[None, None], axis=0)[0]
    return RandomHeads(*table)


def draw_rewards(
    rewards: np.ndarray,
    states: Sequence[np.ndarray],
    design: np.ndarray,
    groups: np.ndarray,
    *,
    rows: np.ndarray | slice = slice(None),
    draws: int = DRAWS,
) -> list[list[np.ndarray]]:
    """Rewards of random heads under p prompts, for each space that is not ruled out: p × (rows,
    draws).

    A reward is y = X b + H w + e (`regression.taste`). A head is one normal direction of the states
    for all prompts, as strong as fits each; as that is estimated, its variance is drawn too. The
    rest are the residuals at the size that fits, with signs drawn by group.

    Args:
        rewards: (n, p).
        states: p arrays (n, spaces, directions).
        design, groups: as in `random_heads`.
        rows: (n,) the rows for which rewards are drawn; all of them give the strengths.

    Source: ours; for the mixed model Kang et al. 2008 (EMMA), for the signs Cameron, Gelbach &
        Miller 2008 (wild cluster bootstrap).
    """
    spaces = range(states[0].shape[1])
    fits = [
        [taste(design, y[:, None], x[:, s]) for y, x in zip(rewards.T, states, strict=True)]
        for s in spaces
    ]
    unlikely = np.array([sum(float(fit.unlikely[0]) for fit in prompts) for prompts in fits])
    random = np.random.default_rng(0)
    pieces: list[list[np.ndarray]] = []
    for s in spaces:
        if unlikely[s] > unlikely.min() + RULED_OUT:
            continue
        heads = random.standard_normal((states[0].shape[2], draws))
        pieces.append([])
        for fit, vectors in zip(fits[s], states, strict=True):
            strength = fit.variance * random.lognormal(0, np.sqrt(2 / fit.freedom), draws)
            centred = vectors[:, s] - vectors[:, s].mean(axis=0)
            left = fit.residuals[:, 0]
            left = left * np.sqrt(fit.noise[0] / max(np.square(left).mean(), 1e-300))
            signs = random.integers(0, 2, (int(groups.max()) + 1, draws), dtype=np.int8) * 2 - 1
            noise = left[rows, None] * signs[groups[rows]]
            pieces[-1].append(centred[rows] @ (heads * np.sqrt(strength)) + noise)
    return pieces


def slopes(design: np.ndarray, combinations: np.ndarray | None = None) -> Measure:
    """The measure of least-squares coefficients, or of (k, q) combinations of them."""

    def measure(rewards: np.ndarray, rows: np.ndarray) -> np.ndarray:
        coefficients = np.linalg.pinv(design[rows]) @ rewards
        return coefficients if combinations is None else combinations.T @ coefficients

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
