"""What kind of vocabulary entry a token is, by its name and text; and how its text can be stored."""

import re

_UNUSED = re.compile(r"[\[<(|]*(unused|reserved_special_token|extra_id)[_-]?\d+[\]>)|]*", re.IGNORECASE)
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def token_kind(token: str, text: str, *, special: bool = False) -> str:
    """`unused`, `special`, `byte` (no text of its own) or `normal`; `special` is the tokenizer's word for it."""
    if _UNUSED.fullmatch(token):
        return "unused"
    if special:
        return "special"
    if _BYTE.fullmatch(token) or "\N{REPLACEMENT CHARACTER}" in text:
        return "byte"
    return "normal"


def storable(text: str) -> str:
    """`text` as UTF-8 can hold it: a lone surrogate (half a character, decoded alone) becomes its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
