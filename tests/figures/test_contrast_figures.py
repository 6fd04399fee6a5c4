"""Figures of the explanations: what is drawn is what the tables say, chance is not drawn like a finding, and names
are data."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from pessimal.errors import TableError
from pessimal.figures.contrast_metrics import coverage, distances
from pessimal.figures.off_target import off_target
from pessimal.figures.save import save
from pessimal.figures.sensitivity import CHANGE, RATE, SLOPE, sensitivity_forest, sensitivity_heatmap
from pessimal.figures.slopes import slopes_forest
from pessimal.figures.style import quiet

SPREAD = {
    "clarity": (0.5, -1.2),
    "verbosity": (0.2, -0.3),
    "relevance": (0.004, 0.1),
    "placebo": (0.03, -0.05),
}


def sensitivities(
    models: int = 1, spread: dict[str, tuple[float, float]] = SPREAD, *, model: str = "lab/reward-model-{}"
) -> pd.DataFrame:
    """Each attribute's flip rate and change, the same for all models; the first attribute is beyond chance."""
    first = next(iter(spread))
    rows = [
        {
            "model": model.replace("{}", str(place)),
            "attribute": attribute,
            "n": 40,
            "comparisons": 20,
            "flip_rate": rate,
            "flip_low": rate / 2,
            "flip_high": rate * 1.5,
            "change": change,
            "change_low": change - 0.2,
            "change_high": change + 0.2,
            "flip_q": np.nan if attribute == "placebo" else 0.001 if attribute == first else 0.4,
            "change_q": np.nan if attribute == "placebo" else 0.001 if attribute == first else 0.4,
        }
        for place in range(models)
        for attribute, (rate, change) in spread.items()
    ]
    return pd.DataFrame(rows)


def rows_of(figure) -> list[str]:
    """The names on the left, from top to bottom."""
    axes = figure.axes[0]
    ticks = sorted(zip(axes.get_yticks(), axes.get_yticklabels(), strict=True), key=lambda tick: tick[0])
    return [label.get_text() for _, label in ticks]


def cell(figure, text: str) -> Text:
    return next(found for found in figure.findobj(Text) if found.get_text() == text)


def overlaps(figure, texts: list[Text]) -> bool:
    """Whether two of the texts lie on one another."""
    with quiet():
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
    return any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[place + 1 :])


@pytest.mark.parametrize("measure", [RATE, CHANGE])
def test_rows_stand_in_the_order_of_sensitivity_with_the_placebo_at_the_bottom(measure):
    assert rows_of(sensitivity_heatmap(sensitivities(2), measure=measure)) == list(SPREAD)


def test_every_number_is_printed_and_a_rate_that_is_not_zero_is_not_called_so(texts):
    assert {"50%", "20%", "<1%", "3%"} <= set(texts(sensitivity_heatmap(sensitivities(), measure=RATE)))
    assert {"−1.20", "−0.30", "0.10", "−0.05"} <= set(texts(sensitivity_heatmap(sensitivities())))


def test_what_may_be_chance_is_pale_and_not_bold():
    table = sensitivities(spread={"clarity": (0.5, -1.2), "verbosity": (0.5, -1.2)})
    figure = sensitivity_heatmap(table, measure=RATE)
    sure, unsure = (figure.axes[0].get_images()[0].get_array()[row, 0] for row in (0, 1))
    assert unsure.sum() > sure.sum() + 0.5, "the same rate, but nearer to white"
    weights = [text.get_fontweight() for text in figure.findobj(Text) if text.get_text() == "50%"]
    assert weights == ["bold", "normal"]


def test_without_a_placebo_nothing_is_pale_and_the_note_says_that_nothing_is_tested(texts):
    table = sensitivities().query("attribute != 'placebo'").assign(flip_q=np.nan, change_q=np.nan)
    figure = sensitivity_heatmap(table)
    assert "Nothing is tested" in " ".join(texts(figure)).replace("\n", " ")
    assert cell(figure, "−1.20").get_fontweight() == "normal"
    assert figure.axes[0].get_images()[0].get_array()[0, 0].sum() < 1.5, "the greatest change in full colour"


