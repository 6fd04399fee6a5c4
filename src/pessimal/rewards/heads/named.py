"""One linear layer under a name of its own: UltraRM and Eurus-RM (`regression_head`),
OpenAssistant's Pythia (`out_proj`).

OpenAssistant's configuration has a `model_type` that transformers does not know; it is GPT-NeoX's,
and made known here.
"""

from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, GPTNeoXConfig, GPTNeoXModel, PreTrainedConfig

from pessimal.errors import ModelError
from pessimal.rewards.heads.base import Head, Shapes, in_float32, linear
from pessimal.rewards.network import RewardNetwork

NAMES = ("regression_head", "out_proj")


class NamedLinearHead(Head):
    """`regression_head` or `out_proj`, read at the last token."""

    def __init__(self, network: RewardNetwork, *, output: int = 0):
        name = next(name for name in NAMES if hasattr(network, name))
        self.layer = in_float32(network.get_submodule(name))
        self.output = output

    @staticmethod
    def fits(shapes: Shapes) -> bool:
        return any(f"{name}.weight" in shapes for name in NAMES)

    @staticmethod
    def modules(shapes: Shapes, config: PreTrainedConfig) -> dict[str, nn.Module | nn.Parameter]:
        if getattr(config, "pooling", "last") not in ("last", None):
            raise ModelError(
                f"config.json says pooling={config.pooling!r}: the reward is read off the mean of "
                "all positions, which is not supported. OpenAssistant's models with pooling=last "
                "are"
            )
        name = next(name for name in NAMES if f"{name}.weight" in shapes)
        return {name: linear(name, shapes)}

    def read(self, final: Tensor, context: Tensor | None) -> Tensor:
        return self.layer(final)[:, self.output]


class OpenAssistantConfig(GPTNeoXConfig):
    """GPT-NeoX's, under OpenAssistant's name."""

    model_type = "gpt_neox_reward_model"


class OpenAssistantModel(GPTNeoXModel):
    """GPT-NeoX's, for that configuration."""

    config_class = OpenAssistantConfig


AutoConfig.register(OpenAssistantConfig.model_type, OpenAssistantConfig, exist_ok=True)
AutoModel.register(OpenAssistantConfig, OpenAssistantModel, exist_ok=True)
