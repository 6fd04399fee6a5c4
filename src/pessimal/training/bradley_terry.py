"""The loss that reward models are trained with, and the schedule of its learning rate. Knows
tensors and what Lightning calls a schedule."""

import math

import torch
from pytorch_lightning.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor
from torch.nn import functional

WARM_UP = 0.1
"""Fraction of the steps over which the learning rate rises to its peak."""


def soft_bradley_terry(rewards: Tensor, utility: Tensor, precision: Tensor | None = None) -> Tensor:
    """Mean cross-entropy, in nats, between given and modelled preference over all pairs of each
    group.

    The given probability that answer i is preferred to j is sigmoid(u_i - u_j), the modelled one
    sigmoid(r_i - r_j) (Bradley & Terry 1952); adding a constant to a group's rewards changes
    nothing.

    Args:
        rewards, utility: (groups, K).
        precision: (groups, K), one over the variance of each utility: pairs are weighted by one
            over that of their difference; None weighs all alike.
    """
    first, second = torch.triu_indices(rewards.shape[1], rewards.shape[1], offset=1)  # (K (K-1)/2,)
    margin = rewards[:, first] - rewards[:, second]
    preferred = torch.sigmoid(utility[:, first] - utility[:, second])
    weight = None
    if precision is not None:
        first_precision, other = precision[:, first], precision[:, second]
        weight = first_precision * other / (first_precision + other)
        weight = weight / weight.mean()
    return functional.binary_cross_entropy_with_logits(margin, preferred, weight=weight)


def warm_up_and_cosine(optimizer: torch.optim.Optimizer, steps: int) -> OptimizerLRSchedulerConfig:
    """A linear warm-up and a cosine to zero over `steps`, stepped once a step, as Lightning takes
    it."""
    rise = max(1, round(WARM_UP * steps))

    def rate(step: int) -> float:
        fall = (step - rise) / max(1, steps - rise)
        return (step + 1) / rise if step < rise else 0.5 * (1 + math.cos(math.pi * min(1.0, fall)))

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
