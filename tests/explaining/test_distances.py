"""Distances between texts, and where an edit lies."""

import numpy as np
import pytest

from pessimal.explaining import distances
from pessimal.explaining.distances import embed, locality, pieces, semantic, syntactic
from pessimal.tables.minilm import folder
from tolerance import close

HOSTILE = [
    "",
    " \n\t ",
    "\ud800 half",
    "nul\x00l",
    "“Isn’t it?” — naïve cafe\u0301 हिन्दी 漢字 🙂👩‍👩‍👧",
    "a\r\nb\u2028c\x1dd",
    "x" * 10_000,
]


def test_syntactic_distance_is_levenshtein_over_the_longer():
    assert syntactic("the cat sat", "the dog sat down") == 2 / 4
    assert syntactic("a b", "b a") == 1.0
    assert syntactic("a b c", "a b c") == 0.0
    assert syntactic("", "a b") == 1.0
    assert syntactic("", " ") == syntactic("a  b\n", "a b") == 0.0
    assert syntactic("A b", "a b") == 0.5


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_have_distances(text):
    assert "".join(pieces(text)) == text
    assert syntactic(text, text) == 0
    assert close(np.linalg.norm(embed([text])), 1)
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


def test_locality_counts_changed_tokens_inside_the_spans():
    original = "The bad cat sat on the old mat."
    assert locality(original, "The good cat sat on the old mat.", [(4, 7)]) == 1.0
    assert locality(original, "The good cat sat on the new mat.", [(4, 7)]) == 0.5
    assert locality(original, "The good cat sat on the new mat.", [(4, 7), (23, 26)]) == 1.0
    assert locality(original, "The cat sat on the mat.", [(4, 7)]) == 0.5
    assert locality(original, "The good cat sat on the old mat.", []) == 0.0


TEXTS = [
    "The cat sat on the mat.",
    "A Dog barked; nobody cared!",
    "word number 7 " * 200,
    "日本語 und Größe, naïve café 🙂",
    "null \x00 byte <script>alert(1)</script>",
    "  spaced\t out \n\n",
]


def afresh(texts, **options):
    """As a process that has embedded nothing yet would."""
    distances._KNOWN.clear()
    return embed(texts, **options)


@pytest.fixture(scope="module")
def upstream():
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(folder()), device="cpu")
    return model.encode(TEXTS, normalize_embeddings=True)


def test_the_vectors_are_those_of_sentence_transformers(upstream):
    assert close(afresh(TEXTS), upstream)


def test_a_vector_hardly_depends_on_its_batch_and_not_on_its_place():
    alone = np.vstack([afresh([text]) for text in TEXTS])
    together = afresh([*TEXTS, *reversed(TEXTS)], batch_size=4)
    assert close(together[:6], alone)
    np.testing.assert_array_equal(together[:6], together[:5:-1])