def test_an_attribute_without_perturbations_is_an_empty_cell_in_the_last_row(texts):
    table = sensitivities()
    table.loc[table["attribute"] == "clarity", ["flip_rate", "change", "flip_q", "change_q"]] = np.nan
    table.loc[table["attribute"] == "clarity", "n"] = 0
    figure = sensitivity_heatmap(table)
    assert rows_of(figure) == ["verbosity", "relevance", "clarity", "placebo"]
    assert not any("nan" in text for text in texts(figure))
    assert "A cell rests on 40 perturbations" in " ".join(texts(figure)).replace("\n", " ")


def test_a_column_placebo_says_which_rows_are_controls():
    table = sensitivities()
    table["placebo"] = table["attribute"].isin(["placebo", "clarity"])
    assert rows_of(sensitivity_heatmap(table)) == ["verbosity", "relevance", "clarity", "placebo"]


@pytest.mark.parametrize("models", [1, 12])
def test_numbers_and_names_of_a_heatmap_do_not_lie_on_one_another(models):
    spread = {f"a-long-attribute-{place}": (0.9 - place / 20, -1.234) for place in range(15)}
    figure = sensitivity_heatmap(sensitivities(models, spread | {"placebo": (0.0, 0.0)}))
    numbers = [text for text in figure.axes[0].texts if text.get_text()]
    assert len(numbers) == 16 * models
    assert not overlaps(figure, numbers)
    assert not overlaps(figure, figure.axes[0].get_yticklabels())


def test_tables_that_cannot_be_shown_are_refused():
    table = sensitivities()
    with pytest.raises(TableError, match="No measure"):
        sensitivity_heatmap(table, measure="flips")
    with pytest.raises(TableError, match="two rows for 'clarity'"):
        sensitivity_heatmap(pd.concat([table, table.head(1)]))
    with pytest.raises(TableError, match="No attribute"):
        sensitivity_heatmap(table.tail(1))
    with pytest.raises(TableError, match="reward-model-0, lab/reward-model-1"):
        sensitivity_forest(sensitivities(2))


def test_a_forest_fills_what_is_beyond_chance_and_shows_the_placebos_interval_as_a_band():
    figure = sensitivity_forest(sensitivities())
    left, right = figure.axes
    assert rows_of(figure)[:3] == ["clarity", "verbosity", "relevance"]
    for axes, values in ((left, [0.5, 0.2, 0.004]), (right, [-1.2, -0.3, 0.1])):
        marks = [line for line in axes.lines if line.get_marker() == "o"]
        assert [mark.get_xdata()[0] for mark in marks] == values
        assert [to_hex(mark.get_markerfacecolor()) == "#ffffff" for mark in marks] == [False, True, True]
    bands = [[p for p in axes.patches if to_hex(p.get_facecolor()) == "#dddddd"] for axes in (left, right)]
    ends = [(band.get_x(), band.get_x() + band.get_width()) for (band,) in bands]
    assert np.allclose(ends, [(0.015, 0.045), (-0.25, 0.15)])


def test_a_forests_intervals_are_those_of_the_table():
    left = sensitivity_forest(sensitivities()).axes[0]
    drawn = [collection.get_segments()[0][:, 0].tolist() for collection in left.collections]
    assert np.allclose(drawn, [[0.25, 0.75], [0.1, 0.3], [0.002, 0.006]])


def test_a_forest_says_what_has_no_valid_perturbation(texts):
    table = sensitivities().query("attribute != 'placebo'")
    missing = table["attribute"] == "clarity"
    table.loc[missing, table.columns[4:]] = np.nan
    table.loc[missing, "n"] = 0
    figure = sensitivity_forest(table)
    assert rows_of(figure)[-1] == "clarity"
    assert "no valid perturbation" in texts(figure)


def told_apart(spread: dict[str, float], **changed) -> pd.DataFrame:
    """A slope an attribute; the first is told from 0."""
    fixed = {"model": "lab/m", "n": 40, "comparisons": 20, "inflation": 1.5, "explained": 0.25}
    rows = [
        {
            "attribute": name,
            "slope": slope,
            "slope_low": slope - 0.1,
            "slope_high": slope + 0.1,
            "slope_q": 0.001 if place == 0 else 0.4,
        }
        | fixed
        | changed
        for place, (name, slope) in enumerate(spread.items())
    ]
    return pd.DataFrame(rows)


