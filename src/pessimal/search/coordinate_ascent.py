"""The baseline that knows no gradient: coordinate sweeps from random starts, until the budget is spent.

Knows ledgers and polish. Does not know models or texts.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pessimal.search.ledger import Ledger
from pessimal.search.polish import Polished, improve, polish
from pessimal.search.sampler import random_responses
from pessimal.search.survival import Admissible

# Random starts drawn at once, and how often, until one is admissible. Of random responses of four tokens two thirds or
# more survive as text on the demo models; where fewer than one in a thousand does, the sweeps themselves have to find it.
_DRAWN, _DRAWS = 64, 16


def coordinate_ascent(
    ledger: Ledger,
    *,
    length: int,
    allowed: Tensor,  # bool (V,)
    generator: torch.Generator,
    admissible: Admissible | None = None,
    starts: Sequence[Tensor] = (),
    tolerance: float = 0.0,
) -> list[Polished]:
    """Sweep to convergence from `starts` and then from uniformly random responses; one result for each, in order.

    The ledger must have a budget; it is spent to the last evaluation: at a position that it cannot pay for, a random
    part of the tokens is tried. Each ascent begins at a random position.
    """
    if ledger.budget is None:
        raise ValueError("coordinate ascent goes on until a budget is spent; this ledger has none")
    tokens = allowed.nonzero()[:, 0]  # (A,)
    results: list[Polished] = []
    while ledger.left:
        given = len(results) < len(starts)
        start = starts[len(results)] if given else _random_start(length, allowed, generator, admissible)
        first = int(torch.randint(length, (1,), generator=generator))
        options = {"admissible": admissible, "tolerance": tolerance}
        found = polish(ledger, start, allowed=allowed, first_position=first, **options)
        if 0 < ledger.left < len(tokens) - 1 and not found.converged:
            position = (first + found.positions) % length
            found = _spend_what_is_left(ledger, found, position, tokens, generator, **options)
        results.append(found)
    return results


def _random_start(
    length: int, allowed: Tensor, generator: torch.Generator, admissible: Admissible | None
) -> Tensor:
    """A uniformly random response (L,), an admissible one where that can be had by drawing."""
    for _ in range(_DRAWS):
        n = 1 if admissible is None else _DRAWN
        drawn = random_responses(n, length=length, allowed=allowed, generator=generator)
        good = drawn if admissible is None else drawn[admissible(drawn)]
        if len(good):
            return good[0]
    return drawn[0]


def _spend_what_is_left(
    ledger: Ledger,
    found: Polished,
    position: int,
    tokens: Tensor,
    generator: torch.Generator,
    *,
    admissible: Admissible | None,
    tolerance: float,
) -> Polished:
    response, left = torch.tensor(found.response), ledger.left
    others = tokens[tokens != response[position]]
    part = others[torch.randperm(len(others), generator=generator)[:left]]
    better = improve(ledger, response, position, part, above=found.value + tolerance, admissible=admissible)
    if better is not None:
        response, value = better
        found = replace(found, response=tuple(response.tolist()), value=value)
    return replace(found, evaluations=found.evaluations + left)
