"""Maximal semifactuals: how much of a response may be changed with the preference still as it was.

Knows hunks, and margins as a function of texts. Does not know models, nor what an edit was for.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pessimal.explain.hunks import Hunk, apply, hunks_between
from pessimal.explain.shrink import KnownMargins, Margins, Search, run_together


@dataclass(frozen=True)
class Semifactual:
    """A semifactual edit, and what it may be grown with."""

    original: str
    """The response as it stands."""
    edited: str
    """The response after its own edit."""
    others: tuple[str, ...] = ()
    """The same response after other edits of the same direction, mostly along other attributes."""


@dataclass(frozen=True)
class Grown:
    """What one semifactual became."""

    text: str
    """The response with its own hunks and those that were added."""
    own: tuple[Hunk, ...]
    """Hunks of the semifactual itself, in the order of the text."""
    added: tuple[Hunk, ...]
    """Hunks of the other edits that were added, in the order of the text."""
    sources: tuple[int, ...]
    """Which of `others` each added hunk is from (the first that has it)."""
    pool: tuple[Hunk, ...]
    """Different hunks of the other edits that do not overlap its own, in the order in which they were tried."""
    tokens: int
    """Tokens that the own and the added hunks change."""
    margin: float
    """m′ with this text."""
    queries: int
    """Texts whose m′ was asked for."""
    holds: bool
    """Whether the semifactual itself kept the preference (m′ > ε) when it was asked again; otherwise nothing was added."""
    maximal: bool
    """Whether no hunk left in the pool can be added alone: it overlaps one that is applied, or the preference is lost."""


def grow(semifactuals: Sequence[Semifactual], margins: Margins, *, tie: float = 0.0) -> list[Grown]:
    """Each semifactual with as many changes of other edits as the preference survives.

    Hunks are tried one at a time, the largest first (equally large: in the order of `others` and of the text), and kept
    where the preference holds; those left are tried again after each success, until every one has been tried against
    the very text that is returned. All searches move in step, and each round is one call of `margins`; a text is asked
    for once. The result is maximal, not the largest there is: that would need all choices of hunks.

    Args:
        tie: ε ≥ 0, in rewards; the preference holds where m′ > ε.

    Raises:
        ValueError: a semifactual's edit changes nothing, or a margin is not a number.
    """
    return run_together([_grow(one, tie=tie) for one in semifactuals], margins)


def _grow(semifactual: Semifactual, *, tie: float) -> Search[Grown]:
    original = semifactual.original
    own = hunks_between(original, semifactual.edited)
    if not own:
        raise ValueError("an edit that changes nothing cannot be a semifactual")
    sources = _pool(semifactual, own)
    pool = sorted(sources, key=lambda hunk: -hunk.tokens)  # stable
    known = KnownMargins()
    text = semifactual.edited
    [whole] = yield from known.of([text])
    holds = whole > tie
    added: list[Hunk] = []
    left = list(pool) if holds else []
    turn = lost = 0  # lost: how many in a row could not be added to what is applied now
    while lost < len(left):
        turn %= len(left)
        trial = apply(original, [*own, *added, left[turn]])
        [value] = yield from known.of([trial])
        if value > tie:
            text = trial
            added.append(left[turn])
            before = [hunk for hunk in left[:turn] if not hunk.overlaps(added[-1])]
            left = before + [hunk for hunk in left[turn:] if not hunk.overlaps(added[-1])]
            turn, lost = len(before), 0
        else:
            turn, lost = turn + 1, lost + 1
    added.sort(key=lambda hunk: (hunk.start, hunk.end))
    return Grown(
        text=text,
        own=own,
        added=tuple(added),
        sources=tuple(sources[hunk] for hunk in added),
        pool=tuple(pool),
        tokens=sum(hunk.tokens for hunk in (*own, *added)),
        margin=known.by_text[text],
        queries=len(known.by_text),
        holds=holds,
        maximal=holds,
    )


def _pool(semifactual: Semifactual, own: tuple[Hunk, ...]) -> dict[Hunk, int]:
    """The first of the other edits that has each hunk, for hunks that overlap none of `own`."""
    sources: dict[Hunk, int] = {}
    for number, other in enumerate(semifactual.others):
        for hunk in hunks_between(semifactual.original, other):
            if not any(hunk.overlaps(mine) for mine in own):
                sources.setdefault(hunk, number)
    return sources
