"""Common-prefix scoring: of responses that differ from one, the anchor, in a few places, the part
before the first change is run once.

A step of a search scores hundreds of changes of one response. Those that first change position p
share the prompt and the p tokens before it; they run L − p tokens and the frame's closing ones.
Those of all positions go through the network in one pass: their tokens stand in one row, one after
the other, since all but attention looks at one token at a time; attention goes group by group.
`make bench` measures it.

Knows engines and token ids. Does not know tokenizers, tables or what is searched for.
"""

import contextlib
import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from pessimal.errors import ModelError
from pessimal.rewards.ceiling import Bounds, weighted_sum
from pessimal.rewards.frame import Frame
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import frame_responses
from pessimal.scoring.engine import (
    Engine,
    Prefix,
    SharedPrefix,
    exchanged_attention,
    shared_prefix_attention,
)
from pessimal.scoring.scorer import FrameScorer
from pessimal.scoring.sequence import FullSequence, SharedSequence
from pessimal.scoring.trainer import Lengths, find_batch_size, within_memory
from pessimal.scoring.trust import SAMPLE, Trust

log = logging.getLogger(__name__)

PACKED = "pessimal_packed"
# One pass, in parts so small that whole numbers of them are a response's share of it.
_PASS = 2**40


class CommonPrefixScorer:
    """Rewards and gradients of responses of several tokens between `prefix` and `suffix`, by one
    engine."""

    def __init__(
        self,
        network: RewardNetwork,
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
        """Whether what responses share with the anchor is run once; every response is run by itself
        otherwise."""
        self.sequence = getattr(network, "sequence", False)
        self._continued: tuple[Tensor, SharedPrefix] | None = None

    @torch.no_grad()
    def rewards(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Rewards (n,) float32 of `responses` (n, L); those that begin like `anchor` (L,) are
        spared that much."""
        n, length = responses.shape
        rewards = torch.empty(n, dtype=torch.float32, device=self.prefix.device)
        if not n:
            return rewards
        responses = responses.to(self.prefix.device)
        first = torch.zeros(n, dtype=torch.long, device=self.prefix.device)
        if anchor is not None and self.shares_starts:
            first = first_changes(responses, anchor := anchor.to(self.prefix.device))
        if anchor is None or not first.any():  # nothing but the prompt to share
            closed, before = self._closed(responses), len(self.prefix)
            seen = before + closed.shape[1]
            size = self._batch_size(closed.shape[1] if self.shares_starts else seen, seen)
            score = functools.partial(self.engine.rewards, shared=before)
            return torch.cat([within_memory(score, part) for part in closed.split(size)])
        engine = self._engine_at(anchor)

        def run(rows: Tensor) -> Tensor:
            """Rewards (m,) of some rows, in order of what they first change, in one pass."""
            positions, counts = first[rows].unique_consecutive(return_counts=True)
            parts = zip(positions.tolist(), rows.split(counts.tolist()), strict=True)
            groups = [
                (self._closed(responses[part, position:]), len(self.prefix) + position)
                for position, part in parts
            ]
            if len(groups) == 1 or self.sequence:  # a packed row is read where its responses end
                return torch.cat([engine.rewards(ids, shared=shared) for ids, shared in groups])
            return packed_rewards(engine, groups)

        for rows in self._passes(first, length=length):
            rewards[rows] = within_memory(run, rows)
        return rewards

    @property
    def follows(self) -> bool:
        """Whether a reward is the sum of the tokens' log-probabilities, which `following` gives."""
        return isinstance(self.engine, SharedSequence | FullSequence) and not len(self.suffix)

    @property
    def falls(self) -> bool:
        """Whether, then, no token adds more than 0."""
        return self.follows

    @torch.no_grad()
    def following(self, beginnings: Tensor) -> Tensor:
        """Log-probabilities (n, rows) float32 of every token behind each of `beginnings` (n, T)."""
        assert isinstance(self.engine, SharedSequence | FullSequence)
        before = len(self.prefix)
        seen = before + beginnings.shape[1]
        size = self._batch_size(max(beginnings.shape[1], 1) if self.shares_starts else seen, seen)
        after = functools.partial(self.engine.following, shared=before)
        parts = beginnings.to(self.prefix.device).split(size)
        return torch.cat([within_memory(after, part) for part in parts])

    def gradient(self, response: Tensor) -> Tensor:
        """d reward / d one-hot (L, V) float32 at one response (L,): how much the reward would
        change, to first order, with each token of the vocabulary in each place.

        By the gradient of the embeddings times the embedding matrix, 1.4 times faster than through
        a one-hot.
        """
        ids = self._closed(response.to(self.prefix.device).unsqueeze(0))
        if not self.sequence:
            return self._embedding_gradient(ids, len(response))
        # A token counts twice: by its own probability, and by what it does to those behind it.
        if not isinstance(self.engine, SharedSequence | FullSequence):
            network = getattr(self.network, "causal", self.network)
            raise ModelError(
                f"pessimal does not know the layout of {type(network).__name__}, and no gradient "
                "of its log-probabilities: it can be scanned, and not searched"
            )
        with torch.no_grad():
            likely = self.engine.distribution(ids, shared=len(self.prefix))[: len(response)]
        if ids.shape[1] == 1:
            return likely
        through = self._embedding_gradient(ids, len(response))
        rows = min(likely.shape[1], through.shape[1])  # of the output and of the input embedding
        return likely[:, :rows] + through[:, :rows]

    def _embedding_gradient(self, ids: Tensor, length: int) -> Tensor:
        """d reward / d one-hot (length, V) float32 of the inputs of one response with its closing
        ids, (1, T)."""
        embedding: Any = self.network.get_input_embeddings()
        with torch.enable_grad(), _captured(embedding) as captured:
            reward = self.engine.rewards(ids, shared=len(self.prefix)).sum()
        if len(captured) != 1:
            raise ModelError(
                f"{type(self.network).__name__} looks tokens up {len(captured)} times in one "
                "forward; a gradient is only known where it is once"
            )
        [output] = captured
        [slope] = torch.autograd.grad(reward, output)  # (1, T or, of a sequence, T - 1, hidden)
        inputs = ids[0, :-1] if self.sequence else ids[0]
        begin = slope.shape[1] - len(inputs)
        slope = slope[0, begin : begin + length]
        # The last token of all is no input.
        slope = nn.functional.pad(slope, (0, 0, 0, length - len(slope)))
        weight = embedding.weight.detach()
        scale = _scale(weight[inputs], output.detach()[0, -len(inputs) :])
        return (slope @ weight.T).float() * scale

    def _closed(self, responses: Tensor) -> Tensor:
        return torch.cat([responses, self.suffix.expand(len(responses), -1)], dim=1)

    def _engine_at(self, anchor: Tensor) -> SharedPrefix:
        """The engine whose prefix goes on with the anchor, the last one kept. Its last token is
        never shared."""
        if self._continued is None or not torch.equal(anchor, self._continued[0]):
            assert isinstance(self.engine, SharedPrefix)
            self._continued = (anchor.clone(), self.engine.continued(anchor[:-1]))
        return self._continued[1]

    def _passes(self, first: Tensor, *, length: int) -> Sequence[Tensor]:
        """All rows (n,), by the position they `first` change, in parts that go through the network
        together."""
        end = length + len(self.suffix)
        sizes = [self._batch_size(end - p, len(self.prefix) + end) for p in range(length)]
        share = _PASS // torch.tensor(sizes, device=first.device)  # (L,), of one row
        order = first.argsort(stable=True)
        number = (share[first[order]].cumsum(0) - 1) // _PASS
        return order.split(number.bincount().tolist())

    def _batch_size(self, run: int, seen: int) -> int:
        return self.batch_size or find_batch_size(
            self.network.config, Lengths(run, seen), device=self.prefix.device
        )


class ResponseScorer(CommonPrefixScorer):
    """Rewards and gradients of responses of up to `length` tokens to one prompt, by the fastest
    engine that gives the model's own rewards.

    Checked when it is made, on random responses of `allowed` ids: the engine as before a scan, then
    changes of one random response that share its beginning. Where these differ from the model's own
    forward, a slower way is taken, and said.
    """

    def __init__(
        self,
        network: RewardNetwork,
        frame: Frame,
        *,
        dtype: Dtype,
        device: torch.device,
        length: int,
        allowed: np.ndarray,
        batch_size: int | None = None,
    ):
        self.frame, self.scorer = frame, FrameScorer(network, frame, device=device)
        random = np.random.default_rng(0)
        lengths = [length] * SAMPLE + list(range(1, length))
        samples = [random.choice(allowed, size=n) for n in lengths]
        self.scorer.establish_trust(frame_responses(frame, samples), dtype=dtype)
        self.trust: Trust | None = self.scorer.trust
        """Result of the check; None where no reward of the sample was a number."""
        prefix = torch.tensor(frame.prefix, dtype=torch.long, device=device)
        suffix = torch.tensor(frame.suffix, dtype=torch.long, device=device)
        engine = self.scorer.engines[0]
        super().__init__(network, engine, prefix=prefix, suffix=suffix, batch_size=batch_size)
        if self.shares_starts and self.trust is not None:
            self._check_common_prefix(samples[0], allowed, random, self.trust.tolerance)

    @property
    def path(self) -> str:
        """Name of the way that scores."""
        way = ", common prefix" if self.shares_starts else ""
        return self.scorer.attention + way

    @property
    def bounds(self) -> Bounds:
        """Bounds on the reward of any response."""
        return self.scorer.bounds()

    def own_rewards(self, responses: Tensor) -> np.ndarray:
        """Rewards float64 (n,) of `responses` (n, L): the model's own forward, one by one, no
        cache."""
        inputs = frame_responses(self.frame, responses.tolist())
        return self.scorer.own_rewards(inputs, np.arange(len(inputs)))

    def _check_common_prefix(
        self,
        anchor: np.ndarray,
        allowed: np.ndarray,
        random: np.random.Generator,
        tolerance: float,
    ) -> None:
        places = np.arange(2 * len(anchor))
        changed = np.tile(anchor, (len(places), 1))
        changed[places, places % len(anchor)] = random.choice(allowed, size=len(places))
        responses = torch.from_numpy(changed).long()
        expected = self.own_rewards(responses)
        shared = self.rewards(responses, anchor=torch.from_numpy(anchor).long())
        off = np.abs(shared.double().cpu().numpy() - expected)
        difference = float(off[np.isfinite(expected)].max(initial=0.0))
        if not difference <= tolerance:
            log.warning(
                "Sharing the beginnings of responses differs from the model's own forward by %.3g "
                "(allowed: %.3g) on %d changes of one response. Every response is run by itself.",
                difference,
                tolerance,
                len(changed),
            )
            self.shares_starts = False


class SummedScorer:
    """The weighted sum of several scorers of responses, as one."""

    def __init__(self, terms: Sequence[tuple[float, ResponseScorer]]):
        self.terms = list(terms)

    @property
    def follows(self) -> bool:
        """Whether the reward is a sum over tokens, which `following` gives."""
        return all(scorer.follows for _, scorer in self.terms)

    @property
    def falls(self) -> bool:
        """Whether, then, no token adds more than 0."""
        return all(scorer.falls and weight >= 0 for weight, scorer in self.terms)

    @property
    def trust(self) -> Trust | None:
        """Trust of the first term that has one."""
        return next((scorer.trust for _, scorer in self.terms if scorer.trust), None)

    @property
    def path(self) -> str:
        return ", ".join(dict.fromkeys(scorer.path for _, scorer in self.terms))

    @property
    def bounds(self) -> Bounds:
        """Bounds on the reward of any response."""
        return weighted_sum((weight, scorer.bounds) for weight, scorer in self.terms)

    def rewards(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        return self._sum(scorer.rewards(responses, anchor=anchor) for _, scorer in self.terms)

    def following(self, beginnings: Tensor) -> Tensor:
        """Weighted sums of log-probabilities (n, rows) behind each of `beginnings` (n, T)."""
        return self._sum_by_token([scorer.following(beginnings) for _, scorer in self.terms])

    def gradient(self, response: Tensor) -> Tensor:
        return self._sum_by_token([scorer.gradient(response) for _, scorer in self.terms])

    def _sum_by_token(self, tables: list[Tensor]) -> Tensor:
        """The weighted sum of tables (n, rows of each network), of the tokens that all have."""
        rows = min(table.shape[1] for table in tables)
        return self._sum(table[:, :rows] for table in tables)

    def own_rewards(self, responses: Tensor) -> np.ndarray:
        return self._sum(scorer.own_rewards(responses) for _, scorer in self.terms)

    def _sum(self, values: Iterable[Any]) -> Any:
        """The weighted sum of what each scorer gives."""
        return sum(weight * value for (weight, _), value in zip(self.terms, values, strict=True))


def first_changes(responses: Tensor, anchor: Tensor) -> Tensor:
    """int (n,): where each response (n, L) first differs from the anchor (L,); the last place where
    it never does."""
    changed = responses != anchor
    changed[:, -1] = True
    return changed.int().argmax(dim=1)


@contextlib.contextmanager
def _captured(embedding: nn.Module) -> Iterator[list[Tensor]]:
    """Outputs of the embedding while this lasts, as the beginning of a gradient. A hook, so that it
    serves every network, whether or not its forward takes embeddings."""
    captured: list[Tensor] = []

    def take(_module: nn.Module, _arguments: tuple[Any, ...], output: Tensor) -> Tensor:
        captured.append(output.detach().requires_grad_())
        return captured[-1]

    handle = embedding.register_forward_hook(take)
    try:
        yield captured
    finally:
        handle.remove()


def _scale(rows: Tensor, output: Tensor) -> float:
    """By how much the module multiplies its rows (Gemma's does, most do not), from some rows and
    what it gave of them, both (T, hidden)."""
    rows, output = rows.double(), output.double()
    square = (rows * rows).sum()
    return float((rows * output).sum() / square) if square > 0 else 1.0


def packed_rewards(engine: SharedPrefix, groups: Sequence[tuple[Tensor, int]]) -> Tensor:
    """Rewards (n of all groups,) float32, group after group, as `engine.rewards` gives them for
    each: of inputs of one length, what each has of its own (n, T), and how many tokens of the
    engine's prefix all begin with."""
    device = groups[0][0].device
    lengths = torch.cat([torch.full_like(ids[:, 0], ids.shape[1]) for ids, _ in groups])
    positions = [
        torch.arange(shared, shared + ids.shape[1], device=device).repeat(len(ids))
        for ids, shared in groups
    ]
    with exchanged_attention(engine.decoder.backbone, PACKED):
        return engine.decoder.rewards(
            engine.context,
            read=lengths.cumsum(0) - 1,  # where each input ends
            input_ids=torch.cat([ids.flatten() for ids, _ in groups]).unsqueeze(0),  # (1, N)
            position_ids=torch.cat(positions).unsqueeze(0),
            shared_prefix=[(engine.prefix.start(shared), *ids.shape) for ids, shared in groups],
        )


def packed_attention(
    module: nn.Module,
    query: Tensor,  # (1, H, N, D)
    key: Tensor,  # (1, K, N, D)
    value: Tensor,  # (1, K, N, D)
    attention_mask: Tensor | None,
    *,
    shared_prefix: Sequence[tuple[Prefix, int, int]],
    **options: Any,
) -> tuple[Tensor, None]:
    """Attention output (1, N, H, D): `shared_prefix_attention` of each group, of n inputs with T
    tokens, by itself."""
    widths = [n * length for _, n, length in shared_prefix]
    groups = zip(*(states[0].split(widths, dim=1) for states in (query, key, value)), strict=True)
    outputs = []
    for (prefix, n, length), group in zip(shared_prefix, groups, strict=True):
        # (n, H or K, T, D)
        q, k, v = (states.unflatten(1, (n, length)).transpose(0, 1) for states in group)
        output, _ = shared_prefix_attention(module, q, k, v, None, shared_prefix=prefix, **options)
        outputs.append(output.flatten(0, 1))
    return torch.cat(outputs).unsqueeze(0), None


AttentionInterface.register(PACKED, packed_attention)
