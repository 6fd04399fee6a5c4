"""Which artifacts are listed: filters, conditions, order, names, lineage; and how a list is
printed."""

import csv
import io

import pytest

from pessimal.errors import ConfigError, InputError
from pessimal.tracking.registry import Manifest, find_artifact
from pessimal.verbs.common import as_csv, cell_text, visible
from pessimal.verbs.runs import (
    artifact_frame,
    lineage,
    lineage_line,
    list_text,
    select,
    sort_artifacts,
)

HOSTILE = ["=cmd()", "<script>", "\0\x1b[2J\n", "\ud83d", "", "🙂\u202e", "-1", "@x", "\tx", "模型"]


def manifest(name, version=0, type="score-table", created="2026-01-01T00:00:00+00:00", **fields):
    summary = fields.pop("summary", {})
    return Manifest(
        type=type, name=name, version=version, files={}, created=created, summary=summary, **fields
    )


def table(model, prompt, n, **figures):
    return manifest(
        f"{model}--{prompt}", summary={"model": model, "prompt": prompt, "n": n, **figures}
    )


A, B, C = (
    table("plain", "best", 100, mean=0.5),
    table("alder", "best", 200, mean=-1.5),
    table("alder", "worst", 300, mean=None, optimal="love"),
)
OLD, NEW = (
    manifest(
        "r", v, type="report", created=f"2026-02-0{v + 1}T12:00:00+00:00", summary={"bytes": 9}
    )
    for v in (0, 1)
)
MODEL = manifest("alder", type="reward-model")
SEARCH = manifest(
    "s", type="search-result", summary={"model": "alder", "prompts": ["best", "worst"]}
)
ALL = [A, B, C, OLD, NEW, MODEL, SEARCH]


def chosen(manifests=ALL, **wanted):
    found = select(artifact_frame(manifests), **wanted)
    by_reference = {m.reference: m for m in manifests}
    return [by_reference[reference] for reference in found.index]


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"type": "score-tabel"}, "Did you mean 'score-table'"),
        ({"model": "aldr"}, "Did you mean 'alder'"),
        ({"prompt": "greatest"}, "There are: best, worst"),
        ({"name": "x*"}, "no artifact in the registry"),
    ],
)
def test_what_no_artifact_has_is_a_mistake_not_an_empty_list(wanted, message):
    with pytest.raises(InputError, match=message):
        chosen(**wanted)


@pytest.mark.parametrize(
    ("condition", "found"),
    [("n>100", [B, C]), ("n==2e2", [B]), ("mean<0", [B]), ("optimal=='love'", [C])],
)
def test_conditions_are_those_of_pandas(condition, found):
    assert chosen(where=condition) == found


def test_conditions_know_truths_inner_figures_and_infinities():
    summary = {"ok": True, "by": {"best": 1.5}, "large": float("inf"), "nan": float("nan")}
    one = manifest("m", summary=summary | {"text": "1.0"})
    for condition in ("ok == True", "`by.best`>1", "large>1e300", "nan.isna()", "text=='1.0'"):
        assert chosen([one], where=condition) == [one], condition
    for condition in ("nan>0", "nan<0", "ok == False"):
        assert chosen([one], where=condition) == [], condition


@pytest.mark.parametrize("text", ["n=", "optimal>3"])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ConfigError, match="where="):
        chosen(where=text)


def test_order_is_by_name_time_or_figure_and_what_has_none_comes_last():
    def ordered(manifests, by, **options):
        by_reference = {m.reference: m for m in manifests}
        return [
            by_reference[r] for r in sort_artifacts(artifact_frame(manifests), by, **options).index
        ]

    some = [C, B, A, MODEL]
    assert ordered(some, "name") == [MODEL, B, C, A]
    assert ordered(some, "n") == [A, B, C, MODEL]
    assert ordered(some, "n", descending=True) == [C, B, A, MODEL]
    assert ordered(some, "mean")[:2] == [B, A], "null is no number"
    assert ordered(some, "optimal")[0] == C
    assert ordered([NEW, OLD], "created") == [OLD, NEW]
    with pytest.raises(InputError, match="Did you mean 'mean'"):
        ordered(some, "meen")


