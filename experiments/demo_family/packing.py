"""From ids to rewards in one forward pass, in training as in evaluation.

One-token answers to a prompt are packed into a single sequence: the prompt is computed once, no
answer sees another. A packed answer gets the reward that the same conversation gets by itself, at
about a sixth of the arithmetic (15 + 2 x 16 positions instead of 16 x 17). Whole responses go
through in batches of like length. Knows nothing about words or utilities.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaForSequenceClassification

ROWS = 16
"""Conversations of like length in one forward pass. One pass over all would be mostly padding:
lengths vary by ten."""


@dataclass(frozen=True)
class Packed:
    """Prompts with their candidate answers. Layout of a row: prompt, padded on its right | the K
    answers | the K separators that close them."""

    ids: Tensor
    """(prompts, length) token ids."""
    positions: Tensor
    """(prompts, length) where each token would stand in its own conversation."""
    visible: Tensor
    """(prompts, 1, length, length) bool: which key each query may see."""
    answers: int
    """K, answers to each prompt."""


def pack(prefixes: list[list[int]], answers: Tensor, *, separator: int, padding: int) -> Packed:
    """Packs prompts and one-token answers.

    Args:
        prefixes: ids of each prompt up to its answer.
        answers: (prompts, K) ids.
        separator: id of the token that closes an answer.
        padding: id that fills short prompts; never seen.
    """
    count, k = answers.shape
    prompt, last = pad(prefixes, padding=padding)
    lengths, longest = last + 1, prompt.shape[1]
    # (prompts, longest + 2K)
    ids = torch.cat([prompt, answers, torch.full_like(answers, separator)], dim=1)

    steps = torch.arange(longest).expand(count, -1)
    answer_steps = lengths[:, None].expand(-1, k)
    positions = torch.cat([steps, answer_steps, answer_steps + 1], dim=1)

    real = torch.arange(longest) < lengths[:, None]  # (prompts, longest)
    itself, nothing = torch.eye(k, dtype=torch.bool), torch.zeros(k, k, dtype=torch.bool)
    length = ids.shape[1]
    visible = torch.zeros(count, 1, length, length, dtype=torch.bool)
    visible[:, 0, :longest, :longest] = torch.ones(longest, longest, dtype=torch.bool).tril()
    visible[:, 0, longest:, :longest] = real[:, None, :]
    visible[:, 0, longest:, longest:] = torch.cat(
        [torch.cat([itself, nothing], dim=1), torch.cat([itself, itself], dim=1)]
    )
    return Packed(ids=ids, positions=positions, visible=visible, answers=k)


def pad(rows: list[list[int]], *, padding: int) -> tuple[Tensor, Tensor]:
    """Rows filled up on the right: ids (rows, longest) and the position of each row's last own
    token (rows,).

    Whole conversations need no mask: attention is causal, and nothing before a row's last token
    sees the padding behind it.
    """
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    return torch.tensor([row + [padding] * (longest - len(row)) for row in rows]), lengths - 1


def compute_rewards(model: LlamaForSequenceClassification, packed: Packed) -> Tensor:
    """The reward of every packed answer, read at the separator that closes it: (prompts, K)."""
    hidden = model.model(
        input_ids=packed.ids,
        position_ids=packed.positions,
        attention_mask=packed.visible,
        use_cache=False,
    ).last_hidden_state  # (prompts, length, width)
    return model.score(hidden[:, -packed.answers :]).squeeze(-1)


def compute_conversation_rewards(
    model: LlamaForSequenceClassification, conversations: list[list[int]], *, padding: int
) -> Tensor:
    """The reward of each conversation, read at its last token: (conversations,)."""
    order = sorted(range(len(conversations)), key=lambda row: len(conversations[row]))
    rewards = []
    for start in range(0, len(order), ROWS):
        batch = [conversations[row] for row in order[start : start + ROWS]]
        ids, last = pad(batch, padding=padding)
        # (rows, longest, width)
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        rewards.append(model.score(hidden[torch.arange(len(ids)), last]).squeeze(-1))
    position = torch.empty(len(order), dtype=torch.long)
    position[torch.tensor(order)] = torch.arange(len(order))
    return torch.cat(rewards)[position]
