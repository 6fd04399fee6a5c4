"""What a search reports: its numbers, what is ahead of what, and that nothing is claimed that was not measured."""

import json

import pandas as pd
import pytest

from pessimal.plots.draw import save_figures
from pessimal.search.results import About, search_results

NOISE = 1e-6
NUMBERS = {
    "model": "tiny",
    "prompts": ["greatest"],
    "goal": "optimal",
    "length": 3,
    "mode": "ids",
    "exact": False,
    "allowed": 990,
    "evaluations": 20_000,
    "noise": NOISE,
    "verdict": "1-opt",
    "dtype": "float32",
}
TOKENS = [" good", "<script>", "\n自由"]


def tables(*, margin=(0.5, 0.002, 0.1), ends=None, survives=True, sign=1) -> dict[str, pd.DataFrame]:
    """What Results are made of: a search of three tokens that ends at ±5, its baselines where `ends` says (towards the
    goal)."""
    ends = {"random search": 4.0, "coordinate ascent": 4.9, "beam": 4.8} if ends is None else ends
    curve = [
        (method, evaluations, sign * share * end)
        for method, end in ({"search": 5.0} | ends).items()
        for evaluations, share in ((100, 0.5), (20_000, 1.0))
    ]
    ranks = [1, 64, 65, 300, 400, 2]
    rows = {
        "sequences": {
            "start": ["random", "beam", "repeat"],
            "found_by": ["random changes, polish", "gradient", "baseline: beam"],
            "token_ids": [[1, 2, 3]] * 3,
            "tokens": [TOKENS] * 3,
            "text": ["".join(TOKENS), "second", "third"],
            "reward": [sign * 5.0, sign * 4.7, sign * 4.6],
            "survives": [survives, True, False],
            "one_opt": pd.array([True, True, None], dtype="boolean"),
        },
        "neighbours": {
            "position": range(3),
            "token": ["Ġgood", "<script>", "Ċx"],
            "text": TOKENS,
            "neighbour": ["Ġfine", "Ġgreat", "Ġjoy"],
            "neighbour_text": [" fine", " great", " joy"],
            "margin": margin,
        },
        "gradient_quality": {
            "point": ["start"] * 3 + ["result"] * 3,
            "position": [0, 1, 2] * 2,
            "gradient_rank": ranks,
            "within_top_k": [rank <= 64 for rank in ranks],
            "n": 989,
            "top_k": 64,
        },
        "growth": {
            "length": [1, 2, 3, 3],
            "reward": [sign * value for value in (3.0, 4.0, 4.8, 5.0)],
            "what": ["scan", "beam", "beam", "search"],
        },
        "ladder": {
            "rung": [3, 4, 7],
            "check": ["no single change is better", "restarts agree", "better than the baselines"],
            "measured": ["1-opt; smallest margin 0.002", "1 of 8", ""],
            "verdict": ["holds", "fails", "not tried"],
            "meaning": "meant",
        },
        "provenance": {"model": ["tiny"], "prompt": ["greatest"]},
    }
    made = {name: pd.DataFrame(columns) for name, columns in rows.items()}
    return made | {"curve": pd.DataFrame(curve, columns=["method", "evaluations", "reward"])}


def exhaustive(*, second: float = 0.01) -> dict[str, pd.DataFrame]:
    """Of a search through all pairs: the tables that come besides."""
    rows = {
        name: {
            "rank": [1, 2],
            "text": ["the best pair", f" next of {name}"],
            "reward": [sign * 5.0, sign * (5.0 - second)],
            "survives": [True, False],
        }
        for name, sign in (("top_pairs", 1), ("bottom_pairs", -1))
    }
    rows["histogram"] = {"low": [-5.0, 0.0], "high": [0.0, 5.1], "n": [980_000, 100]}
    rows["standing"] = {"result": ["pruned"], "pair": ["a b"], "reward": [4.9], "rank": [12], "of": [980_100]}
    return tables() | {name: pd.DataFrame(columns) for name, columns in rows.items()}


def report(given, **numbers):
    """Results by name."""
    return {r.name: r for r in search_results(given, About(**(NUMBERS | numbers)))}


