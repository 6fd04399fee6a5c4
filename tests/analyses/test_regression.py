"""Least squares with errors for words: statsmodels, and leaving groups out by hand."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import multivariate_normal
from statsmodels.stats.multitest import multipletests

from pessimal.analyses import regression
from pessimal.analyses.regression import (
    classical,
    interval,
    random_heads,
    robust,
    taste,
)
from pessimal.errors import TableError
from pessimal.statistics import holm


def random_design(n: int = 60, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    design = np.column_stack([np.ones(n), rng.normal(size=n), rng.uniform(size=n)])
    return design, design @ rng.normal(size=(3, 2)) + rng.normal(size=(n, 2)) * (
        1 + design[:, [1]] ** 2
    )


def test_with_a_group_a_row_the_errors_are_statsmodels_hc3():
    design, outcomes = random_design()
    fit = robust(design, outcomes, np.arange(60))
    for column in range(2):
        other = sm.OLS(outcomes[:, column], design).fit(cov_type="HC3")
        assert fit.coefficients[:, column] == pytest.approx(other.params)
        assert fit.errors[:, column] == pytest.approx(other.bse)
    assert fit.freedom == 57


def test_with_larger_groups_the_errors_are_those_of_refits_without_each():
    design, outcomes = random_design()
    groups = np.random.default_rng(2).integers(0, 15, size=60) * 2  # odd numbers are absent
    fit = robust(design, outcomes, groups)
    refits = np.stack(
        [np.linalg.lstsq(design[groups != g], outcomes[groups != g])[0] for g in np.unique(groups)]
    )
    assert fit.errors == pytest.approx(np.sqrt(np.square(refits - fit.coefficients).sum(axis=0)))
    assert fit.freedom == len(np.unique(groups)) - 3


def test_taste_and_noise_are_where_the_restricted_likelihood_is_highest():
    design, outcomes = random_design()
    rng = np.random.default_rng(3)
    meanings = rng.normal(size=(60, 5))
    outcomes = outcomes + meanings @ rng.normal(size=(5, 2))
    found = taste(design, outcomes, meanings)
    contrasts = np.linalg.qr(np.column_stack([design, np.eye(60)]))[0][
        :, 3:60
    ]  # orthogonal to the design

    def likelihood(column: int, variance: float, noise: float) -> float:
        covariance = (
            contrasts.T @ (variance * meanings @ meanings.T + noise * np.eye(60)) @ contrasts
        )
        return multivariate_normal(cov=covariance).logpdf(contrasts.T @ outcomes[:, column])

    for column in range(2):
        at = found.variance[column], found.noise[column]
        best = likelihood(column, *at)
        for factors in ((1.05, 1), (0.95, 1), (1, 1.05), (1, 0.95)):
            assert likelihood(column, *np.multiply(at, factors)) < best
        covariance = at[0] * meanings @ meanings.T + at[1] * np.eye(60)
        left = outcomes[:, column] - design @ np.linalg.lstsq(design, outcomes[:, column])[0]
        projected = np.eye(60) - design @ np.linalg.solve(design.T @ design, design.T)
        inner = contrasts @ np.linalg.solve(contrasts.T @ covariance @ contrasts, contrasts.T)
        expected = projected @ (at[0] * meanings @ meanings.T) @ inner @ left
        assert found.residuals[:, column] == pytest.approx(left - expected, abs=1e-6)

    def least(column: int) -> float:
        return -2 * likelihood(column, found.variance[column], found.noise[column])

    assert found.unlikely[0] - found.unlikely[1] == pytest.approx(least(0) - least(1), abs=1e-6)


def test_of_two_spaces_the_one_counts_whose_heads_show_as_much_unless_it_is_ruled_out(monkeypatch):
    rng = np.random.default_rng(7)
    states = rng.normal(size=(300, 2, 10))
    design = np.column_stack([np.ones(300), states.sum(axis=1)[:, 0]])
    followed = np.einsum("nsd,sd->ns", states, rng.normal(size=(2, 10)))
    outcomes = followed + rng.normal(size=(300, 2))  # the second space's heads gave the second
    spaces = [
        random_heads(design, outcomes, np.arange(300), [states[:, [space]]] * 2)
        for space in range(2)
    ]
    found = random_heads(design, outcomes, np.arange(300), [states] * 2)
    for j in range(2):  # the other space is ruled out
        for one, alone in zip(found, spaces[j], strict=True):
            assert one[:, j] == pytest.approx(alone[:, j])
    monkeypatch.setattr(regression, "RULED_OUT", np.inf)
    worst = random_heads(design, outcomes, np.arange(300), [states] * 2)
    shares = np.array([one.share for one in spaces])
    assert worst.share == pytest.approx(shares.max(axis=0))
    assert (worst.share > found.share).any()


def test_random_heads_on_the_states_show_as_much_as_their_share_says():
    rng = np.random.default_rng(4)
    n, runs = 300, 400
    states = rng.normal(size=(n, 1, 20))
    design = np.column_stack([np.ones(n), states[:, 0, 0] + rng.normal(size=n)])
    outcomes = states[:, 0] @ rng.normal(size=(20, runs)) + 2 * rng.normal(size=(n, runs))
    fit = robust(design, outcomes, np.arange(n))
    p = interval(fit.coefficients[1], fit.errors[1], fit.freedom, confidence=0.95)[2]
    untrained = random_heads(design, outcomes, np.arange(n), [states] * runs)
    assert (p < 0.05).mean() > 0.3
    assert 0.02 < (untrained.share[1] < 0.05).mean() < 0.085
    assert np.sqrt((untrained.error[1] ** 2).mean()) == pytest.approx(
        fit.coefficients[1].std(), rel=0.1
    )


def test_without_a_taste_random_heads_spread_as_the_errors_say():
    design, outcomes = random_design(400)
    states = np.random.default_rng(5).normal(size=(400, 1, 5))
    groups, outcomes = np.arange(400) // 2, outcomes - outcomes.mean(axis=0)
    untrained = random_heads(design, outcomes, groups, [states] * outcomes.shape[1])
    assert untrained.error == pytest.approx(robust(design, outcomes, groups).errors, rel=0.1)


def test_rows_without_states_are_left_out_and_outcomes_have_states_of_their_own():
    design, outcomes = random_design(400)
    rng = np.random.default_rng(6)
    first, second = rng.normal(size=(2, 400, 1, 5))
    outcomes = outcomes + np.column_stack([first[:, 0, 0], second[:, 0, 0]])
    groups, slope = np.arange(400), np.array([[0.0, 1.0, 1.0]]).T[: design.shape[1]]
    whole = random_heads(design, outcomes, groups, [first, second], slope)
    one = random_heads(design, outcomes[:, 1:], groups, [second], slope)
    assert whole.share[:, 1:] == pytest.approx(one.share)
    first[300:] = np.nan
    less = random_heads(design, outcomes, groups, [first, second], slope)
    kept = random_heads(
        design[:300], outcomes[:300], groups[:300], [first[:300], second[:300]], slope
    )
    assert less.share[:, 0] == pytest.approx(kept.share[:, 0])
    first[10:] = np.nan
    assert np.isnan(random_heads(design, outcomes, groups, [first, second], slope).share).all()


def test_textbook_errors_and_intervals_are_statsmodels():
    design, outcomes = random_design()
    fit = classical(design, outcomes)
    other = sm.OLS(outcomes[:, 0], design).fit()
    assert fit.errors[:, 0] == pytest.approx(other.bse)
    low, high, p = interval(fit.coefficients[:, 0], fit.errors[:, 0], fit.freedom, confidence=0.9)
    assert np.column_stack([low, high]) == pytest.approx(other.conf_int(0.1))
    assert p == pytest.approx(other.pvalues)


def test_one_group_that_alone_decides_a_slope_is_refused():
    design = np.column_stack([np.ones(20), np.r_[np.zeros(19), 1.0]])
    with pytest.raises(TableError, match="One group of rows alone decides"):
        robust(design, np.random.default_rng(0).normal(size=(20, 1)), np.arange(20))


def test_dependent_columns_and_too_few_groups_are_refused():
    design = np.column_stack([np.ones(20), np.full(20, 2.0)])
    with pytest.raises(TableError, match="depend on one another"):
        robust(design, np.ones((20, 1)), np.arange(20))
    with pytest.raises(TableError, match="more than 2 groups of rows; given were 2"):
        robust(np.column_stack([np.ones(20), np.arange(20.0)]), np.ones((20, 1)), np.arange(20) % 2)


def test_holm_leaves_missing_values_out_of_the_count():
    corrected = holm(pd.Series([0.01, np.nan, 0.04, 0.03]))
    assert corrected.tolist() == pytest.approx([0.03, np.nan, 0.06, 0.06], nan_ok=True)
    assert holm(pd.Series([np.nan])).isna().all()


def test_holm_is_statsmodels():
    p = pd.Series(
        np.random.default_rng(0).uniform(size=40) ** 3,
        index=np.random.default_rng(1).permutation(40),
    )
    p.iloc[[3, 4]] = p.iloc[5]
    assert holm(p).tolist() == pytest.approx(multipletests(p, method="holm")[1])
