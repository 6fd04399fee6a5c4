"""What an edit changed in a text, word by word.

Knows two texts. Does not know what the edit was for.
"""

from dataclasses import dataclass
from typing import Literal

from pessimal.explaining.edits.distances import numbered
from pessimal.explaining.edits.distances import pieces as words
from pessimal.texts import code_point, readable

SAME, GONE, NEW, LEFT_OUT = "same", "gone", "new", "left out"
CONTEXT = 200  # characters of unchanged text that are shown on either side of an edit
_BLANKS = {" ": "␣", "\n": "↵\n", "\t": "⇥"}


@dataclass(frozen=True)
class Piece:
    """A stretch of a response before or after an edit."""

    kind: Literal["same", "gone", "new", "left out"]
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
    from rapidfuzz.distance import Levenshtein

    before, after = words(original), words(edited)
    runs: list[tuple[str, str, str]] = []  # kind, before, after
    for tag, *ends in Levenshtein.opcodes(*numbered(before, after)):
        texts = "".join(before[ends[0] : ends[1]]), "".join(after[ends[2] : ends[3]])
        kind = SAME if tag == "equal" else NEW
        while (
            kind == NEW
            and runs
            and (runs[-1][0] == NEW or (len(runs) > 1 and _is_slight(runs[-1][1])))
        ):
            last = runs.pop()
            texts = last[1] + texts[0], last[2] + texts[1]
        runs.append((kind, *texts))
    found = []
    for kind, gone, new in runs:
        found += [(SAME, gone)] if kind == SAME else [(GONE, gone), (NEW, new)]
    return tuple(Piece(kind, readable(text)) for kind, text in found if text)


def condensed(pieces: tuple[Piece, ...], *, context: int = CONTEXT) -> tuple[Piece, ...]:
    """The pieces, with the inner part of long unchanged ones left out and counted."""
    shown: list[Piece] = []
    for place, piece in enumerate(pieces):
        head = 0 if place == 0 else _cut(piece.text, context)
        tail = (
            len(piece.text)
            if place == len(pieces) - 1
            else _cut(piece.text, len(piece.text) - context)
        )
        if piece.kind != SAME or len(pieces) == 1 or tail - head < context // 2:
            shown.append(piece)
            continue
        counted = Piece(LEFT_OUT, f" [… {tail - head:,} characters unchanged …] ")
        shown += [Piece(SAME, piece.text[:head]), counted, Piece(SAME, piece.text[tail:])]
    return tuple(piece for piece in shown if piece.text)


def _is_slight(text: str) -> bool:
    return "\n" not in text and len(text.strip()) <= 2


def _cut(text: str, place: int) -> int:
    """A blank near a place where a text may be cut; the place itself where there is none."""
    place = min(max(place, 0), len(text))
    found = text.rfind(" ", max(place - 40, 0), place)
    return place if found < 0 else found
