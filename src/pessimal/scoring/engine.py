"""Engines: from token ids to rewards, with the prefix shared or in full.

Knows networks and token ids. Does not know tokenizers, tables or files.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from pessimal.scoring.shared_prefix import ATTENTION, Prefix, run_prefix


class Engine(Protocol):
    """Scores responses of one length inside one frame."""

    name: str

    def rewards(self, responses: Tensor) -> Tensor:
        """Rewards (batch,) float32 of response ids (batch, length)."""


@dataclass(frozen=True)
class Decoder:
    """The parts of a decoder with one linear head: Llama, Mistral, Qwen and whoever is laid out like them."""

    network: nn.Module
    backbone: nn.Module
    norm: nn.Module
    head: nn.Linear

    @classmethod
    def of(cls, network: nn.Module) -> "Decoder | None":
        """The parts of `network`, or None where it is laid out otherwise."""
        backbone = getattr(network, network.base_model_prefix, None)
        norm, head = getattr(backbone, "norm", None), getattr(network, "score", None)
        layers = getattr(backbone, "layers", None)
        if norm is None or layers is None or not isinstance(head, nn.Linear):
            return None
        return cls(network=network, backbone=backbone, norm=norm, head=head)

    def read_reward(self, **inputs) -> Tensor:
        """Run the backbone and read the reward at the last position, final norm and head in float32.

        A bfloat16 head leaves a few hundred distinct rewards in a whole vocabulary, and so masses of ties; in
        float32 it costs nothing, since it runs on one position only.
        """

        def last_position_in_float32(_, arguments):
            return (arguments[0][:, -1].float(), *arguments[1:])  # (batch, hidden)

        hook = self.norm.register_forward_pre_hook(last_position_in_float32)
        try:
            final = self.backbone(**inputs).last_hidden_state  # (batch, hidden) float32
        finally:
            hook.remove()
        bias = None if self.head.bias is None else self.head.bias.float()
        return nn.functional.linear(final, self.head.weight.float(), bias)[:, 0]


class FullForward:
    """Every candidate's whole input in one forward, equal lengths, no padding."""

    name = "full-forward"

    def __init__(self, network: nn.Module, *, prefix: Tensor, suffix: Tensor):
        self.network = network
        self.decoder = Decoder.of(network)
        self.prefix = prefix  # (P,)
        self.suffix = suffix  # (S,)

    def rewards(self, responses: Tensor) -> Tensor:
        batch = responses.shape[0]
        ids = torch.cat([self.prefix.expand(batch, -1), responses, self.suffix.expand(batch, -1)], dim=1)
        if self.decoder is not None:
            return self.decoder.read_reward(input_ids=ids, use_cache=False)
        return own_forward(self.network, ids)


class SharedPrefix:
    """The prefix runs once; candidates run their own tokens against its keys and values, which are never copied."""

    name = "shared-prefix"

    def __init__(self, decoder: Decoder, *, prefix: Tensor, suffix: Tensor):
        self.decoder = decoder
        self.suffix = suffix  # (S,)
        self.prefix: Prefix = run_prefix(decoder.backbone, prefix)

    @staticmethod
    def suits(network: nn.Module) -> bool:
        """Whether this network's attention is the plain causal one that is shared here."""
        config = network.config
        plain = getattr(config, "attn_logit_softcapping", None) is None
        windowed = getattr(config, "sliding_window", None) is not None and getattr(
            config, "use_sliding_window", True
        )
        supported = getattr(network, "_supports_attention_backend", False)
        return Decoder.of(network) is not None and plain and not windowed and bool(supported)

    def rewards(self, responses: Tensor) -> Tensor:
        batch = responses.shape[0]
        own = torch.cat([responses, self.suffix.expand(batch, -1)], dim=1)  # (batch, L + S)
        start = self.prefix.length
        positions = torch.arange(start, start + own.shape[1], device=own.device).unsqueeze(0)
        with _attention(self.decoder.network, ATTENTION):
            return self.decoder.read_reward(
                input_ids=own, position_ids=positions, use_cache=False, shared_prefix=self.prefix
            )


def own_forward(network: nn.Module, ids: Tensor) -> Tensor:
    """Rewards (batch,) float32 of whole inputs (batch, length) by the network's own forward, nothing of ours.

    Hub classifiers look for the last token that is not the pad token; inputs here have no padding, and a
    template may well end in the pad token (pad = eos), so the search is switched off: the last position is read.
    """
    config = network.config.get_text_config()
    pad, config.pad_token_id = config.pad_token_id, None
    try:
        # Without a pad token id, classifiers take one row at a time.
        rows = [network(input_ids=row.unsqueeze(0)).logits[0, 0] for row in ids]
    finally:
        config.pad_token_id = pad
    return torch.stack(rows).float()


@contextlib.contextmanager
def _attention(network: nn.Module, implementation: str) -> Iterator[None]:
    config = network.config
    before = config._attn_implementation
    config._attn_implementation = implementation
    try:
        yield
    finally:
        config._attn_implementation = before
