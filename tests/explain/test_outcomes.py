"""Outcomes: margins, sides and flips of texts whose rewards are set by hand; and the tables the neighbouring tests use."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest

from pessimal.errors import ConfigError, TableError
from pessimal.explain.attribute import Attribute, Direction
from pessimal.explain.comparison import Comparison, Turn
from pessimal.explain.outcomes import (
    COLUMNS,
    check_outcomes,
    outcome_of,
    outcomes,
    relative_change,
    requests_for,
)
from pessimal.explain.perturbation import Perturbation, Request, Status

LENGTH = Attribute("length", "It is long.", 1)
TONE = Attribute("tone", "It is kind.", 1)
HOSTILE = [
    "\ud800 lone",
    "<script>alert(1)</script>",
    "a\x00b",
    "",
    "   ",
    "🦜" * 500,
    "=cmd()",
    "нет, 不, لا",
]


def made(rows: list[dict]) -> pd.DataFrame:
    """A table of outcomes from what differs: comparison, attribute, change (in reward; its SD is 1) and whatever else."""
    usual = {
        "model": "m", "perturber": "rules", "side": "chosen", "seed": 0, "margin": 1.0, "tie": 0.0, "status": "changed",
        "syntactic": math.nan, "semantic": math.nan, "locality": math.nan, "complied": None, "preferred": 0,
    }  # fmt: skip
    whole = []
    for given in rows:
        row = usual | given
        new_margin = row["margin"] + row.get("change", math.nan)
        text = None if math.isnan(new_margin) else f"{row['attribute']} {row['seed']}"
        other = row["side"] != "chosen"
        row |= {
            "response": row["preferred"] ^ other,
            "direction": "better" if other else "worse",
            "status": "failed" if text is None and row["status"] == "changed" else row["status"],
            "original": "as it was", "edited": row.get("edited", text), "spans": None, "note": "",
            "reward": 0.0, "new_reward": new_margin, "new_margin": new_margin,
            "change": new_margin - row["margin"],
            "change_in_sd": new_margin - row["margin"], "outcome": outcome_of(new_margin, tie=row["tie"]),
        }  # fmt: skip
        whole.append(row)
    return pd.DataFrame({name: pd.Series([row[name] for row in whole], dtype=COLUMNS.get(name, object))
                         for name in [*COLUMNS, "syntactic", "semantic", "locality", "complied"]})  # fmt: skip


def comparison(key: str, *responses: str) -> Comparison:
    return Comparison(key, (Turn("user", "Why?"),), responses or (f"{key} one", f"{key} two"))


def change(request: Request, text: str | None, status: Status = Status.changed, **more) -> Perturbation:
    return Perturbation(request, status, text, **more)


def test_margins_before_and_after_are_those_of_the_definition():
    pair = comparison("k")
    rewards = {"k": (2.0, 5.0)}  # the second is chosen: m = 3
    worse, better = requests_for([pair], rewards, [LENGTH], [0], 0.0)
    found = outcomes(
        "m", [pair], rewards, [change(worse, "x"), change(better, "y")], [1.5, 4.0], perturber="p", tie=0
    )
    chosen, rejected = found.table.to_dict("records")
    assert (chosen["side"], chosen["response"], chosen["direction"]) == ("chosen", 1, "worse")
    assert (rejected["side"], rejected["response"], rejected["direction"]) == ("rejected", 0, "better")
    assert (chosen["margin"], chosen["new_margin"], chosen["change"], chosen["outcome"]) == (
        3,
        -0.5,
        -3.5,
        "CF",
    )
    assert (rejected["margin"], rejected["new_margin"], rejected["change"], rejected["outcome"]) == (
        3,
        1,
        -2,
        "SF",
    )
    assert (chosen["reward"], chosen["new_reward"], rejected["reward"], rejected["new_reward"]) == (
        5,
        1.5,
        2,
        4,
    )
    assert found.reward_sd == pytest.approx(3 / math.sqrt(2))
    assert chosen["change_in_sd"] == pytest.approx(-3.5 / found.reward_sd)
    assert relative_change(found.table).tolist() == pytest.approx([-3.5 / 3, -2 / 3])


@pytest.mark.parametrize(
    ("new_margin", "outcome"),
    [(-0.2, "CF"), (-0.1, "tie"), (0.0, "tie"), (0.1, "tie"), (0.2, "SF"), (math.nan, None)],
)
def test_what_lies_within_the_noise_is_a_tie(new_margin, outcome):
    assert outcome_of(new_margin, tie=0.1) == outcome


def test_against_brute_force_over_random_rewards():
    rng = np.random.default_rng(3)
    pairs = [comparison(f"k{number}") for number in range(30)]
    rewards = {pair.key: tuple(rng.normal(size=2).round(1)) for pair in pairs}
    asked = requests_for(pairs, rewards, [LENGTH, TONE], [0, 1], 0.15)
    new = rng.normal(size=len(asked)).round(1)
    found = outcomes("m", pairs, rewards, [change(r, "new") for r in asked], new, perturber="p", tie=0.15)
    undecided = {key for key, (a, b) in rewards.items() if abs(a - b) <= 0.15}
    assert 0 < len(undecided) < 30
    assert set(found.undecided) == undecided
    assert len(found.decided) == 30 - len(undecided)
    assert len(found.table) == (30 - len(undecided)) * 2 * 2 * 2
    assert found.reward_sd == pytest.approx(pd.Series([r for both in rewards.values() for r in both]).std())
    for row, reward in zip(found.table.itertuples(), new, strict=True):
        after = list(rewards[row.comparison])
        preferred = int(after[1] > after[0])
        assert row.margin == pytest.approx(abs(after[0] - after[1]))
        after[row.response] = reward
        assert row.new_margin == pytest.approx(after[preferred] - after[1 - preferred])
        assert (row.side == "chosen") == (row.response == preferred)
        assert row.outcome == ("CF" if row.new_margin < -0.15 else "SF" if row.new_margin > 0.15 else "tie")


def test_requests_name_both_sides_once_a_seed_and_skip_the_undecided():
    pairs = [comparison("even"), comparison("first"), comparison("second")]
    rewards = {"even": (1.0, 1.0), "first": (2.0, 1.0), "second": (0.0, 1.0)}
    asked = requests_for(pairs, rewards, [LENGTH, TONE], [0, 7], 0.0)
    seen = [(r.comparison.key, r.response, r.attribute.name, r.direction.value, r.seed) for r in asked]
    expected = [
        (key, response, name, direction, seed)
        for key, sides in (("first", ((0, "worse"), (1, "better"))), ("second", ((1, "worse"), (0, "better"))))
        for (response, direction), name, seed in itertools.product(sides, ("length", "tone"), (0, 7))
    ]  # fmt: skip
    assert seen == expected


def test_perturbations_made_for_another_model_are_left_out_and_counted():
    pair = comparison("k")
    everything = [
        change(Request(pair, response, LENGTH, direction), f"{response} {direction.value}")
        for response in (0, 1)
        for direction in Direction
    ]
    one = outcomes("a", [pair], {"k": (1.0, 0.0)}, everything, [0.5] * 4, perturber="p", tie=0)
    other = outcomes("b", [pair], {"k": (0.0, 1.0)}, everything, [0.5] * 4, perturber="p", tie=0)
    assert one.table["edited"].tolist() == ["0 worse", "1 better"]
    assert other.table["edited"].tolist() == ["0 better", "1 worse"]
    assert one.not_needed == other.not_needed == 2


def test_what_gave_no_text_keeps_its_row_its_status_and_its_reason():
    pair = comparison("k")
    asked = requests_for([pair], {"k": (1.0, 0.0)}, [LENGTH, TONE], [0], 0.0)
    statuses = [Status.refused, Status.failed, Status.not_applicable, Status.changed]
    made_of = [
        change(r, "new" if s is Status.changed else None, s, note=s.name, spans=((0, 2),))
        for r, s in zip(asked, statuses, strict=True)
    ]
    table = outcomes(
        "m", [pair], {"k": (1.0, 0.0)}, made_of, [None, None, math.nan, 3.0], perturber="p", tie=0
    ).table
    assert table["status"].tolist() == ["refused", "failed", "not applicable", "changed"]
    assert table["note"].tolist() == [s.name for s in statuses]
    assert table["outcome"].tolist() == [None, None, None, "CF"]
    assert table["new_margin"].isna().tolist() == [True, True, True, False]
    assert [json.loads(spans) for spans in table["spans"]] == [[[0, 2]]] * 4


def test_hostile_texts_and_names_are_data():
    pairs = [comparison(text, text, text + " other") for text in HOSTILE]
    rewards = {pair.key: (1.0, 0.0) for pair in pairs}
    asked = requests_for(pairs, rewards, [Attribute("<b>\ud800", "", 1)], [0], 0.0)
    table = outcomes(
        "m\x00", pairs, rewards, [change(r, r.text + "!") for r in asked], [0.5] * len(asked), perturber="\udfff", tie=0
    ).table  # fmt: skip
    assert table["edited"].tolist() == [r.text + "!" for r in asked]
    assert table["original"].tolist() == [r.text for r in asked]
    assert set(table["comparison"]) == set(HOSTILE)


def test_a_set_of_undecided_comparisons_is_an_empty_table_of_the_same_columns():
    found = outcomes("m", [comparison("k")], {"k": (1.0, 1.0)}, [], [], perturber="p", tie=0)
    assert list(found.table) == list(COLUMNS)
    assert found.table.empty
    assert (found.undecided, found.decided) == (("k",), ())


def test_rewards_in_single_precision_are_subtracted_in_double():
    pair, rewards = comparison("k"), {"k": np.array([2.0**27, 1.0], dtype=np.float32)}
    asked = requests_for([pair], rewards, [LENGTH], [0], 0.0)[:1]
    new = np.float32([2.0**27])
    table = outcomes("m", [pair], rewards, [change(asked[0], "new")], new, perturber="p", tie=0).table
    assert table["margin"].tolist() == table["new_margin"].tolist() == [2.0**27 - 1]


def test_none_of_these_modules_loads_a_model_library(loaded_by):
    names = ["outcomes", "metrics", "flip_rate", "model_agreement", "representatives", "calibration"]
    unwanted = ["torch", "transformers", "hydra", "wandb", "matplotlib"]
    assert loaded_by([f"pessimal.explain.{name}" for name in names], unwanted) == "[]"


def test_mistakes_are_reported():
    pair, rewards = comparison("k"), {"k": (1.0, 0.0)}
    request = requests_for([pair], rewards, [LENGTH], [0], 0.0)[0]

    def run(perturbations, new, *, pairs=(pair,), given=rewards, tie=0.0):
        return outcomes("m", pairs, given, perturbations, new, perturber="p", tie=tie)

    good = change(request, "new")
    assert len(run([good], [0.5]).table) == 1
    with pytest.raises(TableError, match="more than once"):
        run([good, good], [0.5, 0.5])
    with pytest.raises(TableError, match="text of the response itself"):
        run([change(request, request.text)], [0.5])
    with pytest.raises(TableError, match="that has a text is 'refused'"):
        run([change(request, "new", Status.refused)], [0.5])
    with pytest.raises(TableError, match="without a text is 'changed'"):
        run([change(request, None)], [None])
    with pytest.raises(TableError, match="gives None to a perturbation"):
        run([good], [None])
    with pytest.raises(TableError, match="gives inf"):
        run([good], [math.inf])
    with pytest.raises(TableError, match="without a text"):
        run([change(request, None, Status.failed)], [0.5])
    with pytest.raises(TableError, match="1 perturbations came with 2 rewards"):
        run([good], [0.5, 0.5])
    with pytest.raises(TableError, match="not among those given"):
        run([change(Request(comparison("x"), 0, LENGTH, Direction.worse), "new")], [0.5])
    with pytest.raises(TableError, match="given more than once"):
        run([], [], pairs=(pair, pair))
    with pytest.raises(TableError, match="has no rewards"):
        run([], [], given={})
    with pytest.raises(TableError, match="two finite rewards"):
        run([], [], given={"k": (math.nan, 1.0)})
    with pytest.raises(TableError, match="at least one"):
        run([], [], pairs=())
    with pytest.raises(ConfigError, match="tie=-1"):
        run([], [], tie=-1)
    with pytest.raises(ConfigError, match="'length' is asked for more than once"):
        requests_for([pair], rewards, [LENGTH, LENGTH], [0], 0.0)
    with pytest.raises(TableError, match=r"lacks outcome"):
        check_outcomes(made([{"comparison": "k", "attribute": "a", "change": 1.0}]).drop(columns="outcome"))
