"""PairRM (Jiang, Ren and Lin 2023): an encoder that reads a prompt and two responses, and says by
how much one is better.

The reward of a response is that difference to one fixed opponent, averaged over both orders. Knows
the published format of a prompt and one response to it; conversations of several turns are refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import ClassVar

import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    DebertaV2Config,
    DebertaV2Model,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from pessimal.conversation import Conversation, Prompt
from pessimal.errors import ModelError
from pessimal.rewards.base import NetworkReward, Part
from pessimal.rewards.checkpoint_files import Checkpoint
from pessimal.rewards.formats import doubled_pair
from pessimal.rewards.frame import PLAIN_WORDS, Encoded, Frame, find_frame
from pessimal.rewards.network import RewardNetwork, set_output
from pessimal.rewards.rendering import one_text, prompt_and_response
from pessimal.rewards.spec import Dtype
from pessimal.texts import storable

_FORMAT = ("<|source|>", "<|candidate1|>", "<|candidate2|>")
"""What stands before the prompt and the two responses."""


class PairRMNetwork(PreTrainedModel):
    """The encoder, and a network that reads the prompt's marker together with a response's."""

    config_class = DebertaV2Config
    base_model_prefix = "pretrained_model"

    def __init__(self, config: DebertaV2Config):
        super().__init__(config)
        hidden = config.hidden_size
        self.pretrained_model = DebertaV2Model(config)
        # Numbered as in the checkpoint, where 0 and 3 are dropouts.
        self.head_layer = nn.Sequential(
            nn.Identity(),
            nn.Linear(2 * hidden, hidden),
            nn.Tanh(),
            nn.Identity(),
            nn.Linear(hidden, getattr(config, "n_tasks", 1)),
        )
        self.post_init()

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_
    ) -> SequenceClassifierOutput:
        """How much better the first response is than the second, as `logits` (batch, 1)."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        states = self.pretrained_model(**inputs).last_hidden_state
        names = ("source", "cand1", "cand2")
        source, first, second = (self._at(states, input_ids, name) for name in names)
        better = self.head_layer(torch.cat([source, first], dim=-1))
        worse = self.head_layer(torch.cat([source, second], dim=-1))
        return SequenceClassifierOutput(logits=(better - worse).mean(dim=-1, keepdim=True))

    def _at(self, states: Tensor, input_ids: Tensor, name: str) -> Tensor:
        """States (batch, hidden) where a marker stands first; a response that holds one itself
        moves it."""
        marked = input_ids == getattr(self.config, f"{name}_prefix_id")
        return states[torch.arange(len(states), device=states.device), marked.int().argmax(dim=1)]


TAKES = "PairRM compares two responses to one prompt"


@dataclass(frozen=True)
class Compared:
    """A prompt, a response and its opponent, in one order."""

    round_trips: ClassVar[bool] = True

    tokenizer: PreTrainedTokenizerBase
    opponent: str
    swapped: bool = False
    """Whether the response comes second."""

    def ids(
        self, prompt: Prompt, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        """The whole input for each response."""
        if double_bos:
            raise doubled_pair()
        text = one_text(prompt, takes=TAKES)
        return [self._ids(text, storable(response)) for response in responses]

    def encode(self, conversation: Conversation) -> Encoded:
        """FrameError for other conversations than a prompt and a response."""
        return Encoded(tuple(self._ids(*prompt_and_response(conversation, takes=TAKES))), None)

    def frame(self, prompt: Prompt, *, double_bos: bool = False) -> Frame:
        """What stands before and after the response, as it does around plain words."""
        make = partial(self.ids, prompt, double_bos=double_bos)
        return find_frame(make, self.tokenizer, prompt, words=PLAIN_WORDS)

    def _ids(self, prompt: str, response: str) -> list[int]:
        both = (self.opponent, response) if self.swapped else (response, self.opponent)
        texts = [marker + text for marker, text in zip(_FORMAT, (prompt, *both), strict=True)]
        return [token for ids in self.tokenizer(texts)["input_ids"] for token in ids]


@dataclass(frozen=True)
class PairRM(NetworkReward):
    """PairRM on this machine's disk, and the opponent that everything is compared with."""

    def network(self, dtype: Dtype | None = None, which: int = 0) -> RewardNetwork:
        precision = getattr(torch, (dtype or self.spec.dtype).value)
        network = PairRMNetwork.from_pretrained(self.folder, dtype=precision, use_safetensors=True)
        return set_output(network.requires_grad_(False), 0)


def open_pairrm(checkpoint: Checkpoint, opponent: str) -> PairRM:
    """PairRM in a checkpoint, which compares everything with the opponent. ModelError where the
    tokenizer lacks a marker."""
    spec, tokenizer = checkpoint.spec, checkpoint.tokenizer
    config = AutoConfig.from_pretrained(checkpoint.folder)
    for marker, name in zip(_FORMAT, ("source", "cand1", "cand2"), strict=True):
        if tokenizer.convert_tokens_to_ids(marker) != getattr(config, f"{name}_prefix_id", None):
            problem = f"the id of {marker!r} is not {name}_prefix_id of config.json"
            raise ModelError(f"{spec.name}: {problem}: take both from one repository")
    compared = Compared(tokenizer, opponent)
    return PairRM(
        embedding_rows=config.vocab_size,
        parts=(Part(0.5, compared), Part(-0.5, replace(compared, swapped=True))),
        template_digest=sha256(repr(_FORMAT).encode()).hexdigest(),
        **checkpoint.fields(repr(opponent)),
    )
