"""Every column of every table is described."""

import re
import sys
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import pytest

import pessimal

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "tests")]

from table_columns import descriptions  # noqa: E402

import described_tables  # noqa: E402

DESCRIBED = descriptions()
NAMED = re.compile(r"(?:(?:\bResult|_result|\bkeep)\(|\bof_row\(\s*\w+,)\s*\"([a-z_]+)\"")


def undescribed(part: str, name: str, columns) -> list[str]:
    """Columns of a table that have no description."""
    table = DESCRIBED[part].get(name)
    if table is None:
        return [f"{part}, {name}: the table itself"]
    patterns = [pattern for pattern, _ in table["named"].values()]
    return [
        f"{part}, {name}: {column}"
        for column in columns
        if column not in table["columns"] and not any(re.fullmatch(p, column) for p in patterns)
    ]


def test_every_table_that_the_code_names_is_described():
    known = {name for tables in DESCRIBED.values() for name in tables}
    found = {}
    for file in (ROOT / "src" / "pessimal").rglob("*.py"):
        room = file.relative_to(ROOT / "src" / "pessimal").parts[0]
        if room in ("analyses", "explaining", "searching", "api", "verbs"):
            found |= dict.fromkeys(NAMED.findall(file.read_text(encoding="utf-8")), file.name)
    assert len(found) > 50, "the code's own way of naming tables has changed"
    prefixed = {name.removeprefix("language_") for name in known}
    assert {name: file for name, file in found.items() if name not in known | prefixed} == {}


def test_columns_of_small_comparisons_are_described():
    tables = described_tables.results(described_tables.SMALL)
    assert len(tables) > 20
    assert [
        u for name, table in tables.items() for u in undescribed("comparison", name, table)
    ] == []


@pytest.mark.slow
def test_columns_of_a_vocabularys_comparison_are_described_and_every_described_one_is_there():
    tables = described_tables.results()
    assert [
        u for name, table in tables.items() for u in undescribed("comparison", name, table)
    ] == []
    of_judges = {
        "census",
        "census_keys",
        "census_everywhere",
        "additions",
        "additions_halves",
        "additions_keys",
        "transfer",
    }  # tests/analyses/test_census.py, test_additions.py, tests/verbs/test_compare_searches.py
    assert set(DESCRIBED["comparison"]) - of_judges == set(tables)
    optional = {"elo", "elo_matches", "share", "share_low", "share_high"}
    gone = [
        (n, c)
        for n, t in tables.items()
        for c in DESCRIBED["comparison"][n]["columns"]
        if c not in t
    ]
    assert [(name, column) for name, column in gone if column not in optional] == []


def test_columns_of_what_asks_a_model_are_described():
    tables = described_tables.asked_of_a_model()
    assert [
        u for (part, name), table in tables.items() for u in undescribed(part, name, table)
    ] == []
    assert {"result", "curve", "checks", "pair", "outcomes", "conformance"} <= {
        name for _, name in tables
    }


def test_columns_of_pairs_are_described_and_every_described_one_is_there():
    tables = {name: table for (_, name), table in described_tables.answer_pairs().items()}
    described = DESCRIBED["comparison of pairs"]
    assert {name: set(table) for name, table in tables.items()} == {
        name: set(table["columns"]) for name, table in described.items()
    }


def test_columns_of_an_audit_are_described():
    from pessimal.auditing import changes, evidence, verdicts
    from pessimal.rewards.ceiling import Bounds

    table = described_tables.vocabulary()[0]
    alike = changes.resemblance([table], [table])
    said = {"answers": {"mean": 0.9, "least": 0.4, "instead": "Well"}}
    made = [
        verdicts.answers([replace(table, measured=said)]),
        evidence.one_word([table]),
        verdicts.ceiling(Bounds(-4.0, 4.0, "a norm"), table),
        verdicts.audit_result(
            verdicts.verdicts({}), verdicts.verdicts({}, part="facts"), "pass", []
        ),
        changes.changes_result(changes.changes({}, {}, alike), "audit/m:v0"),
    ]
    assert [u for one in made for u in undescribed("audit", one.name, one.table)] == []
    assert set(DESCRIBED["audit"]) == {*(one.name for one in made), "additions_heads"}


def test_columns_of_a_census_of_a_grader_are_described(tmp_path):
    tables = described_tables.graded(tmp_path)
    assert len(tables) == 3
    assert [
        u for (part, name), table in tables.items() for u in undescribed(part, name, table)
    ] == []


def test_columns_that_explain_lists_are_described():
    from pessimal.explaining import explain, flips, metrics, outcomes, smallest

    shrunk, grown = (
        [field.name for field in fields(kind)] for kind in (smallest.Shrunk, smallest.Grown)
    )
    listed = {
        "sensitivity": [*flips.RETURNED, "random_words", "detectable", "p_corrected"],
        "slopes": flips.SLOPES,
        "metrics": metrics.RETURNED,
        "outcomes": [
            *outcomes.COLUMNS,
            "syntactic",
            "semantic",
            "locality",
            "complied",
            "moved/length",
            metrics.RATIO,
        ],
        "smallest_flips": [*explain.EDIT, *shrunk],
        "largest_holds": [*explain.EDIT, *grown],
    }
    assert [
        u for name, columns in listed.items() for u in undescribed("explanation", name, columns)
    ] == []


def test_columns_of_rollouts_are_described_and_every_described_one_is_there():
    rows = [
        (f"question {group}", f"{'so it is' if group % 2 else 'well'} {n}. The answer is {n}.")
        for group in range(24)
        for n in range(4)
    ]
    frame = pd.DataFrame(rows, columns=["prompt", "response"])
    frame = frame.assign(answer="3", step=frame.index // 32)
    frame["reward"] = frame["response"].str.contains("[23]").astype(float)
    tables = {result.name: result.table for result in pessimal.rollouts(frame)}
    assert {name: set(table) for name, table in tables.items()} == {
        name: set(table["columns"]) for name, table in DESCRIBED["rollouts"].items()
    }


def test_a_column_without_a_description_is_seen():
    assert undescribed("comparison", "agreement", ["kendall", "news"]) == [
        "comparison, agreement: news"
    ]
    assert undescribed("comparison", "news", ["kendall"]) == ["comparison, news: the table itself"]
    assert undescribed("comparison", "identity_terms", ["worst", "axis"]) == []
