"""Dictionaries: words under the categories that a theory gives them (Big Two, Moral Foundations).

Knows the layout of a file. None comes with pessimal: their licences do not allow it, so they are named by path.
"""

from pathlib import Path

import pandas as pd

from pessimal.errors import InputError

WORD_COLUMNS = ("word", "token_decoded")
"""Ours, and that of the published Big Two dictionary."""


def read_dictionary(path: Path) -> pd.DataFrame:
    """Columns category and word, in the order of the file; a word may stand under several categories.

    Reads a CSV file with the columns category and word (or token_decoded); capitals in the headings do not matter.

    Raises:
        InputError: the file is missing or of another layout, or has fewer than two categories.
    """
    if not path.is_file():
        raise InputError(
            f"there is no dictionary {str(path)!r}; give a CSV file with the columns category and word"
        )
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    table.columns = [str(column).strip().lower() for column in table.columns]
    column = next((name for name in WORD_COLUMNS if name in table), None)
    if column is None or "category" not in table:
        raise InputError(
            f"{path} has the columns {', '.join(table.columns)}; a dictionary has category and word (or token_decoded)"
        )
    words = pd.DataFrame({"category": table["category"].str.strip(), "word": table[column].str.strip()})
    words = words[words["word"] != ""].drop_duplicates(ignore_index=True)
    if words["category"].nunique() < 2:
        raise InputError(f"{path} has {words['category'].nunique()} category; at least two are compared")
    return words
