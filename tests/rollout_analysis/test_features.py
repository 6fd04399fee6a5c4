"""Features against a naive count."""

import numpy as np
import pandas as pd
import pytest
from planted_rollouts import PHRASE, make_rollouts

from pessimal.rollout_analysis import features as module
from pessimal.rollout_analysis.features import (
    LONGEST,
    MIN_PROMPTS,
    PIECE,
    grade_answers,
    load_features,
    make_features,
    measure_shape,
    own_answer,
    save_features,
)


def grams(text: str) -> set[str]:
    """All n-grams of one text."""
    parts = PIECE.findall(text)
    return {
        "".join(parts[at : at + size])
        for size in range(1, LONGEST + 1)
        for at in range(len(parts) - size + 1)
    }


def count_naively(responses, groups) -> dict[str, frozenset[int]]:
    """By text: the responses that have it, of frequent ones."""
    supports: dict[str, set[int]] = {}
    for number, text in enumerate(responses):
        for gram in grams(text):
            supports.setdefault(gram, set()).add(number)
    return {
        gram: frozenset(rows)
        for gram, rows in supports.items()
        if len(rows) >= 5
        and len({groups[row] for row in rows}) >= MIN_PROMPTS
        and len(rows) <= 0.98 * len(responses)
    }


@pytest.fixture(scope="module")
def sample():
    frame = make_rollouts()
    frame["response"] += ["好的 🎉" if n % 3 == 0 else "" for n in range(len(frame))]
    groups = np.repeat(np.arange(40), 6)
    return frame, groups, make_features(frame["response"], frame["prompt"], groups)


@pytest.mark.parametrize("sorted_keys", [8_000_000, 500])
def test_ngrams_have_the_supports_of_a_naive_count(sample, monkeypatch, sorted_keys):
    frame, groups, _ = sample
    monkeypatch.setattr(module, "MAX_SORTED", sorted_keys)  # in one part, and in several
    result = make_features(frame["response"], frame["prompt"], groups)
    naive = count_naively(frame["response"], groups)
    supports = {}
    for index, feature in enumerate(result.features[: result.flags]):
        rows = frozenset(np.flatnonzero(result.values(index)).tolist())
        assert len(rows) == result.counts[index]
        assert rows not in supports, "equal supports are one feature"
        supports[rows] = feature
        if feature.kind == "text":
            same = [gram for gram, has in naive.items() if has == rows]
            assert feature.name in same
            assert len(feature.name) == max(map(len, same))
            assert set(feature.aliases) <= set(same)
    assert set(naive.values()) <= set(supports)
    assert any(PHRASE in feature.name for feature in supports.values())
    merged = [text for feature in supports.values() for text in (feature.name, *feature.aliases)]
    assert any("好的" in text for text in merged)


def test_a_phrase_of_equal_support_goes_by_its_longest_text(sample):
    _, _, result = sample
    whole = next(f for f in result.features if f.kind == "text" and PHRASE in f.name)
    assert whole.name == f" {PHRASE}"
    assert " verify" in whole.aliases


def test_what_is_in_nearly_all_or_in_few_prompts_is_left_out_and_counted(sample):
    frame, groups, result = sample
    names = {feature.name for feature in result.features if feature.kind == "text"}
    assert " The answer is" not in names
    assert result.left_out["in nearly all responses"] >= 5
    one_prompt = [text + " zebra" * (n < 6) for n, text in enumerate(frame["response"])]
    result = make_features(one_prompt, frame["prompt"], groups)
    assert not any("zebra" in feature.name for feature in result.features)
    assert result.left_out["in too few responses or prompts"] > 0


def test_likeness_is_jaccards(sample):
    _, _, result = sample
    a, b = (result.values(index).astype(bool) for index in (0, 1))
    assert result.likeness(0)[1] == pytest.approx((a & b).sum() / (a | b).sum())
    assert result.likeness(0)[0] == pytest.approx(1)


