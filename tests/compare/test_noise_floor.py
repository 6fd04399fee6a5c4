"""The noise floor: a model against its own rescans."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.compare.agreement import analyse, noise_floor
from pessimal.compare.analysis import Options
from pessimal.tables.table_set import table_sets


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


@pytest.mark.parametrize("certain", [None, 100])
def test_tails_that_were_scored_again_in_float32_say_nothing_of_the_noise_at_the_ends(table_set, certain):
    rng = np.random.default_rng(2)
    matrix = pd.DataFrame(
        rng.normal(size=(60, 2)), index=[f"w{i}" for i in range(60)], columns=["m", "other"]
    )
    tables = table_set({"greatest": matrix})
    exact = tables.by_prompt["greatest"][0]
    low = replace(
        exact,
        provenance=replace(exact.provenance, dtype="bfloat16", certain=certain),
        rows=exact.rows.assign(reward=exact.rows["reward"] + 0.2 * rng.normal(size=60)),
    )
    (tables,) = table_sets([*tables.tables, low])
    floor = next(r.table for r in analyse(tables, Options(replicates=100)) if r.name == "noise_floor")
    row = floor.iloc[0]
    assert (row["model"], row["rescan"], row["tails_again"]) == ("m", "bfloat16", bool(certain))
    assert np.isnan(row["rbo"]) == np.isnan(row["top_overlap"]) == bool(certain)
    assert 0 < row["kendall"] < 1
