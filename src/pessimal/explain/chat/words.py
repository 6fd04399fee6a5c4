"""From words that a language model names to their spans in the response.

Knows texts. Does not know attributes or models.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class NamedWords:
    """Words of a response that bear on one attribute."""

    words: tuple[str, ...]
    """Those that occur in the response, each once, as they were named."""
    spans: Spans
    """Where they occur: (start, end) in characters, in order, without overlap."""
    dropped: int
    """How many were named that do not occur in the response, or are blank."""


def find(response: str, named: Sequence[str]) -> NamedWords:
    """Where named words occur. A word stands for all its occurrences as a whole word; where it has none such, for all its
    occurrences ("cat" is not looked for in "category" where "cat" stands alone elsewhere).
    """
    words, spans, dropped = [], [], 0
    for word in dict.fromkeys(named):
        occurrences = _occurrences(response, word) if word.strip() else []
        if occurrences:
            words.append(word)
            spans += [span for span in occurrences if _is_whole(response, *span)] or occurrences
        else:
            dropped += 1
    return NamedWords(tuple(words), _merged(spans), dropped)


def _occurrences(response: str, word: str) -> list[tuple[int, int]]:
    occurrences, start = [], response.find(word)
    while start >= 0:
        occurrences.append((start, start + len(word)))
        start = response.find(word, start + len(word))
    return occurrences


def _is_whole(response: str, start: int, end: int) -> bool:
    before, after = response[start - 1 : start], response[end : end + 1]
    joined_before = before.isalnum() and response[start].isalnum()
    joined_after = after.isalnum() and response[end - 1].isalnum()
    return not joined_before and not joined_after


def _merged(spans: list[tuple[int, int]]) -> Spans:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
