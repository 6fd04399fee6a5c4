"""A network read for its last hidden states in place of a reward: what any head on it would get.

Knows modules. Does not know tokens, frames or engines.
"""

from pathlib import Path
from typing import cast

from torch import Tensor, nn
from transformers import AutoModel, PreTrainedConfig

from pessimal.errors import ModelError
from pessimal.rewards.heads import Head, Shapes
from pessimal.rewards.language import load_language_network
from pessimal.rewards.log_probability import LanguageNetwork
from pessimal.rewards.network import RewardNetwork, backbone_in
from pessimal.rewards.spec import Dtype, ModelSpec


class LastState(Head):
    """Gives the normalised last hidden state (batch, hidden) itself."""

    def __init__(self, network: RewardNetwork, *, output: int | slice = 0):
        pass

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return False  # no checkpoint asks for it

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        return final


class StatesNetwork(RewardNetwork):
    """A decoder without its head."""

    base_model_prefix = "backbone"
    reward_output = 0
    assistant_opening = ()

    def __init__(self, network: nn.Module):
        super().__init__()
        whole = network.causal if isinstance(network, LanguageNetwork) else network
        self.whole, self.config = whole, cast(PreTrainedConfig, whole.config)
        self.eval()

    @property
    def backbone(self) -> nn.Module:
        return backbone_in(self.whole)

    def get_input_embeddings(self) -> nn.Module:
        return self.backbone.get_input_embeddings()  # type: ignore[operator]

    def make_head(self) -> LastState:
        return LastState(self)


def load_base(spec: ModelSpec, folder: Path, *, dtype: Dtype, rows: int) -> StatesNetwork:
    """The network in a folder without any head, on the CPU.

    Args:
        spec: of the base, for its name and how it is loaded.
        rows: ids that it is to be asked: those of the reward's tokenizer.

    Raises:
        ModelError: it cannot be loaded, or has fewer rows in its embedding.
    """
    network = load_language_network(spec, folder, dtype=dtype, kind=AutoModel)
    embedding = cast(nn.Embedding, network.get_input_embeddings())
    if len(embedding.weight) < rows:
        raise ModelError(
            f"model.base_path={spec.name}: it has {len(embedding.weight)} tokens, and the reward "
            f"is asked for ids up to {rows - 1}. Give the model that reward training began from, "
            "or type states=false"
        )
    return StatesNetwork(network)
