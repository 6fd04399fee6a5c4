"""The view of a comparison says what the table says, hides nothing, and no text in it can act."""

import math

import pandas as pd
import pytest

from artifacts import OUTCOME
from pessimal.errors import InputError
from pessimal.explaining.views import GONE, NEW, SAME, diff, from_json, to_json, views
from pessimal.tables.comparisons import Comparison, Turn
from pessimal.texts import readable


def row(
    response: int, side: str, edited: str | None, new_margin: float = math.nan, **changed
) -> dict:
    """A row of the table of outcomes; the model prefers response 0 by 2."""
    outcome = (
        None if edited is None else "CF" if new_margin < 0 else "SF" if new_margin > 0 else "tie"
    )
    fixed = {
        "model": "lab/reward",
        "response": response,
        "side": side,
        "direction": "worse" if side == "chosen" else "better",
        "status": "changed" if edited is not None else "not applicable",
        "original": RESPONSES[response],
        "edited": edited,
        "reward": (3.0, 1.0)[response],
        "new_margin": new_margin,
        "change_in_sd": (new_margin - 2) / 4,
        "outcome": outcome,
    }
    return OUTCOME | fixed | changed


RESPONSES = ("Drink water and rest.", "Do nothing at all.")
COMPARISON = Comparison("first", (Turn("user", "I feel sick."),), RESPONSES, preferred=1)
ROWS = [
    row(0, "chosen", "Drink wine and rest.", -0.5),
    row(1, "rejected", "Do nothing at all. Sorry.", 1.25, note="adds a word"),
    row(0, "chosen", "Drink water and rest!", 0.0),
    row(0, "chosen", None, note="nothing to change"),
    row(1, "rejected", "Do something.", -4.0, attribute="helpfulness"),
]


@pytest.fixture
def view():
    (made,) = views(pd.DataFrame(ROWS), {"first": COMPARISON})
    return made


def joined(pieces, *kinds: str) -> str:
    return "".join(piece.text for piece in pieces if piece.kind in kinds)


def test_a_diff_holds_both_texts_whole():
    for original, edited in (
        ("", "a"),
        ("a\u200b b", "a c\x00 b"),
        ("自由 と 平和", "e\u0301 と"),
        ("a\r\n", "\ud83d"),
    ):
        pieces = diff(original, edited)
        assert joined(pieces, SAME, GONE) == readable(original)
        assert joined(pieces, SAME, NEW) == readable(edited)


def test_hidden_characters_are_spelled_out_and_joiners_that_join_are_kept():
    assert readable("a\u200bb\x00\u202e\ud83d") == "a⟨U+200B⟩b⟨U+0000⟩⟨U+202E⟩⟨U+D83D⟩"
    assert readable("👩‍💻 می‌خواهم\n\t") == "👩‍💻 می‌خواهم\n\t"
    assert readable("a\u200db") == "a⟨U+200D⟩b"
    assert readable(readable("\x00\u200d")) == readable("\x00\u200d")


def test_a_view_says_what_the_table_says(view):
    assert (view.model, view.comparison, view.preferred, view.people) == (
        "lab/reward",
        "first",
        0,
        1,
    )
    assert (view.rewards, view.margin) == ((3.0, 1.0), 2.0)
    assert [change.outcome for change in view.changes] == ["CF", "SF", "tie", None, "CF"]
    assert [change.margin for change in view.changes] == [-0.5, 1.25, 0.0, None, -4.0]
    assert view.changes[3].pieces == ()


def test_json_gives_views_back_and_refuses_what_is_none(view):
    text = to_json([view])
    assert from_json(text.encode().decode()) == [view]
    for old, new in (
        ("pessimal comparison views 1", "other"),
        ('"margin": 2.0', '"margin": NaN'),
        ('"margin": 2.0', '"margin": "2.0"'),
        ('"margin": 2.0, ', ""),
        ('"preferred": 0', '"preferred": 2'),
        ('"kind": "gone"', '"kind": "script"'),
        ('"seed": 0', '"seed": 0, "extra": 1'),
        ("{", "["),
    ):
        assert old in text
        with pytest.raises(InputError, match="not a file of"):
            from_json(text.replace(old, new, 1))
