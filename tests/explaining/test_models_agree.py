"""Model agreement: scipy and the package's own Kendall as oracles, a plain joint bootstrap, and
undefined taus."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from test_outcomes import made

from pessimal.explaining.agreement import (
    contested,
    examples,
    local_changes,
    model_agreement,
    representative,
    tau_b,
)
from pessimal.explaining.metrics import draws

NAMES = "abcdef"


def two_models(
    tastes: dict[str, list[float]], *, comparisons: int = 30, noise: float = 0.3, seed: int = 0
) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return made(
        [
            {
                "model": model,
                "comparison": f"k{number}",
                "attribute": name,
                "margin": 0.5,
                "change": float(effect + noise * rng.normal()),
            }
            for model, effects in tastes.items()
            for number in range(comparisons)
            for name, effect in zip(NAMES, effects, strict=True)
        ]
    )


def changes(table: pd.DataFrame, model: str) -> np.ndarray:
    """(comparisons, attributes) of a model that has one perturbation of each; the margins are
    .5."""
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


def test_estimates_and_intervals_are_those_of_a_plain_joint_bootstrap():
    table = two_models(
        {"m": [-1.0, -0.8, -0.6, -0.4, -0.2, 0], "n": [-0.8, -1.0, -0.2, -0.4, 0, -0.6]},
        comparisons=12,
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
        assert [one["low"], one["high"]] == pytest.approx(
            np.nanquantile(plain[measure], [0.025, 0.975])
        )
        assert one["low"] < one["high"]


def test_models_of_one_taste_agree_and_of_opposite_tastes_disagree():
    effects = [-1.0, -0.8, -0.6, -0.4, -0.2, 0.0]
    found = model_agreement(
        two_models({"m": effects, "same": effects, "turned": effects[::-1]}, noise=0.05)
    )
    taus = found[found["measure"] == "change"].set_index(["model_a", "model_b"])["tau"]
    assert taus.to_dict() == {("m", "same"): 1, ("m", "turned"): -1, ("same", "turned"): -1}


def test_only_comparisons_that_both_decided_and_attributes_that_both_have_count():
    table = two_models(
        {"m": [-1.0, -0.8, -0.6, -0.4, -0.2, 0], "n": [-1.0, -0.8, -0.6, -0.4, -0.2, 0]}, noise=0
    )
    strange = made(
        [
            {
                "model": "m",
                "comparison": f"only m {number}",
                "attribute": name,
                "change": 99.0 * (name == "f"),
            }
            for number in range(9)
            for name in NAMES
        ]
        + [
            {
                "model": model,
                "comparison": "k0",
                "attribute": "placebo",
                "change": -9.0 * (model == "m"),
            }
            for model in "mn"
        ]
        + [{"model": "n", "comparison": "k0", "attribute": "of n", "change": -9.0}]
        + [
            {"model": model, "comparison": "k0", "attribute": "bad", "change": -9.0}
            for model in "m"
        ]
        + [{"model": "n", "comparison": "k0", "attribute": "bad", "status": "failed"}]
    )
    found = model_agreement(pd.concat([table, strange]))
    pd.testing.assert_frame_equal(found, model_agreement(table))
    assert row(found, "change")[["tau", "comparisons", "attributes"]].tolist() == [1, 30, 6]


FIVE = list("abcde")
TASTE = [-5.0, -4.0, -3.0, -2.0, -1.0]


def local(key: str, changes: list[float], **more) -> list[dict]:
    return [
        {"comparison": key, "attribute": name, "change": change} | more
        for name, change in zip(FIVE, changes, strict=False)
    ]


def test_the_comparison_that_ranks_as_the_model_does_comes_first():
    rows = [row for number in range(5) for row in local(f"usual {number}", TASTE)]
    rows += local("odd", TASTE[::-1]) + local("close", [-5, -4, -3, -1, -2])
    rows += local("close", TASTE[::-1], perturber="llm") + local("odd", TASTE, model="n")
    ranking = representative(made(rows), "m", perturber="rules")
    assert ranking["comparison"].tolist() == [
        *(f"usual {number}" for number in range(5)),
        "close",
        "odd",
    ]
    assert ranking["tau"].tolist() == pytest.approx([1] * 5 + [0.8, -1])
    assert (ranking["attributes"] == 5).all()
    texts = examples(made(rows), ranking[5:], perturber="rules", n=1)
    assert set(texts["perturber"]) == {"rules"}
    assert texts["change"].tolist() == [-5, -4, -3, -2, -1]


def test_a_response_of_which_seeds_failed_weighs_as_much_as_the_other():
    table = made(
        [
            {"comparison": "k", "attribute": "a", "seed": 0, "change": -1.0},
            {"comparison": "k", "attribute": "a", "seed": 1, "change": -3.0},
            {"comparison": "k", "attribute": "a", "side": "rejected", "seed": 0, "change": -8.0},
            {
                "comparison": "k",
                "attribute": "a",
                "side": "rejected",
                "seed": 1,
                "status": "failed",
            },
        ]
    )
    absent = made([{"comparison": "absent", "attribute": "a", "status": "failed"}])
    changes = local_changes(pd.concat([table, absent]))
    assert changes.loc["k", "a"] == pytest.approx((-2 - 8) / 2)
    assert np.isnan(changes.loc["absent", "a"])


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
