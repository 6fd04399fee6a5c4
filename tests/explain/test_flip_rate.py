"""Flip rates: hand counts, brute force over all signs, scipy as oracle, and tables with a planted effect."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from test_outcomes import HOSTILE, made

from pessimal.errors import TableError
from pessimal.explain.flip_rate import attribute_flip_rates, benjamini_hochberg
from pessimal.explain.metrics import draws


def simulated(
    effects: dict[str, float], *, comparisons: int = 40, noise: float = 0.5, seed: int = 0, seeds: int = 1
):
    """Each attribute moves every margin by its effect, with noise that a comparison's rows share in part."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(comparisons):
        margin, shared = float(rng.exponential()) + 0.01, rng.normal(scale=noise / 2)
        for (name, effect), side, again in itertools.product(
            effects.items(), ("chosen", "rejected"), range(seeds)
        ):
            moved = float(effect + shared + rng.normal(scale=noise))
            rows.append(
                {"comparison": f"k{number}", "attribute": name, "side": side, "seed": again, "margin": margin, "change": moved,
                 "perturber": "placebo" if name == "placebo" else "rules"}
            )  # fmt: skip
    return made(rows)


def of(table: pd.DataFrame, attribute: str) -> pd.Series:
    rows = table[table["attribute"] == attribute]
    assert len(rows) == 1
    return rows.iloc[0]


def test_ties_are_in_the_denominator_and_texts_that_failed_are_not():
    table = attribute_flip_rates(
        made(
            [
                {"comparison": "a", "attribute": "x", "change": -3.0},
                {"comparison": "a", "attribute": "x", "side": "rejected", "change": -1.0},  # m′ = 0: a tie
                {"comparison": "b", "attribute": "x", "change": 0.5},
                {"comparison": "b", "attribute": "x", "side": "rejected", "status": "refused"},
                {"comparison": "c", "attribute": "y", "status": "failed"},
            ]
        )
    )
    row = of(table, "x")
    assert row[["asked", "n", "comparisons", "counterfactuals", "ties"]].tolist() == [4, 3, 2, 1, 1]
    assert row["flip_rate"] == pytest.approx(1 / 3)
    assert row["change"] == pytest.approx((-3 - 1 + 0.5) / 3)
    assert row["size"] == pytest.approx((3 + 1 + 0.5) / 3)
    nothing = of(table, "y")
    assert nothing[["asked", "n", "comparisons"]].tolist() == [1, 0, 0]
    assert (
        nothing[["flip_rate", "flip_low", "change", "change_high", "flip_rank", "flip_first", "flip_p"]]
        .isna()
        .all()
    )
    assert row[["flip_rank", "flip_first", "change_rank", "change_first"]].tolist() == [1, 1, 1, 1]


def test_a_planted_attribute_comes_first_and_beats_the_placebo_and_nothing_else_does():
    table = attribute_flip_rates(simulated({"a": 0.0, "planted": -1.0, "b": 0.0, "placebo": 0.0}))
    planted = of(table, "planted")
    assert planted["flip_rank"] == planted["change_rank"] == 1
    assert planted["flip_first"] > 0.99
    assert planted["flip_q"] < 0.01
    assert planted["change_q"] < 0.01
    assert planted["change_high"] < -0.7
    assert of(table, "a")["change_q"] > 0.05
    assert of(table, "a")["flip_q"] > 0.05
    placebo = of(table, "placebo")
    assert placebo["n"] == 80
    assert placebo["flip_low"] <= placebo["flip_rate"] <= placebo["flip_high"]
    assert placebo[["flip_p", "flip_q", "change_p", "flip_rank", "change_first"]].isna().all()


def test_what_raises_margins_is_no_flip_but_is_a_change():
    row = of(attribute_flip_rates(simulated({"turned": 1.0, "placebo": 0.0})), "turned")
    assert row["change_p"] < 0.01
    assert row["flip_p"] > 0.5


def test_the_placebo_is_met_within_the_same_response_of_the_same_comparison():
    table = made(
        [
            {"comparison": "a", "attribute": "x", "change": -3.0},
            {"comparison": "a", "attribute": "x", "side": "rejected", "change": -5.0},
            {"comparison": "a", "attribute": "placebo", "change": -1.0},  # meets the first only
            {"comparison": "b", "attribute": "x", "change": -3.0},
            {"comparison": "b", "attribute": "placebo", "side": "rejected", "change": -1.0},  # meets nothing
            {"comparison": "c", "attribute": "x", "change": 0.0},
            {"comparison": "c", "attribute": "x", "seed": 1, "change": 2.0},
            {"comparison": "c", "attribute": "placebo", "change": -2.0},  # flips
        ]
    )
    row = of(attribute_flip_rates(table), "x")
    assert row["pairs"] == 2
    assert row["change_excess"] == pytest.approx(((-3 + 1) + (1 + 2)) / 2)
    assert row["flip_excess"] == pytest.approx((1 - 1) / 2)
    assert row["flip_p"] == pytest.approx(3 / 4)  # differences 1 and −1: of four patterns, one gives less
    assert row["change_p"] == pytest.approx(1.0)


