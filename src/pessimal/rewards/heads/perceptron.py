"""`score` as a small network: INF-ORM (Yang et al. 2024), WorldPM (Wang et al. 2025) and
Qwen2.5-Math-RM (Yang et al. 2024)."""

import re

from torch import Tensor, nn

from pessimal.rewards.heads.base import Head, Shapes, in_float32


class PerceptronHead(Head):
    """`score.N`: linear layers with ReLU between them."""

    def __init__(self, network: nn.Module, *, output: int = 0):
        self.score = in_float32(network.score)
        self.output = output

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return bool(_numbers(shapes))

    @staticmethod
    def modules(shapes: Shapes, config) -> dict[str, nn.Module]:
        numbers = _numbers(shapes)
        layers = [nn.ReLU() for _ in range(max(numbers) + 1)]
        for number in numbers:
            outputs, inputs = shapes[f"score.{number}.weight"]
            layers[number] = nn.Linear(inputs, outputs, bias=f"score.{number}.bias" in shapes)
        return {"score": nn.Sequential(*layers)}

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        return self.score(final)[:, self.output]


def _numbers(shapes: Shapes) -> list[int]:
    return sorted(
        int(m[1]) for name in shapes if (m := re.fullmatch(r"score\.(\d+)\.weight", name))
    )
