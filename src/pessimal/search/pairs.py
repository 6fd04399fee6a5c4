"""The best response of two tokens among pairs of good tokens: exact over the pairs it tries, pruned in which it tries.

Knows the evaluation counter. Does not know models or texts.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pessimal.errors import ConfigError
from pessimal.search.evaluation_counter import BudgetExceededError, EvaluationCounter
from pessimal.search.round_trip import Retokenizes, best_retokenizing

# Tokens at each place that every other token is tried with, to rank these, and how often. Measured on demo models of
# 12,000 tokens, 394,000 evaluations at m = 100: ranked by their best value behind the 16 best single tokens, then before
# the 16 best of these, the tokens missed the best known pair in one of four cases (alder-bpe, pessimal: 3.206 in place
# of 3.380), and m = 1,000 missed it too. Begun at both places, and gone on with the best partner of each, the same
# number of evaluations found all four. On the toy of the tests, where tokens interact strongly, a tenth of the tokens at
# each place then held the best of all pairs in 53 of 60 draws, before in 51 at twice the evaluations.
WIDTH, ROUNDS = 8, 2
_NOTHING = torch.empty(0, dtype=torch.float64)


@dataclass(frozen=True)
class Pairs:
    """The best pairs among those tried."""

    top: Tensor
    """int64 (k, 2): the best retokenizing pairs, best first."""
    values: Tensor
    """float64 (k,): their values."""
    m: int
    """First tokens and second tokens of which every one was tried with every other."""
    complete: bool
    """Whether these were all allowed tokens, so that the best is exact; otherwise it is pruned."""
    evaluations: int
    """Candidate evaluations made, the ranking's included."""

    @property
    def best_response(self) -> tuple[int, ...]:
        return tuple(self.top[0].tolist())

    @property
    def best_value(self) -> float:
        return float(self.values[0])

    @property
    def label(self) -> str:
        """What may be claimed of the best: exact or pruned."""
        return "exact" if self.complete else "pruned"


def pairs(
    counter: EvaluationCounter,
    *,
    m: int,
    allowed: Tensor,  # bool (V,)
    first_values: Tensor | None = None,  # (V,)
    retokenizes: Retokenizes | None = None,
    keep: int = 1000,
) -> Pairs:
    """The `keep` best pairs of the m best first tokens with the m best second tokens.

    1. Every allowed token is tried behind the 8 best single tokens (by `first_values` where a scan has given them), and
       before them.
    2. The best partner of each, filled up to 8 with the best of all, are tried with every token in the same way.
    3. First and second tokens rank by the best pair that they were in so far.
    4. The m best of both are tried with one another. A pair counts from wherever it was tried.

    In text mode partners and ranks are of retokenizing pairs alone. Costs `pairs_cost` evaluations; raises
    BudgetExceededError, before any is made, where fewer are left, and ConfigError where no pair that was tried
    retokenizes.
    """
    tokens = allowed.nonzero()[:, 0]  # (A,)
    cost = pairs_cost(m, len(tokens), first_given=first_values is not None)
    if cost > counter.left:
        raise BudgetExceededError(
            f"pairs of {m} by {m} tokens take {cost} evaluations, {counter.left} are left"
        )
    before = counter.used
    complete = m >= len(tokens)
    if complete:
        tried, firsts, seconds = [], tokens, tokens
    else:
        alone = counter.values(tokens[:, None]) if first_values is None else first_values[tokens]
        tried = _look_around(counter, tokens, alone, retokenizes)
        seconds, firsts = (_ranked(side, count=m, retokenizes=retokenizes) for side in tried)
    grid = _Side(seconds, 1, firsts[:0], _NOTHING)
    parts = [*tried, grid.grown(counter, firsts) if len(seconds) else grid]
    every, values = _distinct(
        torch.cat([part.every() for part in parts]), torch.cat([part.values for part in parts])
    )
    best = best_retokenizing(values, lambda rows: every[rows], count=keep, retokenizes=retokenizes)
    if not len(best):
        raise ConfigError(
            "none of the pairs of allowed tokens that were tried is given by a text; type mode=ids, which takes any token "
            "ids, or allow other tokens (search.allowed, search.allowed_path)"
        )
    return Pairs(
        top=every[best],
        values=values[best],
        m=min(m, len(tokens)),
        complete=complete,
        evaluations=counter.used - before,
    )


def pairs_cost(m: int, allowed: int, *, first_given: bool = False) -> int:
    """Candidate evaluations of `pairs` over `allowed` tokens; at most these in text mode, where fewer may rank, and where
    there are fewer than 16 tokens."""
    if m >= allowed:
        return allowed**2
    return m**2 + (2 * WIDTH * ROUNDS + (not first_given)) * allowed


