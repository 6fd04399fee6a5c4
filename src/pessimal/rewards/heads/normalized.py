"""Beaver's reward and cost models (Dai et al. 2023): a linear `score_head`, and a normaliser where
the configuration asks for it."""

import torch
from torch import Tensor

from pessimal.errors import ModelError
from pessimal.rewards.ceiling import Interval, NormalisedStates
from pessimal.rewards.heads.linear import LinearHead
from pessimal.rewards.network import RewardNetwork

_EPSILON = 1e-8


class NormalizedHead(LinearHead):
    """`score_head`, less the mean and over the standard deviation that were kept in training
    (`config.do_normalize`).

    A cost model's output is a cost: high is bad, and it is scaled without taking the mean away.
    """

    names = ("score_head",)

    def __init__(self, network: RewardNetwork, *, output: int | slice = 0):
        super().__init__(network, output=output)
        config, outputs = network.config, len(list(self.layers.parameters())[-1])
        on = bool(getattr(config, "do_normalize", False))
        kind = getattr(config, "score_type", "reward")
        if on and kind not in _NORMALIZED:
            raise ModelError(
                f"config.json says score_type={kind!r}; known are {', '.join(_NORMALIZED)}: the "
                "reward cannot be normalised"
            )
        shifted, scaled = _NORMALIZED[kind] if on else (False, False)
        mean, variance = getattr(config, "mean", None), getattr(config, "var", None)
        self.shift = torch.zeros(outputs)
        if shifted and mean is not None:
            self.shift = torch.tensor(mean)
        self.scale = torch.ones(outputs)
        if scaled:
            self.scale = torch.tensor(variance or [1.0] * outputs).sqrt() + _EPSILON

    def values(self, final: Tensor, context: Tensor | None) -> Tensor:
        return (super().values(final, context) - self.shift) / self.scale

    def bounds(self, states: NormalisedStates) -> Interval | None:
        if (raw := super().bounds(states)) is None:
            return None
        shift, scale = self.shift.double().cpu(), self.scale.double().cpu()
        return (raw[0] - shift) / scale, (raw[1] - shift) / scale


_NORMALIZED = {"reward": (True, True), "cost": (False, True), "critic": (False, False)}
"""By `config.score_type`: whether the mean is taken away, and whether the rest is divided by the
standard deviation."""
