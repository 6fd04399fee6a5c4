"""Which artifacts are listed: filters, conditions, order, names; and how a list is printed."""

import csv
import io
import json
from datetime import UTC, datetime

import pytest

from pessimal.errors import ConfigError, InputError
from pessimal.tracking.conditions import figures, read_condition
from pessimal.tracking.lineage import downwards, upwards
from pessimal.tracking.listing import Wanted, in_order, key_figures, select
from pessimal.tracking.listing_text import as_csv, as_json, as_table, record
from pessimal.tracking.named import find_artifact, find_artifacts
from pessimal.tracking.plain_text import cell, columns, cut, shown, visible, width_of
from pessimal.tracking.registry import Manifest
from pessimal.tracking.runs_text import tree_text

HOSTILE = ["=cmd()", "<script>", "\0\x1b[2J\n", "\ud83d", "", "🙂\u202e", "-1", "@x", "\tx", "模型"]


def manifest(name, version=0, type="score-table", created="2026-01-01T00:00:00+00:00", **fields):
    summary = fields.pop("summary", {})
    return Manifest(
        type=type, name=name, version=version, files={}, created=created, summary=summary, **fields
    )


def table(model, prompt, n, **figures):
    return manifest(f"{model}--{prompt}", summary={"model": model, "prompt": prompt, "n": n, **figures})


A, B, C = (
    table("plain", "best", 100, mean=0.5),
    table("alder", "best", 200, mean=-1.5),
    table("alder", "worst", 300, mean=None, optimal="love"),
)
OLD, NEW = (
    manifest("r", v, type="report", created=f"2026-02-0{v + 1}T12:00:00+00:00", summary={"bytes": 9})
    for v in (0, 1)
)
MODEL = manifest("alder", type="reward-model")
SEARCH = manifest("s", type="search-result", summary={"model": "alder", "prompts": ["best", "worst"]})
ALL = [A, B, C, OLD, NEW, MODEL, SEARCH]


def test_newest_versions_are_listed_unless_all_are_asked_for():
    assert select(ALL, Wanted()) == [A, B, C, NEW, MODEL, SEARCH]
    assert select(ALL, Wanted(all=True)) == ALL


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(type="score-table"), [A, B, C]),
        (Wanted(model="alder"), [B, C, MODEL, SEARCH]),
        (Wanted(prompt="worst"), [C, SEARCH]),
        (Wanted(name="*--best"), [A, B]),
        (Wanted(model="al*", prompt="best", type="score-table"), [B]),
        (Wanted(since=datetime(2026, 2, 2, tzinfo=UTC)), [NEW]),
        (Wanted(since=datetime(2026, 2, 1, 12, tzinfo=UTC), all=True), [OLD, NEW]),
        (Wanted(model="plain", type="report"), []),
    ],
)
def test_filters_leave_what_is_asked_for(wanted, found):
    assert select(ALL, wanted) == found


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(type="score-tabel"), "Did you mean 'score-table'"),
        (Wanted(model="aldr"), "Did you mean 'alder'"),
        (Wanted(prompt="greatest"), "There are: best, worst"),
        (Wanted(name="x*"), "no artifact in the registry"),
        (Wanted(where=[read_condition("maen>0")]), "Did you mean 'mean'"),
    ],
)
def test_what_no_artifact_has_is_a_mistake_not_an_empty_list(wanted, message):
    with pytest.raises(InputError, match=message):
        select(ALL, wanted)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("n>100", [B, C]),
        ("n >= 100", [A, B, C]),
        ("n=2e2", [B]),
        ("n==200", [B]),
        ("n!=200", [A, C]),
        ("mean<0", [B]),
        ("mean=null", [C]),
        ("mean!=null", [A, B]),
        ("optimal=love", [C]),
        ("prompts=worst", [SEARCH]),
        ("prompts!=worst", []),
        ("model>3", []),
    ],
)
def test_conditions_compare_numbers_as_numbers_and_texts_as_texts(condition, found):
    assert select(ALL, Wanted(where=[read_condition(condition)])) == found


