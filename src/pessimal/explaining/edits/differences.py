"""What an edit changed in a text, word by word.

Knows two texts. Does not know what the edit was for.
"""

from dataclasses import dataclass
from typing import Final, Literal

from pessimal.errors import require
from pessimal.explaining.edits.distances import numbered
from pessimal.explaining.edits.distances import pieces as words
from pessimal.texts import code_point, literal, readable

Kind = Literal["same", "gone", "new", "left out"]
SAME: Final = "same"
GONE: Final = "gone"
NEW: Final = "new"
LEFT_OUT: Final = "left out"
CONTEXT = 200  # characters of unchanged text that are shown on either side of an edit
_BLANKS = {" ": "␣", "\n": "↵\n", "\t": "⇥"}


@dataclass(frozen=True)
class Piece:
    """A stretch of a response before or after an edit."""

    kind: Kind
    """same, gone (only before the edit), new (only after it), or left out (same, and only
    counted)."""
    text: str

    @property
    def visible(self) -> str:
        """Its text; if it is changed and nothing but white space, with signs for that."""
        if self.kind in (SAME, LEFT_OUT) or not self.text.isspace():
            return self.text
        return "".join(_BLANKS.get(character) or code_point(character) for character in self.text)


def diff(original: str, edited: str) -> tuple[Piece, ...]:
    """Both texts word by word, white space kept: the same and gone pieces are the original, same
    and new the edited.

    Changes with only blanks or two characters ("a", "of", a comma) between them are one change, as
    a phrase is easier to read than its words; what stood between them is in both of its pieces.
    """
    before, after = words(original), words(edited)
    runs: list[tuple[bool, str, str]] = []  # whether it is the same, before, after
    require("rapidfuzz", why="a comparison word by word")
    from rapidfuzz.distance import Levenshtein  # not above: `compare` does without

    for step in Levenshtein.opcodes(*numbered(before, after)):
        old = "".join(before[step.src_start : step.src_end])
        new, same = "".join(after[step.dest_start : step.dest_end]), step.tag == "equal"
        while (
            not same and runs and (not runs[-1][0] or (len(runs) > 1 and _is_slight(runs[-1][1])))
        ):
            _, *last = runs.pop()
            old, new = last[0] + old, last[1] + new
        runs.append((same, old, new))
    pieces: list[Piece] = []
    for same, old, new in runs:
        pieces += [Piece(SAME, old)] if same else [Piece(GONE, old), Piece(NEW, new)]
    return tuple(Piece(each.kind, readable(each.text)) for each in pieces if each.text)


def described(original: str, edited: str, *, most: int = 2, limit: int = 60) -> str:
    """What an edit did in words: what it removes, adds or replaces, the first changes of it."""
    pieces, did = [*diff(original, edited)], list[str]()
    while pieces:
        first = pieces.pop(0)
        text = _quoted(first, limit)
        if first.kind == GONE and pieces and pieces[0].kind == NEW:
            did.append(f"replaces {text} by {_quoted(pieces.pop(0), limit)}")
        elif first.kind != SAME:
            did.append(f"{'removes' if first.kind == GONE else 'adds'} {text}")
    more = len(did) - most
    rest = f" and makes {more} more change{'s' * (more > 1)}" if more > 0 else ""
    return ", ".join(did[:most]) + rest


def _quoted(piece: Piece, limit: int) -> str:
    return f"“{literal(piece.text.strip() or piece.text, limit=limit)}”"


def condensed(pieces: tuple[Piece, ...], *, context: int = CONTEXT) -> tuple[Piece, ...]:
    """The pieces, with the inner part of long unchanged ones left out and counted."""
    shown: list[Piece] = []
    for place, piece in enumerate(pieces):
        text, tail = piece.text, len(piece.text)
        head = 0 if place == 0 else _cut(text, context)
        if place < len(pieces) - 1:
            tail = _cut(text, len(text) - context)
        if piece.kind != SAME or len(pieces) == 1 or tail - head < context // 2:
            shown.append(piece)
            continue
        counted = Piece(LEFT_OUT, f" [… {tail - head:,} characters unchanged …] ")
        shown += [Piece(SAME, text[:head]), counted, Piece(SAME, text[tail:])]
    return tuple(piece for piece in shown if piece.text)


def _is_slight(text: str) -> bool:
    return "\n" not in text and len(text.strip()) <= 2


def _cut(text: str, place: int) -> int:
    """A blank near a place where a text may be cut; the place itself where there is none."""
    place = min(max(place, 0), len(text))
    blank = text.rfind(" ", max(place - 40, 0), place)
    return place if blank < 0 else blank
