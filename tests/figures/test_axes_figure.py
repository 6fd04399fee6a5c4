"""Two prompts, all models: each dot is the table's number, in the order of the reversal scores."""

import numpy as np
import pandas as pd
import pytest

from pessimal.analysis.framing import framings
from pessimal.figures.axes import two_axes


@pytest.fixture
def table(rewards) -> pd.DataFrame:
    pairs = {
        model: (rewards[model], (share - 1) * rewards[model] + share * rewards[other].iloc[::-1].to_numpy())
        for model, other, share in zip(rewards, rewards.columns[::-1], np.linspace(0, 1, 6), strict=True)
    }
    return framings(pairs, replicates=100)


def test_models_fall_from_mirror_image_to_one_order(table, texts):
    figure = two_axes(table.sample(frac=1, random_state=0), first="best", second="worst")
    left, right = figure.axes
    ordered = table.sort_values("reversal", ascending=False)
    assert [label.get_text() for label in left.get_yticklabels()] == [
        model.removeprefix("lab/") for model in ordered["model"]
    ]
    for axes, value in ((left, "reversal"), (right, "share_difference")):
        dots = next(line for line in axes.lines if len(line.get_xdata()) == 6)
        assert dots.get_xdata() == pytest.approx(ordered[value].to_numpy())
        segments = np.array(axes.collections[0].get_segments())
        assert segments[:, 0, 0] == pytest.approx(ordered[f"{value}_low"].to_numpy())
        assert segments[:, 1, 0] == pytest.approx(ordered[f"{value}_high"].to_numpy())
        shown = [text.get_text() for text in axes.texts]
        assert shown == [f"{share:.3f}" for share in ordered[value]]
        assert axes.get_xlim() == (-0.02, 1.02)
    assert any("300 items" in text for text in texts(figure))
    assert "share of variance along best − worst" in texts(figure)


def test_one_model_and_a_hostile_prompt_name(table, texts):
    figure = two_axes(table.head(1), first="$a$\n", second="b")
    assert "share of variance along $a$\\n − b" in texts(figure)
