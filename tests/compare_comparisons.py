"""Compares two comparison artifacts number by number: `python tests/compare_comparisons.py OLD
NEW`.

Every table of OLD must be in NEW with every column and row (new columns and tables may be added).
Numbers agree to 1e-9; columns of seeded resampling (intervals, p values) to the tolerance given as
`--resampled`, in units of the interval's width or of p. Exit code 1 names each difference.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

RESAMPLED = ("low", "high", "p", "beta_p", "p_corrected", "mantel_p")
"""Columns whose names end so come from resampling in some table."""


def differences(old: Path, new: Path, *, resampled: float, skip: tuple[str, ...] = ()) -> list[str]:
    """What NEW lacks or has otherwise, a line each."""
    found = []
    for file in sorted((old / "tables").glob("*.parquet")):
        if file.stem in skip:
            continue
        other = new / "tables" / file.name
        if not other.is_file():
            found.append(f"{file.stem}: no such table")
            continue
        found += [
            f"{file.stem}: {told}"
            for told in _table(pd.read_parquet(file), pd.read_parquet(other), resampled)
        ]
    return found


def _table(a: pd.DataFrame, b: pd.DataFrame, resampled: float) -> list[str]:
    if lost := [column for column in a if column not in b]:
        return [f"lost columns {lost}"]
    if len(a) != len(b):
        return [f"{len(a)} rows before, {len(b)} now"]
    keys = [c for c in a if not pd.api.types.is_float_dtype(a[c]) and a[c].map(np.isscalar).all()]
    a, b = (
        t.assign(_at=range(len(t))).sort_values([*keys, "_at"], kind="stable", key=_sortable)
        for t in (a, b)
    )
    told = []
    for column in a.columns.drop("_at"):
        x, y = a[column].to_numpy(), b[column].to_numpy()
        if pd.api.types.is_numeric_dtype(a[column]) and not pd.api.types.is_bool_dtype(a[column]):
            x, y = x.astype(float), y.astype(float)
            scale = np.maximum(1.0, np.nan_to_num(np.abs(x), nan=1.0, posinf=1.0))
            tolerance = 1e-9
            if column.endswith(RESAMPLED):
                tolerance = max(1e-9, resampled)
            wrong = ~(
                np.isclose(x, y, rtol=0, atol=tolerance * scale) | (np.isnan(x) & np.isnan(y))
            )
        else:
            wrong = np.array(
                [not _same(one, other) for one, other in zip(x, y, strict=True)], dtype=bool
            )
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            told.append(
                f"{column}: {int(wrong.sum())} of {len(a)} rows differ, first {x[i]!r} → {y[i]!r}"
            )
    return told


def _sortable(column: pd.Series) -> pd.Series:
    return column.astype(str)


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray | list) or isinstance(other, np.ndarray | list):
        return np.array_equal(np.asarray(one), np.asarray(other))
    if pd.isna(one) or pd.isna(other):
        return pd.isna(one) and pd.isna(other)
    return one == other


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--resampled", type=float, default=0.0)
    parser.add_argument("--skip", default="", help="tables, separated by commas")
    given = parser.parse_args()
    lines = differences(
        given.old, given.new, resampled=given.resampled, skip=tuple(given.skip.split(","))
    )
    print("\n".join(lines) or "the same numbers")
    sys.exit(bool(lines))
