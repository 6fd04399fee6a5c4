"""Best against worst: mirror images, twins, and everything between."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analyses.analysis import Options
from pessimal.analyses.framing import (
    align_prompts,
    analyse,
    ends_of_axes,
    prompt_pairs,
    reversals,
    reversing_heads,
)
from pessimal.statistics import holm
from pessimal.tables.result import HOLDS
from pessimal.tables.table_set import table_sets


def two_prompts(
    items: int = 2000, *, correlation: float, scale: float = 1.0
) -> tuple[pd.Series, pd.Series]:
    x, other = np.random.default_rng(0).normal(size=(2, items))
    return pd.Series(x), pd.Series(scale * (correlation * x + np.sqrt(1 - correlation**2) * other))


def framing(best: pd.Series, worst: pd.Series, **options) -> pd.DataFrame:
    return reversals([align_prompts(best, worst)], **options)


# reversal


def by_pairs(x: pd.Series, y: pd.Series) -> tuple[float, float]:
    """Reversal score and share of tied pairs, from every pair."""
    first, second = np.triu_indices(len(x), k=1)
    x, y = x.to_numpy(), y.to_numpy()
    product = (x[first] - x[second]) * (y[first] - y[second])
    return (product < 0).sum() / (product != 0).sum(), (product == 0).mean()


def test_a_mirror_image_turns_every_pair_and_a_twin_none():
    best, _ = two_prompts(correlation=0.5)
    assert framing(best, -(best**3)).iloc[0][["reversal", "low", "high"]].tolist() == [1, 1, 1]
    assert framing(best, np.exp(best)).iloc[0]["reversal"] == 0
    unrelated = framing(*two_prompts(correlation=0)).iloc[0]
    assert unrelated["low"] < 0.5 < unrelated["high"]


@pytest.mark.parametrize("levels", [3, 8, None])
def test_the_share_of_pairs_that_turn_round_is_counted_exactly(levels):
    x, y = two_prompts(60, correlation=-0.6)
    if levels:  # ties in one column, in the other, and in both
        x, y = (x * levels / 4).round(), (y * levels / 4).round()
    reversal, tied = by_pairs(x, y)
    row = framing(x, y).iloc[0]
    assert row["reversal"] == pytest.approx(reversal)
    assert row["tied"] == pytest.approx(tied, abs=1e-12)
    if not levels:
        assert row["reversal"] == pytest.approx((1 - stats.kendalltau(x, y).statistic) / 2)


def test_its_interval_is_that_of_a_bootstrap_that_counts_anew():
    x, y = (column.round(1) for column in two_prompts(150, correlation=-0.5))
    row = framing(x, y).iloc[0]
    rng = np.random.default_rng(1)
    again = []
    for _ in range(300):
        items = rng.integers(150, size=150)
        again.append(by_pairs(x.iloc[items], y.iloc[items])[0])
    assert row["high"] - row["low"] == pytest.approx(
        np.ptp(np.quantile(again, [0.025, 0.975])), rel=0.15
    )


# the ends of the axes


def test_the_ends_are_those_of_a_full_sort():
    best, worst = (column.round(1) for column in two_prompts(3000, correlation=0.3))
    table = ends_of_axes(align_prompts(best, worst), k=40)
    places = pd.DataFrame({"text": best.index, "difference": best - worst, "sum": best + worst})
    for axis in ("difference", "sum"):
        for end, ascending in (("top", False), ("bottom", True)):
            rows = table[(table["axis"] == axis) & (table["end"] == end)]
            expected = places.sort_values(axis, ascending=ascending, kind="stable").head(40)
            assert rows["text"].tolist() == expected["text"].tolist()


# the analysis


def two_models(items: int = 300) -> dict[str, pd.DataFrame]:
    """`turns` answers the opposite question with the opposite order, `deaf` with the same."""
    rng = np.random.default_rng(0)
    best = pd.DataFrame(
        rng.normal(size=(items, 2)),
        columns=["turns", "deaf"],
        index=[f"w{i}" for i in range(items)],
    )
    noise = 0.3 * rng.normal(size=(items, 2))
    return {"best": best, "greatest": best + 0.01 * noise, "worst": best * [-1, 1] + noise}


POLARITY = {"best": 1, "greatest": 1, "worst": -1}


def test_no_reversal_is_asserted_of_unrelated_prompts(table_set):
    rng = np.random.default_rng(3)
    names = [f"w{i}" for i in range(300)]
    unrelated = {
        prompt: pd.DataFrame(rng.normal(size=(300, 2)), index=names, columns=["a", "b"])
        for prompt in ("best", "worst")
    }
    result = analyse(table_set(unrelated, polarity=POLARITY), Options())[0]
    assert (result.table["unit_p_corrected"] > 0.05).all()
    assert (result.table["unit_low"] < 0.5).all()
    assert result.estimate.standing < HOLDS
    assert "no model is found" in result.headline
    assert result.weight < 2


def test_the_words_interval_excludes_a_half_where_the_corrected_p_says_so():
    x, y = two_prompts(400, correlation=-0.08)
    table = reversals([pd.DataFrame({"x": x, "y": noisy}) for noisy in (y, y + x / 4, y + x / 6)])
    excluded = (table["low"] > 0.5) | (table["high"] < 0.5)
    assert excluded.tolist() == (holm(table["p"]) <= 0.05).tolist()
    assert 0 < excluded.sum() < 3
    first = int(table["p"].argmin())  # whose p is multiplied by three
    pair = pd.DataFrame({"x": x, "y": (y, y + x / 4, y + x / 6)[first]})
    alone = reversals([pair], confidence=1 - 0.05 / 3).iloc[0]
    ends = ["low", "high"]
    assert table.loc[first, ends].tolist() == pytest.approx(alone[ends].tolist())


def test_every_two_opposite_prompts_are_compared_and_of_many_one_by_one(table_set):
    rewards = two_models(20)["best"]

    def pairs(*keys, chosen=()) -> tuple[list, list]:
        notes, signs = (
            [],
            POLARITY | {f"good{i}": 1 for i in range(5)} | {f"bad{i}": -1 for i in range(5)},
        )
        tables = table_set(dict.fromkeys(keys, rewards), polarity=signs, pairs=chosen)
        return prompt_pairs(tables, notes), notes

    assert pairs("good0", "best", "worst", "odd") == ([("best", "worst"), ("good0", "worst")], [])
    many, notes = pairs(*(f"{side}{i}" for side in ("good", "bad") for i in range(5)))
    assert many == [(f"good{i}", f"bad{i}") for i in range(5)]
    assert notes[0].startswith("5 of 25 pairs")
    assert pairs("best", "worst", "odd", chosen=[("odd", "best")]) == ([("odd", "best")], [])


def test_the_models_stand_side_by_side_on_one_scale_and_on_shared_items(table_set):
    own = two_models()
    both = table_set({p: own[p].iloc[:200] for p in ("best", "worst")}, polarity=POLARITY).tables
    one = table_set(
        {p: own[p][["deaf"]].iloc[50:] for p in ("best", "worst")}, polarity=POLARITY
    ).tables
    tables = table_sets([*[t for t in both if t.provenance.model == "turns"], *one])[0]
    found = {
        r.name: r for r in analyse(table_sets(tables.tables, tables.reading)[0], Options(top=4))
    }
    points = found["prompt_scatter"].plot.data
    assert points.groupby("model").size().to_dict() == {"turns": 200, "deaf": 250}
    for _, rows in points.groupby("model"):
        both = rows[["x_sd", "y_sd"]].to_numpy()
        assert (both.mean(), both.std()) == pytest.approx((0, 1), abs=1e-6)
        assert np.array_equal(both[:, 0] < both[:, 1], rows["x"] < rows["y"])
    assert 2 <= len(found["prompt_scatter"].table) <= 8
    for model, rows in points.groupby("model"):
        table = found["prompt_scatter"].table
        named = table.loc[table["model"] == model, "text"]
        for axis in (rows["x"] - rows["y"], rows["x"] + rows["y"]):
            assert {*rows["text"][[axis.idxmin(), axis.idxmax()]]} <= {*named}
    shared = found["axes_shared"].table
    total = (own["best"] + own["worst"])["turns"].iloc[50:200].sort_values(ascending=False)
    listed = shared.query("model == 'turns' and axis == 'sum' and end == 'top'")
    assert listed["text"].tolist() == total.index[:4].tolist()
    assert listed["value"].to_numpy() == pytest.approx(total.iloc[:4].to_numpy())


@pytest.mark.parametrize("taste", [0.67])
def test_random_heads_reverse_as_much_as_one_of_them_and_less_than_a_mirror_image(taste):
    """Two prompts whose states correlate .8: of 16 heads on them, few reverse more than others do;
    the same rewards turned round are beyond all."""
    random = np.random.default_rng(0)
    common, *own = random.normal(size=(3, 400, 20))
    states = {
        name: (np.sqrt(0.8) * common + np.sqrt(0.2) * one)[:, None]
        for name, one in zip(("first", "second"), own, strict=True)
    }
    words, found = pd.Index([f"word{i}" for i in range(400)]), []
    for _ in range(16):
        head = random.normal(size=20) / np.sqrt(20)
        noise = random.normal(size=(2, 400))
        rewards = [
            np.sqrt(taste) * state[:, 0] @ head + np.sqrt(1 - taste) * e
            for state, e in zip(states.values(), noise, strict=True)
        ]
        pair = pd.DataFrame(np.transpose(rewards), words, ["first", "second"])
        found.append(reversing_heads(pair, lambda _, column: states[column]))
    mean, share = np.array(found).T
    expected = np.arccos(0.8 * taste) / np.pi  # of correlated normal rewards
    assert mean.mean() == pytest.approx(expected, abs=0.02)
    assert np.sum(share <= 0.05) <= 3
    mirrored = pair.assign(second=-pair["second"])
    assert reversing_heads(mirrored, lambda _, column: states[column])[1] < 0.01
