"""Representatives: small rankings worked out by hand, and a planted odd one out."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from test_outcomes import HOSTILE, made

from pessimal.errors import ConfigError, TableError
from pessimal.explain.representatives import contested, local_changes, representative

NAMES = list("abcde")
TASTE = [-5.0, -4.0, -3.0, -2.0, -1.0]


def local(key: str, changes: list[float], **more) -> list[dict]:
    return [
        {"comparison": key, "attribute": name, "change": change} | more
        for name, change in zip(NAMES, changes, strict=False)
    ]


def test_the_comparison_that_ranks_as_the_model_does_comes_first():
    rows = [row for number in range(5) for row in local(f"usual {number}", TASTE)]
    rows += local("odd", TASTE[::-1]) + local("close", [-5, -4, -3, -1, -2])
    ranking = representative(made(rows), "m", perturber="rules")
    assert ranking["comparison"].tolist() == [*(f"usual {number}" for number in range(5)), "close", "odd"]
    assert ranking["tau"].tolist() == pytest.approx([1] * 5 + [0.8, -1])
    assert (ranking["attributes"] == 5).all()


def test_taus_are_scipys_against_the_mean_over_all_perturbations():
    rng = np.random.default_rng(4)
    table = made(
        [row for number in range(12) for row in local(f"k{number:02}", (np.array(TASTE) / 3 + rng.normal(size=5)).tolist())]
    )  # fmt: skip
    ranking = representative(table, "m", perturber="rules").set_index("comparison")
    changes = table.astype({"change": float})
    overall = changes.groupby("attribute")["change"].mean()
    for key, own in changes.groupby("comparison"):
        expected = stats.kendalltau(own.groupby("attribute")["change"].mean(), overall).statistic
        assert ranking.loc[key, "tau"] == pytest.approx(expected)
    assert ranking["tau"].is_monotonic_decreasing


def test_a_response_of_which_seeds_failed_weighs_as_much_as_the_other():
    table = made(
        [
            {"comparison": "k", "attribute": "a", "seed": 0, "change": -1.0},
            {"comparison": "k", "attribute": "a", "seed": 1, "change": -3.0},
            {"comparison": "k", "attribute": "a", "side": "rejected", "seed": 0, "change": -8.0},
            {"comparison": "k", "attribute": "a", "side": "rejected", "seed": 1, "status": "failed"},
        ]
    )
    changes = local_changes(table, ["k", "absent"], ["a", "b"])
    assert changes[0, 0] == pytest.approx((-2 - 8) / 2)
    assert np.isnan(changes).tolist() == [[False, True], [True, True]]


def test_equal_taus_are_put_in_order_by_attributes_then_margin_then_key():
    wide = [*TASTE, -0.5]
    names = [*NAMES, "f"]
    rows = [
        {"comparison": key, "attribute": name, "change": change, "margin": margin}
        for key, kept, margin in (("b", 5, 2.0), ("a", 5, 2.0), ("c", 5, 3.0), ("z", 6, 1.0))
        for name, change in list(zip(names, wide, strict=True))[:kept]
    ]
    for order in (rows, rows[::-1]):
        ranking = representative(made(order), "m", perturber="rules")
        assert ranking["comparison"].tolist() == ["z", "c", "a", "b"]


def test_too_few_attributes_or_one_value_for_all_come_last_with_the_reason():
    rows = (
        local("few", TASTE[:4]) + local("flat", [-1.0] * 5) + local("good", TASTE) + local("bad", TASTE[::-1])
    )
    rows += local("good", [-9.0], attribute="placebo") + local("few", [-9.0], attribute="placebo")
    ranking = representative(made(rows), "m", perturber="rules")
    assert ranking["comparison"].tolist() == ["good", "bad", "flat", "few"]
    assert ranking["tau"].isna().tolist() == [False, False, True, True]
    assert ranking["reason"].tolist() == [
        "", "", "the same value for every attribute: one ranking", "4 attributes; 5 are needed",
    ]  # fmt: skip
    assert representative(made(rows), "m", perturber="rules", least_attributes=4)["tau"].notna().sum() == 3


def test_two_models_that_prefer_the_same_for_different_reasons_come_first():
    of_m = (
        local("agree", TASTE)
        + local("contested", TASTE)
        + local("other side", TASTE)
        + local("only m", TASTE)
    )
    of_n = (
        local("agree", TASTE)
        + local("contested", TASTE[::-1])
        + local("other side", TASTE[::-1], preferred=1)
    )
    table = made(of_m + [row | {"model": "n", "margin": 0.25} for row in of_n])
    ranking = contested(table, "m", "n", perturber="rules")
    assert ranking["comparison"].tolist() == ["contested", "agree"]
    assert ranking["tau"].tolist() == [-1, 1]
    assert ranking[["margin_a", "margin_b"]].to_numpy().tolist() == [[1, 0.25]] * 2
    turned = contested(table, "n", "m", perturber="rules")
    assert turned["comparison"].tolist() == ["contested", "agree"]
    assert turned["margin_a"].tolist() == [0.25, 0.25]


def test_the_preferred_response_is_known_from_either_side():
    rows = local("k", TASTE, side="rejected") + [row | {"model": "n"} for row in local("k", TASTE)]
    assert contested(made(rows), "m", "n", perturber="rules")["tau"].tolist() == [1]
    against = local("k", TASTE, side="rejected", preferred=1) + [
        row | {"model": "n"} for row in local("k", TASTE)
    ]
    assert contested(made(against), "m", "n", perturber="rules").empty


def test_hostile_keys_and_models_pass():
    rows = [row for text in HOSTILE for model in ("\ud800", "") for row in local(text, TASTE, model=model)]
    assert set(representative(made(rows), "\ud800", perturber="rules")["comparison"]) == set(HOSTILE)
    assert contested(made(rows), "\ud800", "", perturber="rules")["comparison"].tolist() == sorted(HOSTILE)


def test_mistakes_are_reported():
    table = made(local("k", TASTE))
    with pytest.raises(TableError, match="no row of the model x by the perturber rules; it has m by rules"):
        representative(table, "x", perturber="rules")
    with pytest.raises(ConfigError, match="least_attributes=1"):
        representative(table, "m", perturber="rules", least_attributes=1)
    with pytest.raises(TableError, match="with itself"):
        contested(table, "m", "m", perturber="rules")
    with pytest.raises(TableError, match="lacks margin"):
        representative(table.drop(columns="margin"), "m", perturber="rules")
    failed = made([{"comparison": "k", "attribute": name, "status": "failed"} for name in NAMES])
    ranking = representative(failed, "m", perturber="rules")
    assert math.isnan(ranking["tau"][0])
    assert ranking["reason"][0] == "0 attributes; 5 are needed"
    assert isinstance(ranking, pd.DataFrame)
