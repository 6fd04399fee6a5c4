"""Distances between texts, and where an edit lies."""

import math

import numpy as np
import pytest

from pessimal.explain.distances import diversity, locality, pieces, semantic, syntactic, tokens

HOSTILE = [
    "",
    " \n\t ",
    "\ud800 half",
    "nul\x00l",
    "<script>alert('x')</script>",
    "“Isn’t it?” — naïve cafe\u0301 हिन्दी 漢字 🙂👩‍👩‍👧",
    "a\r\nb\u2028c\x1dd",
    "x" * 10_000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_the_pieces_are_the_text_again(text):
    assert "".join(pieces(text)) == text


def test_words_and_marks_are_apart_and_spaces_are_no_tokens():
    assert tokens("It isn't  so-so, “no”!") == ["It", "isn't", "so", "-", "so", ",", "“", "no", "”", "!"]


def test_signs_stay_with_their_word_and_unspaced_scripts_are_cut_into_characters():
    assert tokens("cafe\u0301 हिन्दी 漢字") == ["cafe\u0301", "हिन्दी", "漢", "字"]


def test_syntactic_distance_is_levenshtein_over_the_longer():
    assert syntactic("the cat sat", "the dog sat down") == 2 / 4
    assert syntactic("a b", "b a") == 1.0
    assert syntactic("a b c", "a b c") == 0.0
    assert syntactic("", "a b") == 1.0
    assert syntactic("", " ") == 0.0


def test_syntactic_distance_sees_case_and_no_white_space():
    assert syntactic("a  b\n", "a b") == 0.0
    assert syntactic("A b", "a b") == 0.5


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_have_distances(text):
    assert syntactic(text, text) == 0
    assert 0 <= syntactic(text, "some other text") <= 1
    assert 0 <= semantic([(text, "some other text")])[0] <= 2


def test_semantic_distance_follows_meaning_and_is_zero_only_for_equal_texts():
    near, far, same = semantic(
        [
            ("The film was great.", "The movie was excellent."),
            ("The film was great.", "Pour the milk into the flour."),
            ("The film was great.", "The film was great."),
        ]
    )
    assert same == 0.0
    assert 0 < near < 0.4 < far


def test_semantic_distance_does_not_depend_on_what_else_is_asked():
    pair = ("A short answer.", "A rather longer answer, as it happens.")
    among = semantic([("x " * 300, "y"), pair, ("", "z")])
    assert semantic([pair])[0] == pytest.approx(among[1], abs=1.01e-6)
    assert semantic([]).shape == (0,)


def test_diversity_is_the_mean_over_all_pairs():
    found = diversity(["a b", "a c", "a b"])
    assert found.n == 3
    assert found.syntactic == pytest.approx((0.5 + 0 + 0.5) / 3)
    assert found.semantic == pytest.approx(
        np.mean(semantic([("a b", "a c"), ("a b", "a b"), ("a c", "a b")]))
    )
    assert all(math.isnan(value) for value in diversity(["alone"])[:2])
    assert all(math.isnan(value) for value in diversity([])[:2])


def test_locality_counts_changed_tokens_inside_the_spans():
    original = "The bad cat sat on the old mat."
    assert locality(original, "The good cat sat on the old mat.", [(4, 7)]) == 1.0
    assert locality(original, "The good cat sat on the new mat.", [(4, 7)]) == 0.5
    assert locality(original, "The good cat sat on the new mat.", [(4, 7), (23, 26)]) == 1.0
    assert locality(original, "The cat sat on the mat.", [(4, 7)]) == 0.5
    assert locality(original, "The good cat sat on the old mat.", []) == 0.0


def test_an_insertion_counts_at_the_border_it_touches():
    assert locality("a bad cat", "a very bad cat", [(2, 5)]) == 1.0
    assert locality("a bad cat", "a bad old cat", [(2, 5)]) == 1.0
    assert locality("a bad cat sat", "a bad cat sat down now", [(2, 5)]) == 0.0
    assert locality("a bad cat", "well a bad cat here", [(0, 1)]) == 0.5
    assert locality("", "new text", [(0, 0)]) == 1.0


def test_locality_is_unknown_without_spans_or_changes():
    assert math.isnan(locality("a", "b", None))
    assert math.isnan(locality("a b", "a  b", [(0, 3)]))
