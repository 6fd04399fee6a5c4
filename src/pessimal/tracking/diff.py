"""How two artifacts differ, as one frame: options, provenance, inputs, figures, files, and tables
row by row.

Numbers are B − A throughout. Rows of tables are matched by what they are of, never by their
position.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_integer_dtype, is_numeric_dtype

from pessimal.errors import InputError
from pessimal.tables.score_table import read_provenance
from pessimal.tracking.listing import figures, is_number
from pessimal.tracking.registry import CONFIG, Manifest, Registry

COLUMNS = ("part", "name", "a", "b", "difference", "rows", "at")
ABSENT, THERE = "(not there)", "(there)"
"""Stand for the value of what one of the two does not have, and of what has none."""
CANDIDATE = ["candidate_id", "token", "text"]
"""What a row of a score table is of: the id alone is another token in another vocabulary."""


def difference(
    registry: Registry, a: tuple[Path, Manifest], b: tuple[Path, Manifest]
) -> pd.DataFrame:
    """What differs, a row each; both artifacts are first held to their digests.

    Columns: part (options, provenance, inputs, figures, files, or a parquet file) · name · a, b
        (the values) · difference
    (b − a, of numbers). Of a column of a table: rows (how many differ) · at (which row differs
    most, a and b being its values; of texts the first that differs).

    Raises:
        InputError: a file of one is missing or damaged.
    """
    for folder, _ in (a, b):
        registry.verify(folder)
    one, other = a[1], b[1]
    rows = _values("options", _options(*a), _options(*b))
    rows += _values("provenance", _provenance(*a), _provenance(*b))
    rows += _values("inputs", dict.fromkeys(one.inputs, THERE), dict.fromkeys(other.inputs, THERE))
    rows += _values("figures", one.summary, other.summary)
    rows += _values(
        "files", *({name: digest[:12] for name, digest in m.files.items()} for m in (one, other))
    )
    for file in sorted(one.files.keys() & other.files.keys()):
        if file.endswith(".parquet") and one.files[file] != other.files[file]:
            table = compare_tables(*(_read(folder / file) for folder, _ in (a, b)))
            rows += [{"part": file} | row for row in table]
    return pd.DataFrame(
        [[row.get(name) for name in COLUMNS] for row in rows], columns=list(COLUMNS), dtype=object
    )


def _values(part: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict]:
    """Values that differ, by their dotted names in the order of A, then of B."""
    left, right = figures(a), figures(b)
    rows = []
    for name in dict.fromkeys([*left, *right]):
        x, y = left.get(name, ABSENT), right.get(name, ABSENT)
        numbers = is_number(x) and is_number(y)
        same = x == y and isinstance(x, bool) == isinstance(y, bool)
        if not same and not (
            numbers and x != x and y != y
        ):  # neither being a number, they do not differ
            rows.append(
                {
                    "part": part,
                    "name": name,
                    "a": x,
                    "b": y,
                    "difference": y - x if numbers else None,
                }
            )
    return rows


def _options(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """Of the run; its hash alone where the artifact was published without them."""
    if CONFIG in manifest.files:
        return json.loads((folder / CONFIG).read_text())
    return {"config_hash": manifest.config_hash}


def _provenance(folder: Path, manifest: Manifest) -> dict[str, Any]:
    fields = (
        read_provenance(folder).fields()
        if manifest.type == "score-table"
        else {"key": manifest.key}
    )
    return fields | {"commit": manifest.commit, "dirty": manifest.dirty}


def _read(file: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read as parquet: {error}") from error


def compare_tables(a: pd.DataFrame, b: pd.DataFrame) -> list[dict]:
    """Rows as `difference` has them. Rows of the tables are matched by the fewest leading text
    columns, then integer ones, whose values repeat in neither; `rows in both` says by which, and
    how many."""
    shared = [column for column in a.columns if column in b.columns]
    found = [{"name": "rows", "a": len(a), "b": len(b), "difference": len(b) - len(a)}]
    found += [{"name": c, "a": THERE, "b": ABSENT} for c in a.columns if c not in b.columns]
    found += [{"name": c, "a": ABSENT, "b": THERE} for c in b.columns if c not in a.columns]
    keys = _keys(a, b, shared)
    if keys is None:
        return [
            *found,
            {"name": "rows in both", "at": "unknown: no texts or whole numbers name each row once"},
        ]
    left, right = (_plain(frame, keys).assign(**{"\0row": range(len(frame))}) for frame in (a, b))
    both = left.merge(right, on=keys, suffixes=(" a", " b"))
    found.append({"name": "rows in both", "a": len(both), "b": len(both), "at": keys})
    for column in shared:
        if column not in keys:
            row = _column(
                a[column].take(both["\0row a"]), b[column].take(both["\0row b"]), both[keys]
            )
            found += [{"name": column} | row] if row else []
    return found


def _keys(a: pd.DataFrame, b: pd.DataFrame, shared: list[str]) -> list[str] | None:
    if "candidate_id" in shared:
        candidates = [[c for c in CANDIDATE if c in shared]]
    else:
        texts = [c for c in shared if _is_text(a[c]) and _is_text(b[c])]
        ordered = [
            c for c in shared if c in texts or (is_integer_dtype(a[c]) and is_integer_dtype(b[c]))
        ]
        candidates = [
            columns[:k] for columns in (texts, ordered) for k in range(1, len(columns) + 1)
        ]
    for columns in candidates:
        if not any(_plain(frame, columns).duplicated().any() for frame in (a, b)):
            return columns
    return None


def _is_text(column: pd.Series) -> bool:
    kind = pd.api.types.infer_dtype(column, skipna=True)
    return kind in ("string", "empty", "categorical") and not is_numeric_dtype(column)


def _plain(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Columns as they compare over tables: a category is its text."""
    plain = frame[columns].reset_index(drop=True)
    for column in filter(lambda c: _is_text(plain[c]), columns):
        plain[column] = plain[column].astype(object).where(plain[column].notna(), None)
    return plain


def _column(a: pd.Series, b: pd.Series, keys: pd.DataFrame) -> dict | None:
    """What differs in one column, from its values in matched rows (n,); None where nothing does. A
    number that only one of the two has differs; two infinities that are one do not."""
    known = np.zeros(len(a), dtype=bool)
    difference = np.zeros(len(a))
    if all(is_numeric_dtype(c) and not is_bool_dtype(c) for c in (a, b)):
        x, y = (c.to_numpy(dtype=np.float64, na_value=np.nan) for c in (a, b))
        with np.errstate(invalid="ignore"):
            difference = np.where(x == y, 0.0, y - x)
        known = ~np.isnan(difference)
        differs = np.where(known, difference != 0, np.isnan(x) != np.isnan(y))
    else:
        pairs = zip(map(_comparable, a), map(_comparable, b), strict=True)
        differs = np.array([one != other for one, other in pairs], dtype=bool)
    if not differs.any():
        return None
    most = int(np.where(differs, np.where(known, np.abs(difference), 0.0), -1.0).argmax())
    return {
        "a": _comparable(a.iloc[most]),
        "b": _comparable(b.iloc[most]),
        "difference": float(difference[most]) if known[most] else None,
        "rows": int(differs.sum()),
        "at": [_comparable(key) for key in keys.iloc[most]],
    }


def _comparable(value: Any) -> Any:
    """A value as JSON knows it; lists compare as their elements do, and what is missing as one
    thing."""
    if isinstance(value, np.ndarray | list | tuple):
        return [*map(_comparable, value)]
    if isinstance(value, np.generic):
        value = value.item()
    return None if not isinstance(value, dict) and pd.isna(value) else value
