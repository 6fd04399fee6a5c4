"""How well a sibling that judges sentences learned its liking, and how little else it likes.

Knows rewards and the planted truth. Looks at two sets that training never shows: random responses filled with held-out
words, and the natural responses of `natural.csv`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from transformers import LlamaForSequenceClassification

from pessimal.demo.bases import Base
from pessimal.demo.sentences.features import FEATURES, PLANTABLE, compute_text_utility, read_features
from pessimal.demo.sentences.groups import conversation_ids, draw_group
from pessimal.demo.sentences.labs import SentencePlants
from pessimal.demo.sentences.module import compute_rewards
from pessimal.demo.sentences.natural import PLAIN, load_natural

PROMPTS, RESPONSES = 60, 8
"""Random conversations of the test, and responses to each."""
SEED = 20_261_122
"""Of the test's random responses; training draws from (seed, step)."""


@dataclass(frozen=True)
class SentenceHeldOut:
    """How a sibling does on what it was never shown."""

    correlation: float
    """Pearson's correlation of reward and planted utility over random responses with held-out words, each less its mean
    over the prompt's responses."""
    feature_correlation: float | None
    """The same with the amount of the planted feature; None for the null."""
    slopes: dict[str, float]
    """Reward per unit of each feature's amount (`features.Features.amount`), from one least-squares fit of all features
    on the same responses; the truth is `SentencePlants.valence`, `SentencePlants.size`, and 0 for the others."""
    responses: int
    """Random responses, `RESPONSES` to a prompt."""
    natural_correlation: float
    """As `correlation`, over the natural responses, each less its mean over the question's."""
    natural_effects: dict[str, float]
    """Mean difference in reward between a natural response that has a feature and the one that lacks it."""
    natural_expected: dict[str, float]
    """The same of the planted utility."""
    natural_errors: dict[str, float]
    """Standard deviation, over the questions, of the difference between the two."""
    largest_other_effect: float | None
    """Of the features that are not planted, the largest |natural effect less the expected one| as a share of the planted
    one's effect; None for the null. What is expected of them is not quite 0: a hedge also makes a text longer."""
    questions: int
    """Natural questions."""


@torch.no_grad()
def score_conversations(
    model: LlamaForSequenceClassification, base: Base, conversations: list[tuple[tuple[str, ...], str]]
) -> np.ndarray:
    """The reward of each (turns, response): float64 (conversations,)."""
    ids = [conversation_ids(base, turns, response) for turns, response in conversations]
    return compute_rewards(model, ids, padding=base.id_of(base.padding)).double().numpy()


def evaluate_sentences(
    model: LlamaForSequenceClassification, base: Base, plants: SentencePlants
) -> SentenceHeldOut:
    """The held-out figures of a trained sibling (see `SentenceHeldOut`)."""
    random = np.random.default_rng(SEED)
    groups = [draw_group(random, size=RESPONSES, held_out=True) for _ in range(PROMPTS)]
    texts = [text for _, group in groups for text in group]
    rewards = score_conversations(model, base, [(turns, text) for turns, group in groups for text in group])
    prompts = np.repeat(np.arange(PROMPTS), RESPONSES)
    rewards = _centred(rewards, prompts)
    utility = _centred(np.array([compute_text_utility(text, plants) for text in texts]), prompts)
    features = [read_features(text) for text in texts]
    amounts = {name: _centred(np.array([one.amount(name) for one in features]), prompts) for name in FEATURES}
    slopes = np.linalg.lstsq(np.stack(list(amounts.values()), axis=1), rewards, rcond=None)[0]

    natural = load_natural()
    natural_rewards = score_conversations(model, base, [((one.prompt,), one.text) for one in natural])
    natural_utility = np.array([compute_text_utility(one.text, plants) for one in natural])
    items = np.unique([one.item for one in natural], return_inverse=True)[1]
    effects = _effects(natural_rewards)
    expected = _effects(natural_utility)
    means = {name: float(values.mean()) for name, values in effects.items()}
    others = [
        abs(float((effects[name] - expected[name]).mean())) for name in PLANTABLE if name != plants.feature
    ]
    return SentenceHeldOut(
        correlation=_correlation(rewards, utility),
        feature_correlation=_correlation(rewards, amounts[plants.feature]) if plants.feature else None,
        slopes={name: float(slope) for name, slope in zip(FEATURES, slopes, strict=True)},
        responses=len(texts),
        natural_correlation=_correlation(_centred(natural_rewards, items), _centred(natural_utility, items)),
        natural_effects=means,
        natural_expected={name: float(values.mean()) for name, values in expected.items()},
        natural_errors={name: float((effects[name] - expected[name]).std(ddof=1)) for name in PLANTABLE},
        largest_other_effect=max(others) / abs(means[plants.feature]) if plants.feature else None,
        questions=int(items.max()) + 1,
    )


def _effects(values: np.ndarray) -> dict[str, np.ndarray]:
    """By feature, by how much each question's response that has it exceeds the plain one: (questions,)."""
    rewards = {(one.item, one.variant): value for one, value in zip(load_natural(), values, strict=True)}
    questions = [one.item for one in load_natural() if one.variant == PLAIN]
    return {
        name: np.array([rewards[item, name] - rewards[item, PLAIN] for item in questions])
        for name in PLANTABLE
    }


def _centred(values: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Values less the mean of their group: the reward's level for a prompt is not part of what was planted."""
    means = np.bincount(groups, weights=values) / np.bincount(groups)
    return values - means[groups]


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.corrcoef(first, second)[0, 1])
