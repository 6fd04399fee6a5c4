"""Value heads: GRM's `v_head.summary` (Yang et al. 2024, linear or a small network) and InternLM2's
linear `v_head`."""

from torch import Tensor, nn
from transformers import PreTrainedConfig

from pessimal.rewards.heads.base import Head, Shapes, in_float32, linear, perceptron
from pessimal.rewards.network import RewardNetwork


class ValueHead(Head):
    """`v_head`, a linear layer or a network of linear layers with ReLU between them."""

    place = -1

    def __init__(self, network: RewardNetwork, *, output: int = 0):
        # GRM's class wraps the layers together with a dropout; InternLM2's is the layer itself.
        head = network.get_submodule("v_head")
        self.layers = in_float32(getattr(head, "summary", head))

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return any(name.startswith("v_head.") for name in shapes)

    @staticmethod
    def modules(shapes: Shapes, config: PreTrainedConfig) -> dict[str, nn.Module | nn.Parameter]:
        if "v_head.weight" in shapes:
            return {"v_head": linear("v_head", shapes)}
        head, name = nn.Module(), "v_head.summary"
        make = linear if f"{name}.weight" in shapes else perceptron
        head.summary = make(name, shapes)
        return {"v_head": head}

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        return self.layers(final)[:, 0]
