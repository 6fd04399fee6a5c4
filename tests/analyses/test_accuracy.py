"""Accuracy on labelled pairs and what goes with it, against closed forms, simulation and published
values."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analyses.preferences import (
    ALL,
    accuracies,
    differences,
    length_slopes,
    margin_agreement,
    preference_results,
    share_interval,
)
from pessimal.errors import TableError

JUDGEBENCH = (
    Path(__file__).resolve().parents[3]
    / "shared/data/scored_answers/judgebench_350_pairs_5_reward_models.parquet"
)


def frame(first, second, *, model="m", cluster=None, category="a", preferred=0, lengths=None):
    n = len(first)
    table = pd.DataFrame(
        {
            "model": model,
            "key": [f"k{i}" for i in range(n)],
            "cluster": range(n) if cluster is None else cluster,
            "category": category,
            "preferred": preferred,
            "first": first,
            "second": second,
        }
    )
    if lengths is not None:
        table["first_length"], table["second_length"] = lengths
    return table


@pytest.mark.parametrize(("right", "n"), [(0, 20), (7, 20), (147, 210), (20, 20)])
def test_the_interval_of_independent_pairs_is_clopper_and_pearsons(right, n):
    wins = np.r_[np.ones(right), np.zeros(n - right)]
    expected = stats.binomtest(right, n).proportion_ci()
    got = share_interval(wins, np.arange(n))
    assert got == pytest.approx((right / n, expected.low, expected.high))


def test_the_interval_holds_its_level_where_pairs_share_an_answer():
    rng, covered = np.random.default_rng(1), 0
    for _ in range(300):
        hardness = rng.beta(3.5, 1.5, size=40)  # mean .7
        wins = (rng.random((40, 9)) < hardness[:, None]).astype(float).ravel()
        _, low, high = share_interval(wins, np.repeat(np.arange(40), 9))
        covered += low <= 0.7 <= high
    assert covered / 300 > 0.92  # of .95, with a Monte Carlo error of .013


def test_a_tie_is_no_win_and_the_label_says_which_answer_is_better():
    table = accuracies(frame([1.0, 0.0, 2.0, 5.0], [0.0, 1.0, 2.0, 1.0], preferred=[0, 1, 0, 1]))
    row = table.iloc[0]
    assert (row["accuracy"], row["ties"], row["n"]) == (0.5, 1, 4)
    assert row["margin"] == pytest.approx((1 + 1 + 0 - 4) / 4)
    spread = np.std([1.0, 0.0, 2.0, 5.0, 0.0, 1.0, 2.0, 1.0], ddof=1)
    assert row["step"] == pytest.approx(row["margin"] / spread)
    assert row["fair_high"] >= row["high"]


def test_categories_have_wider_intervals_for_being_several():
    rng = np.random.default_rng(2)
    pairs = frame(rng.normal(1, 1, 90), rng.normal(0, 1, 90), category=["a", "b", "c"] * 30)
    table = accuracies(pairs).set_index("category")
    assert list(table.index) == [ALL, "a", "b", "c"]
    wins = (pairs["first"] > pairs["second"])[pairs["category"] == "a"]
    several = stats.binomtest(int(wins.sum()), 30).proportion_ci(1 - 0.05 / 3)
    assert (table["low"]["a"], table["high"]["a"]) == pytest.approx((several.low, several.high))
    assert table["fair_high"]["a"] == table["high"]["a"], "there are no ties"


def test_a_difference_is_of_the_same_pairs():
    rng = np.random.default_rng(3)
    hard = rng.normal(size=400)
    one = frame(hard + rng.normal(0, 0.3, 400) + 0.4, np.zeros(400), model="one")
    two = frame(hard + rng.normal(0, 0.3, 400), np.zeros(400), model="two")
    [row] = differences(pd.concat([one, two.iloc[:30]])).to_dict("records")
    apart = (one["first"] > 0).to_numpy(float)[:30] - (two["first"] > 0).to_numpy()[:30]
    expected = stats.ttest_1samp(apart, 0)
    assert (row["difference"], row["n"]) == (pytest.approx(apart.mean()), 30)
    assert row["p"] == pytest.approx(expected.pvalue)
    ends = expected.confidence_interval()
    assert (row["low"], row["high"]) == pytest.approx((ends.low, ends.high))


def test_agreement_is_of_margins_and_not_of_what_questions_are_worth():
    rng = np.random.default_rng(4)
    margin, worth = rng.normal(size=500), rng.normal(0, 10, size=(2, 500))
    pair = [
        frame(worth[i] + margin + rng.normal(0, 0.5, 500), worth[i], model=f"m{i}")
        for i in range(2)
    ]
    [row] = margin_agreement(pd.concat(pair)).to_dict("records")
    expected = stats.spearmanr(*(p["first"] - p["second"] for p in pair)).statistic
    assert row["rho"] == pytest.approx(expected)
    assert 0.7 < row["low"] < row["rho"] < row["high"] < 0.9
    twice = pd.concat([*pair, *(p.assign(key=p["key"] + " again") for p in pair)])
    [again] = margin_agreement(twice).to_dict("records")
    ends = ["rho", "low", "high"]
    assert [again[end] for end in ends] == pytest.approx([row[end] for end in ends], abs=1e-4)
    scores = stats.spearmanr(pair[0]["first"], pair[1]["first"]).statistic
    assert abs(scores) < 0.2


def test_the_interval_of_agreement_holds_its_level():
    rng, covered = np.random.default_rng(5), 0
    truth = 6 / np.pi * np.arcsin(0.5 / 2)  # Spearman's correlation of a normal pair with r = .5
    for _ in range(150):
        a = rng.normal(size=100)
        b = 0.5 * a + np.sqrt(0.75) * rng.normal(size=100)
        both = pd.concat([frame(a, np.zeros(100), model="a"), frame(b, np.zeros(100), model="b")])
        [row] = margin_agreement(both).to_dict("records")
        covered += row["low"] <= truth <= row["high"]
    assert 0.90 < covered / 150 < 0.99


def test_a_planted_slope_on_length_is_found_beside_a_preference():
    rng = np.random.default_rng(6)
    lengths = rng.integers(20, 400, size=(2, 600))
    ratio = np.log2(lengths[0] / lengths[1])
    preferred = rng.integers(0, 2, 600)
    sign = np.where(preferred == 0, 1, -1)
    margin = 0.5 * ratio + 1.0 * sign + rng.normal(0, 0.5, 600)
    pairs = frame(margin, np.zeros(600), preferred=preferred, lengths=lengths)
    [row] = length_slopes(pairs).to_dict("records")
    scale = np.sqrt((margin**2).mean())
    assert row["slope"] == pytest.approx(0.5 / scale, abs=0.03)
    assert row["intercept"] == pytest.approx(1.0 / scale, abs=0.05)
    assert row["low"] < 0.5 / scale < row["high"]
    # An answer without characters has no ratio, and pairs of one cluster count once.
    empty = frame([9.0], [0.0], cluster=[600], lengths=([0], [50]))
    twice = pd.concat([pairs, pairs.assign(key=pairs["key"] + " again"), empty])
    [again] = length_slopes(twice).to_dict("records")
    assert (again["n"], again["clusters"]) == (1200, 600)
    ends = ["slope", "low", "high"]
    assert [again[end] for end in ends] == pytest.approx([row[end] for end in ends])


def test_pairs_without_a_label_or_a_reward_are_left_out_and_counted():
    pairs = frame([1.0, 2.0, np.nan], [0.0, 0.0, 0.0], preferred=[0, None, 0])
    [result, *_] = preference_results(pairs)
    assert result.table["n"].tolist() == [1]
    assert any("2" in note or "1" in note for note in result.notes)
    with pytest.raises(TableError, match="label"):
        preference_results(pairs.iloc[1:])


@pytest.mark.skipif(not JUDGEBENCH.exists(), reason="needs the published scores of JudgeBench")
def test_published_accuracies_of_judgebench():
    rows = pd.read_parquet(JUDGEBENCH)
    models = sorted(name.removesuffix(":a") for name in rows if name.endswith(":a"))
    pairs = pd.concat(
        frame(
            rows[f"{model}:a"],
            rows[f"{model}:b"],
            model=model.split("_", 1)[1],
            preferred=np.where(rows["label"] == "A>B", 0, 1),
        )
        for model in models
    )
    accuracy = accuracies(pairs).set_index("model")["accuracy"].round(3)
    assert accuracy.tolist() == [0.594, 0.643, 0.623, 0.634, 0.594]
    agreement = margin_agreement(pairs).set_index(["model_a", "model_b"])["rho"]
    both = ("GRM-Gemma-2B-rewardmodel-ft", "internlm2-20b-reward")
    assert agreement[both] == pytest.approx(0.469, abs=1e-3)
