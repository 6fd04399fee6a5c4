"""Which changes of a response are tried: the tokens that the gradient likes best, drawn at random.

Knows gradients and token ids. Does not know values: nothing is evaluated here.

Source: Zou et al. 2023, "Universal and transferable adversarial attacks on aligned language models", algorithm 1;
several replaced positions as in nanoGCG's `n_replace`.
"""

import math

import torch
from torch import Tensor


def top_tokens(gradient: Tensor, *, current: Tensor, allowed: Tensor, k: int) -> Tensor:
    """For each position the allowed tokens of largest gradient, other than the one that stands there, best first.

    Args:
        gradient: (L, V), d value / d one-hot, on any device; what is no number comes last.
        current: (L,) int64, the response that it was taken at.
        allowed: bool (V,).
        k: tokens per position.

    Returns:
        int64 (L, k') on the CPU; k' is less than k where fewer other tokens are allowed, 0 where there is none.
    """
    # It is done where the gradient lies: of the 8 MB of L = 16 and V = 128,256, only L · k ids are moved.
    device = gradient.device
    lowest = torch.finfo(gradient.dtype).min
    usable = gradient.nan_to_num(
        nan=lowest, neginf=lowest
    )  # a new tensor, and never as low as what is ruled out
    usable.masked_fill_(~allowed.to(device), -torch.inf)
    usable.scatter_(1, current.to(device).unsqueeze(1), -torch.inf)
    others = allowed.sum() - allowed[current].int()  # (L,)
    return usable.topk(min(k, int(others.min())), dim=1).indices.cpu()


def sample(
    current: Tensor, tokens: Tensor, *, width: int, step_size: int, generator: torch.Generator
) -> Tensor:
    """Random changes (width, L) of one response (L,): each replaces `step_size` positions, no more than L.

    A replaced position gets one of its own `tokens` (L, k), k at least 1, uniformly and independently: rows may repeat.
    The positions of a row are distinct. Among the first r rows, for every r, the numbers of times that any two
    positions are replaced differ by one at most: a step that is cut short is still even. (nanoGCG draws positions
    independently; at L = 4 and width 512 their counts then have a standard deviation of 10.)
    """
    length, k = tokens.shape
    positions = _even_positions(width, length, min(step_size, length), generator)  # (width, s)
    chosen = torch.randint(k, positions.shape, generator=generator)
    return current.repeat(width, 1).scatter_(1, positions, tokens[positions, chosen])


def random_responses(n: int, *, length: int, allowed: Tensor, generator: torch.Generator) -> Tensor:
    """Responses (n, length) of tokens drawn uniformly from a bool mask (V,); they may repeat."""
    tokens = allowed.nonzero()[:, 0]
    return tokens[torch.randint(len(tokens), (n, length), generator=generator)]


def _even_positions(width: int, length: int, step_size: int, generator: torch.Generator) -> Tensor:
    """Positions (width, step_size): random orders of all positions, each dealt round and round until it comes out even.

    `step_size` neighbours in an order, going round, are distinct; a deal that comes out even uses all alike.
    """
    rows = length // math.gcd(length, step_size)
    orders = torch.rand(-(-width // rows), length, generator=generator).argsort(dim=1)
    dealt = orders[:, torch.arange(rows * step_size) % length]
    return dealt.reshape(-1, step_size)[:width]
