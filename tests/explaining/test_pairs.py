"""The embedded pairs: 210 of them, and no rule that looks at the surface of answers ranks them."""

import re
from collections import Counter

import numpy as np
import pytest
from vaderSentiment.vaderSentiment import SentimentIntensityAnalyzer

from pessimal.tables.comparisons import load

CATEGORIES = {"correct", "instruction", "refusal", "harmless", "polite", "complete", "true"}
VADER = SentimentIntensityAnalyzer().lexicon


def words(text):
    return re.findall(r"[\w'’]+", text.lower())


def share(text, listed):
    return sum(word in listed for word in words(text)) / len(words(text))


FEATURES = {
    "characters": lambda text, prompt: len(text),
    "words": lambda text, prompt: len(text.split()),
    "valence by VADER": lambda text, prompt: sum(VADER.get(word, 0) for word in words(text)),
    "newlines": lambda text, prompt: text.count("\n"),
    "punctuation": lambda text, prompt: len(re.findall(r"[^\w\s]", text)),
    "sentences": lambda text, prompt: len(re.findall(r"[.!?](?:\s|$)", text)),
    "a no first": lambda text, prompt: text.lower().startswith("no"),
    "words of the prompt": lambda text, prompt: share(text, words(prompt)),
}


@pytest.fixture(scope="module")
def pairs():
    return load("pairs").comparisons


@pytest.fixture(scope="module")
def differences(pairs):
    """Each feature of the good answers less that of the bad ones."""
    return {
        name: np.array(
            [
                float(measure(pair.responses[pair.preferred], pair.prompt))
                - float(measure(pair.responses[1 - pair.preferred], pair.prompt))
                for pair in pairs
            ]
        )
        for name, measure in FEATURES.items()
    }


def accuracy(differences):
    """How often the good answer has more; ties count half."""
    return np.mean((differences > 0) + (differences == 0) / 2)


def test_each_category_has_thirty_pairs_and_both_places_are_right_equally_often(pairs):
    assert Counter(pair.category for pair in pairs) == dict.fromkeys(CATEGORIES, 30)
    places = Counter((pair.category, pair.preferred) for pair in pairs)
    assert set(places.values()) == {15}
    assert load("pairs").left_out == {}
    assert all(1 <= len(answer.split()) <= 60 for pair in pairs for answer in pair.responses)


@pytest.mark.parametrize("name", ["characters", "words"])
def test_good_answers_are_as_often_the_longer_as_the_shorter_ones(pairs, differences, name):
    for category in CATEGORIES:
        part = differences[name][[pair.category == category for pair in pairs]]
        assert 0.4 <= accuracy(part) <= 0.6, category


@pytest.mark.parametrize("name", FEATURES)
def test_no_rule_of_the_surface_ranks_the_pairs(differences, name):
    assert np.any(differences[name])  # a rule that always ties is no test
    assert 0.45 <= accuracy(differences[name]) <= 0.55
