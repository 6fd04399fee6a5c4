"""Least squares with errors for words: statsmodels, and leaving groups out by hand."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import multivariate_normal
from statsmodels.stats.multitest import multipletests

from pessimal.analyses.nulls import classical, interval, robust, taste
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


def test_textbook_errors_and_intervals_are_statsmodels():
    design, outcomes = random_design()
    fit = classical(design, outcomes)
    other = sm.OLS(outcomes[:, 0], design).fit()
    assert fit.errors[:, 0] == pytest.approx(other.bse)
    low, high, p = interval(fit.coefficients[:, 0], fit.errors[:, 0], fit.freedom, confidence=0.9)
    assert np.column_stack([low, high]) == pytest.approx(other.conf_int(0.1))
    assert p == pytest.approx(other.pvalues)


def test_holm_is_statsmodels():
    p = pd.Series(
        np.random.default_rng(0).uniform(size=40) ** 3,
        index=np.random.default_rng(1).permutation(40),
    )
    p.iloc[[3, 4]] = p.iloc[5]
    assert holm(p).tolist() == pytest.approx(multipletests(p, method="holm")[1])
