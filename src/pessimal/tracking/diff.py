"""The difference of two artifacts: configuration, provenance, inputs, figures, files, and tables row by row.

Numbers are B − A throughout. Rows of tables are matched by what they are of, never by their position.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_integer_dtype, is_numeric_dtype

from pessimal.errors import InputError
from pessimal.tables.score_table import read_provenance
from pessimal.tracking.listing import figures, is_number
from pessimal.tracking.registry import CONFIG, Manifest, Registry

ABSENT = "(not there)"
"""Stands for the value of what one of the two does not have."""
CANDIDATE = ["candidate_id", "token", "text"]
"""What a row of a score table is of: the id alone is another token in another vocabulary."""


@dataclass(frozen=True)
class Difference:
    """One value that is not the same; `difference` is B − A where both are numbers."""

    name: str
    a: Any
    b: Any
    difference: float | None = None


@dataclass(frozen=True)
class TableDifference:
    """Two tables beside one another."""

    keys: list[str]
    """Columns that rows were matched by; empty where they could not be matched."""
    matched: int
    """Rows in both."""
    only_a: int
    only_b: int
    columns: list[dict[str, Any]]
    """For each column of both that is no key: column · differing (matched rows that differ); of numbers also largest
    (B − A of the row that differs most) · at (keys of that row) · median (of |B − A|) · n (matched rows with both
    numbers) · in_one (with a number on one side only), else null."""
    columns_a: list[str]
    """Columns that only A has."""
    columns_b: list[str]
    unmatched: str | None = None
    """Why rows could not be matched."""


@dataclass(frozen=True)
class ArtifactDifference:
    """Two artifacts beside one another; lists hold only what differs, `_a` and `_b` what only that one has."""

    a: str
    b: str
    configuration: list[Difference]
    configuration_note: str | None
    """Which of the two kept no configuration; their hashes then stand in the provenance."""
    provenance: list[Difference]
    """Fields of the score tables' provenances, of other artifacts the key; and the code that made them."""
    inputs_a: list[str]
    inputs_b: list[str]
    summary: list[Difference]
    files_same: int
    """Files of both with the same bytes."""
    files_differ: list[str]
    files_a: list[str]
    files_b: list[str]
    tables: dict[str, TableDifference]
    """By path, of parquet files of both whose bytes differ."""


