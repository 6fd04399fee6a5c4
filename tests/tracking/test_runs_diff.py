"""How two artifacts differ: rows matched by what they are of, numbers as B − A, nothing passed over in silence."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pessimal.errors import InputError
from pessimal.tables import write_score_table
from pessimal.tracking.diff import (
    ABSENT,
    Difference,
    compare_artifacts,
    compare_tables,
    differences,
    paired,
)
from pessimal.tracking.registry import Manifest, Registry
from pessimal.verbs.runs import difference_text


def row(found, column):
    return next(SimpleNamespace(**one) for one in found.columns if one["column"] == column)


def test_rows_are_matched_by_their_texts_not_by_their_position():
    a = pd.DataFrame({"model": ["x", "y", "z"], "n": [1, 2, 3], "tau": [0.5, 0.1, 0.9]})
    b = pd.DataFrame({"model": ["w", "z", "x"], "n": [1, 3, 4], "tau": [0.0, 0.5, 0.75]})
    found = compare_tables(a, b)
    assert (found.keys, found.matched, found.only_a, found.only_b) == (["model"], 2, 1, 1)
    tau = row(found, "tau")
    assert (tau.largest, tau.at, tau.median) == (pytest.approx(-0.4), ("z",), pytest.approx(0.325))
    assert (row(found, "n").differing, row(found, "n").largest) == (1, 3.0)


def test_as_many_columns_as_it_takes_tell_rows_apart():
    a = pd.DataFrame({"model": list("xxyy"), "rank": [1, 2, 1, 2], "value": [1.0, 2.0, 3.0, 4.0]})
    assert compare_tables(a, a.iloc[::-1]).keys == ["model", "rank"]
    same = compare_tables(a, a.iloc[::-1])
    assert same.matched == 4
    assert row(same, "value").largest == 0
    assert row(same, "value").at is None, "no row differs"


def test_rows_that_nothing_tells_apart_are_not_compared():
    a = pd.DataFrame({"model": ["x", "x"], "value": [1.0, 2.0]})
    found = compare_tables(a, a)
    assert found.unmatched
    assert (found.matched, found.only_a, found.only_b, len(found.columns)) == (0, 2, 2, 0)


def test_candidates_are_of_a_vocabulary_not_of_a_number():
    a = pd.DataFrame({"candidate_id": [0, 1], "token": ["a", "b"], "text": ["a", "b"], "reward": [0.0, 1.0]})
    other = a.assign(token=["a", "c"], text=["a", "c"])
    found = compare_tables(a, other)
    assert (found.matched, found.only_a, found.only_b) == (1, 1, 1)
    items = a.assign(token=None)
    assert compare_tables(items, items).matched == 2, "items have no token"


def test_missing_and_infinite_numbers_are_counted_apart():
    a = pd.DataFrame({"k": list("abcde"), "v": [1.0, np.nan, np.inf, np.nan, 2.0]})
    b = pd.DataFrame({"k": list("abcde"), "v": [np.nan, np.nan, np.inf, 4.0, 2.5]})
    v = row(compare_tables(a, b), "v")
    assert (v.differing, v.in_one, v.n, v.largest, v.median) == (3, 2, 2, 0.5, 0.25)


def test_other_columns_count_what_differs():
    a = pd.DataFrame(
        {"k": ["a", "b", "c"], "ok": [True, False, True], "list": [[1], [2, 3], []], "note": [None, "x", "y"]}
    )
    b = pd.DataFrame(
        {"k": ["a", "b", "c"], "ok": [True, True, True], "list": [[1], [2], []], "note": [None, "x", None]}
    )
    found = compare_tables(a.astype({"k": "category"}), b)
    assert found.keys == ["k"]
    assert [row(found, c).differing for c in ("ok", "list", "note")] == [1, 1, 1]
    assert row(found, "ok").largest is None


def test_columns_of_one_side_and_empty_tables_are_reported():
    a = pd.DataFrame({"k": ["a"], "old": [1.0]})
    found = compare_tables(a, pd.DataFrame({"k": ["a"], "new": ["x"]}))
    assert (found.columns_a, found.columns_b, found.matched) == (["old"], ["new"], 1)
    empty = compare_tables(a, a.iloc[:0])
    assert (empty.matched, empty.only_a, empty.only_b) == (0, 1, 0)
    assert compare_tables(pd.DataFrame({"x": [1.0]}), pd.DataFrame({"y": [1.0]})).unmatched


def test_values_differ_by_kind_and_by_presence():
    a = {
        "same": 1,
        "n": 1,
        "text": "1",
        "truth": True,
        "gone": 0,
        "nan": math.nan,
        "in": {"x": 1.0},
        "none": None,
    }
    b = {"same": 1.0, "n": 3, "text": 1, "truth": 1, "new": 0, "nan": math.nan, "in": {"x": 0.5}, "none": 0}
    assert differences(a, b) == [
        Difference("n", 1, 3, 2),
        Difference("text", "1", 1),
        Difference("truth", True, 1),
        Difference("gone", 0, ABSENT),
        Difference("in.x", 1.0, 0.5, -0.5),
        Difference("none", None, 0),
        Difference("new", ABSENT, 0),
    ]


def publish(root, table, config, run_id="1"):
    return Registry(root, config=config).publish(
        "score-table",
        table.name,
        lambda folder: write_score_table(table, folder / "scores.parquet"),
        key=table.provenance.key(),
        run_id=run_id,
        summary={"prompt": table.provenance.prompt, "mean": float(table.rows["reward"].mean())},
    )


@pytest.fixture
def two(tmp_path, score_table):
    a = publish(tmp_path, score_table("best", [1.0, 2.0, 3.0]), {"seed": 0, "model": {"name": "m"}})
    b = publish(
        tmp_path, score_table("worst", [1.0, 2.5, 0.0], dtype="bfloat16"), {"seed": 1, "model": {"name": "m"}}
    )
    return Registry(tmp_path), a, b


def test_two_score_tables_differ_in_configuration_provenance_figures_and_rewards(two):
    found = compare_artifacts(*two)
    assert found.configuration == [Difference("seed", 0, 1, 1)]
    assert {d.name: (d.a, d.b) for d in found.provenance} == {
        "prompt": ("best", "worst"),
        "prompt_text": ("best?", "worst?"),
        "dtype": (None, "bfloat16"),
    }
    assert {d.name: d.difference for d in found.summary} == {"mean": pytest.approx(-5 / 6), "prompt": None}
    assert found.files_differ == ["run_config.json", "scores.parquet"]
    reward = row(found.tables["scores.parquet"], "reward")
    assert (reward.largest, reward.at, reward.median) == (-3.0, (2, "t2", "love"), 0.5)


def test_artifact_does_not_differ_from_itself(two):
    registry, a, _ = two
    found = compare_artifacts(registry, a, a)
    for differing in (found.configuration, found.provenance, found.summary, found.files_differ, found.tables):
        assert not differing
    assert found.files_same == 2
    assert difference_text(found, width=80).count("the same") == 5


def test_artifacts_without_a_configuration_are_distinguished_by_its_hash(tmp_path):
    registry = Registry(tmp_path)

    def fill(folder):
        (folder / "a.txt").write_text("a")

    a, b = (registry.publish("report", n, fill, config_hash=n) for n in "ab")
    found = compare_artifacts(registry, a, b)
    assert found.configuration == []
    assert found.configuration_note == "report/a:v0 and report/b:v0 published without a run_config.json"
    assert found.provenance == [Difference("config_hash", "a", "b")]


def test_damaged_artifact_is_not_compared(two):
    registry, a, b = two
    (b[0] / "scores.parquet").write_bytes(b"other")
    with pytest.raises(InputError, match="differs from what was published"):
        compare_artifacts(registry, a, b)


def test_difference_is_printed_without_control_characters(two):
    registry, a, b = two
    text = difference_text(compare_artifacts(registry, a, b), width=80)
    assert "\x1b" not in text
    assert "seed  0  1      1" in text
    assert "3 rows in both, matched by candidate_id, token, text" in text
    assert max(map(len, text.splitlines())) <= 80


def test_runs_artifacts_are_paired_by_name_then_prompt_then_type():
    def made(name, type="score-table", **summary):
        return Manifest(type=type, name=name, version=0, files={}, summary=summary)

    a = [made("m--best", prompt="best"), made("m--worst", prompt="worst"), made("s", type="study")]
    b = [
        made("k--worst", prompt="worst"),
        made("m--best", prompt="best"),
        made("t", type="study"),
        made("x", type="report"),
    ]
    pairs, alone = paired(a, b)
    assert [(x.name, y.name) for x, y in pairs] == [
        ("m--best", "m--best"),
        ("m--worst", "k--worst"),
        ("s", "t"),
    ]
    assert [m.name for m in alone] == ["x"]
