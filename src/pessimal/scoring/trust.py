"""The trust check: is the engine's reward the model's own?

Knows engines and the model's own forward. Decides; the caller warns and falls back.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import kendalltau
from torch import Tensor

from pessimal.models.spec import Dtype
from pessimal.scoring.engine import own_forward

# Largest difference allowed, in standard deviations of the sample's rewards. float32: thirty times what was measured on
# a random 25M-parameter Llama (3e-5), whose rewards hardly vary.
TOLERANCE = {Dtype.float32: 1e-3, Dtype.float16: 5e-2, Dtype.bfloat16: 3e-1}
# In low precision any two ways of batching one forward differ by the model's own rounding; where rewards hardly vary
# that is more than the above. So this many times what full forwards differ by is allowed, but never a whole
# standard deviation: a wrong engine differs by several.
NOISES, CEILING = 3.0, 1.0
SAMPLE = 16
NOISE_SAMPLE = 64
# A row's error is only known for the sample, and batching moves others more: twice the largest seen, and never less
# than eight float32 roundings of the largest reward. Against float64, errors of 1.1e-6 to 1.45e-6 were measured on
# demo models with rewards of size 4, where the sample showed as little as 6e-8.
NOISE_FACTOR, ROUNDINGS = 2.0, 8


@dataclass(frozen=True)
class Trust:
    """What the check found on `n` random candidates."""

    n: int
    """Candidates compared."""
    largest_difference: float
    """Largest |engine − own forward|, in units of reward."""
    spread: float
    """Standard deviation of the own forward's rewards over the sample, in units of reward."""
    kendall: float
    """Kendall's tau-b between the two orders of the sample; 1 = undisturbed."""
    tolerance: float
    """Largest difference allowed, in units of reward."""

    @property
    def holds(self) -> bool:
        return self.largest_difference <= self.tolerance


def check_trust(
    network, engine, full, wholes: list[Tensor], responses: list[Tensor], *, dtype: Dtype
) -> Trust:
    """Compare the engine with the model's own untouched forward, batch 1, no cache.

    `full` is the engine of full forwards, whose difference sets the noise in low precision. `wholes` are the
    candidates' whole inputs (length,), `responses` their ids in the slot (length,), in one order.
    """
    own = _numbers([own_forward(network, whole.unsqueeze(0)) for whole in wholes])
    ours = _numbers([engine.rewards(response.unsqueeze(0)) for response in responses])
    spread = float(own.std())
    # A sample of equal rewards has no spread; the size of its rewards then sets the scale.
    scale = max(spread, 1e-3 * float(np.abs(own).max()), 1e-6)
    tolerance = TOLERANCE[dtype] * scale
    if dtype is not Dtype.float32:
        noise = np.abs(_numbers([full.rewards(response.unsqueeze(0)) for response in responses]) - own).max()
        tolerance = min(max(tolerance, NOISES * float(noise)), CEILING * scale)
    tau = kendalltau(ours, own).statistic if len(own) > 1 else 1.0
    return Trust(
        n=len(own),
        largest_difference=float(np.abs(ours - own).max()),
        spread=spread,
        kendall=float(tau) if np.isfinite(tau) else 1.0,
        tolerance=tolerance,
    )


def noise_sample(n: int) -> np.ndarray:
    """Rows of n, at random but always the same, on which the numerical error is measured."""
    return np.random.default_rng(1).permutation(n)[:NOISE_SAMPLE]


def numerical_noise(network, rewards: np.ndarray, wholes: list[Tensor]) -> float:
    """Bound on the numerical error of float32 `rewards` (n,) as a scan's own batches gave them, in units of reward.

    Compares them with the model's own forward at batch 1 on their whole inputs `wholes` (see NOISE_FACTOR for what is
    added, since a sample cannot show the largest error).
    """
    own = _numbers([own_forward(network, whole.unsqueeze(0)) for whole in wholes])
    seen = float(np.abs(np.asarray(rewards, dtype=np.float64) - own).max())
    rounding = float(np.finfo(np.float32).eps) * float(np.abs(own).max())
    return max(NOISE_FACTOR * seen, ROUNDINGS * rounding)


def _numbers(rewards: list[Tensor]) -> np.ndarray:
    return torch.cat(rewards).double().cpu().numpy()
