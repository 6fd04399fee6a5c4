"""A search's figures: what is drawn is what the tables say, for both goals, with hostile tokens, and legibly."""

from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.patches import StepPatch

from pessimal.errors import TableError
from pessimal.figures.labels import apart
from pessimal.figures.save import save
from pessimal.figures.search_curves import COLOURS, best_so_far, duration, growth, restarts
from pessimal.figures.search_results import BETTER, TIED, WORSE, among_all, gradient_ranks, margins, spelling
from pessimal.figures.style import PAPER, quiet
from pessimal.figures.words import literal

NOISE = 1e-6
PHASES = pd.DataFrame(
    {
        "phase": ["start", "gradient", "polish", "certificate"],
        "evaluations": [1000, 2000, 7000, 4444],
        "seconds": [0.5, 1.0, 130.0, 2.0],
    }
)


def curve(sign: int = 1, **ends: float) -> pd.DataFrame:
    """Each method's best so far at 10, 500 and 10,000 evaluations, ending at its own value."""
    rows = [
        {"method": method.replace("_", " "), "evaluations": evaluations, "reward": sign * share * end}
        for method, end in ends.items()
        for evaluations, share in ((10, 0.1), (500, 0.7), (10_000, 1.0))
    ]
    return pd.DataFrame(rows)


def neighbours(margin: list[float], texts: list[str], *, sign: int = 1) -> pd.DataFrame:
    n = len(margin)
    return pd.DataFrame(
        {
            "position": range(n),
            "token_id": range(n),
            "token": [f"Ġ{place}" for place in range(n)],
            "text": texts[:n],
            "neighbour_id": range(n),
            "neighbour": [f"ä{place}" for place in range(n)],
            "neighbour_text": texts[-n:],
            "reward": [sign * (5 - m) for m in margin],
            "margin": margin,
        }
    )


def quality(points: list[str], ranks: list[int]) -> pd.DataFrame:
    n = len(ranks)
    one = {"position": range(n), "best": "good", "gain": 0.5, "gradient_rank": ranks, "n": 999, "top_k": 64}
    return pd.concat([pd.DataFrame(one | {"point": point}) for point in points], ignore_index=True)


@pytest.fixture
def savable(hostile) -> list[str]:
    """Hostile strings that a table on disk can hold: all but the lone surrogate."""
    return [text for text in hostile if text != "\ud83d"]


def widest_overlap(boxes) -> float:
    """Largest shared width × height of any two boxes, in pixels²."""
    found = [0.0]
    for place, a in enumerate(boxes):
        for b in boxes[place + 1 :]:
            width = min(a.x1, b.x1) - max(a.x0, b.x0)
            height = min(a.y1, b.y1) - max(a.y0, b.y0)
            found.append(max(width, 0) * max(height, 0))
    return max(found)


@pytest.mark.parametrize(("goal", "sign"), [("optimal", 1), ("pessimal", -1)])
def test_every_method_is_a_step_line_to_its_end_where_its_name_and_reward_stand(goal, sign):
    table = curve(sign, search=5.2, random_search=5.0, coordinate_ascent=5.19, beam=5.2)
    figure = best_so_far(table, PHASES, goal=goal)
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    steps = {line.get_color(): line for line in axes.lines if len(line.get_xdata()) == 3}
    for method, rows in table.groupby("method"):
        line = steps[COLOURS[method]]
        assert line.get_drawstyle() == "steps-post"
        assert list(line.get_ydata()) == list(rows["reward"])
    FigureCanvasAgg(figure).draw()
    shown = {text.get_text(): text for text in axes.texts}
    minus = "−" if sign < 0 else ""
    assert set(shown) == {
        f"search  {minus}5.2000", f"random search  {minus}5.0000", f"coordinate ascent  {minus}5.1900",
        f"beam search  {minus}5.2000",
    }  # fmt: skip
    boxes = [text.get_window_extent() for text in shown.values()]
    assert widest_overlap(boxes) < 30  # of about 2,500: descenders touch
    assert max(box.x1 for box in boxes) <= figure.bbox.x1
    heights = {text.get_position()[1]: text.get_text() for text in shown.values()}
    assert heights[max(heights)].startswith("search" if sign > 0 else "random")


