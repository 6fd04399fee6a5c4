"""Whole conversations as token ids, as the tokenizer's own template or pairing makes them of the texts.

Knows tokenizers. Does not know response slots: nothing is cut, so any template will do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pessimal.errors import FrameError
from pessimal.models.frame import takes_pairs
from pessimal.tables.kinds import storable


@dataclass(frozen=True)
class Turn:
    """One message of a conversation."""

    role: str
    """user, assistant or system."""
    content: str
    """Its text."""


Conversation = tuple[Turn, ...]
"""Its turns in order; the last is the response that is rewarded."""


@dataclass(frozen=True)
class Encoded:
    """One conversation, ready for a network."""

    ids: tuple[int, ...]
    types: tuple[int, ...] | None
    """Token types, for encoders that mark prompt (0) and response (1) by them."""


def encode(tokenizer, conversation: Sequence[Turn], *, closing: Sequence[int] = ()) -> Encoded:
    """The ids of one conversation; `closing` ids are what the model wants behind it.

    Raises FrameError where the template refuses the conversation, and where an encoder that takes one prompt and one
    response is given more.
    """
    messages = [{"role": t.role, "content": storable(t.content)} for t in conversation]
    if takes_pairs(tokenizer):
        if [message["role"] for message in messages] != ["user", "assistant"]:
            raise FrameError(
                f"this model takes one prompt and one response, and a conversation has the turns "
                f"{', '.join(message['role'] for message in messages)}. Leave out conversations of several turns: "
                "comparisons.single_turn=true"
            )
        prompt, response = (message["content"] for message in messages)
        encoded = tokenizer(prompt, response, return_token_type_ids=True)
        typed = "token_type_ids" in tokenizer.model_input_names
        return Encoded((*encoded["input_ids"], *closing), tuple(encoded["token_type_ids"]) if typed else None)
    try:
        ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    except Exception as error:
        roles = ", ".join(message["role"] for message in messages)
        raise FrameError(
            f"the chat template fails on a conversation with the turns {roles}: {error}"
        ) from error
    return Encoded((*ids, *closing), None)
