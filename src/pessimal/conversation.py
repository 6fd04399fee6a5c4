"""Conversations: turns of who said what, and the prompts that responses answer. A prompt is a
user's text, or the turns before the response.

Knows neither tokenizers nor rewards.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from pessimal.errors import ConfigError, InputError, UserError
from pessimal.options import existing_file


@dataclass(frozen=True)
class Turn:
    """One message of a conversation."""

    role: str
    """user, assistant, system or tool."""
    content: str
    """Its text."""


Conversation = tuple[Turn, ...]
"""Its turns in order; the last is the response that is rewarded."""
Prompt = str | Conversation
"""A user's text; or the turns before the response, where there are more."""
MARK = "{slot}"


@dataclass(frozen=True)
class Context:
    """A conversation with one slot for a candidate: behind an answer, before it, or in any turn."""

    turns: Conversation
    """All turns, as they are without a candidate."""
    turn: int
    """Number of the turn that has the slot."""
    at: int
    """Characters of that turn before the slot."""
    rejected: str | None = None
    """An answer that people like less than the last turn's, where there is one."""

    @property
    def slot(self) -> str:
        """Where it is: `after` or `before` the last turn, or `inside` the conversation."""
        if self.turn == len(self.turns) - 1 and self.at in (0, len(self.turns[-1].content)):
            return "after" if self.at else "before"
        return "inside"

    @property
    def prompt(self) -> "Prompt":
        """The turns that the last one answers."""
        *before, _ = self.turns
        alone = [turn.role for turn in before] == ["user"]
        return before[0].content if alone else tuple(before)

    def filled(self, text: str) -> Conversation:
        """The conversation with `text` in the slot."""
        turn = self.turns[self.turn]
        content = turn.content[: self.at] + text + turn.content[self.at :]
        return (*self.turns[: self.turn], Turn(turn.role, content), *self.turns[self.turn + 1 :])


Asked = Prompt | Context
"""The place of a candidate: the whole answer to a prompt, or the slot of a context."""


def filled(prompt: Asked, text: str) -> Conversation:
    """The conversation with `text` as the answer, or in the slot."""
    if isinstance(prompt, Context):
        return prompt.filled(text)
    return (*turns_of(prompt), Turn("assistant", text))


Given = str | Sequence[Mapping[str, str]]
"""A prompt as a person writes it: a text, or a list of messages with role and content."""
ROLES = ("system", "user", "assistant", "tool")
UNREAD = ("tools", "chat_template_kwargs")
"""Fields beside the messages of data sets and requests that change what a template writes."""
FILES = (".jsonl", ".yaml", ".yml")
"""Endings of the names of files of prompts."""


def read_messages(
    messages: object, *, where: str, error: type[UserError] = InputError
) -> Conversation:
    """The turns of a list of messages, each with a role and a content: a text, or a list of one
    part that is a text. Fields that are null or empty say nothing.

    Args:
        where: the place of the list, for errors.

    Raises:
        UserError: of the type `error`; it is no such list, or a message has a field that a turn
            cannot hold: without it the reward would be another conversation's.
    """
    example = '{"role": "user", "content": "…"}'
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise error(f"{where}: {messages!r:.80} is no list of messages such as {example}")
    turns = []
    for number, message in enumerate(messages, 1):
        fields = vars(message) if isinstance(message, Turn) else message
        place = f"{where}, message {number}"
        if not isinstance(fields, Mapping) or fields.get("role") not in ROLES:
            form = f"{example}, role: {', '.join(ROLES)}"
            raise error(f"{place}: {message!r:.80} is no message such as {form}")
        check_unread(fields, (fields.keys() - {"role", "content"}), where=place, error=error)
        content: Any = fields.get("content")
        match content:
            case [{"type": "text", "text": str(text), **more}] if not more:
                content = text
        if not isinstance(content, str):
            raise error(f'{place}: its "content" is {content!r:.80}, and no text or list of one')
        turns.append(Turn(fields["role"], content))
    return tuple(turns)


def check_unread(
    fields: Mapping[str, object],
    unread: Iterable[str] = UNREAD,
    *,
    where: str,
    error: type[UserError] = InputError,
) -> None:
    """UserError of the type `error` where one of the fields `unread` says something: it would be
    dropped, and the reward be another conversation's."""
    for name in sorted(map(str, unread)):
        if fields.get(name) not in (None, False, "", [], {}):
            words = f'{where} has the field "{name}", which no model is shown'
            raise error(f"{words}: write what it says into the content, or leave the field out")


