"""A result says which of its columns are its effect; what was not tested never comes first."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from pessimal.tables.result import (
    HOLDS,
    TESTED,
    UNTESTED,
    Effect,
    Estimate,
    Result,
    merged,
    weight_of,
)

EFFECT = Effect(column="rho", label="ρ", low="low", high="high", p="p_holm", null="chance", n="n")
TABLE = pd.DataFrame(
    {"rho": [0.5, 0.1], "low": [0.4, float("nan")], "high": 0.6, "p_holm": [0.01, float("nan")]}
).assign(chance=[0.2, 0.1], n=9)


def test_the_number_of_a_row_is_what_the_effects_columns_say():
    assert EFFECT.estimate_row(TABLE.iloc[0]) == Estimate(
        "ρ", 0.5, 9, "tokens", 0.4, 0.6, 0.01, 0.2
    )
    missing = EFFECT.estimate_row(TABLE.iloc[1], "ρ, least")
    assert (missing.label, missing.low, missing.p) == ("ρ, least", None, None)


@pytest.mark.parametrize(
    ("numbers", "standing"),
    [
        ({"p": 0.05}, HOLDS),
        ({"low": 0.1, "high": 0.9, "null": 0.0}, TESTED),
        ({"low": float("nan"), "high": 0.9, "null": 0.0, "p": float("nan")}, UNTESTED),
    ],
)
def test_an_uncorrected_interval_is_a_test_that_never_holds(numbers, standing):
    assert Estimate("x", 0.5, 9, **numbers).standing == standing


def test_the_larger_of_p_and_random_heads_is_corrected_within_its_family():
    table = pd.DataFrame(
        {
            "set": ["a", "a", "a", "b", "b"],
            "p": [0.01, 0.001, 0.3, 0.02, np.nan],
            "random_head": [0.02, np.nan, 0.2, np.nan, 0.5],
        }
    )
    effect = Effect("x", "x", p="p_corrected", family=("set",))
    assert effect.correct(table)["p_corrected"].tolist() == [0.04, 0.003, 0.3, 0.04, 0.5]
    alone = Effect("x", "x", p="p_corrected").correct(table.drop(columns="random_head"))
    assert alone["p_corrected"].tolist()[:4] == pytest.approx([0.03, 0.004, 0.3, 0.04])
    rates = Effect("x", "x", p="p_corrected", correction="Benjamini-Hochberg")
    corrected = rates.correct(table[["p"]])["p_corrected"]
    assert corrected.tolist()[:4] == pytest.approx([0.02, 0.004, 0.3, 0.08 / 3])
    assert np.isnan(corrected[4])


def test_holding_comes_before_tested_and_tested_before_untested():
    assert weight_of(0.0, 0.01) > weight_of(0.99, 0.06)
    assert weight_of(0.0, 0.06) >= weight_of(9.0)
    assert weight_of(0.4, 0.01) > weight_of(0.3, 0.01)
    assert weight_of(0.4, 0.01, share=1 / 2) < weight_of(0.4, 0.01)


def test_results_of_one_name_are_one_with_the_headline_that_there_is_and_all_notes():
    parts = [
        Result("x", TABLE, "Said.", weight=0.1, notes=("a",), summary={"a": 1}),
        Result("y", TABLE, "Other."),
        Result("x", TABLE, weight=0.9, notes=("b",), summary={"b": 2}),
    ]
    first, other = merged(parts)
    assert (first.name, first.headline, len(first), other) == ("x", "Said.", 4, parts[1])
    assert (first.notes, first.summary) == (("a", "b"), {"a": 1, "b": 2})


def test_the_first_rows_are_the_farthest_from_what_each_is_compared_with():
    near = TABLE.assign(rho=[0.5, 0.4], chance=[0.45, 0.0])
    assert Result("x", near, effect=EFFECT).top(1)["rho"].tolist() == [0.4]


@pytest.mark.parametrize("simultaneous", [False, True])
def test_an_effect_of_the_detectable_size_is_found_four_times_of_five(simultaneous):
    rng, tests, n = np.random.default_rng(0), 5, 400
    level = 0.05 / tests
    true = (norm.isf(level / 2) + norm.ppf(0.8)) / n**0.5
    draws = rng.normal(0, n**-0.5, size=(500, tests)) + true * np.eye(tests)[0]
    reach = norm.isf(level / 2 if simultaneous else 0.025) / n**0.5
    declared = ("x", "x", "low", "high", "p_corrected")
    effect = Effect(*declared, null=0.0, family=("draw",), simultaneous=simultaneous)
    x = draws.ravel()
    p = 2 * norm.sf(np.abs(x) * n**0.5)
    table = pd.DataFrame({"x": x, "low": x - reach, "high": x + reach, "p": p, "n": n})
    table = effect.correct(table.assign(draw=np.arange(len(x)) // tests))
    assert table["detectable"].to_numpy() == pytest.approx(true)
    assert (table["p_corrected"][::tests] <= 0.05).mean() == pytest.approx(0.8, abs=0.05)
    number = effect.estimate_row(table.iloc[1])
    assert (number.miss == "") == (number.p <= 0.05)
    wide = effect.correct(table.assign(random_head=0.5, heads_within=1.0))
    assert wide["detectable"].equals(table["detectable"]), "no band is declared"
    banded = Effect(
        *declared, family=("draw",), band="heads_within", simultaneous=simultaneous
    ).correct(table.assign(random_head=0.5, heads_within=1.0))
    expected = norm.isf(level / 2) / norm.isf(0.025) + norm.ppf(0.8) / n**0.5
    assert banded["detectable"].to_numpy() == pytest.approx(expected)
