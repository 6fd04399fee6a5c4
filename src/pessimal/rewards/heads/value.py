"""Value heads: GRM's `v_head.summary` (Yang et al. 2024, linear or a small network) and InternLM2's
linear `v_head`."""

import re

from torch import Tensor, nn

from pessimal.rewards.heads.base import Head, Shapes, in_float32


class ValueHead(Head):
    """`v_head`, a linear layer or a network of linear layers with ReLU between them."""

    place = -1

    def __init__(self, network: nn.Module, *, output: int = 0):
        # GRM's class wraps the layers together with a dropout; InternLM2's is the layer itself.
        self.layers = in_float32(getattr(network.v_head, "summary", network.v_head))

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return any(name.startswith("v_head.") for name in shapes)

    @staticmethod
    def modules(shapes: Shapes, config) -> dict[str, nn.Module | nn.Parameter]:
        if "v_head.weight" in shapes:
            return {"v_head": _linear("v_head", shapes)}
        head = nn.Module()
        if "v_head.summary.weight" in shapes:
            head.summary = _linear("v_head.summary", shapes)
        else:
            numbers = {
                int(m[1])
                for name in shapes
                if (m := re.match(r"v_head\.summary\.(\d+)\.weight", name))
            }
            head.summary = nn.Sequential(
                *(
                    _linear(f"v_head.summary.{i}", shapes) if i in numbers else nn.ReLU()
                    for i in range(max(numbers) + 1)
                )
            )
        return {"v_head": head}

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        return self.layers(final)[:, 0]


def _linear(name: str, shapes: Shapes) -> nn.Linear:
    outputs, inputs = shapes[f"{name}.weight"]
    return nn.Linear(inputs, outputs, bias=f"{name}.bias" in shapes)
