"""What a causal language model says comes next: log-probabilities of tokens and of whole items, checked.

Knows a network and token ids. Knows neither tables nor tokenizers.
"""

import contextlib
import functools
import inspect
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from pessimal.errors import ModelError
from pessimal.models.language import output_bytes
from pessimal.models.spec import Dtype
from pessimal.scoring.memory import Lengths, find_batch_size, free_bytes
from pessimal.scoring.trust import SAMPLE, Trust, judge, numerical_noise, sample_rows

log = logging.getLogger(__name__)

OWN_FORWARD, FULL_FORWARD = "own-forward", "full-forward"
"""Paths: the model's own forward, and the same with its output embedding in float32."""
# Rows of the output embedding that are float32 at once, in one buffer: a whole one of Gemma 2 27B would take 4.7 GB. On a
# CPU (128,256 rows of 1,024) this took 25 ms, a tensor of its own for every 1,024 rows 310 ms, and 4,096 at once 39 ms.
_HEAD_ROWS = 1024
# Of a batch's float32 logits while they are normalised: themselves, and twice as much in float64, twice.
_COPIES = 5


@dataclass(frozen=True)
class LogProbabilities:
    """A language model's log-probabilities of some candidates, and how far they can be trusted."""

    values: np.ndarray
    """float64 (n,): log p(candidate | context) in nats."""
    trust: Trust
    noise: float
    """Bound on the numerical error of a float32 pass, in nats."""
    attention: str
    """Path that computed them."""
    details: dict
    """Other figures of the pass, for the table's record."""


class NextTokenScorer:
    """One network after one context."""

    def __init__(self, network: nn.Module, context: Sequence[int], *, dtype: Dtype, device: torch.device):
        self.network, self.dtype, self.device = network, dtype, device
        self.context = torch.tensor(list(context), dtype=torch.long, device=device)
        # Whether the network can give the logits of some positions alone.
        self.keeps = "logits_to_keep" in inspect.signature(network.forward).parameters

    def own(self, more: Sequence[int] = ()) -> Tensor:
        """Log-probabilities float64 (rows,) after the context and `more` ids, by the network's untouched forward."""
        return _normalised(self.network(input_ids=self._after([more])).logits[0, -1])

    def ours(self, more: Sequence[Sequence[int]], *, last: int = 1) -> Tensor:
        """Log-probabilities float64 (batch, last, rows) after the `last` last positions of the context followed by each
        of `more` (a batch of one length), with the output embedding in float32."""
        options = {"logits_to_keep": last} if self.keeps else {}
        with _head_in_float32(self.network):
            logits = self.network(input_ids=self._after(more), use_cache=False, **options).logits
        return _normalised(logits[:, -last:])

    def batch_size(self, length: int) -> int:
        """Beginnings of items of this many tokens that go through the network at once."""
        whole = len(self.context) + length - 1
        fitting = find_batch_size(self.network.config, Lengths(whole, whole), device=self.device)
        room = free_bytes(self.device) // (_COPIES * length * output_bytes(self.network))
        return max(1, min(fitting, room))

    def _after(self, more: Sequence[Sequence[int]]) -> Tensor:
        tails = torch.tensor([list(ids) for ids in more], dtype=torch.long, device=self.device)
        return torch.cat([self.context.expand(len(more), -1), tails], dim=1)


@torch.no_grad()
def score_tokens(scorer: NextTokenScorer, ids: np.ndarray) -> LogProbabilities:
    """Next-token log-probabilities of `ids` (n,), all from one forward; the model's own and a batch of two check it.

    In float32 they *are* the own forward's. Raises ModelError where an id has no row in the output embedding.
    """
    own = scorer.own().cpu().numpy()
    # A model with code of its own may name its output embedding so that its files do not show its rows.
    if ids.max() >= len(own):
        raise ModelError(
            f"{type(scorer.network).__name__} gives {len(own)} next-token probabilities, none for the tokenizer's id "
            f"{ids.max()}. Tokenizer and model do not belong together: look at the folder"
        )
    in_batch = scorer.ours([(), ()])[:, 0].cpu().numpy()
    exact = scorer.dtype is Dtype.float32
    values = own if exact else scorer.ours([()])[0, 0].cpu().numpy()
    rounding = _apart(in_batch[0], values)
    trust = judge(own[ids], values[ids], *in_batch[:, ids], rounding=rounding, dtype=scorer.dtype)
    attention = OWN_FORWARD if exact else FULL_FORWARD
    if not trust.holds:
        _warn(scorer, trust)
        values, attention = own, OWN_FORWARD
    listed = values[ids]
    details = {"total_probability": float(np.exp(listed).sum()), "unlisted_rows": len(values) - len(ids)}
    return LogProbabilities(listed, trust, numerical_noise(in_batch[0, ids], own[ids]), attention, details)