def test_phases_are_tinted_one_behind_another_and_the_certificate_stands_apart(texts):
    figure = best_so_far(curve(search=5.2, random_search=5.0), PHASES, goal="optimal")
    (axes,) = figure.axes
    spans = sorted((patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches)
    assert spans == [(10, 1000), (1000, 3000), (3000, 10_000)]
    said = " ".join(texts(figure)).replace("\n", " ")
    for told in (
        "start 1,000 (0.5 s)",
        "gradient 2,000 (1 s)",
        "polish 7,000 (2 min)",
        "4,444 more",
        "10,000 evaluations",
    ):
        assert told in said
    alone = " ".join(texts(best_so_far(curve(search=5.2), PHASES.head(3), goal="optimal")))
    assert "Baselines" not in alone
    assert "certificate" not in alone


def test_ticks_of_log_scales_are_numbers_not_formulas():
    for figure in (
        best_so_far(curve(search=5.2), PHASES, goal="optimal"),
        gradient_ranks(quality(["result"], [3, 400])),
    ):
        FigureCanvasAgg(figure).draw()
        labels = [label.get_text() for label in figure.axes[0].get_xticklabels(which="both")]
        assert {"10", "1,000"} <= set(labels)
        assert not any("$" in label for label in labels)


@pytest.mark.parametrize("places", [[1.0, 1.0, 1.0], [0.0, 10.0, 9.9, 3.0], [10.0] * 5])
def test_labels_set_apart_keep_their_order_and_gap_and_stay_inside(places):
    heights = apart(np.array(places), gap=1.0, low=0.0, high=10.0)
    assert np.diff(np.sort(heights)).min() >= 1 - 1e-9
    assert heights.min() >= 0
    assert heights.max() <= 10
    for a, b in np.ndindex(len(places), len(places)):
        assert not (places[a] < places[b] and heights[a] > heights[b])


def test_labels_already_apart_stay_where_they_are():
    assert apart(np.array([2.0, 7.0, 4.5]), gap=1.0, low=0.0, high=10.0) == pytest.approx([2.0, 7.0, 4.5])


def test_a_time_is_said_in_its_own_unit():
    assert [duration(s) for s in (0.034, 9.94, 42.0, 130.0, 20_000.0)] == [
        "0.034 s",
        "9.9 s",
        "42 s",
        "2 min",
        "5.6 h",
    ]


def test_a_margin_within_the_noise_is_a_tie_and_a_better_neighbour_stands_out(texts):
    figure = margins(
        neighbours([0.5, 1.9e-6, -1.9e-6, -0.2], ["a", "b", "c", "d"]), noise=NOISE, goal="optimal"
    )
    axes, numbers = figure.axes
    bars = [patch for patch in axes.patches if patch.get_height() == pytest.approx(0.6)]
    assert [bar.get_width() for bar in bars] == pytest.approx([0.5, 1.9e-6, -1.9e-6, -0.2])
    assert [to_hex(bar.get_facecolor()).upper() for bar in bars] == [WORSE, TIED, TIED, BETTER]
    (band,) = [patch for patch in axes.patches if patch not in bars]
    assert (band.get_x(), band.get_width()) == pytest.approx((-2 * NOISE, 4 * NOISE))
    # Ties have no number that could be mistaken for a margin; the others have theirs.
    told = [text.get_text() for text in numbers.texts]
    assert told.count("tie") == 2
    assert {"0.500", "−0.200"} <= set(told)
    left, right = axes.get_xlim()
    assert left <= -0.2
    assert right >= 0.5
    assert "BETTER" in " ".join(texts(figure))


def test_without_a_better_neighbour_nothing_is_said_to_be_better_and_the_band_is_seen(texts):
    figure = margins(neighbours([0.5, 0.003], ["a", "b"]), noise=NOISE, goal="optimal")
    assert "BETTER" not in " ".join(texts(figure))
    axes = figure.axes[0]
    assert axes.get_xlim()[0] < -2 * NOISE
    # The band takes at least a twentieth of the width, and what is beyond it most.
    transform = axes.transScale.transform
    inside = np.diff(transform([[-2 * NOISE, 0], [2 * NOISE, 0]])[:, 0])[0]
    whole = np.diff(transform([[x, 0] for x in axes.get_xlim()])[:, 0])[0]
    assert 0.05 < inside / whole < 0.5


@pytest.mark.parametrize("noise", [NOISE, 0.0])
def test_sixteen_hostile_tokens_are_drawn_literally_without_touching_the_numbers(savable, noise, tmp_path):
    rng = np.random.default_rng(0)
    rows = neighbours(list(10 ** rng.uniform(-5, 1, size=16)), savable, sign=-1)
    figure = margins(rows, noise=noise, goal="pessimal")
    axes, numbers = figure.axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == [
        f"{spelling(row.token, row.text)}   {place}" for place, row in enumerate(rows.itertuples())
    ]
    vector, _ = save(figure, tmp_path, "margins")
    ElementTree.parse(vector)
    for row in range(16):
        level = [text for text in numbers.texts if text.get_position()[1] == row]
        assert len(level) == 3
        with quiet():
            assert widest_overlap([text.get_window_extent() for text in level]) == 0


def test_a_token_whose_bytes_are_no_text_is_shown_as_the_vocabulary_writes_it():
    assert spelling("Ã¢Ģ", "\ufffd") == "Ã¢Ģ"
    assert spelling("<0x0A>", "") == "<0x0A>"
    assert spelling("Ġgood", " good") == literal(" good")


def test_gradient_ranks_are_marked_for_each_point_on_a_log_scale(texts):
    ranks = [1, 60, 70, 998]
    figure = gradient_ranks(quality(["start", "result"], ranks))
    axes, numbers = figure.axes
    assert axes.get_xscale() == "log"
    marked = [list(line.get_xdata()) for line in axes.lines if len(line.get_xdata()) == 4]
    assert marked == [ranks, ranks]
    heights = [list(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) == 4]
    assert (
        np.array(heights[0]) < np.array(heights[1])
    ).all()  # the start above the result, neither hiding the other
    lines = {line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 2}
    assert lines == {64, 999 / 2}
    assert [text.get_text() for text in numbers.texts].count("998") == 2
    one = texts(gradient_ranks(quality(["result"], ranks)))
    assert "the result" in one
    assert "a random response" not in one


def growing(sign: int) -> pd.DataFrame:
    rows = [(length, sign * length**0.5, "beam", "") for length in (1, 2, 3, 4)]
    rows += [
        (1, sign * 1.0, "scan", "1-opt"),
        (4, sign * 2.5, "search", "not 1-opt"),
        (4, sign * 2.7, "search", "tie"),
    ]
    return pd.DataFrame(rows, columns=["length", "reward", "what", "verdict"])


@pytest.mark.parametrize(("goal", "sign"), [("optimal", 1), ("pessimal", -1)])
def test_growth_goes_through_the_best_of_each_length_and_marks_what_is_certified(goal, sign):
    figure = growth(growing(sign), goal=goal)
    (axes,) = figure.axes
    lines = {
        line.get_color(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in axes.lines
        if line.get_linestyle() == "-" and line.get_marker() == "None"
    }
    assert lines[COLOURS["search"]] == ([4], [sign * 2.7])
    assert lines[COLOURS["beam"]] == ([1, 2, 3, 4], pytest.approx([sign * n**0.5 for n in (1, 2, 3, 4)]))
    filled = {
        float(y): line.get_markerfacecolor() != PAPER
        for line in axes.lines
        if line.get_marker() == "o"
        for y in line.get_ydata()
    }
    assert filled == {sign * 2.5: False, sign * 2.7: True}
    assert ("lowest" in axes.get_ylabel()) == (sign < 0)


def test_growth_over_one_length_is_refused():
    with pytest.raises(TableError, match="two lengths or more; given was 4"):
        growth(growing(1).tail(2), goal="optimal")


def sequences(rewards: list[float], starts: list[str], one_opt: list[bool | None]) -> pd.DataFrame:
    return pd.DataFrame({"reward": rewards, "start": starts, "one_opt": pd.array(one_opt, dtype="boolean")})


def test_restarts_are_dots_by_kind_of_start_hollow_where_not_polished_to_the_end():
    table = sequences([5.0, 4.9, 4.5, 4.4], ["random", "beam", "random", "beam"], [True, True, None, False])
    (axes,) = restarts(table, noise=NOISE, goal="optimal").axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["random", "beam"]
    dots = {
        float(x): (round(float(y)), line.get_markerfacecolor() != PAPER)
        for line in axes.lines
        if line.get_marker() == "o"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }
    assert dots == {5.0: (0, True), 4.9: (1, True), 4.5: (0, False), 4.4: (1, False)}


@pytest.mark.parametrize("count", [1, 8])
def test_restarts_that_end_at_one_reward_are_drawn_on_an_axis_that_does_not_magnify_noise(count, tmp_path):
    table = sequences([-3.2 + 1e-7 * place for place in range(count)], ["random"] * count, [True] * count)
    figure = restarts(table, noise=NOISE, goal="pessimal")
    save(figure, tmp_path, "restarts")
    assert np.ptp(figure.axes[0].get_xlim()) >= 0.01


def pairs() -> tuple[pd.DataFrame, pd.DataFrame]:
    histogram = pd.DataFrame(
        {"low": [-np.inf, 0.0, 1.0, 2.0, 3.0], "high": [0.0, 1.0, 2.0, 3.0, np.inf], "n": [2, 0, 1000, 1, 0]}
    )
    standing = pd.DataFrame(
        {
            "result": ["pruned", "beam", "gradient search"],
            "pair": ["<b>\n", " a b", "x" * 99],
            "reward": [2.5, 1.5, 1.2],
            "rank": [1, 2, None],
            "rank_most": [1, 40, None],
            "of": 1003,
        }
    )
    return histogram, standing


def test_all_pairs_are_counted_and_results_stand_at_their_rewards(texts, tmp_path):
    histogram, standing = pairs()
    figure = among_all(histogram, standing, goal="optimal")
    axes = figure.axes[0]
    assert axes.get_yscale() == "log"
    (bars,) = axes.findobj(StepPatch)
    values, edges, _ = bars.get_data()
    assert list(values) == [1000, 1]  # empty ends are not drawn
    assert list(edges) == [1, 2, 3]
    marks = [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 1]
    assert marks == [2.5, 1.5, 1.2]
    said = texts(figure)
    assert {"1", "2 to 40", "not known", literal("<b>\n")} <= set(said)
    assert any(
        "1,003 pairs" in text and "2 pairs lie outside the bins" in text.replace("\n", " ") for text in said
    )
    ElementTree.parse(save(figure, tmp_path, "pairs")[0])


def test_pairs_without_other_results_are_drawn_too(tmp_path):
    histogram, standing = pairs()
    figure = among_all(histogram, standing.head(0), goal="pessimal")
    save(figure, tmp_path, "pairs")
    assert not [line for line in figure.axes[0].lines if line.get_marker() != "None"]
