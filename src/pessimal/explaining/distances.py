"""Distances of two texts, in words and in meaning (MiniLM's sentence embeddings), and whether
a change stayed where it was meant to be.

Knows texts. Does not know rewards, attributes or who made the change.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from pessimal.tables.minilm import DIMENSIONS, folder
from pessimal.texts import storable

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Span = tuple[int, int]
"""(start, end) in characters, the end not included."""
LONGEST = 256
"""Word pieces read of a text, with both special ones (the model's own `max_seq_length`); what
follows is not seen."""

# Accents and vowel signs that stand as characters of their own belong to their word; `\w` does not
# know them.
_SIGNS = "".join(
    chr(code) for code in range(0x300, 0x2100) if unicodedata.category(chr(code))[0] == "M"
)
# Chinese and Japanese write no spaces: a character is a piece.
_CHARACTERS = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = rf"(?:(?![{_CHARACTERS}])[\w{_SIGNS}])+"
_PIECE = re.compile(rf"\s+|{_WORD}(?:['’]{_WORD})*|[\s\S]")
_DIGITS = 6  # an embedding depends on its batch beyond them
_KNOWN: dict[str, np.ndarray] = {}
"""Vectors of the texts that this process has embedded: distances, diversity and the judge ask for
the same ones."""


def pieces(text: str) -> list[str]:
    """A text cut into words, single marks and runs of white space; joined, they are the text
    again."""
    return _PIECE.findall(text)


def tokens(text: str) -> list[str]:
    """Its words and marks, without white space; case counts."""
    return [piece for piece in pieces(text) if not piece.isspace()]


def syntactic(a: str, b: str) -> float:
    """Levenshtein distance in tokens over the longer text's tokens: 0 for the same words, 1 where
    nothing is kept.

    Two texts without words are at distance 0. White space does not count.
    """
    left, right = tokens(a), tokens(b)
    return levenshtein(left, right) / max(len(left), len(right), 1)


def levenshtein(a: Sequence[str], b: Sequence[str]) -> int:
    """Number of items put in, taken out or replaced to turn one sequence into the other."""
    from rapidfuzz.distance import Levenshtein

    return Levenshtein.distance(*numbered(a, b))


def numbered(*texts: Sequence[str]) -> list[list[int]]:
    """Tokens as numbers: rapidfuzz distinguishes other things by Python's hash, which can
    coincide."""
    numbers: dict[str, int] = {}
    return [[numbers.setdefault(token, len(numbers)) for token in text] for text in texts]


def semantic(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """1 − cosine of both texts' embeddings, from 0 to 2: (n,), to six digits. Exactly 0 for equal
    texts.

    Only the first 256 word pieces of a text are read: a change behind them is not seen.
    """
    vectors = embed([text for pair in pairs for text in pair]).astype(float)
    distances = 1 - np.einsum("ij,ij->i", vectors[::2], vectors[1::2])
    same = np.array([a == b for a, b in pairs], dtype=bool)
    return np.where(same, 0.0, np.round(np.clip(distances, 0, 2), _DIGITS))


def embed(texts: Sequence[str], *, batch_size: int = 64) -> np.ndarray:
    """One vector a text, by MiniLM as sentence-transformers runs it: the mean over its word pieces,
    of length 1.

    A text is run once a process. In another batch a vector differs by less than 1e-6, since a
    matrix product of another shape adds up in another order.

    Args:
        texts: any; a lone surrogate counts as its escape, and an empty text has a vector too.
        batch_size: texts run at once.

    Returns:
        (n, 384) float32.

    Raises:
        InputError: MiniLM's package is missing or its weights are not the upstream ones.

    Source: Reimers & Gurevych 2019; sentence-transformers/all-MiniLM-L6-v2.
    """
    new = [text for text in dict.fromkeys(texts) if text not in _KNOWN]
    if new:
        _KNOWN.update(zip(new, _encoded(new, batch_size=batch_size), strict=True))
    vectors = [_KNOWN[text] for text in texts]
    return np.array(vectors, np.float32).reshape(-1, DIMENSIONS)


def _encoded(texts: Sequence[str], *, batch_size: int) -> np.ndarray:
    """Vectors (n, 384) of different texts, the longest run first: texts of similar length share a
    batch."""
    import torch  # seconds to import

    tokenizer, model = _encoder()
    rows = tokenizer([storable(text) for text in texts], truncation=True, max_length=LONGEST)
    ids = rows["input_ids"]
    order = sorted(range(len(ids)), key=lambda row: (-len(ids[row]), row))
    vectors = np.empty((len(texts), DIMENSIONS), np.float32)
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        padded = tokenizer.pad({"input_ids": [ids[row] for row in batch]}, return_tensors="pt")
        with torch.inference_mode():
            states, mask = model(**padded).last_hidden_state, padded["attention_mask"][..., None]
            means = (states * mask).sum(1) / mask.sum(1)  # (B, T, 384) → (B, 384)
            vectors[batch] = torch.nn.functional.normalize(means, dim=1).numpy()
    return vectors


@cache
def _encoder() -> "tuple[PreTrainedTokenizerBase, PreTrainedModel]":
    """The tokenizer, and the model on the CPU in single precision."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder(), local_files_only=True)
    model = AutoModel.from_pretrained(folder(), local_files_only=True, dtype=torch.float32)
    return tokenizer, model.eval()


def locality(original: str, edited: str, spans: Sequence[Span] | None) -> float:
    """The share of an edit that lies inside the spans that were identified before it.

    The edit is the shortest one in tokens (of several, one chosen by the two texts alone). Every
    original token that it deletes or replaces counts once, and lies inside if it shares a character
    with a span. Every token it inserts counts once, and lies inside if the gap it went into
    (between the ends of its two neighbours) touches a span. NaN where the spans are not known, or
    no token was changed.
    """
    if spans is None:
        return float("nan")
    from rapidfuzz.distance import Levenshtein

    places = [match.span() for match in _PIECE.finditer(original) if not match.group().isspace()]
    inside = []
    for edit in Levenshtein.editops(*numbered(tokens(original), tokens(edited))):
        at = edit.src_pos
        if edit.tag == "insert":
            start = places[at - 1][1] if at else 0
            end = places[at][0] if at < len(places) else len(original)
            inside.append(any(start <= span[1] and span[0] <= end for span in spans))
        else:
            start, end = places[at]
            inside.append(any(start < span[1] and span[0] < end for span in spans))
    return float(np.mean(inside)) if inside else float("nan")
