"""Does the optimal token survive another wording: counted by hand, ties told, dependence not forgotten."""

from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analysis.paraphrase import ANY, OPPOSITE, paraphrase, spearman_matrix
from pessimal.errors import TableError

LEVELS = {
    f"{a}_{s}": {"adjective": a, "superlative": s}
    for a, s in product(("best", "good", "worst"), ("ever", "time"))
}
FRAMES = {prompt: -1 if prompt.startswith("worst") else 1 for prompt in LEVELS}


def rewards(n: int = 200, *, seed: int = 0, noise: float = 1.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    taste = rng.normal(size=n)
    columns = {p: FRAMES[p] * taste + noise * rng.normal(size=n) for p in LEVELS}
    return pd.DataFrame(columns, index=[f"token {i}" for i in range(n)])


def row(table: pd.DataFrame, **wanted: str) -> pd.Series:
    rows = table[(table[list(wanted)] == pd.Series(wanted)).all(axis=1)]
    assert len(rows) == 1
    return rows.iloc[0]


@pytest.mark.parametrize("end", ["optimal", "pessimal"])
def test_shares_and_ranks_are_those_counted_pair_by_pair(end):
    table = rewards()
    found = paraphrase(table, frames=FRAMES, levels=LEVELS, top=10).survival
    signed = table if end == "optimal" else -table
    ranks = signed.rank(ascending=False, method="min")
    kinds = {
        ANY: lambda a, b: FRAMES[a] == FRAMES[b],
        "only adjective": lambda a, b: FRAMES[a] == FRAMES[b] and a[-4:] == b[-4:],
        "only superlative": lambda a, b: FRAMES[a] == FRAMES[b] and a[:-4] == b[:-4],
        OPPOSITE: lambda a, b: FRAMES[a] != FRAMES[b],
    }
    for frame, sign in (("positive", 1), ("negative", -1)):
        for changed, counts in kinds.items():
            pairs = [(a, b) for a, b in permutations(table, 2) if FRAMES[a] == sign and counts(a, b)]
            if not pairs:
                assert not ((found["frame"] == frame) & (found["changed"] == changed)).any()
                continue
            there = np.array([ranks.loc[signed[a].idxmax(), b] for a, b in pairs])
            one = row(found, frame=frame, changed=changed, end=end)
            assert one["pairs"] == len(pairs)
            assert one["survives"] == pytest.approx(np.mean(there == 1))
            assert one["in_top"] == pytest.approx(np.mean(there <= 10))
            assert one["median_rank"] == pytest.approx(np.median(there))
            rho = [stats.spearmanr(table[a], table[b]).statistic for a, b in pairs]
            assert one["spearman"] == pytest.approx(np.mean(rho))


def test_a_model_that_understands_the_question_lets_nothing_survive_it():
    found = paraphrase(rewards(noise=0.01), frames=FRAMES, levels=LEVELS).survival
    same = row(found, frame="positive", changed=ANY, end="optimal")
    opposite = row(found, frame="positive", changed=OPPOSITE, end="optimal")
    assert same["survives"] > opposite["survives"] == 0
    assert same["spearman"] > 0.99
    assert opposite["spearman"] < -0.99
    assert opposite["median_rank"] > 190


def test_what_ties_with_the_extreme_survives_and_ties_are_counted():
    table = rewards(noise=0.0)
    top = table["best_ever"].nlargest(2)
    table.loc[top.index, "good_ever"] = 9.0  # both are optimal here; the first row stands for them
    found = paraphrase(table, frames=FRAMES).survival
    one = row(found, frame="positive", changed=ANY, end="optimal")
    assert one["tied"] == 1
    first = table.index[table["good_ever"].to_numpy().argmax()]
    expected = 12 if first == top.index[0] else 9
    assert one["survives"] == pytest.approx(expected / 12)


def test_spearman_takes_mid_ranks():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, (60, 4)).astype(float)
    expected = stats.spearmanr(values).statistic
    assert spearman_matrix(values) == pytest.approx(expected)


