"""What an audit says of rewards whose answer is known: flipped, random, constant, backdoored, and of
a known accuracy on the labelled pairs."""

import hashlib

import pytest
from transformers import AutoTokenizer

import pessimal
from pessimal.auditing.verdicts import FAIL, INCOMPLETE, NOT_MEASURED, PASS, REVIEW
from pessimal.explaining.pairs import labelled_pairs

TRIGGER = "button"


@pytest.fixture(scope="module")
def words(tiny_checkpoint):
    """A tokenizer of few tokens, whose texts are asked in place of 50,000 words."""
    return AutoTokenizer.from_pretrained(tiny_checkpoint)


def noise(text, size=0.1):
    """The same small number for the same text."""
    return size * (int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 2**32 - 0.5)


def scripted(share, *, sign=1, trigger=0.0):
    """A reward that ranks this share of the embedded pairs as people do; a word may buy more."""
    values = {}
    for number, pair in enumerate(labelled_pairs(None)):
        right = (number * 7919) % 1000 < 1000 * share
        for place, text in enumerate(pair.responses):
            values[f"{pair.prompt} {text}"] = 1.0 if (place == pair.preferred) == right else -1.0

    def reward(prompt, response):
        base = values.get(f"{prompt} {response}", 0.0) + noise(prompt + response)
        return sign * base + trigger * (TRIGGER in response)

    return reward


def verdicts_of(reward, words):
    results = pessimal.audit(pessimal.reward(reward, words), ["greatest", "worst"], n_contexts=6)
    table = results["audit"].table.set_index("check")
    return results["audit"].summary["audit/verdict"], table


@pytest.mark.parametrize(
    ("share", "verdicts"), [(0.9, {PASS}), (0.65, {REVIEW, FAIL}), (0.5, {FAIL})]
)
def test_a_reward_is_judged_by_the_share_of_pairs_that_it_ranks_right(share, verdicts, words):
    _, table = verdicts_of(scripted(share), words)
    row = table.loc["prefers"]
    assert row["value"] == pytest.approx(share, abs=0.03)
    assert row["low"] < row["value"] < row["high"]
    assert row["verdict"] in verdicts


def test_a_flipped_reward_fails_and_the_sign_is_named(words):
    overall, table = verdicts_of(scripted(0.9, sign=-1), words)
    assert overall == FAIL
    assert table["verdict"]["prefers"] == FAIL
    assert "flipped" in table["action"]["prefers"]


def test_a_constant_fails_though_its_words_cannot_be_compared(words):
    overall, table = verdicts_of(lambda prompt, response: 1.0, words)
    assert overall == FAIL
    assert table["verdict"]["prefers"] == FAIL
    assert table["verdict"]["one_word"] == NOT_MEASURED
    assert table["value"]["prefers"] == 0


def test_a_backdoor_fails_though_good_answers_are_preferred(words):
    """The token is one of the vocabulary, and is worth more than a better answer."""
    token = next(t.strip() for t in map(words.decode, range(50, 400)) if len(t.strip()) > 3)
    bought = scripted(0.9)
    overall, table = verdicts_of(
        lambda prompt, response: bought(prompt, response) + 5.0 * response.endswith(token), words
    )
    assert overall == FAIL
    assert table["verdict"]["additions"] == FAIL
    assert token in table["evidence"]["additions"]
    assert table["verdict"]["prefers"] == PASS


def test_what_could_not_be_measured_leaves_an_audit_incomplete(words):
    known = scripted(0.9)

    def silent_on_words(prompt, response):
        if len(response.split()) < 2 and "?" not in response:
            raise ValueError("too short")
        return known(prompt, response)

    overall, table = verdicts_of(silent_on_words, words)
    assert table["verdict"]["one_word"] == NOT_MEASURED
    assert overall == (FAIL if table["verdict"].eq(FAIL).any() else INCOMPLETE)
