"""How two artifacts differ: rows matched by what they are of, numbers as B − A, nothing passed over
in silence."""

import math

import numpy as np
import pandas as pd
import pytest

from artifacts import score_table
from pessimal.errors import InputError
from pessimal.tables import write_score_table
from pessimal.tracking.registry import Registry
from pessimal.verbs.runs import ABSENT, compare_tables, difference, difference_text

TEXTS = ["\x1b[2J", "=cmd()", "love"]


def differing(a: pd.DataFrame, b: pd.DataFrame) -> dict[str, tuple]:
    """By name: a, b, b − a, how many rows differ, and at which most."""
    rows = compare_tables(a, b)
    return {
        row["name"]: tuple(row.get(k) for k in ("a", "b", "difference", "rows", "at"))
        for row in rows
    }


def test_rows_are_matched_by_their_texts_not_by_their_position():
    a = pd.DataFrame({"model": ["x", "y", "z"], "n": [1, 2, 3], "tau": [0.5, 0.1, 0.9]})
    b = pd.DataFrame(
        {"model": ["w", "z", "x", "v"], "n": [1, 3, 4, 0], "tau": [0.0, 0.5, 0.75, 0.0]}
    )
    found = differing(a, b)
    assert found["rows"][:3] == (3, 4, 1)
    assert found["rows in both"] == (2, 2, None, None, ["model"])
    assert found["n"] == (1, 4, 3.0, 1, ["x"])
    assert found["tau"] == (0.9, 0.5, pytest.approx(-0.4), 2, ["z"])


def test_as_many_columns_as_it_takes_match_rows_and_equal_ones_are_not_listed():
    a = pd.DataFrame({"model": list("xxyy"), "rank": [1, 2, 1, 2], "value": [1.0, 2.0, 3.0, 4.0]})
    found = differing(a, a.iloc[::-1])
    assert list(found) == ["rows", "rows in both"]
    assert found["rows in both"] == (4, 4, None, None, ["model", "rank"])


def test_rows_that_nothing_tells_apart_are_not_compared():
    a = pd.DataFrame({"model": ["x", "x"], "value": [1.0, 2.0]})
    found = differing(a, a)
    assert list(found) == ["rows", "rows in both"]
    assert found["rows in both"][0] is None


def test_missing_and_infinite_numbers_differ_as_such():
    a = pd.DataFrame({"k": list("abcde"), "v": [1.0, np.nan, np.inf, np.nan, 2.0]})
    b = pd.DataFrame({"k": list("abcde"), "v": [np.nan, np.nan, np.inf, 4.0, 2.5]})
    assert differing(a, b)["v"] == (2.0, 2.5, 0.5, 3, ["e"])
    assert differing(a.iloc[:1], b.iloc[:1])["v"] == (1.0, None, None, 1, ["a"])


def test_other_columns_count_what_differs():
    a = pd.DataFrame(
        {
            "k": ["a", "b", "c"],
            "ok": [True, False, True],
            "list": [[1], [2, 3], []],
            "note": [None, "x", "y"],
        }
    )
    b = pd.DataFrame(
        {
            "k": ["a", "b", "c"],
            "ok": [True, True, True],
            "list": [[1], [2], []],
            "note": [None, "x", None],
        }
    )
    found = differing(a.astype({"k": "category"}), b)
    assert found["ok"] == (False, True, None, 1, ["b"])
    assert found["list"] == ([2, 3], [2], None, 1, ["b"])
    assert found["note"] == ("y", None, None, 1, ["c"])


@pytest.fixture
def publish(tmp_path):
    """Publish a score table with a configuration and a summary."""

    def make(table, config, **summary):
        return Registry(tmp_path, config=config).publish(
            "score-table",
            table.name,
            lambda folder: write_score_table(table, folder / "scores.parquet"),
            inputs=["reward-model/m:v0"] if summary else [],
            summary=summary,
        )

    return make


def test_score_tables_differ_in_options_provenance_inputs_figures_files_and_rewards(
    publish, tmp_path
):
    a = publish(
        score_table(TEXTS, [1.0, 2.0, 3.0], prompt="best"),
        {"seed": 0, "model": {"name": "m"}},
        same=1,
        n=1,
        text="1",
        truth=True,
        gone=0,
        nan=math.nan,
        inner={"x": 1.0},
        none=None,
    )
    b = publish(
        score_table(TEXTS, [1.0, 2.5, 0.0], prompt="worst", dtype="bfloat16"),
        {"seed": 1, "model": {"name": "m"}},
        same=1.0,
        n=3,
        text=1,
        truth=1,
        new=0,
        nan=math.nan,
        inner={"x": 0.5},
        none=0,
    )
    found = difference(Registry(tmp_path), a, b)
    parts = {
        part: [tuple(row) for row in rows[["name", "a", "b", "difference"]].to_numpy(dtype=object)]
        for part, rows in found.groupby("part")
    }
    assert parts["options"] == [("seed", 0, 1, 1)]
    assert {row[:3] for row in parts["provenance"]} == {
        ("prompt", "best", "worst"),
        ("prompt_text", "best?", "worst?"),
        ("dtype", "float32", "bfloat16"),
    }
    assert parts["figures"] == [
        ("n", 1, 3, 2),
        ("text", "1", 1, None),
        ("truth", True, 1, None),
        ("gone", 0, ABSENT, None),
        ("inner.x", 1.0, 0.5, -0.5),
        ("none", None, 0, None),
        ("new", ABSENT, 0, None),
    ]
    assert [row[0] for row in parts["files"]] == ["run_config.json", "scores.parquet"]
    reward = found[(found["part"] == "scores.parquet") & (found["name"] == "reward")].iloc[0]
    assert reward.drop(["part", "name"]).tolist() == [3.0, 0.0, -3.0, 2, [2, "love", "love"]]
    text = difference_text(found, width=120)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 120
    assert difference(Registry(tmp_path), a, a).empty
    (b[0] / "scores.parquet").write_bytes(b"other")
    with pytest.raises(InputError, match="differs from what was published"):
        difference(Registry(tmp_path), a, b)
