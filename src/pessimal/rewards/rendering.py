"""A chat template is a program that came with a checkpoint. Here alone it is run, within bounds.

Knows tokenizers' templates; does not know what is done with the texts.
"""

import os
import resource
import select
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pessimal.errors import FrameError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Messages = list[dict[str, str]]
"""Turns as chat templates take them."""

SECONDS = 5.0
"""Of the trial of a template."""
MEMORY = 1 << 30
"""Bytes that the trial may take beyond what the process has."""
LENGTH = 100_000
"""Characters that a template may write around the turns of one conversation."""

_tried: set[tuple] = set()
"""Templates that were tried, each with the roles of the conversation that it was tried on."""


def rendered(
    tokenizer: "PreTrainedTokenizerBase",
    messages: Messages,
    *,
    tokenize: bool = False,
    **options: Any,
) -> Any:
    """A conversation as the text that the chat template makes of it, or as its ids (`tokenize`).

    The first of each order of roles is tried in a process of its own, which is killed where it
    takes too long. A template that behaves until a certain text comes is not caught.

    Args:
        options: of the template, such as `add_generation_prompt`.

    Raises:
        FrameError: the template fails, does not end, or writes or takes too much.
    """
    roles = tuple(message["role"] for message in messages)
    trial = (repr(tokenizer.chat_template), roles, repr(options))
    if trial not in _tried:
        _try(tokenizer, messages, options)
        _tried.add(trial)
    try:
        text: Any = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    except Exception as error:
        raise FrameError(
            f"the chat template fails on a conversation with the turns {', '.join(roles)}: {error}"
        ) from error
    own = sum(len(message["content"]) for message in messages)
    if len(text) > LENGTH + 10 * own:
        raise FrameError(
            f"the chat template writes {len(text):,} characters for turns of {own:,}: at most "
            f"{LENGTH:,} around them are read. Mend tokenizer.chat_template"
        )
    return ids_of(tokenizer, [text])[0] if tokenize else text


def ids_of(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Ids of texts in which a template has written the special tokens."""
    return tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False)[
        "input_ids"
    ]


def _try(tokenizer: Any, messages: Messages, options: dict[str, Any]) -> None:
    """FrameError where rendering does not end, or takes too much memory. In a fork, as no limit
    within a process holds for one thread alone."""
    answer, question = os.pipe()
    child = os.fork()
    if child == 0:
        status = b"k"
        try:
            with open("/proc/self/statm", "rb") as file:
                size = int(file.read().split()[0]) * resource.getpagesize() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        except (OSError, ValueError):  # a system without /proc, or a lower limit already
            pass
        try:
            tokenizer.apply_chat_template(messages, tokenize=False, **options)
        except MemoryError:
            status = b"m"
        except BaseException:  # this process says what is wrong
            pass
        finally:
            os.write(question, status)
            os._exit(0)
    try:
        os.close(question)
        ready, _, _ = select.select([answer], [], [], SECONDS)
        status = os.read(answer, 1) if ready else b""
    finally:
        os.close(answer)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if status != b"k":
        memory = f"takes more than {MEMORY >> 30} GiB of memory"
        raise FrameError(
            "the chat template was stopped: rendering one conversation "
            f"{memory if status == b'm' else f'did not end within {SECONDS:.0f} s'}. It is a "
            "program that came with the checkpoint: mend tokenizer.chat_template, or use another"
        )
