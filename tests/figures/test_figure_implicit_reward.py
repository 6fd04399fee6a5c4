"""What the figures of language models show is what their tables say, whatever the tokens and however many models."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.patches import Rectangle

from pessimal.analysis.implicit_reward import implicit_extremes, implicit_reward, reward_correlation
from pessimal.errors import TableError
from pessimal.figures.implicit_reward import implicit_bars, reward_forest
from pessimal.figures.save import save


@pytest.fixture
def log_probabilities(rewards):
    rng = np.random.default_rng(2)
    values = rng.normal(size=(len(rewards), 9)) * 3
    values -= np.log(np.exp(values).sum(axis=0))
    return pd.DataFrame(values, index=rewards.index, columns=[f"base/{i}" for i in range(9)])


@pytest.fixture
def ends(log_probabilities):
    return implicit_extremes(implicit_reward(log_probabilities["base/0"], log_probabilities["base/1"]), k=20)


@pytest.mark.parametrize(("models", "bases"), [(1, 1), (2, 2), (6, 9)])
def test_forest_marks_every_correlation_at_its_place(rewards, log_probabilities, models, bases, texts):
    table = reward_correlation(rewards.iloc[:, :models], log_probabilities.iloc[:, :bases], replicates=100)
    figure = reward_forest(table)
    axes = figure.axes[0]
    # Beside the line at zero, one set of marks a language model.
    drawn = np.concatenate([line.get_xdata() for line in axes.lines if line.get_marker() not in ("None", "")])
    assert sorted(drawn) == pytest.approx(sorted(table["kendall"]))
    ends = np.concatenate([np.array(c.get_segments())[:, :, 0] for c in axes.collections])
    assert sorted(ends[:, 0]) == pytest.approx(sorted(table["low"]))
    assert sorted(ends[:, 1]) == pytest.approx(sorted(table["high"]))
    shown = " ".join(texts(figure))
    assert "300 shared candidates" in shown
    assert shown.count("log-probability under") == 1


def test_forest_puts_the_model_that_follows_most_on_top(rewards, log_probabilities):
    table = reward_correlation(rewards, log_probabilities.iloc[:, :2], replicates=100)
    first = table.groupby("model")["kendall"].max().idxmax()
    labels = [label.get_text() for label in reward_forest(table).axes[0].get_yticklabels()]
    assert labels[0] == first.removeprefix("lab/")
    with pytest.raises(TableError, match="No correlations"):
        reward_forest(table.iloc[:0])


def test_bars_are_the_ends_of_both_measures(ends, texts):
    figure = implicit_bars(ends, p_name="base/0", q_name="base/1", n=300)
    for axes, measure in zip(figure.axes, ("implicit_reward", "mwlr"), strict=True):
        wanted = ends[(ends["measure"] == measure) & (ends["rank"] <= 12)]
        widths = [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle)]
        assert sorted(widths) == pytest.approx(sorted(wanted["value"]))
        assert widths == sorted(widths, reverse=True), "from the highest to the lowest"
    shown = " ".join(texts(figure))
    assert "1 (q) against 0 (p)" in shown
    assert "300 candidates" in shown


def test_few_candidates_stand_once_each(log_probabilities):
    table = implicit_reward(log_probabilities["base/0"].head(3), log_probabilities["base/1"].head(3))
    figure = implicit_bars(implicit_extremes(table, k=20), p_name="a", q_name="b", n=3)
    assert [len(axes.patches) for axes in figure.axes] == [3, 3]


def test_hostile_tokens_are_drawn_as_what_they_are(log_probabilities, hostile, texts, tmp_path):
    named = log_probabilities.iloc[: len(hostile)]
    ends = implicit_extremes(implicit_reward(named["base/0"], named["base/1"]), k=11)
    figure = implicit_bars(ends, p_name="<b>", q_name="$x$", k=11)
    for file in save(figure, tmp_path, "bars"):
        assert file.stat().st_size > 1000
    shown = "".join(texts(figure))
    assert "\u202e" not in shown
    assert "\x07" not in shown
    assert "␣freedom" in shown