def test_slopes_stand_by_their_size_with_intervals_and_what_is_told_from_0_is_filled(texts):
    figure = slopes_forest(told_apart({"clarity": 0.2, "verbosity": -0.9}))
    assert rows_of(figure) == ["verbosity", "clarity"]
    marks = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [mark.get_xdata()[0] for mark in marks] == [-0.9, 0.2]
    assert [to_hex(mark.get_markerfacecolor()) == "#ffffff" for mark in marks] == [True, False]
    drawn = [collection.get_segments()[0][:, 0].tolist() for collection in figure.axes[0].collections]
    assert np.allclose(drawn, [[-1.0, -0.8], [0.1, 0.3]])
    told = " ".join(texts(figure)).replace("\n", " ")
    assert "40 edits of 20 comparisons" in told
    assert "25%" in told
    with pytest.raises(TableError, match="one model"):
        slopes_forest(pd.concat([told_apart({"a": 1.0}), told_apart({"a": 1.0}, model="n")]))


def test_slopes_without_intervals_are_not_said_to_have_any(texts):
    table = told_apart(
        {"a": 0.2, "b": 0.1}, slope_low=np.nan, slope_high=np.nan, slope_q=np.nan, n=3, comparisons=1
    )
    for figure in (slopes_forest(table.assign(explained=np.nan)), sensitivity_heatmap(table, measure=SLOPE)):
        told = " ".join(texts(figure)).replace("\n", " ")
        assert "of 1 comparison" in told
        assert "1 comparisons" not in told
        assert "nan" not in told
        assert "ew comparisons for intervals" in told or "comparisons are too few" in told
        assert "placebo" not in told


def covered(perturbers: list[str], models: list[str]) -> pd.DataFrame:
    rows = [
        {"model": model, "perturber": perturber, "kind": kind, "side": side, "coverage": share}
        for model in models
        for perturber in perturbers
        for kind, factor in (("CF", 1.0), ("SF", 0.5))
        for side, share in (("chosen", 0.8 * factor), ("rejected", 0.6 * factor), ("both", 0.4 * factor))
    ]
    table = pd.DataFrame(rows)
    return table.assign(low=table["coverage"] - 0.1, high=table["coverage"] + 0.1, n=30)


@pytest.mark.parametrize(("kind", "shares"), [("CF", [0.8, 0.6, 0.4]), ("SF", [0.4, 0.3, 0.2])])
def test_coverage_shows_each_side_of_one_kind_with_its_interval(kind, shares):
    figure = coverage(covered(["rules", "random"], ["a", "b"]), kind=kind)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["chosen", "rejected", "both"]
    for axes, share in zip(figure.axes, shares, strict=True):
        marks = [line for line in axes.lines if line.get_marker() in "os"]
        assert np.allclose([mark.get_xdata() for mark in marks], share)
        assert len({y for mark in marks for y in mark.get_ydata()}) == 4, (
            "two models, two perturbers: no two alike"
        )
        segments = [segment for lines in axes.collections for segment in lines.get_segments()]
        assert np.allclose([segment[:, 0] for segment in segments], [share - 0.1, share + 0.1])


def test_coverage_says_what_its_shares_are_of(texts):
    table = covered(["rules"], ["a"])
    for given, told in ((table, "30 comparisons with"), (table.assign(unit="pairs"), "30 pairs with")):
        assert told in " ".join(texts(coverage(given))).replace("\n", " ")


def test_coverage_refuses_what_it_cannot_tell_apart():
    table = covered(["rules"], ["a"])
    with pytest.raises(TableError, match="rests on any comparison"):
        coverage(table.assign(n=0, coverage=np.nan))
    with pytest.raises(TableError, match="No rows of kind 'XF'"):
        coverage(table, kind="XF")
    with pytest.raises(TableError, match="Two rows"):
        coverage(pd.concat([table, table]))


