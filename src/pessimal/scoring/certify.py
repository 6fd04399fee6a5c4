"""Ranks one can trust: certain top and bottom k after a low-precision scan, and which ranks are
certain at all.

Pure arithmetic over rewards; `rescore` is whatever gives a float32 reward.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

# Rows re-scored before the first margin is set: both tails alone would say little about the error
# elsewhere.
PROBES = 256


@dataclass(frozen=True)
class Certified:
    """Rewards with the tails in float32, and what is certain about them."""

    rewards: np.ndarray
    """float64 (n,): re-scored where `exact`, else the first pass's."""
    exact: np.ndarray
    """bool (n,): scored in float32."""
    certified: np.ndarray
    """bool (n,): exact, and no other candidate can stand within twice the numerical error: its rank
    is certain."""
    largest_error: float | None
    """Largest |first pass − float32| among the re-scored; 0 for a scan that was float32 throughout,
    None where nothing was re-scored."""


def certify(rewards: np.ndarray, *, noise: float) -> Certified:
    """Which ranks of a float32 scan are certain, given its numerical `noise` (same units as the
    rewards)."""
    exact = np.ones(len(rewards), dtype=bool)
    rewards = np.asarray(rewards, dtype=np.float64)
    return Certified(
        rewards, exact, _certain(rewards, exact, noise=noise, error=0.0), largest_error=0.0
    )


def uncertified(rewards: np.ndarray) -> Certified:
    """A low-precision scan as it is: no rank is certain, and its error is not known."""
    nothing = np.zeros(len(rewards), dtype=bool)
    return Certified(np.asarray(rewards, dtype=np.float64), nothing, nothing, largest_error=None)


def certify_tails(
    rewards: np.ndarray, rescore: Callable[[np.ndarray], np.ndarray], *, k: int, noise: float
) -> Certified:
    """Re-score in float32 until the top k and the bottom k of a low-precision scan are certain.

    A random sample is re-scored first. Then, with e the largest error seen so far, every row whose
    low-precision reward lies within 2e of the k-th is re-scored; e may grow by that, so the step
    repeats until nothing is left to re-score. The premise, stated in the docs: no unseen row errs
    by more than the largest error seen.
    """
    first = np.asarray(rewards, dtype=np.float64)
    n = len(first)
    k = min(k, n)
    current, exact = first.copy(), np.zeros(n, dtype=bool)
    wanted = np.random.default_rng(0).permutation(n)[: min(PROBES, n)]
    error = 0.0
    ascending = np.sort(first)
    while len(wanted):
        wanted = np.sort(wanted)
        current[wanted] = rescore(wanted)
        exact[wanted] = True
        error = float(np.abs(current[exact] - first[exact]).max())
        reach = (first >= ascending[n - k] - 2 * error) | (first <= ascending[k - 1] + 2 * error)
        wanted = np.flatnonzero(reach & ~exact)
    return Certified(
        current, exact, _certain(current, exact, noise=noise, error=error), largest_error=error
    )


def _certain(rewards: np.ndarray, exact: np.ndarray, *, noise: float, error: float) -> np.ndarray:
    """bool (n,): exact, neighbours among the exact further than 2·noise, and out of reach of all
    that is not exact."""
    certain = np.zeros(len(rewards), dtype=bool)
    rows = np.flatnonzero(exact)
    order = rows[np.argsort(rewards[rows], kind="stable")]
    gaps = np.diff(rewards[order])
    below = np.concatenate([[np.inf], gaps])
    above = np.concatenate([gaps, [np.inf]])
    certain[order] = np.minimum(below, above) > 2 * noise
    rest = rewards[~exact]
    if len(rest):
        reach = error + noise
        certain &= (rewards > rest.max() + reach) | (rewards < rest.min() - reach)
    return certain
