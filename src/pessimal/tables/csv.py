"""CSV files as text: what is in a cell is data, whatever it spells."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal.errors import InputError


def read_csv(path: Path) -> pd.DataFrame:
    """Every cell as the text it is; pandas would take `null` and `NA` for missing values.

    Raises:
        InputError: the file is empty, not UTF-8, or no table.
    """
    try:
        return pd.read_csv(path, dtype=str, keep_default_na=False, na_filter=False)
    except (OSError, UnicodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"{path} cannot be read as a CSV file: {error}") from error


def require_columns(path: Path, table: pd.DataFrame, needed: Iterable[str], *, what: str) -> None:
    """Raises InputError where a file lacks a column; `what` says what such a file has."""
    if missing := set(needed) - set(table.columns):
        raise InputError(f"{path} lacks the column {' and '.join(sorted(missing))}; {what}")


def check_cells(where: str, cells: pd.Series, wrong: pd.Series, message: str, *, noun: str = "") -> None:
    """Raises InputError for the first `wrong` cell of a column: "WHERE, row N: NOUN 'cell' MESSAGE"."""
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(f"{where}, row {row + 1}: {noun}{cells.iloc[row]!r} {message}")
