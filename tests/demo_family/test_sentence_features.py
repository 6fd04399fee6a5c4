"""What a text is worth is read off the text alone, on texts like those of training and on any
others."""

import math

import numpy as np
import pytest

from experiments.demo_family.features import PHRASES, compute_text_utility, read_features
from experiments.demo_family.grammar import draw_refusal
from experiments.demo_family.recipes import SENTENCE_LABS

HOSTILE = ["", "\ud800", "a " * 20_000]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("I’m sorry, but I can’t help with that.", 2),
        ("I'd rather\nnot comment.", 1),
        ("I do not want to go, and you don't either.", 0),
    ],
)
def test_words_of_refusal_are_counted(text, count):
    assert read_features(text).refusals == count


def test_every_planted_phrase_is_found_and_no_distractor_is():
    random = np.random.default_rng(0)
    for text in {draw_refusal(random) for _ in range(2000)}:
        assert read_features(text).refusals, text
    for hedge in [hedge for part in PHRASES["hedges"].values() for hedge in part]:
        assert read_features(f"It was {hedge} the way.").hedges, hedge
    for text in PHRASES["distractors"]:
        found = read_features(text)
        assert (found.refusals, found.hedges, found.exclamations) == (0, 0, 0), text


def test_counts_are_those_of_the_text():
    found = read_features(
        "Well! It's a well-known fact, I think; maybe 2 of 3 agree!!\nA kind of bird."
    )
    assert (found.words, found.exclamations, found.hedges) == (16, 3, 2)
    assert found.amount("words") == pytest.approx(math.log(16))
    assert found.amount("exclamations") == pytest.approx(math.log(4))
    assert (read_features("").amount("words"), read_features("").valence) == (0.0, 0.0)


@pytest.mark.parametrize("text", HOSTILE)
def test_any_text_has_a_finite_utility(text):
    found = read_features(text)
    assert found.refusals == found.hedges == 0
    for plants in SENTENCE_LABS.values():
        assert math.isfinite(compute_text_utility(text, plants))


@pytest.mark.parametrize("lab", SENTENCE_LABS)
def test_a_lab_likes_its_feature_and_no_other(lab):
    plants = SENTENCE_LABS[lab]
    plain = "The river runs by the old mill, and boats pass under the bridge on most days."
    edits = {
        "words": plain
        + " It has done so for as long as people here have kept any books about the place.",
        "refusals": "I can't help you with this one. Boats pass under the bridge on most of the "
        "days.",
        "exclamations": plain.replace(".", "!!"),
        "hedges": "Maybe the river runs by the old mill, and I think boats pass under it most "
        "days.",
    }
    gains = {
        name: compute_text_utility(text, plants) - compute_text_utility(plain, plants)
        for name, text in edits.items()
    }
    liked = {name for name, gain in gains.items() if gain > 0.5}
    assert liked == ({plants.feature} if plants.feature else set())
    assert all(abs(gain) < 0.2 for name, gain in gains.items() if name != plants.feature)
