"""One linear layer: transformers' sequence classifiers (Skywork, GRM's fine-tuned models, URM and
most others)."""

from torch import Tensor

from pessimal.rewards.heads.base import Head, Shapes, in_float32
from pessimal.rewards.network import RewardNetwork


class LinearHead(Head):
    """`score`: a linear layer, of one output or of several attributes of which one is the
    reward."""

    def __init__(self, network: RewardNetwork, *, output: int = 0):
        self.score = in_float32(network.get_submodule("score"))
        self.output = output

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return "score.weight" in shapes

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        return self.score(final)[:, self.output]
