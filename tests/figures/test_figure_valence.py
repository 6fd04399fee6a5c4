"""What the figures of valence and frequency show is what their tables say."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from pessimal.analysis.asymmetry import asymmetry_across_models
from pessimal.figures import frequency, sentiment
from pessimal.figures.style import OKABE_ITO

MODELS = ["lab/alder", "lab/birch", "$x$<b>"]
PROMPTS = ["greatest", "wor\u202est"]


def table(**columns) -> pd.DataFrame:
    """A row for each combination of the columns given as lists, with numbers that tell them apart."""
    rows = pd.MultiIndex.from_product(columns.values(), names=columns.keys()).to_frame(index=False)
    centre = np.linspace(-1, 1, len(rows)) + 0.01
    return rows.assign(n=100, stems=80, p=0.01, level_sd=0.25, lexicon="L").assign(
        **dict.fromkeys(("slope", "slope_sd", "steeper", "steeper_sd"), centre),
        low_sd=centre - 0.1,
        high_sd=centre + 0.2,
    )


@pytest.fixture
def slopes() -> pd.DataFrame:
    return table(model=MODELS, prompt=PROMPTS, arm=["positive", "negative"])


@pytest.fixture
def curve() -> pd.DataFrame:
    found = table(model=MODELS, prompt=PROMPTS, valence=[-2.0, -1.0, 1.0, 2.0])
    return found.assign(z=found["slope"], error=0.1)


@pytest.fixture
def asymmetry() -> pd.DataFrame:
    found = table(model=MODELS, prompt=[*PROMPTS, "a × b"])
    return found.assign(frames=np.where(found["prompt"] == "a × b", "opposite", "one"))


@pytest.fixture
def frequencies() -> pd.DataFrame:
    found = table(words=["rated", "unrated"], model=MODELS, prompt=[*PROMPTS, "a × b"])
    return found.assign(frames=np.where(found["prompt"] == "a × b", "opposite", "one"))


def across_models(asymmetry: pd.DataFrame) -> pd.DataFrame:
    """Over models whose words move each prompt a little."""
    prompts = asymmetry["prompt"].unique()
    moves = pd.DataFrame(0.01, index=["love", "hate"], columns=prompts)
    return asymmetry_across_models(asymmetry, {(model, "L"): moves for model in asymmetry["model"].unique()})


def drawn(axes, colour: str) -> np.ndarray:
    """x of every mark of that colour in the axes."""
    return np.concatenate(
        [
            line.get_xdata()
            for line in axes.lines
            if to_hex(line.get_color()) == colour.lower() and len(line.get_xdata())
        ]
        or [[]]
    )


def spans(axes) -> np.ndarray:
    """The ends of all bars: (bars, 2)."""
    segments = [segment for bars in axes.collections for segment in bars.get_segments() if len(segment)]
    return np.array([segment[:, 0] for segment in segments if np.isfinite(segment).all()])


def test_each_prompt_has_a_panel_with_its_models_mean_and_lines(curve, slopes):
    figure = sentiment.curves(curve, slopes, lexicon="L")
    assert len(figure.axes) == 2
    for axes, prompt in zip(figure.axes, PROMPTS, strict=True):
        part = curve[curve["prompt"] == prompt]
        dots = next(line for line in axes.lines if line.get_marker() == "o")
        assert dots.get_ydata() == pytest.approx(part.groupby("valence")["z"].mean())
        thin = [line for line in axes.lines if to_hex(line.get_color()) == "#bbbbbb"]
        assert [line.get_ydata().tolist() for line in thin] == [
            part.loc[part["model"] == model, "z"].tolist() for model in MODELS
        ]
        for arm, colour, end in (("positive", OKABE_ITO[0], 2), ("negative", OKABE_ITO[1], -2)):
            own = slopes[(slopes["prompt"] == prompt) & (slopes["arm"] == arm)]
            line = next(line for line in axes.lines if to_hex(line.get_color()) == colour.lower())
            assert line.get_xdata().tolist() == [0, end]
            assert line.get_ydata() == pytest.approx([0.25, 0.25 + end * own["slope_sd"].mean()])


def test_both_slopes_of_each_model_and_their_intervals_are_drawn(slopes, texts):
    figure = sentiment.slope_forest(slopes, lexicon="L")
    for axes, prompt in zip(figure.axes, PROMPTS, strict=True):
        part = slopes[slopes["prompt"] == prompt]
        for arm, (colour, _) in sentiment.ARMS.items():
            assert drawn(axes, colour) == pytest.approx(part.loc[part["arm"] == arm, "slope_sd"])
        ends = part.sort_values("arm", ascending=False, kind="stable")[["low_sd", "high_sd"]].to_numpy()
        assert spans(axes) == pytest.approx(ends)
    assert "100 positive and 100 negative words" in " ".join(texts(figure))


def test_the_mean_over_models_stands_below_them(asymmetry):
    across = across_models(asymmetry)
    figure = sentiment.asymmetry_forest(asymmetry, across, lexicon="L")
    assert len(figure.axes) == 3
    for axes, row in zip(figure.axes, across.itertuples(), strict=True):
        mark = next(line for line in axes.lines if line.get_marker() == "D")
        assert mark.get_xdata()[0] == pytest.approx(row.mean)
        assert mark.get_ydata()[0] > len(MODELS) - 1
    assert figure.axes[0].get_yticklabels()[-1].get_text() == "mean"


def test_bars_are_those_of_opposite_frames_and_single_prompts_stand_hollow(frequencies):
    figure = frequency.slope_forest(frequencies, unit="Zipf unit")
    assert len(figure.axes) == 2
    for axes, name in zip(figure.axes, ("rated", "unrated"), strict=True):
        part = frequencies[frequencies["words"] == name].set_index("prompt")
        assert spans(axes) == pytest.approx(part.loc["a × b", ["low_sd", "high_sd"]].to_numpy())
        marks = {
            line.get_markerfacecolor() == "white": line.get_xdata()
            for line in axes.lines
            if line.get_marker() != "None"
        }
        assert marks[False] == pytest.approx(part.loc["a × b", "slope_sd"])
        assert marks[True] == pytest.approx(part.loc[PROMPTS[1], "slope_sd"])


def test_without_opposite_frames_each_prompt_has_its_bar(frequencies, texts):
    one = frequencies[frequencies["frames"] == "one"]
    figure = frequency.slope_forest(one, unit="Zipf unit", paper=True)
    assert len(spans(figure.axes[0])) == len(MODELS) * len(PROMPTS)
    told = " ".join(texts(figure))
    assert "textbook intervals" in told
    assert "biased" in told


def test_a_model_without_a_slope_leaves_its_row_empty(frequencies):
    gone = (frequencies["words"] == "rated") & (frequencies["model"] == MODELS[1])
    figure = frequency.slope_forest(frequencies[~gone], unit="Zipf unit")
    assert len(spans(figure.axes[0])) == 2
    assert len(spans(figure.axes[1])) == 3
    assert len(figure.axes[0].get_yticklabels()) == 3


def test_hostile_names_and_one_model_can_be_drawn(curve, slopes, asymmetry, frequencies, texts):
    one = [part[part["model"] == MODELS[2]] for part in (curve, slopes, asymmetry, frequencies)]
    figures = [
        sentiment.curves(one[0], one[1], lexicon="$L$\u202e"),
        sentiment.slope_forest(one[1], lexicon="$L$\u202e"),
        sentiment.asymmetry_forest(one[2], across_models(one[2]), lexicon="$L$\u202e"),
        frequency.slope_forest(one[3], unit="Zipf unit"),
    ]
    for figure in figures:
        FigureCanvasAgg(figure).draw()
        assert not any("\u202e" in text for text in texts(figure))
    assert "one model" not in [text.get_text() for text in figures[0].legends[0].get_texts()]