def compare_artifacts(
    registry: Registry, a: tuple[Path, Manifest], b: tuple[Path, Manifest]
) -> ArtifactDifference:
    """Everything that differs; both artifacts are first held to their digests.

    Raises:
        InputError: a file of one is missing or damaged.
    """
    (folder_a, one), (folder_b, other) = a, b
    registry.verify(folder_a)
    registry.verify(folder_b)
    without = [manifest.reference for _, manifest in (a, b) if CONFIG not in manifest.files]
    configs = [] if without else [json.loads((folder / CONFIG).read_text()) for folder, _ in (a, b)]
    shared = sorted(one.files.keys() & other.files.keys())
    differ = [name for name in shared if one.files[name] != other.files[name]]
    return ArtifactDifference(
        a=one.reference,
        b=other.reference,
        configuration=[] if without else differences(*configs),
        configuration_note=f"{' and '.join(without)} published without a {CONFIG}" if without else None,
        provenance=differences(*(_provenance(*pair, hashes=bool(without)) for pair in (a, b))),
        inputs_a=[reference for reference in one.inputs if reference not in other.inputs],
        inputs_b=[reference for reference in other.inputs if reference not in one.inputs],
        summary=differences(one.summary, other.summary),
        files_same=len(shared) - len(differ),
        files_differ=differ,
        files_a=sorted(one.files.keys() - other.files.keys()),
        files_b=sorted(other.files.keys() - one.files.keys()),
        tables={
            name: compare_tables(_read(folder_a / name), _read(folder_b / name))
            for name in differ
            if name.endswith(".parquet")
        },
    )


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Values that differ, by their dotted names in the order of A, then of B."""
    left, right = figures(a), figures(b)
    differing = []
    for name in dict.fromkeys([*left, *right]):
        x, y = left.get(name, ABSENT), right.get(name, ABSENT)
        numbers = is_number(x) and is_number(y)
        same = x == y and isinstance(x, bool) == isinstance(y, bool)
        if not same and not (numbers and x != x and y != y):  # neither being a number, they do not differ
            differing.append(Difference(name, x, y, y - x if numbers else None))
    return differing


def paired(
    a: Sequence[Manifest], b: Sequence[Manifest]
) -> tuple[list[tuple[Manifest, Manifest]], list[Manifest]]:
    """What two runs published, put side by side: of one type and name; else of one type, prompt and candidate set;
    else the only ones of their type. And what is left without a partner."""
    left, right, pairs = list(a), list(b), []
    about = ("prompt", "prompts", "candidates")
    for mark in (
        lambda m: (m.type, m.name),
        lambda m: (m.type, *(str(m.summary.get(field)) for field in about)),
        lambda m: m.type,
    ):
        for one in list(left):
            same = [m for m in right if mark(m) == mark(one)]
            if len(same) == 1 and [mark(m) for m in left].count(mark(one)) == 1:
                pairs.append((one, same[0]))
                left.remove(one)
                right.remove(same[0])
    return pairs, left + right


def _provenance(folder: Path, manifest: Manifest, *, hashes: bool) -> dict[str, Any]:
    fields = read_provenance(folder).fields() if manifest.type == "score-table" else {"key": manifest.key}
    hash_of = {"config_hash": manifest.config_hash} if hashes else {}
    return fields | hash_of | {"commit": manifest.commit, "dirty": manifest.dirty}


def _read(file: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read as parquet: {error}") from error


def compare_tables(a: pd.DataFrame, b: pd.DataFrame) -> TableDifference:
    """Match rows by the fewest leading text columns, then integer ones, whose values repeat in neither table."""
    shared = [column for column in a.columns if column in b.columns]
    only = [c for c in a.columns if c not in b.columns], [c for c in b.columns if c not in a.columns]
    keys = _keys(a, b, shared)
    if keys is None:
        why = "no columns of texts or whole numbers in both name each row once"
        return TableDifference([], 0, len(a), len(b), [], *only, unmatched=why)
    left, right = (_plain(frame, keys).assign(**{"\0row": range(len(frame))}) for frame in (a, b))
    both = left.merge(right, on=keys, suffixes=(" a", " b"))
    columns = [
        {"column": column}
        | _column(a[column].take(both["\0row a"]), b[column].take(both["\0row b"]), both[keys])
        for column in shared
        if column not in keys
    ]
    return TableDifference(keys, len(both), len(a) - len(both), len(b) - len(both), columns, *only)


def _keys(a: pd.DataFrame, b: pd.DataFrame, shared: list[str]) -> list[str] | None:
    if "candidate_id" in shared:
        candidates = [[c for c in CANDIDATE if c in shared]]
    else:
        texts = [c for c in shared if _is_text(a[c]) and _is_text(b[c])]
        ordered = [c for c in shared if c in texts or (is_integer_dtype(a[c]) and is_integer_dtype(b[c]))]
        candidates = [columns[:k] for columns in (texts, ordered) for k in range(1, len(columns) + 1)]
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


def _column(a: pd.Series, b: pd.Series, keys: pd.DataFrame) -> dict[str, Any]:
    """What `TableDifference.columns` says of one column, from its values in matched rows (n,)."""
    unknown = dict.fromkeys(("largest", "at", "median", "n", "in_one"))
    if not all(is_numeric_dtype(c) and not is_bool_dtype(c) for c in (a, b)):
        pairs = zip(map(_comparable, a), map(_comparable, b), strict=True)
        return {"differing": sum(x != y for x, y in pairs)} | unknown
    x, y = (c.to_numpy(dtype=np.float64, na_value=np.nan) for c in (a, b))
    known, one = ~np.isnan(x) & ~np.isnan(y), np.isnan(x) != np.isnan(y)
    with np.errstate(invalid="ignore"):  # two infinities that are one do not differ
        difference = np.where(x == y, 0.0, y - x)
    counts = {"n": int(known.sum()), "in_one": int(one.sum())}
    row = {"differing": int((known & (x != y)).sum() + one.sum())} | unknown | counts
    if known.any():
        size = np.where(known, np.abs(difference), -1.0)
        most = int(size.argmax())
        row |= {"largest": float(difference[most]), "median": float(np.median(size[known]))}
        if difference[most]:
            row["at"] = tuple(_comparable(key) for key in keys.iloc[most])
    return row


def _comparable(value: Any) -> Any:
    """A value as JSON knows it; lists compare as their elements do, and what is missing as one thing."""
    if isinstance(value, np.ndarray | list | tuple):
        return tuple(map(_comparable, value))
    if isinstance(value, np.generic):
        value = value.item()
    return None if not isinstance(value, dict) and pd.isna(value) else value
