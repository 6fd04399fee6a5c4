"""Exact next-token extension: every allowed token behind each of the best responses that are one token shorter.

Its levels say how the best value grows with the length, and give the search its first starts. Knows the evaluation counter. Does not
know models or texts.
"""

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from pessimal.search.evaluation_counter import EvaluationCounter
from pessimal.search.round_trip import Retokenizes, best_retokenizing

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Level:
    """The best responses of one length that go on with the level before."""

    length: int
    """Tokens of each."""
    responses: Tensor
    """int64 (w, length), best first, w at most the width."""
    values: Tensor
    """float64 (w,)."""
    evaluations: int
    """Candidate evaluations that this level took; 0 where its values were given."""

    @property
    def best_response(self) -> tuple[int, ...]:
        return tuple(self.responses[0].tolist())

    @property
    def best_value(self) -> float:
        return float(self.values[0])


def beam(
    counter: EvaluationCounter,
    *,
    length: int,
    width: int,
    allowed: Tensor,  # bool (V,)
    retokenizes: Retokenizes | None = None,
    first_values: Tensor | None = None,  # (V,)
) -> list[Level]:
    """The `width` best retokenizing responses of 1, 2, … `length` tokens, each level made of the one before.

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
                len(levels),
                length,
                cost,
                counter.left,
            )
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
        levels.append(Level(size, beginnings, values[best], cost))
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
