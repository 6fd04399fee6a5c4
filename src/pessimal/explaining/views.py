"""A comparison and its perturbations, to be read: what was changed word by word, and what it did to
the preference.

Knows the table of outcomes and comparisons. Does not know models, figures or files. Every text in a
view is readable: characters that cannot be seen are spelled out, so that it is safe in a page, a
terminal and a UTF-8 file.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

import pandas as pd
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from pessimal.errors import InputError, require
from pessimal.explaining.distances import numbered
from pessimal.explaining.distances import pieces as words
from pessimal.tables.comparisons import Comparison, Turn
from pessimal.texts import code_point, readable, significant

KIND = "pessimal comparison views 1"
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""Rules of reading JSON back: nothing coerced, nothing added."""
OUTCOMES = {"CF": "✗ flips (CF)", "SF": "✓ holds (SF)", "tie": "≈ tie"}
"""Names of outcomes on a badge; the sign tells them apart without colour."""
SIDES = {"chosen": "preferred response", "rejected": "other response"}

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
    require("rapidfuzz", purpose="a comparison word by word")
    from rapidfuzz.distance import Levenshtein  # not above: `compare` does without

    for step in Levenshtein.opcodes(*numbered(before, after)):
        old = "".join(before[step.src_start : step.src_end])
        new, same = "".join(after[step.dest_start : step.dest_end]), step.tag == "equal"
        while (
            not same and runs and (not runs[-1][0] or (len(runs) > 1 and _is_slight(runs[-1][1])))
        ):
            _, *previous = runs.pop()
            old, new = previous[0] + old, previous[1] + new
        runs.append((same, old, new))
    pieces: list[Piece] = []
    for same, old, new in runs:
        pieces += [Piece(SAME, old)] if same else [Piece(GONE, old), Piece(NEW, new)]
    return tuple(Piece(each.kind, readable(each.text)) for each in pieces if each.text)


def condensed(pieces: tuple[Piece, ...], *, context: int = CONTEXT) -> tuple[Piece, ...]:
    """The pieces, with the inner part of long unchanged ones left out and counted."""
    kept_pieces: list[Piece] = []
    for place, piece in enumerate(pieces):
        text, tail = piece.text, len(piece.text)
        head = 0 if place == 0 else _cut(text, context)
        if place < len(pieces) - 1:
            tail = _cut(text, len(text) - context)
        if piece.kind != SAME or len(pieces) == 1 or tail - head < context // 2:
            kept_pieces.append(piece)
            continue
        counted = Piece(LEFT_OUT, f" [… {tail - head:,} characters unchanged …] ")
        kept_pieces += [Piece(SAME, text[:head]), counted, Piece(SAME, text[tail:])]
    return tuple(piece for piece in kept_pieces if piece.text)


def _is_slight(text: str) -> bool:
    return "\n" not in text and len(text.strip()) <= 2


def _cut(text: str, place: int) -> int:
    """A blank near a place where a text may be cut; the place itself where there is none."""
    place = min(max(place, 0), len(text))
    blank = text.rfind(" ", max(place - 40, 0), place)
    return place if blank < 0 else blank


@dataclass(frozen=True)
class Change:
    """One perturbation of a response and what came of it."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    side: Literal["chosen", "rejected"]
    attribute: str
    direction: str
    """better or worse."""
    seed: int
    perturber: str
    status: str
    note: str
    """The rule that was used, or why there is no text."""
    pieces: tuple[Piece, ...]
    """The response with the edit marked; empty without a text."""
    margin: float | None
    """m′, reward of the preferred response less that of the other after the edit; None without a
    text."""
    change_in_sd: float | None
    """m′ − m, in standard deviations of the model's rewards."""
    outcome: Literal["CF", "SF", "tie"] | None
    """None without a text."""

    @property
    def badge(self) -> str:
        """The outcome in a word and a sign."""
        return OUTCOMES[self.outcome] if self.outcome else f"∅ {self.status}"

    @property
    def goal(self) -> str:
        """The change that was asked for."""
        return f"{self.attribute}: {SIDES[self.side]} made {self.direction}"

    @property
    def excerpt(self) -> tuple[Piece, ...]:
        """The edit with the unchanged text around it, as much as one needs to read it."""
        return condensed(self.pieces)


