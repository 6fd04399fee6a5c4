"""Features and rewards within groups, against naive computations."""

import itertools

import numpy as np
import pandas as pd
import pytest
from planted_rollouts import PHRASE, make_rollouts
from scipy import sparse

from pessimal.rollout_analysis.features import Feature, Features, make_features
from pessimal.rollout_analysis.within import (
    FeatureTest,
    center,
    difference,
    name_paid,
    p_of_largest,
    select_forward,
)

GROUPS = np.repeat(np.arange(40), 6)


@pytest.fixture(scope="module")
def frame():
    return make_rollouts(share=0.3)


@pytest.fixture(scope="module")
def features(frame):
    return make_features(frame["response"], frame["prompt"], GROUPS)


def naive_phi(values, rewards, groups) -> float:
    values, rewards = values.copy(), rewards.copy()
    for group in set(groups):
        values[groups == group] -= values[groups == group].mean()
        rewards[groups == group] -= rewards[groups == group].mean()
    return values @ rewards / np.sqrt((values @ values) * (rewards @ rewards) + 1e-300)


def test_phi_and_live_groups_are_those_of_a_naive_computation(features):
    rewards = np.random.default_rng(1).normal(size=240)
    rewards[:60] = 1
    rows = np.arange(240) % 5 > 0
    test = FeatureTest(features, GROUPS, rows)
    phi = test.phi(center(rewards[rows], test.groups))
    live = test.live(rewards[rows])
    for index in range(0, len(features), 7):
        values = features.values(index)[rows]
        assert phi[index] == pytest.approx(naive_phi(values, rewards[rows], GROUPS[rows]), abs=1e-5)
        varying = [
            np.ptp(values[at]) > 1e-6 and np.ptp(rewards[rows][at]) > 1e-6
            for at in (GROUPS[rows] == group for group in range(40))
        ]
        assert live[index] == sum(varying)


def flags(*columns: np.ndarray) -> Features:
    """Features that have these columns (n,) of 0 and 1, and no numbers."""
    matrix = sparse.csr_matrix(np.stack(columns).astype(np.float32))
    names = [Feature("text", f"t{n}") for n in range(len(columns))]
    return Features(names, matrix, pd.DataFrame(index=range(len(columns[0]))), {})


@pytest.mark.parametrize("pairs", [False, True])
def test_p_is_the_share_of_all_permutations_that_go_as_far(pairs):
    random = np.random.default_rng(4)
    groups = np.repeat(np.arange(11), 2)
    columns = [np.tile([0, 1], 11), *(np.tile([0, 1], 11)[random.permutation(22)] for _ in "ab")]
    rewards = columns[0] * random.random(22) + 0.6 * random.normal(size=22)
    test = FeatureTest(flags(*columns), groups)
    centred = center(rewards, groups)
    phi = test.phi(centred)
    beyond = []
    for signs in itertools.product((-1, 1), repeat=11):  # of pairs a swap is a flip of the sign
        drawn = centred * np.repeat(signs, 2)
        largest = 0.0
        for index, column in enumerate(columns):
            if test.live(rewards)[index] >= 10:
                largest = max(largest, abs(naive_phi(column.astype(float), drawn, groups)))
        beyond.append(largest >= abs(phi[0]) - 1e-9)
    p = p_of_largest(phi[0], test.largest(rewards, pairs=pairs, draws=2000))
    assert p == pytest.approx(np.mean(beyond), abs=0.04)
    assert p_of_largest(2.0, np.ones(3)) == 1 / 4, "the data are one of the draws"
    family = np.array([0])
    assert test.largest(rewards, family).max() <= test.largest(rewards).max() + 1e-9


def test_a_difference_is_the_slope_with_dummies_of_groups_and_errors_by_group():
    random = np.random.default_rng(5)
    values, rewards = random.integers(0, 2, 240).astype(float), random.normal(size=240)
    slope, error = difference(values, rewards, GROUPS)
    dummies = np.eye(40)[GROUPS]
    design = np.column_stack([values, dummies])
    beta = np.linalg.lstsq(design, rewards, rcond=None)[0]
    left = rewards - design @ beta
    has = center(values, GROUPS)
    meat = sum(float(has[g == GROUPS] @ left[g == GROUPS]) ** 2 for g in range(40))
    assert slope == pytest.approx(beta[0])
    assert error == pytest.approx(np.sqrt(meat * 40 / 39) / (has @ has))


def test_forward_selection_finds_two_planted_features_and_stops(features, frame):
    has = frame["response"].str.contains(PHRASE).to_numpy(float)
    total = frame["response"].str.contains(" total").to_numpy(float)
    rewards = 2 * has - total + 0.3 * np.random.default_rng(6).normal(size=240)
    test = FeatureTest(features, GROUPS)
    options = {"responses": frame["response"].tolist()}
    names = [choice.feature.name for choice in select_forward(test, rewards, **options)]
    assert len(names) == 2
    assert names[0].strip() == PHRASE
    assert "total" in names[1]
    paid = select_forward(test, rewards, positive=True, **options)
    assert [choice.feature.name for choice in paid] == names[:1]
    assert paid[0].p < 0.01
    assert select_forward(test, rewards, explained=[has, total]) == []


def test_both_halves_name_a_planted_feature_with_its_size_and_lengths_first(features, frame):
    has = frame["response"].str.contains(PHRASE).to_numpy(float)
    noise = 0.3 * np.random.default_rng(7).normal(size=240)
    rows = name_paid(features, GROUPS, has + noise)
    sizes = {features.features[int(row["index"])].name: row for row in rows}
    row = sizes[f" {PHRASE}"]
    assert row["low"] < 1 < row["high"]
    assert row["p_corrected"] < 0.05
    rows = name_paid(features, GROUPS, 0.1 * frame["response"].str.len().to_numpy() + noise)
    assert int(rows[0]["index"]) in features.length_numbers


def test_what_is_paid_stands_before_a_length_that_goes_with_it():
    random = np.random.default_rng(2)
    listed = random.random(360) < 0.5
    sizes = random.integers(8, 16, 360) + 6 * listed
    words = [" ".join(random.choice(list("abcdefgh"), size)) for size in sizes]
    responses = [f"- {text}" if item else text for text, item in zip(words, listed, strict=True)]
    groups = np.repeat(np.arange(60), 6)
    made = make_features(responses, ["Why?"] * 360, groups)
    rewards = listed + 0.2 * random.normal(size=360)
    first = made.features[int(name_paid(made, groups, rewards)[0]["index"])]
    assert first.kind != "length"
    rewards = sizes / 10 + 0.2 * random.normal(size=360)
    assert int(name_paid(made, groups, rewards)[0]["index"]) in made.length_numbers


def test_random_rewards_name_a_feature_in_about_one_of_twenty(features):
    rewards = np.random.default_rng(8).random((20, 240))
    count = sum(bool(name_paid(features, GROUPS, row, seed=n)) for n, row in enumerate(rewards))
    assert count <= 4  # P(more than 4 of 20 at 5 %) = .003
