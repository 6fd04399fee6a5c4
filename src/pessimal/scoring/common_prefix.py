"""Common-prefix scoring: of responses that differ from one, the anchor, in a few places, the part before the first change
is run once.

A step of a search scores hundreds of changes of one response. Those that first change position p share the prompt and
the p tokens before it; they run L − p tokens and the frame's closing ones. Those of all positions go through the network
together. `make bench` measures it.

Knows engines and token ids. Does not know tokenizers, tables or what is searched for.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from pessimal.errors import ModelError
from pessimal.scoring.batch_size import Lengths, find_batch_size
from pessimal.scoring.engine import Engine, SharedPrefix, rewards_in_memory
from pessimal.scoring.packed import Group, packed_in_memory

# One pass, in parts so small that whole numbers of them are a response's share of it.
_PASS = 2**40


class CommonPrefixScorer:
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
        self._continued: Engine | None = None

    @torch.no_grad()
    def rewards(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Rewards (n,) float32 of `responses` (n, L); those that begin like `anchor` (L,) are spared that much."""
        n, length = responses.shape
        before = len(self.prefix)
        rewards = torch.empty(n, dtype=torch.float32, device=self.prefix.device)
        if not n:
            return rewards
        responses = responses.to(self.prefix.device)
        if anchor is None or not self.shares_starts:
            return self._in_batches(self.engine, self._closed(responses), shared=before)
        anchor = anchor.to(self.prefix.device)
        first = first_changes(responses, anchor)  # (n,)
        if not first.any():  # nothing but the prompt to share
            return self._in_batches(self.engine, self._closed(responses), shared=before)
        engine = self._engine_at(anchor)
        for pack in self._packs(first, length=length):
            groups = [
                Group(self._closed(responses[rows, position:]), before + position) for position, rows in pack
            ]
            if len(groups) == 1:
                part = rewards_in_memory(engine, groups[0].ids, shared=groups[0].shared)
            else:
                part = packed_in_memory(engine, groups)
            rewards[torch.cat([rows for _, rows in pack])] = part
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
            self._continued, self._anchor = self.engine.continued(anchor[:-1]), anchor.clone()
        return self._continued

    def _packs(self, first: Tensor, *, length: int) -> Iterator[list[tuple[int, Tensor]]]:
        """All rows (n,) in passes: what goes through the network together, rows (m,) by the position they `first` change."""
        end = length + len(self.suffix)
        sizes = [self._batch_size(end - p, len(self.prefix) + end) for p in range(length)]
        share = _PASS // torch.tensor(sizes, device=first.device)  # (L,), of one row
        order = first.argsort(stable=True)
        number = (share[first[order]].cumsum(0) - 1) // _PASS
        for rows in order.split(number.bincount().tolist()):
            positions, counts = first[rows].unique(return_counts=True)
            yield list(zip(positions.tolist(), rows.split(counts.tolist()), strict=True))

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
