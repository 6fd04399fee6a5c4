"""Several objectives, mixed by a gate that looks at the prompt: ArmoRM (Wang et al. 2024) and QRM
(Dorka 2024).

The gate reads the hidden state at the token that closes the user's turn, so it is one vector for
all responses to a prompt: the reward is that vector times the objectives' rewards. QRM estimates
each objective by quantiles, whose mean is taken; ArmoRM has one value an objective, the case of a
single quantile.
"""

import re
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from pessimal.errors import ModelError
from pessimal.rewards.ceiling import Interval, NormalisedStates
from pessimal.rewards.heads import Head, Shapes, float32_copy, linear_layer
from pessimal.rewards.network import RewardNetwork


class Gate(nn.Module):
    """The gating network, laid out as the checkpoint's weights are: `layers.N` linear, batch norm,
    or ReLU."""

    def __init__(self, shapes: Shapes, *, temperature: float):
        super().__init__()
        self.temperature = temperature
        self.logit_scale = nn.Parameter(torch.ones(shapes["gating.logit_scale"]))
        names = (re.match(r"gating\.layers\.(\d+)\.(\w+)", name) for name in shapes)
        layers = [(int(match[1]), match[2]) for match in names if match]
        self.layers = nn.ModuleList()
        for number in range(max(layers)[0] + 1):
            parts = {part for n, part in layers if n == number}
            name = f"gating.layers.{number}"
            if not parts:
                self.layers.append(nn.ReLU())
            elif "running_mean" in parts:
                self.layers.append(nn.BatchNorm1d(shapes[f"{name}.weight"][0]))
            else:
                self.layers.append(linear_layer(name, shapes))

    def forward(self, prompt: Tensor) -> Tensor:
        """Weights of the objectives (batch, objectives) for the prompts' states (batch, hidden)."""
        explicit = any(isinstance(layer, nn.ReLU) for layer in self.layers)
        for layer in self.layers[:-1]:
            prompt = layer(prompt) if explicit else torch.relu(layer(prompt))
        weights = torch.softmax(self.layers[-1](prompt) / self.temperature, dim=1)
        return weights * self.logit_scale[0]


class GatedHead(Head):
    """`regression_layer`, `reward_transform_matrix` and `gating`."""

    gated = True

    def __init__(self, network: RewardNetwork, *, output: int | slice = 0):
        self.regression = float32_copy(network.get_submodule("regression_layer"))
        transform = network.get_parameter("reward_transform_matrix")
        self.transform = transform.detach().float().clone()  # (objectives, objectives)
        self.gating = float32_copy(network.get_submodule("gating"))
        self.opening, self.output = network.assistant_opening, output

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return "regression_layer.weight" in shapes and "gating.logit_scale" in shapes

    @staticmethod
    def outputs(shapes: Shapes) -> int:
        return shapes["reward_transform_matrix"][0]

    @staticmethod
    def modules(shapes: Shapes, config: PreTrainedConfig) -> dict[str, nn.Module | nn.Parameter]:
        objectives = shapes["reward_transform_matrix"][0]
        return {
            "regression_layer": linear_layer("regression_layer", shapes),
            "reward_transform_matrix": nn.Parameter(torch.eye(objectives), requires_grad=False),
            "gating": Gate(shapes, temperature=getattr(config, "gating_temperature", 10)),
        }

    def context(self, states: Tensor, ids: Sequence[int]) -> Tensor:
        """The gate's weights (objectives,) at the end of the user's turn."""
        end = prompt_end(ids, self.opening)
        return self.gating(states[end].unsqueeze(0))[0]

    def coefficients(self, context: Tensor) -> Tensor:
        """Coefficients of the objectives' rewards (objectives,) in the mixture."""
        return self.transform @ context

    def values(self, final: Tensor, context: Tensor | None) -> Tensor:
        quantiles = self.regression(final).view(len(final), len(self.transform), -1)
        objectives = quantiles.mean(dim=2)
        mixed = objectives @ self.coefficients(cast(Tensor, context))
        return torch.cat([mixed.unsqueeze(1), objectives], dim=1)

    def bounds(self, states: NormalisedStates) -> Interval:
        # A gate's softmax mixes the transform's columns, so no prompt gets beyond the best of them.
        n, linear = len(self.transform), cast(nn.Linear, self.regression)
        weight = linear.weight.view(n, -1, linear.in_features).mean(dim=1)
        bias = torch.zeros(n) if linear.bias is None else linear.bias.view(n, -1).mean(dim=1).cpu()
        gates = (cast(Gate, self.gating).logit_scale[0] * self.transform.T).cpu()
        low, high = states.linear(gates @ weight.cpu(), gates @ bias)
        lows, highs = states.linear(weight, bias)
        return torch.cat([low.min()[None], lows]), torch.cat([high.max()[None], highs])


def prompt_end(ids: Sequence[int], opening: Sequence[int]) -> int:
    """Position of the token that closes the user's turn: where `opening` begins, the tokens from
    there to the response's slot, at its last occurrence. Raises ModelError where it does not
    occur."""
    ids, opening = list(ids), list(opening)
    for start in range(len(ids) - len(opening), -1, -1):
        if ids[start : start + len(opening)] == opening:
            return start
    raise ModelError(f"{ids} do not hold {opening}, the assistant's opening that the gate reads")
