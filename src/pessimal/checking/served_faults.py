"""What a server can do wrong, and what it would then answer: every fault as arithmetic on the
model's own states and tokens.

A hypothesis has three parts: what the server reads of a conversation (`variants`), which number it
makes of the network's states (`READINGS`), and what it does to that number (`LINKS`). Knows no
server; `served` asks it and compares.
"""

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from pessimal.errors import FrameError
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.frame import Conversation, messages_of, rendered, takes_pairs
from pessimal.rewards.heads import Head
from pessimal.rewards.language import token_ids
from pessimal.rewards.network import RewardNetwork
from pessimal.rewards.spec import Dtype
from pessimal.scoring.engine import Decoder, own_rewards

Ids = tuple[int, ...]

FAULTS = {
    "softmax": (
        "A softmax over one logit: every score is 1.",
        'Ask for logits: "use_activation": false in a request to vLLM (raw=true does); elsewhere '
        "num_labels=1 and problem_type=regression in the served config.json",
    ),
    "sigmoid": (
        "A sigmoid over the reward: scores lie between 0 and 1, and the largest rewards are all 1.",
        'Ask for logits: "use_activation": false in a request to vLLM (raw=true does); or take '
        "log(p / (1 − p)) of its scores",
    ),
    "normalised_state": (
        "The hidden state is divided by its length before the head, as embeddings are.",
        "Serve it as a classifier, not as an embedding model: pooling of the last token with "
        "normalize=false",
    ),
    "last_element": (
        "The score is an element of the hidden state, not the head's output.",
        "Serve it as a classifier: the embedding path leaves out the head. SGLang needs the class "
        "with a score head",
    ),
    "wrong_position": (
        "The reward is read at another position than the last token.",
        'Set the pooling to the last token (vLLM --pooler-config \'{"pooling_type": "LAST"}\')',
    ),
    "pad_read_as_end": (
        "Padding decides where the reward is read: at the padding, or before a last token that is "
        "the pad token.",
        "Give the server's tokenizer and config.json a pad token that no conversation contains, "
        "the same in both",
    ),
    "random_head": (
        "Another head on the right states: the server's was drawn at random.",
        "Look for 'newly initialized' in the server's log; save the head with the model, under "
        "the name that its class has",
    ),
    "adapter_head": (
        "The adapter's head is not loaded: the rewards are those of the base checkpoint's head, "
        "or of the whole base.",
        "Merge adapter and head before serving (merge_and_unload, save_pretrained); "
        "modules_to_save must name the head",
    ),
    "two_outputs": (
        "Two outputs where the model has one.",
        "Write num_labels=1 into the served config.json (with id2label of one entry); two is the "
        "library's default",
    ),
    "left_padding": (
        "Padding on the left counts as text: a score depends on what else is in the batch.",
        "Pass attention_mask and position_ids, or tokenizer.padding_side=right, or send one input "
        "a request",
    ),
    "doubled_bos": (
        "The server puts a second BOS token before the text.",
        'Send text without its BOS, or with "add_special_tokens": false (raw=true does), or token '
        "ids",
    ),
    "missing_end": (
        "The tokens that close the response are missing.",
        "Render with add_generation_prompt=false and continue_final_message=false, and cut no "
        "special tokens",
    ),
    "another_template": (
        "The server renders the conversation by another template.",
        "Start it with the model's own: --chat-template FILE, or send token ids",
    ),
    "scale": (
        "Scores are a linear function of the rewards: their order is right, their size is not.",
        "Look for a mean and a standard deviation in the served config.json that the head's "
        "output is divided by",
    ),
    "lower_precision": (
        "The network runs in a lower precision.",
        "Start the server with --dtype float32, or check against the same precision: "
        "model.dtype=bfloat16",
    ),
    "unknown": (
        "Not the model's rewards, and none of the faults known here.",
        "Compare weights, revision and tokenizer of the served model with model=…; an adapter "
        "that is not loaded shows with base=DIR_OR_ID",
    ),
}
"""By name: what it is, and what to do about it."""


class Part(NamedTuple):
    """A part of a hypothesis: which fault it is, and which of its kinds. The right one has no
    name."""

    fault: str = ""
    detail: str = ""


RIGHT = Part()


class Seen(NamedTuple):
    """One input as a server reads it."""

    ids: Ids
    width: int
    """Tokens of the longest input of its request."""


