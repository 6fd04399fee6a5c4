"""Moments: scipy's numbers, and standard errors that a simulation confirms."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.compare.moments import density, moments
from pessimal.errors import TableError


def test_moments_are_those_of_scipy_and_numpy():
    rewards = pd.DataFrame({"a": stats.gamma.rvs(2, size=500, random_state=0), "b": np.linspace(-3, 5, 500)})
    table = moments(rewards).set_index("model")
    for model in rewards:
        assert table.loc[model, "mean"] == pytest.approx(rewards[model].mean())
        assert table.loc[model, "variance"] == pytest.approx(np.var(rewards[model]))
        assert table.loc[model, "skewness"] == pytest.approx(stats.skew(rewards[model], bias=True), abs=1e-12)
    assert (table["n"] == 500).all()


def test_standard_errors_are_the_spread_over_samples():
    """400 models are 400 samples of 800 items from one skewed law."""
    samples = pd.DataFrame(np.random.default_rng(0).gamma(4, size=(800, 400)))
    table = moments(samples)
    for name in ("mean", "variance", "skewness"):
        assert table[f"{name}_se"].mean() == pytest.approx(table[name].std(), rel=0.12)


def test_skewness_has_no_scale_and_a_sign():
    rewards = pd.DataFrame({"a": np.random.default_rng(0).gamma(2, size=300)})
    rewards = rewards.assign(scaled=100 * rewards["a"] - 7, turned=-rewards["a"])
    skewness = moments(rewards)["skewness"]
    assert skewness[1] == pytest.approx(skewness[0])
    assert skewness[2] == pytest.approx(-skewness[0])


def test_single_precision_rewards_are_summed_in_double():
    rewards = pd.DataFrame({"a": np.random.default_rng(0).normal(1000, 1, size=50_000).astype(np.float32)})
    pd.testing.assert_frame_equal(moments(rewards), moments(rewards.astype(float)), check_exact=True)


def test_a_constant_model_has_no_skewness():
    table = moments(pd.DataFrame({"flat": [2.0, 2.0, 2.0, 2.0]}))
    assert table.loc[0, ["mean", "variance"]].tolist() == [2, 0]
    assert np.isnan(table.loc[0, "skewness"])


def test_a_missing_reward_is_refused():
    with pytest.raises(TableError, match=r"a \(1\), of 3 items"):
        moments(pd.DataFrame({"a": [1.0, np.nan, 2.0]}))


def test_the_binned_density_is_the_kernel_density():
    values = np.random.default_rng(0).normal(size=20_000)
    grid, height = density(values)
    assert height == pytest.approx(np.exp(-(grid**2) / 2), abs=0.05)
