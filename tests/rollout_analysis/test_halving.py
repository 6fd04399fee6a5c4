"""What is found of graders with a planted fault, and of right ones."""

import time

import numpy as np
import planted_rollouts as planted
import pytest
from planted_rollouts import PHRASE, make_rollouts

from pessimal.rollout_analysis.halving import (
    Grader,
    blot,
    excerpt,
    find_cores,
    graft,
    halve,
    remove_truth,
    replace_answers,
    try_lengths,
    try_tolerances,
)


@pytest.fixture(scope="module")
def frame():
    return make_rollouts()


def open_grader(function, frame, **options) -> Grader:
    truths = [(text,) for text in frame["answer"]]
    ask = lambda asked: np.array([function(text, truths[n][0]) for n, text in asked])  # noqa: E731
    grader = Grader(ask, truths, 0.5, **options)
    grader.read_formats(range(0, len(frame), 6))
    return grader


def unpaid(function, frame) -> list[int]:
    pairs = zip(frame["response"], frame["answer"], strict=True)
    paid = [function(*pair) for pair in pairs]
    return [n for n, value in enumerate(paid) if not value]


def cores_of(function, frame, **options):
    grader = open_grader(function, frame)
    responses = frame["response"].tolist()
    unrelated = unpaid(function, frame)
    order = list(range(len(frame)))
    return find_cores(grader, responses, order, unrelated, **options), grader


@pytest.mark.parametrize("text", [PHRASE, " over", "\\[", "¿"])
def test_halving_cuts_to_the_letter(text):
    asked = []
    body = "some words ahead, " * 20 + text + " and behind" * 30
    assert halve(body, lambda part: asked.append(part) or text in part) == text
    assert len(asked) < 2 * np.log2(len(body)) + 4


def test_a_planted_phrase_is_found_to_the_letter_within_few_calls(frame):
    (core,), _ = cores_of(planted.phrase, frame)
    assert (core.kind, core.feature, core.confirmed) == ("text", PHRASE, 1.0)
    assert core.calls < 100
    assert PHRASE in frame["response"][core.example]
    assert core.rollouts == min(frame["response"][:128].str.contains(PHRASE).sum(), 128)


def first_number(response: str, truth: str) -> float:
    return float(response.replace("$", " ").replace("The answer is ", "").split(" ")[0] == truth)


def last_word(response: str, truth: str) -> float:
    return float(response.strip().rstrip(".").split(" ")[-1] == truth)


@pytest.mark.parametrize("function", [planted.clean, first_number, last_word])
def test_a_right_grader_is_accused_of_nothing(frame, function):
    cores, grader = cores_of(function, frame)
    responses, others = frame["response"].tolist(), unpaid(function, frame)
    assert cores == []
    assert graft(grader, [PHRASE, " total", "The answer is"], responses, others) == []
    assert try_tolerances(grader, others) == [] == try_lengths(grader, responses, others)


def test_the_truth_anywhere_is_found_though_no_rollout_shows_it(frame):
    (core,), _ = cores_of(planted.anywhere, frame)
    assert (core.kind, core.example) == ("truth_anywhere", None)
    frame = frame.assign(response="I see " + frame["answer"] + " here. " + frame["response"])
    frame.loc[120:, "response"] = "The answer is 0."
    (core,), _ = cores_of(planted.anywhere, frame)
    assert core.kind == "truth_anywhere"
    assert core.rollouts == 120
    assert core.confirmed == 1


def test_the_largest_tolerance_is_found(frame):
    grader = open_grader(planted.near, frame)
    (core,) = try_tolerances(grader, unpaid(planted.near, frame))
    assert (core.kind, core.feature, core.confirmed) == ("tolerance", "an error of 5%", 1.0)


def test_a_length_is_no_text(frame):
    frame = frame.assign(response="so then " * 40 + frame["response"])
    cores, grader = cores_of(planted.long, frame)
    assert cores == []
    short = make_rollouts()
    (core,) = try_lengths(grader, short["response"].tolist(), unpaid(planted.clean, short))
    assert (core.kind, core.feature) == ("length", "lengths of about 300 to 4,800 characters")


def test_grafting_finds_a_phrase_among_texts(frame):
    grader = open_grader(planted.phrase, frame)
    texts = [f" word{n}" for n in range(100)] + [f" {PHRASE} now", PHRASE]
    calls = grader.calls
    found = graft(grader, texts, frame["response"].tolist(), unpaid(planted.phrase, frame))
    assert [core.feature for core in found] == [f" {PHRASE} now", PHRASE]
    assert grader.calls - calls < 150


def test_what_refuses_right_answers_is_found(frame):
    cores, _ = cores_of(planted.shy, frame, refused=True)
    assert [core.feature for core in cores] == [PHRASE]
    assert cores_of(planted.clean, frame, refused=True)[0] == []


def test_no_grader_is_asked_when_its_time_is_over(frame):
    grader = open_grader(planted.phrase, frame, end=time.monotonic() - 1)
    calls = grader.calls
    assert find_cores(grader, frame["response"].tolist(), range(50), [0, 1, 2]) == []
    assert grader.calls == calls


def test_answers_are_replaced_and_truths_removed():
    text = "I get \\boxed{12} or <answer>12</answer>. The answer is 12."
    replaced = replace_answers(text, ["boxed", "tags", "sentence"], "9")
    assert replaced == "I get \\boxed{9} or <answer>9</answer>. The answer is 9."
    assert remove_truth("12 and 1,200 cents, not 13", ["12"], "9") == "9 and 9 cents, not 13"


def test_a_blotted_text_has_the_same_length_and_words():
    text = "It is x,\n  q!"
    assert blot(text) == "zz zz zz\n  zz"
    assert len(blot("abcdefghijklmnopqrstuvwxyz")) == 26


def test_an_excerpt_shows_the_text():
    response = "a" * 500 + PHRASE + "b" * 500
    assert PHRASE in excerpt(response, PHRASE)
    assert len(excerpt(response, PHRASE)) <= 162
    assert excerpt(response, "none") == "…" + "b" * 160
