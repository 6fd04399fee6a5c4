"""Looks that try every token: all responses, the most probable, pairs, the 1-opt certificate.

Knows objectives and the evaluation counter. Does not know models, texts or how a response was
found, so a result from elsewhere can be certified.
"""

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pandas as pd
import torch
from torch import Tensor

from pessimal.searching.allowed import Retokenizes, best_retokenizing
from pessimal.searching.objective import EvaluationCounter

ONE_OPT, TIE, NOT_ONE_OPT = "1-opt", "tie", "not 1-opt"
PARTLY, UNTRIED = "partly tried", "not tried"
# Responses of one call in which all are tried: enough for batches to be full.
_AT_ONCE = 2048
# First tokens whose pairs are summed at once.
_FIRSTS = 64
# Beginnings that best-first search runs at once; and how far rounding may move a log-probability.
_BEGINNINGS, _ROUNDING = 16, 1e-5


# --- All responses, and pairs.


Ranked = tuple[Tensor, Tensor]
"""The best responses of a look at many, int64 (k, L), best first, and their values float64 (k,)."""


def every_response(
    counter: EvaluationCounter,
    *,
    length: int,
    allowed: Tensor,
    retokenizes: Retokenizes | None = None,
    keep: int = 1000,
) -> Ranked:
    """The `keep` best of all responses of `length` allowed tokens: A^L evaluations, and an exact
    optimum."""
    tokens = allowed.nonzero()[:, 0]  # (A,)
    n_free = 1  # positions that vary within a call
    while n_free < length and len(tokens) ** n_free < _AT_ONCE:
        n_free += 1
    tails = torch.cartesian_prod(*[tokens] * n_free).reshape(-1, n_free)  # (A^n_free, n_free)
    top, values = torch.empty(0, length, dtype=torch.long), torch.empty(0, dtype=torch.float64)
    for beginning in itertools.product(tokens.tolist(), repeat=length - n_free):
        fixed = torch.tensor(beginning, dtype=torch.long).expand(len(tails), -1)
        responses = torch.cat([fixed, tails], dim=1)
        fresh = counter.values(responses, anchor=responses[0])
        top, values = _merged((top, values), fresh, responses.__getitem__, keep, retokenizes)
    return top, values


def summed_pairs(
    counter: EvaluationCounter,
    *,
    allowed: Tensor,
    retokenizes: Retokenizes | None = None,
    keep: int = 16,
) -> Ranked:
    """The `keep` best of all responses of two allowed tokens, where the value is a sum over tokens
    (`TokenSum`): A + 1 evaluations in place of A², and an exact optimum up to rounding."""
    tokens = allowed.nonzero()[:, 0]  # (A,)
    alone = counter.following(torch.empty(1, 0, dtype=torch.long))[0]  # (V,)
    best = torch.empty(0, 2, dtype=torch.long), torch.empty(0, dtype=torch.float64)
    for firsts in tokens.split(_FIRSTS):
        totals = alone[firsts, None] + counter.following(firsts[:, None])[:, : len(allowed)]
        totals = totals.masked_fill(~allowed, -math.inf).flatten()
        extend = partial(_continued, firsts[:, None], len(allowed))
        best = _merged(best, totals, extend, keep, retokenizes)
    return best


def _merged(
    earlier: Ranked,
    values: Tensor,
    responses: Callable[[Tensor], Tensor],
    keep: int,
    retokenizes: Retokenizes | None,
    *,
    above: float = -math.inf,
) -> Ranked:
    """The `keep` best of the earlier ones and of others over `above`, whose rows `responses`
    gives."""
    if len(earlier[1]) == keep:
        above = max(above, float(earlier[1][-1]))
    best = best_retokenizing(values, responses, count=keep, retokenizes=retokenizes, above=above)
    top, every = torch.cat([earlier[0], responses(best)]), torch.cat([earlier[1], values[best]])
    order = every.argsort(descending=True, stable=True)[:keep]
    return top[order], every[order]


# --- The most probable responses, without trying all.


@dataclass(frozen=True)
class MostProbable:
    """The end of best-first search."""

    responses: Tensor
    """int64 (k, L): the best, and others within the tolerance, best first; none where none was
    completed."""
    values: Tensor
    """float64 (k,)"""
    forwards: int
    """Beginnings that were run."""
    proven: bool
    """Whether every other response is ruled out: False where the budget ended before."""


