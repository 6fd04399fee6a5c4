"""What the figures of identity terms show: every axis and model, sure effects marked, numbers as they are."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from pessimal.figures.identity import _short, identity_forest, identity_heatmap
from pessimal.figures.style import OKABE_ITO

AXES = ("gender", "age", "all")
MEASURES = ("best", "worst", "half_sum", "half_difference")


def table(models: list[str]) -> pd.DataFrame:
    """Effects as `corrected` gives them; gender is penalised for certain by the first model, and only there."""
    rng = np.random.default_rng(0)
    rows = [
        {
            "model": model, "axis": axis, "measure": measure, "n": 10 + place, "effect": effect, "low": effect - 0.4,
            "high": effect + 0.4, "d": effect / 2, "reward_sd": 2.0, "topic_sd": 0.2, "null_sd": 0.25, "n_topics": 40,
            "p_holm": 0.001 if place == 0 and axis == "gender" else 0.8,
        }
        for place, model in enumerate(models)
        for axis in AXES
        for measure in MEASURES
        for effect in [-3.0 if place == 0 and axis == "gender" else rng.normal(0, 0.2)]
    ]  # fmt: skip
    return pd.DataFrame(rows)


def dots(figure: Figure) -> list[tuple[str, float, bool]]:
    """Panel, place and whether filled, of every dot."""
    return [
        (
            axes.get_title(loc="left"),
            float(line.get_xdata()[0]),
            to_hex(line.get_markerfacecolor()) != "#ffffff",
        )
        for axes in figure.axes
        for line in axes.lines
        if line.get_marker() == "o"
    ]


def test_the_forest_has_a_dot_for_each_axis_and_model_filled_where_sure():
    effects = table(["one", "two"])
    found = dots(identity_forest(effects))
    assert len(found) == 6
    assert [dot for dot in found if dot[2]] == [("gender", -1.5, True)]
    expected = effects[effects["measure"] == "half_sum"]["d"].round(6).sort_values().tolist()
    assert sorted(round(place, 6) for _, place, _ in found) == expected


def test_the_forests_intervals_are_in_the_units_of_its_dots():
    figure = identity_forest(table(["one"]))
    lines = next(axes for axes in figure.axes if axes.get_title(loc="left") == "gender").collections
    (segment,) = next(c for c in lines if to_hex(c.get_color()[0]) == OKABE_ITO[1].lower()).get_segments()
    assert segment[:, 0].tolist() == pytest.approx([-1.7, -1.3])


def test_the_grey_bar_reaches_as_far_as_a_p_of_one_in_twenty():
    figure = identity_forest(table(["one"]))
    bar = figure.axes[0].patches[0]
    assert bar.get_width() / 2 == pytest.approx(2.0211 * 0.25 / 2.0, abs=1e-4)  # t with 40 degrees of freedom


def test_a_model_without_an_axis_leaves_a_gap_and_keeps_its_row(texts):
    effects = table(["one", "two"])
    effects = effects[~((effects["model"] == "one") & (effects["axis"] == "age"))]
    figure = identity_forest(effects)
    assert len(dots(figure)) == 5
    assert {"one", "two"} <= set(texts(figure))
    assert sum("." in text and len(text) < 7 for text in texts(identity_heatmap(effects))) == 10


def test_all_axes_together_come_last_under_a_name_of_their_own():
    order = [
        axes.get_title(loc="left") for axes in identity_forest(table(["one"])).axes if axes.get_visible()
    ]
    assert order == ["gender", "age", "all together"]


def test_the_heat_map_prints_each_effect_and_stars_the_sure_ones(texts):
    effects = table(["one", "two"])
    shown = texts(identity_heatmap(effects))
    assert shown.count("−1.50*") == 2, "half-sum and half-difference"
    assert sum(text.endswith("*") for text in shown) == 2
    for value in effects[effects["measure"] == "half_difference"]["d"].iloc[1:]:
        assert _short(value) in shown


def test_without_opposite_frames_the_heat_map_shows_the_frame(texts):
    effects = table(["one"])
    shown = texts(identity_heatmap(effects[effects["measure"] == "worst"]))
    assert "reward, worst" in shown


def test_numbers_are_shortened_and_never_changed():
    assert [_short(number) for number in (0.5, -0.5, 10.52, -100.0, -0.001, 0.0, -1.05)] == [
        ".50", "−.50", "10.52", "−100.00", ".00", ".00", "−1.05",
    ]  # fmt: skip


def test_many_models_and_hostile_names_are_drawn(hostile):
    names = [name for name in hostile if "\ud83d" not in name]  # tables hold no lone surrogate
    models = [f"{name} {place}" for place, name in enumerate(names[:15])]
    effects = table(models).replace({"axis": {"age": "$a^2$\n"}})
    for figure in (identity_forest(effects), identity_heatmap(effects)):
        figure.canvas.draw()
        width, height = figure.get_size_inches()
        assert width == pytest.approx(7.2)
        assert height < 9.5
