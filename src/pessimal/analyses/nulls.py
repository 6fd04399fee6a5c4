"""Nulls that look like the data: so far heads that are drawn at random on a base's own states."""

import numpy as np


def random_head_share(
    changes: np.ndarray, untouched: np.ndarray, effect: float, *, draws: int = 1000, seed: int = 0
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