def most_probable(
    counter: EvaluationCounter,
    *,
    length: int,
    allowed: Tensor,
    retokenizes: Retokenizes | None = None,
    tolerance: float = 0.0,
    keep: int = 16,
) -> MostProbable:
    """The most probable of all responses of `length` allowed tokens: what follows a beginning has a
    log-probability of at most 0, so a beginning below the best response is ruled out with all that
    begin so.

    Beginnings are run from the most probable on, some at a time; each counts as one evaluation.
    First the most probable token is followed to the end, for a response to begin with. Responses
    within `tolerance` of the best are kept too, since rounding may have put them below it.

    Source: Hart, Nilsson and Raphael 1968 (best-first search with an admissible bound); the bound 0
    makes it Dijkstra's.
    """
    slack, used = max(tolerance, _ROUNDING), counter.used
    responses = torch.empty(0, length, dtype=torch.long)
    values = torch.empty(0, dtype=torch.float64)
    greedy = torch.empty(1, 0, dtype=torch.long)
    best_value = 0.0  # value of the greedy response
    while greedy.shape[1] < length and counter.left:
        after = counter.following(greedy)[0, : len(allowed)].masked_fill(~allowed, -math.inf)
        best_value += float(after.max())
        greedy = torch.cat([greedy, after.argmax()[None, None]], dim=1)
    if retokenizes is not None and not bool(retokenizes(greedy)[0]):
        best_value = -math.inf
    waiting: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]  # (−value, beginning)
    while waiting and -waiting[0][0] > best_value - slack and counter.left:
        group = [heapq.heappop(waiting)]
        while len(group) < min(_BEGINNINGS, counter.left) and _alike(waiting, group[0], best_value):
            group.append(heapq.heappop(waiting))
        begun = torch.tensor([beginning for _, beginning in group], dtype=torch.long)
        begun = begun.view(len(group), -1)  # (n, T)
        so_far = torch.tensor([[-value] for value, _ in group], dtype=torch.float64)
        totals = so_far + counter.following(begun)[:, : len(allowed)]
        totals = totals.masked_fill(~allowed, -math.inf)  # (n, V)
        if begun.shape[1] < length - 1:
            for row, beginning in zip(totals, begun.tolist(), strict=True):
                # More of one beginning than can still be run are never needed.
                likely = row.topk(min(counter.left, int((row > best_value - slack).sum())))
                pairs = zip(likely.values.tolist(), likely.indices.tolist(), strict=True)
                for total, token in pairs:
                    heapq.heappush(waiting, (-total, (*beginning, token)))
            continue
        extend, best = partial(_continued, begun, len(allowed)), (responses, values)
        responses, values = _merged(
            best, totals.flatten(), extend, keep, retokenizes, above=best_value - slack
        )
        best_value = max([best_value, *values[:1].tolist()])
    proven = len(values) > 0 and not (waiting and -waiting[0][0] > best_value - slack)
    near = values >= best_value - slack
    return MostProbable(responses[near], values[near], counter.used - used, proven)


def _alike(
    waiting: list[tuple[float, tuple[int, ...]]], other: tuple[float, tuple[int, ...]], bound: float
) -> bool:
    """Whether the next beginning is as long as another, and may still lead to the best."""
    return bool(waiting) and len(waiting[0][1]) == len(other[1]) and -waiting[0][0] > bound


def _continued(begun: Tensor, size: int, places: Tensor) -> Tensor:
    """Responses (k, T + 1) by their places (k,) in the table of every token behind each of `begun`
    (n, T)."""
    return torch.cat([begun[places // size], (places % size)[:, None]], dim=1)


# --- Single changes of one response.


def changed(response: Tensor, position: int, tokens: Tensor) -> Tensor:
    """Responses (A, L): `response` (L,) with each of `tokens` (A,) at one position."""
    responses = response.repeat(len(tokens), 1)
    responses[:, position] = tokens
    return responses


def improve(
    counter: EvaluationCounter,
    response: Tensor,
    position: int,
    tokens: Tensor,
    *,
    above: float,
    retokenizes: Retokenizes | None,
) -> tuple[Tensor, Tensor]:
    """Values (A,) of a response with each of `tokens` (A,) at one position, and the row (1,) of the
    best over `above` that retokenizes; no row (0,) where none is."""
    responses = changed(response, position, tokens)
    values = counter.values(responses, anchor=response) if len(tokens) else torch.empty(0)
    best = best_retokenizing(
        values, responses.__getitem__, count=1, retokenizes=retokenizes, above=above
    )
    return values, best


# --- The 1-opt certificate: no single change, to any allowed token at any position, improves a
# response.


@dataclass(frozen=True)
class Certificate:
    """The outcome of a pass over the single changes of one response. Above one token it is a local
    statement."""

    value: float
    """The response's own: sign × reward."""
    evaluations: int
    """Candidate evaluations that it rests on, its own among them."""
    changes: int
    """The number of single changes."""
    noise: float
    """Bound on the numerical error of one value, in units of value."""
    neighbours: pd.DataFrame
    """position (from 0), token (the id that stands there instead), value, margin (the response's
    value − this one): the best retokenizing neighbour of each position that has one."""

    @property
    def smallest_margin(self) -> float:
        """Value of the response − value of its best neighbour; infinite where it has none."""
        return float(self.neighbours["margin"].min()) if len(self.neighbours) else float("inf")

    @property
    def verdict(self) -> str:
        """`1-opt`, `tie` (the best neighbour is within the noise), `not 1-opt` (a neighbour is
        better), `partly tried` or `not tried` (none of those tried is better, of which there are
        not all, or none).

        Both values err by up to `noise`, so a margin is certain to have the right sign where it
        exceeds twice that.
        """
        if self.smallest_margin < -2 * self.noise:
            return NOT_ONE_OPT
        if self.evaluations <= self.changes:
            return PARTLY if self.evaluations > 1 else UNTRIED
        if self.smallest_margin > 2 * self.noise:
            return ONE_OPT
        return TIE


def certify(
    values: Tensor,
    response: Tensor,
    *,
    allowed: Tensor,
    retokenizes: Retokenizes | None = None,
    noise: float,
) -> Certificate:
    """The certificate of one response (L,), from the `values` (L, V) of it and of those of its
    single changes to these tokens that were tried, -inf elsewhere.

    `noise` bounds the error of one value in units of value (`scoring.trust.numerical_noise` of
    float32 rewards).
    """
    value = float(values[0, response[0]])
    other_values = values.scatter(1, response[:, None], -torch.inf)
    rows = []
    for position, row in enumerate(other_values):
        neighbours = partial(changed, response, position)
        for token in best_retokenizing(row, neighbours, count=1, retokenizes=retokenizes).tolist():
            rows.append((position, token, float(row[token]), value - float(row[token])))
    return Certificate(
        value=value,
        evaluations=1 + int(other_values.isfinite().sum()),
        changes=int(len(response) * allowed.sum() - allowed[response].sum()),
        noise=noise,
        neighbours=pd.DataFrame(rows, columns=["position", "token", "value", "margin"]),
    )
