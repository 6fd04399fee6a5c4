"""Text as it may be drawn: tokens are hostile strings, model names are long ones.

Knows characters; knows nothing of fonts or figures.
"""

import math
import unicodedata
from collections.abc import Iterable

# Control, formatting (zero-width, right-to-left overrides), surrogate, private, unassigned, line
# and paragraph separators: invisible, able to reorder their neighbours, or not allowed in an SVG
# file.
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
SPACE, EMPTY, CARRIER = "␣", "∅", "◌"


def literal(text: str, *, limit: int = 24) -> str:
    """The text with everything visible, on one line, at most `limit` characters long.

    What cannot be seen becomes an escape (`\\n`, `\\x07`, `\\u200b`, `\\ud83d`), a backslash is
    doubled so that an escape cannot be mistaken for one, spaces at either end become ␣, a combining
    mark without a letter gets a dotted circle to sit on, the empty string is ∅. What is cut off at
    the limit leaves an ellipsis.
    """
    if not text:
        return EMPTY
    inner = text.strip(" ")
    ahead = SPACE * (len(text) - len(text.lstrip(" "))) if inner else SPACE * len(text)
    behind = SPACE * (len(text) - len(text.rstrip(" "))) if inner else ""
    if inner and unicodedata.combining(inner[0]):
        inner = CARRIER + inner
    pieces = [ahead, *map(_visible, inner), behind] if inner else [ahead]
    whole = "".join(pieces)
    if len(whole) <= limit:
        return whole
    kept = ""
    for piece in pieces:  # cut between characters, never inside an escape
        if len(kept) + len(piece) > limit - 1:
            break
        kept += piece
    return kept + "…"


def short_names(models: Iterable[str], *, limit: int = 30) -> dict[str, str]:
    """Model names short enough for an axis: without the organisation, and with the middle left out.

    Whatever would make two models look alike is not done.
    """
    models = list(models)
    short = {model: literal(model.rsplit("/", 1)[-1], limit=10_000) for model in models}
    short = {model: _without_middle(name, limit=limit) for model, name in short.items()}
    if len(set(short.values())) == len(set(models)):
        return short
    return {model: literal(model, limit=10_000) for model in models}


def significant(number: float, *, digits: int = 3) -> str:
    """A number with so many significant digits, whole digits never rounded away, and a true minus
    sign."""
    whole = len(str(int(abs(number)))) if math.isfinite(number) else digits
    return signed(number, f"#.{max(digits, whole)}g").rstrip(".")


def signed(number: float, form: str = ".2f") -> str:
    """A number in a format, with a true minus sign."""
    return format(number, form).replace("-", "−")


def _visible(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    if unicodedata.category(character) in _HIDDEN or (character.isspace() and character != " "):
        code = ord(character)
        return (
            f"\\x{code:02x}"
            if code < 0x100
            else f"\\u{code:04x}"
            if code < 0x10000
            else f"\\U{code:08x}"
        )
    return character


def _without_middle(name: str, *, limit: int) -> str:
    if len(name) <= limit:
        return name
    ahead = (limit - 1) // 2
    return f"{name[:ahead]}…{name[-(limit - 1 - ahead) :]}"
