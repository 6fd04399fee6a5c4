"""What is asked of a language model, and what comes back.

Knows no prompt, no server and no cache.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

Message = Mapping[str, str]
"""role (system or user) and content."""


@dataclass(frozen=True)
class Question:
    """One conversation that a JSON object of a known shape is to answer."""

    messages: tuple[Message, ...]
    """The conversation so far."""
    schema: Mapping[str, Any]
    """JSON schema of the answer: objects, arrays, strings, booleans and enums (`pessimal.explain.chat.schema`)."""
    name: str
    """Of the schema, and of the kind of question in counts: identify, rewrite, judge."""
    seed: int = 0
    """Of the sampling; another seed is another question."""


@dataclass(frozen=True)
class Reply:
    """What a model wrote, before anybody looked whether it is of use."""

    text: str | None = None
    """The message's text."""
    refusal: str | None = None
    """Its refusal, where the server marks one."""
    finish_reason: str | None = None
    """Why it ended: stop, length (cut off), content_filter."""
    prompt_tokens: int | None = None
    """Tokens read, as the server counted them; None where it does not say."""
    completion_tokens: int | None = None
    """Tokens written, as the server counted them."""
    failure: str | None = None
    """Why there is no reply at all. Such a one is never kept."""


class Came(Enum):
    """What came of a question."""

    answered = "answered"
    """An object of the asked shape."""
    refused = "refused"
    """The model, or a filter in front of it, refused."""
    malformed = "malformed"
    """There were replies, none of them of the asked shape."""
    unanswered = "unanswered"
    """No reply: the endpoint failed, or does not take this request."""


@dataclass(frozen=True)
class Answer:
    """What came of a question, after all retries."""

    came: Came
    content: Any = None
    """The object; None unless answered."""
    note: str = ""
    """Why there is none."""


Keep = Callable[[int, Reply], None]
"""Takes the index of a question and its reply."""


class Transport(Protocol):
    """Carries questions to one language model."""

    address: str
    """Where the model is, as messages call it."""

    def provenance(self) -> dict:
        """What decides its replies, as JSON: model, address and sampling options. Never a key."""

    def send(self, questions: Sequence[Question], keep: Keep) -> None:
        """Ask all, in any order and at once where it can; call `keep(index, reply)` as soon as each reply is there, and
        for each at most once. Raises ConfigError for what no request gets past, and WorkError after too many failures;
        both after what has arrived was kept."""


def canonical(value: Any) -> str:
    """JSON in which the order of keys, and lone surrogates, make no difference."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))


def digest_of(value: Any) -> str:
    """sha256 of a value's canonical JSON, 64 hexadecimal digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def sendable(text: str) -> str:
    """The text as it can be sent: lone surrogates, which UTF-8 has no bytes for, become U+FFFD; as long as before."""
    return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
