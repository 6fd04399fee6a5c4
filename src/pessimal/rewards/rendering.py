"""A chat template is a program that came with a checkpoint. Here alone it is run, within bounds.

Knows tokenizers' templates; does not know what is done with the texts.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pessimal.errors import FrameError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Messages = list[dict[str, str]]
"""Turns as chat templates take them."""

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
