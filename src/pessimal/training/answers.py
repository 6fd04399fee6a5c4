"""Answers to one question, scored together: the question is run once, as it stands ahead of every
answer.

For networks as they are in training, adapters and gradients included; a scan has its own engine,
which is checked against the model's own forward.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from pessimal.conversation import Turn
from pessimal.errors import FrameError
from pessimal.rewards.frame import Templated

if TYPE_CHECKING:
    from peft import PeftModel


@dataclass(frozen=True)
class Answers:
    """Items as the answers to one question: token ids of what stands ahead of all of them, and of
    each with what closes it."""

    prefix: tuple[int, ...]
    ids: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls, tokenizer: PreTrainedTokenizerBase, question: str, names: Sequence[str]
    ) -> "Answers":
        """As the tokenizer's chat template writes them. FrameError where a conversation does not
        begin with the frame."""
        conversations = Templated(tokenizer)
        prefix, answers = conversations.frame(question).prefix, []
        for name in names:
            ids = conversations.encode((Turn("user", question), Turn("assistant", name))).ids
            if ids[: len(prefix)] != prefix:
                raise FrameError(
                    f"the chat template does not write {name!r} behind the question's frame"
                )
            answers.append(tuple(ids[len(prefix) :]))
        return cls(prefix, tuple(answers))


def is_adapted(network: nn.Module | None) -> "TypeGuard[PeftModel]":
    """Whether PEFT wrapped the network."""
    # An extra, and seconds to import: who wrapped it has imported it.
    peft = sys.modules.get("peft")
    return peft is not None and isinstance(network, peft.PeftModel)


def score_answers(
    network: "PreTrainedModel | PeftModel",
    prefix: Sequence[int],
    answers: Sequence[Sequence[int]],
    *,
    rows: int,
) -> Tensor:
    """Rewards (n,) float32 of answers; what stands ahead of them is run once. With gradients where
    they are enabled.

    Args:
        network: a sequence classifier, or one with adapters.
        rows: answers of a batch; those of like length share one.
    """
    bare = network.get_base_model() if is_adapted(network) else network
    backbone, head = cast(PreTrainedModel, bare).base_model, bare.get_submodule("score")
    device = next(network.parameters()).device
    shared = DynamicCache()
    backbone(
        input_ids=torch.tensor([list(prefix)], device=device),
        past_key_values=shared,
        use_cache=True,
    )
    order, rewards = np.argsort([len(ids) for ids in answers], kind="stable"), []
    for start in range(0, len(order), rows):
        batch = [answers[row] for row in order[start : start + rows]]
        ends = torch.tensor([len(ids) for ids in batch], device=device) - 1
        # What fills a row up stands behind the position that is read.
        ids = torch.zeros(len(batch), int(ends.max()) + 1, dtype=torch.long, device=device)
        for row, answer in enumerate(batch):
            ids[row, : len(answer)] = torch.tensor(answer)
        cache, shape = DynamicCache(), (len(batch), -1, -1, -1)
        for number, (keys, values, *_) in enumerate(shared):
            cache.update(keys.expand(shape), values.expand(shape), number)
        states = backbone(input_ids=ids, past_key_values=cache, use_cache=True).last_hidden_state
        read = states[torch.arange(len(batch), device=device), ends]
        rewards.append(head(read)[:, 0].float())
    return torch.cat(rewards)[torch.tensor(np.argsort(order, kind="stable"), device=device)]
