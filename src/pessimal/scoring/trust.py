"""The trust check: is the engine's reward the model's own? A small version of `pessimal check`,
before every scan; and ranks one can trust: which are certain, and the certain top and bottom k of a
low-precision scan.

Pure arithmetic over rewards that others computed. Decides; the caller warns and falls back.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import numpy as np
from scipy.stats import kendalltau

from pessimal.rewards.spec import Dtype

# Largest difference allowed, in standard deviations of the sample's rewards. float32: thirty times
# what was measured on a random 25M-parameter Llama (3e-5), whose rewards hardly vary.
TOLERANCE = {Dtype.float32: 1e-3, Dtype.float16: 5e-2, Dtype.bfloat16: 3e-1}
# Rounding follows the size of rewards, not their spread: however little these vary, 256 float32
# roundings (2**-24 each) of the largest are allowed. Right paths of tiny random networks differ by
# up to 50; TF32, the next coarser arithmetic, rounds by 8192.
ROUNDED = 2.0**-16
# In low precision any two ways of batching one forward differ by the model's own rounding; where
# rewards hardly vary that is more than the above. So this many times what full forwards differ by
# is allowed, but never a whole standard deviation: a wrong engine differs by several.
NOISES, CEILING = 3.0, 1.0
# An engine adds and multiplies in another order than full forwards do, which differ from the own
# one by the head alone: ten times their difference (five were measured on a tiny random Llama), and
# at least this many standard deviations.
ENGINE_NOISES, FLOOR = 10.0, {Dtype.float16: 2e-2, Dtype.bfloat16: 1e-1}
SAMPLE = 16
NOISE_SAMPLE = 64
MOST_KINDS = 16
# A row's error is only known for the sample, and batching moves others more: twice the largest
# seen, and never less than eight float32 roundings of the largest reward. Against float64, errors
# of 1.1e-6 to 1.45e-6 were measured on demo models with rewards of size 4, where the sample showed
# as little as 6e-8.
NOISE_FACTOR, ROUNDINGS = 2.0, 8


@dataclass(frozen=True)
class Trust:
    """Result of the check on `n` random candidates."""

    n: int
    """Candidates compared."""
    largest_difference: float
    """Largest |engine − own forward at batch 1|, the engine in a batch and at batch 1, in units of
    reward."""
    batch_difference: float
    """Largest |engine in a batch − engine at batch 1|, in units of reward."""
    repeat_difference: float
    """Largest difference between two runs of the same batch (of a language model: of the same
    input), in units of reward."""
    spread: float
    """Standard deviation of the own forward's rewards over the sample, in units of reward."""
    kendall: float
    """Kendall's tau-b between the two orders of the sample; 1 = undisturbed."""
    tolerance: float
    """Largest difference allowed, in units of reward."""

    @property
    def holds(self) -> bool:
        return self.largest_difference <= self.tolerance


def nearest(checks: Iterable[Trust | None]) -> Trust | None:
    """The check of a sum's parts that is nearest to what is allowed; None where there is none."""
    checked = [trust for trust in checks if trust is not None]
    return max(checked, key=lambda trust: trust.largest_difference / trust.tolerance, default=None)


def judge(
    expected: np.ndarray,
    single: np.ndarray,
    batched: np.ndarray,
    repeated: np.ndarray,
    *,
    rounding: float,
    dtype: Dtype,
) -> Trust:
    """Compare an engine's rewards with the model's own, all (n,): `expected` by its own forward at
    batch 1, the engine's at batch 1 (`single`) and twice in batches (`batched`, `repeated`).
    `rounding` is by how much full forwards differ from `expected`, the noise that low precision
    brings along. Of several outputs (n, outputs), the one that is nearest to what is allowed."""
    if expected.ndim == 2:
        ways = zip(expected.T, single.T, batched.T, repeated.T, strict=True)
        checks = [judge(*way, rounding=rounding, dtype=dtype) for way in ways]
        return cast(Trust, nearest(checks))
    difference = max(largest_difference(single, expected), largest_difference(batched, expected))
    return Trust(
        n=len(expected),
        largest_difference=difference,
        batch_difference=largest_difference(single, batched),
        repeat_difference=largest_difference(batched, repeated),
        spread=float(expected.std()),
        kendall=rank_agreement(batched, expected),
        tolerance=_engine_tolerance(expected, rounding=rounding, dtype=dtype),
    )