def test_q_are_those_of_the_textbook_over_what_has_a_p():
    p = np.array([0.01, np.nan, 0.04, 0.03, 0.2])
    adjusted = benjamini_hochberg(p)
    assert adjusted[[0, 2, 3, 4]] == pytest.approx([0.04, 0.04 * 4 / 3, 0.04 * 4 / 3, 0.2])
    assert math.isnan(adjusted[1])


def test_the_family_is_one_model_and_perturber():
    one = simulated({"a": -0.3, "b": 0.0, "c": 0.0, "placebo": 0.0})
    table = attribute_flip_rates(pd.concat([one, one.assign(model="other")]))
    alone = attribute_flip_rates(one)
    for model in ("m", "other"):
        mine = table[table["model"] == model].reset_index(drop=True)
        pd.testing.assert_frame_equal(
            mine.drop(columns="model"), alone.drop(columns="model"), check_exact=True
        )
    rules = alone[alone["perturber"] == "rules"]
    assert rules["change_q"].to_numpy() == pytest.approx(stats.false_discovery_control(rules["change_p"]))


def test_ranks_and_their_certainty_are_those_of_a_plain_joint_bootstrap():
    rows = simulated({"a": -0.35, "b": -0.3, "c": 0.0}, comparisons=20)
    table = attribute_flip_rates(rows, replicates=300, seed=9)
    keys = sorted(set(rows["comparison"]))
    weights = draws(20, replicates=300, seed=9)
    by_key = {key: rows[rows["comparison"] == key] for key in keys}
    first = {"flip": dict.fromkeys("abc", 0.0), "change": dict.fromkeys("abc", 0.0)}
    for draw in weights:
        drawn = pd.concat(
            [by_key[key] for key, times in zip(keys, draw, strict=True) for _ in range(int(times))]
        )
        rates = (drawn["outcome"] == "CF").groupby(drawn["attribute"].to_numpy()).mean()
        changes = drawn["change"].astype(float).groupby(drawn["attribute"].to_numpy()).mean().abs()
        for stem, values in (("flip", rates), ("change", changes)):
            best = values[np.isclose(values, values.max(), rtol=1e-12)].index
            for name in best:
                first[stem][name] += 1 / len(best) / 300
    for name in "abc":
        assert of(table, name)["flip_first"] == pytest.approx(first["flip"][name])
        assert of(table, name)["change_first"] == pytest.approx(first["change"][name])
    assert 0.05 < of(table, "b")["change_first"] < 0.95
    assert sorted(table["change_rank"]) == [1, 2, 3]


def test_tied_attributes_share_rank_and_first_place():
    same = [
        {"comparison": f"k{number}", "attribute": name, "change": -2.0 if number % 2 else -0.5}
        for number in range(6)
        for name in "ab"
    ]
    table = attribute_flip_rates(made(same))
    assert table["flip_rank"].tolist() == [1.5, 1.5]
    assert table["flip_first"].tolist() == [0.5, 0.5]


def test_without_a_placebo_there_is_no_p():
    table = attribute_flip_rates(simulated({"a": -1.0, "b": 0.0}))
    assert table[["flip_p", "flip_q", "change_p", "change_q", "flip_excess"]].isna().all(axis=None)
    assert (table["pairs"] == 0).all()
    assert table["flip_rate"].notna().all()


def test_the_same_seed_gives_the_same_bits_whatever_the_order_and_the_other_attributes():
    rows = simulated({"a": -0.5, "b": -0.1, "placebo": 0.0}, seeds=2)
    whole = attribute_flip_rates(rows, seed=4)
    shuffled = attribute_flip_rates(rows.sample(frac=1, random_state=0), seed=4)
    alone = attribute_flip_rates(rows[rows["attribute"] != "b"], seed=4)
    own = [name for name in whole if not name.endswith(("_q", "_rank", "_first"))]
    pd.testing.assert_series_equal(of(whole, "a"), of(shuffled, "a"), check_exact=True, check_names=False)
    pd.testing.assert_series_equal(
        of(whole, "a")[own], of(alone, "a")[own], check_exact=True, check_names=False
    )
    assert of(whole, "a")["flip_low"] != of(attribute_flip_rates(rows, seed=5), "a")["flip_low"] or (
        of(whole, "a")["change_low"] != of(attribute_flip_rates(rows, seed=5), "a")["change_low"]
    )


def test_hostile_names_pass():
    rows = [
        {"comparison": text, "attribute": name, "change": -2.0, "model": "\ud800"}
        for text in HOSTILE
        for name in ("<b>\udfff", "", "placebo")
    ]
    table = attribute_flip_rates(made(rows))
    assert table["attribute"].tolist() == ["<b>\udfff", "", "placebo"]
    assert (table["flip_rate"] == 1).all()
    assert of(table, "")["flip_p"] == 1


def test_mistakes_are_reported():
    rows = simulated({"a": 0.0}, comparisons=3)
    with pytest.raises(TableError, match="permutations=5"):
        attribute_flip_rates(rows, permutations=5)
    with pytest.raises(TableError, match="confidence=1"):
        attribute_flip_rates(rows, confidence=1)
    with pytest.raises(TableError, match="lacks change_in_sd"):
        attribute_flip_rates(rows.drop(columns="change_in_sd"))
    assert attribute_flip_rates(rows.head(0)).empty
