"""From words that a language model says it found to places in the response.

Knows texts. Does not know attributes or models.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Found:
    """Words of a response that bear on one attribute."""

    words: tuple[str, ...]
    """Those that occur in the response, each once, as they were named."""
    spans: Spans
    """Where they occur: (start, end) in characters, in order, without overlap."""
    dropped: int
    """How many were named that do not occur in the response, or are blank."""


def find(response: str, named: Sequence[str]) -> Found:
    """Where named words occur. A word stands for all its occurrences as a whole word; where it has none such, for all its
    occurrences ("cat" is not looked for in "category" where "cat" stands alone elsewhere).
    """
    words, places, dropped = [], [], 0
    for word in dict.fromkeys(named):
        found = _occurrences(response, word) if word.strip() else []
        if found:
            words.append(word)
            places += [place for place in found if _is_whole(response, *place)] or found
        else:
            dropped += 1
    return Found(tuple(words), _merged(places), dropped)


def _occurrences(response: str, word: str) -> list[tuple[int, int]]:
    found, place = [], response.find(word)
    while place >= 0:
        found.append((place, place + len(word)))
        place = response.find(word, place + len(word))
    return found


def _is_whole(response: str, start: int, end: int) -> bool:
    before, after = response[start - 1 : start], response[end : end + 1]
    joined_before = before.isalnum() and response[start].isalnum()
    joined_after = after.isalnum() and response[end - 1].isalnum()
    return not joined_before and not joined_after


def _merged(places: list[tuple[int, int]]) -> Spans:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(places):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
