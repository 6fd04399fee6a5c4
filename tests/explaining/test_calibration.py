"""The calibration of `experiments/contrastive_explanations`: its AUC and its null against plain
arithmetic."""

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

FILE = Path(__file__).parents[2] / "experiments" / "contrastive_explanations" / "calibrate.py"


@pytest.fixture(scope="module")
def calibrate():
    spec = importlib.util.spec_from_file_location("calibrate", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def edits(effects, *, noise=0.1, seed=0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = [
        (f"k{c}", name, effect + noise * rng.normal())
        for c in range(25)
        for name, effect in effects.items()
    ]
    return pd.DataFrame(rows, columns=["comparison", "attribute", "change_in_sd"]).assign(
        model="m", side="chosen", direction="worse"
    )


def test_the_auc_is_the_share_of_the_others_that_are_smaller_with_ties_half(calibrate):
    sizes = np.abs(np.random.default_rng(1).normal(size=(20, 7)).round(1))
    won, others = calibrate.wins(sizes, 2)
    for row, number in zip(sizes, won, strict=True):
        assert number / others == pytest.approx(roc_auc_score(np.arange(7) == 2, row))


def test_means_and_slopes_are_those_of_plain_least_squares_and_find_a_plant(calibrate):
    table = edits({"length": -0.9, "tone": 0.2, "placebo": 5.0})
    names, parts = calibrate.mean_sums(table)
    means = calibrate.sizes(parts, np.ones((1, 25)))[0]
    assert dict(zip(names, means, strict=True)) == pytest.approx(
        table.groupby("attribute")["change_in_sd"].mean().drop("placebo").to_dict()
    )
    rng = np.random.default_rng(2)
    table["moved/length"], table["moved/tone"] = rng.normal(size=(2, len(table)))
    table["change_in_sd"] = 0.1 + 0.8 * table["moved/length"] + 0.1 * rng.normal(size=len(table))
    names, parts = calibrate.slope_sums(table)
    design = np.column_stack([np.ones(len(table)), table[["moved/length", "moved/tone"]]])
    expected = np.linalg.lstsq(design, table["change_in_sd"].to_numpy(), rcond=None)[0]
    np.testing.assert_allclose(calibrate.sizes(parts, np.ones((1, 25)))[0], expected)
    assert calibrate.recovery(table, {"m": "length"}, calibrate.slope_sums)[0].startswith("1.000")


def test_flips_by_chance_are_those_of_all_signs(calibrate):
    counts = np.array([[2, 0], [1, 1], [0, 3], [2, 1]])
    totals = [
        sum(row[i] for row, i in zip(counts, signs, strict=True))
        for signs in itertools.product((0, 1), repeat=4)
    ]
    np.testing.assert_allclose(
        calibrate.flips_by_chance(counts), np.bincount(totals, minlength=9) / 16
    )
