"""Calibration: plants that are found and plants that are not, and a placebo with and without a direction."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score
from test_outcomes import HOSTILE, made

from pessimal.errors import TableError
from pessimal.explain.calibration import flips_by_chance, placebo_null, recovery, wins
from pessimal.explain.metrics import draws


def planted(
    effects: dict[str, float], *, model: str = "m", comparisons: int = 25, noise: float = 0.3, seed: int = 0
):
    rng = np.random.default_rng(seed)
    return made(
        [
            {"model": model, "comparison": f"k{number}", "attribute": name, "change": float(effect + noise * rng.normal())}
            for number in range(comparisons)
            for name, effect in effects.items()
        ]
    )  # fmt: skip


def placebo(changes, margins, *, tie: float = 0.0) -> pd.DataFrame:
    """One comparison a row of changes."""
    return made(
        [
            {"comparison": f"k{number}", "attribute": "placebo", "perturber": "placebo", "seed": place, "change": float(change),
             "margin": float(margin), "tie": tie}
            for number, (row, margin) in enumerate(zip(changes, margins, strict=True))
            for place, change in enumerate(row)
        ]
    )  # fmt: skip


def test_the_auc_is_the_share_of_others_below_with_ties_half():
    rng = np.random.default_rng(1)
    changes = rng.normal(size=(20, 7)).round(1)
    won, others = wins(changes, 2)
    for row, number, of in zip(changes, won, others, strict=True):
        assert number / of == pytest.approx(roc_auc_score(np.arange(7) == 2, np.abs(row)))
    changes[0, 2], changes[1, 4] = np.nan, np.nan
    won, others = wins(changes, 2)
    assert (won[0], others[0], others[1]) == (0, 0, 5)


def test_a_strong_plant_is_recovered_whatever_its_sign_and_none_is_not():
    table = pd.concat(
        [
            planted(
                {"length": 1.0, "tone": 0.1, "facts": -0.2, "refusal": 0.0}, model="likes length", seed=1
            ),
            planted(
                {"length": 0.0, "tone": 0.1, "facts": -0.2, "refusal": -0.9}, model="hates refusal", seed=2
            ),
            planted(
                {"length": 0.02, "tone": 0.5, "facts": -0.6, "refusal": -0.7}, model="misses", noise=0.05
            ),
        ]
    )
    plants = {"likes length": "length", "hates refusal": "refusal", "misses": "length"}
    found = recovery(table, plants).set_index("model")
    assert found["auc"].to_dict() == pytest.approx(
        {"likes length": 1, "hates refusal": 1, "misses": 0, "all": 6 / 9}
    )
    assert found["others"].to_dict() == {"likes length": 3, "hates refusal": 3, "misses": 3, "all": 9}
    assert found["planted"].to_dict() == {**plants, "all": None}
    assert (found["comparisons"] == 25).all()


def test_the_interval_is_that_of_a_plain_bootstrap_joint_over_models():
    table = pd.concat(
        [
            planted({"a": -0.25, "b": -0.2, "c": 0.15, "d": 0.0}, model="m", comparisons=15, noise=0.5),
            planted(
                {"a": -0.1, "b": -0.25, "c": 0.2, "d": 0.1}, model="n", comparisons=12, noise=0.5, seed=4
            ),
        ]
    )
    plants = {"m": "a", "n": "b"}
    found = recovery(table, plants, replicates=200, seed=6).set_index("model")
    keys = sorted(set(table["comparison"]))
    plain = []
    for draw in draws(15, replicates=200, seed=6):
        times = dict(zip(keys, draw, strict=True))
        won = []
        for model, own in table.groupby("model"):
            weights = own["comparison"].map(times).to_numpy(dtype=float)
            sizes = {
                name: abs(np.average(own["change"][part].to_numpy(dtype=float), weights=weights[part]))
                for name in "abcd"
                for part in [(own["attribute"] == name).to_numpy()]
            }
            won += [sizes[plants[model]] > sizes[name] for name in "abcd" if name != plants[model]]
        plain.append(np.mean(won))
    assert found.loc["all", ["low", "high"]].tolist() == pytest.approx(np.quantile(plain, [0.025, 0.975]))
    assert found.loc["all", "low"] < found.loc["all", "auc"] <= found.loc["all", "high"]
    alone = recovery(table[table["model"] == "n"], {"n": "b"}, replicates=200, seed=6).set_index("model")
    pd.testing.assert_series_equal(found.loc["n"], alone.loc["n"], check_exact=True)


def test_a_plant_that_was_not_asked_about_has_no_auc_and_says_so():
    table = pd.concat([planted({"a": 1.0, "b": 0.0}, model="m"), planted({"b": 0.0, "c": 0.1}, model="n")])
    found = recovery(table, {"m": "a", "n": "a"}).set_index("model")
    assert math.isnan(found.loc["n", "auc"])
    assert math.isnan(found.loc["n", "low"])
    assert found["reason"].to_dict() == {
        "m": "", "n": "a has no valid perturbation in n", "all": "a has no valid perturbation in n",
    }  # fmt: skip
    assert (found.loc["all", "auc"], found.loc["all", "others"]) == (1, 1)
    lonely = recovery(planted({"a": 1.0, "placebo": 3.0}), {"m": "a"}).set_index("model")
    assert lonely.loc["m", "reason"] == "there is no other attribute"


def test_recoverys_mistakes_are_reported():
    table = planted({"a": 1.0, "b": 0.0})
    with pytest.raises(TableError, match="given were x, and the table has m"):
        recovery(table, {"x": "a"})
    with pytest.raises(TableError, match="given were none"):
        recovery(table, {})
    with pytest.raises(TableError, match="none of them named 'all'"):
        recovery(table.assign(model="all"), {"all": "a"})


def test_the_null_is_that_of_all_patterns_of_signs():
    seen, turned = np.array([0, 2, 1, 3, 0]), np.array([1, 0, 1, 1, 2])
    patterns = [sum(pick) for pick in itertools.product(*zip(seen, turned, strict=True))]
    chances = flips_by_chance(seen, turned)
    assert chances.sum() == pytest.approx(1)
    assert chances == pytest.approx(np.bincount(patterns, minlength=len(chances)) / 32)


def test_a_null_of_single_flips_is_the_binomial_one():
    """Twenty comparisons that flip in one direction and not in the other: heads and tails."""
    changes = np.where(np.arange(20) < 14, -2.0, 2.0)[:, None]
    row = placebo_null(placebo(changes, np.ones(20)), {"m": 0.0}).iloc[0]
    assert row["counterfactuals"] == 14
    assert row["flip_rate"] == pytest.approx(0.7)
    assert row["expected"] == pytest.approx(0.5)
    assert row["p"] == pytest.approx(stats.binomtest(14, 20).pvalue)
    low, high = stats.binom.ppf([0.025, 0.975], 20, 0.5) / 20
    assert [row["null_low"], row["null_high"]] == pytest.approx([low, high])
    assert row["within"]


def test_noise_without_a_direction_lies_within_and_a_direction_does_not():
    rng = np.random.default_rng(11)
    inside = {0.0: 0, -0.5: 0}
    trials = 40
    for direction, _ in itertools.product(inside, range(trials)):
        margins = rng.exponential(size=40) + 0.01
        changes = direction + rng.normal(scale=0.6, size=(40, 1)) + rng.normal(scale=0.3, size=(40, 2))
        inside[direction] += bool(placebo_null(placebo(changes, margins), {"m": 0.0})["within"].iloc[0])
    assert inside[0.0] / trials >= 0.9
    assert inside[-0.5] / trials < 0.4


def test_a_placebo_that_moves_nothing_flips_nothing_and_should_not():
    row = placebo_null(placebo(np.zeros((5, 1)), np.ones(5)), {"m": 0.0}).iloc[0]
    assert row[["flip_rate", "expected", "null_low", "null_high", "p"]].tolist() == [0, 0, 0, 0, 1]
    assert row["within"]


def test_ties_are_those_of_the_table_and_mistakes_are_reported():
    table = placebo([[-1.05], [-3.0], [1.05]], np.ones(3), tie=0.1)
    row = placebo_null(table, {"m": 0.1}).iloc[0]
    assert row["counterfactuals"] == 1
    assert row["expected"] == pytest.approx(1 / 2 / 3)
    with pytest.raises(TableError, match=r"not made with tie=0\.0"):
        placebo_null(table, {"m": 0.0})
    with pytest.raises(TableError, match="No tie is given for m"):
        placebo_null(table, {})
    assert placebo_null(planted({"a": 1.0}), {}).empty


def test_hostile_names_pass():
    rows = [
        {"comparison": text, "attribute": name, "change": change, "model": "\ud800"}
        for text in HOSTILE
        for name, change in (("\udfff", -2.0), ("<b>", -0.5), ("placebo", 0.0))
    ]
    assert recovery(made(rows), {"\ud800": "\udfff"})["auc"].tolist() == [1, 1]
    assert placebo_null(made(rows), {"\ud800": 0.0})["within"].tolist() == [True]
