"""What a server can do wrong, and what it would then answer: every fault as arithmetic on the
model's own rewards, states and tokens, in closed form.

What a server reads of a conversation (`variants`, `cuts`), which number it makes of that
(`readings`), what it does to the number (`linked`), and what a batch does to it (`in_batches`,
`of_batch`). Knows no server; `served` asks it and compares.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import torch
from scipy.special import expit, log_expit, logit
from torch import Tensor, nn

from pessimal.checking.checks import NAMED
from pessimal.conversation import Conversation, Turn
from pessimal.errors import FrameError, ModelError
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.frame import messages_of
from pessimal.rewards.heads import Head
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.rendering import rendered
from pessimal.scoring.engine import Decoder, own_rewards, rewards_in

Ids = tuple[int, ...]

FAULTS: dict[str, dict[str, str]] = NAMED["served"]
"""By name: what it is, and what to do about it (mend)."""


class Part(NamedTuple):
    """A fault, and which of its kind; "" where that is not known."""

    fault: str = ""
    detail: str = ""


RIGHT = Part()


class Read(NamedTuple):
    """One input as a server reads it."""

    ids: Ids
    types: Ids | None = None
    """Token types, for encoders that mark prompt (0) and response (1) by them."""


class Local:
    """The model on this machine in one precision: rewards of whole inputs, each computed once, and
    where its parts are known the states behind them."""

    def __init__(self, network: RewardNetwork):
        self.network, self.device = network, next(network.parameters()).device
        decoder = Decoder.of(network)
        self.causal = decoder is not None
        self.gated = decoder is not None and decoder.head.gated
        alone = decoder is not None and not (self.gated or decoder.head.sequence)
        self.decoder = decoder if alone else None
        """None where states cannot be had, or the last does not decide the reward by itself."""
        if self.decoder is not None:
            self.decoder.exact_norm.to(self.device)
            self.decoder.head.to(self.device)
        self._rewards: dict[Read, float] = {}
        self._states: dict[Ids, Tensor] = {}

    @torch.no_grad()
    def rewards(self, reads: Sequence[Read]) -> np.ndarray:
        """Rewards float64 (n,) by the model's own forward, inputs of one length together."""
        new = sorted({r for r in reads if r not in self._rewards}, key=_shape)
        for (length, _), same_shape in itertools.groupby(new, key=_shape):
            same, most = list(same_shape), max(TOGETHER // length, 1)
            for group in (same[i : i + most] for i in range(0, len(same), most)):
                types = [read.types for read in group if read.types]
                ids = self._tensor([read.ids for read in group])
                try:
                    values = own_rewards(self.network, ids, self._tensor(types) if types else None)
                except ModelError:  # a gate that does not find the prompt's end
                    values = torch.full([len(group)], torch.nan)
                self._rewards |= dict(zip(group, values.double().tolist(), strict=True))
        return np.array([self._rewards[read] for read in reads])

    @torch.no_grad()
    def states(self, ids: Ids) -> Tensor:
        """Final states (T, hidden) float32 of one input, on the CPU."""
        if ids not in self._states:
            assert self.decoder is not None
            self._states[ids] = self.decoder.states(input_ids=self._tensor([ids]))[0].cpu()
        return self._states[ids]

    @torch.no_grad()
    def head(self, states: Tensor) -> np.ndarray:
        """Rewards float64 (n,) of states (n, hidden)."""
        assert self.decoder is not None
        assert isinstance(self.decoder.head, Head)
        return self.decoder.head.read(states.to(self.device), None).double().cpu().numpy()

    @torch.no_grad()
    def at_padding(self, reads: Sequence[Read], pad: int) -> np.ndarray:
        """Rewards (n,) at the last place of rows that are padded on the right, with a mask; needs a
        decoder."""
        assert self.decoder is not None
        pairs = list(zip(reads, _fills(pad, reads), strict=True))
        ids = self._tensor([read.ids + fill for read, fill in pairs])
        mask = self._tensor([(1,) * len(read.ids) + (0,) * len(fill) for read, fill in pairs])
        return self.head(self.decoder.states(input_ids=ids, attention_mask=mask)[:, -1])

    @torch.no_grad()
    def outputs(self, read: Read) -> int:
        """How many numbers the model's class gives an input; of a gated one, the mixture alone."""
        if self.gated:
            return 1
        return rewards_in(self.network(input_ids=self._tensor([read.ids]))).numel()

    def _tensor(self, rows: Sequence[Ids]) -> Tensor:
        return torch.tensor(rows, device=self.device)


TOGETHER = 4096
"""Tokens that are run together."""


def _shape(read: Read) -> tuple[int, bool]:
    return len(read.ids), read.types is not None


Reading = Callable[[Sequence[Read]], np.ndarray]
"""Which numbers a server makes of inputs that it reads alone: rewards (n,)."""


def readings(local: Local, base: Local | None, pads: Sequence[int]) -> dict[Part, Reading]:
    """All that this network gives occasion for, the right one first."""
    found: dict[Part, Reading] = {RIGHT: local.rewards}
    if base is not None:
        found[Part("stale_weights", "those of base")] = base.rewards
        if local.decoder is not None and base.decoder is not None:
            found[Part("adapter_head", "the base's head")] = lambda reads: base.head(_last(reads))
    if local.causal:
        # What stands before a token does not depend on it.
        found[Part("wrong_position", "last but one")] = lambda reads: local.rewards(
            [Read(read.ids[:-1] or read.ids) for read in reads]
        )
    if local.decoder is None:
        return found

    def at(where: Callable[[Ids], int]) -> Reading:
        return lambda reads: local.head(
            torch.stack([local.states(read.ids)[where(read.ids)] for read in reads])
        )

    def _last(reads: Sequence[Read]) -> Tensor:
        return torch.stack([local.states(read.ids)[-1] for read in reads])

    def unit(reads: Sequence[Read]) -> Tensor:
        return nn.functional.normalize(_last(reads), dim=-1)

    def mean(reads: Sequence[Read]) -> Tensor:
        return torch.stack([local.states(read.ids).mean(0) for read in reads])

    found |= {
        Part("wrong_position", "first token"): at(lambda ids: 0),
        Part("wrong_position", "mean of all tokens"): lambda reads: local.head(mean(reads)),
        Part("normalised_state"): lambda reads: local.head(unit(reads)),
        Part("last_element", "of the state"): lambda reads: _last(reads)[:, -1].double().numpy(),
        Part("last_element", "of the normalised state"): lambda r: unit(r)[:, -1].double().numpy(),
    }
    for pad in pads:
        found[Part("pad_read_as_end", f"before the last tokens {pad}")] = at(partial(_but, pad))
    return found


def _but(pad: int, ids: Ids) -> int:
    """As Hub classifiers do: at the last token that is not the pad token."""
    return max((i for i, token in enumerate(ids) if token != pad), default=-1)


def in_batches(local: Local, pads: Sequence[int]) -> Iterator[tuple[Part, Reading]]:
    """What the rewards (n,) of one batch are where its padding is read."""
    for pad in pads:
        for side in ("left", "right"):
            fault = "padding_as_text" if side == "left" or not local.causal else "pad_read_as_end"
            yield Part(fault, f"{side}, token {pad}"), partial(_padded, local, pad, side)
        if local.decoder is not None:
            yield Part("pad_read_as_end", f"token {pad}"), partial(local.at_padding, pad=pad)


def _padded(local: Local, pad: int, side: str, reads: Sequence[Read]) -> np.ndarray:
    """Without an attention mask."""
    fills = _fills(pad, reads)
    pairs = zip(fills, (read.ids for read in reads), strict=True)
    rows = [fill + ids if side == "left" else ids + fill for fill, ids in pairs]
    return local.rewards([Read(row) for row in rows])


def _fills(pad: int, reads: Sequence[Read]) -> list[Ids]:
    width = max(len(read.ids) for read in reads)
    return [(pad,) * (width - len(read.ids)) for read in reads]


def of_batch(scores: Sequence[np.ndarray], rewards: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """What normalising within each batch makes of rewards (n,): an increasing linear function of
    them, or of their exponentials (a softmax), that brings the mean or the least of each batch to
    the same number; fitted to its scores. Batches are of one size."""
    same = min(np.ptp([of(given) for given in scores]) for of in (np.mean, np.min))
    if min(map(np.ptp, scores)) <= 1e-6 or same > 1e-2 * np.concatenate(scores).std():
        return
    for shape in (np.asarray, np.exp):
        made = []
        for given, own in zip(scores, rewards, strict=True):
            slope, shift = np.polyfit(shape(own - own.max()), given, 1)
            made.append(max(slope, 0) * shape(own - own.max()) + shift)
        yield np.concatenate(made)


Made = Callable[[np.ndarray], np.ndarray]
"""From numbers (n,) to numbers (n,)."""


class Link(NamedTuple):
    """What a server does to a number, its inverse, and its derivative."""

    forward: Made
    inverse: Made
    slope: Made


LINKS = {
    "scale": Link(lambda x: x, lambda y: y, np.ones_like),
    "sigmoid": Link(expit, logit, lambda x: expit(x) * expit(-x)),
    "log_sigmoid": Link(log_expit, lambda y: y - np.log(-np.expm1(y)), lambda x: expit(-x)),
    "tanh": Link(np.tanh, np.arctanh, lambda x: 1 - np.tanh(x) ** 2),
    "exp": Link(lambda x: np.exp(np.clip(x, None, 700)), np.log, np.exp),
}
"""By the fault that each is; the first is a scale or a shift."""


PLAIN: dict[Part, Made] = {Part("softmax"): np.ones_like} | {
    Part(fault): link.forward for fault, link in LINKS.items() if fault != "scale"
}


def fitted(scores: np.ndarray, rewards: np.ndarray) -> Iterator[tuple[Part, Made]]:
    """What links of a + b · reward, and clipping, make of rewards (n,) to come closest to scores
    (n,): by least squares through the link's inverse, weighted by its slope."""
    for fault, link in LINKS.items():
        with np.errstate(all="ignore"):
            inner = link.inverse(scores)
            weight = np.where(np.isfinite(inner), link.slope(np.nan_to_num(inner)), 0.0)
        clear = weight > 1e-3 * max(weight.max(), 1e-300)
        if clear.sum() < 10 or np.ptp(rewards[clear]) == 0 or np.ptp(inner[clear]) == 0:
            continue
        slope, shift = np.polyfit(rewards[clear], inner[clear], 1, w=weight[clear])
        detail = f"of {slope:.4g} · reward {shift:+.4g}"
        yield Part(fault, detail), partial(_affine, link.forward, slope, shift)
    ends, near = (scores.min(), scores.max()), 1e-6 * np.ptp(scores)
    at = [np.abs(scores - end) <= near for end in ends]
    # Of answers that only one or two inputs share, the largest is no bound.
    low, high = (
        end if which.sum() >= 3 else alone
        for end, which, alone in zip(ends, at, (-np.inf, np.inf), strict=True)
    )
    inside = (scores > low + near) & (scores < high - near)
    if inside.sum() >= 3 and (~inside).sum() >= 5:
        yield Part("clipping", f"to {low:.4g} … {high:.4g}"), lambda x: np.clip(x, low, high)


def _affine(link: Made, slope: float, shift: float, rewards: np.ndarray) -> np.ndarray:
    return link(slope * rewards + shift)


def cuts(read: Read, most: int) -> dict[Part, Read]:
    """An input of more than `most` tokens as truncation leaves it."""
    ids = read.ids
    ways = {
        "the end is lost": ids[:most],
        "the end but the last token is lost": (*ids[: most - 1], ids[-1]),
        "the beginning is lost": ids[-most:],
        "the beginning but the first token is lost": (ids[0], *ids[1 - most :]),
    }
    types = None if read.types is None else read.types[:most]
    return {
        Part("truncation", f"{most} tokens, {name}"): Read(cut, types) for name, cut in ways.items()
    }


def variants(
    model: NetworkReward, sent: Ids | Conversation, form: str, suffix: Ids
) -> Iterator[tuple[Part, Read]]:
    """What a server may read of what it is sent, first what it should; `suffix` closes the
    response."""
    tokenizer, encode = model.tokenizer, model.parts[0].conversations.encode
    ends = tokenizer.bos_token_id, tokenizer.eos_token_id
    both = zip(ends, (tokenizer.cls_token_id, tokenizer.sep_token_id), strict=True)
    bos, eos = (own if own is not None else encoder for own, encoder in both)
    if isinstance(sent[0], int):
        ids, types = cast(Ids, sent), None
    else:
        encoded = encode(cast(Conversation, sent))
        ids, types = encoded.ids, encoded.types
    yield RIGHT, Read(ids, types)
    if form == "pairs":
        yield Part("another_template", "without token types"), Read(ids)
        return
    if bos is not None:
        yield Part("doubled_bos"), Read((bos, *ids))
        if ids[:1] == (bos,):
            yield Part("another_template", "without BOS"), Read(ids[1:])
    if eos is not None:
        yield Part("another_template", "one EOS more"), Read((*ids, eos))
    if form == "ids":
        return
    for cut in range(1, min(len(suffix), 6) + 1):
        yield Part("missing_end", f"{cut} of {len(suffix)} closing tokens"), Read(ids[:-cut])
    sent = cast(Conversation, sent)
    unlike = {
        "without the system turn": tuple(turn for turn in sent if turn.role != "system"),
        "without earlier turns": sent[-2:],
        "a system turn more": (Turn("system", "You are a helpful assistant."), *sent),
        "an empty system turn more": (Turn("system", ""), *sent),
    }
    for name, turns in unlike.items():
        with suppress(FrameError):
            yield Part("another_template", name), Read(encode(turns).ids)
    with suppress(FrameError):
        opened = rendered(tokenizer, messages_of(sent), tokenize=True, add_generation_prompt=True)
        yield Part("another_template", "a generation prompt at the end"), Read(tuple(opened))


LEVELS = ("float16", "bfloat16")
"""Lower precisions, from the finest."""