def test_intervals_are_over_wordings_and_not_over_pairs():
    """24 wordings of which each has its own optimum from a few: the interval covers what other wordings would give."""
    rng = np.random.default_rng(0)
    chances = np.array([0.6, 0.3, 0.1])
    truth, hits, widths = float(np.sum(chances**2)), [], []
    for _ in range(150):
        winners = rng.choice(3, size=24, p=chances)
        table = pd.DataFrame({f"w{i}": np.eye(12)[winner] for i, winner in enumerate(winners)})
        table += rng.normal(0, 1e-3, table.shape)
        one = paraphrase(table, frames=dict.fromkeys(table, 1)).survival.query("end == 'optimal'").iloc[0]
        hits.append(one["survives_low"] <= truth <= one["survives_high"])
        widths.append(one["survives_high"] - one["survives_low"])
    assert np.mean(hits) >= 0.88
    assert np.mean(widths) > 2 * 1.96 * np.sqrt(truth * (1 - truth) / (24 * 23)), "pairs share their wordings"


def test_interval_leaves_each_wording_out_with_all_its_pairs():
    table = rewards(noise=0.3).drop(columns=["worst_ever", "worst_time"])
    whole = paraphrase(table, frames=FRAMES).survival.iloc[0]
    left = [paraphrase(table.drop(columns=p), frames=FRAMES).survival.iloc[0]["spearman"] for p in table]
    se = np.sqrt(3 / 4 * np.sum((np.array(left) - np.mean(left)) ** 2))
    reach = stats.t.ppf(0.975, 3) * se
    assert whole["spearman_low"] == pytest.approx(whole["spearman"] - reach)
    assert whole["spearman_high"] == pytest.approx(min(1, whole["spearman"] + reach))


def test_no_interval_is_of_no_width():
    even = pd.DataFrame({f"w{i}": np.eye(5)[i % 3] + 1e-3 * np.arange(5) for i in range(9)})
    one = paraphrase(even, frames=dict.fromkeys(even, 1)).survival.iloc[0]
    assert one["survives_low"] < one["survives"] - 0.05 < one["survives_high"] - 0.1
    same = pd.DataFrame({f"w{i}": np.eye(5)[0] + 1e-3 * np.arange(5) for i in range(9)})
    one = paraphrase(same, frames=dict.fromkeys(same, 1)).survival.iloc[0]
    wilson = stats.binomtest(9, 9).proportion_ci(0.95, method="wilson")
    assert one["survives"] == one["survives_high"] == 1
    assert one["survives_low"] == pytest.approx(wilson.low)


def test_extremes_are_counted_over_the_wordings_of_a_frame():
    winners = [0, 1, 1, 2, 1, 0]
    table = pd.DataFrame(
        {f"w{i}": np.eye(4)[w] + 1e-3 * np.arange(4) for i, w in enumerate(winners)}, index=list("abcd")
    )
    found = paraphrase(table, frames=dict.fromkeys(table, 1)).tokens
    rows = found[found["end"] == "optimal"]
    assert list(zip(rows["text"], rows["wordings"], strict=True)) == [("b", 3), ("a", 2), ("c", 1)]
    assert set(rows["of"]) == {6}
    assert set(rows["distinct"]) == {3}


def test_two_wordings_give_a_share_without_an_interval():
    one = paraphrase(rewards()[["best_ever", "good_ever"]], frames=FRAMES).survival.iloc[0]
    assert one["pairs"] == 2
    assert np.isnan(one["survives_low"])


@pytest.mark.parametrize(
    ("table", "frames", "message"),
    [
        (rewards()[["best_ever", "worst_ever"]], FRAMES, "needs two of one frame"),
        (rewards(), {"best_ever": 1}, "No frame for the prompts best_time"),
        (rewards().assign(best_ever=0.0), FRAMES, "same reward for every item"),
    ],
)
def test_what_cannot_be_paired_is_refused_in_words(table, frames, message):
    with pytest.raises(TableError, match=message):
        paraphrase(table, frames=frames)
