"""Many answers to one prompt in a single sequence: the prompt is computed once, no answer sees another.

Knows ids, positions and masks. Knows nothing about words or utilities. A packed answer gets the reward that the
same conversation gets by itself, at about a sixth of the arithmetic (15 + 2 x 16 positions instead of 16 x 17).

Layout of a row: prompt, padded on its right | the K answers | the K separators that close them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import LlamaForSequenceClassification


@dataclass(frozen=True)
class Packed:
    """Prompts with their candidate answers, ready for one forward pass."""

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
    lengths = torch.tensor([len(prefix) for prefix in prefixes])
    longest = int(lengths.max())
    prompt = torch.tensor([prefix + [padding] * (longest - len(prefix)) for prefix in prefixes])
    ids = torch.cat([prompt, answers, torch.full_like(answers, separator)], dim=1)  # (prompts, longest + 2K)

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


def compute_rewards(model: LlamaForSequenceClassification, packed: Packed) -> Tensor:
    """The reward of every packed answer, read at the separator that closes it: (prompts, K)."""
    hidden = model.model(
        input_ids=packed.ids, position_ids=packed.positions, attention_mask=packed.visible, use_cache=False
    ).last_hidden_state  # (prompts, length, width)
    return model.score(hidden[:, -packed.answers :]).squeeze(-1)