def test_bins_of_lengths_hold_the_responses_that_their_names_say(sample):
    frame, _, result = sample
    lengths = frame["response"].str.len()
    bins = [
        (index, feature.name.split()[0:3:2])
        for index, feature in enumerate(result.features[: result.flags])
        if feature.name.endswith(" characters") and " to " in feature.name
    ]
    assert len(bins) > 20
    for index, (low, high) in bins:
        inside = lengths[result.values(index) > 0]
        assert inside.min() >= float(low) - 0.1
        assert inside.max() <= float(high) + 0.1


def test_features_are_read_as_they_were_saved(sample, tmp_path):
    _, _, result = sample
    assert load_features(tmp_path) is None
    save_features(result, tmp_path)
    again = load_features(tmp_path)
    assert again.features == result.features
    assert again.left_out == result.left_out
    assert (again.matrix != result.matrix).nnz == 0
    pd.testing.assert_frame_equal(again.numbers, result.numbers)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"First \boxed{3}, no, \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        ("<answer> Paris </answer> It is 7.", "Paris"),
        ("It is 12.\n#### 1,200", "1,200"),
        ("The answer is **42**.", "42"),
        ("I take 3 and get -4.5", "-4.5"),
        ("I cannot say.", ""),
    ],
)
def test_the_own_answer_is_the_last_one_in_a_format(response, answer):
    assert own_answer(response) == answer


def test_answers_are_graded_by_value_with_their_relative_error():
    texts = ["The answer is 110.", "The answer is 100.0", "Nothing.", "#### 90", "5", "#### -90"]
    truths = [("100",), ("100",), ("100",), ("100",), (), ("-100",)]
    right, errors = grade_answers(texts, truths)
    np.testing.assert_array_equal(right, [0, 1, np.nan, 0, np.nan, 0])
    np.testing.assert_allclose(errors, [0.1, 0, np.nan, -0.1, np.nan, 0.1])  # too large is above


def test_a_fraction_of_latex_has_its_own_relative_error():
    _, errors = grade_answers([r"\boxed{\frac{1}{2}}", r"\boxed{2\pi}"], [("0.5",), (r"2\pi",)])
    np.testing.assert_array_equal(errors, [0, np.nan])


def test_answers_in_words_without_a_format_are_graded_by_the_end():
    texts = ["So it is paris.", "So it is Rome.", "Paris is far from here.", "", "I know."]
    truths = [("Paris",)] * 4 + [("7",)]
    np.testing.assert_array_equal(grade_answers(texts, truths)[0], [1, 0, *[np.nan] * 3])


def test_shapes_are_counted():
    shape = measure_shape("# Head\n- **one** `x`\nSorry, I think? 🎉 a b a b", "one two")
    expected = {"lines": 3, "headers": 1, "list items": 1, "bold": 1, "code": 1, "questions": 1}
    expected |= {"emoji": 1, "apologies": 1, "first person": 1, "cut off": 1}
    assert {name: shape[name] for name in expected} == expected
    assert measure_shape("Done.", "")["cut off"] == 0 == measure_shape("", "")["words"]
    assert measure_shape("a b a b", "")["repeated word pairs"] == pytest.approx(1 / 3)


def test_tokens_are_pieces_and_their_number_a_length(sample):
    frame, groups, _ = sample

    def tokenize(text):  # three characters a token, of which 好 is two tokens
        ends = sorted([*range(0, len(text), 3), *(n for n, c in enumerate(text) if c == "好")])
        return [(start, start + 3) for start in ends]

    result = make_features(frame["response"], frame["prompt"], groups, tokenize=tokenize)
    texts = {feature.name for feature in result.features if feature.kind == "text"}
    assert texts
    for text in [*texts][:50]:
        rows = result.values([f.name for f in result.features].index(text)).astype(bool)
        assert all(text in response for response in frame["response"][rows])
    tokens = 2 ** result.numbers["tokens"] - 1
    assert tokens.round().tolist() == [len(tokenize(text)) for text in frame["response"]]


def test_an_exact_answer_is_a_feature_by_its_own_name(sample):
    frame, groups, _ = sample
    _, errors = grade_answers(frame["response"], [(text,) for text in frame["answer"]])
    result = make_features(frame["response"], frame["prompt"], groups, errors=errors)
    at = [feature.name for feature in result.features].index("the right number")
    assert (result.values(at) == (errors == 0)).all()
