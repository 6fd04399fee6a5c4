"""Agreement: scipy as oracle for the estimates, the plain item bootstrap for the intervals."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analysis import influence
from pessimal.analysis.agreement import agreement, as_matrix
from pessimal.analysis.bootstrap import intervals
from pessimal.analysis.ranks import ranked
from pessimal.errors import TableError


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
    low, high = intervals(
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
