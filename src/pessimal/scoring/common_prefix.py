"""Common-prefix scoring: of responses that differ from one, the anchor, in a few places, the part before the first change
is run once.

A step of a search scores hundreds of changes of one response. Those that first change position p share the prompt and
the p tokens before it; they run L − p tokens and the frame's closing ones. Those of all positions go through the network
in one pass: their tokens stand in one row, one after the other, since all but attention looks at one token at a time;
attention goes group by group. `make bench` measures it.

Knows engines and token ids. Does not know tokenizers, tables or what is searched for.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from pessimal.errors import ModelError
from pessimal.models.frame import Frame
from pessimal.models.spec import Dtype
from pessimal.scoring.candidates import framed
from pessimal.scoring.engine import (
    ONE_POSITION,
    Engine,
    SharedPrefix,
    exchanged_attention,
    hooked,
    rewards_in_memory,
)
from pessimal.scoring.memory import Lengths, find_batch_size
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.shared_prefix import Prefix, shared_prefix_attention
from pessimal.scoring.trust import SAMPLE, Trust

log = logging.getLogger(__name__)

PACKED = "pessimal_packed"
# One pass, in parts so small that whole numbers of them are a response's share of it.
_PASS = 2**40


class ResponseScorer:
    """Rewards and gradients of responses of up to `length` tokens to one prompt, by the fastest engine that gives the
    model's own rewards.

    Checked when it is made, on random responses of `allowed` ids: the engine as before a scan, then changes of one
    random response that share its beginning. Where these differ from the model's own forward, a slower way is taken,
    and said.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        frame: Frame,
        *,
        dtype: Dtype,
        device: torch.device,
        length: int,
        allowed: np.ndarray,
        batch_size: int | None = None,
    ):
        self.frame, self.device = frame, device
        self.scorer = FrameScorer(network, frame, device=device)
        random = np.random.default_rng(0)
        lengths = [length] * SAMPLE + list(range(1, length))
        samples = [random.choice(allowed, size=n) for n in lengths]
        self.scorer.establish_trust(framed(frame, samples), dtype=dtype)
        self.trust: Trust | None = self.scorer.trust
        """Result of the check; None where no reward of the sample was a number."""
        prefix = torch.tensor(frame.prefix, dtype=torch.long, device=device)
        suffix = torch.tensor(frame.suffix, dtype=torch.long, device=device)
        self.common_prefix = CommonPrefixScorer(
            network, self.scorer.engines[0], prefix=prefix, suffix=suffix, batch_size=batch_size
        )
        self.common_prefix_difference = self._check_common_prefix(samples[0], allowed, random)
        """Largest |changes of one response − own forward|, in units of reward."""

    @property
    def path(self) -> str:
        """Name of the way that scores."""
        return self.scorer.attention + (", common prefix" if self.common_prefix.shares_starts else "")

    def rewards(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Rewards (n,) float32 of `responses` (n, L); see `CommonPrefixScorer`."""
        return self.common_prefix.rewards(responses, anchor=anchor)

    def gradient(self, response: Tensor) -> Tensor:
        """d reward / d one-hot (L, V) float32 at one response (L,)."""
        return self.common_prefix.gradient(response)

    def own_rewards(self, responses: Tensor) -> np.ndarray:
        """Rewards float64 (n,) of `responses` (n, L): the model's own forward, one by one, no cache."""
        inputs = framed(self.frame, responses.tolist())
        return self.scorer.own_rewards(inputs, np.arange(len(inputs)))

    def _check_common_prefix(
        self, anchor: np.ndarray, allowed: np.ndarray, random: np.random.Generator
    ) -> float:
        if not self.common_prefix.shares_starts or self.trust is None:
            return 0.0
        length = len(anchor)
        changed = np.tile(anchor, (2 * length, 1))
        changed[np.arange(2 * length), np.arange(2 * length) % length] = random.choice(
            allowed, size=2 * length
        )
        responses = torch.from_numpy(changed).long()
        own = self.own_rewards(responses)
        rewards = (
            self.common_prefix.rewards(responses, anchor=torch.from_numpy(anchor).long())
            .double()
            .cpu()
            .numpy()
        )
        finite = np.isfinite(own)
        difference = float(np.abs(rewards - own)[finite].max(initial=0.0))
        if not difference <= self.trust.tolerance:
            log.warning(
                "Sharing the beginnings of responses differs from the model's own forward by %.3g (allowed: %.3g) on %d "
                "changes of one response. Every response is run by itself: slower, but right.",
                difference,
                self.trust.tolerance,
                len(changed),
            )
            self.common_prefix.shares_starts = False
        return difference


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


@dataclass(frozen=True)
class Group:
    """Inputs of one length that share their beginning."""

    ids: Tensor
    """What each has of its own (n, T)."""
    shared: int
    """Tokens of the engine's prefix that each begins with."""


def packed_rewards(engine: SharedPrefix, groups: Sequence[Group]) -> Tensor:
    """Rewards (n of all groups,) float32, group after group, as `engine.rewards` gives them for each."""
    decoder = engine.decoder
    ids = torch.cat([group.ids.flatten() for group in groups]).unsqueeze(0)  # (1, N)
    lengths = torch.cat([torch.full_like(group.ids[:, 0], group.ids.shape[1]) for group in groups])
    read = lengths.cumsum(0) - 1  # where each input ends, (n of all groups,)
    positions = [
        torch.arange(group.shared, group.shared + group.ids.shape[1], device=ids.device).repeat(
            len(group.ids)
        )
        for group in groups
    ]
    spans = [(engine.prefix.start(group.shared), *group.ids.shape) for group in groups]
    final = []

    def keep(_, arguments):
        final.append(arguments[0][0, read].float())  # (n of all groups, hidden)

    with contextlib.ExitStack() as hooks:
        hooks.enter_context(hooked(decoder.norm, keep))
        for name, module in decoder.layers[-1].named_modules():
            if name in ONE_POSITION:
                hooks.enter_context(_only_at(read, module))
        hooks.enter_context(exchanged_attention(decoder.backbone, PACKED))
        decoder.backbone(
            input_ids=ids,
            position_ids=torch.cat(positions).unsqueeze(0),
            shared_prefix=spans,
            use_cache=False,
        )
    return decoder.head.read(decoder.exact_norm(final[0]), engine.context)


def packed_in_memory(engine: SharedPrefix, groups: Sequence[Group]) -> Tensor:
    """`packed_rewards`; a pass that does not fit into a card's memory is halved until it does."""
    try:
        return packed_rewards(engine, groups)
    except torch.OutOfMemoryError:
        if sum(len(group.ids) for group in groups) == 1:
            raise
    log.warning(
        "out of memory with %d candidates at once; going on with half of them",
        sum(len(g.ids) for g in groups),
    )
    torch.cuda.empty_cache()
    if len(groups) == 1:
        halves = [[Group(ids, groups[0].shared)] for ids in groups[0].ids.chunk(2)]
    else:
        halves = [groups[: len(groups) // 2], groups[len(groups) // 2 :]]
    return torch.cat([packed_in_memory(engine, half) for half in halves])


def packed_attention(
    module: nn.Module,
    query: Tensor,  # (1, H, N, D)
    key: Tensor,  # (1, K, N, D)
    value: Tensor,  # (1, K, N, D)
    attention_mask: Tensor | None,
    *,
    shared_prefix: Sequence[tuple[Prefix, int, int]],
    **options,
) -> tuple[Tensor, None]:
    """Attention output (1, N, H, D): `shared_prefix_attention` of each group, of n inputs with T tokens, by itself."""
    widths = [n * length for _, n, length in shared_prefix]
    outputs = []
    for (prefix, n, length), *own in zip(
        shared_prefix, *(states[0].split(widths, dim=1) for states in (query, key, value)), strict=True
    ):
        by_input = [states.unflatten(1, (n, length)).transpose(0, 1) for states in own]  # (n, H or K, T, D)
        output, _ = shared_prefix_attention(module, *by_input, None, shared_prefix=prefix, **options)
        outputs.append(output.flatten(0, 1))
    return torch.cat(outputs).unsqueeze(0), None


@contextlib.contextmanager
def _only_at(positions: Tensor, module: nn.Module) -> Iterator[None]:
    """The module runs at some positions (n,) of its input (1, N, hidden) alone; elsewhere its output is zero, which nobody
    reads."""
    width = 0

    def take(_, arguments):
        nonlocal width
        width = arguments[0].shape[1]
        return (arguments[0][:, positions], *arguments[1:])

    def put_back(_module, _arguments, output):
        # A mixture of experts gives more than its output.
        computed, *rest = (output,) if isinstance(output, Tensor) else output
        whole = computed.new_zeros(1, width, computed.shape[-1])
        whole[0, positions] = computed.view(len(positions), -1)
        return (whole, *rest) if rest else whole

    handle = module.register_forward_hook(put_back)
    try:
        with hooked(module, take):
            yield
    finally:
        handle.remove()


AttentionInterface.register(PACKED, packed_attention)
