"""Which artifacts are listed: filters, conditions, order, names, lineage; and how a list is printed."""

import csv
import io
import json
from datetime import UTC, datetime

import pytest
from rich.cells import cell_len

from pessimal.errors import ConfigError, InputError
from pessimal.tracking.listing import find_artifacts, frame, in_order, key_figures, lineage, select
from pessimal.tracking.printing import as_csv, as_json, cell, shown, table_text, tree_text, visible
from pessimal.tracking.registry import Manifest
from pessimal.verbs.runs import for_spreadsheet, list_text, record

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


def chosen(manifests=ALL, **wanted):
    found = select(frame(manifests), **wanted)
    by_reference = {m.reference: m for m in manifests}
    return [by_reference[reference] for reference in found.index]


def test_newest_versions_are_listed_unless_all_are_asked_for():
    assert chosen() == [A, B, C, NEW, MODEL, SEARCH]
    assert chosen(all=True) == ALL


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"type": "score-table"}, [A, B, C]),
        ({"model": "alder"}, [B, C, MODEL, SEARCH]),
        ({"prompt": "worst"}, [C, SEARCH]),
        ({"name": "*--best"}, [A, B]),
        ({"model": "al*", "prompt": "best", "type": "score-table"}, [B]),
        ({"since": datetime(2026, 2, 2, tzinfo=UTC)}, [NEW]),
        ({"since": datetime(2026, 2, 1, 12, tzinfo=UTC), "all": True}, [OLD, NEW]),
        ({"model": "plain", "type": "report"}, []),
    ],
)
def test_filters_leave_what_is_asked_for(wanted, found):
    assert chosen(**wanted) == found


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"type": "score-tabel"}, "Did you mean 'score-table'"),
        ({"model": "aldr"}, "Did you mean 'alder'"),
        ({"prompt": "greatest"}, "There are: best, worst"),
        ({"name": "x*"}, "no artifact in the registry"),
        ({"where": ["maen>0"]}, "Did you mean 'mean'"),
    ],
)
def test_what_no_artifact_has_is_a_mistake_not_an_empty_list(wanted, message):
    with pytest.raises(InputError, match=message):
        chosen(**wanted)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("n>100", [B, C]),
        ("n >= 100", [A, B, C]),
        ("n=2e2", [B]),
        ("n==200", [B]),
        ("n!=200", [A, C]),
        ("mean<0", [B]),
        ("mean=null", [C, NEW, MODEL, SEARCH]),
        ("mean!=null", [A, B]),
        ("optimal=love", [C]),
        ("prompts=worst", [SEARCH]),
        ("prompts!=worst", []),
        ("model>3", []),
    ],
)
def test_conditions_compare_numbers_as_numbers_and_texts_as_texts(condition, found):
    assert chosen(where=[condition]) == found


def test_conditions_know_truths_inner_figures_and_infinities():
    summary = {
        "ok": True,
        "by": {"best": 1.5},
        "one": 1,
        "inf": float("inf"),
        "nan": float("nan"),
        "text": "1.0",
    }
    one = manifest("m", summary=summary)
    holding = ("ok=true", "ok!=false", "by.best>1", "one=1.0", "inf>1e300", "nan=null", "text=1.0", "text!=1")
    for condition in holding:
        assert chosen([one], where=[condition]) == [one], condition
    for condition in ("ok=1", "ok>0", "one=true", "nan>0", "nan<0", "nan!=1", "text>0"):
        assert chosen([one], where=[condition]) == [], condition


