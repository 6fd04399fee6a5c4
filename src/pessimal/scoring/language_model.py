"""A causal language model's log-probabilities of the same candidates that reward models are asked about, as a score table.

One forward gives the next-token probabilities of the whole vocabulary at once, so there is no loop over candidates and
nothing to resume. Knows models, contexts and candidates. Knows neither Hydra nor W&B nor the registry.
"""

import contextlib
import functools
import inspect
import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from pessimal.errors import ModelError
from pessimal.rewards.language import Context, Continuations, continuations, find_context
from pessimal.rewards.load import RewardModel
from pessimal.rewards.spec import Dtype
from pessimal.scoring.candidates import Candidates
from pessimal.scoring.certify import certify, uncertified
from pessimal.scoring.memory import Lengths, find_batch_size, free_bytes, within_memory
from pessimal.scoring.scan import score_table
from pessimal.scoring.trust import SAMPLE, Trust, judge, largest_difference, numerical_noise, sample_rows
from pessimal.tables import ScoreProvenance, ScoreTable
from pessimal.tables.score_table import storable

log = logging.getLogger(__name__)

OWN_FORWARD, FULL_FORWARD = "own-forward", "full-forward"
"""Paths: the model's own forward, and the same with its output embedding in float32."""
# Rows of the output embedding that are float32 at once, in one buffer: a whole one of Gemma 2 27B would take 4.7 GB. On a
# CPU (128,256 rows of 1,024) this took 25 ms, a tensor of its own for every 1,024 rows 310 ms, and 4,096 at once 39 ms.
_HEAD_ROWS = 1024
# Of a batch's float32 logits while they are normalised: themselves, and twice as much in float64, twice.
_COPIES = 5


def context_of(model: RewardModel, prompt: str) -> Context:
    """What `model` has read before it answers one prompt; FrameError where its template does not say, ModelError where
    the model has no row for a token of it."""
    context = find_context(model.tokenizer, prompt, chat=model.chat)
    _check_rows(model, context.ids, f"the prompt {prompt!r}")
    begin = model.tokenizer.bos_token_id
    if begin is not None and begin not in context.ids:
        log.info(
            "%s is asked without its beginning-of-sequence token %r, which its %s does not write",
            model.name,
            model.tokenizer.bos_token,
            "chat template" if context.chat else "tokenizer",
        )
    return context


def answers_of(model: RewardModel, context: Context, candidates: Candidates) -> Continuations | None:
    """The ids of items as answers; None for a vocabulary, whose tokens are their own. FrameError for an item without
    tokens, ModelError for one of which the model has no row."""
    if candidates.is_vocabulary:
        return None
    texts = candidates.rows["text"].tolist()
    answers = continuations(model.tokenizer, context, texts)
    for text, ids in zip(texts, answers.ids, strict=True):
        _check_rows(model, ids, f"the item {text!r}")
    if answers.apart:
        log.warning(
            "%d of %d items were tokenised by themselves, since the tokenizer merges their beginning with the end of the "
            "prompt (such as %r); the table records how many",
            len(answers.apart),
            len(answers.ids),
            answers.apart[0],
        )
    return answers


@torch.no_grad()
def scan_language_model(
    model: RewardModel,
    network: nn.Module,
    provenance: ScoreProvenance,
    candidates: Candidates,
    context: Context,
    *,
    answers: Continuations | None,
    device: torch.device,
    batch_size: int | None = None,
) -> ScoreTable:
    """log p(candidate | context) of every candidate, in nats.

    A token's is its next-token log-probability, normalised in float64 over *all* rows of the output embedding, those
    without a token of the tokenizer included; the tokens listed then have less than the whole probability
    (`measured["total_probability"]`). An item's is that of its text as a continuation, the sum over its tokens, and says
    nothing of where the answer ends: a longer item that begins with a shorter one can only be less likely.

    `answers` are the items' (`answers_of`), None for a vocabulary.

    In low precision the output embedding runs in float32 all the same (a bfloat16 one leaves masses of ties); no rank
    is certified then.

    Raises ModelError where a token has no probability, or one that is not a number.
    """
    scorer = NextTokenScorer(network.to(device), context.ids, dtype=model.spec.dtype, device=device)
    if candidates.is_vocabulary:
        values, measured = score_tokens(scorer, candidates.rows["candidate_id"].to_numpy())
    else:
        values, measured = score_items(scorer, answers.ids, batch_size=batch_size)
        measured["tokenised_apart"] = len(answers.apart)
        measured["tokenised_apart_examples"] = [storable(answer) for answer in answers.apart[:5]]
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise ModelError(
            f"{len(bad)} of {len(values)} log-probabilities of {model.name!r} on {provenance.prompt!r} are no finite numbers "
            f"(first: {candidates.rows['text'].iloc[bad[0]]!r}). Try model.dtype=float32, or look at its weights"
        )
    result = uncertified(values)
    if model.spec.dtype is Dtype.float32:
        result = certify(values, noise=measured["noise"])
    else:
        measured["noise"] = None
    return score_table(
        model,
        provenance,
        candidates,
        result,
        framed=len(candidates.rows),
        prefix_tokens=len(context.ids),
        suffix_tokens=0,
        asked="chat template" if context.chat else "plain text",
        context=storable(model.tokenizer.decode(list(context.ids), clean_up_tokenization_spaces=False)),
        **measured,
    )