def test_artifact_is_found_by_any_of_its_names_or_its_run():
    for given in ("r", "r:v1", "report/r", "report/r:v1", "report/r/v1"):
        assert find_artifact(given, ALL) == NEW, given
    for given in ("r:v0", "report/r:v0", "report/r/v0"):
        assert find_artifact(given, ALL) == OLD, given
    assert find_artifact("m", [manifest("m", v) for v in range(12)]).version == 11
    one, other = manifest("a", run_id="12ab34cd"), manifest("b", run_id="12ab34cd")
    assert find_artifact("12ab34cd", [*ALL, one]) == one
    with pytest.raises(InputError, match="score-table/a:v0, score-table/b:v0"):
        find_artifact("12ab34cd", [one, other])
    named = manifest("12ab34cd")
    assert find_artifact("12ab34cd", [one, other, named]) == named


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("alder", "reward-model/alder:v0, report/alder:v0"),
        ("alder--bset", "Did you mean 'alder--best'"),
        ("r:v7", "Did you mean 'r:v1'"),
        *((odd, "no artifact") for odd in ("", ":", "/", "r:", "score-table/r")),
    ],
)
def test_names_that_are_no_artifacts_or_several_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        find_artifact(given, [*ALL, manifest("alder", type="report")])


def test_lineage_goes_both_ways_names_what_is_not_there_and_ends():
    report = manifest("page", type="report", inputs=["comparison/c:v0", "comparison/d:v0"])
    c = manifest("c", type="comparison", inputs=[A.reference, "score-table/gone:v3"])
    d = manifest("d", type="comparison", inputs=[A.reference, "comparison/c:v0"])
    everything = [A, c, d, report]
    assert list(map(lineage_line, lineage(report.reference, everything, upwards=True))) == [
        "comparison/c:v0",
        "· score-table/plain--best:v0",
        "· score-table/gone:v3 (not in this registry)",
        "comparison/d:v0",
        "· score-table/plain--best:v0",
        "· comparison/c:v0 (see above)",
    ]
    down = lineage(A.reference, everything, upwards=False)
    assert [(node["depth"], node["reference"]) for node in down] == [
        (1, "comparison/c:v0"),
        (2, "comparison/d:v0"),
        (3, "report/page:v0"),
        (2, "report/page:v0"),
        (1, "comparison/d:v0"),
    ]
    circle = [
        manifest("a", inputs=["score-table/b:v0"]),
        manifest("b", inputs=["score-table/a:v0"]),
    ]
    assert [node["repeated"] for node in lineage("score-table/a:v0", circle, upwards=True)] == [
        False,
        True,
    ]


def test_control_characters_never_reach_the_terminal():
    for text in HOSTILE:
        assert visible(text).isprintable()
        visible(text).encode()
    assert visible("\x1b[31m\n\0\u202e\u2028\ud83d") == r"\x1b[31m\n\x00\u202e\u2028\ud83d"
    assert (cell_text(" good"), cell_text(""), cell_text(None)) == ('" good"', '""', "")
    about = {"\x1b[2J[red]": "\x1b[31m[bold]x[/bold]\r"}
    hostile = [manifest("m", type="other", summary=about, run_id="\x1b")]
    text = list_text(hostile, width=80) + list_text([*hostile, NEW], width=None)
    assert not set(text) & set("\x1b\r")
    assert "[bold]" in text, "what looks like rich's markup is text"


def test_csv_keeps_numbers_and_what_a_spreadsheet_would_run_is_text():
    artifacts = [
        table(f"m{i}", "best", -i, optimal=text, share=-0.5, ok=i == 0)
        for i, text in enumerate(["=cmd()", "a\rb"])
    ]
    rows = list(csv.DictReader(io.StringIO(as_csv(artifact_frame(artifacts)), newline="")))
    assert [row["optimal"] for row in rows] == ["'=cmd()", "a\rb"]
    assert [row["n"] for row in rows] == ["0", "-1"], "whole numbers stay whole"
    assert [row["share"] for row in rows] == ["-0.5", "-0.5"]
    assert [row["ok"] for row in rows] == ["true", "false"]
