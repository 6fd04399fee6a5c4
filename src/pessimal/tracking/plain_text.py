"""Hostile texts and numbers as a terminal and a spreadsheet may have them, and columns that stand below one another.

Pure: values in, text out.
"""

import os
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

from pessimal.tables.kinds import storable

_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
"""A cell that begins so, a spreadsheet may take for a formula."""
NARROWEST = 6
"""Columns of the terminal that are left to any column of a table."""


def visible(text: str) -> str:
    """`text` on one line: control characters, marks of direction and half characters become their escapes."""
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char)[0] == "C" or char in "\u2028\u2029" else char
        for char in text
    )  # fmt: skip


def shown(value: Any) -> str:
    """A value for a person: six figures of a number, nothing for None, texts without control characters, in quotes where
    they are empty or white space at their ends would go unseen."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value))
    text = str(value)
    return visible(text) if text and text == text.strip() else f'"{visible(text)}"'


def cell(value: Any) -> Any:
    """A value for a spreadsheet: a number stays one; a text that could be taken for a formula gets a ' before it."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, int | float):
        return value
    text = storable(str(value))
    return f"'{text}" if text.startswith(_FORMULA) else text


def width_of(text: str) -> int:
    """Columns of a terminal that `text` takes."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns; what was cut off shows as an ellipsis."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def columns(
    header: Sequence[str], rows: Sequence[Sequence[Any]], *, width: int | None = None, keep: int = 0
) -> str:
    """Rows below their header, numbers to the right. Where `width` is given, the widest columns after the first `keep`
    are cut until a line fits."""
    texts = [list(header), *([shown(value) for value in row] for row in rows)]
    widths = [max(map(width_of, column)) for column in zip(*texts, strict=True)]
    right = [
        bool(rows) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in column if v is not None)
        and any(v is not None for v in column)
        for column in zip(*rows, strict=True)
    ] or [False] * len(header)  # fmt: skip
    while width is not None and sum(widths) + 2 * (len(widths) - 1) > width:
        widest = max(range(keep, len(widths)), key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
    lines = []
    for texts_of_row in texts:
        cells = [cut(text, most) for text, most in zip(texts_of_row, widths, strict=True)]
        padded = [
            " " * (most - width_of(text)) + text if to_right else text + " " * (most - width_of(text))
            for text, most, to_right in zip(cells, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def terminal_width() -> int | None:
    """Columns of the terminal; None where the output goes elsewhere, and nothing is to be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def write_out(text: str) -> None:
    """Print `text`; what the output's encoding does not have becomes its escape."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except (
        BrokenPipeError
    ):  # `pessimal runs | head` has read enough; Python would complain once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