class Local:
    """The model on this machine in one precision: states and rewards of whole inputs, each computed
    once."""

    def __init__(self, network: RewardNetwork):
        self.network = network
        decoder = Decoder.of(network)
        alone = decoder is not None and not (decoder.head.gated or decoder.head.sequence)
        self.decoder = decoder if alone else None
        """None where states cannot be had, or the last does not decide the reward by itself."""
        if self.decoder is not None:
            self.decoder.exact_norm.to(self._device)
            self.decoder.head.to(self._device)
        self._states: dict[tuple[Ids, int, int, bool], Tensor] = {}
        self._rewards: dict[Ids, float] = {}

    @torch.no_grad()
    def prepare(self, inputs: Iterable[Ids]) -> None:
        """Run inputs of one length together: on any machine much faster than one by one."""
        if self.decoder is None:
            return
        new = sorted({ids for ids in inputs if (ids, 0, 0, False) not in self._states}, key=len)
        for _, same_length in itertools.groupby(new, key=len):
            group = list(same_length)
            for start in range(0, len(group), TOGETHER):
                rows = group[start : start + TOGETHER]
                ids = torch.tensor(rows, device=self._device)
                states = self.decoder.states(input_ids=ids).cpu()
                keys = [(row, 0, 0, False) for row in rows]
                self._states |= dict(zip(keys, states, strict=True))

    @torch.no_grad()
    def states(
        self, ids: Ids, *, pad: int = 0, left: int = 0, right: int = 0, masked: bool = False
    ) -> Tensor:
        """Final states (T, hidden) float32, on the CPU, of `ids` between pad tokens, which may be
        masked."""
        key = ((pad,) * left + ids + (pad,) * right, left, right, masked and bool(left or right))
        if key not in self._states:
            assert self.decoder is not None
            row = torch.tensor([key[0]], device=self._device)
            mask = torch.ones_like(row)
            if masked:
                mask[:, :left], mask[:, left + len(ids) :] = 0, 0
            self._states[key] = self.decoder.states(input_ids=row, attention_mask=mask)[0].cpu()
        return self._states[key]

    @torch.no_grad()
    def head(self, state: Tensor) -> float:
        """The reward of one state (hidden,)."""
        assert self.decoder is not None
        assert isinstance(self.decoder.head, Head)
        return float(self.decoder.head.read(state[None].to(self._device), None)[0])

    @torch.no_grad()
    def reward(self, ids: Ids) -> float:
        """The reward of a whole input."""
        if ids not in self._rewards:
            if self.decoder is None:
                inputs = torch.tensor([ids], device=self._device)
                self._rewards[ids] = float(own_rewards(self.network, inputs)[0])
            else:
                self._rewards[ids] = self.head(self.states(ids)[-1])
        return self._rewards[ids]

    @property
    def outputs(self) -> int:
        """How many numbers the network gives an input."""
        score = getattr(self.network, "score", None)
        return score.out_features if isinstance(score, nn.Linear) else 1

    @property
    def _device(self) -> torch.device:
        return next(self.network.parameters()).device


TOGETHER = 16
"""Inputs that are run together."""
Reading = Callable[[Local, Seen], float]


def _unit(state: Tensor) -> Tensor:
    return state / state.norm().clamp(min=1e-12)


def _before_first(pad: int, local: Local, seen: Seen) -> float:
    """As Hub classifiers did: one before the first pad token, and at the last token where there is
    none."""
    return local.head(local.states(seen.ids)[seen.ids.index(pad) - 1 if pad in seen.ids else -1])


def _last_but(pad: int, local: Local, seen: Seen) -> float:
    """As Hub classifiers do: at the last token that is not the pad token."""
    at = max((i for i, token in enumerate(seen.ids) if token != pad), default=-1)
    return local.head(local.states(seen.ids)[at])


def _padded(side: str, masked: bool, pad: int, local: Local, seen: Seen) -> float:
    """At the last position of a padded row."""
    return local.head(
        local.states(seen.ids, pad=pad, masked=masked, **{side: seen.width - len(seen.ids)})[-1]
    )


READINGS: dict[Part, Reading] = {
    Part("normalised_state", "length 1"): lambda local, seen: local.head(
        _unit(local.states(seen.ids)[-1])
    ),
    Part("last_element", "last element"): lambda local, seen: float(local.states(seen.ids)[-1, -1]),
    Part("last_element", "last element of the normalised state"): lambda local, seen: float(
        _unit(local.states(seen.ids)[-1])[-1]
    ),
    Part("last_element", "first element"): lambda local, seen: float(local.states(seen.ids)[-1, 0]),
    Part("wrong_position", "first token"): lambda local, seen: local.head(
        local.states(seen.ids)[0]
    ),
    Part("wrong_position", "mean of all tokens"): lambda local, seen: local.head(
        local.states(seen.ids).mean(0)
    ),
    Part("wrong_position", "last but one"): lambda local, seen: local.head(
        local.states(seen.ids)[-2:][0]
    ),
}
"""Wrong ways to make a number of states."""
PADDED: dict[Part, Callable[[int, Local, Seen], float]] = {
    Part("pad_read_as_end", "before the first"): _before_first,
    Part("pad_read_as_end", "before the last tokens"): _last_but,
    Part("pad_read_as_end", "end of the padded row"): partial(_padded, "right", True),
    Part("pad_read_as_end", "end of the padded row, no attention mask"): partial(
        _padded, "right", False
    ),
    Part("left_padding", "no attention mask"): partial(_padded, "left", False),
    Part("left_padding", "positions not shifted"): partial(_padded, "left", True),
}
"""Those in which a pad token has a part; the server's may be another than the tokenizer's."""


def right(local: Local, seen: Seen) -> float:
    return local.reward(seen.ids)