def rank_agreement(a: np.ndarray, b: np.ndarray) -> float:
    """Kendall's tau-b of two sets of rewards (n,); 1 where one has no order."""
    tau = kendalltau(a, b).statistic if len(a) > 1 else 1.0
    return float(tau) if np.isfinite(tau) else 1.0


def _engine_tolerance(expected: np.ndarray, *, rounding: float, dtype: Dtype) -> float:
    """Largest difference allowed to an engine: in low precision the noise of full forwards is the
    measure, since a bound that allows for the noisiest of models would let a wrong engine of an
    exact one pass."""
    if dtype is Dtype.float32:
        return allowed(expected, rounding=rounding, dtype=dtype)
    scale = _scale(expected)
    return min(max(FLOOR[dtype] * scale, ENGINE_NOISES * rounding), CEILING * scale)


def allowed(expected: np.ndarray, *, dtype: Dtype, rounding: float = 0.0) -> float:
    """Largest difference from the rewards `expected` (n,) that is no fault, in units of reward.
    `rounding` is by how much full forwards differ from `expected`, where that is known."""
    scale = _scale(expected)
    if dtype is Dtype.float32:
        return max(TOLERANCE[dtype] * scale, ROUNDED * float(np.abs(expected).max()))
    return min(max(TOLERANCE[dtype] * scale, NOISES * rounding), CEILING * scale)


def _scale(expected: np.ndarray) -> float:
    # A sample of equal rewards has no spread; the size of its rewards then sets the scale.
    return max(float(expected.std()), 1e-3 * float(np.abs(expected).max()), 1e-6)


def sample_rows(kinds: np.ndarray, *, n: int, seed: int) -> np.ndarray:
    """Rows (m,), at random but always the same: `n` of all, and one of every kind of input that is
    not among them.

    `kinds` int (rows, 2) are what decides on an input's way through an engine: how much of the
    prefix it shares, and its own length. Rare kinds, such as the longest, are those that a random
    sample misses; of many, 16 are taken from end to end.
    """
    rows = np.random.default_rng(seed).permutation(len(kinds))[:n]
    distinct, first = np.unique(kinds, axis=0, return_index=True)
    seen = {tuple(kind) for kind in kinds[rows]}
    missed = [row for kind, row in zip(distinct, first, strict=True) if tuple(kind) not in seen]
    ends = np.unique(
        np.linspace(0, len(missed) - 1, min(len(missed), MOST_KINDS)).round().astype(int)
    )
    return np.concatenate([rows, np.array(missed, dtype=int)[ends]]) if missed else rows


def numerical_noise(rewards: np.ndarray, expected: np.ndarray) -> float:
    """Bound on the numerical error of float32 `rewards` (n,) as a scan's own batches gave them, in
    units of reward.

    Compares them with the model's `expected` (n,) forward at batch 1 (see NOISE_FACTOR for what is
    added, since a sample cannot show the largest error).
    """
    rounding = float(np.finfo(np.float32).eps) * float(np.abs(expected).max())
    return max(NOISE_FACTOR * largest_difference(rewards, expected), ROUNDINGS * rounding)


def noise_sample(rows: int) -> int:
    """Rows that the model's own forward scores to measure the numerical error of a scan of so many
    `rows`: 64 of a vocabulary, where few are scanned the 16 of the trust check alone."""
    return min(max(rows // 128, SAMPLE), NOISE_SAMPLE)


def largest_difference(a: np.ndarray, b: np.ndarray) -> float:
    """Largest |a − b| of two sets of rewards (n,); not a number where one of them is none."""
    return float(np.abs(np.asarray(a, dtype=np.float64) - b).max())


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
    """Certain ranks of a float32 scan, given its numerical `noise` (same units as the rewards)."""
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
