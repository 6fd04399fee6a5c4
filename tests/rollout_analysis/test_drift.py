"""Drift and growth against closed forms."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pessimal.rollout_analysis.drift import (
    KL,
    advantages,
    count_foretold,
    describe_signal,
    first_growth,
    forecast_drift,
    measure_growth,
)
from pessimal.rollout_analysis.features import Feature, Features

GROUPS = np.repeat(np.arange(60), 5)
N = len(GROUPS)


@pytest.fixture(scope="module")
def features() -> Features:
    """Two flags, the first of which goes with the rewards, and a number."""
    random = np.random.default_rng(0)
    matrix = sparse.csr_matrix(random.integers(0, 2, (2, N)).astype(np.float32))
    names = [Feature("text", "a"), Feature("text", "b"), Feature("length", "words (number)")]
    return Features(names, matrix, pd.DataFrame({"words": random.normal(size=N)}), {})


@pytest.fixture(scope="module")
def rewards(features) -> np.ndarray:
    return features.values(0) + 0.5 * np.random.default_rng(1).normal(size=N)


def test_advantages_are_those_of_the_trainer(rewards):
    ours = advantages(rewards, GROUPS)
    for group in range(60):
        own = rewards[group == GROUPS]
        expected = (own - own.mean()) / (own.std(ddof=1) + 1e-4)
        np.testing.assert_allclose(ours[group == GROUPS], expected)
    unscaled = advantages(rewards, GROUPS, scaled=False)
    np.testing.assert_allclose(unscaled[:5], rewards[:5] - rewards[:5].mean())
    assert not advantages(np.ones(N), GROUPS).any()


@pytest.mark.parametrize("scaled", [False, True])
def test_drift_is_the_covariance_and_what_an_exponential_tilt_does(features, rewards, scaled):
    table = forecast_drift(features, GROUPS, rewards, scaled=scaled)
    advantage = advantages(rewards, GROUPS, scaled=scaled)
    eta = np.sqrt(2 * KL / np.mean(advantage**2))
    tilt = np.exp(eta * advantage)
    tilt /= np.bincount(GROUPS, tilt)[GROUPS] / 5  # in each group the policy's mass stays
    divergence = np.mean(tilt * np.log(tilt))
    assert divergence == pytest.approx(KL, rel=0.15)
    for index in range(3):
        values = features.values(index)
        assert table["drift"][index] == pytest.approx(eta * np.mean(values * advantage), abs=1e-7)
        assert table["drift"][index] == pytest.approx(np.mean(values * (tilt - 1)), abs=0.012)
    assert table["drift"][0] > 0.03
    assert table["p_corrected"][0] < 0.001
    by_group = np.bincount(GROUPS, features.values(2) * eta * advantage) / 5
    width = (table["high"] - table["low"])[2] / 2
    assert width == pytest.approx(by_group.std(ddof=1) / np.sqrt(60) * 2.0, rel=0.01)


def test_right_and_wrong_parts_add_up_to_the_drift(features, rewards):
    truth = np.random.default_rng(2).integers(0, 2, N).astype(float)
    table = forecast_drift(features, GROUPS, rewards + truth, truth=truth)
    np.testing.assert_allclose(table["from_right"] + table["from_wrong"], table["drift"])
    clean = forecast_drift(features, GROUPS, truth, truth=truth)
    np.testing.assert_allclose(clean["from_wrong"], 0, atol=1e-12)
    assert "from_right" not in forecast_drift(features, GROUPS, rewards)


def test_growth_is_ordinary_least_squares_with_errors_by_group(features):
    step = (GROUPS // 6).astype(float)
    table = measure_growth(features, GROUPS, step)
    for index in range(3):
        design = np.column_stack([np.ones(N), step])
        bread = np.linalg.inv(design.T @ design)
        beta = bread @ design.T @ features.values(index)
        scores = design * (features.values(index) - design @ beta)[:, None]
        sums = np.array([scores[group == GROUPS].sum(axis=0) for group in range(60)])
        error = np.sqrt((bread @ sums.T @ sums @ bread)[1, 1] * 60 / 59)
        assert table["slope"][index] == pytest.approx(beta[1], abs=1e-9)
        half = (table["high"] - table["low"])[index] / 2
        assert half / 2.0017 == pytest.approx(error, rel=1e-3)  # t of 58 degrees of freedom


def test_growth_is_dated_and_compared_with_what_the_first_steps_foretold(features):
    step = (GROUPS // 6).astype(float)
    random = np.random.default_rng(3)
    late = (random.random(N) < np.where(step >= 6, 0.9, 0.1)).astype(float)
    assert 6 <= first_growth(late, GROUPS, step) <= 8
    assert np.isnan(first_growth(random.permutation(late), GROUPS, step))
    gone = np.minimum(step, 9 - step)  # it grows, and is lost again
    assert np.isnan(first_growth(gone, GROUPS, step))
    drift = pd.DataFrame({"drift": [0.1, 0.1, -0.1, 0.0]})
    growth = pd.DataFrame({"slope": [1.0, -1.0, -1.0, 1.0]})
    assert count_foretold(drift, growth, [0, 1, 2, 3]) == (2, 3)


def test_signal_counts_dead_groups_by_reward():
    groups = np.repeat(np.arange(4), 2)
    rewards = pd.DataFrame({"a": [1, 1, 0, 0, 0, 1, 1, 0], "b": [0.5] * 8})
    table = describe_signal(rewards, np.append(groups, 4)[:8]).set_index("reward")
    assert table.loc["a", ["dead", "all_largest", "all_least"]].tolist() == [0.5, 0.25, 0.25]
    assert table.loc["a", "variance_within"] == pytest.approx(0.5)
    assert table.loc["b", "dead"] == 1
    assert np.isnan(table.loc["b", "variance_within"])
    assert table["n"].tolist() == [4, 4]
