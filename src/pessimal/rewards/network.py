"""Interface of a reward's network, whichever class it is of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from pessimal.rewards.spec import Reduce


@dataclass(frozen=True)
class Steps:
    """The reading of a process reward model: a probability at every step of the response, reduced
    to one number."""

    token: int
    output: int
    reduce: Reduce

    def reduced(self, values: Tensor, ids: Tensor) -> Tensor:
        """Rewards (batch,) of the head's outputs `values` (batch, T, outputs) at the positions of
        `ids` (batch, T); NaN where no step ends there.

        A step's number is the softmax over the outputs, or of one output the sigmoid.
        """
        if values.shape[-1] == 1:
            steps = values[..., 0].sigmoid()
        else:
            steps = values.softmax(dim=-1)[..., self.output]
        ends = ids == self.token
        match self.reduce:
            case Reduce.min:
                rewards = steps.masked_fill(~ends, float("inf")).amin(dim=1)
            case Reduce.product:
                rewards = steps.masked_fill(~ends, 1.0).prod(dim=1)
            case Reduce.last:
                places = (ends * torch.arange(1, ids.shape[1] + 1, device=ids.device)).argmax(dim=1)
                rewards = steps.gather(1, places.unsqueeze(1))[:, 0]
        return rewards.masked_fill(~ends.any(dim=1), float("nan"))


class RewardNetwork(nn.Module):
    """A network whose forward gives the reward of token ids: the type of what `Reward.network`
    loads. Only pessimal's own classes inherit from it; others are made to fit (`set_output`)."""

    config: PreTrainedConfig
    base_model_prefix: str
    """Attribute that holds the network under the head."""
    reward_output: int | slice
    """The output that is the reward; a slice takes several."""
    steps: Steps | None = None
    """Reading of a process reward model's numbers as one; None for others."""
    own_position: bool = False
    """Whether the pad token is left to its own class, which says where the reward is read."""
    assistant_opening: tuple[int, ...]
    """For heads that read the prompt: the ids between the user's turn and the response."""

    get_input_embeddings: Callable[[], nn.Module]
    whole_parts: Any

    @property
    def dtype(self) -> torch.dtype:
        """Precision of its weights."""
        return next(weight.dtype for weight in self.parameters() if weight.is_floating_point())


def backbone_in(network: nn.Module) -> Any:
    """The network under the head. GRM's class does not say where it is; it is where Llama's kin
    have it."""
    return getattr(network, getattr(network, "base_model_prefix", "") or "model", network)


def set_output(
    network: nn.Module,
    output: int | slice,
    opening: tuple[int, ...] = (),
    *,
    steps: Steps | None = None,
) -> RewardNetwork:
    """The same network, in evaluation mode, with the attributes that its class lacks."""
    reward = cast(RewardNetwork, network)
    reward.reward_output, reward.assistant_opening, reward.steps = output, opening, steps
    return reward.eval()
