"""Quantisation: shares, ranks and ends against a count by hand; which models belong together."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analyses.analysis import Options
from pessimal.analyses.quantisation import analyse, quantised_pairs
from pessimal.errors import TableError

TEXTS = [f"word{i}" for i in range(300)]


@pytest.fixture
def rewards() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    whole = rng.normal(size=300)
    return pd.DataFrame(
        {"m": whole, "m-nf4": whole + 0.1 * rng.normal(size=300), "other": rng.normal(size=300)},
        index=TEXTS,
    )


def test_the_numbers_are_counted_by_hand(table_set, rewards):
    tables = table_set({"greatest": rewards})
    whole, ends = analyse(tables, Options(replicates=200, top=10))
    (row,) = whole.table.to_dict("records")
    assert (row["model"], row["whole"], row["n"]) == ("m-nf4", "m", 300)
    x, y = rewards["m"], rewards["m-nf4"]
    assert row["kendall"] == pytest.approx(stats.kendalltau(x, y).statistic, abs=1e-12)
    assert row["low"] < row["kendall"] < row["high"]
    moves = np.abs(stats.rankdata(-x) - stats.rankdata(-y))
    assert row["moved"] == np.mean(moves > 3)
    assert row["largest_move"] == moves.max()
    for end, sign in (("top", -1), ("bottom", 1)):
        before, after = (set(np.argsort(sign * values.to_numpy())[:10]) for values in (x, y))
        assert row[f"{end}_overlap"] == len(before & after) / 10
        own = ends.table[ends.table["end"] == end]
        assert set(own.loc[own["change"] == "leaves", "text"]) == {TEXTS[i] for i in before - after}
        assert set(own.loc[own["change"] == "enters", "text"]) == {TEXTS[i] for i in after - before}
    for token in ends.table.itertuples():
        place = TEXTS.index(token.text)
        assert token.rank_whole == stats.rankdata(-x)[place]
        assert (token.reward_whole, token.reward_quantised) == (x.iloc[place], y.iloc[place])
    assert len(whole.headline.split()) <= 25
    assert len(ends.headline.split()) <= 25


def test_a_model_that_nothing_was_done_to_keeps_all(table_set, rewards):
    same = rewards.assign(**{"m-nf4": rewards["m"]})
    whole, ends = analyse(table_set({"greatest": same}), Options(replicates=100))
    assert whole.table["kendall"].iloc[0] == pytest.approx(1)
    assert whole.table["moved"].iloc[0] == 0
    assert ends.table.empty


def test_pairs_by_name_and_as_said(table_set, rewards):
    names = ["m", "m-8B", "m-8B-AWQ", "m-8B.Q4_1", "m-int8", "m-GPTQ-Int4", "m-8B-v2"]
    assert quantised_pairs(names, {}) == {
        "m-8B-AWQ": "m-8B",
        "m-8B.Q4_1": "m-8B",
        "m-int8": "m",
        "m-GPTQ-Int4": "m",
    }
    whole, _ = analyse(
        table_set({"greatest": rewards}), Options(replicates=100, quantised={"other": "m"})
    )
    assert set(zip(whole.table["model"], whole.table["whole"], strict=True)) == {
        ("m-nf4", "m"),
        ("other", "m"),
    }
    with pytest.raises(TableError, match=r"Did you mean 'other'"):
        quantised_pairs(rewards.columns, {"othr": "m"})
    with pytest.raises(TableError, match=r"\+quantised\.QUANTISED_NAME=NAME"):
        analyse(table_set({"greatest": rewards[["m", "other"]]}), Options())
