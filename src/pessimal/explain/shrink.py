"""Minimal counterfactuals: how little of an edit is enough to flip the preference.

Knows hunks, and margins as a function of texts. Does not know models, nor what an edit was for.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from pessimal.explain.hunks import Hunk, apply, hunks_between

Margins = Callable[[list[tuple[int, str]]], Sequence[float]]
"""From (number of the edit, a text for its response) to m′ of each: the margin with that text in the response's place."""

Outcome = TypeVar("Outcome")
Search = Generator[list[str], list[float], Outcome]
"""A search for one edit: hands out the texts it wants to know m′ of, is handed these, and at last returns what it found."""


@dataclass(frozen=True)
class Shrunk:
    """What is left of one counterfactual."""

    text: str
    """The response with the hunks that are kept."""
    kept: tuple[Hunk, ...]
    """Hunks that are still applied, in the order of the text."""
    hunks: tuple[Hunk, ...]
    """All hunks of the edit."""
    tokens: int
    """Tokens that the kept hunks change."""
    margin: float
    """m′ with this text."""
    queries: int
    """Texts whose m′ was asked for."""
    flips: bool
    """Whether the whole edit flipped the preference (m′ < −ε) when it was asked again; otherwise nothing was shrunk."""
    exact: bool
    """Whether no other choice of hunks that flips changes fewer tokens; all were looked at."""
    minimal: bool
    """Whether no single kept hunk can be reverted without losing the flip (1-minimal); always so where exact."""


def shrink(
    edits: Sequence[tuple[str, str]], margins: Margins, *, tie: float = 0.0, exact_hunks: int = 8
) -> list[Shrunk]:
    """The least of each counterfactual edit that still flips the preference.

    An edit of up to `exact_hunks` hunks is shrunk exactly: its choices of hunks are tried from the fewest changed tokens
    up (equally many: fewer hunks first, then those further ahead in the text), so that the first that flips is the
    smallest. Of a longer one hunks are reverted one at a time, the largest first, again and again until each one left
    has been tried against the very text that is returned. All searches move in step, and each round is one call of
    `margins`; a text is asked for once.

    The preference is taken to hold for the original itself (m ≥ 0), which is not asked.

    Args:
        edits: (original, edited) responses that differ.
        tie: ε ≥ 0, in rewards; a flip is m′ < −ε.
        exact_hunks: ≥ 0; 2ʰ − 1 texts are asked for at most.

    Raises:
        ValueError: an edit changes nothing, or a margin is not a number.
    """
    return run_together([_shrink(*edit, tie=tie, exact_hunks=exact_hunks) for edit in edits], margins)


def run_together(searches: Sequence[Search[Outcome]], margins: Margins) -> list[Outcome]:
    """What each search found. In every round the texts of all that still go on are asked for in one call."""
    found: dict[int, Outcome] = {}
    replies: dict[int, list[float] | None] = dict.fromkeys(range(len(searches)))
    while replies:
        wanted: dict[int, list[str]] = {}
        for number, reply in replies.items():
            try:
                wanted[number] = searches[number].send(reply)
            except StopIteration as stop:
                found[number] = stop.value
        pairs = [(number, text) for number, texts in wanted.items() for text in texts]
        values = [float(value) for value in margins(pairs)] if pairs else []
        if len(values) != len(pairs):
            raise ValueError(f"{len(pairs)} margins were wanted, {len(values)} came")
        if bad := [text for (_, text), value in zip(pairs, values, strict=True) if value != value]:
            raise ValueError(f"the margin of {bad[0]!r} is not a number")
        replies, start = {}, 0
        for number, texts in wanted.items():
            replies[number] = values[start : start + len(texts)]
            start += len(texts)
    return [found[number] for number in range(len(searches))]


class KnownMargins:
    """The margins that one search knows so far, each text once."""

    def __init__(self):
        self.by_text: dict[str, float] = {}

    def of(self, texts: list[str]) -> Search[list[float]]:
        """m′ of each text; hands out those that are not known yet."""
        if new := [text for text in dict.fromkeys(texts) if text not in self.by_text]:
            self.by_text.update(zip(new, (yield new), strict=True))
        return [self.by_text[text] for text in texts]


def _shrink(original: str, edited: str, *, tie: float, exact_hunks: int) -> Search[Shrunk]:
    hunks = hunks_between(original, edited)
    if not hunks:
        raise ValueError("an edit that changes nothing cannot be a counterfactual")
    known = KnownMargins()
    every = tuple(range(len(hunks)))
    [whole] = yield from known.of([edited])
    flips, exact = whole < -tie, len(hunks) <= exact_hunks
    kept = every
    if flips:
        kept = yield from (_smallest if exact else _reverted)(original, hunks, known, tie)
    text = apply(original, hunks, kept)
    return Shrunk(
        text=text,
        kept=tuple(hunks[number] for number in kept),
        hunks=hunks,
        tokens=sum(hunks[number].tokens for number in kept),
        margin=known.by_text[text],
        queries=len(known.by_text),
        flips=flips,
        exact=flips and exact,
        minimal=flips,
    )


def _smallest(
    original: str, hunks: tuple[Hunk, ...], known: KnownMargins, tie: float
) -> Search[tuple[int, ...]]:
    """The choice of hunks with the fewest tokens that flips."""
    choices = [
        choice for size in range(1, len(hunks) + 1) for choice in combinations(range(len(hunks)), size)
    ]
    # Stable: sizes and positions stay in order where the tokens are equally many.
    choices.sort(key=lambda choice: sum(hunks[number].tokens for number in choice))
    start, count = 0, len(hunks)
    while True:
        # Small edits mostly do: a round takes twice as many as the one before, so that at most about twice the texts are
        # asked for that a search one by one would need, in a few rounds.
        batch = choices[start : start + count]
        values = yield from known.of([apply(original, hunks, choice) for choice in batch])
        for choice, value in zip(batch, values, strict=True):
            if value < -tie:
                return choice
        start, count = start + count, 2 * count


def _reverted(
    original: str, hunks: tuple[Hunk, ...], known: KnownMargins, tie: float
) -> Search[tuple[int, ...]]:
    """A choice of hunks none of which can be reverted alone."""
    kept = sorted(range(len(hunks)), key=lambda number: -hunks[number].tokens)
    turn = needed = 0  # needed: how many in a row could not be reverted from what is kept now
    while needed < len(kept) > 1:
        turn %= len(kept)
        fewer = kept[:turn] + kept[turn + 1 :]
        [value] = yield from known.of([apply(original, hunks, fewer)])
        if value < -tie:
            kept, needed = fewer, 0
        else:
            turn, needed = turn + 1, needed + 1
    return tuple(sorted(kept))
