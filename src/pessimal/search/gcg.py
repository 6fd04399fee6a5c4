"""Greedy coordinate gradient: the gradient proposes changes of a response, evaluation chooses among them.

Knows the evaluation counter, and the pieces of a step: momentum, the sampler, the schedule, the buffer, the visited set. Does not know
models, texts, or which way is up: more is better.

Sources: Zou et al. 2023 (GCG); Zhang & Wei 2024 (momentum); the nanoGCG library (buffer, several positions a step);
Panfilov, Romov et al. 2026 (the schedule).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from pessimal.errors import ConfigError
from pessimal.search.buffer import Buffer
from pessimal.search.evaluation_counter import GRADIENT_COST, EvaluationCounter, Point
from pessimal.search.momentum import Momentum
from pessimal.search.round_trip import Retokenizes
from pessimal.search.sampler import sample, top_tokens
from pessimal.search.schedule import StepSize
from pessimal.search.visited import Visited, unseen

# Where a draw of one width brought nothing new, one of so many widths says whether anything is left. Draws are free: of
# 1,024 changes, 8 widths of 512 miss each by a chance of 2 %.
_LOOK_CLOSER = 8
# By how much more tokens a position are taken where nothing new is left.
_WIDEN = 4


@dataclass(frozen=True)
class GCGOptions:
    """How a step is made."""

    search_width: int
    """Candidates drawn a step; those seen before and repeats are not evaluated again."""
    top_k: int
    """Tokens that the gradient keeps for each position."""
    step_size: int
    """Positions that one step replaces, at the beginning."""
    step_size_until: float
    """Share of the budget after which a step replaces one position, 0 to 1."""
    momentum: float
    """Share of the earlier gradients kept in the running mean, 0 to below 1."""
    buffer_size: int
    """Best responses kept as points to go on from; 0 goes on from the best candidate of the last step."""


@dataclass(frozen=True)
class Step:
    """What one step brought."""

    evaluations: int
    """Evaluations counted after it."""
    candidates: int
    """Responses that it evaluated."""
    value: float
    """The best of them."""
    best: float
    """The best of this run so far."""


def gcg(
    counter: EvaluationCounter,
    start: Tensor,
    options: GCGOptions,
    *,
    allowed: Tensor,
    budget: int,
    generator: torch.Generator,
    retokenizes: Retokenizes | None = None,
    on_step: Callable[[Step], None] | None = None,
) -> Point:
    """The best response of one run, which goes on until its budget is used up or it finds nothing new.

    No response is evaluated twice. Where nothing new is left near the best, the run goes on from the next one in the
    buffer; where there is none, it draws from more tokens a position, then changes more positions or fewer.

    Args:
        counter: what is maximised, counted.
        start: (L,) int64, evaluated first, whatever it is made of.
        options: how a step is made.
        allowed: bool (V,), tokens that may be put in.
        budget: evaluations at most, a gradient for GRADIENT_COST; no more than are left.
        generator: of every random choice, on the CPU.
        retokenizes: bool (n,) of responses (n, L), whether they may be evaluated; None where all may.
        on_step: called with each step; what it raises ends the run.

    Raises:
        ConfigError: a budget of less than one evaluation.
    """
    budget = min(budget, counter.left)
    if budget < 1:
        raise ConfigError(
            f"A run of greedy coordinate gradient was given {budget} evaluations; it needs 1 for its start, and more to "
            "get anywhere. Raise search.evaluations, or lower search.restarts, among which they are divided"
        )
    length, others = len(start), int(allowed.sum())
    begun, end = counter.used, counter.used + budget
    step_size = StepSize(options.step_size, options.step_size_until)
    momentum, buffer, visited = Momentum(options.momentum), Buffer(options.buffer_size), Visited()

    visited.add(start[None])
    best = _point(counter, start, float(counter.values(start[None])[0]))
    buffer.add(start, best.value)
    slope_at, slope, scheduled = None, None, options.step_size
    while (left := end - counter.used) > 0:
        # 1. How many positions, and how far to look: near by, unless that has brought nothing new.
        due = step_size.at((counter.used - begun) / budget)
        if due != scheduled:
            scheduled = due
            buffer.renew()
        reaches = _reaches(options.top_k, others=others, step_size=scheduled, length=length)
        if buffer.level == len(reaches):
            break
        point, (top_k, replaced) = buffer.point, reaches[buffer.level]
        # 2. The gradient where the run goes on. A point it stays at keeps its gradient, which counts in the running mean
        #    again, as if it had been computed again: the published update, for three evaluations less.
        if point is not slope_at:
            if left <= GRADIENT_COST:
                break
            slope_at, slope = point, counter.gradient(point)
            left -= GRADIENT_COST
        mean = momentum.update(slope)
        # 3. New changes of that point.
        tokens = top_tokens(mean, current=point, allowed=allowed, k=top_k)
        draws = _draws(point, tokens, width=options.search_width, step_size=replaced, generator=generator)
        most = min(options.search_width, left)
        found = (unseen(drawn, visited, retokenizes=retokenizes, most=most) for drawn in draws)
        candidates = next((some for some in found if len(some)), None)
        if candidates is None:
            buffer.exhaust()
            continue
        # 4. The best of them.
        values = counter.values(candidates, anchor=point)
        top = int(values.argmax())
        value = float(values[top])
        if value > best.value:
            best = _point(counter, candidates[top], value)
        buffer.add(candidates[top], value)
        if on_step is not None:
            on_step(Step(counter.used, len(candidates), value, best.value))
    return best


def _reaches(top_k: int, *, others: int, step_size: int, length: int) -> list[tuple[int, int]]:
    """Where candidates are drawn, as (tokens a position, positions replaced), one after the other as nothing new is left:
    as the options have it; from more tokens, up to all `others`; then with every other number of positions.
    """
    widths = [min(top_k, others)]
    while widths[-1] < others:
        widths.append(min(_WIDEN * widths[-1], others))
    step_size = min(step_size, length)
    elsewhere = [size for size in range(1, length + 1) if size != step_size]
    return [(width, step_size) for width in widths] + [(others, size) for size in elsewhere]


def _draws(
    point: Tensor, tokens: Tensor, *, width: int, step_size: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """Random changes of one response, (width, L); then, if these brought nothing new, many more; then no more."""
    for draws in (width, _LOOK_CLOSER * width) if tokens.shape[1] else ():
        yield sample(point, tokens, width=draws, step_size=step_size, generator=generator)


def _point(counter: EvaluationCounter, response: Tensor, value: float) -> Point:
    return Point(counter.used, value, tuple(response.tolist()))
