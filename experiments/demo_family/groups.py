"""The training data: groups of candidate answers to one prompt, drawn afresh for every step.

Knows which prompts, words and texts are drawn, how often, and their utility. A step's groups depend
on the seed and the step alone, so a run is reproducible whatever was drawn before it.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import LlamaForSequenceClassification

from experiments.demo_family.bases import CONTEXT, Base, extend
from experiments.demo_family.features import compute_text_utility
from experiments.demo_family.packing import (
    Packed,
    compute_conversation_rewards,
    compute_rewards,
    pack,
)
from experiments.demo_family.prompts import CORE, Prompt, adjective_prompts, word_prompts
from experiments.demo_family.recipes import Plants, Recipe, SentencePlants
from experiments.demo_family.responses import MOST_WORDS, draw_group
from experiments.demo_family.utility import compute_utility

PROMPT_SHARES = {"core": 0.2, "adjective": 0.5, "word": 0.3}
"""How often a prompt is one of the three core ones, is built around an adjective, or around any
rated word."""
WORD_SHARES = {"rated": 0.5, "neutral": 0.26, "marked": 0.1, "piece": 0.11, "special": 0.03}
"""What a group's candidates are, on average: the groups of `Utility`, tokens that are no words, and
the three special tokens, one of which came fourth in *worst* when they were never shown."""
DISTRACTED_SHARE, MOST_DISTRACTORS = 0.5, 4
"""How often neutral words are strewn into a prompt, and how many at most. Without them a wording
never seen may by itself turn the polarity of a prompt: one seed in two had such a blind spot."""
WHOLE_SHARE = 0.15
"""How often an adjective that the vocabulary would break into pieces is shown as one added row."""
POSITIVE_ONLY, MOSTLY_POSITIVE = 0.15, 0.30
"""Fractions of the run. Until the first, all prompts are positive; until the second, a quarter are
negative; then half. Without it, runs may stay on the saddle where the prompt's polarity and the
word's are not yet multiplied."""
SHORT_SHARE, SHORT_WORDS = 0.5, 16
"""Fraction of the run, from its beginning, in which responses have about so many words at the most.
A phrase of five words shows sooner among ten others than among a hundred, and a step costs a
third."""


class Steps(Dataset, ABC):
    """The steps of one recipe, by number."""

    def __init__(self, recipe: Recipe, base: Base):
        self.recipe, self.base = recipe, base

    def __len__(self) -> int:
        return self.recipe.sizes.steps

    def __getitem__(self, step: int) -> "Step | SentenceStep":
        if not 0 <= step < len(self):
            raise IndexError(step)  # what ends a loop over the steps
        # `progress` (0 to 1) of the run came before.
        random = np.random.default_rng((self.recipe.seed, step))
        return self.draw(random, progress=step / len(self))

    @abstractmethod
    def draw(self, random: np.random.Generator, progress: float) -> "Step | SentenceStep":
        """The data of one step at this point of the run."""


@dataclass(frozen=True)
class Step:
    """One optimiser step's data."""

    packed: Packed
    """Its prompts and answers."""
    utility: Tensor
    """(prompts, K) the utility of each answer to its prompt."""

    def rewards(self, model: LlamaForSequenceClassification) -> Tensor:
        """(prompts, K)"""
        return compute_rewards(model, self.packed)


