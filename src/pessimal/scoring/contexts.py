"""Real answers with a slot for one candidate more: from a file, or from comparisons.

Knows files and conversations. Does not know what is put into the slot.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from pessimal.conversation import MARK, Context, Conversation, Turn, check_unread, read_messages
from pessimal.errors import ConfigError, InputError
from pessimal.options import existing_file
from pessimal.tables.comparisons import Comparison, from_row
from pessimal.texts import storable

EXPECTED = (
    'a row has "messages" (role and content each, the answer last, or {slot} once in one of them), '
    'or "prompt" and "answer" (and maybe "rejected"), or is a comparison as explain reads them'
)


def comparison_context(comparison: Comparison, slot: str) -> Context:
    """The preferred answer of a comparison, or the first where neither is preferred, which then
    has no rejected one."""
    index, preferred = comparison.preferred or 0, comparison.preferred is not None
    turns = comparison.conversation(comparison.responses[index])
    return _context(turns, slot, comparison.responses[1 - index] if preferred else None)


def read_contexts(file: Path, slot: str | None) -> dict[str, Context]:
    """Contexts by key, of a file with a JSON object a line.

    Args:
        slot: `after` or `before` the answer; None where the file has marks.

    Raises:
        InputError: the file cannot be read as such, or a key stands there twice.
    """
    contexts: dict[str, Context] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        where = f"contexts={str(file)!r}, line {number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} is not JSON ({error}); {EXPECTED}") from error
        key = str(row.get("key", f"{file.stem}-{number}")) if isinstance(row, Mapping) else ""
        if key in contexts:
            raise InputError(f"{where}: the key {key!r} stands there twice; each row its own")
        contexts[key] = read_context(row, slot, where, key)
    if not contexts:
        raise InputError(f"contexts={str(file)!r} holds nothing; {EXPECTED}")
    return contexts


def find_contexts(path: str | Path, slot: str | None) -> dict[str, Context]:
    """`read_contexts` of a file that nothing has looked for yet. InputError where there is none."""
    return read_contexts(existing_file("contexts", str(path)), slot)


def sample(contexts: Mapping[str, Context], n: int | None, *, seed: int) -> dict[str, Context]:
    """`n` of them at random, in their order; all where there are no more."""
    keys = list(contexts)
    order = np.random.default_rng(seed).permutation(len(keys))[:n]
    return {keys[i]: contexts[keys[i]] for i in sorted(order.tolist())}


def halves(contexts: Mapping[str, Context]) -> tuple[dict[str, Context], dict[str, Context]]:
    """Every other one, and those between them."""
    keys = list(contexts)
    first, second = ({key: contexts[key] for key in some} for some in (keys[::2], keys[1::2]))
    return first, second


def check_contexts(contexts: object, slot: str | None, *prompts: object) -> None:
    """ConfigError where contexts and what names prompts are both given, or a slot that is none."""
    if contexts is not None and any(prompt is not None for prompt in prompts):
        raise ConfigError("contexts are whole conversations: leave out prompts, tasks and prefixes")
    if slot not in (None, "after", "before") or (slot and contexts is None):
        raise ConfigError(f"slot={slot!r}: 'after' or 'before' the answers of contexts=FILE")


def read_context(row: object, slot: str | None, where: str, key: str = "") -> Context:
    """The context that a row of such a file is. InputError where it is none."""
    values = row if isinstance(row, Mapping) else {}
    check_unread(values, where=where)
    rejected = values.get("rejected")
    if "messages" in values or "answer" in values:
        messages = values.get("messages")
        if messages is None:
            before, answer = values.get("prompt"), values["answer"]
            before = [{"role": "user", "content": before}] if isinstance(before, str) else before
            messages = [*(before or []), {"role": "assistant", "content": answer}]
        if rejected is not None and not isinstance(rejected, str):
            raise InputError(f'{where}: "rejected" is a text; {EXPECTED}')
        return _context(_turns(messages, where), slot, rejected, where)
    return comparison_context(from_row(row, where=where, key=key), _placed(slot, where))


def _turns(messages: object, where: str) -> Conversation:
    turns = read_messages(messages, where=where)
    if len(turns) < 2 or turns[-1].role != "assistant" or not turns[-1].content:
        raise InputError(f"{where} does not end in an answer of the assistant's; {EXPECTED}")
    return tuple(replace(turn, content=storable(turn.content)) for turn in turns)


def _context(
    turns: Conversation, slot: str | None, rejected: str | None, where: str = "a comparison"
) -> Context:
    if slot is not None:
        at = len(turns[-1].content) if slot == "after" else 0
        return Context(turns, len(turns) - 1, at, rejected)
    marked = [
        (turn, message.content.count(MARK))
        for turn, message in enumerate(turns)
        if MARK in message.content
    ]
    if len(marked) != 1 or marked[0][1] != 1:
        _placed(None, where)
    turn = marked[0][0]
    at = turns[turn].content.index(MARK)
    content = turns[turn].content.replace(MARK, "")
    whole = (*turns[:turn], Turn(turns[turn].role, content), *turns[turn + 1 :])
    return Context(whole, turn, at, rejected)


def _placed(slot: str | None, where: str) -> str:
    """The slot. InputError where none was given, and the row has not one mark."""
    if slot is None:
        raise InputError(
            f"{where} does not have {MARK} once: write it where candidates stand, or type "
            "slot=after"
        )
    return slot
