"""Dictionaries of words under categories, as they are published: CSV, LIWC-22's wide tables, LIWC files.

Knows the layouts of files; knows nothing of what the categories mean.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal.errors import InputError
from pessimal.tables.files import check_cells, read_csv

WORD_COLUMNS = ("word", "token_decoded")
"""Ours, and that of the published Big Two dictionary."""
WIDE = "dicterm"
"""The first column of a wide dictionary, in lower case; every other column is a category."""
MARKED, UNMARKED = ("X", "x"), ("", "NA")
"""Cells of a wide dictionary: whether the word stands under the category."""
LIWC_LAYOUT = (
    "a LIWC file has a line `%`, lines `number TAB category`, a line `%`, and lines "
    "`word TAB number …`"
)
_NUMBER = re.compile(r"\d{1,9}")  # Python refuses to read one of thousands of digits
_CATEGORY = re.compile(r"(\d{1,9})\s+(\S.*)")  # some copies have spaces for the TAB
_NUMBERS_LAST = re.compile(r"(.*?\S)\s+(\d+(?:\s+\d+)*)")


def read_dictionaries(files: Mapping[str, str | Path]) -> dict[str, pd.DataFrame]:
    """Dictionaries by name, of files by name; raises as `read_dictionary` does."""
    return {name: read_dictionary(Path(file).expanduser()) for name, file in files.items()}


def read_dictionary(path: Path) -> pd.DataFrame:
    """Columns category and word, in the order of the file; a word may stand under several
    categories.

    Reads a CSV file with the columns category and word (or token_decoded; capitals in the headings
    do not matter), a wide one as LIWC-22 writes it (`.dicx`, or any CSV file: DicTerm, then a
    column a category, its cells X, or empty or NA), or, by its ending, an older LIWC file (`.dic`),
    as the Moral Foundations Dictionaries are given out. In all of them a word may end in `*` and a
    phrase is one word. A category under which no word stands is none.

    Raises:
        InputError: the file is missing or of another layout, has fewer than two categories, or an
            asterisk that is not the end of a word.
    """
    if not path.is_file():
        raise InputError(
            f"there is no dictionary {str(path)!r}; give a CSV file with the columns category and "
            "word, or a LIWC file (.dic, .dicx)"
        )
    words = _read_liwc(path) if path.suffix.lower() == ".dic" else _read_table(path)
    words = words[words["word"] != ""].drop_duplicates(ignore_index=True)
    if words["category"].nunique() < 2:
        raise InputError(
            f"{path} has {words['category'].nunique()} category; at least two are compared"
        )
    if len(wrong := words[words["word"].str.contains(r"^\*|\*.", regex=True)]):
        raise InputError(
            f"{path}: {wrong['word'].iloc[0]!r} has an asterisk that is not the end of a word; "
            "write safe* for every word that begins with safe"
        )
    return words


def _read_table(path: Path) -> pd.DataFrame:
    table = read_csv(path)
    if str(table.columns[0]).strip().lower() == WIDE:
        return _read_wide(path, table)
    table.columns = [str(column).strip().lower() for column in table.columns]
    column = next((name for name in WORD_COLUMNS if name in table), None)
    if column is None or "category" not in table:
        raise InputError(
            f"{path} has the columns {', '.join(table.columns)}; a dictionary has category and "
            "word (or token_decoded), or DicTerm and a column a category"
        )
    columns = table[["category", column]].apply(lambda cells: cells.str.strip())
    return columns.set_axis(["category", "word"], axis=1)


def _read_wide(path: Path, table: pd.DataFrame) -> pd.DataFrame:
    """The words of a table with a column a category, in the order of its rows."""
    cells = table.apply(lambda column: column.str.strip())
    words, cells = cells.iloc[:, 0].to_numpy(object), cells.iloc[:, 1:]
    for column in cells:
        wrong, where = ~cells[column].isin(MARKED + UNMARKED), f"{path}, column {column!r}"
        check_cells(where, cells[column], wrong, "is neither X nor empty nor NA")
    row, column = np.nonzero(cells.isin(MARKED).to_numpy())
    names = np.array([str(name).strip() for name in cells], dtype=object)
    return pd.DataFrame({"category": names[column], "word": words[row]})


def _read_liwc(path: Path) -> pd.DataFrame:
    """The words of a `.dic` file under the names of their categories."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text ({error.reason}); save it as UTF-8") from None
    marks = [at for at, line in enumerate(lines) if line.strip() == "%"]
    if len(marks) != 2 or any(line.strip() for line in lines[: marks[0]]):
        raise InputError(f"{path} has no header between two lines `%`; {LIWC_LAYOUT}")
    names = _liwc_header(path, lines[: marks[1]], begin=marks[0] + 1)
    rows = []
    for at, line in enumerate(lines[marks[1] + 1 :], start=marks[1] + 2):
        if not line.strip():
            continue
        word, numbers = _word_and_numbers(line)
        if not numbers:
            raise InputError(
                f"{path}, line {at}: {line.strip()!r} has no category number; {LIWC_LAYOUT}"
            )
        for number in numbers:
            if not _NUMBER.fullmatch(number) or int(number) not in names:
                raise InputError(
                    f"{path}, line {at}: {number!r} of {word!r} is no category number of the "
                    f"header, which has {', '.join(map(str, names))}"
                )
            rows.append((names[int(number)], word))
    return pd.DataFrame(rows, columns=["category", "word"])


def _liwc_header(path: Path, lines: list[str], *, begin: int) -> dict[int, str]:
    """Category by number; 01 and 1 are one number."""
    names: dict[int, str] = {}
    for at, line in enumerate(lines[begin:], start=begin + 1):
        if not line.strip():
            continue
        match = _CATEGORY.fullmatch(line.strip())
        if match is None:
            raise InputError(
                f"{path}, line {at}: {line.strip()!r} is no number and category; {LIWC_LAYOUT}"
            )
        number, name = int(match[1]), match[2]
        if number in names or name in names.values():
            raise InputError(f"{path}, line {at}: the header names {match[1]} or {name!r} twice")
        names[number] = name
    return names


def _word_and_numbers(line: str) -> tuple[str, list[str]]:
    """A word and its category numbers: what stands before the first TAB, or without one, before the
    last numbers."""
    word, tab, numbers = line.strip().partition("\t")
    if tab:
        return word.strip(), numbers.split()
    match = _NUMBERS_LAST.fullmatch(line.strip())
    return (match[1], match[2].split()) if match else (line.strip(), [])
