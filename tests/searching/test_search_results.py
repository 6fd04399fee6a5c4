"""What a search reports: its numbers, what is ahead of what, and that nothing is claimed that was
not measured."""

import json
from types import SimpleNamespace

import pandas as pd
import pytest

from pessimal.searching.results import search_results
from pessimal.searching.spec import Goal

NOISE = 1e-6
TOKENS = [" good", "<script>", "\n自由"]


def tables(
    *, margin=(0.5, 0.002, 0.1), ends=None, survives=True, sign=1
) -> dict[str, pd.DataFrame]:
    """What Results are made of: a search of three tokens that ends at ±5, its baseline where
    `ends` says (towards the goal)."""
    ends = {"random search": 4.0} if ends is None else ends
    curve = [
        (method, evaluations, sign * share * end)
        for method, end in ({"search": 5.0} | ends).items()
        for evaluations, share in ((100, 0.5), (20_000, 1.0))
    ]
    candidates = {
        "start": ["random", "registry", "repeat"],
        "found_by": ["random changes, polish", "gradient", "baseline: random search"],
        "token_ids": [json.dumps([1, 2, 3])] * 3,
        "text": ["".join(TOKENS), "second", "third"],
        "reward": [sign * 5.0, sign * 4.7, sign * 4.6],
        "survives": [survives, True, False],
        "one_opt": pd.array([True, True, None], dtype="boolean"),
    }
    rows = {
        "candidates": candidates,
        "result": {name: column[:1] for name, column in candidates.items()}
        | {"ceiling": sign * 8.0, "ceiling_share": 0.62},
        "certificate": {
            "position": range(3),
            "token": TOKENS,
            "neighbour": [" fine", " great", " joy"],
            "margin": margin,
        },
        "checks": {
            "check": "claim",
            "verdict": ["holds", "fails", "not tried"],
            "meaning": "meant",
        },
        "contexts": {"context": ["greatest"], "part": ["searched"]},
    }
    made = {name: pd.DataFrame(columns) for name, columns in rows.items()}
    return made | {"curve": pd.DataFrame(curve, columns=["method", "evaluations", "reward"])}


def report(given, *, goal=Goal.optimal, length=3, exact=False, begun_from=""):
    """Results by name."""
    found = SimpleNamespace(
        context=SimpleNamespace(
            spec=SimpleNamespace(goal=goal, length=length),
            prompts={"greatest": "?"},
            dtype=SimpleNamespace(value="float32"),
            named_slot=None,
            policy=None,
        ),
        certificate=SimpleNamespace(evaluations=1 + 989 * 3, changes=989 * 3),
        evaluations=20_000,
        noise=NOISE,
        verdict="1-opt",
        exact=exact,
        begun_from=begun_from,
        sign=goal.sign,
    )
    return {result.name: result for result in search_results(given, found)}


def test_the_response_comes_first_every_table_is_kept_and_the_summary_holds_what_searches_are_compared_by():
    given = tables()
    results = report(given)
    assert next(iter(results)) == "result"
    assert results.keys() == given.keys()
    for name, result in results.items():
        assert len(result.headline.split()) <= 25
        pd.testing.assert_frame_equal(result.table, given[name])
    summary = results["result"].summary
    json.dumps(summary)  # as it is written, and as W&B takes it
    assert {k: v for k, v in summary.items() if not k.startswith("beats")} == {
        "best_reward": 5.0,
        "best_text": "".join(TOKENS),
        "found_by": "random changes, polish",
        "length": 3,
        "goal": "optimal",
        "verdict": "1-opt",
        "exact": False,
        "evaluations": 20_000,
        "survives": True,
        "smallest_margin": 0.002,
        "ceiling": 8.0,
        "ceiling_share": 0.62,
    }
    assert report(tables(survives=False))["result"].notes
    checks = results["checks"].estimate
    assert (checks.value, checks.n) == (1, 2), "what was not tried is not counted"


@pytest.mark.parametrize(
    ("margin", "word"), [((0.5, 0.2, 0.1), "worse"), ((0.5, -1.5e-6, 1e-6), "ties")]
)
def test_the_closest_neighbour_is_the_estimate_with_twice_the_noise_around_it(margin, word):
    found = report(tables(margin=margin))["certificate"]
    assert word in found.headline
    assert found.estimate.value == min(margin)
    assert (found.estimate.low, found.estimate.high) == pytest.approx(
        (min(margin) - 2 * NOISE, min(margin) + 2 * NOISE)
    )
    assert found.estimate.n == 989 * 3


@pytest.mark.parametrize("goal", [Goal.optimal, Goal.pessimal])
@pytest.mark.parametrize(
    ("end", "beats", "word"), [(4.0, True, "ahead"), (6.0, False, "trails"), (5.0, False, "ties")]
)
def test_ahead_is_farther_towards_the_goal(goal, end, beats, word):
    results = report(tables(ends={"random search": end}, sign=goal.sign), goal=goal)
    assert results["result"].summary["beats_random"] is beats
    assert results["curve"].estimate.value == pytest.approx(5.0 - end)
    assert word in results["curve"].headline
