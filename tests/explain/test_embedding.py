"""Sentence embeddings: upstream's numbers, for any text, whatever else is asked."""

import numpy as np
import pytest

from pessimal.demo.minilm import folder
from pessimal.explain import embedding
from pessimal.explain.embedding import embed

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
    embedding._KNOWN.clear()
    return embed(texts, **options)


@pytest.fixture(scope="module")
def upstream():
    sentence_transformers = pytest.importorskip("sentence_transformers")
    model = sentence_transformers.SentenceTransformer(str(folder()), device="cpu")
    return model.encode(TEXTS, normalize_embeddings=True)


def test_the_vectors_are_those_of_sentence_transformers(upstream):
    np.testing.assert_allclose(afresh(TEXTS), upstream, atol=2e-6)


def test_what_follows_256_word_pieces_is_not_seen():
    start = "word " * 254  # and both special pieces
    same, seen = embed([start, start + "entirely other ending"]), embed(["word " * 253 + "ending", start])
    np.testing.assert_allclose(same[0], same[1], atol=1e-6)
    assert np.abs(seen[0] - seen[1]).max() > 1e-4


def test_vectors_have_length_one_whatever_the_text():
    hostile = ["", "   ", "\ud800", "\x00", "🙂" * 50, "a" * 5000, "!!!"]
    vectors = embed(hostile)
    assert vectors.shape == (7, 384)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_vector_hardly_depends_on_its_batch_and_not_on_its_place():
    alone = np.vstack([afresh([text]) for text in TEXTS])
    together = afresh([*TEXTS, *reversed(TEXTS)], batch_size=4)
    np.testing.assert_allclose(together[:6], alone, atol=1e-6)
    np.testing.assert_array_equal(together[:6], together[:5:-1])


def test_the_same_call_gives_the_same_bits():
    np.testing.assert_array_equal(afresh(TEXTS), afresh(TEXTS))


def test_a_text_is_run_once(monkeypatch):
    before = afresh(TEXTS[:3])
    run, encode = [], embedding._encoded
    monkeypatch.setattr(
        embedding, "_encoded", lambda texts, **options: run.extend(texts) or encode(texts, **options)
    )
    after = embed([*TEXTS[:3], TEXTS[3], TEXTS[3]])
    assert run == [TEXTS[3]]
    np.testing.assert_array_equal(after[:3], before)


def test_no_texts_give_no_rows():
    assert embed([]).shape == (0, 384)


def test_torch_is_loaded_only_when_something_is_embedded(loaded_by):
    assert (
        loaded_by(["pessimal.explain.embedding", "pessimal.explain.judge"], ["torch", "transformers"]) == "[]"
    )
