"""Hostile texts and damaged files: what is read is read whole, the rest is refused by name, and no
text leaves as anything but text."""

import csv
import io
import json
import re
import shutil
import tempfile
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir

from artifacts import OUTCOME, write_artifact
from experiments.inherited_values.word_categories import read_dictionary
from pessimal.cli import add_task
from pessimal.errors import ConfigError, InputError, TableError, UserError
from pessimal.explaining.smallest import apply, hunks_between
from pessimal.explaining.views import from_json, to_json, views
from pessimal.options import existing_file, matching
from pessimal.plots import TokenTable
from pessimal.report.page import page
from pessimal.scoring.candidates import read_items
from pessimal.tables.comparisons import Comparison, Turn, from_row, read_jsonl
from pessimal.tables.published import read_eloeverything, read_factorial54, read_vocabulary
from pessimal.tables.result import Estimate, Result
from pessimal.tables.score_table import read_provenance, read_score_table
from pessimal.tables.word_lists import read_frequencies, read_lexicon
from pessimal.texts import literal, short_names, storable
from pessimal.tracking.registry import MANIFEST, Manifest, Registry, read_manifest, safe_name
from pessimal.verbs.common import as_csv, cell_text, table_text, visible
from pessimal.verbs.runs import artifact_frame

# It keeps tables of Unicode there, from before the first fixture on.
HOME = tempfile.TemporaryDirectory(prefix="hypothesis-")
set_hypothesis_home_dir(HOME.name)

# fmt: off
HOSTILE = [
    "", " ", "\n", "\r\n", "\x00", "a\x00b", "\x1b[31m", "\x85", "\u2028", "\ufeff", "\ud83d",
    "\udc80", "\u202eabc", "\u200d", "e\u0301", "שלום", "👩\u200d💻", "自由", "\ue000", "\U0010ffff",
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</style>", "<!--", "]]>",
    "&lt;", "{{ 7*7 }}", "=cmd()", "+1", "-1", "@SUM(A1)", '"', '""', "a,b", "\\", "null", "nan",
    "NA", "inf", "1e400", "9" * 30, "%", "*", "[", "{", "${oc.env:HOME}", "???", "~no such user/x",
    "..", "../x", "x" * 5000, "--help", "-m", "id:99999999999999999999", "ſ", "İ",
]
# fmt: on
ANY = st.characters(exclude_categories=())  # half characters too, which hypothesis would leave out
hostile = st.one_of(st.sampled_from(HOSTILE), st.text(ANY, max_size=12))
whole = hostile.map(lambda text: text.encode("utf-8", "replace").decode())
"""Any text without half characters, as a file of UTF-8 holds it."""
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), hostile),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(hostile, inner, max_size=3)
    ),
    max_leaves=6,
)
"""Anything that JSON, as Python writes it, holds."""
cuts = st.lists(st.tuples(st.integers(0, 5000), st.binary(max_size=3)), max_size=4)


