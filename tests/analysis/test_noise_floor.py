"""The noise floor: a model against its own rescans."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analysis.noise_floor import noise_floor
from pessimal.errors import TableError


@pytest.fixture
def rewards() -> pd.Series:
    return pd.Series(np.random.default_rng(0).normal(size=500) * 2)


def test_each_rescan_is_held_against_the_scan(rewards):
    coarse = rewards.round(1)
    shaken = rewards + np.random.default_rng(1).normal(size=500) * 0.5
    table = noise_floor(rewards, {"bfloat16": coarse, "again": shaken}, replicates=200).set_index("rescan")
    assert list(table.index) == ["bfloat16", "again"]
    for name, rescan in (("bfloat16", coarse), ("again", shaken)):
        row = table.loc[name]
        assert row["kendall"] == pytest.approx(stats.kendalltau(rewards, rescan).statistic)
        assert row["low"] < row["kendall"] < row["high"] <= 1
        assert row["largest_difference"] == np.abs(rewards - rescan).max()
        assert row["relative"] == pytest.approx(
            np.sqrt(((rewards - rescan) ** 2).mean()) / rewards.std(ddof=0)
        )
    assert table.loc["again", "kendall"] < table.loc["bfloat16", "kendall"] < 1


def test_a_rescan_to_the_same_numbers_has_no_noise(rewards):
    row = noise_floor(rewards, {"again": rewards.sample(frac=1, random_state=0)}, replicates=100).iloc[0]
    assert (row["kendall"], row["largest_difference"], row["top_overlap"]) == (1, 0, 1)


def test_no_rescan_is_an_empty_table(rewards):
    assert noise_floor(rewards, {}).empty


def test_a_rescan_of_other_candidates_is_refused(rewards):
    with pytest.raises(TableError, match="its rescan 'bfloat16' must hold the same items"):
        noise_floor(rewards, {"bfloat16": rewards.iloc[1:]})
