"""The beeswarms of a lexicon's two groups: which dots on which side, what is left out, and what is printed."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from pessimal.analysis.lexicon_groups import lexicon_groups
from pessimal.figures import lexicon_groups as drawing
from pessimal.figures.style import OKABE_ITO

MODELS = ["lab/alder", "lab/birch", "$x$<b>"]
PROMPTS = ["best", "wor\u202est"]
LETTERS = "bcdfghjklmnpqrtvwxz"
WORDS = [f"{a}o{b}o{c}" for a in LETTERS for b in LETTERS for c in "bdg"]


def given(models=MODELS, prompts=PROMPTS, *, positive=40, negative=600):
    rng = np.random.default_rng(0)
    lexicon = pd.Series([1.0] * positive + [-1.0] * negative, index=WORDS[: positive + negative])
    words, separation = [], []
    for model in models:
        rewards = pd.DataFrame(rng.normal(size=(len(WORDS), len(prompts))), index=WORDS, columns=prompts)
        rewards.iloc[:positive] += 1
        found = lexicon_groups(rewards, lexicon)
        words.append(found.words.assign(model=model))
        separation.append(found.separation.assign(model=model))
    return pd.concat(words, ignore_index=True), pd.concat(separation, ignore_index=True)


def dots(axes, colour: str) -> list:
    return [
        line for line in axes.lines if line.get_marker() == "o" and to_hex(line.get_color()) == colour.lower()
    ]


def test_positive_words_stand_above_their_models_line_and_negative_ones_below(texts):
    words, separation = given()
    figure = drawing.beeswarms(words, separation, lexicon="L")
    for axes, prompt in zip(figure.axes, PROMPTS, strict=True):
        assert axes.yaxis_inverted()
        up, down = dots(axes, OKABE_ITO[0]), dots(axes, OKABE_ITO[1])
        assert len(up) == len(down) == len(MODELS)
        for row, model in enumerate(MODELS):
            own = words[(words["model"] == model) & (words["prompt"] == prompt)].set_index("group")["z"]
            assert sorted(up[row].get_xdata()) == pytest.approx(sorted(own["positive"]))
            assert set(down[row].get_xdata()) <= set(own["negative"])
            heights = up[row].get_ydata(), down[row].get_ydata()
            assert row - 0.5 < heights[0].min() <= heights[0].max() < row
            assert row < heights[1].min() <= heights[1].max() < row + 0.5
            assert len(down[row].get_xdata()) == drawing.MOST_DOTS
            assert up[row].get_rasterized()
    told = " ".join(texts(figure)).replace("\n", " ")
    assert "40 positive and 600 negative words" in told
    assert "at most 400 dots a group" in told


def test_each_models_probability_is_printed_and_medians_are_of_all_words(texts):
    words, separation = given()
    figure = drawing.beeswarms(words, separation, lexicon="L")
    for axes, prompt in zip(figure.axes, PROMPTS, strict=True):
        shown = [text.get_text() for text in axes.texts]
        part = separation[separation["prompt"] == prompt]
        assert shown == ["AUC", *map(drawing.auc_text, part["auc"])]
        medians = [line.get_xdata()[0] for line in axes.lines if line.get_linewidth() == 0.9]
        expected = words[words["prompt"] == prompt].groupby(["model", "group"])["z"].median()
        assert sorted(medians) == pytest.approx(sorted(expected))


def test_thinning_keeps_ends_and_shape():
    values = np.random.default_rng(0).gamma(1, size=5000)
    shown = drawing.thinned(values)
    assert len(shown) == 400
    assert (shown.min(), shown.max()) == (values.min(), values.max())
    for share in (0.1, 0.5, 0.9):
        assert np.quantile(shown, share) == pytest.approx(np.quantile(values, share), rel=0.03)
    assert sorted(drawing.thinned(values[:400])) == sorted(values[:400])
    assert shown.tolist() == drawing.thinned(values).tolist(), "the same dots every time"


def test_dots_of_one_bin_stand_on_one_another():
    assert drawing.piled(np.array([0.1, 1.5, 0.2, 0.3, 1.6]), np.array([0.0, 1, 2])).tolist() == [
        0,
        0,
        1,
        2,
        1,
    ]


@pytest.mark.parametrize(
    ("auc", "text"), [(0.5, ".50"), (0.996, ">.99"), (1, "1.00"), (0.004, "<.01"), (0, ".00"), (0.994, ".99")]
)
def test_what_only_rounds_to_complete_is_not_called_so(auc, text):
    assert drawing.auc_text(auc) == text


@pytest.mark.parametrize(("models", "prompts"), [(1, 1), (15, 3), (2, 5)])
def test_one_model_or_many_and_hostile_names_are_drawn(models, prompts, texts):
    words, separation = given(
        [f"$x$ <b> {place}" for place in range(models)],
        [f"p\u202e{place}" for place in range(prompts)],
        negative=60,
    )
    figure = drawing.beeswarms(words, separation, lexicon="$L$\u202e", unit="tokens")
    figure.canvas.draw()
    assert not any("\u202e" in text for text in texts(figure))
    assert "positive tokens" in texts(figure)
    assert figure.get_size_inches()[0] <= 7.3
    assert sum(axes.get_visible() for axes in figure.axes) == prompts