@dataclass(frozen=True)
class View:
    """One comparison as one model sees it."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    model: str
    comparison: str
    turns: tuple[Turn, ...]
    responses: tuple[str, str]
    rewards: tuple[float, float]
    preferred: Annotated[int, Field(ge=0, le=1)]
    """The response that the model scores higher."""
    people: Annotated[int, Field(ge=0, le=1)] | None
    """The response that people preferred, where it is known."""
    margin: float
    """m, at least 0."""
    changes: tuple[Change, ...]

    def number(self, value: float) -> str:
        """A reward or margin as it is printed."""
        return significant(value, digits=3)

    def signed(self, value: float) -> str:
        """A difference as it is printed, with its sign."""
        return ("+" if value > 0 else "") + self.number(value)

    def bar(self, change: Change) -> dict[str, float]:
        """Where the margin was (`before`) and went (`after`), and `zero`: 0 to 100 on a scale that
        a view's bars share."""
        margins = (other.margin for other in self.changes if other.margin is not None)
        ends = [0.0, self.margin, *margins]
        low, span = min(ends), (max(ends) - min(ends)) or 1.0
        places = {"zero": 0.0, "before": self.margin, "after": change.margin or 0.0}
        return {name: round(100 * (value - low) / span, 2) for name, value in places.items()}


def views(table: pd.DataFrame, comparisons: Mapping[str, Comparison]) -> list[View]:
    """One view a model and comparison, with the table's perturbations of it, all in the table's
    order."""
    rows: dict[tuple[str, str], list[int]] = {}
    # Not `groupby`, whose keys can hold no lone surrogate.
    for row, names in enumerate(zip(table["model"], table["comparison"], strict=True)):
        rows.setdefault(names, []).append(row)
    return [
        _view(model, comparisons[key], table.iloc[numbers])
        for (model, key), numbers in rows.items()
    ]


def to_json(views: list[View]) -> str:
    """The views as one JSON document; `from_json` gives them back, equal."""
    text = json.dumps({"kind": KIND, "views": [asdict(view) for view in views]}, ensure_ascii=False)
    from_json(text)  # what could not be read back is not written
    return text


def from_json(text: str) -> list[View]:
    """The views that `to_json` wrote; InputError where it did not write this."""
    try:
        return list(DOCUMENT.validate_json(text).views)
    except (ValidationError, ValueError, RecursionError) as error:
        raise InputError(
            f"This is not a file of {KIND!r}: {error}. Make the explanation again."
        ) from None


@dataclass(frozen=True)
class Document:
    """Content of a file."""

    __pydantic_config__: ClassVar[ConfigDict] = STRICT

    kind: Literal["pessimal comparison views 1"]
    views: tuple[View, ...]


DOCUMENT = TypeAdapter(Document)


def _view(model: str, comparison: Comparison, rows: pd.DataFrame) -> View:
    first = rows.iloc[0]
    margin, preferred = float(first["margin"]), int(first["response"])
    preferred = preferred if first["side"] == "chosen" else 1 - preferred
    rewards: dict[int, float] = {}
    for row in rows.itertuples():
        rewards.setdefault(int(row.response), float(row.reward))
    rewards.setdefault(1 - preferred, rewards.get(preferred, 0.0) - margin)
    rewards.setdefault(preferred, rewards[1 - preferred] + margin)
    return View(
        model=readable(model),
        comparison=readable(comparison.key),
        turns=tuple(Turn(readable(turn.role), readable(turn.content)) for turn in comparison.turns),
        responses=(readable(comparison.responses[0]), readable(comparison.responses[1])),
        rewards=(rewards[0], rewards[1]),
        preferred=preferred,
        people=comparison.preferred,
        margin=margin,
        changes=tuple(_change(row) for row in rows.itertuples()),
    )


def _change(row: Any) -> Change:
    edited = None if pd.isna(row.edited) else row.edited
    return Change(
        side=row.side,
        attribute=readable(row.attribute),
        direction=readable(row.direction),
        seed=int(row.seed),
        perturber=readable(row.perturber),
        status=readable(row.status),
        note=readable(row.note),
        pieces=() if edited is None else diff(row.original, edited),
        margin=None if pd.isna(row.new_margin) else float(row.new_margin),
        change_in_sd=None if pd.isna(row.change_in_sd) else float(row.change_in_sd),
        outcome=None if pd.isna(row.outcome) else row.outcome,
    )
