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
from pandas.api.types import infer_dtype, is_bool_dtype, is_integer_dtype, is_numeric_dtype

from pessimal.tables.score_table import read_provenance
from pessimal.tracking.registry import CONFIG, Manifest, Registry, figures
from pessimal.verbs.printing import is_number

COLUMNS = ["part", "name", "a", "b", "difference", "rows", "at"]
ABSENT, THERE = "(not there)", "(there)"
"""Stand for the value of what one of the two does not have, and of what has none."""
CANDIDATE = ["candidate_id", "token", "text"]
"""What a row of a score table is of: the id alone is another token in another vocabulary."""


def difference(
    registry: Registry, a: tuple[Path, Manifest], b: tuple[Path, Manifest]
) -> pd.DataFrame:
    """What differs, a row each; both artifacts are first held to their digests.

    Columns: part (options, provenance, inputs, figures, files, or a parquet file) · name · a, b
    (the values) · difference (b − a, of numbers). Of a column of a table: rows (how many differ) ·
    at (which row differs most, a and b being its values; of texts the first that differs).

    Raises:
        InputError: a file of one is missing or damaged.
    """
    for folder, _ in (a, b):
        registry.verify(folder)
    parts = zip(_parts(*a).items(), _parts(*b).values(), strict=True)
    rows = [{"part": part} | row for (part, one), other in parts for row in _values(one, other)]
    files, others = a[1].files, b[1].files
    for file in sorted(files.keys() & others.keys()):
        if file.endswith(".parquet") and files[file] != others[file]:
            tables = (pd.read_parquet(folder / file) for folder, _ in (a, b))
            rows += [{"part": file} | row for row in compare_tables(*tables)]
    return pd.DataFrame(
        [[row.get(name) for name in COLUMNS] for row in rows], columns=COLUMNS, dtype=object
    )


def _parts(folder: Path, manifest: Manifest) -> dict[str, Mapping[str, Any]]:
    """What an artifact is compared by besides its tables."""
    scores = manifest.type == "score-table"
    provenance = read_provenance(folder).fields() if scores else {"key": manifest.key}
    return {
        "options": json.loads((folder / CONFIG).read_text()) if CONFIG in manifest.files else {},
        "provenance": provenance | {"commit": manifest.commit, "dirty": manifest.dirty},
        "inputs": dict.fromkeys(manifest.inputs, THERE),
        "figures": manifest.summary,
        "files": {name: digest[:12] for name, digest in manifest.files.items()},
    }


def _values(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Values that differ, by their dotted names in the order of A, then of B."""
    left, right = figures(a), figures(b)
    rows = []
    for name in left | right:
        x, y = left.get(name, ABSENT), right.get(name, ABSENT)
        numbers = is_number(x) and is_number(y)
        same = x == y and isinstance(x, bool) == isinstance(y, bool)
        if not same and not (numbers and x != x and y != y):  # two that are no numbers do not
            rows.append({"name": name, "a": x, "b": y, "difference": y - x if numbers else None})
    return rows


def compare_tables(a: pd.DataFrame, b: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as `difference` has them. Rows of the tables are matched by the fewest leading text
    columns, then integer ones, whose values repeat in neither; `rows in both` says by which, and
    how many."""
    shared = [column for column in a if column in b]
    found: list[dict[str, Any]] = [
        {"name": "rows", "a": len(a), "b": len(b), "difference": len(b) - len(a)},
        *({"name": c, "a": THERE, "b": ABSENT} for c in a if c not in b),
        *({"name": c, "a": ABSENT, "b": THERE} for c in b if c not in a),
    ]
    texts = [c for c in shared if _is_text(a[c]) and _is_text(b[c])]
    wholes = [c for c in shared if is_integer_dtype(a[c]) and is_integer_dtype(b[c])]
    candidates = [[*texts, *wholes][:k] for k in range(1, len(texts) + len(wholes) + 1)]
    if "candidate_id" in shared:
        candidates = [[c for c in CANDIDATE if c in shared]]
    for keys in candidates:
        left, right = (
            # As they compare over tables: a category is its text.
            frame[keys].astype(object).where(frame[keys].notna(), None).reset_index(drop=True)
            for frame in (a, b)
        )
        if not left.duplicated().any() and not right.duplicated().any():
            break
    else:
        why = "unknown: no texts or whole numbers name each row once"
        return [*found, {"name": "rows in both", "at": why}]
    rows = [frame.assign(**{"\0row": range(len(frame))}) for frame in (left, right)]
    both = rows[0].merge(rows[1], on=keys, suffixes=(" a", " b"))
    found.append({"name": "rows in both", "a": len(both), "b": len(both), "at": keys})
    for column in shared:
        if column not in keys:
            pair = (a[column].take(both["\0row a"]), b[column].take(both["\0row b"]))
            if row := _column(*pair, both[keys]):
                found.append({"name": column} | row)
    return found


def _is_text(column: pd.Series) -> bool:
    kind = infer_dtype(column, skipna=True)
    return kind in ("string", "empty", "categorical") and not is_numeric_dtype(column)


def _column(a: pd.Series, b: pd.Series, keys: pd.DataFrame) -> dict[str, Any]:
    """What differs in one column, from its values in matched rows (n,); nothing where none does. A
    number that only one of the two has differs; two infinities that are one do not."""
    left, right = ([_comparable(value) for value in column] for column in (a, b))
    differs = np.array([x != y for x, y in zip(left, right, strict=True)], dtype=bool)
    if not differs.any():
        return {}
    most, change = int(differs.argmax()), None
    if all(is_numeric_dtype(column) and not is_bool_dtype(column) for column in (a, b)):
        x, y = (column.to_numpy(dtype=np.float64, na_value=np.nan) for column in (a, b))
        with np.errstate(invalid="ignore"):  # of two infinities
            sizes = np.where(differs & ~np.isnan(y - x), np.abs(y - x), -1.0)
        if sizes.max() >= 0:
            most = int(sizes.argmax())
            change = float(y[most] - x[most])
    return {
        "a": left[most],
        "b": right[most],
        "difference": change,
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
