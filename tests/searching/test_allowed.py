"""Which tokens pass which filter, and what a line of a list stands for."""

import numpy as np
import pandas as pd
import pytest

from pessimal.errors import ConfigError, InputError
from pessimal.searching.allowed import allowed_tokens, digest, is_word
from pessimal.searching.spec import Filter

# id, spelling, text, kind; id 12 has no token.
ROWS = [
    (0, "<|bos|>", "<|bos|>", "special"),
    (1, "[unused3]", "[unused3]", "unused"),
    (2, "love", "love", "normal"),
    (3, "Ġlove", " love", "normal"),
    (4, "##ing", "##ing", "normal"),
    (5, "7", "7", "normal"),
    (6, "Ã©", "é", "normal"),
    (7, "Ġ愛", " 愛", "normal"),
    (8, "<0xE2>", "\N{REPLACEMENT CHARACTER}", "byte"),
    (9, "Ċ", "\n", "normal"),
    (10, "Ġ", " ", "normal"),
    (11, "x", "", "normal"),
    (13, "Ġhope", " hope", "normal"),
    (14, "ĠĠhope", "  hope", "normal"),
]
SIZE = 16


@pytest.fixture
def rows():
    return pd.DataFrame(ROWS, columns=["candidate_id", "token", "text", "kind"])


@pytest.fixture
def listed(tmp_path):
    def write(text: str):
        path = tmp_path / "tokens.txt"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def ids(mask: np.ndarray) -> list[int]:
    return np.flatnonzero(mask).tolist()


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14]),
        ([Filter.no_special], [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14]),
        ([Filter.ascii], [0, 1, 2, 3, 4, 5, 10, 13, 14]),
        ([Filter.words], [2, 3, 6, 7, 13]),
        ([Filter.no_special, Filter.ascii], [2, 3, 4, 5, 10, 13, 14]),
        ([Filter.ascii, Filter.words], [2, 3, 13]),
    ],
)
def test_filters_hold_together(rows, filters, expected):
    mask = allowed_tokens(rows, filters, size=SIZE)
    assert mask.shape == (SIZE,)
    assert ids(mask) == expected


def test_words_are_letters_of_any_script():
    assert all(map(is_word, ["love", " Love", "▁love", "Größe", " 愛", "любовь", "किताब", "حب"]))
    no_words = ["", " ", "  love", "love ", "##ing", "don't", "a1", "\u0301a", "-", "love\n", "²"]
    assert not any(map(is_word, no_words))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("love", [2, 3]),  # the word, wherever it stands
        (" love", [3]),  # its own space makes the difference
        (" hope", [13]),
        ("id:2", [2]),
        ("7", [5]),  # the token whose text is 7, never the id
        ("id:7", [7]),
        ("é", [6]),
        ("Ã©", [6]),  # as the vocabulary writes it
        ("##ing", [4]),
        (" ", [10]),
        ("Ġhope\nlove\n\nlove\n", [2, 3, 13]),
        ("hope\r\nid:9\r\n", [9, 13]),
        ("\ufeffhope", [13]),  # a byte order mark is no part of it
    ],
)
def test_a_line_stands_for_a_text_a_spelling_or_an_id(rows, listed, lines, expected):
    assert ids(allowed_tokens(rows, [], size=SIZE, listed=listed(lines))) == expected


def test_a_text_comes_before_another_tokens_spelling(rows, listed):
    rows.loc[len(rows)] = (15, "ÃĥÂ©", "Ã©", "normal")
    assert ids(allowed_tokens(rows, [], size=SIZE, listed=listed("Ã©"))) == [15]


def test_listed_tokens_must_pass_the_filters_and_it_is_said_where_some_do_not(rows, listed, caplog):
    mask = allowed_tokens(rows, [Filter.no_special], size=SIZE, listed=listed("love\nid:0"))
    assert ids(mask) == [2, 3]
    assert "1 of 3 tokens" in caplog.text
    assert "search.allowed=[]" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("love\nhatred\nid:12", r"2 of 3 lines .*'hatred', 'id:12'.*id:1234"),
        ("", "holds no tokens"),
        ("\n\n", "holds no tokens"),
        ("é".encode("latin-1"), "cannot be read"),
        (None, "cannot be read"),
    ],
)
def test_lists_that_cannot_be_used(rows, tmp_path, content, message):
    path = tmp_path / "tokens.txt"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        allowed_tokens(rows, [], size=SIZE, listed=path)


def test_filters_that_leave_nothing_are_named(rows, listed):
    with pytest.raises(ConfigError, match=r"search\.allowed=\[words\] .*search\.allowed=\[\]"):
        allowed_tokens(rows, [Filter.words], size=SIZE, listed=listed("7"))
    with pytest.raises(ConfigError, match=r"none of 2 tokens"):
        allowed_tokens(rows[:2], [Filter.no_special], size=SIZE)


def test_digest_names_the_set_and_nothing_else(rows):
    mask = allowed_tokens(rows, [Filter.words], size=SIZE)
    other = mask.copy()
    other[0] = True
    assert (
        digest(mask)
        == digest(allowed_tokens(rows, [Filter.words], size=SIZE + 64))
        != digest(other)
    )
    assert len(digest(mask)) == 16
