"""The climb: one response is changed in the way that pays best on this very reward, from one start
after the other; and the passes that prove what it ends with.

Three ways propose changes: sweeps over the gradient's best tokens of one position, draws from the
gradient's best tokens of all, and random ones. Each step is of the way that has lately gained most
an evaluation, now and then of any, so that no share of the budget is fixed and nothing is tuned to
some models (adaptive operator selection: Fialho, Da Costa, Schoenauer & Sebag 2010). Knows the
evaluation counter and token ids. Does not know models, texts or which way is up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pessimal.searching.allowed import Retokenizes
from pessimal.searching.exact import changed, improve
from pessimal.searching.gcg import (
    Momentum,
    Visited,
    random_responses,
    sample,
    starts,
    step_size,
    top_tokens,
    unseen,
)
from pessimal.searching.objective import GRADIENT_COST, EvaluationCounter, Point
from pessimal.searching.spec import SearchSpec

SWEEPS, GRADIENT, RANDOM = "sweeps", "gradient", "random changes"
WAYS = (SWEEPS, GRADIENT, RANDOM)
# Tokens of a position that a sweep begins with, how many times as many where a whole sweep brought
# nothing, and the most, after which the climb begins anew. From 256 it gained less where a sweep is
# a large part of the budget.
_NARROWEST, _WIDEN, _WIDEST = 64, 4, 4096
_WALK = 64  # random changes a step
# A small budget is taken in so many steps at least, of so many candidates at least.
_STEPS, _FEWEST = 120, 8
# Of a way's gain an evaluation, how much its last step counts, and how often any way has its turn.
_LAST, _ANY = 0.3, 0.1
# Steps in a row without anything new, and draws of a start, after which nothing is left to try.
_IN_VAIN, _DRAWN = 16, 64


@dataclass
class Climbed:
    """What the ways did, and where climbs ended."""

    evaluations: dict[str, int] = field(default_factory=dict)
    """By way; a start counts to the first."""
    best: dict[str, Point] = field(default_factory=dict)
    """The best that each way came to by itself, where it was the best so far."""
    ends: list[Point] = field(default_factory=list)
    """Where no sweep brought more."""


@dataclass
class _Place:
    """Where one climb stands."""

    response: Tensor  # (L,)
    value: float
    momentum: Momentum
    width: int  # tokens of a position in a sweep
    position: int  # that is swept next
    unchanged: int = 0  # positions swept in a row that brought nothing
    slope: Tensor | None = None  # (L, V), of the response, once computed
    mean: Tensor | None = None  # the running mean of gradients


def climb(
    counter: EvaluationCounter,
    spec: SearchSpec,
    *,
    length: int,
    allowed: Tensor,
    generator: torch.Generator,
    retokenizes: Retokenizes | None = None,
    tolerance: float = 0.0,
    first: Tensor | None = None,
    ways: Sequence[str] = WAYS,
    on_way: Callable[[str], None] | None = None,
) -> Climbed:
    """Climb until the counter's budget is used up, or nothing new is left; the counter's `best` is
    the result.

    Where whole sweeps bring nothing, they take more tokens; then the climb goes on from the best
    response of all with half of its positions drawn anew. No response is evaluated twice. What
    finds nothing by more than `tolerance` has found nothing.

    Args:
        counter: has a budget, of at least one evaluation.
        spec: search_width, top_k, step_size, step_size_until and momentum of the gradient's draws.
        allowed: bool (V,), tokens of a response.
        first: (L,), where the first climb begins; None for a random response.
        ways: those that take part.
        on_way: called with the way that is at work, as it changes.
    """
    if counter.budget is None:
        raise ValueError("a climb goes on until a budget is used up; here is none")
    done, visited, budget = Climbed(), Visited(), max(counter.left, 1)
    every = allowed.nonzero()[:, 0].expand(length, -1)  # (L, A)
    among: dict[str, Any] = {"length": length, "allowed": allowed, "generator": generator}
    if first is None:
        [first] = starts(1, retokenizes=retokenizes, **among)
    start: Tensor | None = first
    visited.add(first[None])
    most = max(_FEWEST, budget // _STEPS)  # candidates of a step, but of wider sweeps
    narrowest, spent, at_work = min(_NARROWEST, most, every.shape[1]), counter.used, ""

    def draws(way: str, place: _Place) -> Tensor:
        """Changes of the place's response, new or not."""
        if way == RANDOM:
            width = min(_WALK, most)
            return sample(place.response, every, width=width, step_size=1, generator=generator)
        if place.slope is None or place.mean is None:
            place.slope = counter.gradient(place.response)
            place.mean = place.momentum.update(place.slope)
        known: dict[str, Any] = {"current": place.response, "allowed": allowed}
        if way == SWEEPS:
            tokens = top_tokens(place.slope, k=place.width, **known)[place.position]
            return changed(place.response, place.position, tokens)
        tokens = top_tokens(place.mean, k=spec.top_k, **known)
        share = (counter.used - spent) / budget
        many = step_size(share, first=spec.step_size, until=spec.step_size_until)
        if not tokens.shape[1]:
            return place.response[None][:0]
        width = min(spec.search_width, most)
        return sample(place.response, tokens, width=width, step_size=many, generator=generator)

    while start is not None and counter.left:
        value = float(counter.values(start[None])[0])
        done.evaluations[ways[0]] = done.evaluations.get(ways[0], 0) + 1
        place = _Place(start, value, Momentum(spec.momentum), narrowest, 0)
        place.position = int(torch.randint(length, (1,), generator=generator))
        rates: dict[str, float] = {}
        idle = 0
        while counter.left > GRADIENT_COST and idle < _IN_VAIN:
            way = _choose(ways, rates, generator)
            if way != at_work:
                at_work = way
                (on_way or str)(way)
            before, best = counter.used, _best(counter)
            new = unseen(draws(way, place), visited, retokenizes=retokenizes, most=counter.left)
            gain = _move(counter, place, new, tolerance)
            used = counter.used - before
            rate, last = gain / max(used, 1), rates.get(way)
            rates[way] = rate if last is None else (1 - _LAST) * last + _LAST * rate
            done.evaluations[way] = done.evaluations.get(way, 0) + used
            if _best(counter) > best:
                done.best[way] = counter.best
            idle = 0 if len(new) or way == SWEEPS else idle + 1
            if gain > 0:
                place.width, place.unchanged = narrowest, 0
            if way == SWEEPS and counter.left and _swept(place, every.shape[1]):
                done.ends.append(Point(counter.used, place.value, tuple(place.response.tolist())))
                break
        start = _anew(counter, visited, retokenizes, among)
    return done


