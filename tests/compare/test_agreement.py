"""Agreement: scipy as oracle for the estimates, the plain item bootstrap for the intervals, brute force for overlaps."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal import statistics
from pessimal.compare import ranks as influence
from pessimal.compare.agreement import (
    agreement,
    analyse,
    as_matrix,
    head,
    overlap_by_depth,
    rank_biased_overlap,
    tau_matrix,
    top_overlap,
)
from pessimal.compare.analysis import Options
from pessimal.compare.ranks import ranked
from pessimal.errors import TableError
from pessimal.statistics import bootstrap_linear
from pessimal.tables.table_set import table_sets


def three_models(items: int = 400, *, decimals: int | None = None, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(items, 1))
    values = shared + rng.normal(size=(items, 3)) * [0.4, 1.0, 3.0]
    return pd.DataFrame(values if decimals is None else values.round(decimals), columns=["a", "b", "c"])


@pytest.mark.parametrize("decimals", [None, 0])
def test_estimates_are_scipys(decimals):
    rewards = three_models(decimals=decimals)
    table = agreement(rewards)
    assert table[["model_a", "model_b"]].to_numpy().tolist() == [["a", "b"], ["a", "c"], ["b", "c"]]
    assert (table["n"] == 400).all()
    for row in table.itertuples():
        x, y = rewards[row.model_a], rewards[row.model_b]
        assert row.kendall == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
        assert row.spearman == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_a_strictly_increasing_map_of_the_rewards_changes_nothing():
    rewards = three_models()
    pd.testing.assert_frame_equal(
        agreement(rewards), agreement(rewards.assign(b=np.exp(rewards["b"]), c=7 * rewards["c"]))
    )


def test_turning_one_model_round_turns_the_signs():
    rewards = three_models()
    straight, turned = agreement(rewards), agreement(rewards.assign(a=-rewards["a"]))
    assert turned["kendall"][0] == pytest.approx(-straight["kendall"][0])
    assert turned["spearman"][0] == pytest.approx(-straight["spearman"][0])
    assert turned["kendall"][2] == straight["kendall"][2]


def test_a_model_agrees_with_itself_and_surely():
    rewards = three_models()[["a"]].assign(copy=lambda table: table["a"])
    row = agreement(rewards).iloc[0]
    assert row[["kendall", "low", "high", "spearman"]].tolist() == pytest.approx([1, 1, 1, 1])
    assert row["rbo"] == pytest.approx(1 - 0.9**132)


@pytest.mark.parametrize("decimals", [None, 0])
@pytest.mark.parametrize("name", ["kendall", "spearman"])
def test_intervals_are_those_of_the_plain_item_bootstrap(name, decimals):
    """Ends within .015 at 300 items, where the intervals are about .1 wide."""
    rewards = three_models(300, decimals=decimals, seed=5)
    x, y = rewards["a"].to_numpy(), rewards["b"].to_numpy()
    oracle = {"kendall": stats.kendalltau, "spearman": stats.spearmanr}[name]
    rng = np.random.default_rng(1)
    draws = rng.integers(300, size=(1500, 300))
    plain = np.quantile([oracle(x[draw], y[draw]).statistic for draw in draws], [0.025, 0.975])
    statistic = getattr(influence, name)(ranked(x), ranked(y))
    low, high = bootstrap_linear(
        np.array([statistic.estimate]), statistic.influence[:, None], replicates=4000, confidence=0.95, seed=0
    )
    assert [low[0], high[0]] == pytest.approx(plain, abs=0.015)


@pytest.mark.parametrize("name", ["kendall", "spearman"])
def test_influence_is_what_adding_an_item_does(name):
    """To first order, one more copy of item i moves the statistic by its influence over n."""
    rewards = three_models(600, decimals=1, seed=2)
    x, y = rewards["a"].to_numpy(), rewards["b"].to_numpy()
    oracle = {"kendall": stats.kendalltau, "spearman": stats.spearmanr}[name]
    statistic = getattr(influence, name)(ranked(x), ranked(y))
    assert statistic.influence.mean() == pytest.approx(0, abs=1e-12)
    items = np.arange(0, 600, 20)
    moved = [oracle(np.append(x, x[i]), np.append(y, y[i])).statistic - statistic.estimate for i in items]
    assert np.array(moved) * 600 == pytest.approx(statistic.influence[items], abs=0.02)


def test_the_interval_narrows_with_the_root_of_n():
    wide = agreement(three_models(500, seed=1)).iloc[1]
    narrow = agreement(three_models(8000, seed=1)).iloc[1]
    assert (wide["high"] - wide["low"]) / (narrow["high"] - narrow["low"]) == pytest.approx(4, rel=0.15)


def test_intervals_of_few_items_stay_among_possible_values():
    few = three_models(6)[["a", "b"]]
    row = agreement(few, confidence=0.999).iloc[0]
    assert -1 <= row["low"] < row["high"] <= 1
    assert -1 <= row["spearman_low"] < row["spearman_high"] <= 1


def test_the_seed_decides_the_interval():
    rewards = three_models()
    pd.testing.assert_frame_equal(agreement(rewards, seed=3), agreement(rewards, seed=3))
    assert agreement(rewards, seed=3)["low"][0] != agreement(rewards, seed=4)["low"][0]


def test_overlaps_do_not_depend_on_the_order_of_the_rows():
    """Many ties, as in low precision: shuffled rows give the same table."""
    rewards = three_models(300, decimals=0)
    shuffled = rewards.sample(frac=1, random_state=1)
    columns = ["rbo", "rbo_extrapolated", "top_overlap", "bottom_overlap"]
    assert agreement(shuffled)[columns].to_numpy() == pytest.approx(agreement(rewards)[columns].to_numpy())


def test_the_shared_ends_are_counted_at_both_ends():
    rewards = pd.DataFrame({"a": np.arange(50.0), "b": np.r_[np.arange(10.0), np.arange(49.0, 9.0, -1)]})
    row = agreement(rewards, top=10).iloc[0]
    assert (row["top"], row["top_overlap"], row["bottom_overlap"]) == (10, 0.0, 1.0)
    assert agreement(rewards.head(5), top=20)["top"][0] == 5


@pytest.mark.parametrize("wrong", [{"persistence": 1.0}, {"depth": 0}, {"top": 0}])
def test_overlaps_of_no_depth_are_refused(wrong):
    with pytest.raises(TableError, match="persistence between 0 and 1, and depths of at least 1"):
        agreement(three_models(), **wrong)


def test_as_matrix_is_symmetric_with_a_unit_diagonal():
    table = agreement(three_models())
    matrix = as_matrix(table, "kendall")
    assert list(matrix.index) == list(matrix.columns) == ["a", "b", "c"]
    assert np.diag(matrix).tolist() == [1, 1, 1]
    assert matrix.loc["c", "a"] == matrix.loc["a", "c"] == table["kendall"][1]


def test_as_matrix_names_the_pair_it_lacks():
    with pytest.raises(TableError, match="no row for a and c"):
        as_matrix(agreement(three_models()).drop(index=1), "kendall")
    with pytest.raises(TableError, match="'tau'"):
        as_matrix(agreement(three_models()), "tau")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda table: table[["a"]], "at least 3 items and 2 models"),
        (lambda table: table.assign(b=1.0), "same reward for every item from: b"),
        (lambda table: table.assign(b=table["b"].where(table["b"] > 0)), r"missing or infinite for: b \("),
        (lambda table: table.assign(b="x"), "not floats for: b"),
        (lambda table: table.set_axis(["a", "a", "c"], axis=1), "more than once: a"),
    ],
)
def test_tables_that_cannot_be_compared_are_refused(spoil, message):
    with pytest.raises(TableError, match=message):
        agreement(spoil(three_models()))


def test_too_few_replicates_are_refused():
    with pytest.raises(TableError, match="replicates=10 "):
        agreement(three_models(), replicates=10)


def test_too_many_weights_to_keep_give_the_same_interval(monkeypatch):
    influences = np.random.default_rng(0).normal(size=(500, 2))
    kept = bootstrap_linear(np.zeros(2), influences, replicates=200, confidence=0.95, seed=1)
    monkeypatch.setattr(statistics, "KEPT_WEIGHTS", 0)
    monkeypatch.delattr(statistics, "_kept_weights")
    again = bootstrap_linear(np.zeros(2), influences, replicates=200, confidence=0.95, seed=1)
    assert np.array_equal(kept, again)


def test_the_bootstrap_is_that_of_counting_each_draw():
    """The interval of a mean, drawn again one by one with the same seed."""
    values = np.random.default_rng(0).uniform(-1, 1, size=(300, 1))
    low, high = bootstrap_linear(
        values.mean(axis=0), values - values.mean(), replicates=500, confidence=0.9, seed=3
    )
    rng = np.random.default_rng(3)
    means = [values[rng.integers(300, size=300, dtype=np.int32)].mean() for _ in range(500)]
    assert [low[0], high[0]] == pytest.approx(np.quantile(means, [0.05, 0.95]), abs=1e-12)


# overlap


def all_orders(values: np.ndarray) -> list[list[int]]:
    """Every ranking, best first, that the values allow."""
    n = len(values)
    return [list(order) for order in permutations(range(n)) if all(np.diff(values[list(order)]) <= 0)]


def test_without_ties_by_hand():
    # Depths 1, 2, 3 share 0, 2 and 2 items: (1 − p)(0 + p · 2/2 + p² · 2/3) at p = ½.
    a, b = head(np.array([9.0, 8, 7, 0]), depth=3), head(np.array([8.0, 9, 0, 7]), depth=3)
    assert overlap_by_depth(a, b).tolist() == [0, 2, 2]
    assert rank_biased_overlap(a, b, persistence=0.5) == pytest.approx(0.5 * (0.5 + 0.25 * 2 / 3))
    extrapolated = rank_biased_overlap(a, b, persistence=0.5, extrapolate=True)
    assert extrapolated == pytest.approx(0.5 * (0.5 + 0.25 * 2 / 3) + 0.5**3 * 2 / 3)
    assert top_overlap(a, b, k=1) == 0
    assert top_overlap(a, b, k=2) == 1


def test_rankings_without_a_common_item_have_none():
    a, b = head(np.array([4.0, 3, 2, 1]), depth=2), head(np.array([1.0, 2, 3, 4]), depth=2)
    assert rank_biased_overlap(a, b, persistence=0.9, extrapolate=True) == 0


@pytest.mark.parametrize("seed", range(6))
def test_with_ties_it_is_the_mean_over_all_orders(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 3, size=(2, 6)).astype(float)
    depth = 4
    orders_x, orders_y = all_orders(x), all_orders(y)
    expected = np.mean(
        [
            [len(set(one[:d]) & set(other[:d])) for d in range(1, depth + 1)]
            for one in orders_x
            for other in orders_y
        ],
        axis=0,
    )
    assert overlap_by_depth(head(x, depth=depth), head(y, depth=depth)) == pytest.approx(expected)


def test_a_ranking_with_ties_has_overlap_one_with_itself():
    values = np.random.default_rng(0).integers(0, 4, size=200).astype(float)
    one = head(values, depth=50)
    assert rank_biased_overlap(one, one, persistence=0.9, extrapolate=True) == pytest.approx(1)
    assert rank_biased_overlap(one, one, persistence=0.9) == pytest.approx(1 - 0.9**50)


def test_the_order_of_the_rows_does_not_matter():
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 20, size=(2, 500)).astype(float)
    order = rng.permutation(500)
    told = rank_biased_overlap(head(x, depth=80), head(y, depth=80), persistence=0.9)
    again = rank_biased_overlap(head(x[order], depth=80), head(y[order], depth=80), persistence=0.9)
    assert again == pytest.approx(told, abs=1e-12)


def test_a_depth_beyond_the_items_is_all_of_them():
    a = head(np.array([1.0, 1.0, 0.0]), depth=132)
    assert a.depth == 3
    assert top_overlap(a, a, k=3) == 1


def test_half_the_vocabulary_tied_is_no_trouble():
    values = np.zeros(128_000)
    values[:10] = 1
    one = head(values, depth=132)
    assert rank_biased_overlap(one, one, persistence=0.9, extrapolate=True) == pytest.approx(1)


# the analysis


def test_each_prompts_pairs_are_compared_and_the_closest_make_the_headlines_number(table_set):
    rewards = three_models()
    tables = table_set({"greatest": rewards, "worst": rewards.assign(a=rewards["c"])})
    (result,) = [r for r in analyse(tables, Options(replicates=100)) if r.name == "agreement"]
    assert result.table.groupby("prompt").size().to_dict() == {"greatest": 3, "worst": 3}
    expected = stats.kendalltau(rewards["a"], rewards["b"]).statistic
    assert result.estimate.value == pytest.approx(expected)
    assert result.estimate.low < expected < result.estimate.high
    assert result.summary["greatest/shared"] == 400
    assert tau_matrix(tables, "worst").loc["a", "c"] == pytest.approx(1)


def test_the_shared_matrix_is_the_same_before_and_after_the_analysis(table_set):
    rewards = {"greatest": three_models(decimals=1)}
    before = tau_matrix(table_set(rewards), "greatest")
    tables = table_set(rewards)
    analyse(tables, Options(replicates=100))
    assert ("tau", "greatest") in tables.memo
    pd.testing.assert_frame_equal(tau_matrix(tables, "greatest"), before)


def test_a_rescan_gives_the_noise_floor(table_set):
    rewards = three_models()
    noisy = rewards["a"] + 0.01 * np.random.default_rng(0).normal(size=400)
    tables = table_set({"greatest": rewards}).tables
    first = tables[0]
    rescan = replace(
        first,
        provenance=replace(first.provenance, dtype="bfloat16"),
        rows=first.rows.assign(reward=noisy.to_numpy()),
    )
    results = {r.name: r for r in analyse(table_sets([*tables, rescan])[0], Options(replicates=100))}
    floor = results["noise_floor"].table
    assert floor[["model", "rescan", "n"]].to_numpy().tolist() == [["a", "bfloat16", 400]]
    assert floor["kendall"][0] == pytest.approx(stats.kendalltau(rewards["a"], noisy).statistic)
    drawn = results["agreement"].plot.data
    own = drawn[drawn["model_a"] == drawn["model_b"]]
    assert own[["model_a", "prompt", "kendall"]].to_numpy().tolist() == [
        ["a", floor["prompt"][0], floor["kendall"][0]]
    ]


def test_a_prompt_of_one_model_does_not_cost_the_others(table_set):
    rng = np.random.default_rng(0)
    both = pd.DataFrame(rng.normal(size=(50, 2)), index=[f"w{i}" for i in range(50)], columns=["a", "b"])
    tables = table_set({"greatest": both, "worst": both[["a"]]})
    found = analyse(tables, Options(replicates=100))[0]
    assert found.table["prompt"].tolist() == ["greatest"]
    flat = table_set({"greatest": both, "worst": both.assign(b=1.0)})
    found = analyse(flat, Options(replicates=100))[0]
    assert found.table["prompt"].tolist() == ["greatest"]
    assert any(note.startswith("worst: ") for note in found.notes)
