"""Beaver's reward and cost models (Dai et al. 2023): a linear `score_head`, and a normaliser where
the configuration asks for it."""

import torch
from torch import Tensor, nn

from pessimal.errors import ModelError
from pessimal.rewards.heads.base import Head, Shapes, in_float32

_EPSILON = 1e-8


class NormalizedHead(Head):
    """`score_head`, less the mean and over the standard deviation that were kept in training
    (`config.do_normalize`).

    A cost model's output is a cost: high is bad, and it is scaled without taking the mean away.
    """

    def __init__(self, network: nn.Module, *, output: int = 0):
        self.layer = in_float32(network.score_head)
        self.output = output
        config, outputs = network.config, self.layer.out_features
        on = bool(getattr(config, "do_normalize", False))
        kind = getattr(config, "score_type", "reward")
        if on and kind not in _NORMALIZED:
            raise ModelError(
                f"config.json says score_type={kind!r}; known are {', '.join(_NORMALIZED)}: the "
                f"reward cannot be normalised"
            )
        shifted, scaled = _NORMALIZED[kind] if on else (False, False)
        mean, variance = getattr(config, "mean", None), getattr(config, "var", None)
        self.shift = torch.tensor(mean if shifted and mean is not None else [0.0] * outputs)
        self.scale = (
            torch.tensor(variance if variance is not None else [1.0] * outputs).sqrt() + _EPSILON
            if scaled
            else torch.ones(outputs)
        )

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return "score_head.weight" in shapes

    @staticmethod
    def modules(shapes: Shapes, config) -> dict[str, nn.Module]:
        outputs, inputs = shapes["score_head.weight"]
        return {"score_head": nn.Linear(inputs, outputs, bias="score_head.bias" in shapes)}

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        return ((self.layer(final) - self.shift) / self.scale)[:, self.output]


_NORMALIZED = {"reward": (True, True), "cost": (False, True), "critic": (False, False)}
"""By `config.score_type`: whether the mean is taken away, and whether the rest is divided by the
standard deviation."""
