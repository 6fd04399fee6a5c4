"""Greedy coordinate gradient: the gradient proposes changes of a response, evaluation chooses among
them.

Its pieces in order: where runs begin (`starts`), which changes are tried (`top_tokens`, `sample`),
the running mean of gradients (`Momentum`), how many positions a step replaces (`step_size`), the
best few responses (`Buffer`), what has been seen (`Visited`), and the loop (`gcg`). Knows the
evaluation counter and token ids. Does not know models, texts, or which way is up: more is better.

Sources: Zou et al. 2023 (GCG, algorithm 1); Zhang & Wei 2024 (momentum); the nanoGCG library
(buffer, several positions a step); Panfilov, Romov et al. 2026 (the schedule).
"""

import logging
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pessimal.errors import ConfigError
from pessimal.searching.objective import GRADIENT_COST, EvaluationCounter, Point
from pessimal.searching.round_trip import Retokenizes
from pessimal.searching.spec import SearchSpec

log = logging.getLogger(__name__)

# Random responses that are drawn for one start, in parts, before there is taken to be none.
_DRAWS, _PART = 20_000, 64
# Where a draw of one width brought nothing new, one of so many widths (draws are free) says whether
# anything is left; if not, so many times as many tokens a position are taken.
_LOOK_CLOSER, _WIDEN = 8, 4


def gcg(
    counter: EvaluationCounter,
    start: Tensor,
    options: SearchSpec,
    *,
    allowed: Tensor,
    budget: int,
    generator: torch.Generator,
    retokenizes: Retokenizes | None = None,
) -> Point:
    """The best response of one run, which goes on until its budget is used up or it finds nothing
    new.

    No response is evaluated twice. Where nothing new is left near the best, the run goes on from
    the next one in the buffer; where there is none, it draws from more tokens a position, then
    changes more positions or fewer.

    Args:
        start: (L,) int64, evaluated first, whatever it is made of.
        options: how a step is made: search_width, top_k, step_size, step_size_until, momentum,
            buffer_size.
        allowed: bool (V,), tokens that may be put in.
        budget: evaluations at most, a gradient for GRADIENT_COST. ConfigError where it is less than
            one.
        generator: of every random choice, on the CPU.
        retokenizes: bool (n,) of responses (n, L), whether they may be evaluated; None where all
            may.
    """
    budget = min(budget, counter.left)
    if budget < 1:
        raise ConfigError(
            f"A run of greedy coordinate gradient was given {budget} evaluations; it needs 1 for "
            "its start, and more to get anywhere. Raise search.evaluations, or lower "
            "search.restarts, among which they are divided"
        )
    length, others = len(start), int(allowed.sum())
    used_before = counter.used
    momentum, buffer, visited = Momentum(options.momentum), Buffer(options.buffer_size), Visited()

    visited.add(start[None])
    best = _point(counter, start, float(counter.values(start[None])[0]))
    buffer.add(start, best.value)
    slope_at, slope = None, torch.empty(0)  # of the point where the run goes on, once computed
    scheduled = options.step_size
    while (left := used_before + budget - counter.used) > 0:
        # 1. How many positions, and how far to look: near by, unless that has brought nothing new.
        share = (counter.used - used_before) / budget
        due = step_size(share, first=options.step_size, until=options.step_size_until)
        if due != scheduled:
            scheduled = due
            buffer.renew()
        reaches = _reaches(options.top_k, others=others, step_size=scheduled, length=length)
        origin = buffer.next
        if origin.level == len(reaches):
            break
        point, (top_k, replaced) = origin.response, reaches[origin.level]
        # 2. The gradient where the run goes on. A point it stays at keeps its gradient, which
        # counts in the running mean again, as if it had been computed again: the published
        # update, for three evaluations less.
        if point is not slope_at:
            if left <= GRADIENT_COST:
                break
            slope_at, slope = point, counter.gradient(point)
            left -= GRADIENT_COST
        mean = momentum.update(slope)
        # 3. New changes of that point.
        tokens = top_tokens(mean, current=point, allowed=allowed, k=top_k)
        candidates, width = start[:0], options.search_width
        for draws in (width, _LOOK_CLOSER * width) if tokens.shape[1] else ():
            drawn = sample(point, tokens, width=draws, step_size=replaced, generator=generator)
            candidates = unseen(drawn, visited, retokenizes=retokenizes, most=min(width, left))
            if len(candidates):
                break
        if not len(candidates):
            origin.level += 1  # nothing new is left there: it goes behind those that are lower
            continue
        # 4. The best of them.
        values = counter.values(candidates, anchor=point)
        top = int(values.argmax())
        value = float(values[top])
        if value > best.value:
            best = _point(counter, candidates[top], value)
        buffer.add(candidates[top], value)
    return best


def _reaches(top_k: int, *, others: int, step_size: int, length: int) -> list[tuple[int, int]]:
    """Where candidates are drawn, as (tokens a position, positions replaced), one after the other
    as nothing new is left: as the options have it; from more tokens, up to all `others`; then with
    every other number of positions."""
    widths = [min(top_k, others)]
    while widths[-1] < others:
        widths.append(min(_WIDEN * widths[-1], others))
    step_size = min(step_size, length)
    elsewhere = [size for size in range(1, length + 1) if size != step_size]
    return [(width, step_size) for width in widths] + [(others, size) for size in elsewhere]


def _point(counter: EvaluationCounter, response: Tensor, value: float) -> Point:
    return Point(counter.used, value, tuple(response.tolist()))


# --- Where runs begin.


