"""Conversations that end where a reward is read: at a step of a process reward model, or before
what the model's own class takes for padding.

Knows a chat template. Does not know networks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pessimal.conversation import Conversation, Prompt
from pessimal.errors import FrameError, ModelError
from pessimal.rewards.frame import Encoded, Templated

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PLAIN = "a"
"""A response without steps, to see what else is written."""


@dataclass(frozen=True)
class Unpadded(Templated):
    """Conversations without the pad tokens that the template ends in: a class that reads the last
    token but these never sees them."""

    pad: int | None = None

    def ids(
        self, prompt: Prompt, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        """The whole input for each response."""
        inputs = super().ids(prompt, responses, double_bos=double_bos)
        return [self._cut(ids) for ids in inputs]

    def encode(self, conversation: Conversation) -> Encoded:
        """The ids of a conversation of several turns."""
        encoded = super().encode(conversation)
        return replace(encoded, ids=tuple(self._cut(list(encoded.ids))))

    def _cut(self, ids: list[int]) -> list[int]:
        end = next((end for end in range(len(ids), 0, -1) if ids[end - 1] != self.pad), len(ids))
        return ids[:end]


@dataclass(frozen=True)
class Stepped(Templated):
    """Conversations whose response is written in steps, up to the token that closes the last."""

    closes: str = ""
    """That token, as text."""

    @cached_property
    def step(self) -> int:
        """Its id."""
        return step_id(self.tokenizer, self.closes)

    def ids(
        self, prompt: Prompt, responses: Sequence[str], *, double_bos: bool = False
    ) -> list[list[int]]:
        """The whole input for each response. FrameError where the tokenizer ties a step's token to
        what stands before it."""
        written = [self._written(response) for response in responses]
        around, *inputs = super().ids(prompt, [PLAIN, *written], double_bos=double_bos)
        others = around.count(self.step)
        return [self._cut(ids, text, others) for ids, text in zip(inputs, written, strict=True)]

    def encode(self, conversation: Conversation) -> Encoded:
        """The ids of a conversation; `n_response` counts them from its first step's end."""
        *before, last = conversation
        written = replace(last, content=self._written(last.content))
        others = super().encode((*before, replace(last, content=PLAIN))).ids.count(self.step)
        ids = self._cut(list(super().encode((*before, written)).ids), written.content, others)
        ends = [place for place, token in enumerate(ids) if token == self.step]
        first = ends[-written.content.count(self.closes) :][0]
        return Encoded(tuple(ids), None, len(ids) - first)

    def _written(self, response: str) -> str:
        """The response's paragraphs, each closed by the token; one that holds it is written in
        steps already."""
        if self.closes in response:
            return response if response.endswith(self.closes) else response + self.closes
        steps = [step for step in response.split("\n\n") if step] or [response]
        return "".join(step + self.closes for step in steps)

    @cached_property
    def _behind(self) -> int:
        """How often the template itself writes the token behind the response."""
        return Templated(self.tokenizer).frame("Why?").suffix.count(self.step)

    def _cut(self, ids: list[int], written: str, others: int) -> list[int]:
        """The ids up to the last step's end, of which `others` are no step's."""
        ends = [place for place, token in enumerate(ids) if token == self.step]
        if len(ends) != others + written.count(self.closes):
            raise FrameError(
                f"the tokenizer ties the token {self.closes!r} that closes a step to what stands "
                f"before it, in {written[-40:]!r}: give an added token, model.step_token=TOKEN"
            )
        return ids[: ends[-1 - self._behind] + 1]


def step_id(tokenizer: "PreTrainedTokenizerBase", token: str) -> int:
    """The id of the token that closes a step. ModelError where the tokenizer has none such."""
    from pessimal.rewards.language import token_ids  # which loads transformers

    ids = token_ids(tokenizer, token)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        raise ModelError(
            f"model.step_token={token!r} is {len(ids)} tokens of this tokenizer ({ids}), and one "
            "is read. Qwen's process reward models have <extra_0>; added tokens here: "
            f"{', '.join(list(tokenizer.get_added_vocab())[:8]) or 'none'}"
        )
    return ids[0]
