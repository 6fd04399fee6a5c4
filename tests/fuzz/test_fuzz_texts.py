"""No text leaves as anything but text: in figures, terminals, spreadsheets, folder names and
edits."""

import csv
import io
import re
import unicodedata

import pytest
from fuzzing import cases, hostile, values
from hypothesis import example
from hypothesis import strategies as st
from rich.cells import cell_len

from pessimal.explaining.distances import pieces
from pessimal.explaining.smallest import apply, hunks_between
from pessimal.explaining.views import GONE, NEW, SAME, condensed, diff
from pessimal.texts import literal, readable, short_names, storable
from pessimal.tracking.registry import Manifest, safe_name
from pessimal.verbs.common import as_csv, cell_text, table_text, visible
from pessimal.verbs.runs import artifact_frame

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet would run, or take for another cell's beginning (OWASP, CSV injection)."""
UNSEEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@cases(260, text=hostile, limit=st.sampled_from([8, 24, 60, 10_000]))
def test_everything_in_a_literal_can_be_seen(text, limit):
    drawn = literal(text, limit=limit)
    assert 0 < len(drawn) <= max(limit, 1)
    assert not UNSEEN & {unicodedata.category(character) for character in drawn}
    assert not any(character.isspace() and character != " " for character in drawn)
    assert drawn == drawn.strip(" "), "blanks at the ends have a sign"


@cases(160, text=hostile, other=hostile)
def test_uncut_literals_tell_texts_apart(text, other):
    signs = re.compile("[␣∅◌]")  # drawn in place of something; a text may hold them too
    if text != other and not signs.search(text + other):
        assert literal(text, limit=10**6) != literal(other, limit=10**6)
        assert len(set(short_names([text, other]).values())) == 2


@cases(160, original=hostile, edited=hostile)
@example(original="a \ud83d b", edited="a \ude00 b")
def test_the_parts_of_an_edit_make_both_texts_again(original, edited):
    assert "".join(pieces(original)) == original
    hunks = hunks_between(original, edited)
    assert apply(original, hunks) == edited
    assert apply(original, hunks, ()) == original
    parts = diff(original, edited)
    # Half characters on either side of a cut are spelled out alone, but are one whole character in
    # the text.
    assert _plain("".join(part.text for part in parts if part.kind in (SAME, GONE))) == _plain(
        readable(original)
    )
    assert _plain("".join(part.text for part in parts if part.kind in (SAME, NEW))) == _plain(
        readable(edited)
    )
    shown = "".join(part.text + part.visible for part in (*parts, *condensed(parts)))
    assert not re.search(
        "[^\n\t\u200c\u200d]", "".join(c for c in shown if unicodedata.category(c)[0] == "C")
    )


def _plain(text: str) -> str:
    """Without joiners, which stay or are spelled out by what stands beside them."""
    return re.sub("[\u200c\u200d]|⟨U\\+200[CD]⟩", "", text)


@cases(160, text=hostile)
def test_what_a_file_stores_is_utf8_and_other_texts_stay_as_they_are(text):
    stored = storable(text)
    assert stored.encode().decode() == stored == storable(stored)
    if not any(unicodedata.category(character) == "Cs" for character in text):
        assert stored == text


@cases(230, names=st.lists(hostile, min_size=2, max_size=2, unique=True))
def test_names_are_safe_for_folders_and_stay_apart(names):
    safe = [safe_name(name) for name in names]
    for one in safe:
        assert re.fullmatch(r"[A-Za-z0-9._-]+", one)
        assert one not in (".", "..")
        assert not one.startswith((".", "-."))
    folded = [name.replace("/", "_").replace(" ", "_") for name in names]
    if folded[0] != folded[1]:  # slashes and spaces alone are allowed to coincide
        assert safe[0] != safe[1]


@cases(200, value=st.one_of(hostile, values))
def test_a_terminal_gets_one_line_without_control_characters(value):
    for text in (visible(str(value)), cell_text(value)):
        assert not any(unicodedata.category(character)[0] == "C" for character in text)
        assert len(text.splitlines()) <= 1
    line = table_text(["name"], [[value]], width=30)
    assert all(cell_len(part) <= 30 for part in line.split("\n"))
    assert line.count("\n") == 1


figures = st.dictionaries(
    hostile, st.one_of(st.integers(), st.floats(), st.booleans(), st.none(), hostile), max_size=3
)
manifests = st.lists(
    st.builds(
        Manifest,
        type=st.sampled_from(["score-table", "thing"]),
        name=hostile,
        version=st.integers(0, 3),
        files=st.just({}),
        key=st.one_of(st.none(), hostile),
        inputs=st.lists(hostile, max_size=2),
        run_id=st.one_of(st.none(), hostile),
        created=hostile,
        summary=figures,
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda manifest: manifest.reference,
)


@pytest.mark.slow
@cases(230, found=manifests)
def test_a_spreadsheet_runs_nothing_of_an_exported_list(found):
    text = as_csv(artifact_frame(found))
    assert text.encode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert len(rows) == 1 + len(found)
    numbers = re.compile(r"[+-]?(\d+(\.\d+)?([eE][+-]?\d+)?|inf)")
    for entry in (one for row in rows for one in row):
        assert not entry.startswith(FORMULA) or numbers.fullmatch(entry), entry
    for row, manifest in zip(rows[1:], found, strict=True):
        text = storable(manifest.name)
        assert row[1] in (text, "'" + text), "the same text comes back"
