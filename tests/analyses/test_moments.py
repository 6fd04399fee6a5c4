"""Moments: scipy's numbers, and standard errors that a simulation confirms."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.analyses.extremes import density, moments


def test_moments_are_those_of_scipy_and_numpy():
    rewards = pd.DataFrame(
        {"a": stats.gamma.rvs(2, size=500, random_state=0), "b": np.linspace(-3, 5, 500)}
    )
    table = moments(rewards).set_index("model")
    for model in rewards:
        assert table.loc[model, "mean"] == pytest.approx(rewards[model].mean())
        assert table.loc[model, "variance"] == pytest.approx(np.var(rewards[model]))
        assert table.loc[model, "skewness"] == pytest.approx(
            stats.skew(rewards[model], bias=True), abs=1e-12
        )
    assert (table["n"] == 500).all()


def test_standard_errors_are_the_spread_over_samples():
    """400 models are 400 samples of 800 items from one skewed law."""
    samples = pd.DataFrame(np.random.default_rng(0).gamma(4, size=(800, 400)))
    table = moments(samples)
    for name in ("mean", "variance", "skewness"):
        assert table[f"{name}_se"].mean() == pytest.approx(table[name].std(), rel=0.12)


def test_the_binned_density_is_the_kernel_density():
    values = np.random.default_rng(0).normal(size=20_000)
    grid, height = density(values)
    assert height == pytest.approx(np.exp(-(grid**2) / 2), abs=0.05)
