"""Looks that try every token: all responses, pairs, exhaustive coordinate sweeps, the 1-opt certificate, and how good the
gradient is beside them.

Knows objectives and the evaluation counter. Does not know models, texts or how a response was found, so a result from
elsewhere can be polished and certified.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from scipy.stats import spearmanr
from torch import Tensor

from pessimal.search.gcg import Visited, unseen
from pessimal.search.objective import EvaluationCounter, Objective
from pessimal.search.round_trip import Retokenizes, best_retokenizing

ONE_OPT, TIE, NOT_ONE_OPT = "1-opt", "tie", "not 1-opt"
# Responses of one call in which all are tried: enough for batches to be full.
_AT_ONCE = 2048
# Tokens at each place of a pair that every other token is tried with, at most, and how often. Begun at both places, and
# gone on with the best partner of each; begun at one place alone, the same evaluations missed the best pair in one of four
# cases (`experiments/LOG.md`).
WIDTH, ROUNDS = 8, 2


# --- All responses, and pairs.


@dataclass(frozen=True)
class Ranked:
    """The best responses of a look at many."""

    responses: Tensor
    """int64 (k, L), best first."""
    values: Tensor
    """float64 (k,)."""
    tried: int
    """Distinct responses that were looked at; all of them where the look was exact."""


def every_response(
    counter: EvaluationCounter,
    *,
    length: int,
    allowed: Tensor,  # bool (V,)
    retokenizes: Retokenizes | None = None,
    keep: int = 1000,
) -> Ranked:
    """The `keep` best of all responses of `length` allowed tokens: A^L evaluations, and an exact optimum."""
    tokens = allowed.nonzero()[:, 0]  # (A,)
    last = 1  # positions that vary within a call
    while last < length and len(tokens) ** last < _AT_ONCE:
        last += 1
    tails = torch.cartesian_prod(*[tokens] * last).reshape(-1, last)  # (A^last, last)
    found, values = torch.empty(0, length, dtype=torch.long), torch.empty(0, dtype=torch.float64)
    for beginning in itertools.product(tokens.tolist(), repeat=length - last):
        fixed = torch.tensor(beginning, dtype=torch.long).expand(len(tails), -1)
        responses = torch.cat([fixed, tails], dim=1)
        fresh = counter.values(responses, anchor=responses[0])
        above = float(values[-1]) if len(values) == keep else -torch.inf
        best = best_retokenizing(
            fresh, responses.__getitem__, count=keep, retokenizes=retokenizes, above=above
        )
        found, values = torch.cat([found, responses[best]]), torch.cat([values, fresh[best]])
        order = values.argsort(descending=True, stable=True)[:keep]
        found, values = found[order], values[order]
    return Ranked(found, values, len(tokens) ** length)


def pair_sizes(budget: int, allowed: int, *, most: int) -> tuple[int, int] | None:
    """How wide a pruned look at pairs is that `budget` evaluations pay for: tokens tried with every other at each end,
    and m, the best first and second tokens of which all are tried with one another, at most `most`; None where it is not
    affordable."""
    m = min(most, math.isqrt(budget // 4), allowed)
    width = min(WIDTH, (budget - m**2) // (2 * ROUNDS * allowed))
    return (width, m) if width >= 1 and m >= 1 else None


def pairs(
    counter: EvaluationCounter,
    *,
    m: int,
    allowed: Tensor,  # bool (V,)
    first_values: Tensor,  # (V,)
    retokenizes: Retokenizes | None = None,
    keep: int = 1000,
    width: int = WIDTH,
) -> Ranked:
    """A pruned look at responses of two tokens: the m best first tokens with the m best second ones, and what was tried to
    rank these. A pair of two tokens that do badly with all others is not found.

    1. Every allowed token is tried behind the `width` best single tokens, and before them.
    2. The best partner of each, filled up to `width` with the best of all, are tried with every token in the same way.
    3. First and second tokens rank by the best pair that they were in so far.
    4. The m best of both are tried with one another. A pair counts from wherever it was tried.

    In text mode partners and ranks are of retokenizing pairs alone. Costs at most m² + 4 · width · A evaluations.

    Args:
        first_values: values of single tokens, as a scan gives them.
    """
    tokens = allowed.nonzero()[:, 0]  # (A,)
    alone = best_retokenizing(
        first_values[tokens], lambda rows: tokens[rows, None], count=width, retokenizes=retokenizes
    )
    if not len(alone):  # none retokenizes alone; the best may with another
        alone = first_values[tokens].topk(min(width, len(tokens))).indices
    grid = _Grid(counter, tokens, retokenizes)
    beginnings = endings = tokens[alone]
    seen_first, seen_second = beginnings, endings
    for turn in range(ROUNDS):
        grid.try_pairs(beginnings, tokens)
        grid.try_pairs(tokens, endings)
        if turn < ROUNDS - 1:
            beginnings, endings = (
                grid.partners(0, of=endings, but=seen_first, count=width),
                grid.partners(1, of=beginnings, but=seen_second, count=width),
            )
    grid.try_pairs(grid.best_tokens(0, m), grid.best_tokens(1, m))
    found, values = grid.best(keep)
    return Ranked(found, values, len(grid.values))


class _Grid:
    """The pairs (n, 2) that were tried, and their values (n,)."""

    def __init__(self, counter: EvaluationCounter, tokens: Tensor, retokenizes: Retokenizes | None):
        self.counter, self.tokens, self.retokenizes = counter, tokens, retokenizes
        self.visited = Visited()
        self.pairs = torch.empty(0, 2, dtype=torch.long)
        self.values = torch.empty(0, dtype=torch.float64)

    def try_pairs(self, firsts: Tensor, seconds: Tensor) -> None:
        """Evaluate every pair that has not been tried."""
        by_first = len(firsts) <= len(seconds)
        for fixed in firsts if by_first else seconds:
            others = seconds if by_first else firsts
            alike = fixed.expand(len(others))
            fresh = unseen(torch.stack([alike, others] if by_first else [others, alike], dim=1), self.visited)
            if len(fresh):
                # Those that begin alike are given an anchor, so that their beginning is run once.
                values = self.counter.values(fresh, anchor=fresh[0] if by_first else None)
                self.pairs, self.values = torch.cat([self.pairs, fresh]), torch.cat([self.values, values])

    def best(self, count: int, among: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The best retokenizing pairs (k, 2) and their values (k,), among some of them (bool (n,))."""
        values = self.values if among is None else self.values.masked_fill(~among, -torch.inf)
        rows = best_retokenizing(
            values, lambda rows: self.pairs[rows], count=count, retokenizes=self.retokenizes
        )
        return self.pairs[rows], values[rows]

    def best_tokens(self, place: int, count: int) -> Tensor:
        """The tokens (k,) of one place, by the best retokenizing pair of each."""
        asked = count
        while True:
            pairs, _ = self.best(asked)
            tokens = list(dict.fromkeys(pairs[:, place].tolist()))
            if len(tokens) >= count or len(pairs) < asked:
                return torch.tensor(tokens[:count], dtype=torch.long)
            asked *= 4

    def partners(self, place: int, *, of: Tensor, but: Tensor, count: int) -> Tensor:
        """Tokens (w,) of one place to go on with: the best beside each of the fixed ones at the other place, then the best
        of all; none of `but`."""
        beside = self.pairs[:, 1 - place]
        wanted = [int(token) for fixed in of for token in self.best(1, among=beside == fixed)[0][:, place]]
        wanted += self.best_tokens(place, len(but) + len(wanted) + count).tolist()
        known = set(but.tolist())
        return torch.tensor([t for t in dict.fromkeys(wanted) if t not in known][:count], dtype=torch.long)


