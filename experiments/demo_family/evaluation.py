"""How well a sibling learned what was planted, on what training never shows: held-out words and
prompts; of one that judges sentences random responses filled with held-out words, and the natural
responses of `data/natural.csv`.

Knows rewards and the planted truth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from scipy.stats import spearmanr
from transformers import LlamaForSequenceClassification

from experiments.demo_family.bases import Base
from experiments.demo_family.features import (
    FEATURES,
    PLANTABLE,
    compute_text_utility,
    read_features,
)
from experiments.demo_family.groups import conversation_ids
from experiments.demo_family.lexicon import read_rows
from experiments.demo_family.packing import compute_conversation_rewards, compute_rewards, pack
from experiments.demo_family.prompts import CORE, held_out_prompts
from experiments.demo_family.recipes import SentencePlants
from experiments.demo_family.responses import draw_group
from experiments.demo_family.utility import Utility

ANSWERS_PER_ROW, ROWS = 64, 16
"""How a scan is cut up; attention costs the square of a row's length."""
LEAST_GAP = 0.5
"""Pairs of words closer in valence than this are within the raters' noise."""
PROMPTS, RESPONSES = 60, 8
"""Random conversations of the test of sentences, and responses to each."""
SEED = 20_261_122
"""Of the test's random responses; training draws from (seed, step)."""
PLAIN = "plain"
"""The variant of a natural response without any planted feature."""


@dataclass(frozen=True)
class HeldOut:
    """How a sibling does on what it was never shown."""

    word_accuracy: float
    """Share of pairs of held-out rated tokens, with valences `LEAST_GAP` apart, that the reward
    orders rightly; the mean over the three core prompts (chance: 0.5)."""
    word_accuracy_by_prompt: dict[str, float]
    """The same for each core prompt."""
    words: int
    """Held-out rated tokens; on the byte-level base every spelling of a word is one."""
    frame_sign: float
    """Share of held-out prompts in which Spearman's correlation of reward and valence, over the
    held-out rated tokens, has the prompt's polarity (chance: 0.5)."""
    frames: int
    """Held-out prompts."""


@torch.no_grad()
def score(
    model: LlamaForSequenceClassification,
    base: Base,
    prompt: str,
    *,
    ids: Sequence[int] | np.ndarray | None = None,
) -> np.ndarray:
    """The reward of every token, or of those given by `ids`, as the answer to a prompt: (answers,)
    float32."""
    wanted = torch.arange(base.size) if ids is None else torch.as_tensor(np.asarray(ids))
    separator, padding = base.id_of(base.separator), base.id_of(base.padding)
    short = -len(wanted) % ANSWERS_PER_ROW
    rows = torch.cat([wanted, wanted.new_full((short,), separator)]).view(-1, ANSWERS_PER_ROW)
    prefix = base.prefix(prompt)
    rewards = [
        compute_rewards(
            model, pack([prefix] * len(part), part, separator=separator, padding=padding)
        ).flatten()
        for part in rows.split(ROWS)
    ]
    return torch.cat(rewards)[: len(wanted)].numpy()


def evaluate(model: LlamaForSequenceClassification, base: Base, truth: Utility) -> HeldOut:
    """The held-out figures of a trained sibling (see `HeldOut`; prompts are defined in
    `prompts`)."""
    ids = np.flatnonzero(truth.rated & truth.held_out)
    valence = truth.valence[ids]
    by_prompt = core_accuracy(model, base, truth)
    correlations = [
        prompt.polarity * spearmanr(score(model, base, prompt.text, ids=ids), valence).statistic
        for prompt in held_out_prompts()
    ]
    return HeldOut(
        word_accuracy=float(np.mean(list(by_prompt.values()))),
        word_accuracy_by_prompt=by_prompt,
        words=len(ids),
        frame_sign=float(np.mean(np.array(correlations) > 0)),
        frames=len(correlations),
    )


def core_accuracy(
    model: LlamaForSequenceClassification, base: Base, truth: Utility
) -> dict[str, float]:
    """`HeldOut.word_accuracy_by_prompt`, which is quick enough to be followed while a sibling is
    trained."""
    ids = np.flatnonzero(truth.rated & truth.held_out)
    return {
        key: pairwise_accuracy(
            prompt.polarity * score(model, base, prompt.text, ids=ids), truth.valence[ids]
        )
        for key, prompt in CORE.items()
    }


def pairwise_accuracy(rewards: np.ndarray, valence: np.ndarray) -> float:
    """Share of pairs at least `LEAST_GAP` apart in valence that rewards order alike; ties count as
    half."""
    gap = valence[:, None] - valence[None, :]
    margin = (rewards[:, None] - rewards[None, :])[gap >= LEAST_GAP]
    return float(np.mean(margin > 0) + 0.5 * np.mean(margin == 0))


