"""Where restarts begin: winners of the beam, the best single token repeated, random responses.

Knows token ids. Does not know values: whoever calls has looked for winners.
"""

import logging

import torch
from torch import Tensor

from pessimal.errors import ConfigError
from pessimal.search.round_trip import Retokenizes
from pessimal.search.sampler import random_responses
from pessimal.search.visited import Visited, unseen

log = logging.getLogger(__name__)

# Random responses that are drawn for one start, in parts, before there is taken to be none.
_DRAWS, _PART = 20_000, 64


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
    """Up to `n` distinct starts with labels: the first winners ("beam", half of them at most, but one of a single
    start), the best token repeated ("repeat"), and random responses ("random").

    Fewer where no more can be found; this is logged.

    Args:
        n: starts, at least 1.
        length: L, tokens of each.
        allowed: bool (V,), tokens that random starts are made of.
        generator: of the random ones, on the CPU.
        winners: (b, L) int64, best first; None for no beam.
        best_token: an id; None for no such start.
        retokenizes: bool (n,) of responses (n, L), whether they may be a start; None where all may.

    Returns:
        (label, response (L,) int64) each, in the order in which they are worth running.

    Raises:
        ConfigError: no token is allowed, or not one start could be found.
    """
    if not allowed.any():
        raise ConfigError(
            "No token is allowed, so there is no response to begin with; search.allowed=[] allows every token"
        )
    visited = Visited()
    begun: list[tuple[str, Tensor]] = []
    if winners is not None:
        found = unseen(winners, visited, retokenizes=retokenizes)
        begun += [("beam", winner) for winner in found[: max(1, n // 2)]]
    if best_token is not None and len(begun) < n:
        found = unseen(torch.full((1, length), best_token), visited, retokenizes=retokenizes)
        begun += [("repeat", repeated) for repeated in found]
    while len(begun) < n:
        for _ in range(_DRAWS // _PART):
            drawn = random_responses(_PART, length=length, allowed=allowed, generator=generator)
            found = unseen(drawn, visited, retokenizes=retokenizes, most=n - len(begun))
            begun += [("random", response) for response in found]
            if len(found):
                break
        else:
            break
    if not begun:
        raise ConfigError(
            f"Of {_DRAWS:,} random responses of {length} allowed tokens, not one counts: in mode=text only those do that "
            "come back from ids → text → template → ids. Type mode=ids, a smaller search.length, or allow more tokens"
        )
    if len(begun) < n:
        log.warning("only %d of %d distinct starts of %d allowed tokens were found", len(begun), n, length)
    return begun
