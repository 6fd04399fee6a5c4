"""An edit of a text as hunks: the places that were changed, each of which can be taken or left.

Knows texts. Does not know why they were changed, nor rewards.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rapidfuzz.distance import Levenshtein

from pessimal.explain.distances import numbered

# Scripts that write no spaces are cut into characters, as otherwise a whole clause would be one token.
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Accents, vowel signs and joiners stay with what they stand on.
_MARKS = "\u0300-\u036f\u0900-\u0dff\u200c\u200d"
_LETTERS = rf"(?:(?![{_UNSPACED}])[\w{_MARKS}])+"
_SIGN = r"\S(?:[\u0300-\u036f\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]|\u200d\S)*"
_TOKEN = re.compile(rf"\s*(?:{_LETTERS}(?:['’\-]{_LETTERS})*|{_SIGN})|\s+")


@dataclass(frozen=True)
class Hunk:
    """One changed place."""

    start: int
    """Where it begins in the original, in characters."""
    end: int
    """Where it ends there; equal to `start` where text is only put in."""
    put: str
    """What stands there after the edit; empty where text is only taken out."""
    tokens: int
    """Tokens changed: put in, taken out or replaced, at least 1."""

    def overlaps(self, other: "Hunk") -> bool:
        """Whether the two cannot both be applied: they change the same characters, or put text into one place. Hunks that
        only touch can be."""
        together = self.start < other.end and other.start < self.end
        return together or (self.start, self.end) == (other.start, other.end)


def tokens_of(text: str) -> list[str]:
    """Words, numbers and single signs, each with the spaces before it, so that joined they are the text again."""
    return _TOKEN.findall(text)


def hunks_between(original: str, edited: str) -> tuple[Hunk, ...]:
    """The hunks of an edit, in the order of the text; none overlaps or touches another.

    They come from one shortest sequence of token edits (Levenshtein), in which neighbouring changes are one hunk, so that
    their `tokens` add up to the token distance of the two texts.
    """
    before, after = tokens_of(original), tokens_of(edited)
    steps = Levenshtein.opcodes(*numbered(before, after))
    starts = [0]
    for token in before:
        starts.append(starts[-1] + len(token))
    hunks: list[Hunk] = []
    for step in steps:
        if step.tag == "equal":
            continue
        start, end = starts[step.src_start], starts[step.src_end]
        put = "".join(after[step.dest_start : step.dest_end])
        tokens = max(step.src_end - step.src_start, step.dest_end - step.dest_start)
        if hunks and hunks[-1].end == start:
            last = hunks.pop()
            start, put, tokens = last.start, last.put + put, last.tokens + tokens
        hunks.append(Hunk(start, end, put, tokens))
    return tuple(hunks)


def apply(original: str, hunks: Sequence[Hunk], chosen: Collection[int] | None = None) -> str:
    """The original with some of an edit's hunks.

    Args:
        chosen: which, by their numbers in `hunks`; None for all.

    Raises:
        ValueError: two of those chosen overlap.
    """
    taken = list(hunks) if chosen is None else [hunks[number] for number in sorted(set(chosen))]
    taken.sort(key=lambda hunk: (hunk.start, hunk.end))
    parts, done = [], 0
    for number, hunk in enumerate(taken):
        if hunk.start < done or (number and hunk.overlaps(taken[number - 1])):
            raise ValueError(f"{hunk} overlaps the one before it; only hunks that do not can be applied")
        parts += [original[done : hunk.start], hunk.put]
        done = hunk.end
    return "".join([*parts, original[done:]])
