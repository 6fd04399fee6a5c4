"""Tests and corrections that several rooms share, against brute force, scipy and their promise."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pessimal.statistics import holm_confidence, sign_flip


@pytest.mark.parametrize("two_sided", [True, False])
def test_few_signs_are_gone_through_all(two_sided):
    differences = np.array([0.3, -0.1, 0.4, 0.0, 0.2, 0.3])
    drawn = [
        np.mean(np.array(signs) * differences) for signs in itertools.product((1, -1), repeat=6)
    ]
    seen = differences.mean()
    reached = [(abs(mean) if two_sided else mean) >= seen - 1e-12 for mean in drawn]
    assert sign_flip(differences, two_sided=two_sided, permutations=100, seed=0) == pytest.approx(
        np.mean(reached)
    )
    oracle = stats.permutation_test(
        (differences,),
        lambda x, axis: x.mean(axis=axis),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
        alternative="two-sided" if two_sided else "greater",
    )
    assert np.mean(reached) == pytest.approx(oracle.pvalue)


def test_many_signs_are_drawn_and_none_gives_a_p_of_zero():
    differences = np.random.default_rng(2).normal(0.25, 1, size=30)
    drawn = sign_flip(differences, two_sided=True, permutations=20_000, seed=1)
    normal = 2 * stats.norm.sf(abs(differences.sum()) / np.sqrt((differences**2).sum()))
    assert drawn == pytest.approx(normal, abs=0.02)
    assert sign_flip(np.ones(40), two_sided=True, permutations=999, seed=1) == 1 / 1000
    assert sign_flip(np.zeros(40), two_sided=False, permutations=999, seed=1) == 1
    assert math.isnan(sign_flip(np.empty(0), two_sided=True, permutations=999, seed=1))


def test_the_confidence_of_an_interval_is_holms_and_what_was_not_tested_counts_for_nothing():
    p = pd.Series([0.01, 0.0, np.nan, 0.9, np.nan])  # 0 and a corrected 1 say no factor: all three
    assert holm_confidence(p, 0.95) == pytest.approx(1 - 0.05 / np.array([2, 3, 3, 1, 3]))
