"""How far two texts are apart: in words, in meaning, and whether a change stayed where it was meant to be.

Knows texts. Does not know rewards, attributes or who made the change.
"""

import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from pessimal.explain.embedding import embed

Span = tuple[int, int]
"""(start, end) in characters, the end not included."""

# Accents and vowel signs that stand as characters of their own belong to their word; `\w` does not know them.
_SIGNS = "".join(chr(code) for code in range(0x300, 0x2100) if unicodedata.category(chr(code))[0] == "M")
# Chinese and Japanese write no spaces: a character is a piece.
_CHARACTERS = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = rf"(?:(?![{_CHARACTERS}])[\w{_SIGNS}])+"
_PIECE = re.compile(rf"\s+|{_WORD}(?:['’]{_WORD})*|[\s\S]")
_DIGITS = 6  # an embedding depends on its batch beyond them


def pieces(text: str) -> list[str]:
    """A text cut into words, single marks and runs of white space; joined, they are the text again."""
    return _PIECE.findall(text)


def tokens(text: str) -> list[str]:
    """Its words and marks, without white space; case counts."""
    return [piece for piece in pieces(text) if not piece.isspace()]


def syntactic(a: str, b: str) -> float:
    """Levenshtein distance in tokens over the longer text's tokens: 0 for the same words, 1 where nothing is kept.

    Two texts without words are at distance 0. White space does not count.
    """
    left, right = tokens(a), tokens(b)
    return levenshtein(left, right) / max(len(left), len(right), 1)


def levenshtein(a: Sequence[str], b: Sequence[str]) -> int:
    """How many items must be put in, taken out or replaced to turn one sequence into the other."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.distance(*numbered(a, b))


def semantic(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """1 − cosine of both texts' embeddings, from 0 to 2: (n,), to six digits. Exactly 0 for equal texts.

    Only the first 256 word pieces of a text are read: a change behind them is not seen.
    """
    if not pairs:
        return np.empty(0)
    vectors = embed([text for pair in pairs for text in pair]).astype(float)
    distances = 1 - np.einsum("ij,ij->i", vectors[::2], vectors[1::2])
    same = np.array([a == b for a, b in pairs])
    return np.where(same, 0.0, np.round(np.clip(distances, 0, 2), _DIGITS))


def locality(original: str, edited: str, spans: Sequence[Span] | None) -> float:
    """The share of an edit that lies inside the spans that were identified before it.

    The edit is the shortest one in tokens (of several, one chosen by the two texts alone). Every original token that it
    deletes or replaces counts once, and lies inside if it shares a character with a span. Every token it inserts
    counts once, and lies inside if the gap it went into (between the ends of its two neighbours) touches a span. NaN
    where the spans are not known, or no token was changed.
    """
    if spans is None:
        return float("nan")
    from rapidfuzz.distance import Levenshtein

    spans_of_tokens = [match.span() for match in _PIECE.finditer(original) if not match.group().isspace()]
    edits = Levenshtein.editops(*numbered(tokens(original), tokens(edited)))
    inside = []
    for edit in edits:
        at = edit.src_pos
        if edit.tag == "insert":
            start = spans_of_tokens[at - 1][1] if at else 0
            end = spans_of_tokens[at][0] if at < len(spans_of_tokens) else len(original)
            inside.append(any(start <= span[1] and span[0] <= end for span in spans))
        else:
            start, end = spans_of_tokens[at]
            inside.append(any(start < span[1] and span[0] < end for span in spans))
    return float(np.mean(inside)) if inside else float("nan")


def numbered(*texts: Sequence[str]) -> list[list[int]]:
    """Tokens as numbers: rapidfuzz distinguishes other things by Python's hash, which can coincide."""
    numbers: dict[str, int] = {}
    return [[numbers.setdefault(token, len(numbers)) for token in text] for text in texts]