EXHAUSTIVE = {"length": 2, "exact": True}


def test_the_response_comes_first_and_every_table_is_kept():
    given = tables()
    results = search_results(given, About(**NUMBERS))
    assert results[0].name == "sequences"
    assert {r.name for r in results} == set(given)
    for result in results:
        assert len(result.headline.split()) <= 25
        for column in given[result.name]:
            assert column in result.table
    kept = report(given)["sequences"].table
    assert json.loads(kept["token_ids"].iloc[0]) == [1, 2, 3]
    assert json.loads(kept["tokens"].iloc[0]) == TOKENS


def test_the_closest_neighbour_is_the_estimate_with_twice_the_noise_around_it():
    found = report(tables())["neighbours"].estimate
    assert found.value == 0.002
    assert (found.low, found.high) == pytest.approx((0.002 - 2 * NOISE, 0.002 + 2 * NOISE))
    assert found.n == 990 * 3
    assert "␣great for <script> at position 1" in report(tables())["neighbours"].headline


@pytest.mark.parametrize(
    ("margin", "word"),
    [((0.5, 0.2, 0.1), "worse"), ((0.5, -1.5e-6, 1e-6), "ties"), ((0.5, -0.2, 0.1), "BETTER")],
)
def test_a_neighbour_within_twice_the_noise_is_a_tie(margin, word):
    assert word in report(tables(margin=margin))["neighbours"].headline


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("ends", "ahead", "beats"),
    [
        ({"random search": 4.0, "coordinate ascent": 5.3}, -0.3, False),
        ({"random search": 4.0, "coordinate ascent": 5.0 + 1.9 * NOISE}, -1.9 * NOISE, False),
        ({"random search": 4.0, "coordinate ascent": 5.0 - 1.9 * NOISE}, 1.9 * NOISE, False),
        ({"random search": 4.0, "coordinate ascent": 5.0 - 2.1 * NOISE}, 2.1 * NOISE, True),
        ({"random search": 4.0, "coordinate ascent": 4.5}, 0.5, True),
    ],
)
def test_the_strongest_baseline_is_the_one_spoken_of_in_either_direction(ends, ahead, beats, sign):
    results = report(tables(ends=ends, sign=sign), goal="optimal" if sign > 0 else "pessimal")
    assert results["curve"].estimate.value == pytest.approx(ahead, abs=1e-12)
    assert "coordinate ascent" in results["curve"].headline
    assert (" is ahead of " in results["curve"].headline) is beats
    assert results["sequences"].summary["beats_coordinate_ascent"] is beats
    assert results["sequences"].summary["beats_random"] is True
    assert "beats_beam" not in results["sequences"].summary


def test_without_baselines_and_where_all_were_scored_nothing_is_said_to_be_beaten():
    alone = report(tables(ends={}))
    assert alone["curve"].estimate is None
    assert alone["curve"].notes
    assert not [key for key in alone["sequences"].summary if key.startswith("beats")]
    assert report(exhaustive(), **EXHAUSTIVE)["curve"].headline == ""


def test_checks_that_do_not_apply_are_not_counted():
    found = report(tables())["ladder"]
    assert (found.estimate.value, found.estimate.n) == (1, 2)
    assert "1 not tried" in found.headline


def test_one_token_and_all_pairs_are_exact_and_have_no_restarts():
    given = tables(ends={})
    one = {name: given[name].head(1) for name in ("sequences", "neighbours", "provenance", "curve")}
    exact = report(one, length=1, exact=True)
    assert "found" not in exact["sequences"].headline
    assert exact["curve"].plot is None  # one point is no curve
    assert report(exhaustive(), **EXHAUSTIVE)["sequences"].plot is None
    assert report(tables())["sequences"].plot is not None


