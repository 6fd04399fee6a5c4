"""Responses that differ from one anchor in a few places: all that stands before the first change is run once.

A step of a search scores hundreds of changes of one response. Those that first change position p share the prompt and
the p tokens before it; they run L − p tokens and the frame's closing ones. Positions with few changes, or in a small
network, share a pass: they run a token more, and save a pass. `make bench` measures it.

Knows engines and token ids. Does not know tokenizers, tables or what is searched for.
"""

import contextlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from pessimal.errors import ModelError
from pessimal.scoring.batch_size import Lengths, find_batch_size
from pessimal.scoring.engine import Engine, SharedPrefix, rewards_in_memory

# What one pass takes in a layer beside its tokens, in operations that are done meanwhile: half a millisecond at 90
# billion a second (measured on one core: 0.5 ms in demo models, 0.4 ms and the reading of the weights in 25 million
# parameters), a millisecond at 400 trillion (an estimate for a card).
_PASS = {"cpu": 4.5e7, "cuda": 4e11}
# Of fewer responses every position has its own pass: there is little to save, and a check of few sees every start.
_FEWEST = 64


class Anchored:
    """Rewards and gradients of responses of several tokens between `prefix` and `suffix`, by one engine."""

    def __init__(
        self,
        network: nn.Module,
        engine: Engine,
        *,
        prefix: Tensor,  # (P,)
        suffix: Tensor,  # (S,)
        batch_size: int | None = None,
    ):
        self.network, self.engine, self.prefix, self.suffix = network, engine, prefix, suffix
        self.batch_size = batch_size
        """Responses a batch; found from the memory there is where None."""
        self.shares_starts = isinstance(engine, SharedPrefix)
        """Whether what responses share with the anchor is run once; every response is run by itself otherwise."""
        self._anchor: Tensor | None = None
        self._at_anchor: Engine | None = None

    @torch.no_grad()
    def rewards(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Rewards (n,) float32 of `responses` (n, L); those that begin like `anchor` (L,) are spared that much."""
        n, length = responses.shape
        before = len(self.prefix)
        responses = responses.to(self.prefix.device)
        if anchor is None or not self.shares_starts:
            return self._in_batches(self.engine, self._closed(responses), shared=before)
        anchor = anchor.to(self.prefix.device)
        start = self._starts(first_changes(responses, anchor), length=length)  # (n,)
        rewards = torch.empty(n, dtype=torch.float32, device=self.prefix.device)
        for position in start.unique().tolist():
            rows = (start == position).nonzero()[:, 0]
            ids = self._closed(responses[rows, position:])
            engine = self._engine_at(anchor) if position else self.engine
            rewards[rows] = self._in_batches(engine, ids, shared=before + position)
        return rewards

    def gradient(self, response: Tensor) -> Tensor:
        """d reward / d one-hot (L, V) float32 at one response (L,): how much the reward would change, to first order,
        with each token of the vocabulary in each place.

        By the gradient of the embeddings times the embedding matrix, 1.4 times faster than through a one-hot.
        """
        own = self._closed(response.to(self.prefix.device).unsqueeze(0))
        embedding = self.network.get_input_embeddings()
        with torch.enable_grad(), _captured(embedding) as captured:
            reward = self.engine.rewards(own, shared=len(self.prefix)).sum()
        if len(captured) != 1:
            raise ModelError(
                f"{type(self.network).__name__} looks tokens up {len(captured)} times in one forward; the gradient that a "
                "search follows is only known for models that do it once"
            )
        (given,) = captured
        (slope,) = torch.autograd.grad(reward, given)  # (1, T, hidden)
        end = slope.shape[1] - len(self.suffix)
        slope = slope[0, end - len(response) : end]
        weight = embedding.weight.detach()
        scale = _scale(weight[own[0]], given.detach()[0, -own.shape[1] :])
        return (slope @ weight.T).float() * scale

    def _closed(self, responses: Tensor) -> Tensor:
        return torch.cat([responses, self.suffix.expand(len(responses), -1)], dim=1)

    def _engine_at(self, anchor: Tensor) -> Engine:
        """The engine whose prefix goes on with the anchor, the last one kept. Its last token is never shared."""
        if self._anchor is None or not torch.equal(anchor, self._anchor):
            self._at_anchor, self._anchor = self.engine.continued(anchor[:-1]), anchor.clone()
        return self._at_anchor

    def _starts(self, first: Tensor, *, length: int) -> Tensor:
        """From which position each response (n,) is run that `first` changes somewhere (n,); never a later one."""
        if len(first) < _FEWEST:
            return first
        owns = range(length + len(self.suffix), len(self.suffix), -1)
        starts = shared_passes(
            first.bincount(minlength=length).tolist(),
            owns=owns,
            sizes=[self._batch_size(own, len(self.prefix) + owns[0]) for own in owns],
            pass_tokens=_pass_tokens(self.network.config, self.prefix.device),
        )
        return torch.tensor(starts, device=first.device)[first]

    def _in_batches(self, engine: Engine, ids: Tensor, *, shared: int) -> Tensor:
        seen = shared + ids.shape[1]
        size = self._batch_size(ids.shape[1] if self.shares_starts else seen, seen)
        return torch.cat([rewards_in_memory(engine, part, shared=shared) for part in ids.split(size)])

    def _batch_size(self, own: int, seen: int) -> int:
        return self.batch_size or find_batch_size(
            self.network.config, Lengths(own, seen), device=self.prefix.device
        )


def first_changes(responses: Tensor, anchor: Tensor) -> Tensor:
    """int (n,): where each response (n, L) first differs from the anchor (L,); the last place where it never does."""
    changed = responses != anchor
    changed[:, -1] = True
    return changed.int().argmax(dim=1)


def shared_passes(
    counts: Sequence[int], *, owns: Sequence[int], sizes: Sequence[int], pass_tokens: float
) -> list[int]:
    """For each position of a response the one from which what first changes there is run, itself or an earlier one, so
    that all passes together take the least time.

    Args:
        counts: (L,), responses that first change a position.
        owns: (L,), tokens that each runs from a position on, the closing ones included.
        sizes: (L,), responses that one pass takes from a position on.
        pass_tokens: how many tokens take as long as a pass beside its tokens.
    """
    length = len(counts)
    # The least time of the first `end` positions, and where the last of their passes begins.
    least, begun = [0.0], [0]
    for end in range(1, length + 1):
        options, rows = [], 0
        for start in reversed(range(end)):
            rows += counts[start]
            passes = -(-rows // sizes[start])
            options.append((least[start] + passes * pass_tokens + rows * owns[start], start))
        cost, start = min(options)
        least.append(cost)
        begun.append(start)
    starts, end = [], length
    while end:
        starts = [begun[end]] * (end - begun[end]) + starts
        end = begun[end]
    return starts


def _pass_tokens(config, device: torch.device) -> float:
    """How many tokens take as long as a pass beside its tokens."""
    text = config.get_text_config()
    hidden = text.hidden_size
    feed_forward = getattr(text, "intermediate_size", None) or 4 * hidden
    # Of one token in one layer: its products with the weights, and some two thousand element-wise ones a hidden unit
    # (they are slower; that is what they come to in demo models).
    operations = 2 * (4 * hidden**2 + 3 * hidden * feed_forward) + 2000 * hidden
    return _PASS.get(device.type, _PASS["cpu"]) / operations


@contextlib.contextmanager
def _captured(embedding: nn.Module) -> Iterator[list[Tensor]]:
    """What the embedding gives while this lasts, as the beginning of a gradient. A hook, so that it serves every
    network, whether or not its forward takes embeddings."""
    captured: list[Tensor] = []

    def take(_module, _arguments, output: Tensor) -> Tensor:
        captured.append(output.detach().requires_grad_())
        return captured[-1]

    handle = embedding.register_forward_hook(take)
    try:
        yield captured
    finally:
        handle.remove()


def _scale(rows: Tensor, given: Tensor) -> float:
    """By how much the module multiplies its rows (Gemma's does, most do not), from some rows and what it gave of them,
    both (T, hidden)."""
    rows, given = rows.double(), given.double()
    square = (rows * rows).sum()
    return float((rows * given).sum() / square) if square > 0 else 1.0
