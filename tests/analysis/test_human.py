"""Models against people: the published correlations where the data is, closed forms everywhere."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analysis.human import human_correlation, rank_difference
from pessimal.errors import TableError

PUBLISHED = [0.3227, 0.3144, 0.3281, 0.4493, 0.4702, 0.4580, 0.3803, 0.5465, 0.4998, 0.4268]


def test_the_published_scores_give_the_known_correlations(shared_data):
    file = shared_data / "eloeverything" / "greatest_one_word.csv"
    table = pd.read_csv(file, keep_default_na=False).set_index("name")
    result = human_correlation(table.iloc[:, 3:], table["elo_score"])
    assert result["spearman"].round(4).tolist() == PUBLISHED
    assert (result["n"] == 7530).all()
    assert ((result["high"] - result["low"]).between(0.02, 0.06)).all()


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
    assert list(table.columns) == ["model", "n", "spearman", "kendall", "low", "high"]


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
