"""Which tokens a response may be made of: a mask over ids, from filters and from a file of tokens.

Knows a vocabulary's rows (id, spelling, text, kind). Does not know tokenizers, models or whole
responses.
"""

import hashlib
import logging
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal.errors import ConfigError, InputError
from pessimal.searching.spec import Filter

log = logging.getLogger(__name__)

_HOW_TO_WRITE = (
    "Write one token a line: as it is decoded (love stands for 'love' and for ' love', a line that "
    "begins with a space for that alone), as the vocabulary writes it (Ġlove, ##ing), or as its id "
    "(id:1234)"
)
_SHOWN = 5


def allowed_tokens(
    rows: pd.DataFrame, filters: Sequence[Filter], *, size: int, listed: Path | None = None
) -> np.ndarray:
    """bool (size,): the tokens that pass every filter and, where a file of tokens is given, are
    `listed` in it.

    Args:
        rows: candidate_id, token, text, kind, as `scoring.candidates.vocabulary` gives them.
        size: rows of the embedding; ids without a row in `rows` (padding) are never allowed.
        listed: one token a line. A line `id:1234` is an id. Any other is taken as decoded text,
            with or without a space before it, and only where no token has that text as the
            vocabulary's own spelling: '7' is the token whose text is 7, never the seventh. Token
            texts with line breaks can be given by id alone.

    Raises InputError for a file that cannot be read, is empty or names what is no token,
    ConfigError where nothing is left.
    """
    passing, names = np.ones(len(rows), dtype=bool), ",".join(filter_.name for filter_ in filters)
    for filter_ in filters:
        passing &= np.array([_CHECKS[filter_](row) for row in rows.itertuples()], dtype=bool)
    named = np.ones(len(rows), dtype=bool) if listed is None else _listed(rows, listed)
    if listed is not None and (left_out := int((named & ~passing).sum())):
        text = (
            "%s lists %d tokens; %d of them are left out by search.allowed=[%s]. To allow all of "
        )
        log.warning(text + "them: search.allowed=[]", listed, named.sum(), left_out, names)
    chosen = passing & named
    if not chosen.any():
        among = f"{len(rows)} tokens" if listed is None else f"the tokens in {listed}"
        raise ConfigError(
            f"search.allowed=[{names}] leaves no token that a response could be made of: none of "
            f"{among} passes. Type fewer filters, such as search.allowed=[no_special], or "
            "search.allowed=[] for every token"
        )
    mask = np.zeros(size, dtype=bool)
    mask[rows["candidate_id"].to_numpy()[chosen]] = True
    return mask


def digest(mask: np.ndarray) -> str:
    """Short name of a set of tokens: 16 hexadecimal digits of sha256 over its ids, whatever rows
    the embedding has."""
    return hashlib.sha256(np.flatnonzero(mask).astype("<i8").tobytes()).hexdigest()[:16]


def is_word(text: str) -> bool:
    """Letters of any script (and the marks that some write vowels with), with or without a space
    before them.

    Pieces that a WordPiece vocabulary marks (##ing) are none; pieces that nothing marks cannot be
    distinguished from words.
    """
    bare = text[1:] if text[:1] in (" ", "▁") else text
    kinds = [unicodedata.category(character)[0] for character in bare]
    return kinds[:1] == ["L"] and set(kinds) <= {"L", "M"}


_CHECKS = {
    Filter.no_special: lambda row: row.kind not in ("special", "unused"),
    Filter.ascii: lambda row: row.text != "" and row.text.isascii() and row.text.isprintable(),
    Filter.words: lambda row: is_word(row.text),
}


def _listed(rows: pd.DataFrame, path: Path) -> np.ndarray:
    """bool (n,) of the rows: those that the file's lines stand for."""
    try:
        # Not `splitlines`, which also splits at characters that tokens are made of.
        lines = [line for line in path.read_text(encoding="utf-8-sig").split("\n") if line]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"search.allowed_path={str(path)!r} cannot be read as a list of tokens: {error}"
        ) from error
    if not lines:
        raise InputError(f"search.allowed_path={str(path)!r} holds no tokens. {_HOW_TO_WRITE}")
    by_text, by_token = rows.groupby("text").indices, rows.groupby("token").indices
    by_id = {f"id:{number}": [place] for place, number in enumerate(rows["candidate_id"])}

    def places(line: str) -> list[int]:
        """The rows that a line stands for."""
        if line in by_id:
            return by_id[line]
        spaced = [] if line.startswith(" ") else by_text.get(" " + line, [])
        return [*by_text.get(line, []), *spaced] or [*by_token.get(line, [])]

    matched = [places(line) for line in lines]
    if unknown := [repr(line) for line, at in zip(lines, matched, strict=True) if not at]:
        shown = ", ".join(unknown[:_SHOWN]) + (" …" if len(unknown) > _SHOWN else "")
        raise InputError(
            f"search.allowed_path={str(path)!r}: {len(unknown)} of {len(lines)} lines are no "
            f"tokens of this model: {shown}. {_HOW_TO_WRITE}"
        )
    named = np.zeros(len(rows), dtype=bool)
    named[[place for at in matched for place in at]] = True
    return named
