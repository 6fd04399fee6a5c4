"""Trains a sibling on whole responses: the family's model and loss, another way through the data.

Knows tensors. Knows nothing about texts or files.
"""

import torch
from torch import Tensor
from transformers import LlamaForSequenceClassification

from pessimal.demo.bases import Base
from pessimal.demo.module import RewardModule, soft_bradley_terry
from pessimal.demo.recipes import Recipe
from pessimal.demo.sentences.groups import SentenceStep, pad

ROWS = 16
"""Conversations of like length in one forward pass. One pass over all would be mostly padding: lengths vary by ten."""


class SentenceModule(RewardModule):
    """Trains one sibling that judges sentences; the loss of every step is kept in `losses`, in nats."""

    def __init__(self, recipe: Recipe, base: Base):
        super().__init__(recipe, base)
        self.padding = base.id_of(base.padding)

    def training_step(self, step: SentenceStep, index: int) -> Tensor:
        rewards = compute_rewards(self.model, step.ids, padding=self.padding).view(step.utility.shape)
        loss = soft_bradley_terry(rewards, step.utility)
        self.losses.append(loss.item())
        self.log("train/loss", loss, prog_bar=True, batch_size=self.recipe.groups)
        return loss


def compute_rewards(
    model: LlamaForSequenceClassification, conversations: list[list[int]], *, padding: int
) -> Tensor:
    """The reward of each conversation, read at its last token: (conversations,)."""
    order = sorted(range(len(conversations)), key=lambda row: len(conversations[row]))
    rewards = []
    for start in range(0, len(order), ROWS):
        ids, last = pad([conversations[row] for row in order[start : start + ROWS]], padding=padding)
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state  # (rows, longest, width)
        rewards.append(model.score(hidden[torch.arange(len(ids)), last]).squeeze(-1))
    position = torch.empty(len(order), dtype=torch.long)
    position[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(rewards)[position]
