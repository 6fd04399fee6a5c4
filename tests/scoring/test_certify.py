"""Certified ranks: the truth is known here, so a certificate can be caught lying."""

import numpy as np
import pytest

from pessimal.scoring.trust import certify, certify_tails


def test_float32_rank_is_certain_only_beyond_the_noise():
    result = certify(np.array([0.0, 1.0, 1.0 + 1e-7, 3.0, 3.0]), noise=1e-6)
    assert result.certified.tolist() == [True, False, False, False, False]


def test_rank_is_certain_from_twice_the_noise_on_as_both_rewards_err():
    result = certify(np.array([0.0, 1.9, 4.0]), noise=1.0)
    assert result.certified.tolist() == [False, False, True]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("k", [1, 10, 100])
def test_tails_of_a_noisy_scan_become_the_true_tails(seed, k):
    random = np.random.default_rng(seed)
    truth = random.normal(size=20_000)
    noisy = truth + random.uniform(-0.02, 0.02, size=truth.size)
    asked = []

    def rescore(rows):
        asked.extend(rows)
        return truth[rows]

    result = certify_tails(noisy, rescore, k=k, noise=0.0)
    top, bottom = np.argsort(-truth)[:k], np.argsort(truth)[:k]
    assert set(np.argsort(-result.rewards)[:k]) == set(top)
    assert result.certified[top].all()
    assert result.certified[bottom].all()
    assert (result.rewards[result.exact] == truth[result.exact]).all()
    assert len(asked) == len(set(asked)) < truth.size / 5, "each row once, and few of them"
    # A certificate is a statement about rank in the whole vocabulary.
    rank = np.argsort(np.argsort(truth))
    claimed = np.argsort(np.argsort(result.rewards))
    assert (rank[result.certified] == claimed[result.certified]).all()


def test_equal_rewards_are_never_certain():
    result = certify_tails(np.zeros(500), lambda rows: np.zeros(len(rows)), k=5, noise=0.0)
    assert not result.certified.any()
