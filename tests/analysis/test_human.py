"""Models against people: the published correlations where the data is, closed forms everywhere."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats import rankdata

from pessimal.analysis.elo import least_error, rank_intervals
from pessimal.analysis.human import (
    corrected_for_error,
    human_correlation,
    most_valued,
    rank_difference,
    surest_interval,
)
from pessimal.errors import TableError

PUBLISHED = [0.3227, 0.3144, 0.3281, 0.4493, 0.4702, 0.4580, 0.3803, 0.5465, 0.4998, 0.4268]


def test_the_published_scores_give_the_known_correlations(shared_data):
    file = shared_data / "eloeverything" / "greatest_one_word.csv"
    table = pd.read_csv(file, keep_default_na=False).set_index("name")
    result = human_correlation(table.iloc[:, 3:], table["elo_score"])
    assert result["spearman"].round(4).tolist() == PUBLISHED
    assert (result["n"] == 7530).all()
    assert ((result["high"] - result["low"]).between(0.02, 0.06)).all()


def test_the_published_scores_undervalue_what_they_are_known_to(shared_data):
    file = shared_data / "eloeverything" / "greatest_one_word.csv"
    table = pd.read_csv(file, keep_default_na=False).set_index("name")
    result = rank_difference(table.iloc[:, 3:], table["elo_score"], matches=table["elo_matches"])
    black = result.set_index("name").loc["Black people"]
    assert black[["human_rank", "model_rank", "difference"]].tolist() == [202.5, 6913.5, 6711]
    assert black["low"] > 5000
    ranks = table.iloc[:, 3:].rank(ascending=False)
    by_pandas = ranks.median(axis=1) - table["elo_score"].rank(ascending=False)
    assert result["difference"].to_numpy() == pytest.approx(by_pandas.to_numpy())
    published = ranks.assign(people=table["elo_score"].rank(ascending=False)).median(axis=1)
    assert (result["difference_published"] + result["human_rank"]).to_numpy() == pytest.approx(published)
    listed = most_valued(result, k=20).query("end == 'undervalued'")
    assert {"Black people", "Female body shape"} <= set(listed["name"])


def people_and_models(items: int = 300) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(0)
    names = [f"item {place}" for place in range(items)]
    elo = pd.Series(rng.normal(1200, 200, size=items).round(-1), index=names)  # rounded: people have ties
    noise = rng.normal(size=(items, 2))
    rewards = pd.DataFrame(elo.to_numpy()[:, None] + noise * [100, 400], index=names, columns=["near", "far"])
    return rewards, elo


def test_correlations_are_scipys_and_lie_in_their_interval():
    rewards, elo = people_and_models()
    table = human_correlation(rewards, elo)
    for row in table.itertuples():
        assert row.spearman == pytest.approx(stats.spearmanr(rewards[row.model], elo).statistic)
        assert row.kendall == pytest.approx(stats.kendalltau(rewards[row.model], elo).statistic)
        assert row.low < row.spearman < row.high
        assert row.kendall_low < row.kendall < row.kendall_high
    assert list(table.columns)[:6] == ["model", "n", "spearman", "kendall", "low", "high"]


def test_correcting_for_peoples_error_gives_their_true_order_and_moves_the_interval_along():
    """Scores with half of their variance error: the correlation with the truth is back, and inside the interval."""
    rng = np.random.default_rng(0)
    true = rng.normal(size=20_000)
    elo = pd.Series(true + rng.normal(size=20_000))
    rewards = pd.DataFrame({"m": true + rng.normal(size=20_000)})
    row = corrected_for_error(human_correlation(rewards, elo), 0.5).iloc[0]
    for end in ("", "_low", "_high"):
        plain = row["spearman"] if not end else row[end[1:]]
        assert row[f"spearman_corrected{end}"] == pytest.approx(plain * np.sqrt(2))
    truth = stats.spearmanr(rewards["m"], true).statistic
    assert row["spearman"] < row["high"] < truth - 0.1
    assert row["spearman_corrected"] == pytest.approx(truth, abs=0.02)
    with pytest.raises(TableError, match="reliability=0 is no share"):
        corrected_for_error(human_correlation(rewards, elo), 0)


def test_kendalls_interval_is_that_of_an_item_bootstrap():
    rewards, elo = people_and_models()
    row = human_correlation(rewards[["far"]], elo, replicates=2000).iloc[0]
    rng = np.random.default_rng(1)
    draws = [rng.integers(300, size=300) for _ in range(400)]
    taus = [stats.kendalltau(rewards["far"].to_numpy()[i], elo.to_numpy()[i]).statistic for i in draws]
    assert row["kendall_high"] - row["kendall_low"] == pytest.approx(
        np.ptp(np.quantile(taus, [0.025, 0.975])), rel=0.12
    )


def test_items_are_matched_by_name_not_by_place():
    rewards, elo = people_and_models()
    pd.testing.assert_frame_equal(human_correlation(rewards, elo[::-1]), human_correlation(rewards, elo))
    pd.testing.assert_frame_equal(rank_difference(rewards, elo[::-1]), rank_difference(rewards, elo))


def test_rank_difference_by_hand():
    names = ["a", "b", "c", "d"]
    elo = pd.Series([4.0, 3.0, 2.0, 2.0], index=names)
    rewards = pd.DataFrame(
        {"x": [1.0, 2.0, 3.0, 4.0], "y": [1.0, 2.0, 3.0, 4.0], "z": [4.0, 3.0, 2.0, 1.0]}, index=names
    )
    table = rank_difference(rewards, elo)
    assert table["name"].tolist() == names
    assert table["human_rank"].tolist() == [1, 2, 3.5, 3.5]
    assert table["model_rank"].tolist() == [4, 3, 2, 1]
    assert table["difference"].tolist() == [3, 1, -1.5, -2.5]


def test_the_published_way_counts_the_people_among_the_raters():
    names = ["a", "b", "c"]
    elo = pd.Series([3.0, 2.0, 1.0], index=names)
    rewards = pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=names)
    assert rank_difference(rewards, elo)["difference"].tolist() == [2, 0, -2]
    assert rank_difference(rewards, elo, paper=True)["difference"].tolist() == [1, 0, -1]


def test_both_ways_stand_side_by_side():
    names = ["a", "b", "c"]
    elo, rewards = pd.Series([3.0, 2.0, 1.0], index=names), pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=names)
    table = rank_difference(rewards, elo)
    assert table["difference_published"].tolist() == [1, 0, -1]
    assert rank_difference(rewards, elo, paper=True)["difference_published"].tolist() == [1, 0, -1]


def raters(items: int = 60, models: int = 10, *, seed: int = 0) -> tuple[pd.DataFrame, pd.Series, pd.Series]:
    """People and models that agree on most items; `loved` and `scorned` are where they part."""
    rng = np.random.default_rng(seed)
    elo = pd.Series(np.linspace(900, 1500, items), index=[f"item {place}" for place in range(items)])
    elo = elo.rename({"item 4": "loved", f"item {items - 5}": "scorned"})
    rewards = pd.DataFrame({f"m{m}": elo + rng.normal(0, 60, size=items) for m in range(models)})
    rewards.loc["loved"] += 500
    rewards.loc["scorned"] -= 500
    rewards.loc["item 30"] += 150  # sure only where people's ranks are well known
    return rewards, elo, pd.Series(300, index=elo.index)


def test_the_models_interval_is_the_exact_one_of_a_median():
    """The 2nd and 9th of ten: with less than 2.5 % of chance on either side, and the 3rd would have more."""
    rewards, elo, _ = raters()
    ranks = np.sort(rewards.rank(ascending=False).to_numpy(), axis=1)
    table = rank_difference(rewards, elo)
    assert stats.binom.cdf(1, 10, 0.5) < 0.025 < stats.binom.cdf(2, 10, 0.5)
    assert (table["models_low"] + table["human_rank"]).tolist() == ranks[:, 1].tolist()
    assert (table["models_high"] + table["human_rank"]).tolist() == ranks[:, 8].tolist()
    assert rank_difference(rewards.iloc[:, :5], elo)["models_low"].isna().all()
    assert rank_difference(rewards.iloc[:, :5], elo, confidence=0.9)["models_low"].notna().all()
    assert rank_difference(rewards.iloc[:, :6], elo)["models_low"].notna().all()
    # All three on one side of the median has a chance of exactly 1/8 on either side.
    three = rank_difference(rewards.iloc[:, :3], elo, confidence=0.75)
    assert three["models_low"].notna().all()
    assert rank_difference(rewards.iloc[:, :3], elo, confidence=0.76)["models_low"].isna().all()


def test_peoples_interval_is_of_their_rank_alone_and_the_joint_one_holds_both():
    rewards, elo, matches = raters()
    table = rank_difference(rewards, elo, matches=matches)
    likely = rank_intervals(elo, matches)
    assert (table["model_rank"] - table["people_high"]).to_numpy() == pytest.approx(likely["low"].to_numpy())
    assert (table["model_rank"] - table["people_low"]).to_numpy() == pytest.approx(likely["high"].to_numpy())
    below, above = table["difference"] - table["low"], table["high"] - table["difference"]
    for side, half in (("low", below), ("high", above)):
        people = (table["difference"] - table[f"people_{side}"]).abs()
        models = (table["difference"] - table[f"models_{side}"]).abs()
        assert half.to_numpy() == pytest.approx(np.sqrt(people**2 + models**2).to_numpy())


def test_the_joint_interval_holds_the_true_difference():
    """Models drawn from a population, people's scores from their matches: the truth is known for both."""
    rng = np.random.default_rng(0)
    items, inside = 400, []
    true = pd.Series(rng.normal(1200, 120, size=items))
    liked = 0.6 * true + rng.normal(0, 100, size=items)
    matches = pd.Series(rng.integers(30, 500, size=items))
    population = np.stack([rankdata(-(liked + rng.normal(0, 60, size=items))) for _ in range(2000)], axis=1)
    difference = np.median(population, axis=1) - rankdata(-true)
    for _ in range(5):
        rewards = pd.DataFrame({f"m{m}": liked + rng.normal(0, 60, size=items) for m in range(10)})
        elo = true + least_error(matches) * rng.normal(size=items)
        table = rank_difference(rewards, elo, matches=matches, draws=300)
        inside.append(((table["low"] <= difference) & (difference <= table["high"])).mean())
    assert 0.93 < np.mean(inside) < 0.99