def cases(n: int, **strategies) -> Callable:
    """Run a test on `n` cases, the same ones every time; arguments without a strategy are
    fixtures."""
    steady = settings(
        max_examples=n,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    return lambda check: steady(given(**strategies)(check))


def damage(content: bytes, places: list[tuple[int, bytes]]) -> bytes:
    """The content with bytes put over its own, and cut off at the last place of several."""
    for place, put in places:
        place %= len(content) + 1
        content = content[:place] + put + content[place + len(put) :]
    return content[: places[-1][0] % (len(content) + 1)] if len(places) > 2 else content


def is_refused(attempt: Callable[[], object], *, naming: str = "", kinds=UserError) -> bool:
    """Whether the attempt is refused, by a message that names what it is about; any other error
    goes on its way."""
    try:
        attempt()
    except kinds as error:
        message = str(error).strip()
    else:
        return False
    assert message
    assert naming in message
    assert "Traceback" not in message
    return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all cases: a case overwrites what the one before it wrote."""
    return tmp_path_factory.mktemp("fuzz")


TABLES = {
    "elo_rank,elo_score,name,elo_matches,lab/model": lambda path: read_eloeverything(
        path, prompt="greatest"
    ),
    "token_id,token_name,token_decoded,greatest": read_vocabulary,
    "name,elo_score,elo_matches": lambda path: read_items(path, name="things"),
    "category,word": read_dictionary,
    "word,valence": lambda path: read_lexicon(str(path)),
    "word,per_million": lambda path: read_frequencies(str(path)),
}
cells = st.one_of(st.sampled_from(["0", "1", "1.5", "-3", "love", "safe*"]), whole)


@cases(
    80,
    heading=st.sampled_from(sorted(TABLES)),
    rows=st.lists(st.lists(cells, min_size=2, max_size=5), max_size=4),
    places=st.one_of(st.just([]), cuts),
)
def test_a_table_of_text_is_read_or_refused_by_name(folder, heading, rows, places):
    file = folder / "some.csv"
    lines = [heading, *(",".join(f'"{cell}"' for cell in row) for row in rows)]
    file.write_bytes(damage("\n".join(lines).encode(), places))
    is_refused(lambda: TABLES[heading](file), naming=file.name, kinds=(InputError, TableError))


@cases(40, names=st.lists(whole, min_size=1, max_size=5, unique=True))
def test_the_text_of_a_cell_arrives_as_it_is(folder, names):
    file = folder / "sound.csv"
    with file.open("w", encoding="utf-8", newline="") as sink:
        writer = csv.writer(sink, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow(["token_id", "token_name", "token_decoded", "best"])
        writer.writerows([number, name, name, number / 3] for number, name in enumerate(names))
    (table,) = read_vocabulary(file, model="m")
    assert table.rows["text"].tolist() == table.rows["token"].tolist() == names
    assert table.rows["reward"].tolist() == [number / 3 for number in range(len(names))]


columns = st.one_of(
    *(
        st.lists(cell, min_size=2, max_size=2)
        for cell in (whole, st.floats(), st.lists(st.integers(0, 3)), st.binary(max_size=3))
    )
)
FIELDS = ["response", "candidate_id", "text", "reward", "prompt", "chosen", "rejected"]


@cases(
    60,
    frame=st.dictionaries(st.one_of(st.sampled_from(FIELDS), whole), columns, max_size=4),
    metadata=st.sampled_from([b"{}", b"[]", b"\x80", b'{"format": 1, "identity": 3}']),
    places=cuts,
)
@example(frame={"response": ["a", "b"], "best": [[0], [1]]}, metadata=b"{}", places=[])
@example(frame={"response": [b"\x80", b"a"], "best": [0.5, 1.0]}, metadata=b"{}", places=[])
def test_a_parquet_file_is_read_or_refused_by_name(folder, frame, metadata, places):
    file = folder / "words_rewards_lab_model.parquet"
    table = pa.table(frame).replace_schema_metadata({b"pessimal.score_table": metadata})
    pq.write_table(table, file)
    if len(places) > 1:
        file.write_bytes(damage(file.read_bytes(), places))
    for read in (read_factorial54, read_score_table, read_provenance, read_jsonl):
        is_refused(lambda read=read: read(file), naming=file.name, kinds=(InputError, TableError))


turn = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": hostile})
said = st.one_of(hostile, st.lists(turn, max_size=3), st.lists(hostile, max_size=2), values)
KEYS = ["prompt", "responses", "preferred", "key", "chosen", "rejected", "response_1", "label"]
rows = st.one_of(
    st.fixed_dictionaries({"prompt": hostile, "chosen": hostile, "rejected": hostile}),
    st.dictionaries(st.sampled_from(KEYS), st.one_of(said, st.integers(-1, 2))),
    values,
)


@cases(120, row=rows)
@example(row={"prompt": "a", "responses": ["\ud83d", "b"], "preferred": True})
@example(row={"prompt": "a", "responses": ["x", "b"], "preferred": 1e400})
@example(row={"prompt": [{"role": ["user"], "content": "x"}], "responses": ["x", "b"]})
@example(row={"prompt": "a", "responses": {"x": 1, "b": 2}})
def test_a_row_is_a_comparison_or_is_refused_by_its_place(row):
    read = []
    where = {"where": "file, line 3", "key": "file-3"}
    if not is_refused(
        lambda: read.append(from_row(row, **where)), naming="file, line 3", kinds=InputError
    ):
        [one] = read
        assert "".join([one.key, *one.responses, *(t.content for t in one.turns)]).encode()
        assert one.preferred in (0, 1, None)


@cases(
    50,
    lines=st.lists(st.one_of(rows.map(json.dumps), hostile), max_size=3),
    places=cuts,
    suffix=st.sampled_from([".jsonl", ".json", ".txt"]),
)
@example(lines=["[" * 100_000], suffix=".jsonl", places=[])
@example(lines=["9" * 5000], suffix=".jsonl", places=[])
def test_a_file_of_comparisons_is_read_or_refused_by_name(folder, lines, suffix, places):
    file = folder / f"pairs{suffix}"
    content = f"[{','.join(lines)}]" if suffix == ".json" else "\n".join(lines)
    file.write_bytes(damage(content.encode("utf-8", "surrogatepass"), places))
    is_refused(lambda: read_jsonl(file), naming=file.name, kinds=InputError)


@pytest.fixture(scope="module")
def registry(folder):
    registry = Registry(folder / "registry")
    for name in ("one", "two"):
        registry.publish("thing", name, lambda staging: (staging / "a.txt").write_text("a"))
    return registry


@cases(40, content=st.one_of(st.binary(max_size=20), values))
@example(content=b"9" * 5000)
@example(content=b"[" * 100_000)
@example(content={"files": 3})
@example(content={"version": "\ud83d"})
def test_a_damaged_manifest_hides_nothing_but_itself(registry, content):
    place = registry.root / "thing" / "one" / "v0"
    sound = (place / MANIFEST).read_bytes()
    if isinstance(content, dict):
        content = json.loads(sound) | content
    try:
        (place / MANIFEST).write_bytes(
            content if isinstance(content, bytes) else json.dumps(content).encode()
        )
        is_refused(lambda: read_manifest(place), naming="manifest", kinds=InputError)
        assert "two" in [manifest.name for _, manifest in registry.manifests()]
    finally:
        (place / MANIFEST).write_bytes(sound)


words = st.sampled_from(["scan", "runs", "show", "-m", "--cfg", "job", "model=", "+x=", "scna"])


@cases(100, arguments=st.lists(st.one_of(words, hostile), max_size=6))
@example(arguments=["runs", "show", "\ud83d"])
def test_a_command_line_becomes_one_for_hydra_or_is_refused(arguments):
    is_refused(lambda: add_task(arguments), kinds=ConfigError)


@cases(40, text=hostile)
@example(text="~no such user/x")
@example(text="\x00*")
@example(text="\ud83d*")
def test_a_path_is_opened_or_refused_by_its_name(folder, text, monkeypatch):
    monkeypatch.chdir(folder)
    for read in (existing_file, matching):
        is_refused(lambda read=read: read("path", text), naming=repr(text)[1:-1][:20])


HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@cases(120, text=hostile, other=hostile, limit=st.sampled_from([8, 24, 10_000]))
def test_everything_in_a_literal_can_be_seen_and_texts_stay_apart(text, other, limit):
    drawn = literal(text, limit=limit)
    assert 0 < len(drawn) <= limit
    assert not HIDDEN & {unicodedata.category(character) for character in drawn}
    assert drawn == drawn.strip(), "blanks at the ends have a sign"
    signs = re.compile("[␣∅◌]")  # drawn in place of something; a text may hold them too
    if text != other and not signs.search(text + other):
        assert literal(text, limit=10**6) != literal(other, limit=10**6)
        assert len(set(short_names([text, other]).values())) == 2


@cases(80, original=hostile, edited=hostile)
@example(original="a \ud83d b", edited="a \ude00 b")
def test_the_parts_of_an_edit_make_both_texts_again(original, edited):
    hunks = hunks_between(original, edited)
    assert apply(original, hunks) == edited
    assert apply(original, hunks, ()) == original
    stored = storable(original)
    assert stored.encode().decode() == stored == storable(stored)


@cases(80, names=st.lists(hostile, min_size=2, max_size=2, unique=True))
def test_names_are_safe_for_folders_and_stay_apart(names):
    safe = [safe_name(name) for name in names]
    for one in safe:
        assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", one)
        assert not one.startswith("-.")
    folded = [name.replace("/", "_").replace(" ", "_") for name in names]
    if folded[0] != folded[1]:  # slashes and spaces alone are allowed to coincide
        assert safe[0] != safe[1]


@cases(60, value=st.one_of(hostile, values))
def test_a_terminal_gets_one_line_without_control_characters(value):
    for text in (visible(str(value)), cell_text(value)):
        assert not any(unicodedata.category(character)[0] == "C" for character in text)
        assert len(text.splitlines()) <= 1
    assert table_text(["name"], [[value]], width=30).count("\n") == 1


FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Beginnings that a spreadsheet would run (OWASP, CSV injection)."""


@cases(60, names=st.lists(hostile, min_size=1, max_size=3, unique=True), text=hostile)
def test_a_spreadsheet_runs_nothing_of_an_exported_list(names, text):
    listed = [Manifest("thing", name, 0, {}, summary={text: text, "n": -1.5}) for name in names]
    exported = as_csv(artifact_frame(listed))
    cells_of = list(csv.reader(io.StringIO(exported, newline="")))
    assert [len(row) for row in cells_of] == [len(cells_of[0])] * (1 + len(listed))
    number = re.compile(r"[+-]?(\d+(\.\d+)?([eE][+-]?\d+)?|inf)")
    for entry in (one for row in cells_of for one in row):
        assert not entry.startswith(FORMULA) or number.fullmatch(entry), entry
    for row, name in zip(cells_of[1:], names, strict=True):
        assert row[1] in (storable(name), "'" + storable(name)), "the same text comes back"


class Skeleton(HTMLParser):
    """Every tag with the names of its attributes; nothing in it acts."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, tuple(sorted(name for name, _ in attributes))))
        for name, value in attributes:
            assert not name.startswith("on"), f"{tag} has {name}={value!r}"
            if name in ("href", "src", "action"):
                assert re.match("#|$", value or ""), f"{tag} leads to {value!r}"

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data!r}")


def page_of(folder, texts: list[str]) -> str:
    """A page on which the texts stand in every place that takes one."""
    first, second, third = texts
    labels = dict(zip("abc", texts, strict=True))
    ends = pd.DataFrame({"model": list("abc") * 2, "text": texts * 2, "end": ["top", "bottom"] * 3})
    ends = ends.assign(prompt="p", rank=1, reward=0.5, certified=False)
    pairs = {"model_a": ["a", "a"], "model_b": ["b", "c"], "kendall": [0.9, 0.1], "prompt": first}
    about = {"headline": first, "method": second, "notes": (third,)}
    estimate = Estimate(first, 0.5, 3, second, p=0.1)
    results = [
        Result("ends", ends, plot=TokenTable(), estimate=estimate, **about),
        Result("agreement", pd.DataFrame(pairs)),
        Result("provenance", pd.DataFrame({"model": list("abc"), "developer": texts})),
    ]
    more = {"skipped": {first: second}, "reference": second, "created": third, "drawn": False}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return page([write_artifact(folder, results, labels=labels, **more)], title=first)


@pytest.fixture(scope="module")
def harmless(folder):
    return Skeleton(page_of(folder / "harmless", ["one", "two", "three"])).tags


@cases(6, texts=st.lists(hostile.map(storable).filter(bool), min_size=3, max_size=3))
@example(texts=["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</details>"])
@example(texts=["<!--", "]]>", "</title><style>"])
def test_a_page_of_hostile_texts_has_the_tags_of_a_harmless_one(folder, harmless, texts):
    texts = [text[:400] for text in texts]
    assert Skeleton(page_of(folder / "page", texts)).tags == harmless


@cases(30, text=hostile.filter(bool))
@example(text="\ud83d</ins><script>")
def test_a_view_of_hostile_texts_is_read_as_it_was_written(text):
    turns = (Turn("assistant", text), Turn("user", text))
    row = OUTCOME | dict.fromkeys(("model", "comparison", "attribute", "note", "original"), text)
    # As objects: pandas' own strings can hold no half character.
    table = pd.DataFrame(
        {
            name: pd.Series([value], dtype=object)
            for name, value in (row | {"edited": "new"}).items()
        }
    )
    found = views(table, {text: Comparison(text, turns, (text, text + " other"))})
    assert from_json(to_json(found)) == found
