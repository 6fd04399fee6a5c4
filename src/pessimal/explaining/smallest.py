"""The least of an edit that still flips the preference, and the most of a response that may change
while it holds.

An edit is cut into hunks, the places that were changed, each of which can be taken or left. Knows
texts, and margins as a function of texts. Does not know models, nor what an edit was for.
"""

import re
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from typing import Any, TypeVar

from pessimal.errors import require
from pessimal.explaining.distances import numbered
from pessimal.explaining.language import replaced

Margins = Callable[[list[tuple[int, str]]], Sequence[float]]
"""From (number of the edit, a text for its response) to m′ of each: the margin with that text in
the response's place."""

Outcome = TypeVar("Outcome")
Search = Generator[list[str], Any, Outcome]
"""A search for one edit: hands out the texts whose m′ it needs, is sent these (floats), and at
last returns its result."""

# Scripts that write no spaces are cut into characters, as otherwise a whole clause would be one
# token.
_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Accents, vowel signs and joiners stay with what they stand on.
_MARKS = "\u0300-\u036f\u0900-\u0dff\u200c\u200d"
_LETTERS = rf"(?:(?![{_UNSPACED}])[\w{_MARKS}])+"
_SIGN = r"\S(?:[\u0300-\u036f\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]|\u200d\S)*"
_TOKEN = re.compile(rf"\s*(?:{_LETTERS}(?:['’\-]{_LETTERS})*|{_SIGN})|\s+")


@dataclass(frozen=True)
class Hunk:
    """One changed place."""

    start: int  # where it begins in the original, in characters
    end: int  # where it ends there; equal to `start` where text is only put in
    put: str  # what stands there after the edit; empty where text is only taken out
    tokens: int  # tokens changed: put in, taken out or replaced, at least 1

    def place(self) -> tuple[int, int]:
        """The order of hunks."""
        return self.start, self.end

    def overlaps(self, other: "Hunk") -> bool:
        """Whether the two cannot both be applied: they change the same characters, or put text into
        one place. Hunks that only touch can be."""
        together = self.start < other.end and other.start < self.end
        return together or self.place() == other.place()


def tokens_of(text: str) -> list[str]:
    """Words, numbers and single signs, each with the spaces before it, so that joined they are the
    text again."""
    return _TOKEN.findall(text)


def hunks_between(original: str, edited: str) -> tuple[Hunk, ...]:
    """The hunks of an edit, in the order of the text; none overlaps or touches another.

    They come from one shortest sequence of token edits (Levenshtein), in which neighbouring changes
    are one hunk, so that their `tokens` add up to the token distance of the two texts.
    """
    before, after = tokens_of(original), tokens_of(edited)
    require("rapidfuzz", purpose="an explanation")
    from rapidfuzz.distance import Levenshtein  # not above: `compare` does without

    starts = [0, *accumulate(map(len, before))]
    hunks: list[Hunk] = []
    for step in Levenshtein.opcodes(*numbered(before, after)):
        if step.tag == "equal":
            continue
        start, end = starts[step.src_start], starts[step.src_end]
        put = "".join(after[step.dest_start : step.dest_end])
        tokens = max(step.src_end - step.src_start, step.dest_end - step.dest_start)
        if hunks and hunks[-1].end == start:
            touching = hunks.pop()
            start, put = touching.start, touching.put + put
            tokens += touching.tokens
        hunks.append(Hunk(start, end, put, tokens))
    return tuple(hunks)


def apply(original: str, hunks: Sequence[Hunk], numbers: Collection[int] | None = None) -> str:
    """The original with some of an edit's hunks, none of which overlap: those of these numbers, or
    all."""
    taken = hunks if numbers is None else [hunks[number] for number in numbers]
    return replaced(original, ((h.start, h.end, h.put) for h in sorted(taken, key=Hunk.place)))


