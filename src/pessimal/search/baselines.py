"""What searches without a gradient: random single changes, coordinate ascent from random starts, a beam.

Random changes and the beam are stages of a search too; with a counter of its own each is a baseline. Knows the evaluation
counter and token ids. Does not know models or texts.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from pessimal.search.exact import improve, polish
from pessimal.search.gcg import Visited, random_responses, sample, unseen
from pessimal.search.objective import EvaluationCounter
from pessimal.search.round_trip import Retokenizes, best_retokenizing

log = logging.getLogger(__name__)

# Responses drawn at once: it looks for a better one no more often than this. On a demo model batches of 1, 16 and 64 got
# equally far in 5,000 evaluations, in 26, 5 and 1.6 s (`experiments/LOG.md`).
_WALK = 64
# So many times as many are drawn where that brings little.
_MANY = 16
# Such draws in a row without anything new and retokenizes, after which there is taken to be nothing.
_IN_VAIN = 8
# Random starts drawn at once, and how often, until one retokenizes. Of random responses of four tokens two thirds or
# more retokenize on the demo models; where fewer than one in a thousand does, the sweeps themselves have to find it.
_DRAWN, _DRAWS = 64, 16


def random_changes(
    counter: EvaluationCounter,
    *,
    length: int,
    allowed: Tensor,
    generator: torch.Generator,
    retokenizes: Retokenizes | None = None,
) -> None:
    """Replace one token of the best response so far by a random one, again and again; begins at a random response, and at
    another one when all changes have been tried.

    Greedy coordinate gradient without the gradient, and what Panfilov, Romov et al. 2026 call random search. Uniformly
    random responses would be a far weaker baseline (`experiments/LOG.md`), and flatter a search.

    Args:
        counter: has a budget; its `best` is the result.
        length: L, tokens of a response.
        allowed: bool (V,), tokens that responses are made of.
        generator: of the responses, on the CPU.
        retokenizes: bool (n,) of responses (n, L), whether they may be evaluated; None where all may.
    """

    def draw_start(width: int) -> Tensor:
        return random_responses(width, length=length, allowed=allowed, generator=generator)

    def draw_change(point: Tensor, width: int) -> Tensor:
        return sample(point, tokens, width=width, step_size=1, generator=generator)

    visited = Visited()
    tokens = allowed.nonzero()[:, 0].expand(length, -1)  # (L, A)
    while len(begun := _found(draw_start, visited, retokenizes, most=min(1, counter.left))):
        point, best = begun[0], float(counter.values(begun[:1])[0])
        draw = partial(draw_change, point)
        while len(found := _found(draw, visited, retokenizes, most=counter.left)):
            values = counter.values(found, anchor=point)
            top = int(values.argmax())
            if values[top] > best:
                point, best = found[top], float(values[top])
                draw = partial(draw_change, point)


def _found(
    draw: Callable[[int], Tensor], visited: Visited, retokenizes: Retokenizes | None, *, most: int
) -> Tensor:
    """Up to `most`, and _WALK, that are new and retokenize; none where none of many draws does."""
    found = unseen(draw(_WALK), visited, retokenizes=retokenizes, most=most)
    for _ in range(_IN_VAIN):
        if most == 0 or len(found) >= min(most, _WALK // 2):
            break
        # Most changes of this point have been tried: batches of the few that are left would be as dear as full ones.
        left = min(most, _WALK) - len(found)
        more = unseen(draw(_MANY * _WALK), visited, retokenizes=retokenizes, most=left)
        found = torch.cat([found, more])
        if len(more):
            break
    return found


def coordinate_ascent(
    counter: EvaluationCounter,
    *,
    length: int,
    allowed: Tensor,  # bool (V,)
    generator: torch.Generator,
    retokenizes: Retokenizes | None = None,
    tolerance: float = 0.0,
) -> None:
    """Sweep to convergence from uniformly random responses, one after the other; the counter's `best` is the result.

    The counter must have a budget; it is used to the last evaluation: at a position that it cannot pay for, a random
    part of the tokens is tried. Each ascent begins at a random position.
    """
    if counter.budget is None:
        raise ValueError("coordinate ascent goes on until a budget is used up; this counter has none")
    tokens = allowed.nonzero()[:, 0]  # (A,)
    while counter.left:
        start = _random_start(length, allowed, generator, retokenizes)
        first = int(torch.randint(length, (1,), generator=generator))
        options = {"retokenizes": retokenizes}
        found = polish(counter, start, allowed=allowed, first_position=first, tolerance=tolerance, **options)
        if 0 < counter.left < len(tokens) - 1 and not found.converged:
            response, position = torch.tensor(found.response), (first + found.positions) % length
            others = tokens[tokens != response[position]]
            part = others[torch.randperm(len(others), generator=generator)[: counter.left]]
            improve(counter, response, position, part, above=found.value + tolerance, **options)


def _random_start(
    length: int, allowed: Tensor, generator: torch.Generator, retokenizes: Retokenizes | None
) -> Tensor:
    """A uniformly random response (L,), one that retokenizes where drawing gives one."""
    for _ in range(_DRAWS):
        n = 1 if retokenizes is None else _DRAWN
        drawn = random_responses(n, length=length, allowed=allowed, generator=generator)
        good = drawn if retokenizes is None else drawn[retokenizes(drawn)]
        if len(good):
            return good[0]
    return drawn[0]


@dataclass(frozen=True)
class Level:
    """The best responses of one length that go on with the level before."""

    length: int
    """Tokens of each."""
    responses: Tensor
    """int64 (w, length), best first, w at most the width."""
    values: Tensor
    """float64 (w,)."""


def beam(
    counter: EvaluationCounter,
    *,
    length: int,
    width: int,
    allowed: Tensor,  # bool (V,)
    retokenizes: Retokenizes | None = None,
    first_values: Tensor | None = None,  # (V,)
) -> list[Level]:
    """Exact next-token extension: the `width` best retokenizing responses of 1, 2, … `length` tokens, every allowed token
    behind each of the best responses that are one token shorter.

    `first_values` are the single tokens' values where a scan has given them: they then cost nothing, and are not on the
    counter. Where every response retokenizes, level 2 at a width of every token is the exact optimum.

    In text mode the winners of *every* level retokenize: a response whose beginning no text gives is not found here,
    though the whole may retokenize. The list ends, with a warning, at the last level that the budget could pay for, or
    that had any winner. See `beam_cost` for what it takes.
    """
    tokens = allowed.nonzero()[:, 0]  # (A,)
    levels: list[Level] = []
    beginnings = torch.empty(1, 0, dtype=torch.long)  # (w, l − 1)
    while len(levels) < length:
        size = len(levels) + 1
        given = first_values if size == 1 else None
        cost = 0 if given is not None else len(beginnings) * len(tokens)
        if cost > counter.left:
            log.warning(
                "The beam ends at %d of %d tokens: the next level takes %d evaluations, %d are left.",
                len(levels), length, cost, counter.left,
            )  # fmt: skip
            break
        if given is not None:
            values = given[tokens].double()  # (A,)
        else:
            values = torch.cat([_behind(counter, beginning, tokens) for beginning in beginnings])  # (w·A,)

        def extended(rows: Tensor, beginnings: Tensor = beginnings) -> Tensor:
            return torch.cat([beginnings[rows // len(tokens)], tokens[rows % len(tokens), None]], dim=1)

        best = best_retokenizing(values, extended, count=width, retokenizes=retokenizes)
        if not len(best):
            log.warning("The beam ends at %d of %d tokens: no longer response counts.", len(levels), length)
            break
        beginnings = extended(best)
        levels.append(Level(size, beginnings, values[best]))
    return levels


def beam_cost(length: int, width: int, allowed: int, *, first_given: bool = False) -> int:
    """Candidate evaluations of a beam over `allowed` tokens; where winners have to retokenize, at most these."""
    first = 0 if first_given else allowed
    return first + sum(min(width, allowed**shorter) * allowed for shorter in range(1, length))


def affordable_width(length: int, budget: int, allowed: int, *, first_given: bool = False) -> int:
    """The widest beam that `budget` candidate evaluations pay for, no wider than there are responses; 0 where not even a
    beam of one response is paid for."""
    low, high = 0, min(budget, allowed ** (length - 1)) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if beam_cost(length, middle, allowed, first_given=first_given) <= budget:
            low = middle
        else:
            high = middle
    return low


def _behind(counter: EvaluationCounter, beginning: Tensor, tokens: Tensor) -> Tensor:
    """Values (A,) of the beginning (l − 1,) with each of `tokens` (A,) behind it."""
    responses = torch.cat([beginning.expand(len(tokens), -1), tokens[:, None]], dim=1)
    # Any of them will do as the anchor: they share everything but the last token.
    return counter.values(responses, anchor=responses[0])
