"""Ids or text: every token a point at its two ranks, survivors told from the rest, the farthest movers named."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from pessimal.analysis.sensitivity import SideBySide, moved
from pessimal.errors import TableError
from pessimal.figures import modes as figure_module
from pessimal.figures.modes import modes
from pessimal.figures.words import literal


@pytest.fixture
def scans(rewards) -> SideBySide:
    """300 tokens with hostile texts, a third of which survives."""
    tokens = pd.DataFrame(
        {
            "token": rewards.index,
            "text": rewards.index,
            "kind": np.resize(["normal", "normal", "byte"], len(rewards)),
            "survives": pd.array(np.resize([True, False, False], len(rewards)), dtype="boolean"),
        }
    )
    both = rewards.iloc[:, :2].set_axis(["ids", "text"], axis=1).reset_index(drop=True)
    return SideBySide(tokens.rename_axis("candidate_id"), both)


def points(figure, colour: str) -> np.ndarray:
    cloud = next(c for c in figure.axes[0].collections if to_hex(c.get_facecolor()[0]) == colour.lower())
    assert cloud.get_rasterized()
    return np.array(sorted(map(tuple, cloud.get_offsets())))


def test_survivors_and_the_rest_lie_at_their_ranks_in_their_own_colours(scans):
    figure = modes(scans, moved(scans))
    ranks = scans.rewards.rank(ascending=False).to_numpy()
    survives = scans.tokens["survives"].to_numpy(dtype=bool)
    for colour, members in ((figure_module.SURVIVING, survives), (figure_module.CHANGED, ~survives)):
        assert points(figure, colour) == pytest.approx(np.array(sorted(map(tuple, ranks[members]))))


def test_shares_by_kind_and_farthest_movers_are_told(scans, texts):
    farthest = moved(scans)
    shown = texts(modes(scans, farthest, extreme=2))
    assert {"33% of 300", "50% of 200", "0% of 100"} <= set(shown)
    for way in (farthest["moved"] > 0, farthest["moved"] < 0):
        assert {literal(text) for text in farthest[way].head(2)["text"]} <= set(shown)
    assert any("300 candidates" in text for text in shown)


def test_items_without_survival_and_modes_that_agree_can_be_drawn(scans, texts):
    tokens = scans.tokens.assign(kind="item", survives=pd.array([None] * 300, dtype="boolean"))
    same = scans.rewards.assign(text=scans.rewards["ids"])
    items = SideBySide(tokens, same)
    figure = modes(items, moved(items))
    assert "not asked, 300" in texts(figure)
    assert len(points(figure, figure_module.UNKNOWN)) == 300


def test_one_mode_or_three_are_refused(scans):
    with pytest.raises(TableError, match="shows two modes"):
        modes(SideBySide(scans.tokens, scans.rewards[["ids"]]), pd.DataFrame())
