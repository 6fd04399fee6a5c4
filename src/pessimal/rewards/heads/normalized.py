"""Beaver's reward and cost models (Dai et al. 2023): a linear `score_head`, and a normaliser where
the configuration asks for it."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from pessimal.errors import ModelError
from pessimal.rewards.heads.base import Head, Shapes, in_float32, linear
from pessimal.rewards.network import RewardNetwork

_EPSILON = 1e-8


class NormalizedHead(Head):
    """`score_head`, less the mean and over the standard deviation that were kept in training
    (`config.do_normalize`).

    A cost model's output is a cost: high is bad, and it is scaled without taking the mean away.
    """

    def __init__(self, network: RewardNetwork, *, output: int = 0):
        self.layer = in_float32(network.get_submodule("score_head"))
        self.output = output
        config, outputs = network.config, len(next(self.layer.parameters()))
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

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return "score_head.weight" in shapes

    @staticmethod
    def modules(shapes: Shapes, config: PreTrainedConfig) -> dict[str, nn.Module | nn.Parameter]:
        return {"score_head": linear("score_head", shapes)}

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        return ((self.layer(final) - self.shift) / self.scale)[:, self.output]


_NORMALIZED = {"reward": (True, True), "cost": (False, True), "critic": (False, False)}
"""By `config.score_type`: whether the mean is taken away, and whether the rest is divided by the
standard deviation."""
