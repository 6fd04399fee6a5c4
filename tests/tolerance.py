"""When two float32 rewards are the same: one tolerance for every test that computes a reward on two
paths."""

from dataclasses import dataclass

import numpy as np
import torch

ROUNDINGS = 256
"""Float32 roundings (2**-24 of a number's size) that two right paths may lie apart; together 1.5e-5
of the size.

Right paths of the tests' tiny networks were up to 50 apart, by three instruction sets and with one
and two threads. A fault is far beyond: the next coarser arithmetic, TF32 or float16, rounds by
8192, bfloat16 by 65536, and an omitted token or a wrong mask moves a reward by a hundredth of its
size or more."""
OF_GRADIENTS = 2048
"""The same for gradients, in which the rounding of states counts by the second derivative: in an
ill-conditioned network the network's own float32 gradient was 72 roundings from its float64 one,
ours 143, and both up to 233 apart."""


@dataclass(frozen=True)
class Closeness:
    """By how much some numbers differ, and by how much they may; true where they are close."""

    largest: float
    """Largest |found − expected|; not a number where one of the two is none."""
    allowed: float
    found: float
    """With `expected`: the pair that differs most."""
    expected: float

    def __bool__(self) -> bool:
        return self.largest <= self.allowed


def close(found, expected, *, size: float = 1.0, roundings: int = ROUNDINGS) -> Closeness:
    """Whether float32 rewards `found` are those `expected`, up to rounding: arrays, tensors, series
    or numbers of one shape.

    A rounding is relative to what is rounded, and that is what a reward is summed from, not the
    reward: a head adds up products of states of size 1, so a reward near zero errs as much as one
    of size 1; a log-probability is a difference of logits; a margin, or an implicit reward, is one
    of two rewards. So the tolerance is absolute for all numbers of a table, and relative to the
    largest of them or to `size`, whichever is larger: max(size, |expected|) · roundings · 2**-24.

    Args:
        size: magnitude of what the numbers are summed from, where that is larger than 1 and than
            the numbers themselves: the larger log-probability, where these are differences.
        roundings: OF_GRADIENTS, where the numbers are a gradient.

    Raises:
        ValueError: the shapes differ, or there is nothing to compare.
    """
    found, expected = _array(found), _array(expected)
    if found.shape != expected.shape:
        raise ValueError(f"{found.shape} numbers cannot be compared with {expected.shape}")
    allowed = slack(expected, size=size) * roundings / ROUNDINGS
    apart = np.abs(found - expected)
    worst = np.argmax(apart)  # the first that is not a number, where there is one
    largest, one, other = (float(values.flat[worst]) for values in (apart, found, expected))
    return Closeness(largest, allowed, one, other)


def varied(rewards, *, sd: float = 0.05):
    """The rewards again, whose standard deviation is more than `sd`: with rewards that do not vary
    a comparison would be empty."""
    assert _array(rewards).std() > sd, "rewards that do not vary would make this test empty"
    return rewards


def slack(expected, *, size: float = 1.0) -> float:
    """By how much rewards that are to be `expected` may differ from these; see `close`."""
    expected = _array(expected)
    largest = np.abs(expected).max(initial=0.0, where=np.isfinite(expected))
    return float(ROUNDINGS * 2.0**-24 * max(size, largest))


def _array(values) -> np.ndarray:
    """As float64."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().double().numpy()
    elif isinstance(values, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in values):
        values = [float(v) for v in values]
    return np.asarray(values, dtype=np.float64)
