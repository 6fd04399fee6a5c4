"""Exhaustive coordinate sweeps: every allowed token at every position, until a whole pass improves nothing.

Knows objectives and the evaluation counter. Does not know models, texts or where the start comes from.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pessimal.search.evaluation_counter import EvaluationCounter
from pessimal.search.objective import Objective
from pessimal.search.round_trip import Retokenizes, best_retokenizing


@dataclass(frozen=True)
class Polished:
    """Where coordinate sweeps ended."""

    response: tuple[int, ...]
    value: float
    """Its value; -inf where the start does not retokenize and nothing better that does was found."""
    positions: int
    """Positions at which every allowed token was tried, repeats counted."""
    evaluations: int
    """Candidate evaluations made, the start's included."""
    converged: bool
    """Whether every position was tried at this very response, and no allowed token improved it by more than the
    tolerance. False where the budget or the sweeps ended before."""

    @property
    def sweeps(self) -> float:
        """Passes over all positions; the last one before it converged confirms, and improves nothing."""
        return self.positions / len(self.response)


def polish(
    counter: EvaluationCounter,
    start: Tensor,  # (L,)
    *,
    allowed: Tensor,  # bool (V,)
    retokenizes: Retokenizes | None = None,
    tolerance: float = 0.0,
    max_sweeps: int | None = None,
    first_position: int = 0,
) -> Polished:
    """Go round the positions; at each, evaluate every allowed token and take the best retokenizing one if it is better.

    Positions in turn from `first_position`, each improvement taken at once: to look for the position with most to gain
    would cost a sweep for every change. It ends when L positions in a row brought nothing, so that each was tried at
    the final response, none twice. The first sweep replaces most of a random start, so it is the order as much as the
    start that decides where it ends: give restarts different first positions.

    Only improvements by more than `tolerance` (units of value) are taken. The value on record rises with every one, so
    it ends whatever the tolerance; at twice the numerical error of a value none of them is an artefact.

    A start that does not retokenize counts for less than any response that is. Where less is left than the
    next position costs, it ends there, and evaluates no part of the position.
    """
    _check_made_of(start, allowed)
    tokens = allowed.nonzero()[:, 0]  # (A,)
    length, before = len(start), counter.used
    response = start.clone()
    if counter.left < 1:
        return Polished(tuple(start.tolist()), -torch.inf, 0, 0, converged=False)
    value = float(counter.values(response[None])[0])
    if retokenizes is not None and not bool(retokenizes(response[None])[0]):
        value = -torch.inf
    positions = unchanged = 0
    most = None if max_sweeps is None else max_sweeps * length
    while unchanged < length and positions != most and counter.left >= len(tokens) - 1:
        position = (first_position + positions) % length
        others = tokens[tokens != response[position]]
        found = improve(counter, response, position, others, above=value + tolerance, retokenizes=retokenizes)
        positions += 1
        unchanged += 1
        if found is not None:
            response, value = found
            # Every token of this position has been tried beside the others as they stand now.
            unchanged = 1
    return Polished(
        response=tuple(response.tolist()),
        value=value,
        positions=positions,
        evaluations=counter.used - before,
        converged=unchanged >= length and value > -torch.inf,
    )


def improve(
    objective: Objective,
    response: Tensor,  # (L,)
    position: int,
    tokens: Tensor,  # (A,)
    *,
    above: float,
    retokenizes: Retokenizes | None,
) -> tuple[Tensor, float] | None:
    """The best retokenizing response (L,) with one of `tokens` at `position`, and its value, if that is over `above`."""
    if not len(tokens):
        return None
    values = values_at(objective, response, position, tokens)
    best = best_retokenizing(
        values,
        lambda rows: changed(response, position, tokens[rows]),
        count=1,
        retokenizes=retokenizes,
        above=above,
    )
    if not len(best):
        return None
    return changed(response, position, tokens[best])[0], float(values[best[0]])


def neighbour_values(objective: Objective, response: Tensor, allowed: Tensor) -> Tensor:
    """Values (L, V) float64 of the response with every allowed token at every position; -inf elsewhere.

    The token that stands at a position has the response's own value there, allowed or not. Costs 1 + Σ over positions
    of the allowed tokens other than that. One position is evaluated at a time: 256,000 responses of 16 tokens are
    33 MB, sixteen times as many would be half a GiB.
    """
    own = objective.values(response[None])
    values = torch.full((len(response), len(allowed)), -torch.inf, dtype=torch.float64)
    tokens = allowed.nonzero()[:, 0]
    for position in range(len(response)):
        others = tokens[tokens != response[position]]
        if len(others):
            values[position, others] = values_at(objective, response, position, others)
        values[position, response[position]] = own[0]
    return values


def values_at(objective: Objective, response: Tensor, position: int, tokens: Tensor) -> Tensor:
    """Values (A,) float64 of the response (L,) with each of `tokens` (A,) at one position."""
    return objective.values(changed(response, position, tokens), anchor=response)


def changed(response: Tensor, position: int, tokens: Tensor) -> Tensor:
    """Responses (A, L): `response` (L,) with each of `tokens` (A,) at one position."""
    responses = response.repeat(len(tokens), 1)
    responses[:, position] = tokens
    return responses


def _check_made_of(start: Tensor, allowed: Tensor) -> None:
    if not bool(allowed[start].all()):
        raise ValueError(f"the start {start.tolist()} holds tokens that are not allowed")