# --- Exhaustive coordinate sweeps.


@dataclass(frozen=True)
class Polished:
    """Where coordinate sweeps ended."""

    response: tuple[int, ...]
    value: float
    """Its value; -inf where the start does not retokenize and nothing better that does was found."""
    positions: int
    """Positions at which every allowed token was tried, repeats counted."""
    converged: bool
    """Whether every position was tried at this very response, and no allowed token improved it by more than the
    tolerance. False where the budget or the sweeps ended before."""


def polish(
    counter: EvaluationCounter,
    start: Tensor,  # (L,)
    *,
    allowed: Tensor,  # bool (V,)
    retokenizes: Retokenizes | None = None,
    tolerance: float = 0.0,
    first_position: int = 0,
) -> Polished:
    """Go round the positions; at each, evaluate every allowed token and take the best retokenizing one if it is better.

    Each improvement is taken at once. It ends when L positions in a row brought nothing, so that each was tried at the
    final response, none twice. The first sweep replaces most of a random start, so give restarts different first
    positions. Only improvements by more than `tolerance` (units of value) are taken: at twice the numerical error of a
    value none of them is an artefact. A start that does not retokenize counts for less than any response that is. Where
    less is left than the next position costs, it ends there, and evaluates no part of the position.

    Raises:
        ValueError: the start holds tokens that are not allowed.
    """
    if not bool(allowed[start].all()):
        raise ValueError(f"the start {start.tolist()} holds tokens that are not allowed")
    tokens = allowed.nonzero()[:, 0]  # (A,)
    length, response = len(start), start.clone()
    if counter.left < 1:
        return Polished(tuple(start.tolist()), -torch.inf, 0, converged=False)
    value = float(counter.values(response[None])[0])
    if retokenizes is not None and not bool(retokenizes(response[None])[0]):
        value = -torch.inf
    positions = unchanged = 0
    while unchanged < length and counter.left >= len(tokens) - 1:
        position = (first_position + positions) % length
        others = tokens[tokens != response[position]]
        found = improve(counter, response, position, others, above=value + tolerance, retokenizes=retokenizes)
        positions += 1
        unchanged += 1
        if found is not None:
            response, value = found
            # Every token of this position has been tried beside the others as they stand now.
            unchanged = 1
    converged = unchanged >= length and value > -torch.inf
    return Polished(tuple(response.tolist()), value, positions, converged)


