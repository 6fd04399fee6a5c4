"""Best against worst: mirror images, twins, and everything between."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analysis.framing import axes, framing
from pessimal.errors import TableError


def two_prompts(items: int = 2000, *, correlation: float, scale: float = 1.0) -> tuple[pd.Series, pd.Series]:
    x, other = np.random.default_rng(0).normal(size=(2, items))
    return pd.Series(x), pd.Series(scale * (correlation * x + np.sqrt(1 - correlation**2) * other))


def test_a_mirror_image_lies_on_best_minus_worst():
    best, _ = two_prompts(correlation=0.5)
    row = framing(best, -best).iloc[0]
    assert row[["pearson", "spearman", "share_difference", "share_sum"]].tolist() == pytest.approx(
        [-1, -1, 1, 0]
    )


def test_a_model_deaf_to_the_frame_lies_on_best_plus_worst():
    best, _ = two_prompts(correlation=0.5)
    row = framing(best, best + 3).iloc[0]
    assert row[["pearson", "share_difference", "share_sum"]].tolist() == pytest.approx([1, 0, 1])


def test_correlations_are_scipys_and_the_interval_is_fishers():
    best, worst = two_prompts(correlation=0.4)
    row = framing(best, worst, replicates=4000).iloc[0]
    pearson = stats.pearsonr(best, worst)
    assert row["pearson"] == pytest.approx(pearson.statistic)
    assert row["spearman"] == pytest.approx(stats.spearmanr(best, worst).statistic)
    assert [row["pearson_low"], row["pearson_high"]] == pytest.approx(
        list(pearson.confidence_interval()), abs=0.01
    )


def test_shares_are_of_raw_rewards():
    """Standardised they would be (1 − r) / 2; a prompt that moves the rewards little weighs little."""
    best, worst = two_prompts(correlation=-0.8, scale=0.1)
    row = framing(best, worst).iloc[0]
    expected = np.var(best - worst) / (np.var(best - worst) + np.var(best + worst))
    assert row["share_difference"] == pytest.approx(expected)
    assert row["share_difference_low"] < expected < row["share_difference_high"]
    assert abs(row["share_difference"] - (1 - row["pearson"]) / 2) > 0.2


def test_axes_are_difference_and_total_by_item():
    best, worst = (
        pd.Series([1.0, 2.0, 5.0], index=["a", "b", "c"]),
        pd.Series([7.0, 4.0, 3.0], index=["c", "b", "a"]),
    )
    table = axes(best, worst)
    assert table["text"].tolist() == ["a", "b", "c"]
    assert table["difference"].tolist() == [-2, -2, -2]
    assert table["total"].tolist() == [4, 6, 12]


def test_prompts_over_different_items_are_refused():
    with pytest.raises(TableError, match="only in best"):
        framing(pd.Series([1.0, 2.0, 3.0]), pd.Series([1.0, 2.0, 3.0], index=[0, 1, 7]))
    with pytest.raises(TableError, match="same reward for every item from: worst"):
        framing(pd.Series([1.0, 2.0, 3.0]), pd.Series([1.0, 1.0, 1.0]))
