"""What match counts tell of Elo scores: against maximum likelihood, and ranks whose truth is known."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import rankdata

from pessimal.analysis.elo import POINTS, least_error, rank_intervals, reliability
from pessimal.errors import TableError


def crowd(items: int = 1500, *, seed: int = 0) -> tuple[np.ndarray, pd.Series, pd.Series]:
    """True strengths, scores as uncertain as their matches leave them at best, and the matches."""
    rng = np.random.default_rng(seed)
    matches = pd.Series(rng.lognormal(np.log(150), 1, size=items).astype(int).clip(5))
    true = rng.normal(1200, 120, size=items)
    return true, pd.Series(true + least_error(matches) * rng.normal(size=items)), matches


def test_the_least_error_is_that_of_maximum_likelihood_against_equal_opponents():
    """400 matches, half of them won: the standard error of a logistic regression, in Elo points."""
    fitted = sm.Logit(np.tile([0.0, 1.0], 200), np.ones(400)).fit(disp=False)
    assert least_error(pd.Series([400])).iloc[0] == pytest.approx(POINTS * fitted.bse[0], rel=1e-6)


def test_ratings_estimated_from_simulated_matches_scatter_as_far_as_it_says_and_no_less():
    rng = np.random.default_rng(0)
    for chance, at_least in ((0.5, 1.0), (0.85, 1.2)):  # unequal opponents tell less
        won = rng.binomial(500, chance, size=20_000)
        scatter = np.std(POINTS * np.log(won / (500 - won)))
        ratio = scatter / least_error(pd.Series([500])).iloc[0]
        assert ratio > 0.99 * at_least
    assert ratio == pytest.approx(0.5 / np.sqrt(0.85 * 0.15), rel=0.02)


def test_reliability_is_the_squared_correlation_of_scores_with_the_truth():
    true, elo, matches = crowd(20_000)
    assert reliability(elo, matches) == pytest.approx(np.corrcoef(true, elo)[0, 1] ** 2, abs=0.01)


def test_true_ranks_lie_in_their_interval_as_often_as_promised_at_the_ends_too():
    covered = []
    for seed in range(4):
        true, elo, matches = crowd(seed=seed)
        table = rank_intervals(elo, matches, seed=seed, draws=400)
        rank = rankdata(-true)
        inside = (table["low"] <= rank) & (rank <= table["high"])
        at_ends = (table["rank"] <= 50) | (table["rank"] > 1450)
        covered.append([inside.mean(), inside[at_ends].mean()])
    everywhere, ends = np.mean(covered, axis=0)
    assert 0.935 < everywhere < 0.965
    assert 0.91 < ends < 0.98  # adding the error to the scores once more: .84


def test_more_matches_leave_less_doubt():
    _, elo, _ = crowd()
    few, many = (rank_intervals(elo, pd.Series(n, index=elo.index)) for n in (40, 4000))
    assert ((few["high"] - few["low"]).mean()) > 5 * (many["high"] - many["low"]).mean()
    assert many["error"].unique() == pytest.approx(few["error"].unique() / 10)


def test_ranks_are_ours_and_lie_in_their_interval():
    elo = pd.Series([1300.0, 1200, 1200, 1000], index=["a", "b", "c", "d"])
    table = rank_intervals(elo, pd.Series([100, 100, 100, 100], index=elo.index))
    assert table["rank"].tolist() == [1, 2.5, 2.5, 4]
    assert ((table["low"] <= table["rank"]) & (table["rank"] <= table["high"])).all()
    assert list(table.index) == list(elo.index)
    pd.testing.assert_frame_equal(table, rank_intervals(elo, pd.Series(100, index=elo.index)))


def test_what_tells_nothing_of_an_order_is_refused():
    elo = pd.Series([1300.0, 1200, 1100], index=["a", "b", "c"])
    with pytest.raises(TableError, match=r"1 of 3 items has no count of matches.*'b'.*Leave it out"):
        least_error(pd.Series([10, 0, 10], index=elo.index))
    with pytest.raises(TableError, match="they order nothing"):
        reliability(elo, pd.Series(4, index=elo.index))
    with pytest.raises(TableError, match="draws=10"):
        rank_intervals(elo, pd.Series(400, index=elo.index), draws=10)
