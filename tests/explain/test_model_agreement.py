"""Model agreement: scipy and the package's own Kendall as oracles, a plain joint bootstrap, and undefined taus."""

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from test_outcomes import HOSTILE, made

from pessimal.errors import TableError
from pessimal.explain.metrics import draws
from pessimal.explain.model_agreement import model_agreement, tau_b

NAMES = "abcdef"


def two_models(
    tastes: dict[str, list[float]], *, comparisons: int = 30, noise: float = 0.3, seed: int = 0
) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return made(
        [
            {"model": model, "comparison": f"k{number}", "attribute": name, "margin": 0.5, "change": float(effect + noise * rng.normal())}
            for model, effects in tastes.items()
            for number in range(comparisons)
            for name, effect in zip(NAMES, effects, strict=True)
        ]
    )  # fmt: skip


def changes(table: pd.DataFrame, model: str) -> np.ndarray:
    """(comparisons, attributes) of a model that has one perturbation of each; the margins are .5."""
    own = table[table["model"] == model].astype({"change": float})
    return own.pivot(index="comparison", columns="attribute", values="change").to_numpy()


def row(table: pd.DataFrame, measure: str) -> pd.Series:
    return table[table["measure"] == measure].iloc[0]


@pytest.mark.parametrize("ties", [False, True])
def test_many_taus_at_once_are_scipys_and_our_own(ties):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 50, 9))
    if ties:
        x, y = x.round(), y.round()
    for tau, one, other in zip(tau_b(x, y), x, y, strict=True):
        assert tau == pytest.approx(stats.kendalltau(one, other).statistic, abs=1e-12)


def test_missing_values_are_left_out_and_a_constant_has_no_tau():
    x = np.array([1.0, 2, np.nan, 3, 5])
    y = np.array([1.0, 3, 9, 2, np.nan])
    assert tau_b(x, y) == pytest.approx(stats.kendalltau([1, 2, 3], [1, 3, 2]).statistic)
    assert math.isnan(tau_b(np.ones(4), np.arange(4)))
    assert math.isnan(tau_b(np.array([1.0, np.nan]), np.array([1.0, 2])))
    assert math.isnan(tau_b(np.empty(0), np.empty(0)))


def test_estimates_and_intervals_are_those_of_a_plain_joint_bootstrap():
    table = two_models(
        {"m": [-1.0, -0.8, -0.6, -0.4, -0.2, 0], "n": [-0.8, -1.0, -0.2, -0.4, 0, -0.6]}, comparisons=12
    )
    found = model_agreement(table, replicates=200, seed=3)
    assert found["attributes"].tolist() == [6, 6]
    whole = {
        "flip rate": [1.0 * (grid < -0.5) for grid in (changes(table, "m"), changes(table, "n"))],
        "change": [changes(table, "m"), changes(table, "n")],
    }
    plain = {measure: [] for measure in whole}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for draw in draws(12, replicates=200, seed=3):
            drawn = np.repeat(np.arange(12), draw.astype(int))
            for measure, (x, y) in whole.items():
                x, y = x[drawn].mean(axis=0).round(12), y[drawn].mean(axis=0).round(12)
                plain[measure].append(stats.kendalltau(x, y).statistic)
    for measure, (x, y) in whole.items():
        x, y = x.mean(axis=0).round(12), y.mean(axis=0).round(12)
        one = row(found, measure)
        assert one["tau"] == pytest.approx(stats.kendalltau(x, y).statistic)
        assert [one["low"], one["high"]] == pytest.approx(np.nanquantile(plain[measure], [0.025, 0.975]))
        assert one["low"] < one["high"]
        assert one["defined"] == pytest.approx(np.mean(~np.isnan(plain[measure])))


def test_models_of_one_taste_agree_and_of_opposite_tastes_disagree():
    effects = [-1.0, -0.8, -0.6, -0.4, -0.2, 0.0]
    found = model_agreement(two_models({"m": effects, "same": effects, "turned": effects[::-1]}, noise=0.05))
    taus = found[found["measure"] == "change"].set_index(["model_a", "model_b"])["tau"]
    assert taus.to_dict() == {("m", "same"): 1, ("m", "turned"): -1, ("same", "turned"): -1}


def test_only_comparisons_that_both_decided_and_attributes_that_both_have_count():
    table = two_models(
        {"m": [-1.0, -0.8, -0.6, -0.4, -0.2, 0], "n": [-1.0, -0.8, -0.6, -0.4, -0.2, 0]}, noise=0
    )
    strange = made(
        [
            {"model": "m", "comparison": f"only m {number}", "attribute": name, "change": 99.0 * (name == "f")}
            for number in range(9)
            for name in NAMES
        ]
        + [{"model": model, "comparison": "k0", "attribute": "placebo", "change": -9.0 * (model == "m")} for model in "mn"]
        + [{"model": "n", "comparison": "k0", "attribute": "of n", "change": -9.0}]
        + [{"model": model, "comparison": "k0", "attribute": "bad", "change": -9.0} for model in "m"]
        + [{"model": "n", "comparison": "k0", "attribute": "bad", "status": "failed"}]
    )  # fmt: skip
    found = model_agreement(pd.concat([table, strange]))
    pd.testing.assert_frame_equal(found, model_agreement(table))
    assert row(found, "change")[["tau", "comparisons", "attributes"]].tolist() == [1, 30, 6]


def test_an_undefined_tau_is_missing_with_its_reason():
    never = two_models({"m": [0.0] * 6, "n": [-1.0, -0.8, -0.6, -0.4, -0.2, 0]}, noise=0)
    flips = row(model_agreement(never), "flip rate")
    assert flips[["tau", "low", "high"]].isna().all()
    assert flips["reason"] == "the same value for every attribute: m"
    one = row(model_agreement(never[never["attribute"] == "a"]), "change")
    assert one["reason"] == "1 attributes in common; two are needed"
    apart = pd.concat(
        [never[never["model"] == "m"], never[never["model"] == "n"].assign(comparison="other")[:1]]
    )
    nothing = row(model_agreement(apart), "change")
    assert math.isnan(nothing["tau"])
    assert nothing["comparisons"] == 0


def test_a_pair_is_the_same_to_the_bit_in_any_company():
    tastes = {
        "m": [-1.0, -0.8, -0.6, -0.4, -0.2, 0],
        "n": [-0.8, -1.0, -0.2, -0.4, 0, -0.6],
        "o": [0.0, -1, 0, -1, 0, -1],
    }
    table = two_models(tastes, comparisons=10)
    pair = model_agreement(table[table["model"] != "o"], seed=2)
    whole = model_agreement(table.sample(frac=1, random_state=3).sort_values("model"), seed=2)
    whole = whole[(whole["model_a"] == "m") & (whole["model_b"] == "n")].reset_index(drop=True)
    pd.testing.assert_frame_equal(pair, whole, check_exact=True)


def test_hostile_names_pass_and_mistakes_are_reported():
    rows = [
        {"comparison": text, "attribute": name, "change": change, "model": model}
        for text in HOSTILE
        for name, change in (("\ud800", -2.0), ("<b>", -0.5))
        for model in ("\udfff", "")
    ]
    found = model_agreement(made(rows))
    assert found["tau"].tolist() == [1, 1]
    assert found["model_a"].tolist() == ["\udfff"] * 2
    with pytest.raises(TableError, match="replicates=1 "):
        model_agreement(made(rows), replicates=1)
    alone = model_agreement(made(rows[::2]))
    assert alone.empty
    assert "tau" in alone
