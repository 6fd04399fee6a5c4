"""Engines for log-probabilities of whole responses, which are read at every position and not at the
last alone.

What the first token of a response has for probability is known as soon as the prefix is run, so a
response of one token costs no forward at all. Knows networks and token ids, as `engine` does.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from pessimal.scoring.engine import (
    ATTENTION,
    Decoder,
    FullForward,
    Prefix,
    SharedPrefix,
    continue_prefix,
    exchanged_attention,
    run_prefix,
    whole_inputs,
)

if TYPE_CHECKING:
    from pessimal.rewards.language import SequenceHead


@dataclass(frozen=True)
class SharedStart:
    """Responses that begin alike: after each of the first tokens that they may share."""

    first: int
    """Ids before any response."""
    totals: Tensor
    """Log-probability (n,) float32 of the first 0, 1, … shared tokens."""
    following: Tensor
    """Log-probabilities (n, rows) float32 of every token behind these."""

    def after(self, shared: int) -> tuple[Tensor, Tensor]:
        """Log-probability of what is shared, and those (rows,) of all tokens behind it."""
        return self.totals[shared - self.first], self.following[shared - self.first]


class SharedSequence(SharedPrefix):
    """The prefix runs once; responses run their own tokens but the last against its keys and
    values."""

    sequence = True

    def __init__(self, decoder: Decoder, prefix: Prefix, beginning: SharedStart):
        super().__init__(decoder, prefix)
        self.beginning, self.head = beginning, _head(decoder)

    @classmethod
    def from_prefix(cls, decoder: Decoder, ids: Tensor) -> "SharedSequence":
        """Run the prefix ids (P,)."""
        prefix, states = run_prefix(decoder.backbone, ids)
        following = _head(decoder).distribution(states[-1:])
        return cls(decoder, prefix, SharedStart(prefix.length, following.new_zeros(1), following))

    def rewards(self, ids: Tensor, *, shared: int) -> Tensor:
        total, following = self.beginning.after(shared)
        rewards = total + following[ids[:, 0]]
        if ids.shape[1] == 1:
            return rewards
        return rewards + self.head.log_probabilities(
            self._states(ids[:, :-1], shared), ids[:, 1:]
        ).sum(dim=1)

    def distribution(self, ids: Tensor, *, shared: int) -> Tensor:
        """Log-probabilities (T, rows) float32 of every token in each place of one response `ids`
        (1, T)."""
        first = self.beginning.after(shared)[1].unsqueeze(0)
        if ids.shape[1] == 1:
            return first
        return torch.cat([first, self.head.distribution(self._states(ids[:, :-1], shared)[0])])

    def following(self, ids: Tensor, *, shared: int) -> Tensor:
        """Log-probabilities (n, rows) float32 of every token behind each of the beginnings `ids`
        (n, T), T from 0."""
        if not ids.shape[1]:
            return self.beginning.after(shared)[1].expand(len(ids), -1)
        return self.head.distribution(self._states(ids, shared)[:, -1])

    def continued(self, ids: Tensor) -> "SharedSequence":
        prefix, states = continue_prefix(self.decoder.backbone, self.prefix, ids)
        total, first = self.beginning.after(self.prefix.length)
        following = torch.cat([first.unsqueeze(0), self.head.distribution(states)])
        steps = following[:-1].gather(-1, ids.unsqueeze(-1))[:, 0]
        totals = total + torch.cat([steps.new_zeros(1), steps.cumsum(0)])
        beginning = SharedStart(self.prefix.length, totals, following)
        return SharedSequence(self.decoder, prefix, beginning)

    def _states(self, inputs: Tensor, shared: int) -> Tensor:
        """States (batch, T, hidden) at the positions of the ids `inputs` (batch, T)."""
        end = shared + inputs.shape[1]
        positions = torch.arange(shared, end, device=inputs.device).unsqueeze(0)
        with exchanged_attention(self.decoder.backbone, ATTENTION):
            return self.decoder.states(
                input_ids=inputs, position_ids=positions, shared_prefix=self._start(shared)
            )


class FullSequence(FullForward):
    """Every candidate's whole input through the backbone, but its last token."""

    sequence = True

    def __init__(self, decoder: Decoder, prefix: Tensor):
        super().__init__(decoder, prefix)
        self.head = _head(decoder)

    def whole_rewards(self, ids: Tensor, *, n_response: int) -> Tensor:
        states = self.decoder.states(input_ids=ids[:, :-1])[:, -n_response:]
        return self.head.log_probabilities(states, ids[:, -n_response:]).sum(dim=1)

    def distribution(self, ids: Tensor, *, shared: int) -> Tensor:
        """Log-probabilities (T, rows) float32 of every token in each place of one response `ids`
        (1, T)."""
        inputs = whole_inputs(self.prefix, ids, shared)[:, :-1]
        return self.head.distribution(self.decoder.states(input_ids=inputs)[0, -ids.shape[1] :])

    def following(self, ids: Tensor, *, shared: int) -> Tensor:
        """As of `SharedSequence`."""
        inputs = whole_inputs(self.prefix, ids, shared)
        return self.head.distribution(self.decoder.states(input_ids=inputs)[:, -1])


def _head(decoder: Decoder) -> "SequenceHead":
    """The head of a decoder whose head reads every position."""
    return cast("SequenceHead", decoder.head)
