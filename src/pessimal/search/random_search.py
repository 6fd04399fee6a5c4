"""Chance as a baseline: what the same number of evaluations finds without a gradient.

Knows the evaluation counter and token ids. Does not know models or texts.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from pessimal.search.evaluation_counter import EvaluationCounter
from pessimal.search.round_trip import Retokenizes
from pessimal.search.sampler import random_responses, sample
from pessimal.search.visited import Visited, unseen

# Responses drawn at once: it looks for a better one no more often than this. On a demo model batches of 1, 16 and 64 got
# equally far in 5,000 evaluations, in 26, 5 and 1.6 s (`experiments/LOG.md`).
_WALK = 64
# So many times as many are drawn where that brings little.
_MANY = 16
# Such draws in a row without anything new and retokenizes, after which there is taken to be nothing.
_IN_VAIN = 8


def random_search(
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
    while len(start := _found(draw_start, visited, retokenizes, most=min(1, counter.left))):
        point, best = start[0], float(counter.values(start)[0])
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