@dataclass(frozen=True)
class Shrunk:
    """The smallest part of one counterfactual: a row of the table `smallest_flips`."""

    smallest: str  # the response with the hunks that are kept
    hunks: int  # changed places of the edit
    kept: int  # those that are still applied
    tokens: int  # tokens that the kept hunks change
    tokens_before: int  # tokens that the edit changed
    new_margin: float  # m′ with this text
    queries: int  # texts whose m′ was asked for
    exact: bool
    """Whether no other choice of hunks that flips changes fewer tokens; all were looked at."""
    minimal: bool
    """Whether no single kept hunk can be reverted without losing the flip; false where the whole
    edit did not flip the preference (m′ < −ε) when it was asked again, so that nothing was
    shrunk."""


def shrink(
    edits: Sequence[tuple[str, str]], margins: Margins, *, tie: float = 0.0, exact_hunks: int = 8
) -> list[Shrunk]:
    """The least of each counterfactual edit that still flips the preference.

    An edit of up to `exact_hunks` hunks is shrunk exactly: its choices of hunks are tried from the
    fewest changed tokens up (equally many: fewer hunks first, then those further ahead in the
    text), so that the first that flips is the smallest. Of a longer one hunks are reverted one at a
    time, the largest first, again and again until each one left has been tried against the very
    text that is returned. All searches move in step, and each round is one call of `margins`; a
    text is asked for once.

    The preference is taken to hold for the original itself (m ≥ 0), which is not asked.

    Args:
        edits: (original, edited) responses that differ.
        tie: ε ≥ 0, in rewards; a flip is m′ < −ε.
        exact_hunks: ≥ 0; 2ʰ − 1 texts are asked for at most.
    """
    searches = [_shrink(*edit, tie=tie, exact_hunks=exact_hunks) for edit in edits]
    return run_together(searches, margins)


def run_together(searches: Sequence[Search[Outcome]], margins: Margins) -> list[Outcome]:
    """The result of each search. In every round the texts of all that still go on are asked for in
    one call."""
    results: dict[int, Outcome] = {}
    replies: dict[int, list[float] | None] = dict.fromkeys(range(len(searches)))
    while replies:
        wanted: dict[int, list[str]] = {}
        for number, reply in replies.items():
            try:
                wanted[number] = searches[number].send(reply)
            except StopIteration as stop:
                results[number] = stop.value
        pairs = [(number, text) for number, texts in wanted.items() for text in texts]
        values = iter(margins(pairs) if pairs else [])
        replies = {number: [float(next(values)) for _ in texts] for number, texts in wanted.items()}
    return [results[number] for number in range(len(searches))]


def _ask(margins: dict[str, float], texts: list[str]) -> Search[list[float]]:
    """m′ of each text; hands out those that are not among the margins yet, and adds them."""
    if new := [text for text in dict.fromkeys(texts) if text not in margins]:
        margins.update(zip(new, (yield new), strict=True))
    return [margins[text] for text in texts]


def _shrink(original: str, edited: str, *, tie: float, exact_hunks: int) -> Search[Shrunk]:
    hunks, margins = hunks_between(original, edited), dict[str, float]()
    [margin] = yield from _ask(margins, [edited])
    flips, exact = margin < -tie, len(hunks) <= exact_hunks
    left = tuple(range(len(hunks)))
    if flips:
        left = yield from (_smallest if exact else _reverted)(original, hunks, margins, tie)
    text = apply(original, hunks, left)
    return Shrunk(
        smallest=text,
        hunks=len(hunks),
        kept=len(left),
        tokens=sum(hunks[number].tokens for number in left),
        tokens_before=sum(hunk.tokens for hunk in hunks),
        new_margin=margins[text],
        queries=len(margins),
        exact=flips and exact,
        minimal=flips,
    )


def _smallest(
    original: str, hunks: Sequence[Hunk], margins: dict[str, float], tie: float
) -> Search[tuple[int, ...]]:
    """The choice of hunks with the fewest tokens that flips; all of them do."""
    numbers = range(len(hunks))
    choices = [choice for size in numbers for choice in combinations(numbers, size + 1)]
    # Stable: sizes and positions stay in order where the tokens are equally many.
    choices.sort(key=lambda choice: sum(hunks[number].tokens for number in choice))
    start, count = 0, len(hunks)
    while True:
        # Small edits mostly do: a round takes twice as many as the one before, so that at most
        # about twice the texts are asked for that a search one by one would need, in a few rounds.
        batch = choices[start : start + count]
        values = yield from _ask(margins, [apply(original, hunks, choice) for choice in batch])
        for choice, value in zip(batch, values, strict=True):
            if value < -tie:
                return choice
        start, count = start + count, 2 * count


