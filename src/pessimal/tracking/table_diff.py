"""How two tables of the same columns differ: rows only in one, and by how much numbers differ in rows of both.

Pure: takes frames, gives a frame of differences. Rows are matched by what they are of, never by their position.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_integer_dtype, is_numeric_dtype

CANDIDATE = ["candidate_id", "token", "text"]
"""What a row of a score table is of: the id alone is another token in another vocabulary."""
ROW_A, ROW_B = "\0row of A", "\0row of B"


@dataclass(frozen=True)
class TableDifference:
    """Two tables beside one another."""

    keys: list[str]
    """Columns that rows were matched by; empty where they could not be matched."""
    matched: int
    """Rows in both."""
    only_a: int
    only_b: int
    columns: pd.DataFrame
    """A row for each column of both that is no key: column · differing int (matched rows that differ) · largest float
    (B − A of the row that differs most) · at (keys of that row) · median float (of |B − A| over matched rows with both
    numbers) · n int (matched rows with both numbers) · in_one int (matched rows with a number on one side only). The
    last five are null for columns that are no numbers."""
    columns_a: list[str]
    """Columns that only A has."""
    columns_b: list[str]
    unmatched: str | None = None
    """Why rows could not be matched; None where they were."""


def compare_tables(a: pd.DataFrame, b: pd.DataFrame) -> TableDifference:
    """Match rows by the fewest leading text columns, then integer ones, whose values repeat in neither table."""
    shared = [column for column in a.columns if column in b.columns]
    only = [c for c in a.columns if c not in b.columns], [c for c in b.columns if c not in a.columns]
    keys = _keys(a, b, shared)
    if keys is None:
        why = "no columns of texts or whole numbers in both name each row once"
        return TableDifference([], 0, len(a), len(b), _frame([]), *only, unmatched=why)
    left, right = _plain(a, keys), _plain(b, keys)
    both = left.reset_index(names=ROW_A).merge(right.reset_index(names=ROW_B), on=keys, how="inner")
    rows = []
    for column in shared:
        if column not in keys:
            values = a[column].take(both[ROW_A]), b[column].take(both[ROW_B])
            rows.append({"column": column, **_differences(*values, both[keys])})
    n = len(both)
    return TableDifference(keys, n, len(a) - n, len(b) - n, _frame(rows), *only)


_COLUMNS = ("column", "differing", "largest", "at", "median", "n", "in_one")


def _frame(rows: list[dict]) -> pd.DataFrame:
    return pd.DataFrame(
        [{name: row.get(name) for name in _COLUMNS} for row in rows], columns=_COLUMNS, dtype=object
    )


def _keys(a: pd.DataFrame, b: pd.DataFrame, shared: list[str]) -> list[str] | None:
    if "candidate_id" in shared:
        candidates = [[c for c in CANDIDATE if c in shared]]
    else:
        texts = [c for c in shared if _is_text(a[c]) and _is_text(b[c])]
        whole = [c for c in shared if is_integer_dtype(a[c]) and is_integer_dtype(b[c])]
        ordered = [c for c in shared if c in texts or c in whole]
        candidates = [columns[:k] for columns in (texts, ordered) for k in range(1, len(columns) + 1)]
    for columns in candidates:
        if not any(_plain(frame, columns).duplicated().any() for frame in (a, b)):
            return columns
    return None


def _is_text(column: pd.Series) -> bool:
    return pd.api.types.infer_dtype(column, skipna=True) in ("string", "empty", "categorical") and not (
        is_numeric_dtype(column)
    )


def _plain(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Columns as they compare over tables: a category is its text."""
    plain = frame[columns].reset_index(drop=True)
    for column in columns:
        if _is_text(plain[column]):
            plain[column] = plain[column].astype(object).where(plain[column].notna(), None)
    return plain


def _differences(a: pd.Series, b: pd.Series, keys: pd.DataFrame) -> dict:
    numbers = [is_numeric_dtype(c) and not is_bool_dtype(c) for c in (a, b)]
    if not all(numbers):
        texts = [[_comparable(value) for value in c] for c in (a, b)]
        return {"differing": int(sum(x != y for x, y in zip(*texts, strict=True)))}
    x, y = (c.to_numpy(dtype=np.float64, na_value=np.nan) for c in (a, b))
    known = ~np.isnan(x) & ~np.isnan(y)
    with np.errstate(invalid="ignore"):  # two infinities that are one do not differ
        difference = np.where(x == y, 0.0, y - x)
    row = {
        "differing": int((known & (x != y)).sum() + (np.isnan(x) != np.isnan(y)).sum()),
        "n": int(known.sum()),
        "in_one": int((np.isnan(x) != np.isnan(y)).sum()),
    }
    if known.any():
        size = np.where(known, np.abs(difference), -1.0)
        most = int(size.argmax())
        row |= {"largest": float(difference[most]), "median": float(np.median(size[known]))}
        if difference[most]:
            row["at"] = tuple(map(_python, keys.iloc[most]))
    return row


def _python(key):
    """A key as JSON knows it."""
    return None if pd.isna(key) else key.item() if isinstance(key, np.generic) else key


def _comparable(value):
    """Lists compare as their elements do, and what is missing as one thing."""
    if isinstance(value, np.ndarray | list | tuple):
        return tuple(map(_comparable, value))
    return None if not isinstance(value, dict) and pd.isna(value) else value
