"""Items from rater to rater: the lines are the ranks, and names do not lie on one another."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pessimal.errors import TableError
from pessimal.figures.trajectories import trajectories
from pessimal.figures.words import literal


@pytest.fixture
def ranks(rewards) -> pd.DataFrame:
    people = pd.Series(np.random.default_rng(1).permutation(300) + 1.0, index=rewards.index, name="people")
    return pd.concat([people, rewards.rank(ascending=False)], axis=1)


def drawn(panel, items: int) -> np.ndarray:
    """Heights of the item lines, (items, raters)."""
    lines = [line.get_ydata() for line in panel.lines if len(line.get_xdata()) == 7]
    assert len(lines) == items
    return np.array(lines)


def test_a_line_goes_through_the_item_at_each_rater_higher_for_better_ranks(ranks, hostile):
    items = [*hostile[:5], "token 3", "token 7"]
    (panel,) = trajectories(ranks, {"some": items}).axes
    heights = drawn(panel, 7)
    expected = ranks.iloc[[ranks.index.get_loc(item) for item in items]].to_numpy()
    # Any order-preserving scale will do, so long as it is one scale: better rank, higher; same rank, same height.
    order = np.argsort(expected, axis=None)
    assert (np.diff(heights.ravel()[order]) <= 1e-12).all()
    first, tenth, last = (np.log10((300.5 - r) / (r - 0.5)) for r in (1, 10, 300))
    assert first - tenth > 1  # rank 1 and rank 10 can be told apart …
    assert first == pytest.approx(-last)  # … and the other end likewise
    share = (300.5 - expected) / 300
    assert heights == pytest.approx(np.log10(share / (1 - share)))


def test_raters_stand_in_the_order_given_and_items_are_named_at_both_ends(ranks, texts):
    figure = trajectories(ranks, {"some": ["token 3", "$x^2$"], "others": ["token 9"]})
    names = [label.get_text() for label in figure.axes[-1].get_xticklabels()]
    assert names == ["people", *(model.removeprefix("lab/") for model in ranks.columns[1:])]
    shown = texts(figure)
    for item in ("token 3", "$x^2$", "token 9"):
        assert shown.count(literal(item)) == 2
    assert "some" in shown
    assert any("300 items" in text and "6 models" in text.replace("\n", " ") for text in shown)


def test_names_of_items_in_one_place_do_not_overlap(ranks):
    crowd = [name for name in ranks.sort_values("people").index if str(name).startswith("token")][:10]
    figure = trajectories(ranks, {"the first ten": crowd})
    FigureCanvasAgg(figure).draw()
    names = {literal(str(name)) for name in crowd}
    labels = [text for text in figure.axes[0].texts if text.get_text() in names]
    assert len(labels) == 20
    for side in ("left", "right"):
        boxes = [text.get_window_extent() for text in labels if text.get_ha() == side]
        tops = sorted((box.y0 + box.y1) / 2 for box in boxes)
        assert min(np.diff(tops)) > 0.9 * np.median([box.height for box in boxes])
        assert figure.bbox.x0 <= min(box.x0 for box in boxes)
        assert max(box.x1 for box in boxes) <= figure.bbox.x1


def test_the_note_says_what_rank_1_is_and_how_the_models_are_ordered(ranks, texts):
    def said(**options) -> str:
        return " ".join(texts(trajectories(ranks, {"some": ["token 3"]}, **options))).replace("\n", " ")

    assert "the models' highest reward" in said()
    assert "by falling agreement with people" in said()
    assert "the models' LOWEST reward" in said(turned=True)
    assert "by falling agreement" not in said(order="by falling ρ")


def test_what_cannot_be_drawn_is_refused(ranks):
    with pytest.raises(TableError, match="1 to 10 lines"):
        trajectories(ranks, {"all": list(ranks.index[:11])})
    with pytest.raises(TableError, match="No rank of 'love'"):
        trajectories(ranks, {"some": ["love"]})
    with pytest.raises(TableError, match="1 rater and 1 group"):
        trajectories(ranks[["people"]], {"some": ["token 3"]})