@torch.no_grad()
def score_items(
    scorer: NextTokenScorer, items: Sequence[tuple[int, ...]], *, batch_size: int | None = None
) -> LogProbabilities:
    """Log-probabilities of whole `items`, the sum over each one's ids; items that begin alike share a forward.

    On a sample (16, and one of each rarer length) they are held to the model's own forward, one for each token.
    """
    lengths = np.array([len(ids) for ids in items])
    rows = sample_rows(np.column_stack([np.zeros_like(lengths), lengths]), n=SAMPLE, seed=0)
    sample = [items[row] for row in rows]
    values = _sums(scorer, items, batch_size=batch_size)
    own = np.array([_own_sum(scorer, ids) for ids in sample])
    single, again = (_sums(scorer, sample, batch_size=1) for _ in range(2))
    rounding = _apart(values[rows], single)
    trust = judge(own, single, values[rows], values[rows], rounding=rounding, dtype=scorer.dtype)
    trust = replace(trust, repeat_difference=_apart(single, again))
    noise, attention = numerical_noise(values[rows], own), FULL_FORWARD
    if not trust.holds:
        _warn(scorer, trust)
        values, attention = np.array([_own_sum(scorer, ids) for ids in items]), OWN_FORWARD
    details = {
        "tokens_per_item": {
            "least": int(lengths.min()),
            "median": float(np.median(lengths)),
            "most": int(lengths.max()),
        },
        "forwards": len({ids[:-1] for ids in items}),
    }
    return LogProbabilities(values, trust, noise, attention, details)


def _sums(scorer: NextTokenScorer, items: Sequence[tuple[int, ...]], *, batch_size: int | None) -> np.ndarray:
    """float64 (n,): the sum of each item's log-probabilities, token by token."""
    values = np.empty(len(items))
    rows_of: dict[int, dict[tuple[int, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, ids in enumerate(items):
        rows_of[len(ids)][ids[:-1]].append(row)
    for length, by_start in rows_of.items():
        size = batch_size or scorer.batch_size(length)
        starts = list(by_start)
        for first in range(0, len(starts), size):
            chosen = starts[first : first + size]
            ends = [[items[row][-1] for row in by_start[start]] for start in chosen]
            for start, scores in zip(chosen, _ends_after(scorer, chosen, ends), strict=True):
                values[by_start[start]] = scores
    return values


def _ends_after(
    scorer: NextTokenScorer, starts: list[tuple[int, ...]], ends: list[list[int]]
) -> list[np.ndarray]:
    """For each start (all of one length) the log-probability of it followed by each of its ends, (ends,) float64."""
    try:
        scores = scorer.ours(starts, last=len(starts[0]) + 1)  # (batch, start + 1, rows)
    except torch.OutOfMemoryError:
        if len(starts) == 1:
            raise
        log.warning("out of memory with %d items at once; going on with half of them", len(starts))
        torch.cuda.empty_cache()
        half = len(starts) // 2
        return _ends_after(scorer, starts[:half], ends[:half]) + _ends_after(
            scorer, starts[half:], ends[half:]
        )
    ids = torch.tensor(starts, dtype=torch.long, device=scores.device).unsqueeze(-1)  # (batch, start, 1)
    before = scores[:, :-1].gather(-1, ids).sum(dim=(1, 2))
    return [
        (ahead + last[own]).cpu().numpy()
        for ahead, last, own in zip(before, scores[:, -1], ends, strict=True)
    ]


def _own_sum(scorer: NextTokenScorer, ids: tuple[int, ...]) -> float:
    """One item's log-probability by one untouched forward a token."""
    return sum(float(scorer.own(ids[:i])[token]) for i, token in enumerate(ids))


def _normalised(logits: Tensor) -> Tensor:
    """Log-probabilities float64 of logits (…, rows), over all rows."""
    here = logits.cpu() if logits.device.type == "mps" else logits  # which has no float64
    return torch.log_softmax(here.double(), dim=-1)


@contextlib.contextmanager
def _head_in_float32(network: nn.Module) -> Iterator[None]:
    """While this lasts, a low-precision network's output embedding is applied in float32.

    In bfloat16, logits of size 16 lie an eighth apart: a vocabulary of 128,000 then has a few hundred distinct ones.
    What the network does to them afterwards (soft-capping, scaling) is still its own.
    """
    head = network.get_output_embeddings()
    if not isinstance(head, nn.Linear) or head.weight.dtype is torch.float32:
        yield
        return

    # In its place, and not after it: its own product of a row or two took a CPU 3 s, with 128,256 × 1,024 in bfloat16.
    head.forward = functools.partial(_applied_in_float32, head)
    try:
        yield
    finally:
        del head.forward


def _applied_in_float32(head: nn.Linear, states: Tensor) -> Tensor:
    """Logits (…, rows) float32 of states (…, hidden)."""
    states, weight = states.float(), head.weight
    logits = states.new_empty(*states.shape[:-1], len(weight))
    buffer = states.new_empty(_HEAD_ROWS, weight.shape[1])
    for start in range(0, len(weight), _HEAD_ROWS):
        rows = weight[start : start + _HEAD_ROWS]
        logits[..., start : start + len(rows)] = nn.functional.linear(states, buffer[: len(rows)].copy_(rows))
    return logits if head.bias is None else logits + head.bias.float()


def _warn(scorer: NextTokenScorer, trust: Trust) -> None:
    log.warning(
        "Log-probabilities of %s differ from its own forward at batch 1 by %.3g nats (allowed: %.3g) on %d candidates. "
        "Falling back to that: slower, and with ties in low precision, but the model's own arithmetic.",
        type(scorer.network).__name__,
        trust.largest_difference,
        trust.tolerance,
        trust.n,
    )


def _apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max())
