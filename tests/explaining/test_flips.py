"""Flip rates: hand counts, brute force over all signs, scipy as oracle, and tables with a planted
effect."""

import itertools

import numpy as np
import pandas as pd
import pytest
from test_outcomes import made

from pessimal.explaining.flips import attribute_flip_rates, flips_beyond_words
from pessimal.explaining.outcomes import against_polarity
from pessimal.statistics import sign_flip


def simulated(
    effects: dict[str, float],
    *,
    comparisons: int = 40,
    noise: float = 0.5,
    seed: int = 0,
    seeds: int = 1,
):
    """Each attribute moves every margin by its effect, with noise that a comparison's rows share in
    part."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(comparisons):
        margin, shared = float(rng.exponential()) + 0.01, rng.normal(scale=noise / 2)
        for (name, effect), side, again in itertools.product(
            effects.items(), ("chosen", "rejected"), range(seeds)
        ):
            moved = float(effect + shared + rng.normal(scale=noise))
            rows.append(
                {
                    "comparison": f"k{number}",
                    "attribute": name,
                    "side": side,
                    "seed": again,
                    "margin": margin,
                    "change": moved,
                    "perturber": "placebo" if name == "placebo" else "rules",
                }
            )
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
                {
                    "comparison": "a",
                    "attribute": "x",
                    "side": "rejected",
                    "change": -1.0,
                },  # m′ = 0: a tie
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
    nothing = of(table, "y")
    assert nothing[["asked", "n", "comparisons"]].tolist() == [1, 0, 0]
    assert nothing[["flip_rate", "flip_low", "change", "change_low", "flip_p"]].isna().all()


def test_a_planted_attribute_beats_the_placebo_and_nothing_else_does():
    table = attribute_flip_rates(simulated({"a": 0.0, "planted": -1.0, "b": 0.0, "placebo": 0.0}))
    planted = of(table, "planted")
    assert planted["flip_p"] < 0.01
    assert planted["change_high"] < -0.7
    assert planted["flip_excess"] > 0.2
    assert of(table, "a")["flip_p"] > 0.05
    placebo = of(table, "placebo")
    assert placebo["n"] == 80
    assert placebo["flip_low"] <= placebo["flip_rate"] <= placebo["flip_high"]
    assert placebo[["flip_p", "flip_excess"]].isna().all()


def test_the_placebo_is_met_within_the_same_response_of_the_same_comparison():
    table = made(
        [
            {"comparison": "a", "attribute": "x", "change": -3.0},
            {"comparison": "a", "attribute": "x", "side": "rejected", "change": -5.0},
            {"comparison": "a", "attribute": "placebo", "change": -1.0},  # meets the first only
            {"comparison": "b", "attribute": "x", "change": -3.0},
            {
                "comparison": "b",
                "attribute": "placebo",
                "side": "rejected",
                "change": -1.0,
            },  # meets nothing
            {"comparison": "c", "attribute": "x", "change": 0.0},
            {"comparison": "c", "attribute": "x", "seed": 1, "change": 2.0},
            {"comparison": "c", "attribute": "placebo", "change": -2.0},  # flips
        ]
    )
    row = of(attribute_flip_rates(table), "x")
    assert row["pairs"] == 2
    assert row["flip_excess"] == pytest.approx((1 - 1) / 2)
    assert row["flip_p"] == pytest.approx(
        3 / 4
    )  # differences 1 and −1: of four patterns, one gives less
    both_sides = [
        {"comparison": "d", "attribute": name, "side": side, "change": change}
        for name, change in (("x", -3.0), ("placebo", -0.5))
        for side in ("chosen", "rejected")
    ]
    row = of(attribute_flip_rates(pd.concat([table, made(both_sides)])), "x")
    assert row["pairs"] == 3
    assert row["flip_excess"] == pytest.approx((1 - 1 + 1) / 3)


def test_a_model_that_likes_what_polarity_calls_worse_is_found_out():
    """It likes length: giving the chosen response more of what is called better never flips, taking
    it away does."""
    rows = made(
        [
            {
                "comparison": f"k{n}",
                "attribute": "brevity",
                "side": side,
                "change": change,
                "direction": direction,
                "amount": {"better": "more", "worse": "less"}[direction],
            }
            for n in range(20)
            for side, direction, change in (
                ("chosen", "worse", 0.5),
                ("rejected", "better", 0.4),
                ("chosen", "better", -2.0),
                ("rejected", "worse", -2.0),
            )
        ]
        + [
            {"comparison": f"k{n}", "attribute": "placebo", "change": 0.0, "perturber": "placebo"}
            for n in range(20)
        ]
    )
    found = attribute_flip_rates(rows).set_index(["attribute", "liked", "which_is"])
    assert found["flip_rate"].to_dict() == {
        ("brevity", "more", "better"): 0.0,
        ("placebo", "", ""): 0.0,
        ("brevity", "less", "worse"): 1.0,
    }
    assert found.loc[("brevity", "less", "worse"), "flip_p"] < 0.001
    assert found.loc[("brevity", "more", "better"), "flip_p"] > 0.5
    one_way = attribute_flip_rates(rows[against_polarity(rows)])
    assert one_way["liked"].tolist() == ["more", ""]


def test_edits_are_not_tested_against_placebos_of_another_kind():
    rows = simulated({"a": -1.0, "placebo": 0.0})
    others = rows.assign(perturber=rows["perturber"].replace({"rules": "llm"}))
    assert np.isnan(of(attribute_flip_rates(others), "a")["flip_p"])
    own = others.assign(perturber="llm")
    assert (
        of(attribute_flip_rates(own), "a")["flip_p"]
        == of(attribute_flip_rates(rows), "a")["flip_p"]
        < 0.01
    )


def test_what_any_edit_does_is_kept_under_random_prices_of_words():
    rows = []
    for number, jitter in enumerate(np.linspace(-0.01, 0.01, 12)):
        for name, perturber in (("a", "rules"), ("b", "rules"), ("placebo", "placebo")):
            change = 0.0 if name == "placebo" else -2.0 + jitter
            rows.append({"comparison": f"k{number}", "attribute": name, "perturber": perturber})
            rows[-1] |= {"change": change, "edited": f"as it was {name}"}
        # The other way to ask about a: what costs the rejected response its reward flips none.
        other = {"side": "rejected", "direction": "worse", "amount": "less"}
        rows.append(rows[-3] | other | {"change": 2.0 - jitter})
    edits = made(rows)
    rates = flips_beyond_words(attribute_flip_rates(edits), edits)
    rates = rates[rates["which_is"] != of(rates[rates["flip_rate"] == 0], "a")["which_is"]]
    for name in ("a", "b"):
        row = of(rates, name)
        assert row["flip_rate"] == 1
        assert row["flip_p"] < 0.001
        assert row["random_words"] == row["p_corrected"] == 1


def test_beside_what_was_not_found_stands_what_would_have_been():
    """An excess of the size `detectable` is found by the sign flips four times in five."""
    table = simulated({"a": 0.0, "b": 0.0, "placebo": 0.0})
    rates = attribute_flip_rates(table)
    row, row_b = (of(flips_beyond_words(rates, table), name) for name in "ab")
    assert row["p_corrected"] > 0.05
    n, spread = int(row["pairs"]), of(rates, "a")["excess_error"] * np.sqrt(row["pairs"])
    level, rng = 0.05 / 2, np.random.default_rng(0)
    draws = rng.normal(row["detectable"], spread, (200, n))
    flips = [sign_flip(d, two_sided=False, permutations=500, seed=0) <= level for d in draws]
    assert 0.7 < np.mean(flips) <= 0.97
    assert row_b["detectable"] > 0
    few = table[table["comparison"].isin(sorted(set(table["comparison"]))[:4])]
    assert np.isnan(of(flips_beyond_words(attribute_flip_rates(few), few), "a")["detectable"])
