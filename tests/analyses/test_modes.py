"""Ids or text: what must be equal is, what moves is found, and ties and hidden characters are
counted."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from artifacts import score_table
from pessimal.analyses.analysis import Options
from pessimal.analyses.modes import analyse, compare_modes, moved, side_by_side
from pessimal.errors import TableError
from pessimal.plots.draw import draw
from pessimal.tables import ScoreTable
from pessimal.tables.result import TESTED
from pessimal.tables.table_set import table_sets

WORDS = [f"word{i}" for i in range(60)]


@pytest.fixture
def scans() -> dict[str, pd.DataFrame]:
    """60 words without and with a leading space, and five bytes; text trims the space and loses the
    bytes."""
    rng = np.random.default_rng(0)
    texts = [*WORDS, *(f" {word}" for word in WORDS), *["\N{REPLACEMENT CHARACTER}"] * 5]
    bare, spaced, byte = rng.normal(size=60), rng.normal(size=60), rng.normal(size=5)
    rows = pd.DataFrame(
        {
            "candidate_id": range(10, 135),
            "token": texts,
            "text": texts,
            "kind": ["normal"] * 120 + ["byte"] * 5,
            "survives": pd.array([True] * 60 + [False] * 65, dtype="boolean"),
        }
    )
    as_text = np.r_[bare, bare, np.full(5, -0.5)]
    return {
        "ids": rows.assign(reward=np.r_[bare, spaced, byte]),
        "text": rows.assign(reward=as_text),
        "paper": rows.assign(reward=as_text + 0.3 * rng.normal(size=125)),
    }


def part(table: pd.DataFrame, a: str, b: str, tokens: str) -> pd.Series:
    return table[
        (table["mode_a"] == a) & (table["mode_b"] == b) & (table["tokens"] == tokens)
    ].iloc[0]


def test_correlations_are_scipys_under_ties_over_each_part(scans):
    table = compare_modes(side_by_side(scans), replicates=100)
    assert list(dict.fromkeys(zip(table["mode_a"], table["mode_b"], strict=True))) == [
        ("ids", "text"),
        ("ids", "paper"),
        ("text", "paper"),
    ]
    survives = scans["ids"]["survives"].to_numpy(dtype=bool)
    for tokens, members in (("all", slice(None)), ("surviving", survives), ("changed", ~survives)):
        for a, b in (("ids", "text"), ("ids", "paper"), ("text", "paper")):
            x, y = scans[a]["reward"][members], scans[b]["reward"][members]
            row = part(table, a, b, tokens)
            assert row["n"] == len(x)
            assert row["kendall"] == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
            assert row["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)
            assert row["largest_difference"] == np.abs(x - y).max()
            if (
                row["kendall"] > 1 - 1e-12 and len(x) < 100
            ):  # all pairs alike say nothing of their error
                assert np.isnan(row["low"])
            else:
                assert row["low"] <= row["kendall"] <= row["high"]


def test_a_part_with_one_reward_or_two_tokens_has_no_correlation_and_keeps_the_rest(scans):
    byte = part(compare_modes(side_by_side(scans), replicates=100), "ids", "text", "byte")
    assert np.isnan(byte["kendall"])
    assert byte["n"] == 5
    assert byte["distinct_b"] == 1
    both = {
        mode: rows.assign(kind=["special"] * 2 + ["normal"] * 123) for mode, rows in scans.items()
    }
    special = part(compare_modes(side_by_side(both), replicates=100), "ids", "text", "special")
    assert special["n"] == 2
    assert np.isnan(special["spearman"])


def test_farthest_movers_with_both_ranks_and_each_text_once(scans):
    table = moved(side_by_side(scans), top=6)
    x, y = scans["ids"]["reward"], scans["text"]["reward"]
    gained = (x.rank(ascending=False) - y.rank(ascending=False)).set_axis(
        scans["ids"]["candidate_id"]
    )
    first = table[(table["mode_a"] == "ids") & (table["mode_b"] == "text")]
    up, down = first[first["moved"] > 0], first[first["moved"] < 0]
    assert up["moved"].iloc[0] == gained.max()
    assert down["moved"].iloc[0] == gained.min()
    assert up["moved"].is_monotonic_decreasing
    assert down["moved"].is_monotonic_increasing
    assert len(up) == len(down) == 6
    for row in first.itertuples():
        assert row.moved == row.rank_a - row.rank_b == gained[row.candidate_id]
        place = row.candidate_id - 10
        assert (row.reward_a, row.reward_b) == (x[place], y[place])
    everything = moved(side_by_side(scans), top=200)
    way = everything["moved"] > 0
    assert not everything.assign(way=way).duplicated(["mode_a", "mode_b", "way", "text"]).any()
    assert set(everything.loc[everything["kind"] == "byte", "same_text"]) == {5}


def test_scans_that_do_not_match_are_refused(scans):
    with pytest.raises(TableError, match="not of the same candidates"):
        side_by_side({"ids": scans["ids"], "text": scans["text"][1:]})
    other = scans["text"].assign(text=scans["text"]["text"].str.upper())
    with pytest.raises(TableError, match="not of the same candidates"):
        side_by_side({"ids": scans["ids"], "text": other})


def tables_of(scans, *, model="m", **identity) -> list[ScoreTable]:
    described, measured = (
        {"label": f"the {model}"},
        {"noise": 1e-6, "largest_low_precision_error": 0.0},
    )
    return [
        score_table(
            rows["text"],
            rows["reward"],
            rows=rows,
            model=model,
            mode=mode,
            described=described,
            measured=measured,
            **identity,
        )
        for mode, rows in scans.items()
    ]


def test_each_model_with_several_modes_is_held_against_itself(scans):
    other = {mode: rows.assign(reward=scans["ids"]["reward"] * 2) for mode, rows in scans.items()}
    (tables,) = table_sets(
        [
            *tables_of(scans),
            *tables_of(other, model="steady"),
            *tables_of({"ids": scans["ids"]}, model="alone"),
        ]
    )
    assert not analyse.needs.missing(tables, Options())
    whole, farthest = analyse(tables, Options(replicates=100, top=7))
    assert (whole.name, farthest.name) == ("sensitivity", "moved")
    assert set(whole.table["model"]) == {"m", "steady"}
    row = whole.table[(whole.table["model"] == "m") & (whole.table["tokens"] == "all")].set_index(
        ["mode_a", "mode_b"]
    )
    truth = compare_modes(side_by_side(scans), top=7, replicates=100)
    truth = truth[truth["tokens"] == "all"].set_index(["mode_a", "mode_b"])
    assert row["kendall"].to_dict() == truth["kendall"].to_dict()
    assert (row["noise"] == 2e-6).all()
    assert whole.estimate.value == truth["kendall"].min()
    assert whole.weight == pytest.approx(TESTED + 1 - whole.estimate.value)
    assert len(whole.headline.split()) <= 25
    assert whole.notes == ()
    assert len(draw(whole.plot, whole.table)) == 1
    assert {"text", "rank_a", "rank_b", "prompt", "candidates"} <= set(farthest.table)
    drawn = farthest.plot.data
    assert len(drawn) == 2 * 125
    assert drawn[drawn["model"] == "steady"]["named"].sum() == 0, "nothing moves"
    assert drawn[drawn["model"] == "m"]["named"].sum() == 8
    assert len(draw(farthest.plot, farthest.table)) == 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tokens_that_are_one_input_and_differ_are_noted(scans, dtype):
    shifted = {
        "ids": scans["ids"],
        "text": scans["text"].assign(reward=scans["text"]["reward"] + 0.01),
    }
    whole, _ = analyse(table_sets(tables_of(shifted, dtype=dtype))[0], Options(replicates=100))
    (note,) = whole.notes
    assert "differ by up to 0.01" in note
    assert "force=true" in note


def test_scans_of_other_candidates_become_a_note_and_the_rest_is_compared(scans):
    broken = {"ids": scans["ids"], "text": scans["text"][1:]}
    whole, _ = analyse(
        table_sets([*tables_of(scans), *tables_of(broken, model="b")])[0], Options(replicates=100)
    )
    assert set(whole.table["model"]) == {"m"}
    assert (
        "the b on greatest: The scans in modes ids and text are not of the same candidates"
        in whole.notes[0]
    )
    with pytest.raises(TableError, match="not of the same candidates"):
        analyse(table_sets(tables_of(broken))[0], Options(replicates=100))
