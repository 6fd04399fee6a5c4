"""The pieces of greedy coordinate gradient: the gradient proposes changes of a response, evaluation
chooses among them.

Where a climb begins (`starts`), which changes are tried (`top_tokens`, `sample`), the running mean
of gradients (`Momentum`), how many positions a step replaces (`step_size`), and what has been seen
(`Visited`). Knows token ids. Does not know models, texts, or which way is up: more is better.

Sources: Zou et al. 2023 (GCG, algorithm 1); Zhang & Wei 2024 (momentum); Panfilov, Romov et al.
2026 (the schedule).
"""

import logging
import math

import torch
from torch import Tensor

from pessimal.errors import ConfigError
from pessimal.searching.allowed import Retokenizes

log = logging.getLogger(__name__)

# Random responses that are drawn for one start, in parts, before there is taken to be none.
_DRAWS, _PART = 20_000, 64


# --- Where climbs begin.


def starts(
    n: int,
    *,
    length: int,
    allowed: Tensor,
    generator: torch.Generator,
    retokenizes: Retokenizes | None = None,
) -> list[Tensor]:
    """Up to `n` distinct random responses (length,). Fewer, logged, where no more are found.

    `allowed`: bool (V,). Raises ConfigError where not one could be found.
    """
    visited = Visited()
    chosen: list[Tensor] = []
    for _ in range(n * _DRAWS // _PART):
        if len(chosen) >= n:
            break
        drawn = random_responses(_PART, length=length, allowed=allowed, generator=generator)
        chosen += unseen(drawn, visited, retokenizes=retokenizes, most=n - len(chosen))
    if not chosen:
        raise ConfigError(
            f"Of {n * _DRAWS:,} random responses of {length} allowed tokens, not one counts: in "
            "mode=text only those do that come back from ids → text → template → ids. Type "
            "mode=ids, a smaller search.length, or allow more tokens"
        )
    if len(chosen) < n:
        text = "only %d of %d distinct starts of %d allowed tokens were found"
        log.warning(text, len(chosen), n, length)
    return chosen


def random_responses(n: int, *, length: int, allowed: Tensor, generator: torch.Generator) -> Tensor:
    """Responses (n, length) of tokens drawn uniformly from a bool mask (V,); they may repeat."""
    tokens = allowed.nonzero()[:, 0]
    return tokens[torch.randint(len(tokens), (n, length), generator=generator)]


# --- Which changes are tried.


def top_tokens(gradient: Tensor, *, current: Tensor, allowed: Tensor, k: int) -> Tensor:
    """For each position the allowed (bool (V,)) tokens of largest gradient, other than the one that
    stands there, best first.

    `gradient`: (L, V), d value / d one-hot at `current` (L,), on any device; what is no number
    comes last. Returns int64 (L, k') on the CPU; k' is less than k where fewer other tokens are
    allowed, 0 where there is none.
    """
    # It is done where the gradient lies: of the 8 MB of L = 16 and V = 128,256, only L · k ids are
    # moved.
    device = gradient.device
    lowest = torch.finfo(gradient.dtype).min
    # New, and never as low as what is ruled out.
    usable = gradient.nan_to_num(nan=lowest, neginf=lowest)
    usable.masked_fill_(~allowed.to(device), -torch.inf)
    usable.scatter_(1, current.to(device).unsqueeze(1), -torch.inf)
    others = allowed.sum() - allowed[current].int()  # (L,)
    return usable.topk(min(k, int(others.min())), dim=1).indices.cpu()


def sample(
    current: Tensor, tokens: Tensor, *, width: int, step_size: int, generator: torch.Generator
) -> Tensor:
    """Random changes (width, L) of one response (L,): each replaces `step_size` positions, no more
    than L.

    A replaced position gets one of its own `tokens` (L, k), k at least 1, uniformly and
    independently: rows may repeat. The positions of a row are distinct. Among the first r rows, for
    every r, the numbers of times that any two positions are replaced differ by one at most.
    (nanoGCG draws positions independently, so that some get more tries.)
    """
    length, k = tokens.shape
    positions = _even_positions(width, length, min(step_size, length), generator)  # (width, s)
    chosen = torch.randint(k, positions.shape, generator=generator)
    return current.repeat(width, 1).scatter_(1, positions, tokens[positions, chosen])


def _even_positions(width: int, length: int, step_size: int, generator: torch.Generator) -> Tensor:
    """Positions (width, step_size): random orders of all positions, each dealt round and round
    until it comes out even.

    `step_size` neighbours in an order, going round, are distinct; a deal that comes out even uses
    all alike.
    """
    rows = length // math.gcd(length, step_size)
    orders = torch.rand(-(-width // rows), length, generator=generator).argsort(dim=1)
    dealt = orders[:, torch.arange(rows * step_size) % length]
    return dealt.reshape(-1, step_size)[:width]


def step_size(share: float, *, first: int, until: float) -> int:
    """Positions that a step replaces when this share of the budget is used: several at first, one
    in the end (the best discrete recipe of Panfilov, Romov et al. 2026: 2, then 1 after 80 %)."""
    return first if share < until else 1


class Momentum:
    """The mean of the gradients so far, each weighted by `share` to the power of its age in steps.

    The update of Zhang & Wei 2024, m ← µ m + (1 − µ) g, begins at m = g, which counts the first
    gradient 1 / (1 − µ) times too much for its age; this is the mean with the right weights from
    the first step on.
    """

    def __init__(self, share: float):
        self.share = share  # µ, 0 (the last gradient alone) to below 1
        self._weight = 0.0
        self._mean: Tensor | None = None

    def update(self, gradient: Tensor) -> Tensor:
        """The mean after one more gradient, of the same shape and on the same device; what is no
        number counts as 0."""
        gradient = gradient.where(gradient.isfinite(), 0.0)  # or it would stay in the mean for good
        self._weight = self.share * self._weight + 1.0
        if self._mean is None or self.share == 0.0:  # to the last bit
            self._mean = gradient
        else:
            self._mean = self._mean + (gradient - self._mean) / self._weight
        return self._mean


# --- What has been seen.


class Visited:
    """A set of responses."""

    def __init__(self) -> None:
        self._rows: set[bytes] = set()

    def new(self, responses: Tensor) -> Tensor:
        """Those of `responses` (n, L) that are not in the set, each once, in their order."""
        rows: dict[bytes, int] = {}
        for number, row in enumerate(responses.numpy()):
            rows.setdefault(row.tobytes(), number)
        return responses[[number for row, number in rows.items() if row not in self._rows]]

    def add(self, responses: Tensor) -> None:
        """Put `responses` (n, L) into the set; those that are there already change nothing."""
        self._rows.update(row.tobytes() for row in responses.numpy())


def unseen(
    responses: Tensor,
    visited: Visited,
    *,
    retokenizes: Retokenizes | None = None,
    most: int | None = None,
) -> Tensor:
    """Those of `responses` (n, L) that are new and retokenize, each once, in their order, `most` of
    them. They are visited from now on, and so are the new ones that do not retokenize."""
    new = visited.new(responses)
    if retokenizes is not None and len(new):
        good = retokenizes(new)
        visited.add(new[~good])
        new = new[good]
    visited.add(new[:most])
    return new[:most]
