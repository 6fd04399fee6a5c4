"""`pessimal runs`: from the command line to what is printed, and that looking leaves nothing
behind."""

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from pessimal.config.compose import config_hash, request
from pessimal.config.schema import ReportConfig, ScanConfig
from pessimal.rewards.head import HeadSpec
from pessimal.tracking.registry import Registry
from pessimal.verbs.common import registry_of


@pytest.fixture
def registry(tmp_path) -> Registry:
    """Three artifacts, two versions of one, and a text that no terminal should be shown."""
    registry = Registry(tmp_path / "runs/registry", config={"seed": 0})
    for name, n in (("m--best", 100), ("m--worst", 300)):
        prompt = name.partition("--")[2]
        registry.publish(
            "score-table",
            name,
            fill("scores"),
            run_id="12ab34cd",
            summary={
                "model": "m",
                "prompt": prompt,
                "n": n,
                "optimal": "=cmd()\x1b[2J\ud800",
                "mean": -1.5,
            },
        )
    for n in (1, 2):
        Registry(registry.root, config={"seed": n}).publish(
            "comparison",
            "both",
            fill(f"tables {n}"),
            inputs=["score-table/m--best:v0"],
            summary={"models": n},
        )
    return registry


def fill(text):
    return lambda folder: (folder / "a.txt").write_text(text)


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*")}


def test_list_shows_the_newest_of_each_and_leaves_nothing_behind(registry, command, tmp_path):
    before = files(tmp_path)
    code, out, err = command("runs")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [
        ["comparison", "both:v1"],
        ["score-table", "m--best:v0"],
        ["score-table", "m--worst:v0"],
    ]
    assert "\x1b" not in out
    assert "3 of 4 artifacts" in err
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["where=n>=100 and prompt=='best'"], ["m--best"]),
        (["name=m--*", "sort=n", "descending=true"], ["m--worst", "m--best"]),
        (["all=true", "type=comp*"], ["both", "both"]),
    ],
)
def test_filters_are_typed_as_they_are_meant(registry, command, arguments, found):
    code, out, err = command("runs", "format=json", *arguments)
    assert (code, [one["name"] for one in json.loads(out)]) == (0, found), err


def test_show_tells_files_and_lineage_both_ways(registry, command):
    code, out, _ = command("runs", "show", "m--best")
    assert code == 0
    assert "a.txt" in out
    assert "run_config.json" in out
    assert "\x1b" not in out
    below = [line.split()[2] for line in out.splitlines() if line.startswith("made into")]
    assert below == ["comparison/both:v0", "comparison/both:v1"]
    code, out, _ = command("runs", "show", "both", "format=json")
    message = json.loads(out)
    assert message["reference"] == "comparison/both:v1"
    assert [one["reference"] for one in message["made_from"]] == ["score-table/m--best:v0"]


def test_diff_of_two_versions(registry, command):
    code, out, err = command("runs", "diff", "both:v0", "both:v1")
    assert code == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert lines[:2] == [["A", "comparison/both:v0"], ["B", "comparison/both:v1"]]
    assert ["options", "seed", "1", "2", "1"] in lines
    assert ["figures", "models", "1", "2", "1"] in lines
    assert (
        json.loads(command("runs", "diff", "both:v0", "both:v1", "format=json")[1])["differences"][
            0
        ]["name"]
        == "seed"
    )
    rows = list(
        csv.DictReader(io.StringIO(command("runs", "diff", "both:v0", "both:v1", "format=csv")[1]))
    )
    assert [(row["part"], row["name"]) for row in rows[-2:]] == [
        ("files", "a.txt"),
        ("files", "run_config.json"),
    ]
    assert "no difference" in command("runs", "diff", "both:v0", "both:v0")[1]


