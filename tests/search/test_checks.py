"""Checks of a search's result: which numbers become which verdict."""

import pytest

from pessimal.search import checks


@pytest.mark.parametrize(("hits", "verdict"), [(8, "holds"), (7, "does not hold")])
def test_one_token_holds_only_where_every_restart_hits(hits, verdict):
    assert checks.one_token(hits, 8, 442.0).verdict == verdict


@pytest.mark.parametrize(
    ("gradient", "exact", "verdict"),
    [(1.0, 1.0, "holds"), (1.1, 1.0, "holds"), (0.9, 1.0, "does not hold"), (None, 1.0, "not applicable"), (1.0, None, "not applicable")],
)  # fmt: skip
def test_two_tokens_against_the_exact_search(gradient, exact, verdict):
    assert checks.two_tokens(gradient, exact, noise=1e-6).verdict == verdict


def test_restarts_agree_where_two_reach_the_best():
    assert checks.spread([2.0, 2.0 - 1e-7, 1.0], noise=1e-6).verdict == "holds"
    alone = checks.spread([2.0, 1.5, 1.0], noise=1e-6)
    assert alone.verdict == "does not hold"
    assert alone.measured == "1 of 3 end at the best; the others fall short by up to 1"


@pytest.mark.parametrize(("drift", "verdict"), [(1e-6, "holds"), (0.4, "holds"), (0.5, "tie"), (2.0, "tie")])
def test_a_margin_within_twice_the_drift_is_a_tie(drift, verdict):
    assert checks.scored_again(drift, 1.0).verdict == verdict


def test_a_search_must_be_ahead_of_every_baseline():
    assert checks.beats(2.0, {"random search": 1.0, "beam": 1.9}, budget=10, noise=1e-6).verdict == "holds"
    assert checks.beats(2.0, {"random search": 1.0, "beam": 2.0}, budget=10, noise=1e-6).verdict == "tie"
    behind = checks.beats(2.0, {"random search": 1.0, "beam": 2.1}, budget=1000, noise=1e-6)
    assert behind.verdict == "does not hold"
    assert "beam -0.1" in behind.measured
    assert checks.beats(2.0, {}, budget=10, noise=1e-6).verdict == "not applicable"


def test_the_table_has_a_row_a_check():
    table = checks.as_table([checks.one_token(8, 8, 1.0), checks.retokenizes(False)])
    assert table["rung"].tolist() == [1, 6]
    assert list(table) == ["rung", "check", "measured", "verdict", "meaning"]
