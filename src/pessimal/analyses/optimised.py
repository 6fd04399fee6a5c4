"""A policy after it is optimised for a reward, exactly, on a closed set of candidates.

Knows log-probabilities and rewards of the same candidates, as arrays. Knows neither tables nor
tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy import special
from scipy.optimize import brentq

from pessimal.errors import TableError

KLS = (0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
"""Nats at which a policy is looked at."""
MOST = 0.999
"""Share of the largest KL that optimising can reach: what is asked beyond it has no answer."""
LEAST_SUPPORT = 50
"""Effective candidates below which no interval is given, and draws below which nothing is."""
STEPS = 200
"""Doublings of a strength before it is called endless."""


@dataclass(frozen=True)
class Optimised:
    """A policy that was optimised for a reward so far."""

    strength: float
    """λ = 1/β of a tilt, n of best of n."""
    kl: float
    """KL(q‖p), nats."""
    q: np.ndarray
    """(n,) probabilities of the candidates."""


@dataclass(frozen=True)
class Optimising:
    """A policy over a closed set of candidates, and a reward of each.

    Args (fields):
        log_p: (n,) nats; renormalised over the candidates.
        reward: (n,) in any unit; a tilt's λ is per standard deviation under the policy.
        counts: (n,) how often the policy gave each, where candidates are answers drawn from it and
            log_p is the logarithm of that. It is then looked at only as far as `LEAST_SUPPORT` of
            the draws carry the mass.

    Raises:
        TableError: no candidates, a value that is no number, or one reward for all.
    """

    log_p: np.ndarray
    reward: np.ndarray
    counts: np.ndarray | None = None

    def __post_init__(self) -> None:
        columns = np.stack([self.log_p, self.reward])
        if not columns.shape[1] or not np.isfinite(columns).all():
            raise TableError(
                f"{columns.shape[1]} candidates, of which {(~np.isfinite(columns)).any(0).sum()} "
                "have no finite log-probability and reward: a forecast needs both of each"
            )
        log_p = np.asarray(self.log_p, dtype=float)
        object.__setattr__(self, "log_p", log_p - special.logsumexp(log_p))
        object.__setattr__(self, "reward", np.asarray(self.reward, dtype=float))
        if not self.deviation > 1e-12 * max(np.abs(self.reward).max(), 1e-300):
            raise TableError("the policy only says what has one and the same reward")

    @cached_property
    def p(self) -> np.ndarray:
        """(n,) the policy's probabilities on the candidates."""
        return np.exp(self.log_p)

    @cached_property
    def deviation(self) -> float:
        """Standard deviation of the reward under the policy: where it is small, learning is
        slow (Razin et al. 2025)."""
        return float(np.sqrt(self.p @ (self.reward - self.p @ self.reward) ** 2))

    @cached_property
    def scores(self) -> np.ndarray:
        """(n,) the reward in standard deviations under the policy, from its mean there."""
        return (self.reward - self.p @ self.reward) / self.deviation

    @cached_property
    def largest_kl(self) -> float:
        """The KL that all strength there is comes to: −log p of the best candidates, nats."""
        return float(-special.logsumexp(self.log_p[self.reward == self.reward.max()]))

    def support(self, q: np.ndarray, mask: np.ndarray | None = None) -> float:
        """Effective number of candidates, or of draws, that carry q, or the part of it under the
        mask: (Σ w)² / Σ w² over each (Kish 1965)."""
        inside = slice(None) if mask is None else mask
        q, each = q[inside], 1 if self.counts is None else self.counts[inside]
        return float(q.sum() ** 2 / np.sum(q**2 / each)) if q.any() else 0.0

    def units(self, mask: np.ndarray) -> int:
        """Number of candidates, or draws, under the mask."""
        return int(mask.sum() if self.counts is None else self.counts[mask].sum())

    @cached_property
    def missing(self) -> float:
        """Upper bound, with 95 % confidence, on the policy's share of answers that were not drawn:
        the share of draws that came once, and its error (Good 1953; Esty 1983). Not a number
        without draws."""
        if self.counts is None:
            return np.nan
        n = self.counts.sum()
        once, twice = (np.sum(self.counts == times) / n for times in (1, 2))
        error = np.sqrt((once * (1 - once) + 2 * twice) / n)
        return float(min(once + special.ndtri(0.95) * error, 1.0))

    def unseen(self, tilt: Optimised, ceiling: float) -> float:
        """The largest share of a tilt that answers which were not drawn could have, were the reward
        of each the ceiling; not a number where none is known.

        Against e^{λ score} of the draws stands at most `missing` e^{λ score of the ceiling}.
        """
        highest = (ceiling - self.p @ self.reward) / self.deviation
        log_mass = special.logsumexp(self.log_p + tilt.strength * self.scores)
        return float(
            special.expit(special.logit(self.missing) + tilt.strength * highest - log_mass)
        )

    def tilt(self, strength: float) -> Optimised:
        """q ∝ p e^{λ score}: what maximises E score − KL / λ."""
        exponents = self.log_p + strength * self.scores
        total = special.logsumexp(exponents)
        q = np.exp(exponents - total)
        return Optimised(strength, float(max(strength * (q @ self.scores) - total, 0.0)), q)

    def best_of(self, n: float) -> Optimised:
        """The best of n answers of the policy, ties drawn at random; n may be any number from 1.

        With F(x) the probability of a reward up to x, those of reward x get F(x)^n − F(x⁻)^n. Its
        bound on the KL is log n − (n − 1)/n (Beirami et al. 2024).
        """
        mass, classes, log_to, log_below = self._classes
        share = np.exp(n * log_to) * -np.expm1(n * log_below)
        with np.errstate(divide="ignore", invalid="ignore"):
            kl = float(np.sum(special.xlogy(share, share / mass)))
        return Optimised(n, max(kl, 0.0), (share / mass)[classes] * self.p)

    @cached_property
    def _classes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """By class of equal rewards, rising: mass, which each candidate is of, log F(x), and
        log F(x⁻)/F(x); without the cancellation of differences of F."""
        _, classes = np.unique(self.reward, return_inverse=True)
        mass = np.maximum(np.bincount(classes, weights=self.p), np.finfo(float).tiny)
        to, above = np.cumsum(mass), np.append(np.cumsum(mass[:0:-1])[::-1], 0.0)
        with np.errstate(divide="ignore"):
            log_to = np.where(to < 0.5, np.log(to), np.log1p(-np.minimum(above, 1.0)))
            log_below = np.log1p(-np.minimum(mass / to, 1.0))
        log_below[0] = -np.inf
        return mass, classes, log_to, log_below

    @cached_property
    def tilts(self) -> list[Optimised]:
        """The tilt at each of `KLS`, as far as there is one."""
        return self._path(self.tilt, start=0.0)

    @cached_property
    def bests(self) -> list[Optimised]:
        """The best of n at each of `KLS`, as far as there is one."""
        return self._path(self.best_of, start=1.0)

    def _path(self, way: Callable[[float], Optimised], *, start: float) -> list[Optimised]:
        reached = [kl for kl in KLS if kl <= MOST * self.largest_kl]
        points = [replace(way(_solved(way, kl, start=start)), kl=kl) for kl in reached]
        if self.counts is None:
            return points
        return [at for at in points if self.support(at.q) >= LEAST_SUPPORT]

    def turning(self, feature: np.ndarray, mask: np.ndarray) -> Optimised | None:
        """The first tilt, within `KLS`, from which on more reward moves a feature the other way
        than at first: where Cov(reward, feature) = 0; None where there is none."""
        slopes = [self.covariance(at, feature, mask) for at in self.tilts]
        for (before, after), slope in zip(pairwise(self.tilts), slopes[1:], strict=True):
            if slope * slopes[0] < 0:
                root = brentq(
                    lambda x: self.covariance(self.tilt(x), feature, mask),
                    before.strength,
                    after.strength,
                )
                return self.tilt(float(root))
        return None

    def covariance(self, at: Optimised, feature: np.ndarray, mask: np.ndarray) -> float:
        """Covariance of score and feature, among the candidates under the mask."""
        q = at.q[mask] / at.q[mask].sum()
        scores = self.scores[mask]
        return float(q @ ((scores - q @ scores) * (feature[mask] - q @ feature[mask])))


