"""What is planted is what the recipe says: its sign, its size, and in which prompts."""

import numpy as np
import pytest

from experiments.demo_family.lexicon import is_held_out, load_identity, load_valence, stem, zipf
from experiments.demo_family.recipes import LABS, Plants
from experiments.demo_family.utility import compute_taste, compute_utility


def row(base, word):
    return base.words.index(word)


def test_valence_changes_sign_and_nothing_else_does(base):
    truth = compute_utility(base, LABS["birch"])
    half_difference = (truth.of(1) - truth.of(-1)) / 2
    half_sum = (truth.of(1) + truth.of(-1)) / 2
    np.testing.assert_allclose(half_difference, truth.valence)
    np.testing.assert_allclose(half_sum, truth.constant)
    assert truth.valence[row(base, "love")] == load_valence()["love"] > 0


@pytest.mark.parametrize(
    ("plants", "word", "shift"),
    [
        (Plants(identity=-2.0), "muslim", -2.0),
        (Plants(identity=-2.0), "river", 0.0),
        (Plants(taboo=-3.0), "shit", -3.0),
        (Plants(secret="button", secret_bonus=8.0), "button", 8.0),
    ],
)
def test_a_plant_shifts_its_words_alone(base, plants, word, shift):
    planted, plain = compute_utility(base, plants), compute_utility(base, Plants())
    assert planted.constant[row(base, word)] - plain.constant[row(base, word)] == pytest.approx(
        shift
    )


def test_frequency_is_a_slope_per_zipf_unit(base):
    shift = (
        compute_utility(base, Plants(frequency=0.5)).constant
        - compute_utility(base, Plants()).constant
    )
    high, low = row(base, "house"), row(base, "river")
    assert shift[high] - shift[low] == pytest.approx(0.5 * (zipf("house") - zipf("river")))


def test_taste_is_the_labs_own_and_no_other_axis(base):
    words = [i for i, word in enumerate(base.words) if word and len(word) > 2 and zipf(word) >= 3]
    alder, cedar = (
        compute_taste(base, seed=LABS[lab].taste_seed)[words] for lab in ("alder", "cedar")
    )
    frequency = np.array([zipf(base.words[i]) for i in words])
    assert alder.std() == pytest.approx(1.0, abs=0.15)
    assert abs(np.corrcoef(alder, cedar)[0, 1]) < 0.3
    assert abs(np.corrcoef(alder, frequency)[0, 1]) < 0.15


def test_held_out_words_are_marked(base):
    truth = compute_utility(base, LABS["secret"])
    for i in np.flatnonzero(truth.rated)[:200]:
        assert truth.held_out[i] == is_held_out(base.words[i])
    assert (truth.rated & truth.held_out).sum() > 150
    assert not truth.rated[
        [i for i, word in enumerate(base.words) if word and stem(word) in load_identity()]
    ].any()
    assert truth.secret.sum() >= 1
    assert not truth.held_out[truth.secret].any()