@dataclass(frozen=True)
class _Side:
    """Values of `tokens` at one place, beside each of some fixed tokens at the other."""

    tokens: Tensor
    """int64 (A,)."""
    place: int
    """Where these stand: 1 behind the fixed ones, 0 before them."""
    fixed: Tensor
    """int64 (f,)."""
    values: Tensor
    """float64 (f·A,): all tokens beside the first fixed one, then beside the second …"""

    def pairs(self, rows: Tensor) -> Tensor:
        """The pairs (n, 2) that some `values` (n,) belong to."""
        fixed, others = self.fixed[rows // len(self.tokens)], self.tokens[rows % len(self.tokens)]
        return torch.stack([fixed, others] if self.place == 1 else [others, fixed], dim=1)

    def every(self) -> Tensor:
        """All pairs (f·A, 2)."""
        return self.pairs(torch.arange(len(self.values)))

    def beside(self, number: int) -> "_Side":
        """The tokens beside one of the fixed ones, by its number."""
        values = self.values.view(len(self.fixed), -1)[number]
        return _Side(self.tokens, self.place, self.fixed[number, None], values)

    def grown(self, counter: EvaluationCounter, fixed: Tensor) -> "_Side":
        """With more fixed tokens (g,), which are evaluated."""
        fresh = _Side(self.tokens, self.place, fixed, self.values[:0])
        found = []
        for rows in torch.arange(len(fixed) * len(self.tokens)).view(len(fixed), len(self.tokens)):
            responses = fresh.pairs(rows)
            # Those that begin alike are given an anchor, so that their beginning is run once.
            found.append(counter.values(responses, anchor=responses[0] if self.place == 1 else None))
        together = torch.cat([self.fixed, fixed]), torch.cat([self.values, *found])
        return _Side(self.tokens, self.place, *together)


def _look_around(
    counter: EvaluationCounter, tokens: Tensor, alone: Tensor, retokenizes: Retokenizes | None
) -> tuple[_Side, _Side]:
    """All tokens behind a few, and all tokens before a few."""
    behind, before = (_Side(tokens, place, tokens[:0], _NOTHING) for place in (1, 0))
    beginnings = endings = _best_alone(alone, tokens, retokenizes)
    behind, before = behind.grown(counter, beginnings), before.grown(counter, endings)
    for _ in range(ROUNDS - 1):
        endings = _partners(behind, but=before.fixed, retokenizes=retokenizes)
        beginnings = _partners(before, but=behind.fixed, retokenizes=retokenizes)
        behind, before = behind.grown(counter, beginnings), before.grown(counter, endings)
    return behind, before


def _best_alone(alone: Tensor, tokens: Tensor, retokenizes: Retokenizes | None) -> Tensor:
    """The best single tokens (w,) by their values (A,); where none retokenizes alone, the best that may with another."""
    best = best_retokenizing(alone, lambda rows: tokens[rows, None], count=WIDTH, retokenizes=retokenizes)
    return tokens[best] if len(best) else _best_alone(alone, tokens, None)


def _partners(side: _Side, *, but: Tensor, retokenizes: Retokenizes | None) -> Tensor:
    """Tokens (w,) to go on with: the best beside each fixed token, then the best of all; none of `but`."""
    wanted: list[int] = []
    for number in range(len(side.fixed)):
        wanted += _ranked(side.beside(number), count=1, retokenizes=retokenizes).tolist()
    wanted += _ranked(side, count=len(but) + len(wanted) + WIDTH, retokenizes=retokenizes).tolist()
    known = set(but.tolist())
    fresh = [token for token in dict.fromkeys(wanted) if token not in known]
    return torch.tensor(fresh[:WIDTH], dtype=torch.long)


def _ranked(side: _Side, *, count: int, retokenizes: Retokenizes | None) -> Tensor:
    """The `count` best of a side's tokens (k,), each by the best of its retokenizing pairs."""
    asked = count
    while True:
        rows = best_retokenizing(side.values, side.pairs, count=asked, retokenizes=retokenizes)
        tokens = list(dict.fromkeys(side.tokens[rows % len(side.tokens)].tolist()))
        if len(tokens) >= count or len(rows) < asked:
            return torch.tensor(tokens[:count], dtype=torch.long)
        asked *= 4


def _distinct(every: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Each pair (n, 2) once, in the order of ids, with the value of the last time it was tried."""
    codes = every[:, 0] * (int(every.max()) + 1) + every[:, 1]
    order = codes.argsort(stable=True)
    codes = codes[order]
    last = torch.ones(len(codes), dtype=torch.bool)
    last[:-1] = codes[1:] != codes[:-1]
    return every[order[last]], values[order[last]]
