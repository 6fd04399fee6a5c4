"""Linear layers under one of the names that published models give them.

One layer: transformers' sequence classifiers (Skywork, GRM's fine-tuned models, URM and most
others), and its token classifiers, whose layer has a bias (verl's and TRL's), call it `score`;
InternLM2, Starling and Athene `v_head`; OpenRLHF of old and ColossalAI `value_head`; UltraRM and
Eurus-RM `regression_head`; OpenAssistant's Pythia `out_proj`. Several layers with ReLU between
them: INF-ORM (Yang et al. 2024), WorldPM (Wang et al. 2025), Qwen2.5-Math-RM (Yang et al. 2024),
Qwen2.5-Math-PRM (Zhang et al. 2025), which has two outputs a step, and GRM's `v_head.summary` (Yang
et al. 2024, either). Beaver's reward and cost models (Dai et al. 2023) have a linear `score_head`,
and a normaliser where the configuration asks for it.
"""

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, GPTNeoXConfig, GPTNeoXModel, PreTrainedConfig

from pessimal.errors import ModelError
from pessimal.rewards.ceiling import Interval, NormalisedStates
from pessimal.rewards.heads import (
    Head,
    Shapes,
    float32_copy,
    layer_numbers,
    linear_layer,
    perceptron,
)
from pessimal.rewards.network import RewardNetwork


class LinearHead(Head):
    """A linear layer `NAME`, or linear layers `NAME.N` with ReLU between them."""

    names: tuple[str, ...] = ("v_head", "v_head.summary", "score", "regression_head", "out_proj")
    names += ("value_head",)

    def __init__(self, network: RewardNetwork, *, output: int | slice = 0):
        shapes = {name: weight.shape for name, weight in network.state_dict().items()}
        self.layers = float32_copy(network.get_submodule(self.name(shapes)))
        self.output = output

    @classmethod
    def name(cls, shapes: Shapes) -> str:
        """Name of the module that holds the layers; empty where none of the names does."""
        layers = (n for n in cls.names if f"{n}.weight" in shapes or layer_numbers(n, shapes))
        return next(layers, "")

    @classmethod
    def fits(cls, shapes: Shapes) -> bool:
        return bool(cls.name(shapes))

    @classmethod
    def outputs(cls, shapes: Shapes) -> int:
        name = cls.name(shapes)
        number = max(layer_numbers(name, shapes), default=None)
        return shapes[f"{name}.weight" if number is None else f"{name}.{number}.weight"][0]

    @classmethod
    def stock(cls, shapes: Shapes) -> bool:
        # A token classifier's bias would be dropped.
        return "score.weight" in shapes and "score.bias" not in shapes

    @classmethod
    def modules(
        cls, shapes: Shapes, config: PreTrainedConfig
    ) -> dict[str, nn.Module | nn.Parameter]:
        if getattr(config, "pooling", "last") not in ("last", None):
            raise ModelError(f"config.json: pooling={config.pooling!r} is not read, only last")
        name = cls.name(shapes)
        make = linear_layer if f"{name}.weight" in shapes else perceptron
        module: nn.Module = make(name, shapes)
        first, *inside = name.split(".")
        for part in reversed(inside):
            outer = nn.Module()
            setattr(outer, part, module)
            module = outer
        return {first: module}

    def values(self, final: Tensor, context: Tensor | None) -> Tensor:
        return self.layers(final)

    def bounds(self, states: NormalisedStates) -> Interval | None:
        return states.layers(self.layers)


_EPSILON = 1e-8
_NORMALIZED = {"reward": (True, True), "cost": (False, True), "critic": (False, False)}
"""By `config.score_type`: whether the mean is taken away, and whether the rest is divided by the
standard deviation."""


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
            raise ModelError(f"config score_type={kind!r} is none of {', '.join(_NORMALIZED)}")
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


class OpenAssistantConfig(GPTNeoXConfig):
    """GPT-NeoX's, under OpenAssistant's name."""

    model_type = "gpt_neox_reward_model"


class OpenAssistantModel(GPTNeoXModel):
    """GPT-NeoX's, for that configuration."""

    config_class = OpenAssistantConfig


AutoConfig.register(OpenAssistantConfig.model_type, OpenAssistantConfig, exist_ok=True)
AutoModel.register(OpenAssistantConfig, OpenAssistantModel, exist_ok=True)