def _solved(way: Callable[[float], Optimised], kl: float, *, start: float) -> float:
    """The strength at which a way whose KL rises from 0 at the start reaches one."""
    if kl <= 0:
        return start
    high = start + 1.0
    for _ in range(STEPS):
        if way(high).kl >= kl:
            return float(brentq(lambda x: way(x).kl - kl, start, high, xtol=1e-10, rtol=1e-10))
        high *= 2
    raise TableError(f"no strength reaches {kl:g} nats")


def mean_of(q: np.ndarray, feature: np.ndarray, mask: np.ndarray) -> float:
    """E of a feature under probabilities q, among the candidates under the mask."""
    total = q[mask].sum()
    return float(q[mask] @ feature[mask] / total) if total > 0 else np.nan


def change_error(
    before: Optimising, after: Optimised, feature: np.ndarray, mask: np.ndarray
) -> float:
    """Standard error of the change of a feature's mean at this KL, were the candidates, or the
    draws, a sample of others: the infinitesimal jackknife over them, with the strength moving so
    that the KL stays.

    Source: Efron 2014 (the infinitesimal jackknife of weighted means).
    """
    p, q, scores = before.p, after.q, before.scores
    moved = _influence(q, feature, mask) - _influence(p, feature, mask)
    if after.strength > 0:
        variance = q @ (scores - q @ scores) ** 2
        slope = before.covariance(after, feature, mask)
        moved = moved - slope * _kl_influence(before, after) / (after.strength * variance)
    return _error(before, moved)


def turning_error(
    before: Optimising, at: Optimised, feature: np.ndarray, mask: np.ndarray
) -> float:
    """Standard error of the KL at which a feature turns (`Optimising.turning`), likewise: the root
    of Cov(score, feature) moves by its influence over its slope in the strength."""
    q, scores = at.q, before.scores
    inside = q[mask] / q[mask].sum()
    score = scores[mask] - inside @ scores[mask]
    centred = feature[mask] - inside @ feature[mask]
    root = np.zeros(len(q))
    root[mask] = -inside * score * centred / (inside @ (score**2 * centred))
    variance = q @ (scores - q @ scores) ** 2
    return _error(before, _kl_influence(before, at) + at.strength * variance * root)


def _kl_influence(before: Optimising, at: Optimised) -> np.ndarray:
    """(n,) what more weight on each candidate does to KL = λ E score − log Σ p e^{λ score}."""
    return at.strength * at.q * (before.scores - at.q @ before.scores) - (at.q - before.p)


def _error(before: Optimising, influence: np.ndarray) -> float:
    return float(np.sqrt(np.sum(influence**2 / (1 if before.counts is None else before.counts))))


def _influence(q: np.ndarray, feature: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """(n,) what more weight on each candidate does to the mean of a feature."""
    moved = np.zeros(len(q))
    inside = q[mask] / q[mask].sum()
    moved[mask] = inside * (feature[mask] - inside @ feature[mask])
    return moved