def _check_rows(model: RewardModel, ids: Sequence[int], what: str) -> None:
    """ModelError where an id lies beyond the embedding: on a GPU that would be an assertion deep inside."""
    worst = max(ids)
    if worst >= model.embedding_rows:
        token = model.tokenizer.convert_ids_to_tokens(worst)
        raise ModelError(
            f"{what} holds the token {token!r} (id {worst}), and {model.name!r} has {model.embedding_rows} rows in its "
            f"embedding, so none for it. Tokenizer and model do not belong together: look at {model.folder}"
        )


Scores = tuple[np.ndarray, dict]
"""Log-probabilities float64 (n,) of candidates after the context, in nats; and for the table's record `trust`, `noise` (bound
on the numerical error of a float32 pass, in nats), `attention` (the path that computed them) and other figures."""


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
        logits = 4 * length * self.network.config.get_text_config().vocab_size  # bytes, in float32
        room = free_bytes(self.device) // (_COPIES * logits)
        return max(1, min(fitting, room))

    def _after(self, more: Sequence[Sequence[int]]) -> Tensor:
        tails = torch.tensor([list(ids) for ids in more], dtype=torch.long, device=self.device)
        return torch.cat([self.context.expand(len(more), -1), tails], dim=1)


@torch.no_grad()
def score_tokens(scorer: NextTokenScorer, ids: np.ndarray) -> Scores:
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
    rounding = largest_difference(in_batch[0], values)
    trust = judge(own[ids], values[ids], *in_batch[:, ids], rounding=rounding, dtype=scorer.dtype)
    attention = OWN_FORWARD if exact else FULL_FORWARD
    if not trust.holds:
        _warn(scorer, trust)
        values, attention = own, OWN_FORWARD
    return values[ids], {
        "trust": trust,
        "noise": numerical_noise(in_batch[0, ids], own[ids]),
        "attention": attention,
        "total_probability": float(np.exp(values[ids]).sum()),
        "unlisted_rows": len(values) - len(ids),
    }


@torch.no_grad()
def score_items(
    scorer: NextTokenScorer, items: Sequence[tuple[int, ...]], *, batch_size: int | None = None
) -> Scores:
    """Log-probabilities of whole `items`, the sum over each one's ids; items that begin alike share a forward.

    On a sample (16, and one of each rarer length) they are held to the model's own forward, one for each token.
    """
    lengths = np.array([len(ids) for ids in items])
    rows = sample_rows(np.column_stack([np.zeros_like(lengths), lengths]), n=SAMPLE, seed=0)
    sample = [items[row] for row in rows]
    values = _sums(scorer, items, batch_size=batch_size)
    own = np.array([_own_sum(scorer, ids) for ids in sample])
    single, again = (_sums(scorer, sample, batch_size=1) for _ in range(2))
    rounding = largest_difference(values[rows], single)
    trust = judge(own, single, values[rows], values[rows], rounding=rounding, dtype=scorer.dtype)
    trust = replace(trust, repeat_difference=largest_difference(single, again))
    noise, attention = numerical_noise(values[rows], own), FULL_FORWARD
    if not trust.holds:
        _warn(scorer, trust)
        values, attention = np.array([_own_sum(scorer, ids) for ids in items]), OWN_FORWARD
    least, most = int(lengths.min()), int(lengths.max())
    return values, {
        "trust": trust,
        "noise": noise,
        "attention": attention,
        "tokens_per_item": {"least": least, "median": float(np.median(lengths)), "most": most},
        "forwards": len({ids[:-1] for ids in items}),
    }


def _sums(scorer: NextTokenScorer, items: Sequence[tuple[int, ...]], *, batch_size: int | None) -> np.ndarray:
    """float64 (n,): the sum of each item's log-probabilities, token by token."""
    values = np.empty(len(items))
    rows_of: dict[int, dict[tuple[int, ...], list[int]]] = defaultdict(lambda: defaultdict(list))
    for row, ids in enumerate(items):
        rows_of[len(ids)][ids[:-1]].append(row)
    for length, by_start in rows_of.items():
        size = batch_size or scorer.batch_size(length)
        starts = [(start, [items[row][-1] for row in rows]) for start, rows in by_start.items()]
        for first in range(0, len(starts), size):
            some = starts[first : first + size]
            run = functools.partial(_ends_after, scorer)
            scores = within_memory(run, some, join=lambda halves: halves[0] + halves[1])
            for (start, _), found in zip(some, scores, strict=True):
                values[by_start[start]] = found
    return values


def _ends_after(
    scorer: NextTokenScorer, starts: Sequence[tuple[tuple[int, ...], list[int]]]
) -> list[np.ndarray]:
    """For each start (all of one length) the log-probability of it followed by each of its ends, (ends,) float64."""
    begun = [start for start, _ in starts]
    scores = scorer.ours(begun, last=len(begun[0]) + 1)  # (batch, start + 1, rows)
    ids = torch.tensor(begun, dtype=torch.long, device=scores.device).unsqueeze(-1)  # (batch, start, 1)
    before = scores[:, :-1].gather(-1, ids).sum(dim=(1, 2))
    return [
        (ahead + last[ends]).cpu().numpy()
        for ahead, last, (_, ends) in zip(before, scores[:, -1], starts, strict=True)
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
