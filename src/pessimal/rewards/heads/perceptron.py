"""`score` as a small network: INF-ORM (Yang et al. 2024), WorldPM (Wang et al. 2025) and
Qwen2.5-Math-RM (Yang et al. 2024)."""

from torch import Tensor, nn
from transformers import PreTrainedConfig

from pessimal.rewards.heads.base import Head, Shapes, in_float32, layer_numbers, perceptron
from pessimal.rewards.network import RewardNetwork


class PerceptronHead(Head):
    """`score.N`: linear layers with ReLU between them."""

    def __init__(self, network: RewardNetwork, *, output: int = 0):
        self.score = in_float32(network.get_submodule("score"))
        self.output = output

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return bool(layer_numbers("score", shapes))

    @staticmethod
    def modules(shapes: Shapes, config: PreTrainedConfig) -> dict[str, nn.Module | nn.Parameter]:
        return {"score": perceptron("score", shapes)}

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        return self.score(final)[:, self.output]