@pytest.mark.parametrize("text", ["n", "", "=3", "n>many", "n>nan", "n<"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ConfigError, match="where="):
        chosen(where=[text])


def test_order_is_by_name_time_or_figure_and_what_has_none_comes_last():
    def ordered(manifests, by, **options):
        by_reference = {m.reference: m for m in manifests}
        return [by_reference[r] for r in in_order(frame(manifests), by, **options).index]

    some = [C, B, A, MODEL]
    assert ordered(some, "name") == [MODEL, B, C, A]
    assert ordered(some, "n") == [A, B, C, MODEL]
    assert ordered(some, "n", descending=True) == [C, B, A, MODEL]
    assert ordered(some, "mean")[:2] == [B, A], "null is no number"
    assert ordered(some, "optimal")[0] == C
    assert ordered([NEW, OLD], "created") == [OLD, NEW]
    with pytest.raises(InputError, match="Did you mean 'mean'"):
        ordered(some, "meen")


def test_artifact_is_found_by_any_of_its_names():
    for given in ("r", "r:v1", "report/r", "report/r:v1", "report/r/v1"):
        assert find_artifacts(given, ALL) == [NEW], given
    for given in ("r:v0", "report/r:v0", "report/r/v0"):
        assert find_artifacts(given, ALL) == [OLD], given
    assert find_artifacts("m", [manifest("m", v) for v in range(12)])[0].version == 11


def test_names_that_are_no_artifacts_or_several_are_refused():
    with pytest.raises(InputError, match="report/alder, reward-model/alder"):
        find_artifacts("alder", [*ALL, manifest("alder", type="report")])
    with pytest.raises(InputError, match="Did you mean 'alder--best'"):
        find_artifacts("alder--bset", ALL)
    with pytest.raises(InputError, match="there are: report/r:v0, report/r:v1"):
        find_artifacts("r:v7", ALL)
    for given in ("", ":", "/", "r:", "score-table/r"):
        with pytest.raises(InputError):
            find_artifacts(given, ALL)


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
    assert tree_text(lineage(report.reference, everything, upwards=True), width=None).splitlines() == [
        "report/page:v0",
        "├── comparison/c:v0",
        "│   ├── score-table/plain--best:v0",
        "│   └── score-table/gone:v3   (not in this registry)",
        "└── comparison/d:v0",
        "    ├── score-table/plain--best:v0",
        "    └── comparison/c:v0   (see above)",
    ]
    down = lineage(A.reference, everything, upwards=False)
    assert [node["reference"] for node in down["below"]] == ["comparison/c:v0", "comparison/d:v0"]
    below = down["below"][0]["below"]
    assert [node["reference"] for node in below] == ["comparison/d:v0", "report/page:v0"]


def test_circle_and_crowd_of_inputs_end():
    circle = [manifest("a", inputs=["score-table/b:v0"]), manifest("b", inputs=["score-table/a:v0"])]
    assert len(tree_text(lineage("score-table/a:v0", circle, upwards=True), width=None).splitlines()) == 3
    crowd = manifest("c", inputs=[f"score-table/t:v{i}" for i in range(100)])
    lines = tree_text(lineage(crowd.reference, [crowd], upwards=True), width=None).splitlines()
    assert len(lines) == 26
    assert "… and 76 more" in lines[-1]


def test_table_of_one_type_has_a_column_a_figure():
    lines = list_text([A, B], width=None).splitlines()
    assert lines[0].split() == ["artifact", "created", "(UTC)", "run", "n", "mean"]
    assert lines[1].split() == ["plain--best:v0", "2026-01-01", "00:00", "100", "0.5"]
    assert lines[2].endswith("200  -1.5")
    mixed = list_text([A, NEW], width=None)
    assert "n=100  mean=0.5" in mixed
    assert "bytes=9" in mixed
    other = manifest("x", type="other", summary={"a": 1, "b": {"c": 2}, "d": 3, "e": 4, "f": 5})
    assert key_figures(other) == {"a": 1, "b.c": 2, "d": 3, "e": 4}


def test_table_fits_the_terminal_and_names_stay_whole():
    long = table("a" * 30, "best", 1, optimal="模" * 60, pessimal="x" * 60)
    lines = list_text([long], width=110).splitlines()
    assert all(cell_len(line) <= 110 for line in lines)
    assert f"{'a' * 30}--best:v0" in lines[1]
    assert lines[1].count("…") == 2
    assert "…" not in list_text([long], width=None)


def test_columns_stand_below_one_another_whatever_is_in_them():
    lines = table_text(["a", "b"], [[value, 1] for value in HOSTILE], width=None).splitlines()
    assert len(lines) == 1 + len(HOSTILE)
    assert {cell_len(line) for line in lines} == {cell_len(lines[0])}


def test_control_characters_never_reach_the_terminal():
    for text in HOSTILE:
        assert visible(text).isprintable()
        visible(text).encode()
    assert visible("\x1b[31m\n\0\u202e\u2028\ud83d") == r"\x1b[31m\n\x00\u202e\u2028\ud83d"
    assert (shown(" good"), shown(""), shown(None)) == ('" good"', '""', "")
    about = {"\x1b[2J[red]": "\x1b[31m[bold]x[/bold]\r"}
    hostile = [manifest("m", type="other", summary=about, run_id="\x1b")]
    text = list_text(hostile, width=80) + list_text([*hostile, NEW], width=None)
    assert not set(text) & set("\x1b\r")
    assert "[bold]" in text, "what looks like rich's markup is text"


def test_csv_is_safe_for_spreadsheets_and_loses_nothing():
    artifacts = [
        table(f"m{i}", "best", -i, optimal=text, share=-0.5, ok=i == 0, **{"=key": None})
        for i, text in enumerate([*HOSTILE, "a\rb"])
    ]
    text = as_csv(for_spreadsheet(frame(artifacts)))
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) == len(artifacts), "a lone carriage return tears no row in two"
    for i, (row, given) in enumerate(zip(rows, [*HOSTILE, "a\rb"], strict=True)):
        expected = given.encode("utf-8", "backslashreplace").decode()
        assert row["summary.optimal"] == (
            f"'{expected}" if expected[:1] in tuple("=+-@\t") and expected else expected
        )
        assert row["summary.n"] == str(-i), "whole numbers stay whole"
        assert row["summary.share"] == "-0.5"
    assert rows[0]["summary.ok"] == "true"
    assert all(not name.startswith("=") for name in rows[0])
    assert (cell("=1"), cell(-1.5), cell(float("nan"))) == ("'=1", -1.5, None)


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
