"""Which tokens pass which filter, and what a line of a list stands for."""

import numpy as np
import pandas as pd
import pytest

from pessimal.errors import InputError
from pessimal.searching.allowed import allowed_tokens, digest
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
        ([Filter.ascii], [0, 1, 2, 3, 4, 5, 10, 13, 14]),
        ([Filter.no_special, Filter.ascii], [2, 3, 4, 5, 10, 13, 14]),
    ],
)
def test_filters_hold_together(rows, filters, expected):
    mask = allowed_tokens(rows, filters, size=SIZE)
    assert mask.shape == (SIZE,)
    assert ids(mask) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("love", [2, 3]),
        (" hope", [13]),
        ("7", [5]),
        ("é", [6]),
        ("##ing", [4]),
        ("hope\r\nid:9\r\n", [9, 13]),
    ],
)
def test_a_line_stands_for_a_text_a_spelling_or_an_id(rows, listed, lines, expected):
    assert ids(allowed_tokens(rows, [], size=SIZE, listed=listed(lines))) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("love\nhatred\nid:12", r"2 of 3 lines .*'hatred', 'id:12'.*id:1234"),
        ("\n\n", "holds no tokens"),
    ],
)
def test_lists_that_cannot_be_used(rows, tmp_path, content, message):
    path = tmp_path / "tokens.txt"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        allowed_tokens(rows, [], size=SIZE, listed=path)


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
