"""What a network of a reward has, whichever class it is of."""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedConfig


class RewardNetwork(nn.Module):
    """A network whose forward gives the reward of token ids: the type of what `Reward.network`
    loads. Only pessimal's own classes inherit from it; others are made to fit (`with_output`)."""

    config: PreTrainedConfig
    base_model_prefix: str
    """Attribute that holds the network under the head."""
    reward_output: int
    """Which of its outputs is the reward."""
    assistant_opening: tuple[int, ...]
    """For heads that read the prompt: the ids between the user's turn and the response."""

    get_input_embeddings: Callable[[], nn.Module]
    """Gives the module that looks tokens up."""
    whole_parts: Any
    """Its parts as they were before it was sharded, where it was."""

    @property
    def dtype(self) -> torch.dtype:
        """Precision of its weights."""
        return next(one.dtype for one in self.parameters() if one.is_floating_point())


def with_output(
    network: nn.Module, output: int | str | None, opening: tuple[int, ...] = ()
) -> RewardNetwork:
    """The same network, in evaluation mode, with the two attributes that its class lacks."""
    reward = cast(RewardNetwork, network)
    reward.reward_output, reward.assistant_opening = int(output or 0), opening
    return reward.eval()