def _choose(ways: Sequence[str], rates: dict[str, float], generator: torch.Generator) -> str:
    """The way of the next step: each once, then the one that gains most."""
    untried = [way for way in ways if way not in rates]
    if untried:
        return untried[0]
    if float(torch.rand(1, generator=generator)) < _ANY:
        return ways[int(torch.randint(len(ways), (1,), generator=generator))]
    return max(ways, key=lambda way: rates[way])  # of equal ones the first, which ends


def _move(counter: EvaluationCounter, place: _Place, new: Tensor, tolerance: float) -> float:
    """Evaluate changes (n, L) of the place's response and go to the best where it is better; by how
    much."""
    if not len(new):
        return 0.0
    values = counter.values(new, anchor=place.response)
    top = int(values.argmax())
    gain = float(values[top]) - place.value
    if gain <= tolerance:
        return 0.0
    place.response, place.value = new[top], float(values[top])
    place.slope = place.mean = None
    return gain


def _swept(place: _Place, tokens: int) -> bool:
    """Go on to the next position; whether the widest sweep has brought nothing."""
    place.position = (place.position + 1) % len(place.response)
    place.unchanged += 1
    if place.unchanged < len(place.response):
        return False
    widest = min(_WIDEST, tokens)
    ended = place.width >= widest
    place.width, place.unchanged = min(_WIDEN * place.width, widest), 0
    return ended


def _anew(
    counter: EvaluationCounter, visited: Visited, retokenizes: Retokenizes | None, among: dict
) -> Tensor | None:
    """The best response so far with half of its positions drawn anew, or a random one; None where
    none is new."""
    best = torch.tensor(counter.best.response) if counter.curve else None
    for _ in range(_IN_VAIN):
        drawn = random_responses(_DRAWN, **among)
        if best is not None:
            n, length = drawn.shape
            order = torch.rand(n, length, generator=among["generator"]).argsort(dim=1)
            kept = order >= max(1, length // 2)
            drawn = torch.where(kept, best, drawn)
        if len(new := unseen(drawn, visited, retokenizes=retokenizes, most=1)):
            return new[0]
        best = None
    return None


def _best(counter: EvaluationCounter) -> float:
    return counter.best.value if counter.curve else -torch.inf


# --- What is proven of the result.


def passes(
    counter: EvaluationCounter,
    start: Tensor,
    *,
    allowed: Tensor,
    retokenizes: Retokenizes | None = None,
    tolerance: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Try every allowed token at every position, take what is better, until none is or the budget
    is used up: the response (L,) it ends with, and the values (L, V) float64 of those of its single
    changes that were tried, -inf elsewhere.

    Where the budget does not pay for all, every position has its share, of the gradient's best.
    The token that stands at a position has the response's own value there.
    """
    length, response = len(start), start.clone()
    [value] = counter.values(response[None]).tolist()
    values = torch.full((length, len(allowed)), -torch.inf, dtype=torch.float64)
    position = unchanged = 0
    slope: Tensor | None = None
    while unchanged < length:
        tokens = allowed.nonzero()[:, 0]
        tokens = tokens[tokens != response[position]]
        if counter.left // (length - unchanged) < len(tokens):
            if slope is None and counter.left > GRADIENT_COST:
                slope = counter.gradient(response)
            share = counter.left // (length - unchanged)
            if slope is None or not share:
                break
            among = {"current": response, "allowed": allowed}
            tokens = top_tokens(slope, k=share, **among)[position]
        fresh, best = improve(
            counter, response, position, tokens, above=value + tolerance, retokenizes=retokenizes
        )
        values[position, tokens], values[position, response[position]] = fresh, value
        unchanged += 1
        if len(best):
            [response], [value] = changed(response, position, tokens[best]), fresh[best].tolist()
            kept = values[position].clone()
            values.fill_(-torch.inf)
            values[position] = kept
            unchanged, slope = 1, None
        position = (position + 1) % length
    values[torch.arange(length), response] = value
    return response, values
