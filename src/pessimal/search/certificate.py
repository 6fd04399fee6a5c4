"""The 1-opt certificate: no single change, to any allowed token at any position, improves a response.

A local statement. For one token it is a global one; above that another response may be better than the certified, and
what carries the certificate is the best *found*. Knows objectives. Does not know models, texts or how the response was
found, so a result from elsewhere can be held to it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pessimal.search.objective import Objective
from pessimal.search.polish import changed, neighbour_values
from pessimal.search.round_trip import Retokenizes, best_retokenizing

ONE_OPT, TIE, NOT_ONE_OPT = "1-opt", "tie", "not 1-opt"
# Ties listed with a certificate; rows of the embedding that were never trained can be alike by the hundred.
_TIES_LISTED = 20


@dataclass(frozen=True)
class Neighbour:
    """The response with another token at one position."""

    position: int
    """From 0."""
    token: int
    """Id that stands there instead."""
    value: float
    margin: float
    """Value of the response − this value: positive where the neighbour is worse."""


@dataclass(frozen=True)
class Certificate:
    """What a complete pass over all single changes of one response showed."""

    response: tuple[int, ...]
    value: float
    """Its value: sign × reward."""
    allowed: int
    """How many tokens were allowed, and tried, at each position."""
    allowed_digest: str
    """Digest of which (`allowed.digest`)."""
    sweeps: float
    """Coordinate sweeps that led here; this pass is not among them. 0 for a result from elsewhere."""
    evaluations: int
    """Candidate evaluations of this pass."""
    noise: float
    """Bound on the numerical error of one value, in units of value."""
    neighbours: tuple[Neighbour, ...]
    """The best retokenizing neighbour of each position; positions that have none are left out."""
    tied: tuple[Neighbour, ...]
    """Neighbours whose margin is within what the errors of both values can make of it, best first, 20 at most."""
    n_tied: int
    """How many there are."""
    counts: bool
    """Whether the response itself is made of allowed tokens and retokenizes."""

    @property
    def smallest_margin(self) -> float:
        """Value of the response − value of its best neighbour; infinite where it has none."""
        return min((neighbour.margin for neighbour in self.neighbours), default=float("inf"))

    @property
    def verdict(self) -> str:
        """`1-opt`, `tie` (the best neighbour is within the noise) or `not 1-opt` (a neighbour is better).

        Both values err by up to `noise`, so a margin is certain to have the right sign where it exceeds twice that.
        """
        if self.smallest_margin > 2 * self.noise:
            return ONE_OPT
        return TIE if self.smallest_margin >= -2 * self.noise else NOT_ONE_OPT


def certify(
    objective: Objective,
    response: Tensor,  # (L,)
    *,
    allowed: Tensor,  # bool (V,)
    retokenizes: Retokenizes | None = None,
    noise: float,
    digest: str,
    sweeps: float = 0.0,
    values: Tensor | None = None,  # (L, V)
) -> Certificate:
    """The certificate of one response, from a fresh complete pass; or from the `values` that `neighbour_values` gave of
    this response and these allowed tokens.

    `noise` bounds the error of one value in units of value (`scoring.trust.numerical_noise` of float32 rewards).
    """
    if values is None:
        values = neighbour_values(objective, response, allowed)  # (L, V)
    positions = torch.arange(len(response))
    own = float(values[0, response[0]])
    others = values.clone()
    others[positions, response] = -torch.inf
    neighbours: list[Neighbour] = []
    for position, row in enumerate(others):
        best = _best(row, response, position, count=1, retokenizes=retokenizes)
        neighbours += _named(row, position, best, own)
    # One value's error may have raised it and the other's lowered it, so all within twice the noise are asked.
    near = (others >= own - 2 * noise) & (others <= own + 2 * noise)
    tied: list[Neighbour] = []
    for position in near.any(dim=1).nonzero()[:, 0].tolist():
        row = others[position].masked_fill(~near[position], -torch.inf)
        rows = _best(row, response, position, count=int(near[position].sum()), retokenizes=retokenizes)
        tied += _named(row, position, rows, own)
    counts = bool(allowed[response].all())
    if retokenizes is not None:
        counts = counts and bool(retokenizes(response[None])[0])
    return Certificate(
        response=tuple(response.tolist()),
        value=own,
        allowed=int(allowed.sum()),
        allowed_digest=digest,
        sweeps=sweeps,
        evaluations=1 + int(others.isfinite().sum()),
        noise=noise,
        neighbours=tuple(neighbours),
        tied=tuple(sorted(tied, key=lambda neighbour: neighbour.margin)[:_TIES_LISTED]),
        n_tied=len(tied),
        counts=counts,
    )


def _best(
    values: Tensor, response: Tensor, position: int, *, count: int, retokenizes: Retokenizes | None
) -> Tensor:
    """Token ids (k,) of the best retokenizing neighbours at one position, from their values (V,), -inf elsewhere."""
    return best_retokenizing(
        values, lambda tokens: changed(response, position, tokens), count=count, retokenizes=retokenizes
    )


def _named(values: Tensor, position: int, tokens: Tensor, own: float) -> list[Neighbour]:
    return [
        Neighbour(position, token, value, own - value)
        for token, value in zip(tokens.tolist(), values[tokens].tolist(), strict=True)
    ]