def test_conditions_know_truths_inner_figures_and_infinities():
    summary = {
        "ok": True,
        "by": {"best": 1.5},
        "one": 1,
        "inf": float("inf"),
        "nan": float("nan"),
        "text": "1.0",
    }
    for holds in (
        "ok=true",
        "ok!=false",
        "by.best>1",
        "one=1.0",
        "inf>1e300",
        "nan=nan",
        "text=1.0",
        "text!=1",
    ):
        assert read_condition(holds).holds(summary), holds
    for fails in ("ok=1", "ok>0", "one=true", "nan>0", "nan<0", "none=1", "none!=1", "text>0"):
        assert not read_condition(fails).holds(summary), fails


@pytest.mark.parametrize("text", ["n", "", "=3", "n>many", "n>nan", "n<"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ConfigError, match="where="):
        read_condition(text)


def test_order_is_by_name_time_or_figure_and_what_has_none_comes_last():
    some = [C, B, A, MODEL]
    assert in_order(some, "name") == [MODEL, B, C, A]
    assert in_order(some, "n") == [A, B, C, MODEL]
    assert in_order(some, "n", descending=True) == [C, B, A, MODEL]
    assert in_order(some, "mean") == [B, A, MODEL, C], "null is no number"
    assert in_order([NEW, OLD], "created") == [OLD, NEW]
    with pytest.raises(InputError, match="Did you mean 'mean'"):
        in_order(some, "meen")


def test_artifact_is_found_by_any_of_its_names():
    for given in ("r", "r:v1", "report/r", "report/r:v1", "report/r/v1"):
        assert find_artifact(given, ALL) == NEW, given
    for given in ("r:v0", "report/r:v0", "report/r/v0"):
        assert find_artifact(given, ALL) == OLD, given
    many = [manifest("m", v) for v in range(12)]
    assert find_artifact("m", many).version == 11


def test_names_that_are_no_artifacts_or_several_are_refused():
    with pytest.raises(InputError, match="report/alder, reward-model/alder"):
        find_artifact("alder", [*ALL, manifest("alder", type="report")])
    with pytest.raises(InputError, match="Did you mean 'alder--best'"):
        find_artifact("alder--bset", ALL)
    with pytest.raises(InputError, match="there are: report/r:v0, report/r:v1"):
        find_artifact("r:v7", ALL)
    for given in ("", ":", "/", "r:", "score-table/r"):
        with pytest.raises(InputError):
            find_artifact(given, ALL)


def test_run_stands_for_all_that_it_published():
    one, other = manifest("a", run_id="12ab34cd"), manifest("b", run_id="12ab34cd")
    assert find_artifacts("12ab34cd", [*ALL, one, other]) == [one, other]
    named = manifest("12ab34cd")
    assert find_artifacts("12ab34cd", [one, other, named]) == [named]


def test_lineage_goes_both_ways_and_names_what_is_not_there():
    report = manifest("page", type="report", inputs=["comparison/c:v0", "comparison/d:v0"])
    c = manifest("c", type="comparison", inputs=[A.reference, "score-table/gone:v3"])
    d = manifest("d", type="comparison", inputs=[A.reference, "comparison/c:v0"])
    everything = [A, c, d, report]
    assert tree_text(upwards(report.reference, everything)) == [
        "report/page:v0",
        "├─ comparison/c:v0",
        "│  ├─ score-table/plain--best:v0",
        "│  └─ score-table/gone:v3   (not in this registry)",
        "└─ comparison/d:v0",
        "   ├─ score-table/plain--best:v0",
        "   └─ comparison/c:v0   (see above)",
    ]
    down = downwards(A.reference, everything)
    assert [node.reference for node in down.below] == ["comparison/c:v0", "comparison/d:v0"]
    assert [n.reference for n in down.below[0].below] == ["comparison/d:v0", "report/page:v0"]


def test_circle_and_crowd_of_inputs_end():
    circle = [manifest("a", inputs=["score-table/b:v0"]), manifest("b", inputs=["score-table/a:v0"])]
    assert len(tree_text(upwards("score-table/a:v0", circle))) == 3
    crowd = manifest("c", inputs=[f"score-table/t:v{i}" for i in range(100)])
    lines = tree_text(upwards(crowd.reference, [crowd]))
    assert len(lines) == 26
    assert lines[-1].startswith("└─ … and 76 more")


def test_table_of_one_type_has_a_column_a_figure():
    lines = as_table([A, B], width=None).splitlines()
    assert lines[0].split() == ["artifact", "created", "(UTC)", "run", "n", "mean"]
    assert lines[1].split() == ["plain--best:v0", "2026-01-01", "00:00", "100", "0.5"]
    assert lines[2].endswith("200  -1.5")
    mixed = as_table([A, NEW], width=None)
    assert "n=100  mean=0.5" in mixed
    assert "bytes=9" in mixed


def test_key_figures_of_a_type_nobody_foresaw_are_its_first():
    other = manifest("x", type="other", summary={"a": 1, "b": {"c": 2}, "d": 3, "e": 4, "f": 5})
    assert key_figures(other) == {"a": 1, "b.c": 2, "d": 3, "e": 4}


def test_table_fits_the_terminal_and_names_stay_whole():
    long = table("a" * 30, "best", 1, optimal="模" * 60, pessimal="x" * 60)
    lines = as_table([long], width=110).splitlines()
    assert all(width_of(line) <= 110 for line in lines)
    assert f"{'a' * 30}--best:v0" in lines[1]
    assert lines[1].count("…") == 2
    assert "…" not in as_table([long], width=None)


def test_columns_stand_below_one_another_whatever_is_in_them():
    text = columns(["a", "b"], [[value, 1] for value in HOSTILE])
    lines = text.splitlines()
    assert len(lines) == 1 + len(HOSTILE)
    assert {width_of(line) for line in lines} == {width_of(lines[0])}


def test_control_characters_never_reach_the_terminal():
    for text in HOSTILE:
        escaped = visible(text)
        assert escaped.isprintable() or escaped == ""
        escaped.encode()
    assert visible("\x1b[31m\n\0\u202e\u2028\ud83d") == r"\x1b[31m\n\x00\u202e\u2028\ud83d"
    assert shown(" good") == '" good"'
    assert (shown(""), shown(None)) == ('""', "")
    assert cut("模型模型", 5) == "模型…"


def test_csv_is_safe_for_spreadsheets_and_loses_nothing():
    artifacts = [
        table(f"m{i}", "best", -i, optimal=text, share=-0.5, ok=i == 0, **{"=key": None})
        for i, text in enumerate(HOSTILE)
    ]
    rows = list(csv.DictReader(io.StringIO(as_csv(artifacts))))
    assert len(rows) == len(HOSTILE)
    for i, (row, text) in enumerate(zip(rows, HOSTILE, strict=True)):
        text = row["summary.optimal"]
        assert not text.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
        expected = text.encode("utf-8", "backslashreplace").decode()
        assert text == (f"'{expected}" if expected[:1] in tuple("=+-@\t") and expected else expected)
        assert float(row["summary.n"]) == -i, "numbers stay numbers"
        assert row["summary.share"] == "-0.5"
    assert rows[0]["summary.ok"] == "true"
    assert all(not name.startswith("=") for name in rows[0])
    assert cell("=1") == "'=1"
    assert cell(-1.5) == -1.5


def test_json_is_strict_and_whole():
    summary = {"text": "\ud83d\0", "nan": float("nan"), "inner": {"inf": [float("inf")]}, "n": 0.1 + 0.2}
    text = as_json([record(manifest("a", 3, summary=summary))])
    text.encode("ascii")

    def refuse(constant):
        raise AssertionError(constant)

    (one,) = json.loads(text, parse_constant=refuse)
    assert one["reference"] == "score-table/a:v3"
    assert one["path"] == "score-table/a/v3"
    assert one["summary"] == {
        "text": "\ud83d\0",
        "nan": "NaN",
        "inner": {"inf": ["Infinity"]},
        "n": 0.30000000000000004,
    }


def test_figures_of_inner_dictionaries_have_dotted_names():
    assert figures({"a": {"b": {"c": 1}}, "d": []}) == {"a.b.c": 1, "d": []}
