"""The formats in which others write comparisons: from their rows to ours.

Knows what the fields of a row mean. Does not know files, nor which comparisons are fit to be explained.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pessimal.errors import InputError
from pessimal.explain.comparison import Comparison, Turn
from pessimal.tables.kinds import storable

EXPECTED = (
    'a row has "prompt" and "responses" (two texts; "preferred" 0 or 1 and "key" may be added), or TRL\'s "prompt", '
    '"chosen" and "rejected" as texts or as lists of messages'
)
_ROLES = ("system", "user", "assistant")
_HH_TURN = re.compile(r"\n\n(Human|Assistant):")
_HH_ROLES = {"Human": "user", "Assistant": "assistant"}
_HELPSTEER_TURN = re.compile(r"\n?<extra_id_1>(User|Assistant)(?:\n|$)")


@dataclass(frozen=True)
class Converted:
    """Rows of a data set as comparisons."""

    comparisons: tuple[Comparison, ...]
    """In the order of the rows."""
    misfits: int
    """Rows that are no comparison: without a partner for their prompt, or transcripts that do not share a beginning or
    whose turns do not alternate."""


def from_row(row: object, *, where: str, key: str) -> Comparison:
    """A row of our format or of TRL's preference formats.

    Ours: "prompt" (a text or a list of messages), "responses", and maybe "preferred" and "key". TRL's, where "chosen" is
    response 0 and preferred: all three texts; lists of messages with the prompt apart; or with the prompt inside "chosen"
    and "rejected", which then are the same up to their last message. Other fields are let be. A lone surrogate becomes
    its escape, as no tokenizer takes it.

    Args:
        where: the file and line, for errors.
        key: of the comparison, where the row has none.

    Raises:
        InputError: the row is none of these.
    """
    if not isinstance(row, Mapping):
        raise InputError(f"{where} is not an object but {_shown(row)}; {EXPECTED}")
    key = _text(row["key"], where=where, field="key") if row.get("key") is not None else key
    if row.get("responses") is not None:
        return _ours(row, where=where, key=key)
    if row.get("chosen") is None or row.get("rejected") is None:
        raise InputError(f"{where} has the fields {', '.join(map(str, row)) or 'none'}; {EXPECTED}")
    chosen, rejected, prompt = row["chosen"], row["rejected"], row.get("prompt")
    if isinstance(chosen, str) and isinstance(rejected, str):
        if prompt is not None:
            return Comparison(key, _conversation(prompt, where=where), _both(chosen, rejected, where), 0)
        if found := _from_transcripts(chosen, rejected, key=key):
            return found
        raise InputError(
            f"{where} has texts without a prompt, so that it is not known where it ends; {EXPECTED}"
        )
    return _from_messages(prompt, chosen, rejected, where=where, key=key)


def helpsteer2(rows: Iterable[Mapping], *, key: str) -> Converted:
    """Rows of nvidia/HelpSteer2: neighbours with one prompt are a comparison.

    The one with the higher `helpfulness` is preferred by people; with equal ones, neither. In a prompt of several turns
    <extra_id_1>User and <extra_id_1>Assistant open the later ones.

    Args:
        key: what the keys begin with; the number of the first row (from 0) follows.
    """
    comparisons, misfits, waiting = [], 0, None
    for number, row in enumerate(rows):
        where = f"{key}, row {number}"
        fields = {field: _text(row.get(field), where=where, field=field) for field in ("prompt", "response")}
        score = row.get("helpfulness")
        if isinstance(score, bool) or not isinstance(score, int | float):
            raise InputError(f"{where} has helpfulness={_shown(score)}; HelpSteer2 has a number there")
        if waiting is None or waiting[1]["prompt"] != fields["prompt"]:
            misfits += waiting is not None
            waiting = number, fields, score
            continue
        first, waiting = waiting, None
        turns = _helpsteer_turns(fields["prompt"])
        if not _alternate(turns):
            misfits += 2
            continue
        preferred = None if first[2] == score else int(score > first[2])
        texts = first[1]["response"], fields["response"]
        comparisons.append(Comparison(f"{key}-{first[0]}", turns, texts, preferred))
    return Converted(tuple(comparisons), misfits + (waiting is not None))


def hh_rlhf(rows: Iterable[Mapping], *, key: str) -> Converted:
    """Rows of Anthropic/hh-rlhf: two transcripts of one conversation, of which only the last turn differs.

    Spaces around a turn belong to the transcript and are taken off. Response 0 is the chosen one.

    Args:
        key: what the keys begin with; the number of the row (from 0) follows.
    """
    comparisons, misfits = [], 0
    for number, row in enumerate(rows):
        where = f"{key}, row {number}"
        texts = [_text(row.get(field), where=where, field=field) for field in ("chosen", "rejected")]
        found = _from_transcripts(*texts, key=f"{key}-{number}")
        misfits += found is None
        comparisons += [found] if found else []
    return Converted(tuple(comparisons), misfits)


def _ours(row: Mapping, *, where: str, key: str) -> Comparison:
    responses, preferred = row["responses"], row.get("preferred")
    if not isinstance(responses, list | tuple) or len(responses) != 2:
        raise InputError(f'{where} has "responses" {_shown(responses)}; a list of two texts was expected')
    if preferred is not None and (isinstance(preferred, bool) or preferred not in (0, 1)):
        raise InputError(
            f'{where} has "preferred" {_shown(preferred)}; expected the number of the response that people prefer, 0 or 1, '
            "or null"
        )
    turns = _conversation(row.get("prompt"), where=where)
    return Comparison(key, turns, _both(*responses, where), None if preferred is None else int(preferred))


def _from_messages(prompt: object, chosen: object, rejected: object, *, where: str, key: str) -> Comparison:
    sides = [
        _messages(side, where=where, field=name)
        for side, name in ((chosen, "chosen"), (rejected, "rejected"))
    ]
    if any(not side or side[-1].role != "assistant" for side in sides):
        raise InputError(f'{where}: the last message of "chosen" and of "rejected" is to be the assistant\'s')
    before = sides[0][:-1]
    if before != sides[1][:-1]:
        raise InputError(
            f'{where}: "chosen" and "rejected" differ before their last message; they share a prompt'
        )
    if not before:
        turns = _conversation(prompt, where=where)
    else:
        turns = _conversation([{"role": turn.role, "content": turn.content} for turn in before], where=where)
        # Some write the prompt (or its first question) twice: then the two have to agree.
        texts = [turn.content for turn in turns if turn.role == "user"]
        if isinstance(prompt, str) and storable(prompt) not in texts:
            raise InputError(f'{where}: "prompt" is not among the messages of "chosen"; give it once')
        if prompt is not None and not isinstance(prompt, str) and _conversation(prompt, where=where) != turns:
            raise InputError(f'{where}: "prompt" is not what "chosen" begins with; give it once')
    return Comparison(key, turns, (sides[0][-1].content, sides[1][-1].content), 0)


def _conversation(prompt: object, *, where: str) -> tuple[Turn, ...]:
    """A prompt's turns: a text is the user's only one."""
    if isinstance(prompt, str):
        return (Turn("user", storable(prompt)),)
    turns = _messages(prompt, where=where, field="prompt")
    if not turns or turns[-1].role != "user":
        raise InputError(f"{where}: the last message of a prompt is the user's; here it is {_shown(prompt)}")
    return turns


def _messages(value: object, *, where: str, field: str) -> tuple[Turn, ...]:
    if not isinstance(value, list | tuple):
        raise InputError(f'{where} has "{field}" {_shown(value)}; {EXPECTED}')
    turns = []
    for message in value:
        if not isinstance(message, Mapping) or message.get("role") not in _ROLES:
            raise InputError(
                f'{where}: "{field}" holds {_shown(message)}; a message is {{"role": …, "content": …}} with one of the roles '
                f"{', '.join(_ROLES)}"
            )
        turns.append(Turn(message["role"], _text(message.get("content"), where=where, field="content")))
    return tuple(turns)


def _from_transcripts(chosen: str, rejected: str, *, key: str) -> Comparison | None:
    """Two "\\n\\nHuman: … \\n\\nAssistant: …" transcripts, or None where they are not a comparison."""
    sides = [_transcript(storable(text)) for text in (chosen, rejected)]
    if any(len(side) < 2 or side[-1].role != "assistant" for side in sides) or sides[0][:-1] != sides[1][:-1]:
        return None
    turns = sides[0][:-1]
    return (
        Comparison(key, turns, (sides[0][-1].content, sides[1][-1].content), 0) if _alternate(turns) else None
    )


def _transcript(text: str) -> tuple[Turn, ...]:
    head, *parts = _HH_TURN.split(text)
    if head.strip():
        return ()
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return tuple(Turn(_HH_ROLES[speaker], said.strip()) for speaker, said in pairs)


def _helpsteer_turns(prompt: str) -> tuple[Turn, ...]:
    first, *parts = _HELPSTEER_TURN.split(prompt)
    turns = [Turn(speaker.lower(), said) for speaker, said in zip(parts[::2], parts[1::2], strict=True)]
    if first or not turns:
        turns.insert(0, Turn("user", first))
    if turns[-1] == Turn("assistant", ""):  # opened for the response
        turns.pop()
    return tuple(turns)


def _alternate(turns: tuple[Turn, ...]) -> bool:
    """Whether user and assistant take turns, the user first and last; chat templates refuse others."""
    return len(turns) % 2 == 1 and all(
        turn.role == ("assistant" if number % 2 else "user") for number, turn in enumerate(turns)
    )


def _both(first: object, second: object, where: str) -> tuple[str, str]:
    return _text(first, where=where, field="response"), _text(second, where=where, field="response")


def _text(value: object, *, where: str, field: str) -> str:
    if not isinstance(value, str):
        raise InputError(f'{where} has {_shown(value)} for "{field}"; a text was expected')
    return storable(value)


def _shown(value: object) -> str:
    text = "nothing" if value is None else ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