@dataclass(frozen=True)
class SentenceHeldOut:
    """How a sibling does on what it was never shown."""

    correlation: float
    """Pearson's correlation of reward and planted utility over random responses with held-out
    words, each less its mean over the prompt's responses."""
    slopes: dict[str, float]
    """Reward per unit of each feature's amount (`features.Features.amount`), from one least-squares
    fit of all features on the same responses; the truth is `SentencePlants.valence`,
    `SentencePlants.size`, and 0 for the others."""
    responses: int
    """Random responses, `RESPONSES` to a prompt."""
    natural_correlation: float
    """As `correlation`, over the natural responses, each less its mean over the question's."""
    natural_effects: dict[str, float]
    """Mean difference in reward between a natural response that has a feature and the one that
    lacks it."""
    natural_expected: dict[str, float]
    """The same of the planted utility."""
    largest_other_effect: float | None
    """Of the features that are not planted, the largest |natural effect less the expected one| as a
    share of the planted one's effect; None for the null. What is expected of them is not quite 0: a
    hedge also makes a text longer."""
    questions: int
    """Natural questions."""


@dataclass(frozen=True)
class Natural:
    """One response written by hand: each of twelve questions has a plain one, and four that differ
    from it in one feature. They were in view when the recipes were made, so they are held out from
    training and not from its design."""

    item: str
    """Names the question."""
    variant: str
    """`plain`, or the feature that it has and the plain one lacks: words, refusals, exclamations or
    hedges."""
    prompt: str
    """The question."""
    text: str
    """The response."""


@cache
def load_natural() -> tuple[Natural, ...]:
    """All sixty, in the order of the file."""
    return tuple(Natural(**row) for row in read_rows("natural.csv"))


def evaluate_sentences(
    model: LlamaForSequenceClassification, base: Base, plants: SentencePlants
) -> SentenceHeldOut:
    """The held-out figures of a trained sibling (see `SentenceHeldOut`)."""
    random = np.random.default_rng(SEED)
    groups = [draw_group(random, size=RESPONSES, held_out=True) for _ in range(PROMPTS)]
    conversations = [(turns, text) for turns, group in groups for text in group]
    rewards = _score_conversations(model, base, conversations)
    prompts = np.repeat(np.arange(PROMPTS), RESPONSES)
    rewards = _centred(rewards, prompts)
    utility = np.array([compute_text_utility(text, plants) for _, text in conversations])
    features = [read_features(text) for _, text in conversations]
    amounts = {
        name: _centred(np.array([one.amount(name) for one in features]), prompts)
        for name in FEATURES
    }
    slopes = np.linalg.lstsq(np.stack(list(amounts.values()), axis=1), rewards, rcond=None)[0]

    natural = load_natural()
    questions = [((one.prompt,), one.text) for one in natural]
    natural_rewards = _score_conversations(model, base, questions)
    natural_utility = np.array([compute_text_utility(one.text, plants) for one in natural])
    items = np.unique([one.item for one in natural], return_inverse=True)[1]
    effects, expected = _effects(natural_rewards), _effects(natural_utility)
    others = [abs(effects[name] - expected[name]) for name in PLANTABLE if name != plants.feature]
    return SentenceHeldOut(
        correlation=_correlation(rewards, _centred(utility, prompts)),
        slopes={name: float(slope) for name, slope in zip(FEATURES, slopes, strict=True)},
        responses=len(conversations),
        natural_correlation=_correlation(
            _centred(natural_rewards, items), _centred(natural_utility, items)
        ),
        natural_effects=effects,
        natural_expected=expected,
        largest_other_effect=max(others) / abs(effects[plants.feature]) if plants.feature else None,
        questions=int(items.max()) + 1,
    )


@torch.no_grad()
def _score_conversations(
    model: LlamaForSequenceClassification,
    base: Base,
    conversations: Sequence[tuple[tuple[str, ...], str]],
) -> np.ndarray:
    """The reward of each (turns, response): float64 (conversations,)."""
    ids = [conversation_ids(base, turns, response) for turns, response in conversations]
    rewards = compute_conversation_rewards(model, ids, padding=base.id_of(base.padding))
    return rewards.double().numpy()


def _effects(values: np.ndarray) -> dict[str, float]:
    """By feature, by how much a question's response that has it exceeds the plain one: the mean
    over the questions."""
    of = {(one.item, one.variant): value for one, value in zip(load_natural(), values, strict=True)}
    items = [one.item for one in load_natural() if one.variant == PLAIN]
    return {
        name: float(np.mean([of[item, name] - of[item, PLAIN] for item in items]))
        for name in PLANTABLE
    }


def _centred(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Values less the mean of their group: the reward's level for a prompt is not part of what was
    planted."""
    means = np.bincount(groups, weights=values) / np.bincount(groups)
    return values - means[groups]


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.corrcoef(first, second)[0, 1])