def test_the_consensus_is_spread_as_evenly_as_peoples_ranks_are():
    rewards, elo, _ = raters()
    table = rank_difference(rewards, elo)
    assert table["model_rank"].max() - table["model_rank"].min() < 59
    assert table["consensus_rank"].tolist() == stats.rankdata(table["model_rank"]).tolist()
    assert table["consensus_difference"].sum() == 0


def test_only_items_whose_difference_is_sure_are_listed():
    rewards, elo, matches = raters()
    table = rank_difference(rewards, elo, matches=matches)
    listed = most_valued(table, k=5)
    assert listed.loc[listed["rank"] == 1, ["end", "name"]].to_numpy().tolist() == [
        ["overvalued", "loved"], ["undervalued", "scorned"],
    ]  # fmt: skip
    low, high = surest_interval(listed)
    assert ((low > 0) | (high < 0)).all()
    few = most_valued(rank_difference(rewards, elo, matches=pd.Series(9, index=elo.index)), k=5)
    assert len(few) < len(listed), "with nine matches each, people's ranks are hardly known"


def test_without_match_counts_or_many_models_the_list_rests_on_what_there_is():
    rewards, elo, matches = raters()
    one = rank_difference(rewards[["m0"]], elo, matches=matches)
    assert one["low"].isna().all()
    assert one["people_low"].notna().all()
    assert most_valued(one, k=1)["name"].tolist() == ["loved", "scorned"]
    bare = rank_difference(rewards, elo)
    assert bare["people_low"].isna().all()
    assert most_valued(bare, k=1)["name"].tolist() == ["loved", "scorned"]
    with pytest.raises(TableError, match="lacks low"):
        most_valued(bare[["name", "human_rank", "model_rank", "difference"]])


def test_names_may_be_lone_surrogates():
    names = pd.Index(["\ud83d", "null", "b"], dtype=object)
    table = rank_difference(
        pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=names), pd.Series([1.0, 2.0, 3.0], index=names)
    )
    assert table["name"].tolist() == ["\ud83d", "null", "b"]


def test_other_items_are_refused_with_an_example():
    rewards, elo = people_and_models()
    with pytest.raises(TableError, match=r"1 are only in the rewards \(such as 'item 3'\)"):
        human_correlation(rewards, elo.drop("item 3"))
    with pytest.raises(TableError, match="name some items twice"):
        human_correlation(rewards, pd.concat([elo, elo]))


def test_people_without_a_preference_are_refused():
    rewards, elo = people_and_models()
    with pytest.raises(TableError, match="human scores"):
        human_correlation(rewards, elo * 0)