def starts(
    n: int,
    *,
    length: int,
    allowed: Tensor,
    generator: torch.Generator,
    winners: Tensor | None = None,
    best_token: int | None = None,
    retokenizes: Retokenizes | None = None,
) -> list[tuple[str, Tensor]]:
    """Up to `n` distinct starts with labels: the first winners ("beam", half of them at most, but
    one of a single start), the best token repeated ("repeat"), and random responses ("random").
    Fewer, logged, where no more are found.

    `length`: L, tokens of each; `allowed`: bool (V,); `winners`: (b, L) int64, best first;
    `best_token`: an id. Raises ConfigError where not one start could be found.
    """
    visited = Visited()
    chosen: list[tuple[str, Tensor]] = []
    if winners is not None:
        new = unseen(winners, visited, retokenizes=retokenizes)
        chosen += [("beam", winner) for winner in new[: max(1, n // 2)]]
    if best_token is not None and len(chosen) < n:
        new = unseen(torch.full((1, length), best_token), visited, retokenizes=retokenizes)
        chosen += [("repeat", repeated) for repeated in new]
    for _ in range(n * _DRAWS // _PART):
        if len(chosen) >= n:
            break
        drawn = random_responses(_PART, length=length, allowed=allowed, generator=generator)
        new = unseen(drawn, visited, retokenizes=retokenizes, most=n - len(chosen))
        chosen += [("random", response) for response in new]
    if not chosen:
        raise ConfigError(
            f"Of {n * _DRAWS:,} random responses of {length} allowed tokens, not one counts: in "
            "mode=text only those do that come back from ids → text → template → ids. Type "
            "mode=ids, a smaller search.length, or allow more tokens"
        )
    if len(chosen) < n:
        text = "only %d of %d distinct starts of %d allowed tokens were found"
        log.warning(text, len(chosen), n, length)
    return chosen


def random_responses(n: int, *, length: int, allowed: Tensor, generator: torch.Generator) -> Tensor:
    """Responses (n, length) of tokens drawn uniformly from a bool mask (V,); they may repeat."""
    tokens = allowed.nonzero()[:, 0]
    return tokens[torch.randint(len(tokens), (n, length), generator=generator)]


# --- Which changes are tried.


def top_tokens(gradient: Tensor, *, current: Tensor, allowed: Tensor, k: int) -> Tensor:
    """For each position the allowed (bool (V,)) tokens of largest gradient, other than the one that
    stands there, best first.

    `gradient`: (L, V), d value / d one-hot at `current` (L,), on any device; what is no number
    comes last. Returns int64 (L, k') on the CPU; k' is less than k where fewer other tokens are allowed, 0 where there is
    none.
    """
    # It is done where the gradient lies: of the 8 MB of L = 16 and V = 128,256, only L · k ids are
    # moved.
    device = gradient.device
    lowest = torch.finfo(gradient.dtype).min
    # New, and never as low as what is ruled out.
    usable = gradient.nan_to_num(nan=lowest, neginf=lowest)
    usable.masked_fill_(~allowed.to(device), -torch.inf)
    usable.scatter_(1, current.to(device).unsqueeze(1), -torch.inf)
    others = allowed.sum() - allowed[current].int()  # (L,)
    return usable.topk(min(k, int(others.min())), dim=1).indices.cpu()


def sample(
    current: Tensor, tokens: Tensor, *, width: int, step_size: int, generator: torch.Generator
) -> Tensor:
    """Random changes (width, L) of one response (L,): each replaces `step_size` positions, no more
    than L.

    A replaced position gets one of its own `tokens` (L, k), k at least 1, uniformly and
    independently: rows may repeat. The positions of a row are distinct. Among the first r rows, for
    every r, the numbers of times that any two positions are replaced differ by one at most. (nanoGCG
    draws positions independently, so that some get more tries.)
    """
    length, k = tokens.shape
    positions = _even_positions(width, length, min(step_size, length), generator)  # (width, s)
    chosen = torch.randint(k, positions.shape, generator=generator)
    return current.repeat(width, 1).scatter_(1, positions, tokens[positions, chosen])


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


# --- Where a run goes on, and what it has seen.


@dataclass
class _Candidate:
    value: float
    response: Tensor  # (L,)
    level: int = 0  # how far from it is looked for new ones; 0 for near by


class Buffer:
    """The best few responses of a run, from which it goes on. Size 0 keeps the last alone, better
    or worse.

    As in nanoGCG, the best candidate of each step enters where it is better than the worst that is
    kept.
    """

    def __init__(self, size: int):
        self.size = size
        self._kept: list[_Candidate] = []  # best first; of equals, the earlier

    def add(self, response: Tensor, value: float) -> None:
        """Offer one response (L,), the best of a step."""
        candidates = [*self._kept[: self.size], _Candidate(value, response)]
        self._kept = sorted(candidates, key=lambda one: -one.value)[: max(1, self.size)]

    @property
    def next(self) -> _Candidate:
        """The best of the lowest level."""
        return min(self._kept, key=lambda one: one.level)

    def renew(self) -> None:
        """Level 0 for all."""
        for one in self._kept:
            one.level = 0


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
    most: int | None = None,
) -> Tensor:
    """Those of `responses` (n, L) that are new and retokenize, each once, in their order, `most` of
    them. They are visited from now on, and so are the new ones that do not retokenize."""
    new = visited.new(responses)
    if retokenizes is not None and len(new):
        good = retokenizes(new)
        visited.add(new[~good])
        new = new[good]
    visited.add(new[:most])
    return new[:most]