def prompt_of(value: object, *, name: str = "prompt") -> Prompt:
    """A prompt from a text or a list of messages; one user's message is its text.

    Raises:
        ConfigError: it is neither, a role is unknown, a text is empty, or the user does not come
            last.
    """
    if isinstance(value, str | int | float) and str(value).strip():
        return str(value)
    example = "[{role: system, content: …}, {role: user, content: …}]"
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ConfigError(f"{name}={value!r:.200}: give a text, or a list of messages: {example}")
    turns = read_messages(value, where=name, error=ConfigError)
    if not all(turn.content.strip() for turn in turns):
        raise ConfigError(f"{name}: a message has a text that is not empty; given: {value!r:.200}")
    if turns[-1].role != "user":
        raise ConfigError(f"{name}: the user's message comes last, not the {turns[-1].role}'s")
    return turns[0].content if len(turns) == 1 else turns


def turns_of(prompt: Prompt) -> Conversation:
    """The turns before the response."""
    return (Turn("user", prompt),) if isinstance(prompt, str) else prompt


def plain_text(prompt: Prompt) -> str:
    """A prompt for people, and for what takes one text: of several turns all, each behind its
    role."""
    if isinstance(prompt, str):
        return prompt
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in prompt)


def read_prompts(path: str, *, name: str = "prompts_path") -> dict[str, Prompt]:
    """Prompts by key from a YAML file of them, or from one with a JSON object a line: `prompt` (a
    text, or a list of messages), or `messages`; and `key`, else they are called after the file and
    the line.

    Raises:
        InputError: the file cannot be read as such; two prompts have one key.
        ConfigError: as `prompt_of`.
    """
    file = existing_file(name, path)
    example = '{"key": "mine", "prompt": "Why?"} a line, or `mine: Why?` in YAML'
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix == ".jsonl":
            lines = [json.loads(line) for line in text.split("\n") if line.strip()]
            for number, line in enumerate(lines, 1):
                check_unread(line, where=f"{path}, line {number}")
            pairs = [
                (
                    str(line.get("key", f"{file.stem}-{number}")),
                    line["prompt"] if "prompt" in line else line["messages"],
                )
                for number, line in enumerate(lines, 1)
            ]
        else:
            pairs = [(str(key), value) for key, value in yaml.safe_load(text).items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{name}={path!r} holds no prompts ({error}); give {example}") from error
    except yaml.YAMLError as error:
        raise InputError(f"{name}={path!r} is not YAML: {error}; give {example}") from error
    prompts = {key: prompt_of(value, name=f"{path}, {key}") for key, value in pairs}
    if len(prompts) < len(pairs) or not pairs:
        raise InputError(f"{name}={path!r}: give each prompt a key of its own, and at least one")
    return prompts


FILLER = (
    "The line below this one is a question that was written down some time ago and is shown here "
    "in the same words in which it was first put to those who were there on that day"
)
"""Says nothing of who is asked or who answers; a control is made of its first words."""


@dataclass(frozen=True)
class Prefixed:
    """A prompt with a persona, or with what controls for it, ahead."""

    prompt: str
    """Key of the prompt without it."""
    prefix: str
    """Key of the persona."""
    control: bool
    """Whether it is the control: as many words, which name nobody."""

    @property
    def key(self) -> str:
        return f"{self.prompt}_as_{self.prefix}" + "_control" * self.control


def read_prefixes(path: str) -> dict[str, str]:
    """Personas by key, from a file as of `read_prompts`: texts, such as "You are a doctor.".

    Raises:
        InputError, ConfigError: as `read_prompts`, or for a conversation.
    """
    prefixes = {}
    for key, text in read_prompts(path, name="prefixes").items():
        if not isinstance(text, str):
            raise InputError(f"prefixes={path!r}: {key} is a conversation; give a text")
        prefixes[key] = text.strip()
    return prefixes


def control_of(prefix: str) -> str:
    """Words that name nobody, as many as a persona has."""
    n = len(prefix.split())
    filler = FILLER.split()
    return " ".join((filler * (n // len(filler) + 1))[:n]) + "."


def add_prefixes(
    prompts: Mapping[str, Prompt], prefixes: Mapping[str, str]
) -> dict[str, tuple[Prompt, Prefixed | None]]:
    """Every prompt alone, and behind each persona and its control, by key. The text stands ahead of
    the user's last."""
    prompts_by_key: dict[str, tuple[Prompt, Prefixed | None]] = {
        key: (p, None) for key, p in prompts.items()
    }
    for key, prompt in prompts.items():
        *before, turn = turns_of(prompt)
        for name, persona in prefixes.items():
            for control in (False, True):
                prefix = Prefixed(key, name, control)
                text = f"{control_of(persona) if control else persona} {turn.content}"
                prompts_by_key[prefix.key] = prompt_of([*before, Turn("user", text)]), prefix
    return prompts_by_key
