"""Optimising a policy, exactly: against sampling, derivatives, and a policy that is trained."""

import numpy as np
import pytest

from pessimal.analyses.optimised import Optimising, change_error, mean_of


def random_policy(size: int = 400, *, seed: int = 0, ties: bool = False) -> Optimising:
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=size)
    return Optimising(2 * rng.normal(size=size), np.round(reward, 1) if ties else reward)


def test_tilt_maximises_reward_less_kl():
    """No other policy on the candidates has more E score − KL / λ."""
    before, strength = random_policy(), 1.7
    best = before.tilt(strength)
    worth = best.q @ before.scores - best.kl / strength
    rng = np.random.default_rng(1)
    for scale in (1e-3, 0.1, 1.0):
        q = best.q * np.exp(scale * rng.normal(size=len(best.q)))
        q /= q.sum()
        kl = q @ (np.log(q) - before.log_p)
        assert q @ before.scores - kl / strength < worth


def test_a_part_is_carried_by_as_many_as_are_alike_in_it():
    """Kish's effective number does not depend on how much of the mass the part has."""
    policy, q = random_policy(6), np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    assert policy.support(q, np.arange(6) > 0) == pytest.approx(5)
    assert policy.support(q) == pytest.approx(1 / 0.3)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", [2, 40])
def test_best_of_n_is_what_sampling_gives(ties, n):
    """Total variation to 200,000 draws of the best of n, within what so many draws vary."""
    before = random_policy(60, ties=ties)
    rng = np.random.default_rng(2)
    drawn = rng.choice(60, size=(200_000, n), p=before.p)
    keys = before.reward[drawn] + 1e-6 * rng.random(drawn.shape)  # ties at random
    best = np.take_along_axis(drawn, keys.argmax(axis=1)[:, None], axis=1)[:, 0]
    counts = np.bincount(best, minlength=60) / len(best)
    exact = before.best_of(n)
    error = np.sqrt(exact.q * (1 - exact.q) / len(best))
    assert np.abs(counts - exact.q).max() < 5 * error.max()
    inside = exact.q > 0
    kl = exact.q[inside] @ (np.log(exact.q[inside]) - before.log_p[inside])
    assert exact.kl == pytest.approx(kl)
    assert exact.kl <= np.log(n) - (n - 1) / n + 1e-12  # Beirami et al. 2024


def test_feature_turns_where_reward_and_feature_part():
    """At the turning point more strength no longer moves the feature; before it rises, then it
    falls."""
    before = random_policy(2000)
    feature = before.scores - 0.35 * before.scores**2
    known = np.ones(2000, dtype=bool)
    known[::7] = False
    turn = before.turning(feature, known)
    assert turn is not None
    at = [
        mean_of(before.tilt(turn.strength * times).q, feature, known) for times in (0.5, 1.0, 1.5)
    ]
    assert at[1] > max(at[0], at[2])
    assert before.turning(before.scores, known) is None


def test_error_of_a_change_is_that_of_policies_with_other_candidates():
    """The jackknife's error is the spread over candidates weighted at random, at one KL."""
    before = random_policy(3000, seed=3)
    before = Optimising(before.log_p / 4, before.reward)
    rng = np.random.default_rng(4)
    feature = 0.4 * before.reward + rng.normal(size=3000)
    known = rng.random(3000) < 0.6
    place = next(i for i, at in enumerate(before.tilts) if at.kl == 1.0)
    error = change_error(before, before.tilts[place], feature, known)
    changes = []
    for _ in range(60):
        other = Optimising(before.log_p + np.log(rng.exponential(size=3000)), before.reward)
        after = mean_of(other.tilts[place].q, feature, known)
        changes.append(after - mean_of(other.p, feature, known))
    assert np.std(changes) == pytest.approx(error, rel=0.3)  # 60 draws tell 10 %


@pytest.mark.parametrize("beta", [1.0])
def test_policy_gradient_with_kl_ends_where_the_forecast_says(beta):
    """Exact gradient ascent on E score − β KL, over a softmax policy's logits."""
    before = random_policy(30, seed=5)
    before = Optimising(before.log_p / 4, before.reward)  # what is never said is learned slowly
    logits = before.log_p.copy()
    for _ in range(20_000):
        q = np.exp(logits - logits.max())
        q /= q.sum()
        worth = before.scores - beta * (np.log(q) - before.log_p)
        logits = logits + 2.0 * q * (worth - q @ worth)
    assert 0.5 * np.abs(q - before.tilt(1 / beta).q).sum() < 0.02


def of_draws(exact: Optimising, n: int, rng: np.random.Generator) -> tuple[Optimising, np.ndarray]:
    """The same policy known by n answers drawn from it, and which of its candidates these are."""
    counts = rng.multinomial(n, exact.p)
    some = np.flatnonzero(counts)
    drawn = counts[some].astype(float)
    return Optimising(np.log(drawn / n), exact.reward[some], drawn), some


def test_draws_give_what_the_whole_policy_gives_within_their_error():
    """100 samples of 2,000 answers: the mean of a feature at half a nat is that of the exact tilt,
    and its standard error is what the samples vary."""
    exact, rng = random_policy(300), np.random.default_rng(3)
    feature = exact.reward + rng.normal(size=300)
    everything = np.ones(300, bool)
    at = next(at for at in exact.tilts if at.kl == 0.5)
    true = mean_of(at.q, feature, everything) - mean_of(exact.p, feature, everything)
    changes, errors = [], []
    for _ in range(100):
        drawn, some = of_draws(exact, 2000, rng)
        known, inside = feature[some], np.ones(len(some), bool)
        point = next(at for at in drawn.tilts if at.kl == 0.5)
        changes.append(mean_of(point.q, known, inside) - mean_of(drawn.p, known, inside))
        errors.append(change_error(drawn, point, known, inside))
    assert np.mean(changes) == pytest.approx(true, abs=0.25 * np.std(changes))
    assert np.mean(errors) == pytest.approx(np.std(changes), rel=0.15)


def test_what_was_never_drawn_has_at_most_the_share_that_the_ceiling_allows():
    """The bound holds in at least 19 of 20 samples of draws, and is not 1 where strength is small."""
    exact, rng = random_policy(300), np.random.default_rng(6)
    ceiling, held, bounds = exact.reward.max() + 0.5, [], []
    for _ in range(100):
        drawn, some = of_draws(exact, 300, rng)
        unseen = np.setdiff1d(np.arange(300), some)
        at = drawn.tilts[2]
        bounds.append(drawn.unseen(at, ceiling))
        held.append(exact.tilt(at.strength * exact.deviation / drawn.deviation).q[unseen].sum())
    assert np.mean(np.array(held) <= bounds) > 0.95
    assert np.mean(bounds) < 0.9
    assert drawn.unseen(drawn.tilts[0], ceiling) == pytest.approx(drawn.missing)
    assert np.isnan(drawn.unseen(at, np.nan))
    assert np.isnan(exact.unseen(exact.tilts[1], ceiling))
