"""The climb: one response is changed in the way that pays best on this very reward, from one start
after the other; and the passes that prove what it ends with.

Three ways propose changes: sweeps over the gradient's best tokens of one position, draws from the
gradient's best tokens of all, and random ones. Each step is of the way that has lately gained most
an evaluation, now and then of any, so that no share of the budget is fixed and nothing is tuned to
some models (adaptive operator selection: Fialho, Da Costa, Schoenauer & Sebag 2010).

Before it stand the pieces of greedy coordinate gradient: where it begins (`random_start`), which
changes are tried (`top_tokens`, `sample`), the running mean of gradients (`Momentum`), how many
positions a step replaces (`step_size`), and which responses were seen (`Visited`). Knows the
evaluation counter and token ids. Does not know models, texts or which way is up: more is better.

Sources: Zou et al. 2023 (GCG, algorithm 1); Zhang & Wei 2024 (momentum); Panfilov, Romov et al.
2026 (the schedule).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pessimal.errors import ConfigError
from pessimal.searching.allowed import Retokenizes
from pessimal.searching.exact import changed, improve
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
# Random responses that are drawn for one start, in parts, before there is taken to be none.
_DRAWS, _PART = 20_000, 64


# --- Where climbs begin.


def random_start(
    *,
    length: int,
    allowed: Tensor,
    generator: torch.Generator,
    retokenizes: Retokenizes | None = None,
) -> Tensor:
    """A random response (length,) of allowed tokens, bool (V,), that counts. ConfigError where none
    could be found."""
    for _ in range(_DRAWS // _PART):
        some = random_responses(_PART, length=length, allowed=allowed, generator=generator)
        good = some if retokenizes is None else some[retokenizes(some)]
        if len(good):
            return good[0]
    raise ConfigError(
        f"no text gives one of {_DRAWS:,} random responses of {length} allowed tokens: type "
        "mode=ids, a smaller search.length, or allow more tokens"
    )


def random_responses(n: int, *, length: int, allowed: Tensor, generator: torch.Generator) -> Tensor:
    """Responses (n, length) of tokens drawn uniformly from a bool mask (V,); they may repeat."""
    tokens = allowed.nonzero()[:, 0]
    return tokens[torch.randint(len(tokens), (n, length), generator=generator)]


# --- Which changes are tried.


def top_tokens(gradient: Tensor, *, current: Tensor, allowed: Tensor, k: int) -> Tensor:
    """For each position the allowed (bool (V,)) tokens of largest gradient, other than the one that
    stands there, best first.

    `gradient`: (L, V), d value / d one-hot at `current` (L,), on any device; what is no number
    comes last. Returns int64 (L, k') on the CPU; k' is less than k where fewer other tokens are
    allowed, 0 where there is none.
    """
    # It is done where the gradient lies: of the 8 MB of L = 16 and V = 128,256, only L · k ids are
    # moved.
    device = gradient.device
    lowest = torch.finfo(gradient.dtype).min
    # New, and never as low as what is ruled out.
    usable = gradient.nan_to_num(nan=lowest, neginf=lowest)
    usable.masked_fill_(~allowed.to(device), -torch.inf)
    usable.scatter_(1, current.to(device).unsqueeze(1), -torch.inf)
    counts = allowed.sum() - allowed[current].int()  # (L,)
    return usable.topk(min(k, int(counts.min())), dim=1).indices.cpu()


def sample(
    current: Tensor, tokens: Tensor, *, width: int, step_size: int, generator: torch.Generator
) -> Tensor:
    """Random changes (width, L) of one response (L,): each replaces `step_size` positions, no more
    than L.

    A replaced position gets one of its own `tokens` (L, k), k at least 1, uniformly and
    independently: rows may repeat. The positions of a row are distinct. Among the first r rows, for
    every r, the numbers of times that any two positions are replaced differ by one at most.
    (nanoGCG draws positions independently, so that some get more tries.)
    """
    length, k = tokens.shape
    positions = _even_positions(width, length, min(step_size, length), generator)  # (width, s)
    columns = torch.randint(k, positions.shape, generator=generator)
    return current.repeat(width, 1).scatter_(1, positions, tokens[positions, columns])


def _even_positions(width: int, length: int, step_size: int, generator: torch.Generator) -> Tensor:
    """Positions (width, step_size): random orders of all positions, each dealt round and round
    until it comes out even.

    `step_size` neighbours in an order, going round, are distinct; a deal that comes out even uses
    all alike.
    """
    rows = length // math.gcd(length, step_size)
    orders = torch.rand(-(-width // rows), length, generator=generator).argsort(dim=1)
    dealt = orders[:, torch.arange(rows * step_size) % length]
    return dealt.reshape(-1, step_size)[:width]


def step_size(share: float, *, first: int, until: float) -> int:
    """Positions that a step replaces when this share of the budget is used: several at first, one
    in the end (the best discrete recipe of Panfilov, Romov et al. 2026: 2, then 1 after 80 %)."""
    return first if share < until else 1


class Momentum:
    """The mean of the gradients so far, each weighted by `share` to the power of its age in steps.

    The update of Zhang & Wei 2024, m ← µ m + (1 − µ) g, begins at m = g, which counts the first
    gradient 1 / (1 − µ) times too much for its age; this is the mean with the right weights from
    the first step on.
    """

    def __init__(self, share: float):
        self.share = share  # µ, 0 (the last gradient alone) to below 1
        self._weight = 0.0
        self._mean: Tensor | None = None

    def update(self, gradient: Tensor) -> Tensor:
        """The mean after one more gradient, of the same shape and on the same device; what is no
        number counts as 0."""
        gradient = gradient.where(gradient.isfinite(), 0.0)  # or it would stay in the mean for good
        self._weight = self.share * self._weight + 1.0
        if self._mean is None or self.share == 0.0:  # to the last bit
            self._mean = gradient
        else:
            self._mean = self._mean + (gradient - self._mean) / self._weight
        return self._mean


# --- What has been seen.


class Visited:
    """A set of responses."""

    def __init__(self) -> None:
        self._rows: set[bytes] = set()

    def new(self, responses: Tensor) -> Tensor:
        """Those of `responses` (n, L) that are not in the set, each once, in their order."""
        rows: dict[bytes, int] = {}
        for number, row in enumerate(responses.numpy()):
            rows.setdefault(row.tobytes(), number)
        return responses[[number for row, number in rows.items() if row not in self._rows]]

    def add(self, responses: Tensor) -> None:
        """Put `responses` (n, L) into the set; those that are there already change nothing."""
        self._rows.update(row.tobytes() for row in responses.numpy())


def unseen(
    responses: Tensor,
    visited: Visited,
    *,
    retokenizes: Retokenizes | None = None,
    limit: int | None = None,
) -> Tensor:
    """The first `limit` of `responses` (n, L) that are new and retokenize, each once, in their
    order. They are visited from now on, and so are the new ones that do not retokenize."""
    new = visited.new(responses)
    if retokenizes is not None and len(new):
        good = retokenizes(new)
        visited.add(new[~good])
        new = new[good]
    visited.add(new[:limit])
    return new[:limit]


# --- The climb.


@dataclass
class Climbed:
    """Evaluations and best responses of the ways, and the ends of climbs."""

    evaluations: dict[str, int] = field(default_factory=dict)
    """By way; a start counts to the first."""
    best: dict[str, Point] = field(default_factory=dict)
    """The best that each way came to by itself, where it was the best so far."""
    ends: list[Point] = field(default_factory=list)
    """Where no sweep brought more."""


@dataclass
class _ClimbState:
    """The state of one climb."""

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
        first = random_start(retokenizes=retokenizes, **among)
    start: Tensor | None = first
    visited.add(first[None])
    widest = max(_FEWEST, budget // _STEPS)  # candidates of a step, but of wider sweeps
    narrowest, spent, at_work = min(_NARROWEST, widest, every.shape[1]), counter.used, ""

    def draws(way: str, state: _ClimbState) -> Tensor:
        """Changes of the state's response, new or not."""
        if way == RANDOM:
            width = min(_WALK, widest)
            return sample(state.response, every, width=width, step_size=1, generator=generator)
        if state.slope is None or state.mean is None:
            state.slope = counter.gradient(state.response)
            state.mean = state.momentum.update(state.slope)
        options: dict[str, Any] = {"current": state.response, "allowed": allowed}
        if way == SWEEPS:
            tokens = top_tokens(state.slope, k=state.width, **options)[state.position]
            return changed(state.response, state.position, tokens)
        tokens = top_tokens(state.mean, k=spec.top_k, **options)
        share = (counter.used - spent) / budget
        many = step_size(share, first=spec.step_size, until=spec.step_size_until)
        if not tokens.shape[1]:
            return state.response[None][:0]
        width = min(spec.search_width, widest)
        return sample(state.response, tokens, width=width, step_size=many, generator=generator)

    while start is not None and counter.left:
        value = float(counter.values(start[None])[0])
        done.evaluations[ways[0]] = done.evaluations.get(ways[0], 0) + 1
        state = _ClimbState(start, value, Momentum(spec.momentum), narrowest, 0)
        state.position = int(torch.randint(length, (1,), generator=generator))
        rates: dict[str, float] = {}
        idle = 0
        while counter.left > GRADIENT_COST and idle < _IN_VAIN:
            way = _choose(ways, rates, generator)
            if way != at_work:
                at_work = way
                (on_way or str)(way)
            before, best = counter.used, _best(counter)
            new = unseen(draws(way, state), visited, retokenizes=retokenizes, limit=counter.left)
            gain = _move(counter, state, new, tolerance)
            used = counter.used - before
            rate, earlier = gain / max(used, 1), rates.get(way)
            rates[way] = rate if earlier is None else (1 - _LAST) * earlier + _LAST * rate
            done.evaluations[way] = done.evaluations.get(way, 0) + used
            if _best(counter) > best:
                done.best[way] = counter.best
            idle = 0 if len(new) or way == SWEEPS else idle + 1
            if gain > 0:
                state.width, state.unchanged = narrowest, 0
            if way == SWEEPS and counter.left and _swept(state, every.shape[1]):
                done.ends.append(Point(counter.used, state.value, tuple(state.response.tolist())))
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


def _move(counter: EvaluationCounter, state: _ClimbState, new: Tensor, tolerance: float) -> float:
    """Evaluate changes (n, L) of the state's response and go to the best where it is better; by how
    much."""
    if not len(new):
        return 0.0
    values = counter.values(new, anchor=state.response)
    top = int(values.argmax())
    gain = float(values[top]) - state.value
    if gain <= tolerance:
        return 0.0
    state.response, state.value = new[top], float(values[top])
    state.slope = state.mean = None
    return gain


def _swept(state: _ClimbState, tokens: int) -> bool:
    """Go on to the next position; whether the widest sweep has brought nothing."""
    state.position = (state.position + 1) % len(state.response)
    state.unchanged += 1
    if state.unchanged < len(state.response):
        return False
    widest = min(_WIDEST, tokens)
    ended = state.width >= widest
    state.width, state.unchanged = min(_WIDEN * state.width, widest), 0
    return ended


def _anew(
    counter: EvaluationCounter, visited: Visited, retokenizes: Retokenizes | None, among: dict
) -> Tensor | None:
    """The best response so far with half of its positions drawn anew, or a random one; None where
    none is new."""
    best = torch.tensor(counter.best.response) if counter.curve else None
    for _ in range(_IN_VAIN):
        some = random_responses(_DRAWN, **among)
        if best is not None:
            n, length = some.shape
            order = torch.rand(n, length, generator=among["generator"]).argsort(dim=1)
            some = torch.where(order >= max(1, length // 2), best, some)
        if len(new := unseen(some, visited, retokenizes=retokenizes, limit=1)):
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
            row = values[position].clone()
            values.fill_(-torch.inf)
            values[position] = row
            unchanged, slope = 1, None
        position = (position + 1) % length
    values[torch.arange(length), response] = value
    return response, values
