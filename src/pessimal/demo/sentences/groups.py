"""The training data: groups of responses to one conversation, written afresh for every step.

Knows how texts become ids and utilities. A step's groups depend on the seed and the step alone, so a run is
reproducible whatever was drawn before it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from pessimal.demo.bases import Base
from pessimal.demo.module import CONTEXT
from pessimal.demo.recipes import Recipe
from pessimal.demo.sentences.features import compute_text_utility
from pessimal.demo.sentences.prompts import draw_conversation
from pessimal.demo.sentences.responses import (
    MOST_WORDS,
    draw_length,
    draw_plan,
    write_response,
    write_sentences,
)

PLANS = 2
"""Responses written from the same sentences after different plans: what `explain` compares is a text and its edit, so
that is what training compares besides texts that have nothing in common."""

SHORT_SHARE, SHORT_WORDS = 0.5, 16
"""Fraction of the run, from its beginning, in which responses have about so many words at the most. A phrase of five words
shows sooner among ten others than among a hundred, and a step costs a third."""


@dataclass(frozen=True)
class SentenceStep:
    """One optimiser step's data."""

    ids: list[list[int]]
    """groups x K whole conversations, the responses to one prompt in a row."""
    utility: Tensor
    """(groups, K) the utility of each response."""


class SentenceGroups(Dataset):
    """The steps of one recipe, by number."""

    def __init__(self, recipe: Recipe, base: Base):
        self.recipe, self.base = recipe, base

    def __len__(self) -> int:
        return self.recipe.steps

    def __getitem__(self, step: int) -> SentenceStep:
        if not 0 <= step < len(self):
            raise IndexError(step)  # what ends a loop over the steps
        random = np.random.default_rng((self.recipe.seed, step))
        most_words = SHORT_WORDS if step / self.recipe.steps < SHORT_SHARE else MOST_WORDS
        ids, utility = [], []
        for _ in range(self.recipe.groups):
            turns, texts = draw_group(random, size=self.recipe.group_size, most_words=most_words)
            ids += [conversation_ids(self.base, turns, text) for text in texts]
            utility.append([compute_text_utility(text, self.recipe.plants) for text in texts])
        return SentenceStep(ids=ids, utility=torch.tensor(utility))


def draw_group(
    random: np.random.Generator, *, size: int, held_out: bool = False, most_words: int = MOST_WORDS
) -> tuple[tuple[str, ...], list[str]]:
    """A conversation and `size` responses to it, each `PLANS` of which share their sentences.

    Args:
        held_out: whether slots are filled with the words that training never shows (see `slots`).
        most_words: about how long a response is at the most.
    """
    turns, texts = draw_conversation(random, held_out=held_out), []
    while len(texts) < size:
        pool = write_sentences(random, words=draw_length(random, most_words=most_words), held_out=held_out)
        for _ in range(PLANS):
            plan = draw_plan(random, most_words=most_words)
            more = write_sentences(random, words=plan.words, held_out=held_out)
            texts.append(write_response(random, plan, pool + more))
    return turns, texts[:size]


def conversation_ids(base: Base, turns: tuple[str, ...], response: str) -> list[int]:
    """The ids of a conversation as the chat template writes it: begin, then each turn and a separator.

    One that is longer than `CONTEXT` loses the end of its prompt; a response alone is never that long in training.
    """
    separator = base.id_of(base.separator)
    before = [part for turn in turns for part in (*base.encode(turn), separator)]
    after = [*base.encode(response), separator]
    room = CONTEXT - 1 - len(after)
    if len(before) > room:
        before = [*before[: max(0, room - 1)], separator]
    return [base.id_of(base.begin), *before, *after]


def pad(rows: list[list[int]], *, padding: int) -> tuple[Tensor, Tensor]:
    """Rows filled up on the right: ids (rows, longest) and the position of each row's last own token (rows,).

    No mask is needed: attention is causal, and nothing before a row's last token sees the padding behind it.
    """
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    return torch.tensor([row + [padding] * (longest - len(row)) for row in rows]), lengths - 1
