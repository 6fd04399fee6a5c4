"""Slopes: attributes that edits move together are separated."""

import numpy as np
import pandas as pd
import pytest
from test_outcomes import made

from pessimal.errors import TableError
from pessimal.explaining.flips import slopes


def edits(n=40, *, truth, noise=0.1, seed=0, together=0.8):
    """Edits of n comparisons, two a comparison, whose detectors a and b move together."""
    random = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        shared = random.normal(scale=noise)  # what a comparison's edits have in common
        for side in ("chosen", "rejected"):
            a = random.normal()
            b = together * a + np.sqrt(1 - together**2) * random.normal()
            reward = truth[0] * a + truth[1] * b + shared + random.normal(scale=noise)
            sign = 1 if side == "chosen" else -1
            rows.append(
                {
                    "comparison": f"c{i}",
                    "side": side,
                    "attribute": "a",
                    "change_in_sd": sign * reward,
                    "moved/a": a,
                    "moved/b": b,
                }
            )
    table = pd.DataFrame(rows)
    rows = made(
        [
            {"comparison": r.comparison, "side": r.side, "attribute": r.attribute, "change": 0.0}
            for r in table.itertuples()
        ]
    )
    rows["change_in_sd"] = table["change_in_sd"].to_numpy()
    for column in ("moved/a", "moved/b"):
        rows[column] = table[column].to_numpy()
    return rows


def test_attributes_that_move_together_are_separated():
    found = slopes(edits(truth=(0.9, 0.0))).set_index("attribute")
    assert found.loc["a", "slope"] == pytest.approx(0.9, abs=0.1)
    assert found.loc["b", "slope"] == pytest.approx(0.0, abs=0.1)
    assert found.loc["a", "inflation"] == pytest.approx(1 / (1 - 0.8**2), rel=0.3)
    assert found.loc["a", "explained"] > 0.9


def test_the_side_turns_the_sign_of_the_margin_not_of_the_slope():
    table = edits(truth=(0.5, -0.3))
    turned = table.assign(
        side=table["side"].map({"chosen": "rejected", "rejected": "chosen"}),
        change_in_sd=-table["change_in_sd"],
    )
    pd.testing.assert_frame_equal(slopes(table), slopes(turned))


def test_too_few_give_no_numbers_and_none_is_an_error():
    for n in (1, 3):
        assert slopes(edits(n, truth=(1, 0)))["slope"].isna().all()
    assert slopes(edits(4, truth=(1, 0)))["slope"].notna().all()
    with pytest.raises(TableError, match="moved/NAME"):
        slopes(edits(3, truth=(1, 0)).drop(columns=["moved/a", "moved/b"]))
