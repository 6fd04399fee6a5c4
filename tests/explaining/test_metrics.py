"""Metrics: hand-counted tables, the plain bootstrap as oracle, and simulations with a known
truth."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from test_outcomes import made

from pessimal.explaining import metrics as metrics_module
from pessimal.explaining.metrics import draws, metrics, ratio_interval, share_interval


def value(table: pd.DataFrame, metric: str, side: str = "any", among: str = "all") -> pd.Series:
    rows = table[(table["metric"] == metric) & (table["side"] == side) & (table["among"] == among)]
    assert len(rows) == 1
    return rows.iloc[0]


def by_hand() -> pd.DataFrame:
    """Four comparisons: a flips on both sides, b on the rejected one, c never (one tie), d has no
    text at all."""
    return made(
        [
            {"comparison": "a", "attribute": "x", "change": -2.0, "syntactic": 0.2},
            {"comparison": "a", "attribute": "y", "change": -0.5, "syntactic": 0.4},
            {
                "comparison": "a",
                "attribute": "x",
                "side": "rejected",
                "change": -3.0,
                "syntactic": 0.6,
            },
            {"comparison": "b", "attribute": "x", "change": 0.0, "syntactic": 0.8},
            {"comparison": "b", "attribute": "x", "side": "rejected", "change": -1.5},
            {
                "comparison": "c",
                "attribute": "x",
                "change": -1.0,
                "syntactic": 0.1,
            },  # m′ = 0: a tie
            {"comparison": "c", "attribute": "y", "status": "refused"},
            {"comparison": "d", "attribute": "x", "status": "failed"},
            {"comparison": "d", "attribute": "y", "status": "not applicable"},
            {"comparison": "a", "attribute": "placebo", "change": -9.0, "syntactic": 0.01},
        ]
    )


def test_coverage_is_over_decided_comparisons_those_without_any_text_included():
    table = metrics(by_hand())
    table = table[~table["placebo"]]
    shares = {
        (among, side): value(table, "coverage", side, among)["value"]
        for among in ("CF", "SF")
        for side in ("chosen", "rejected", "both", "any")
    }
    assert shares == {
        ("CF", "chosen"): 1 / 4,
        ("CF", "rejected"): 2 / 4,
        ("CF", "both"): 1 / 4,
        ("CF", "any"): 2 / 4,
        ("SF", "chosen"): 2 / 4,
        ("SF", "rejected"): 0,
        ("SF", "both"): 0,
        ("SF", "any"): 2 / 4,
    }
    row = value(table, "coverage", "any", "CF")
    assert (row["n"], row["comparisons"], row["unit"]) == (4, 4, "comparisons × seeds")


def test_distances_on_all_and_on_each_outcome_leave_out_what_is_not_known():
    table = metrics(by_hand()).query("not placebo")
    assert value(table, "syntactic")["value"] == pytest.approx((0.2 + 0.4 + 0.6 + 0.8 + 0.1) / 5)
    assert value(table, "syntactic")["n"] == 5
    assert value(table, "syntactic", among="CF")["value"] == pytest.approx((0.2 + 0.6) / 2)
    assert value(table, "syntactic", among="SF")["value"] == pytest.approx((0.4 + 0.8) / 2)
    assert value(table, "syntactic", "rejected")["value"] == pytest.approx(0.6)
    nothing = value(table, "semantic")
    assert nothing["n"] == 0
    assert nothing[["value", "low", "high", "standard_error"]].isna().all()


def test_more_seeds_do_not_raise_coverage_and_give_a_standard_error():
    rows = [
        {"comparison": key, "attribute": "x", "seed": seed, "change": -2.0 if flips else 0.0}
        for key, pattern in (("a", (1, 0, 0)), ("b", (1, 1, 0)))
        for seed, flips in enumerate(pattern)
    ]
    row = value(metrics(made(rows)), "coverage", "any", "CF")
    assert row["value"] == pytest.approx(3 / 6)
    per_seed = np.array([1, 0.5, 0])
    assert row["standard_error"] == pytest.approx(per_seed.std(ddof=1) / math.sqrt(3))
    assert row["seeds"] == 3
    one = value(metrics(made([row for row in rows if row["seed"] == 0])), "coverage", "any", "CF")
    assert math.isnan(one["standard_error"])


def test_diversity_pairs_the_texts_of_one_response_and_seed_only(monkeypatch):
    numbers = {
        ("a", "chosen"): [0.0, 1.0, 3.0],
        ("a", "rejected"): [100.0, 104.0],
        ("b", "chosen"): [7.0],
        ("c", "chosen"): [17.0, 19.0],
    }
    flips = {0.0: -2.0, 3.0: -2.0, 17.0: -2.0, 19.0: -2.0}
    rows = [
        {
            "comparison": key,
            "side": side,
            "attribute": f"x{place}",
            "change": flips.get(number, 0.0),
            "edited": str(number),
        }
        for (key, side), texts in numbers.items()
        for place, number in enumerate(texts)
    ]

    monkeypatch.setattr(metrics_module, "syntactic", lambda a, b: abs(float(a) - float(b)))
    opposite = np.array([[1.0], [-1.0], [1.0]])
    monkeypatch.setattr(metrics_module, "embed", lambda texts: opposite[: len(texts)])
    table = metrics(made(rows), diversity=True)
    assert value(table, "semantic diversity")["value"] == pytest.approx((4 / 3 + 2 + 2) / 3)
    assert value(table, "syntactic diversity", "chosen")["value"] == pytest.approx((1 + 3 + 2) / 3)
    assert value(table, "syntactic diversity", "rejected")["value"] == pytest.approx(4)
    assert value(table, "syntactic diversity")["value"] == pytest.approx((2 + 4 + 2) / 3)
    assert value(table, "syntactic diversity")["n"] == 3
    # A mean, of a alone (3) or of c alone (2) in many draws, and no share.
    assert value(table, "syntactic diversity")[["low", "high"]].tolist() == [2, 3]
    assert value(table, "syntactic diversity", among="CF")["value"] == pytest.approx((3 + 2) / 2)
    assert value(table, "syntactic diversity", "chosen", "SF")["n"] == 0


def test_intervals_draw_comparisons_with_all_of_their_rows():
    rng = np.random.default_rng(1)
    rows = [
        {
            "comparison": f"{number}",
            "attribute": f"x{place}",
            "change": float(rng.normal(-1, 1)),
            "syntactic": float(rng.random()),
        }
        for number in range(25)
        for place in range(rng.integers(1, 6))
    ]
    table = made(rows)
    row = value(metrics(table, replicates=4000), "syntactic")
    groups = [group.to_numpy() for _, group in table.groupby("comparison")["syntactic"]]
    plain = []
    for _ in range(4000):
        plain.append(
            np.concatenate([groups[pick] for pick in rng.integers(25, size=25)])
            .astype(float)
            .mean()
        )
    width = row["high"] - row["low"]
    assert [row["low"], row["high"]] == pytest.approx(
        np.quantile(plain, [0.025, 0.975]), abs=0.06 * width
    )


def test_the_interval_of_a_mean_covers_the_truth_about_as_often_as_it_says():
    """Values go together within a comparison; an interval over rows would cover far less often."""
    rng = np.random.default_rng(0)
    hits = naive_hits = 0
    weights = draws(40, replicates=400, seed=0)
    trials = 300
    for _ in range(trials):
        values = rng.beta(1, 1, size=(40, 1)) + rng.normal(scale=0.2, size=(40, 6))
        low, high = ratio_interval(values.sum(axis=1), np.full(40, 6), weights, confidence=0.95)
        hits += low <= 0.5 <= high
        reach = 1.96 * values.std(ddof=1) / math.sqrt(240)
        naive_hits += abs(values.mean() - 0.5) <= reach
    assert 0.90 <= hits / trials <= 0.98
    assert naive_hits / trials < 0.85


def flipping(pattern: list[tuple[int, int]]) -> pd.DataFrame:
    """Of each comparison so many flips, of so many edits."""
    return made(
        [
            {
                "comparison": f"k{number}",
                "attribute": f"x{place}",
                "change": -2.0 if place < flips else 0.0,
            }
            for number, (flips, edits) in enumerate(pattern)
            for place in range(edits)
        ]
    )


def test_shares_have_the_interval_of_shares_comparisons_without_edits_left_out():
    pattern = [(3, 4), (0, 2), (1, 5), (0, 4), (2, 2)]
    unmade = made([{"comparison": "none", "attribute": "x0", "status": "failed"}])
    table = metrics(pd.concat([flipping(pattern), unmade]))
    hits, edits = np.array(pattern).T
    row = value(table, "brittleness")
    assert (row["low"], row["high"]) == share_interval(hits, edits, confidence=0.95)
    covered = value(table, "coverage", "any", "CF")
    wanted = share_interval(np.array([1, 0, 1, 0, 1, 0]), np.ones(6), confidence=0.95)
    assert (covered["low"], covered["high"]) == wanted
    failed = value(table, "failed")
    wanted = share_interval(np.array([0, 0, 0, 0, 0, 1]), np.append(edits, 1), confidence=0.95)
    assert (failed["low"], failed["high"]) == wanted


@pytest.mark.parametrize(("flips", "side"), [(0, "low")])
def test_a_share_of_none_or_all_is_not_taken_for_certain(flips, side):
    row = value(metrics(flipping([(flips, 3)] * 20)), "brittleness")
    exact = binomtest(20 * flips // 3, 20).proportion_ci(method="exact")
    assert (row["low"], row["high"]) == pytest.approx((exact.low, exact.high))
    assert row[side] == flips // 3
