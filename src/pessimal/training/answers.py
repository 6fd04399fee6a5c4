"""Answers to one question, scored together: the question is run once, as it stands ahead of every
answer.

For networks as they are in training, adapters and gradients included; a scan has its own engine,
which is checked against the model's own forward.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import numpy as np
import torch
from torch import Tensor, nn
from transformers import DynamicCache

from pessimal.errors import FrameError
from pessimal.rewards.frame import Templated, Turn

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True)
class Answers:
    """Items as the answers to one question: token ids of what stands ahead of all of them, and of
    each with what closes it."""

    prefix: tuple[int, ...]
    own: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, tokenizer, question: str, names: Sequence[str]) -> "Answers":
        """As the tokenizer's chat template writes them. FrameError where a conversation does not
        begin with the frame."""
        conversations = Templated(tokenizer)
        prefix, own = conversations.frame(question).prefix, []
        for name in names:
            ids = conversations.encode((Turn("user", question), Turn("assistant", name))).ids
            if ids[: len(prefix)] != prefix:
                raise FrameError(
                    f"the chat template does not write {name!r} behind the question's frame"
                )
            own.append(tuple(ids[len(prefix) :]))
        return cls(prefix, tuple(own))


def is_adapted(network: nn.Module) -> "TypeGuard[PeftModel]":
    """Whether PEFT wrapped the network."""
    peft = sys.modules.get(
        "peft"
    )  # an extra, and seconds to import: who wrapped it has imported it
    return peft is not None and isinstance(network, peft.PeftModel)


def score_answers(
    network: nn.Module, prefix: Sequence[int], own: Sequence[Sequence[int]], *, rows: int
) -> Tensor:
    """Rewards (n,) float32 of answers; what stands ahead of them is run once. With gradients where
    they are enabled.

    Args:
        network: a sequence classifier, or one with adapters.
        rows: answers of a batch; those of like length share one.
    """
    network = network.get_base_model() if is_adapted(network) else network
    backbone, device = (
        getattr(network, network.base_model_prefix),
        next(network.parameters()).device,
    )
    ahead = DynamicCache()
    backbone(
        input_ids=torch.tensor([list(prefix)], device=device), past_key_values=ahead, use_cache=True
    )
    order, found = np.argsort([len(ids) for ids in own], kind="stable"), []
    for start in range(0, len(order), rows):
        batch = [own[row] for row in order[start : start + rows]]
        ends = torch.tensor([len(ids) for ids in batch], device=device) - 1
        ids = torch.zeros(len(batch), int(ends.max()) + 1, dtype=torch.long, device=device)
        for row, answer in enumerate(
            batch
        ):  # what fills a row up stands behind the place that is read
            ids[row, : len(answer)] = torch.tensor(answer)
        cache = DynamicCache()
        for number, layer in enumerate(ahead.layers):
            shape = (len(batch), -1, -1, -1)
            cache.update(layer.keys.expand(shape), layer.values.expand(shape), number)
        states = backbone(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state
        read = states[torch.arange(len(batch), device=device), ends]
        found.append(network.score(read)[:, 0].float())
    return torch.cat(found)[torch.tensor(np.argsort(order, kind="stable"), device=device)]