def improve(
    objective: Objective,
    response: Tensor,  # (L,)
    position: int,
    tokens: Tensor,  # (A,)
    *,
    above: float,
    retokenizes: Retokenizes | None,
) -> tuple[Tensor, float] | None:
    """The best retokenizing response (L,) with one of `tokens` at `position`, and its value, if that is over `above`."""
    if not len(tokens):
        return None
    responses = changed(response, position, tokens)
    values = objective.values(responses, anchor=response)
    best = best_retokenizing(
        values, lambda rows: responses[rows], count=1, retokenizes=retokenizes, above=above
    )
    return (responses[best[0]], float(values[best[0]])) if len(best) else None


def neighbour_values(objective: Objective, response: Tensor, allowed: Tensor) -> Tensor:
    """Values (L, V) float64 of the response with every allowed token at every position; -inf elsewhere.

    The token that stands at a position has the response's own value there, allowed or not. Costs 1 + Σ over positions
    of the allowed tokens other than that. One position is evaluated at a time: 256,000 responses of 16 tokens are
    33 MB, sixteen times as many would be half a GiB.
    """
    own = objective.values(response[None])
    values = torch.full((len(response), len(allowed)), -torch.inf, dtype=torch.float64)
    tokens = allowed.nonzero()[:, 0]
    for position in range(len(response)):
        others = tokens[tokens != response[position]]
        if len(others):
            values[position, others] = objective.values(changed(response, position, others), anchor=response)
        values[position, response[position]] = own[0]
    return values


def changed(response: Tensor, position: int, tokens: Tensor) -> Tensor:
    """Responses (A, L): `response` (L,) with each of `tokens` (A,) at one position."""
    responses = response.repeat(len(tokens), 1)
    responses[:, position] = tokens
    return responses


# --- The 1-opt certificate: no single change, to any allowed token at any position, improves a response.


@dataclass(frozen=True)
class Neighbour:
    """The response with another token at one position."""

    position: int
    """From 0."""
    token: int
    """Id that stands there instead."""
    value: float
    margin: float
    """Value of the response − this value: positive where the neighbour is worse."""