@pytest.mark.parametrize(
    ("goal", "second"), [("optimal", "next of top_pairs"), ("pessimal", "next of bottom_pairs")]
)
def test_the_second_of_all_pairs_is_that_of_the_goals_end(goal, second):
    sign = 1 if goal == "optimal" else -1
    given = exhaustive() | {"sequences": tables(sign=sign)["sequences"]}
    results = report(given, goal=goal, **EXHAUSTIVE)
    [name] = [n for n in ("top_pairs", "bottom_pairs") if results[n].headline]
    assert second in results[name].headline
    assert results[name].estimate.value == pytest.approx(0.01)
    assert set(results[name].table["end"]) == {"top" if sign > 0 else "bottom"}


def test_an_exhaustive_search_claims_less_of_ties_of_texts_and_in_low_precision():
    tied = report(exhaustive(second=1e-6), **EXHAUSTIVE)["top_pairs"]
    assert "ties" in tied.headline
    assert tied.notes
    assert not report(exhaustive(), mode="text", **EXHAUSTIVE)[
        "top_pairs"
    ].headline  # the second is no text's
    assert not report(exhaustive(), dtype="bfloat16", **EXHAUSTIVE)["top_pairs"].headline


def test_of_all_pairs_those_that_reach_the_best_for_sure_are_counted():
    given = exhaustive()
    given["standing"] = pd.DataFrame(
        {
            "result": ["pruned", "beam", "restart 0", "random search"],
            "pair": ["p", "b", "r", " s"],
            "reward": [5.0, 5.0, 4.0, 1.0],
            "rank": [1, 1, 3, 900],
            "rank_most": [1, 2, 3, 950],
            "of": 980_100,
        }
    )
    found = report(given, **EXHAUSTIVE)["standing"].estimate
    assert (found.value, found.n) == (1, 4)


def test_gradients_are_judged_at_the_random_response():
    found = report(tables())
    assert found["gradient_quality"].estimate.value == pytest.approx(2 / 3)
    assert found["sequences"].summary["gradient_within_top_k_share"] == pytest.approx(2 / 3)
    assert "6.5%" in found["gradient_quality"].headline  # 64 of 989 by guessing


def test_growth_is_of_the_best_of_each_length_and_needs_two():
    found = report(tables())["growth"].estimate
    assert (found.value, found.n) == (pytest.approx(2.0), 3)
    worst = report(tables(sign=-1), goal="pessimal")["growth"].estimate
    assert worst.value == pytest.approx(-2.0)
    assert report(tables() | {"growth": tables()["growth"].tail(1)})["growth"].plot is None


def test_the_summary_holds_what_searches_are_compared_by():
    summary = report(tables())["sequences"].summary
    assert summary["best_reward"] == 5.0
    assert summary["best_text"] == "".join(TOKENS)
    assert summary["smallest_margin"] == 0.002
    assert summary["evaluations"] == 20_000
    assert summary["beats_beam"] is True
    assert summary["survives"] is True
    assert (summary["length"], summary["goal"], summary["verdict"]) == (3, "optimal", "1-opt")
    json.dumps(summary)  # as it is written, and as W&B takes it
    assert summary["found_by"] == "random changes, polish"
    assert report(tables(survives=False))["sequences"].notes


def test_a_baseline_of_a_smaller_budget_is_not_said_to_be_beaten_at_equal_ones():
    given = tables(ends={"beam": 4.0})
    given["curve"].loc[given["curve"]["method"] == "beam", "evaluations"] = [100, 500]
    equal, small = report(tables(ends={"beam": 4.0}))["curve"], report(given)["curve"]
    assert "20,000 evaluations each" in equal.headline
    assert "500 evaluations, the search had 20,000" in small.headline
    assert small.weight < equal.weight


@pytest.mark.parametrize("given", ["whole", "bare", "exhaustive"])
def test_every_declared_figure_can_be_drawn_and_every_table_stored(given, tmp_path):
    held = exhaustive() if given == "exhaustive" else tables()
    if given == "bare":
        held = {name: held[name] for name in ("sequences", "provenance")}
    results = search_results(held, About(**(NUMBERS | (EXHAUSTIVE if given == "exhaustive" else {}))))
    drawn = save_figures(results, tmp_path)
    assert set(drawn) == {r.name for r in results if r.plot}
    for result in results:
        result.table.to_parquet(tmp_path / f"{result.name}.parquet")
