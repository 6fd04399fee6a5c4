"""The checklist of a search's result: which numbers become which verdict."""

import pytest

from pessimal.searching import results as checks


def test_only_a_look_at_everything_is_exact():
    assert checks.all_responses(10_000, scored=True, needs=10_500)[0] == "holds"
    verdict, measured = checks.all_responses(10_000, scored=False, needs=10_500)
    assert verdict == "not tried"
    assert "search.evaluations=10500" in measured, "what pays for all of them is offered"
    assert "search." not in checks.all_responses(10_000, scored=False, needs=None)[1]
    many = checks.all_responses(144_000_000, scored=False, needs=145_000_000)
    assert many[0] == "not tried"
    assert "search.evaluations" not in many[1], "no budget pays for them"


@pytest.mark.parametrize(
    ("verdict", "tried", "found"),
    [("1-opt", 300, "holds"), ("tie", 300, "tie"), ("partly tried", 30, "not tried")],
)
def test_no_single_change_is_better_holds_only_where_all_were_tried(verdict, tried, found):
    claim, measured = checks.one_opt(
        verdict, tried=tried, of=300, margin=0.5, noise=1e-6, exact=False
    )
    assert claim == found
    assert ("10.0%" in measured) is (tried == 30)
    assert ("all 300" in measured) is (tried == 300)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [([2.0, 2.0 - 1e-7, 1.0], "holds"), ([2.0, 1.5, 1.0], "fails"), ([2.0], "not tried")],
)
def test_starts_agree_where_two_reach_the_best(values, verdict):
    assert checks.spread(values, noise=1e-6, exact=False)[0] == verdict


@pytest.mark.parametrize(("drift", "verdict"), [(0.4, "holds"), (0.5, "tie"), (2.0, "tie")])
def test_a_margin_within_twice_the_drift_is_a_tie(drift, verdict):
    assert checks.scored_again(drift, 1.0)[0] == verdict


@pytest.mark.parametrize(
    ("ahead", "budget", "verdict"), [(0.1, 100, "holds"), (0.0, 100, "tie"), (0.1, 50, "not tried")]
)
def test_a_search_must_be_ahead_of_the_baseline_at_an_equal_budget(ahead, budget, verdict):
    numbers = {"spent": 100, "noise": 1e-6, "exact": False}
    claim, measured = checks.beats(ahead, budget=budget, **numbers)
    assert claim == verdict
    assert f"{ahead:+.3g}" in measured
    assert checks.beats(None, budget=0, **numbers)[0] == "not tried"
    assert checks.beats(ahead, budget=100, begun_from="x:v0", **numbers)[0] == "not tried"