def test_show_prints_a_table_as_csv(registry, command):
    table = pd.DataFrame(
        {
            "token": ["=cmd()", "a\rb", None, ""],
            "reward": [0.1, -1e-300, float("nan"), 3.0],
            "n": pd.array([2**53 + 1, None, 0, -1], dtype="Int64"),
            "certified": [True, False, True, True],
        }
    )

    def write_tables(folder):
        (folder / "tables").mkdir()
        table.to_parquet(folder / "tables/agreement.parquet")
        table.iloc[:1].to_parquet(folder / "tables/rsa.parquet")

    registry.publish(
        "score-table", "one", lambda folder: table.to_parquet(folder / "scores.parquet")
    )
    folder, _ = registry.publish("comparison", "several", write_tables)
    for typed in (["one"], ["several", "table=agreement"]):
        code, out, err = command("runs", "show", *typed, "format=csv")
        assert (code, err) == (0, "")
        rows = list(csv.DictReader(io.StringIO(out, newline="")))
        assert [row["reward"] for row in rows] == ["0.1", "-1e-300", "", "3.0"], (
            "the numbers to the last digit"
        )
        assert [row["n"] for row in rows] == ["9007199254740993", "", "0", "-1"]
        assert [row["token"] for row in rows] == ["'=cmd()", "a\rb", "", ""]
        assert [row["certified"] for row in rows] == ["true", "false", "true", "true"]
    for typed, message in (
        (
            ["several"],
            "has 2 tables: agreement, rsa. Type for example: pessimal runs show "
            "comparison/several:v0 format=csv table=agreement",
        ),
        (["several", "table=agrement"], "Did you mean 'agreement'?"),
        (["both"], "has 0 tables"),
    ):
        code, out, err = command("runs", "show", *typed, "format=csv")
        assert (code, out) == (2, "")
        assert message in " ".join(err.split())
    (folder / "tables/rsa.parquet").write_bytes(b"other")
    assert command("runs", "show", "several", "format=csv", "table=agreement")[0] == 2, (
        "it was damaged"
    )


def test_verify_says_what_is_sound_and_what_is_not(registry, command):
    code, out, err = command("runs", "verify")
    assert (code, out) == (0, "")
    assert "8 files of 4 artifacts" in err
    file = registry.root / "score-table/m--best/v0/a.txt"
    file.write_text("scorez")
    code, out, err = command("runs", "verify")
    assert code == 1
    assert "score-table/m--best/v0/a.txt: differs from what was published" in out
    assert "force=true" in out, "it says how to mend it"
    assert err.count("pessimal: ") == 1
    assert command("runs", "verify", "m--worst")[0] == 0
    assert command("runs", "verify", "m--best")[0] == 1
    code, out, _ = command("runs", "verify", "format=json")
    assert (code, json.loads(out)["damages"][0]["where"]) == (1, "score-table/m--best/v0/a.txt")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shwo", "x"], "Did you mean 'show'?"),
        (["show", "${oc.env:HOME}"], "is no artifact's name"),
        (["where=n="], "where="),
        (["paths.registry=nowhere"], "there is no registry in"),
    ],
)
def test_mistakes_are_reported_in_one_piece(registry, command, tmp_path, arguments, message):
    before = files(tmp_path)
    code, out, err = command("runs", *arguments)
    assert code == 2
    assert message in err
    assert err.startswith("pessimal: ")
    assert "Traceback" not in err
    assert out == ""
    assert files(tmp_path) == before


@pytest.mark.slow
def test_output_that_knows_no_such_letters_gets_escapes(registry, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pessimal", "runs", "show", "m--best"],
        cwd=tmp_path,
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
    )
    assert done.returncode == 0, done.stderr
    done.stdout.decode("ascii")


def test_what_a_task_publishes_keeps_what_was_asked_for_and_no_place_of_this_machine(tmp_path):
    config = ScanConfig(
        task="scan",
        model=HeadSpec(name="m", path="org/m"),
        prompts={"p": "\ud800 <script>?"},
        seed=7,
    )
    config.paths.registry = str(tmp_path / "registry")
    folder, manifest = registry_of(config).publish("report", "r", fill("x"))
    assert manifest.config_hash == config_hash(config)
    kept = json.loads((folder / "run_config.json").read_text())
    assert kept == request(config)
    assert (kept["seed"], kept["prompts"]["p"]) == (7, "\ud800 <script>?")
    assert str(tmp_path) not in json.dumps(kept)
    other = ReportConfig(task="report")
    other.paths.registry = config.paths.registry
    again, _ = registry_of(other).publish("report", "r", fill("x"))
    assert json.loads((again / "run_config.json").read_text())["title"] == other.title
