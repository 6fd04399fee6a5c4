"""Rules that users write for attributes of their own: regular expressions and texts put before or behind.

Knows edits and the engine that runs their expressions. Does not know the built-in rules.
"""

import re
from collections.abc import Sequence
from functools import cache

import regex

from pessimal.errors import ConfigError
from pessimal.explain.attribute import Edit

MOST_SECONDS = 2.0
"""Seconds of one expression on one response. Some expressions, such as (a+)+b, take longer than the age of the universe;
those that are anywhere near this limit should be rewritten, for which side of it they fall on depends on the machine."""
MOST_CHARACTERS = 1_000_000
"""Length of a text that edits may make: each may multiply it."""


class TooSlowError(Exception):
    """An expression did not come to an end within `MOST_SECONDS`, or its text would be too long."""


def edited(text: str, edits: Sequence[Edit]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text after all edits in their order, and (start, end) of what the expressions match in the text as given.

    Raises:
        TooSlowError: an expression takes too long, or the text becomes too long.
    """
    changed, spans = text, []
    for edit in edits:
        if edit.find is not None:
            spans += _matches(text, edit)
            changed = _put(changed, edit)
        else:
            changed = (edit.prepend or "") + changed + (edit.append or "")
        if len(changed) > max(MOST_CHARACTERS, len(text)):
            raise TooSlowError(f"the text would become longer than {MOST_CHARACTERS:,} characters")
    return changed, _merged(spans)


def check_edits(attribute: str, amount: str, edits: Sequence[Edit]) -> None:
    """Refuse edits that cannot be carried out.

    Raises:
        ConfigError: not exactly one of find, prepend and append; a wrong expression; a group that it does not have.
    """
    for number, edit in enumerate(edits, start=1):
        where = f"the attribute {attribute!r}, rule {number} under `{amount}`"
        given = [name for name in ("find", "prepend", "append") if getattr(edit, name) is not None]
        if len(given) != 1:
            raise ConfigError(
                f"{where}: {' and '.join(given) or 'nothing'} is given; give exactly one of find, prepend and append, "
                "e.g. `- {find: '\\bvery\\b', put: ''}`"
            )
        if edit.find is None:
            continue
        try:
            groups = _compiled(edit.find).groups
        except (regex.error, ValueError, OverflowError, RecursionError) as error:
            raise ConfigError(
                f"{where}: find: {edit.find!r} is not a regular expression: {error}. Put a backslash before a character "
                "that is meant as such, and single quotes around the whole, e.g. find: 'really\\?'"
            ) from error
        wanted = max((int(digits) for digits in re.findall(r"\\(\d+)", edit.put)), default=0)
        if wanted > groups:
            raise ConfigError(
                f"{where}: put: {edit.put!r} names group {wanted}, but find: {edit.find!r} has {groups}. "
                "Put parentheses around what is to be kept."
            )


@cache
def _compiled(expression: str) -> regex.Pattern:
    return regex.compile(expression, regex.IGNORECASE)


def _put(text: str, edit: Edit) -> str:
    def put(match) -> str:
        return re.sub(r"\\(\d+)", lambda group: match.group(int(group.group(1))) or "", edit.put)

    try:
        return _compiled(edit.find).sub(put, text, timeout=MOST_SECONDS)
    except TimeoutError as error:
        raise TooSlowError(f"find: {edit.find!r} took longer than {MOST_SECONDS:g} s") from error


def _matches(text: str, edit: Edit) -> list[tuple[int, int]]:
    try:
        found = _compiled(edit.find).finditer(text, timeout=MOST_SECONDS)
        return [match.span() for match in found if match.end() > match.start()]
    except TimeoutError as error:
        raise TooSlowError(f"find: {edit.find!r} took longer than {MOST_SECONDS:g} s") from error


def _merged(spans: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)