def outcomes(points: list[tuple[float, float, str | None]], *, models: int = 1, **changed) -> pd.DataFrame:
    rows = [
        {"model": f"m{model}", "comparison": f"c{place}", "syntactic": x, "semantic": y, "outcome": outcome}
        for place, (x, y, outcome) in enumerate(points)
        for model in range(models)
    ]
    fixed = {"response": 0, "attribute": "clarity", "direction": "worse", "seed": 0, "perturber": "rules"}
    return pd.DataFrame([row | fixed | changed for row in rows])


def test_distances_count_an_edit_once_and_show_flips_apart(texts):
    table = outcomes([(0.1, 0.2, "CF"), (0.3, 0.4, "SF"), (0.5, 0.6, "tie"), (0.9, 0.9, None)], models=2)
    figure = distances(pd.concat([table, outcomes([(0.7, 0.7, "CF")], attribute="placebo")]))
    clouds = [axes.collections[0].get_offsets().tolist() for axes in figure.axes]
    assert clouds == [[[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], [[0.1, 0.2]]]
    told = " ".join(texts(figure)).replace("\n", " ")
    assert "3 edits, 1 of which flip the preference of at least one of 2 models" in told


def test_distances_mark_the_medians():
    figure = distances(outcomes([(0.1, 0.2, "SF"), (0.3, 0.4, "SF"), (0.8, 0.9, "SF")]))
    left, right = figure.axes
    median = next(line for line in left.lines if line.get_marker() == "o")
    assert (median.get_xdata()[0], median.get_ydata()[0]) == (0.3, 0.4)
    assert [text.get_text() for text in right.texts] == ["none"]


def test_distances_say_how_many_edits_have_none(texts):
    figure = distances(outcomes([(0.1, 0.2, "CF"), (0.3, np.nan, "SF")]))
    assert "1 edits without a known distance" in " ".join(texts(figure)).replace("\n", " ")
    with pytest.raises(TableError, match="both distances"):
        distances(outcomes([(0.3, np.nan, "SF")]))


def detected() -> pd.DataFrame:
    asked, detectors = ["clarity", "verbosity", "placebo"], ["length", "verbosity", "clarity"]
    return pd.DataFrame(
        [[0.1, 0.2, 0.9], [0.7, 0.8, -0.3], [0.0, 0.01, np.nan]], index=asked, columns=detectors
    )


def test_the_frames_are_on_the_cells_of_the_attribute_that_was_asked_for(texts):
    figure = off_target(detected(), label="mean change", counts=pd.Series({"clarity": 12}))
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["clarity", "verbosity", "length"]
    framed = [p for p in axes.patches if isinstance(p, Rectangle) and not p.get_fill()]
    places = [(patch.get_x() + 0.5, patch.get_y() + 0.5) for patch in framed]
    printed = {text.get_position(): text.get_text() for text in axes.texts}
    assert [printed[place] for place in places] == ["0.90", "0.80"]
    assert rows_of(figure) == ["clarity (12)", "verbosity", "placebo"]
    assert "nan" not in " ".join(texts(figure))


def test_a_matrix_without_numbers_or_with_a_name_twice_is_refused():
    with pytest.raises(TableError, match="no number"):
        off_target(detected() * np.nan, label="x")
    with pytest.raises(TableError, match="'clarity' stands in the matrix twice"):
        off_target(pd.concat([detected(), detected().head(1)]), label="x")


def test_hostile_names_are_data_in_every_figure(hostile, tmp_path):
    names = [name for name in hostile if name != "\ud83d"]  # which no table on disk can hold
    spread = dict.fromkeys(names, (0.5, -0.5)) | {"placebo": (0.0, 0.1)}
    matrix = pd.DataFrame(np.eye(len(names)), index=names, columns=names)
    edits = [outcomes([(0.1, 0.2, "CF")], perturber=name) for name in names[:8]]
    figures = {
        "heatmap": sensitivity_heatmap(sensitivities(spread=spread, model=names[0])),
        "forest": sensitivity_forest(sensitivities(spread=spread, model=names[3])),
        "slopes": slopes_forest(told_apart(dict.fromkeys(names, 0.5), model=names[3])),
        "coverage": coverage(covered(names[:6], names[6:12])),
        "distances": distances(pd.concat(edits)),
        "off_target": off_target(matrix, label="mean change"),
    }
    for name, figure in figures.items():
        for file in save(figure, tmp_path, name):
            assert file.stat().st_size > 5000
