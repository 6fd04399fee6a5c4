"""The baseline that knows no gradient: coordinate sweeps from random starts, until the budget is used up.

Knows the evaluation counter and polish. Does not know models or texts.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pessimal.search.evaluation_counter import EvaluationCounter
from pessimal.search.polish import Polished, improve, polish
from pessimal.search.round_trip import Retokenizes
from pessimal.search.sampler import random_responses

# Random starts drawn at once, and how often, until one retokenizes. Of random responses of four tokens two thirds or
# more retokenize on the demo models; where fewer than one in a thousand does, the sweeps themselves have to find it.
_DRAWN, _DRAWS = 64, 16


def coordinate_ascent(
    counter: EvaluationCounter,
    *,
    length: int,
    allowed: Tensor,  # bool (V,)
    generator: torch.Generator,
    retokenizes: Retokenizes | None = None,
    starts: Sequence[Tensor] = (),
    tolerance: float = 0.0,
) -> list[Polished]:
    """Sweep to convergence from `starts` and then from uniformly random responses; one result for each, in order.

    The counter must have a budget; it is used to the last evaluation: at a position that it cannot pay for, a random
    part of the tokens is tried. Each ascent begins at a random position.
    """
    if counter.budget is None:
        raise ValueError("coordinate ascent goes on until a budget is used up; this counter has none")
    tokens = allowed.nonzero()[:, 0]  # (A,)
    results: list[Polished] = []
    while counter.left:
        given = len(results) < len(starts)
        start = starts[len(results)] if given else _random_start(length, allowed, generator, retokenizes)
        first = int(torch.randint(length, (1,), generator=generator))
        options = {"retokenizes": retokenizes, "tolerance": tolerance}
        found = polish(counter, start, allowed=allowed, first_position=first, **options)
        if 0 < counter.left < len(tokens) - 1 and not found.converged:
            position = (first + found.positions) % length
            found = _use_what_is_left(counter, found, position, tokens, generator, **options)
        results.append(found)
    return results


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


def _use_what_is_left(
    counter: EvaluationCounter,
    found: Polished,
    position: int,
    tokens: Tensor,
    generator: torch.Generator,
    *,
    retokenizes: Retokenizes | None,
    tolerance: float,
) -> Polished:
    response, left = torch.tensor(found.response), counter.left
    others = tokens[tokens != response[position]]
    part = others[torch.randperm(len(others), generator=generator)[:left]]
    better = improve(
        counter, response, position, part, above=found.value + tolerance, retokenizes=retokenizes
    )
    if better is not None:
        response, value = better
        found = replace(found, response=tuple(response.tolist()), value=value)
    return replace(found, evaluations=found.evaluations + left)
