"""Conversations as texts. A chat template is a program that came with a checkpoint: here alone it
is run, within bounds.

Knows tokenizers' templates; does not know what is done with the texts.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from threading import RLock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from pessimal.conversation import Conversation, Prompt, Turn, plain_text, turns_of
from pessimal.errors import ConfigError, FrameError, did_you_mean
from pessimal.texts import storable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Messages = list[dict[str, str]]

CLOCK = "strftime_now"
"""Name by which a template asks for today's date (transformers' function)."""
DAY = "2024-07-26"
"""Today's date for every template that asks for it: the day that Llama 3.x's templates write by
themselves."""
ONE_TEXT = "{{ messages | map(attribute='content') | join(' ') }}"
"""Template of models that were trained on prompt and response as one text."""
_CLOCK_LOCK = RLock()
"""Held while the clock of templates stands, which is one for all threads."""
LENGTH = 100_000
"""Characters that a template may write around the turns of one conversation."""


def rendered(
    tokenizer: "PreTrainedTokenizerBase",
    messages: Messages,
    *,
    tokenize: bool = False,
    **options: Any,
) -> Any:
    """A conversation as the text that the chat template makes of it, or as its ids (`tokenize`).

    It runs in jinja's sandbox, as transformers has it, which ends no endless loop.

    Args:
        options: of the template, such as `add_generation_prompt`.

    Raises:
        FrameError: the template fails, or writes too much.
    """
    roles = tuple(message["role"] for message in messages)
    variables = template_variables(tokenizer)
    day = variables.pop(CLOCK, None)
    options = variables | options | {"tokenize": False}
    try:
        with contextlib.nullcontext() if day is None else _clock_at(day):
            text: Any = tokenizer.apply_chat_template(messages, **options)
    except Exception as error:
        raise FrameError(f"the chat template fails on turns {', '.join(roles)}: {error}") from error
    size = sum(len(message["content"]) for message in messages)
    if len(text) > LENGTH + 10 * size:
        raise FrameError(f"the chat template writes {len(text):,} characters for turns of {size:,}")
    return ids_of(tokenizer, [text])[0] if tokenize else text


def set_template_options(
    tokenizer: "PreTrainedTokenizerBase", options: Mapping[str, Any], *, name: str
) -> None:
    """Give variables to a tokenizer's chat template wherever it is rendered from now on.

    Args:
        options: values by the names that the template reads; `strftime_now` is a day, 2026-11-26.
        name: of the model, for errors.

    Raises:
        ConfigError: the template does not name such a variable, or the day is none.
    """
    names = set(re.findall(r"\w+", _source(tokenizer))) - {"messages", "add_generation_prompt"}
    for option in options:
        if option not in names:
            guess = did_you_mean(option, names)
            raise ConfigError(f"the chat template of {name!r} reads no variable {option!r}.{guess}")
    try:
        datetime.fromisoformat(str(options.get(CLOCK, DAY)))
    except ValueError as error:
        day = options[CLOCK]
        raise ConfigError(f"template_options.{CLOCK}={day!r}: write a day as {DAY}") from error
    setattr(tokenizer, "template_options", dict(options))  # noqa: B010 (no field of its class)


def template_variables(tokenizer: "PreTrainedTokenizerBase") -> dict[str, Any]:
    """Variables that the chat template reads beside the turns, by name: options that were set, and
    the day where it asks for today's date. Empty for most.

    A template that names the clock counts as reading it, since many ask for the date only where a
    conversation has no system turn.
    """
    day = {CLOCK: DAY} if CLOCK in _source(tokenizer) else {}
    return day | getattr(tokenizer, "template_options", {})


def _source(tokenizer: "PreTrainedTokenizerBase") -> str:
    """The text of a tokenizer's chat template, of several all."""
    templates: Any = tokenizer.chat_template or ""
    return templates if isinstance(templates, str) else "\n".join(templates.values())


@contextlib.contextmanager
def _clock_at(day: object) -> Iterator[None]:
    """While this lasts, it is this day for templates: transformers gives their clock as a function
    of its own, and lets no other take its place."""
    from transformers.utils import chat_template_utils

    moment = datetime.fromisoformat(str(day))
    clock = SimpleNamespace(now=lambda *_: moment)
    with _CLOCK_LOCK, mock.patch.object(chat_template_utils, "datetime", clock):
        yield


def ids_of(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Ids of texts that a template has written, special tokens included; of an encoder with those
    that its tokenizer puts around a text, where the template does not write them."""
    bare: list[list[int]] = tokenizer(
        list(texts), add_special_tokens=False, return_attention_mask=False
    )["input_ids"]
    encoder = tokenizer.cls_token is not None and tokenizer.sep_token is not None
    if not (encoder or tokenizer.chat_template == ONE_TEXT):
        return bare
    start, end = special_around(tokenizer)
    if encoder and not end:  # a decoder that has these tokens for something else
        return bare
    inputs = [ids if ids[: len(start)] == start else [*start, *ids] for ids in bare]
    return [ids if ids[len(ids) - len(end) :] == end else [*ids, *end] for ids in inputs]


def special_around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Special ids that a tokenizer puts ahead of a text and behind it. FrameError where they cannot
    be told from the text's."""
    bare, surrounded = (
        tokenizer("a", add_special_tokens=special)["input_ids"] for special in (False, True)
    )
    for start in range(len(surrounded) - len(bare) + 1):
        if surrounded[start : start + len(bare)] == bare:
            return surrounded[:start], surrounded[start + len(bare) :]
    reason = f"the tokenizer makes {bare} of 'a', and {surrounded} with special tokens"
    raise FrameError(f"{reason}: type model.chat=true where there is a chat template")


def messages_of(conversation: Sequence[Turn]) -> list[dict[str, str]]:
    """The turns as chat templates take them."""
    return [{"role": turn.role, "content": storable(turn.content)} for turn in conversation]


def response_messages(prompt: Prompt, response: str) -> list[dict[str, str]]:
    """The messages of a prompt and the response to it."""
    return messages_of((*turns_of(prompt), Turn("assistant", response)))


PAIR = "this model takes one prompt and one response"
"""The reason why no other conversations are read."""


def one_text(prompt: Prompt, *, takes: str = PAIR) -> str:
    """A prompt of a user's turn alone. FrameError for another: it has more than the model
    `takes`."""
    if isinstance(prompt, str):
        return prompt
    roles = ", ".join(turn.role for turn in prompt)
    advice = "Give one turn; of comparisons type comparisons.single_turn=true"
    raise FrameError(f"{takes}, got the turns {roles}, assistant. {advice}")


def prompt_and_response(conversation: Conversation, *, takes: str = PAIR) -> tuple[str, str]:
    """The texts of a conversation of two turns. FrameError as `one_text`."""
    *before, response = conversation
    alone = before[0].content if [turn.role for turn in before] == ["user"] else tuple(before)
    return storable(one_text(alone, takes=takes)), storable(response.content)


def plain_prompt(conversation: Conversation) -> str:
    """Text before the response: the user's text; of several turns all, each behind its role."""
    *before, _ = conversation
    return storable(plain_text(before[0].content if len(before) == 1 else tuple(before)))
