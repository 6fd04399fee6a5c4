"""Heads that are drawn at random: their shares against closed forms, and how often they reject."""

import numpy as np
import pytest
from scipy import stats

from pessimal.analyses import nulls
from pessimal.analyses.nulls import interval, random_head_share, random_heads, robust, slopes


def random_design(n: int = 400, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    design = np.column_stack([np.ones(n), rng.normal(size=n), rng.uniform(size=n)])
    return design, rng.normal(size=(n, 2)) * (1 + design[:, [1]] ** 2)


@pytest.mark.parametrize("taste", [0.2, 0.67])
def test_shares_are_those_of_the_closed_form(taste):
    """A slope a'y of y = H w + e is normal, with the variance |a'H|² var(w) + |a|² var(e)."""
    rng = np.random.default_rng(3)
    states = rng.normal(size=(500, 1, 40))
    design = np.column_stack([np.ones(500), states[:, 0, :4].sum(axis=1) + rng.normal(size=500)])
    outcomes = np.sqrt(taste / 40) * states[:, 0] @ rng.normal(size=(40, 30))
    outcomes += np.sqrt(1 - taste) * rng.normal(size=outcomes.shape)
    heads = random_heads(slopes(design), outcomes, [states] * 30, design, np.arange(500))
    weights = np.linalg.pinv(design)[1]
    centred = states[:, 0] - states[:, 0].mean(axis=0)
    variance = np.square(weights @ centred).sum() * taste / 40 + np.square(weights).sum() * (
        1 - taste
    )
    expected = 2 * stats.norm.sf(np.abs(weights @ outcomes) / np.sqrt(variance))
    assert heads.share[1] == pytest.approx(expected, abs=0.15)  # strengths are estimated
    assert np.mean(heads.share[1] - expected) == pytest.approx(0, abs=0.03)
    assert heads.band[1].mean() == pytest.approx(1.96 * np.sqrt(variance), rel=0.1)


def test_of_two_spaces_the_one_counts_whose_heads_show_as_much_unless_it_is_ruled_out(monkeypatch):
    rng = np.random.default_rng(7)
    states = rng.normal(size=(300, 2, 10))
    design = np.column_stack([np.ones(300), states.sum(axis=1)[:, 0]])
    followed = np.einsum("nsd,sd->ns", states, rng.normal(size=(2, 10)))
    outcomes = followed + rng.normal(size=(300, 2))  # the second space's heads gave the second

    def share(spaces) -> np.ndarray:
        arrays = [states[:, spaces]] * 2
        return random_heads(slopes(design), outcomes, arrays, design, np.arange(300)).share

    alone = np.array([share([space]) for space in range(2)])  # (spaces, coefficients, outcomes)
    both = share([0, 1])
    for j in range(2):  # the other space is ruled out
        assert both[1, j] == pytest.approx(alone[j, 1, j], rel=0.2, abs=0.01)
    monkeypatch.setattr(nulls, "RULED_OUT", np.inf)
    worst = share([0, 1])
    assert worst == pytest.approx(alone.max(axis=0), rel=0.2, abs=0.01)
    assert (worst > both).any()


def test_random_heads_on_the_states_show_as_much_as_their_share_says():
    rng = np.random.default_rng(4)
    n, runs = 300, 400
    states = rng.normal(size=(n, 1, 20))
    design = np.column_stack([np.ones(n), states[:, 0, 0] + rng.normal(size=n)])
    outcomes = states[:, 0] @ rng.normal(size=(20, runs)) + 2 * rng.normal(size=(n, runs))
    fit = robust(design, outcomes, np.arange(n))
    p = interval(fit.coefficients[1], fit.errors[1], fit.freedom, confidence=0.95)[2]
    heads = random_heads(slopes(design), outcomes, [states] * runs, design, np.arange(n))
    assert (p < 0.05).mean() > 0.3
    assert 0.02 < (heads.share[1] < 0.05).mean() < 0.085
    assert np.sqrt((heads.band[1] ** 2).mean()) / nulls.WITHIN == pytest.approx(
        fit.coefficients[1].std(), rel=0.1
    )


def test_without_a_taste_random_heads_spread_as_the_errors_say():
    design, outcomes = random_design()
    states = np.random.default_rng(5).normal(size=(400, 1, 5))
    groups, outcomes = np.arange(400) // 2, outcomes - outcomes.mean(axis=0)
    heads = random_heads(slopes(design), outcomes, [states] * 2, design, groups)
    errors = robust(design, outcomes, groups).errors
    assert heads.band / nulls.WITHIN == pytest.approx(errors, rel=0.15)


def test_rows_without_states_are_left_out_and_outcomes_have_states_of_their_own():
    design, outcomes = random_design()
    rng = np.random.default_rng(6)
    first, second = rng.normal(size=(2, 400, 1, 5))
    outcomes = outcomes + np.column_stack([first[:, 0, 0], second[:, 0, 0]])
    total = np.array([[0.0, 1.0, 1.0]]).T

    def share(outcomes, states, rows=slice(None)) -> np.ndarray:
        measure, groups = slopes(design[rows], total), np.arange(len(outcomes))
        return random_heads(measure, outcomes, states, design[rows], groups).share

    whole = share(outcomes, [first, second])
    assert whole[:, 1:] == pytest.approx(share(outcomes[:, 1:], [second]))
    first[300:] = np.nan
    less = share(outcomes, [first, second])
    rows = slice(300)
    assert less == pytest.approx(share(outcomes[rows], [first[rows], second[rows]], rows))
    first[10:] = np.nan
    assert np.isnan(share(outcomes, [first, second])).all()


def test_each_random_head_is_measured_on_its_own_spread():
    untouched = np.array([[100.0, 1.0], [-100.0, 1.0], [100.0, -1.0], [-100.0, -1.0]])
    spread = untouched.std(axis=0, ddof=1)
    changes = np.tile([0.5 * spread[0], 0.0], (3, 1))
    heads = np.random.default_rng(0).standard_normal((2, 1000))
    size = 0.4999 * np.hypot(spread[0] * heads[0], spread[1] * heads[1])
    share = random_head_share(changes, untouched, 0.4999)
    assert share == pytest.approx(np.mean(np.abs(0.5 * spread[0] * heads[0]) >= size))
    assert 0.5 < share < 0.9