@dataclass(frozen=True)
class Certificate:
    """What a complete pass over all single changes of one response showed. Above one token it is a local statement."""

    response: tuple[int, ...]
    value: float
    """Its value: sign × reward."""
    allowed: int
    """How many tokens were allowed, and tried, at each position."""
    evaluations: int
    """Candidate evaluations of this pass."""
    noise: float
    """Bound on the numerical error of one value, in units of value."""
    neighbours: tuple[Neighbour, ...]
    """The best retokenizing neighbour of each position; positions that have none are left out."""

    @property
    def smallest_margin(self) -> float:
        """Value of the response − value of its best neighbour; infinite where it has none."""
        return min((neighbour.margin for neighbour in self.neighbours), default=float("inf"))

    @property
    def verdict(self) -> str:
        """`1-opt`, `tie` (the best neighbour is within the noise) or `not 1-opt` (a neighbour is better).

        Both values err by up to `noise`, so a margin is certain to have the right sign where it exceeds twice that.
        """
        if self.smallest_margin > 2 * self.noise:
            return ONE_OPT
        return TIE if self.smallest_margin >= -2 * self.noise else NOT_ONE_OPT


def certify(
    values: Tensor,  # (L, V)
    response: Tensor,  # (L,)
    *,
    allowed: Tensor,  # bool (V,)
    retokenizes: Retokenizes | None = None,
    noise: float,
) -> Certificate:
    """The certificate of one response, from the `values` that `neighbour_values` gave of it and of these allowed tokens.

    `noise` bounds the error of one value in units of value (`scoring.trust.numerical_noise` of float32 rewards).
    """
    positions = torch.arange(len(response))
    own = float(values[0, response[0]])
    others = values.clone()
    others[positions, response] = -torch.inf

    neighbours = []
    for position, row in enumerate(others):
        best = best_retokenizing(
            row, lambda tokens, at=position: changed(response, at, tokens), count=1, retokenizes=retokenizes
        )
        for token in best.tolist():
            value = float(row[token])
            neighbours.append(Neighbour(position, token, value, own - value))
    return Certificate(
        response=tuple(response.tolist()),
        value=own,
        allowed=int(allowed.sum()),
        evaluations=1 + int(others.isfinite().sum()),
        noise=noise,
        neighbours=tuple(neighbours),
    )


# --- How good the gradient is: where the truly best single change stands in its order.


def gradient_quality(
    values: Tensor,  # (L, V)
    gradient: Tensor,  # (L, V)
    response: Tensor,  # (L,)
    *,
    top_k: int,
) -> pd.DataFrame:
    """One row a position: how the gradient orders the single changes there, against what they truly bring.

    Args:
        values: as `neighbour_values` gives them.
        gradient: d value / d one-hot at the response.
        top_k: candidates that a search keeps for each position.

    Returns:
        position: from 0.
        best_id: the token whose change truly brings most; the lowest id of equal ones. Never the one that stands there.
        gain: its value − the response's own, in units of value; negative where no change is better.
        gradient_rank: its place in the gradient's order, 1 = first. Tokens with an equal gradient stand before it: no
            rank is better than it is certain to be.
        within_top_k: whether it is among the first `top_k`.
        regret: its value − that of the best of the gradient's first `top_k`, in units of value; equal gradients in the
            order of ids.
        spearman: rank correlation of gradient and true change over the n changes (ties: mean ranks); NaN where either
            is constant, or n is below 3. The changes share the response, so it describes this position: no test.
        n: changes compared: allowed tokens other than the one that stands there.
        top_k: as given.

    Positions without any allowed change are left out. All allowed tokens are compared, whether or not a text gives them.
    """
    exact, slopes = values.double().cpu().numpy(), gradient.detach().double().cpu().numpy()
    rows = []
    for position, token in enumerate(response.tolist()):
        others = np.flatnonzero(np.isfinite(exact[position]))
        others = others[others != token]
        if not len(others):
            continue
        gains = exact[position][others] - exact[position][token]
        slope = slopes[position][others] - slopes[position][token]
        best = int(gains.argmax())
        rank = int((slope >= slope[best]).sum())
        kept = np.argsort(-slope, kind="stable")[:top_k]
        constant = len(others) < 3 or np.ptp(gains) == 0 or np.ptp(slope) == 0
        rows.append(
            {
                "position": position,
                "best_id": int(others[best]),
                "gain": float(gains[best]),
                "gradient_rank": rank,
                "within_top_k": rank <= top_k,
                "regret": float(gains[best] - gains[kept].max()),
                "spearman": float("nan") if constant else float(spearmanr(slope, gains).statistic),
                "n": len(others),
                "top_k": top_k,
            }
        )
    columns = [
        "position", "best_id", "gain", "gradient_rank", "within_top_k", "regret", "spearman", "n", "top_k",
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)
