"""What searches without a gradient: random single changes, coordinate ascent from random starts, a
beam.

Random changes and the beam are stages of a search too; with a counter of its own each is a
baseline. Knows the evaluation counter and token ids. Does not know models or texts.
"""

import logging
from bisect import bisect_right
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from pessimal.searching.allowed import Retokenizes, best_retokenizing
from pessimal.searching.climb import Visited, random_responses, sample, unseen
from pessimal.searching.exact import changed, improve
from pessimal.searching.objective import EvaluationCounter

log = logging.getLogger(__name__)

# Responses drawn at once (on a demo model batches of 1, 16 and 64 got equally far in 5,000
# evaluations, in 26, 5 and 1.6 s: `experiments/LOG.md`); how many times as many where that brings
# little; and how many such draws in vain are taken for an end.
_WALK, _MANY, _IN_VAIN = 64, 16, 8
# Random starts drawn at once, and how often, until one retokenizes. Of random responses of four
# tokens two thirds or more retokenize on the demo models; where fewer than one in a thousand does,
# the sweeps themselves have to find it.
_DRAWN, _DRAWS = 64, 16


def random_changes(
    counter: EvaluationCounter,
    *,
    length: int,
    allowed: Tensor,
    generator: torch.Generator,
    retokenizes: Retokenizes | None = None,
) -> None:
    """Replace one token of the best response so far by a random one, again and again; begins at a
    random response, and at another one when all changes have been tried. The counter has a budget,
    and its `best` is the result.

    Greedy coordinate gradient without the gradient, and what Panfilov, Romov et al. 2026 call
    random search. Uniformly random responses would be a far weaker baseline (`experiments/LOG.md`),
    and flatter a search.
    """

    start = partial(random_responses, length=length, allowed=allowed, generator=generator)
    tokens = allowed.nonzero()[:, 0].expand(length, -1)  # (L, A)

    def change(point: Tensor, width: int) -> Tensor:
        return sample(point, tokens, width=width, step_size=1, generator=generator)

    new = partial(_new, visited=Visited(), retokenizes=retokenizes)
    while len(first := new(start, most=min(1, counter.left))):
        point, best = first[0], float(counter.values(first)[0])
        while len(changed := new(partial(change, point), most=counter.left)):
            values = counter.values(changed, anchor=point)
            top = int(values.argmax())
            if values[top] > best:
                point, best = changed[top], float(values[top])


def _new(
    draw: Callable[[int], Tensor], *, most: int, visited: Visited, retokenizes: Retokenizes | None
) -> Tensor:
    """Up to `most`, and _WALK, that are new and retokenize; none where none of many draws does."""
    new = unseen(draw(_WALK), visited, retokenizes=retokenizes, most=most)
    for _ in range(_IN_VAIN):
        if most == 0 or len(new) >= min(most, _WALK // 2):
            break
        # Most changes of this point have been tried: batches of the few that are left would be as
        # dear as full ones.
        left = min(most, _WALK) - len(new)
        more = unseen(draw(_MANY * _WALK), visited, retokenizes=retokenizes, most=left)
        new = torch.cat([new, more])
        if len(more):
            break
    return new


def coordinate_ascent(
    counter: EvaluationCounter,
    *,
    length: int,
    allowed: Tensor,
    generator: torch.Generator,
    retokenizes: Retokenizes | None = None,
    tolerance: float = 0.0,
) -> None:
    """Sweep to convergence from uniformly random responses, one after the other; the counter's
    `best` is the result.

    The counter must have a budget; it is used to the last evaluation: at a position that it cannot
    pay for, a random part of the tokens is tried. Each ascent begins at a random position.
    """
    if counter.budget is None:
        raise ValueError("coordinate ascent goes on until a budget is used up; here is none")
    tokens = allowed.nonzero()[:, 0]  # (A,)
    while counter.left:
        response = _random_start(length, allowed, generator, retokenizes)
        position = int(torch.randint(length, (1,), generator=generator))
        value = float(counter.values(response[None])[0])
        if retokenizes is not None and not bool(retokenizes(response[None])[0]):
            value = -torch.inf
        unchanged = 0
        while unchanged < length and counter.left:
            others = tokens[tokens != response[position]]
            if len(others) > counter.left:
                others = others[torch.randperm(len(others), generator=generator)[: counter.left]]
            fresh, best = improve(
                counter,
                response,
                position,
                others,
                above=value + tolerance,
                retokenizes=retokenizes,
            )
            unchanged += 1
            if len(best):
                # Every token of this position has been tried beside the others as they stand now.
                response, value = changed(response, position, others[best])[0], float(fresh[best])
                unchanged = 1
            position = (position + 1) % length


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


def beam(
    counter: EvaluationCounter,
    *,
    length: int,
    width: int,
    allowed: Tensor,
    retokenizes: Retokenizes | None = None,
    first_values: Tensor | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """Exact next-token extension: the `width` best retokenizing responses of 1, 2, … `length`
    tokens, every allowed token behind each of the best responses that are one token shorter; (w, l)
    each, best first, with their values (w,).

    `first_values` (V,) are the single tokens' values where a scan has given them: they then cost
    nothing. In text mode the winners of *every* level retokenize: a response whose beginning no
    text gives is not found here, though the whole may retokenize. The list ends, with a warning, at
    the last level that the budget could pay for, or that had any winner. See `beam_cost` for what
    it takes.
    """
    tokens = allowed.nonzero()[:, 0]  # (A,)
    levels: list[tuple[Tensor, Tensor]] = []
    beginnings = torch.empty(1, 0, dtype=torch.long)  # (w, l − 1)
    for size in range(1, length + 1):
        each = beginnings.repeat_interleave(len(tokens), 0)
        responses = torch.cat([each, tokens.repeat(len(beginnings))[:, None]], dim=1)  # (w·A, l)
        if size == 1 and first_values is not None:
            values = first_values[tokens].double()
        elif len(responses) > counter.left:
            why = f"the next level takes {len(responses)} evaluations, {counter.left} are left"
            log.warning("The beam ends at %d of %d tokens: %s.", size - 1, length, why)
            break
        else:  # any is an anchor: those behind one beginning share everything but the last token
            parts = responses.split(len(tokens))
            values = torch.cat([counter.values(part, anchor=part[0]) for part in parts])
        best = best_retokenizing(
            values, responses.__getitem__, count=width, retokenizes=retokenizes
        )
        if not len(best):
            why = "no longer response counts"
            log.warning("The beam ends at %d of %d tokens: %s.", size - 1, length, why)
            break
        beginnings = responses[best]
        levels.append((beginnings, values[best]))
    return levels


def beam_cost(length: int, width: int, allowed: int, *, first_given: bool = False) -> int:
    """Candidate evaluations of a beam over `allowed` tokens; where winners have to retokenize, at
    most these."""
    first = 0 if first_given else allowed
    return first + sum(min(width, allowed**shorter) * allowed for shorter in range(1, length))


def affordable_width(length: int, budget: int, allowed: int, *, first_given: bool = False) -> int:
    """The widest beam that `budget` candidate evaluations pay for, no wider than there are
    responses; 0 where not even a beam of one response is paid for."""
    widths = range(1, min(budget, allowed ** (length - 1)) + 1)
    return bisect_right(
        widths, budget, key=lambda w: beam_cost(length, w, allowed, first_given=first_given)
    )
