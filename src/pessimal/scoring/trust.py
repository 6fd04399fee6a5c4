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

# Largest difference allowed, in standard deviations of the sample's rewards. float32: a hundred times what was
# measured (2.4e-6 absolute on a 25M-parameter Llama). Low precision: the engine reads the head in float32, the
# model's own forward does not, so they differ by steps of the model's own rounding.
TOLERANCE = {Dtype.float32: 1e-3, Dtype.float16: 5e-2, Dtype.bfloat16: 3e-1}
SAMPLE = 16


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


def check_trust(network, engine, wholes: list[Tensor], responses: list[Tensor], *, dtype: Dtype) -> Trust:
    """Compare the engine with the model's own untouched forward, batch 1, no cache.

    `wholes` are the candidates' whole inputs (length,), `responses` their ids in the slot (length,), in one order.
    """
    ours = torch.cat([engine.rewards(response.unsqueeze(0)) for response in responses]).double().cpu().numpy()
    own = torch.cat([own_forward(network, whole.unsqueeze(0)) for whole in wholes]).double().cpu().numpy()
    spread = float(own.std())
    tau = kendalltau(ours, own).statistic if len(own) > 1 else 1.0
    return Trust(
        n=len(own),
        largest_difference=float(np.abs(ours - own).max()),
        spread=spread,
        kendall=float(tau) if np.isfinite(tau) else 1.0,
        # A sample of equal rewards has no spread; its size then sets the scale.
        tolerance=TOLERANCE[dtype] * max(spread, 1e-3 * float(np.abs(own).max()), 1e-6),
    )