def readings(local: Local, base: Local | None, pads: Mapping[int, str]) -> dict[Part, Reading]:
    """All that this network gives occasion for, the right one first."""
    found: dict[Part, Reading] = {RIGHT: right}
    if local.decoder is not None:
        found |= READINGS
        for pad, name in pads.items():
            for part, read in PADDED.items():
                found[Part(part.fault, f"{part.detail}{name and ', pad ' + name}")] = partial(
                    read, pad
                )
    if base is not None:
        found[Part("adapter_head", "the whole base")] = lambda _, seen: base.reward(seen.ids)
        if local.decoder is not None and base.decoder is not None:
            found[Part("adapter_head", "the base's head")] = lambda own, seen: base.head(
                own.states(seen.ids)[-1]
            )
    return found


LINKS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "": lambda values: values,
    "sigmoid": lambda values: 1 / (1 + np.exp(-np.clip(values, -700, 700))),
    "softmax": np.ones_like,
}
"""What a server does to the head's output, by the fault that it is."""

_CHATML = "<|im_start|>{role}\n{text}<|im_end|>\n"
_LLAMA3 = "<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>"
_TURNS = {
    "ChatML": _CHATML,
    "Llama 3": _LLAMA3,
    "Zephyr": "<|{role}|>\n{text}</s>\n",
    "Gemma": "<start_of_turn>{role}\n{text}<end_of_turn>\n",
}
_WHOLES = {
    "Llama 2": "[INST] {prompt} [/INST] {response}</s>",
    "Human and Assistant": "\n\nHuman: {prompt}\n\nAssistant: {response}",
    "Vicuna": "USER: {prompt} ASSISTANT: {response}</s>",
    "prompt, newline, response": "{prompt}\n{response}",
    "prompt and response": "{prompt} {response}",
    "prompt and response, joined": "{prompt}{response}",
    "the response alone": "{response}",
    "the prompt alone": "{prompt}",
}


def variants(
    model: NetworkReward, conversation: Conversation | str, suffix: Ids
) -> Iterator[tuple[Part, Ids]]:
    """What a server may read of a conversation of two turns (or of a plain text), first what it
    should; `suffix` closes the response."""
    tokenizer = model.tokenizer
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    if isinstance(conversation, str):
        ids = tuple(token_ids(tokenizer, conversation))
    else:
        ids = tuple(model.parts[0].conversations.encode(conversation).ids)
    yield RIGHT, ids
    if bos is not None:
        yield Part("doubled_bos", f"{ids[:2].count(bos) + 1} BOS tokens"), (bos, *ids)
    if isinstance(conversation, str):
        return
    if bos is not None and ids[:1] == (bos,):
        yield Part("another_template", "without BOS"), ids[1:]
    prompt, response = (turn.content for turn in conversation)
    for cut in range(1, min(len(suffix), 6) + 1):
        yield Part("missing_end", f"{cut} of {len(suffix)} closing tokens"), ids[:-cut]
    if eos is not None:
        yield Part("another_template", "one EOS more"), (*ids, eos)
    if takes_pairs(tokenizer):
        return
    messages = messages_of(conversation)
    for system in ("You are a helpful assistant.", ""):
        with_system = _templated(tokenizer, [{"role": "system", "content": system}, *messages])
        if with_system:
            yield Part("another_template", f"system turn {system!r}"), with_system
    if opened := _templated(tokenizer, messages, add_generation_prompt=True):
        yield Part("another_template", "a generation prompt at the end"), opened
    for name, text in _known(prompt, response):
        yield Part("another_template", name), tuple(token_ids(tokenizer, text, special=True))
        bare = tuple(token_ids(tokenizer, text))
        yield Part("another_template", f"{name}, without special tokens"), bare


def _templated(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], **options: bool
) -> Ids | None:
    """Ids of messages; None where the template takes no such turn."""
    try:
        return tuple(rendered(tokenizer, messages, tokenize=True, return_dict=False, **options))
    except FrameError:
        return None


def _known(prompt: str, response: str) -> Iterator[tuple[str, str]]:
    for name, turn in _TURNS.items():
        user = turn.format(role="user", text=prompt)
        yield name, user + turn.format(role="assistant", text=response)
    for name, whole in _WHOLES.items():
        yield name, whole.format(prompt=prompt, response=response)


LEVELS = ("float16", "bfloat16", "int8")
"""Lower precisions, from the finest."""


def in_level(
    model: NetworkReward, exact: RewardNetwork, level: str, device: torch.device
) -> RewardNetwork:
    """The network in a lower precision; int8 rounds every row of a linear layer's weights to 255
    steps, the head aside."""
    if level != "int8":
        return model.network(Dtype(level)).to(device)
    network = copy.deepcopy(exact)
    with torch.no_grad():
        for name, module in network.named_modules():
            if isinstance(module, nn.Linear) and "score" not in name and "head" not in name:
                step = module.weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
                module.weight.copy_((module.weight / step).round() * step)
    return network


def last_states(local: Local, seen: Sequence[Seen]) -> np.ndarray:
    """States at the last token, float64 (n, hidden)."""
    return torch.stack([local.states(one.ids)[-1] for one in seen]).double().numpy()