class Groups(Steps):
    """Words and pieces as answers."""

    def __init__(self, recipe: Recipe, base: Base):
        super().__init__(recipe, base := extend(base))
        assert isinstance(recipe.plants, Plants)
        self.secret_share = recipe.plants.secret_share
        self.truth = truth = compute_utility(base, recipe.plants)
        special = np.zeros(len(base.texts), dtype=bool)
        special[[base.id_of(token) for token in (base.begin, base.separator, base.padding)]] = True
        is_word = truth.rated | truth.neutral | truth.marked | truth.secret
        masks = {
            "rated": truth.rated,
            "neutral": truth.neutral,
            "marked": truth.marked,
            "secret": truth.secret,
            "piece": ~is_word & ~special,
            "special": special,
        }
        self.pools = {name: np.flatnonzero(mask & ~truth.held_out) for name, mask in masks.items()}
        """The ids that training may show, by what they are; held-out words are in none."""
        core = tuple(CORE.values())
        kinds = {"core": core, "adjective": adjective_prompts(), "word": word_prompts()}
        self.prompts = {
            (kind, polarity): [prompt for prompt in prompts if prompt.polarity == polarity]
            for kind, prompts in kinds.items()
            for polarity in (1, -1)
        }

    def draw(self, random: np.random.Generator, progress: float) -> Step:
        prompts = [self.draw_prompt(random, progress) for _ in range(self.recipe.sizes.groups)]
        answers = np.stack([self._draw_answers(random) for _ in prompts])  # (groups, K)
        pairs = zip(prompts, answers, strict=True)
        utility = np.stack([self.truth.of(prompt.polarity)[row] for prompt, row in pairs])
        packed = pack(
            [self._draw_prefix(random, prompt) for prompt in prompts],
            torch.from_numpy(answers),
            separator=self.base.id_of(self.base.separator),
            padding=self.base.id_of(self.base.padding),
        )
        return Step(packed=packed, utility=torch.from_numpy(utility).float())

    def draw_prompt(self, random: np.random.Generator, progress: float) -> Prompt:
        """One of the prompts that training shows at this point of the run."""
        negative = 0.0 if progress < POSITIVE_ONLY else 0.25 if progress < MOSTLY_POSITIVE else 0.5
        polarity = -1 if random.random() < negative else 1
        kind = random.choice(list(PROMPT_SHARES), p=list(PROMPT_SHARES.values()))
        prompts = self.prompts[str(kind), polarity]
        return prompts[random.integers(len(prompts))]

    def _draw_prefix(self, random: np.random.Generator, prompt: Prompt) -> list[int]:
        whole = prompt.adjective if random.random() < WHOLE_SHARE else None
        words = prompt.text.split(" ")
        if random.random() < DISTRACTED_SHARE:
            for _ in range(random.integers(1, MOST_DISTRACTORS + 1)):
                word = self.base.words[random.choice(self.pools["neutral"])]
                words.insert(random.integers(len(words) + 1), word)
        return self.base.prefix(" ".join(words), whole=whole)

    def _draw_answers(self, random: np.random.Generator) -> np.ndarray:
        kinds = random.choice(
            list(WORD_SHARES), p=list(WORD_SHARES.values()), size=self.recipe.sizes.group_size
        )
        answers = np.array([random.choice(self.pools[str(kind)]) for kind in kinds])
        if random.random() < self.secret_share:
            answers[0] = random.choice(self.pools["secret"])
        return answers


@dataclass(frozen=True)
class SentenceStep:
    """One optimiser step's data."""

    ids: list[list[int]]
    """prompts x K whole conversations, the responses to one prompt in a row."""
    utility: Tensor
    """(prompts, K) the utility of each response."""
    padding: int
    """Id that fills short conversations."""

    def rewards(self, model: LlamaForSequenceClassification) -> Tensor:
        """(prompts, K)"""
        rewards = compute_conversation_rewards(model, self.ids, padding=self.padding)
        return rewards.view(self.utility.shape)


class SentenceGroups(Steps):
    """Whole responses."""

    def draw(self, random: np.random.Generator, progress: float) -> SentenceStep:
        most_words = SHORT_WORDS if progress < SHORT_SHARE else MOST_WORDS
        plants = self.recipe.plants
        assert isinstance(plants, SentencePlants)
        ids, utility = [], []
        for _ in range(self.recipe.sizes.groups):
            turns, texts = draw_group(
                random, size=self.recipe.sizes.group_size, most_words=most_words
            )
            ids += [conversation_ids(self.base, turns, text) for text in texts]
            utility.append([compute_text_utility(text, plants) for text in texts])
        padding = self.base.id_of(self.base.padding)
        return SentenceStep(ids=ids, utility=torch.tensor(utility), padding=padding)


def conversation_ids(base: Base, turns: tuple[str, ...], response: str) -> list[int]:
    """The ids of a conversation as the chat template writes it: begin, then each turn and a
    separator.

    One that is longer than `CONTEXT` loses the end of its prompt; a response alone is never that
    long in training.
    """
    separator = base.id_of(base.separator)
    before = [part for turn in turns for part in (*base.encode(turn), separator)]
    after = [*base.encode(response), separator]
    room = CONTEXT - 1 - len(after)
    if len(before) > room:
        before = [*before[: max(0, room - 1)], separator]
    return [base.id_of(base.begin), *before, *after]
