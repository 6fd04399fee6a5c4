"""Pieces of a text and what takes their place, with the capitals, articles and spaces around them set right.

Knows characters. Does not know attributes.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

ARTICLE = re.compile(r"(?<![\w'’])an?\s+$", re.IGNORECASE)
LOOK_BACK = 5
"""Characters before a word in which its article is sought."""
SOUNDS_LIKE_A_CONSONANT = re.compile(r"(?:uni|use|usu|eu|one\b|once\b)", re.IGNORECASE)
SILENT_H = re.compile(r"(?:hour|honest|honou?r|heir)", re.IGNORECASE)


class Replacement(NamedTuple):
    """One piece of a text and what takes its place."""

    start: int
    """First character replaced."""
    end: int
    """The character behind the last; equal to `start` for an insertion."""
    put: str
    """What stands there afterwards."""


@dataclass(frozen=True)
class Change:
    """What a rule makes of a text."""

    replacements: tuple[Replacement, ...]
    """Disjoint pieces."""
    note: str
    """What the rule did, in words."""


def replaced(text: str, replacements: Iterable[Replacement]) -> str:
    """The text with every piece replaced.

    Raises:
        ValueError: two pieces overlap.
    """
    pieces, position = [], 0
    for start, end, put in sorted(replacements):
        if start < position:
            raise ValueError(f"the pieces to replace overlap at character {start}")
        pieces += [text[position:start], put]
        position = end
    return "".join([*pieces, text[position:]])


def spans_of(text: str, replacements: Iterable[Replacement]) -> tuple[tuple[int, int], ...]:
    """(start, end) of the pieces without outer white space; insertions have none."""
    spans = []
    for start, end, _ in sorted(replacements):
        piece = text[start:end]
        if bare := piece.strip():
            start += len(piece) - len(piece.lstrip())
            spans.append((start, start + len(bare)))
    return tuple(spans)


def disjoint(replacements: Iterable[Replacement]) -> tuple[Replacement, ...]:
    """Of pieces that overlap, the one that begins first; of those, the longest."""
    kept: list[Replacement] = []
    for each in sorted(replacements, key=lambda piece: (piece.start, -piece.end)):
        if not kept or each.start >= kept[-1].end:
            kept.append(each)
    return tuple(kept)


def capitalised(text: str) -> str:
    """With its first letter as a capital, behind quotes and asterisks too."""
    first = next((i for i, character in enumerate(text) if character.isalnum()), None)
    return text if first is None else text[:first] + text[first].upper() + text[first + 1 :]


def put_word(text: str, start: int, end: int, put: str, *, opens: bool) -> Replacement:
    """`put` in place of the words from `start` to `end`, with their capitals and the article that fits.

    Args:
        opens: whether they open a sentence.
    """
    if not put:
        return taken_out(text, start, end, opens=opens)
    old = text[start:end]
    letters = [character for character in old if character.isalpha()]
    if len(letters) > 1 and all(character.isupper() for character in letters):
        put = put.upper()
    elif opens or (old[:1].isupper() and not re.match(r"I\b", old)):
        put = capitalised(put)
    if article := ARTICLE.search(text, max(0, start - LOOK_BACK), start):
        fitting = "an" if sounds_like_a_vowel(put) else "a"
        if article.group().split()[0].lower() != fitting:
            capital = article.group()[0].isupper()
            return Replacement(article.start(), end, f"{fitting.capitalize() if capital else fitting} {put}")
    return Replacement(start, end, put)


def taken_out(text: str, start: int, end: int, *, opens: bool) -> Replacement:
    """The words from `start` to `end` taken out with the comma and the space that were theirs."""
    behind = re.compile(r",?[ \t]*").match(text, end)
    if opens:
        after = behind.end()
        if after < len(text) and text[after].isalpha():
            return Replacement(start, after + 1, text[after].upper())
        return Replacement(start, after, "")
    before = start
    while before and text[before - 1] in " \t":
        before -= 1
    # ', perhaps,' and ', perhaps.' lose the comma before; ' perhaps ' loses the space behind.
    follows = text[end : end + 1]
    if before and text[before - 1] == "," and (not follows or follows in ",.;:!?"):
        return Replacement(before - 1, end + (follows == ","), "")
    if not follows or follows in ",.;:!?)\n":
        return Replacement(before, end, "")
    return Replacement(start, end + len(text[end : behind.end()].lstrip(",")) if follows != "," else end, "")


def sounds_like_a_vowel(word: str) -> bool:
    """Whether 'an' goes before it, by its spelling."""
    if SILENT_H.match(word):
        return True
    return word[:1].lower() in set("aeiou") and not SOUNDS_LIKE_A_CONSONANT.match(word)
