"""Conversations as token ids: whole ones, and the chat frame, what stands before and after a response.

Knows a tokenizer's chat template. Does not know vocabularies or rewards.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pessimal.errors import FrameError
from pessimal.tables.score_table import storable

SENTINEL = "qzxjkvw"
# Different first and last characters, so that what they share is the template's and not theirs.
_FITTING = ("love", "Wisdom", "a", "9", "Kindness!", "truth?", "(evil)", "z Q")
_CHECKING = ("Music", "hope and peace", "7 stars", "it is good.")


@dataclass(frozen=True)
class Frame:
    """Token ids around the response slot: prefix | response | suffix, for one prompt.

    Decoders get it from the chat template, encoders from the pair [CLS] prompt [SEP] response [SEP].
    """

    prompt: str
    """The user turn."""
    prefix: tuple[int, ...]
    """Ids before the response, BOS included where the template writes one."""
    suffix: tuple[int, ...]
    """Ids after the response; the reward is read at the last of them (at the response's last where there are none)."""
    typed: bool = False
    """Whether the model marks prompt (0) and response (1) by token types, as BERT does."""

    def around(self, response: Sequence[int]) -> list[int]:
        """The whole input for one response."""
        return [*self.prefix, *response, *self.suffix]

    def inside(self, ids: Sequence[int]) -> list[int] | None:
        """The response's ids in a templated conversation, or None where it does not start and end like the frame."""
        end = len(ids) - len(self.suffix)
        fits = (
            end >= len(self.prefix)
            and tuple(ids[: len(self.prefix)]) == self.prefix
            and tuple(ids[end:]) == self.suffix
        )
        return list(ids[len(self.prefix) : end]) if fits else None


def takes_pairs(tokenizer) -> bool:
    """Whether conversations are pairs of texts: an encoder's tokenizer, with a separator and no chat template."""
    return not tokenizer.chat_template and tokenizer.sep_token is not None


def templated(
    tokenizer,
    prompt: str,
    responses: Sequence[str],
    *,
    double_bos: bool = False,
    closing: Sequence[int] = (),
) -> list[list[int]]:
    """Ids of whole conversations, as the tokenizer's own template makes them of the texts.

    `double_bos` tokenises the templated *string* with special tokens added again, as the published code of
    Christian et al. (2025) does. `closing` ids are what the model wants after it.
    """
    if takes_pairs(tokenizer):
        whole = tokenizer([prompt] * len(responses), list(responses), return_attention_mask=False)[
            "input_ids"
        ]
    else:
        conversations = [
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
            for response in responses
        ]
        if double_bos:
            texts = tokenizer.apply_chat_template(conversations, tokenize=False)
            whole = tokenizer(texts, add_special_tokens=True, return_attention_mask=False)["input_ids"]
        else:
            whole = tokenizer.apply_chat_template(conversations, tokenize=True, return_dict=False)
    return [[*ids, *closing] for ids in whole] if closing else whole


def assistant_opening(tokenizer) -> tuple[int, ...]:
    """The ids between the end of the user's turn and the response: what the frames of all prompts end with."""
    ends = [find_frame(tokenizer, prompt).prefix[::-1] for prompt in ("Why?", "Say it", "One of 2")]
    return tuple(_common_start(ends)[::-1])


def find_frame(tokenizer, prompt: str, *, double_bos: bool = False, closing: Sequence[int] = ()) -> Frame:
    """Find the ids before and after the response by templating samples, and check them on others.

    Raises FrameError where the template drops, changes or repeats a plain response, where text around the
    response tokenises differently from response to response, or where no conversation can be made at all.
    """
    pairs = takes_pairs(tokenizer)
    if pairs and double_bos:
        raise FrameError(
            "mode=paper doubles the token that begins a chat template; this model takes a pair of texts and has none. "
            "Type mode=text"
        )
    if not pairs:
        _check_written_once(tokenizer, prompt)
    options = {"double_bos": double_bos, "closing": closing}
    samples = templated(tokenizer, prompt, _FITTING, **options)
    prefix = _common_start(samples)
    suffix = _common_start([ids[len(prefix) :][::-1] for ids in samples])[::-1]
    typed = pairs and "token_type_ids" in tokenizer.model_input_names
    frame = Frame(prompt=prompt, prefix=tuple(prefix), suffix=tuple(suffix), typed=typed)
    for response, ids in zip(_CHECKING, templated(tokenizer, prompt, _CHECKING, **options), strict=True):
        inside = frame.inside(ids)
        if inside is None or _plain(tokenizer.decode(inside)) != _plain(response):
            raise FrameError(
                f"prefix + response + suffix does not equal the template's own ids for the response {response!r}: "
                f"the template gives {ids}, the frame has prefix {prefix} and suffix {suffix}. Text around the "
                "response is tokenised together with it; this template cannot be scanned by token id."
            )
    return frame


def _check_written_once(tokenizer, prompt: str) -> None:
    try:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}, {"role": "assistant", "content": SENTINEL}], tokenize=False
        )
    except Exception as error:
        raise FrameError(
            f"the chat template fails on a user turn followed by an assistant turn: {error}"
        ) from error
    if text.count(SENTINEL) != 1:
        raise FrameError(
            f"the chat template writes the response {text.count(SENTINEL)} times instead of once; rendered: {text!r}"
        )


def _common_start(sequences: list[list[int]]) -> list[int]:
    start = []
    for column in zip(*sequences, strict=False):
        if len(set(column)) > 1:
            break
        start.append(column[0])
    return start


def _plain(text: str) -> str:
    """Tokenizers change case and spaces; the letters must be the response's."""
    return "".join(text.split()).casefold()


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