def _reverted(
    original: str, hunks: Sequence[Hunk], margins: dict[str, float], tie: float
) -> Search[tuple[int, ...]]:
    """A choice of hunks none of which can be reverted alone."""
    left = sorted(range(len(hunks)), key=lambda number: -hunks[number].tokens)
    turn = needed = 0  # needed: how many in a row could not be reverted from what is left now
    while needed < len(left) > 1:
        turn %= len(left)
        fewer = left[:turn] + left[turn + 1 :]
        [value] = yield from _ask(margins, [apply(original, hunks, fewer)])
        if value < -tie:
            left, needed = fewer, 0
        else:
            turn, needed = turn + 1, needed + 1
    return tuple(sorted(left))


@dataclass(frozen=True)
class Grown:
    """One semifactual after it was grown: a row of the table `largest_holds`."""

    largest: str  # the response with its own hunks and those that were added
    tokens: int  # tokens that the own and the added hunks change
    tokens_before: int  # tokens that the semifactual itself changes
    added: int  # hunks of other edits that were added
    attributes: str  # labels of the edits that they are from (the first that has each)
    new_margin: float  # m′ with this text
    queries: int  # texts whose m′ was asked for
    maximal: bool
    """Whether no hunk left over can be added alone: it overlaps one that is applied, or the
    preference is lost. False where the semifactual itself did not keep the preference (m′ > ε) when
    it was asked again, so that nothing was added."""


def grow(
    semifactuals: Sequence[tuple[str, str, Sequence[tuple[str, str]]]],
    margins: Margins,
    *,
    tie: float = 0.0,
) -> list[Grown]:
    """Each semifactual with as many changes of other edits as the preference survives.

    Hunks are tried one at a time, the largest first (equally large: in the order of the others and
    of the text), and kept where the preference holds; those left are tried again after each
    success, until every one has been tried against the very text that is returned. All searches
    move in step, and each round is one call of `margins`; a text is asked for once. The result is
    maximal, not the largest there is: that would need all choices of hunks.

    Args:
        semifactuals: (original, edited, others): a response as it stands and after its own edit,
            and (label, text) of the same response after other edits of the same direction, mostly
            along other attributes.
        tie: ε ≥ 0, in rewards; the preference holds where m′ > ε.
    """
    return run_together([_grow(*each, tie=tie) for each in semifactuals], margins)


def _grow(
    original: str, edited: str, edits: Sequence[tuple[str, str]], *, tie: float
) -> Search[Grown]:
    first = hunks_between(original, edited)
    sources: dict[Hunk, str] = {}  # the first of the others that has each hunk
    for label, other in edits:
        for hunk in hunks_between(original, other):
            if not any(hunk.overlaps(each) for each in first):
                sources.setdefault(hunk, label)
    margins, added, text = dict[str, float](), list[Hunk](), edited
    [margin] = yield from _ask(margins, [text])
    holds = margin > tie
    left = sorted(sources, key=lambda hunk: -hunk.tokens) if holds else []  # stable
    turn = lost = 0  # lost: how many in a row could not be added to what is applied now
    while lost < len(left):
        turn %= len(left)
        candidate = left[turn]
        trial = apply(original, [*first, *added, candidate])
        [value] = yield from _ask(margins, [trial])
        if value > tie:
            text = trial
            added.append(candidate)
            before, after = (
                [hunk for hunk in part if not hunk.overlaps(candidate)]
                for part in (left[:turn], left[turn:])
            )
            left, turn, lost = before + after, len(before), 0
        else:
            turn, lost = turn + 1, lost + 1
    tokens_before = sum(hunk.tokens for hunk in first)
    return Grown(
        largest=text,
        tokens=tokens_before + sum(hunk.tokens for hunk in added),
        tokens_before=tokens_before,
        added=len(added),
        attributes=", ".join(sorted({sources[hunk] for hunk in added})),
        new_margin=margins[text],
        queries=len(margins),
        maximal=holds,
    )
