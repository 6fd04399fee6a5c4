"""The difference of two artifacts: configuration, provenance, inputs, figures, files, tables.

Knows the registry's files. Numbers are B − A throughout. Does not know how a difference looks.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from pessimal.errors import InputError
from pessimal.tables.score_table import read_provenance
from pessimal.tracking.conditions import figures, is_number
from pessimal.tracking.registry import CONFIG, Manifest, Registry
from pessimal.tracking.table_diff import TableDifference, compare_tables

ABSENT = "(not there)"
"""Stands for the value of what one of the two does not have."""


@dataclass(frozen=True)
class Difference:
    """One value that is not the same."""

    name: str
    a: Any
    b: Any
    difference: float | None = None
    """B − A where both are numbers."""


@dataclass(frozen=True)
class ArtifactDifference:
    """Two artifacts beside one another; lists hold only what differs."""

    a: str
    """Reference of the first."""
    b: str
    configuration: list[Difference]
    configuration_note: str | None
    """What is known of the configurations where one was not kept."""
    provenance: list[Difference]
    """Fields of the score tables' provenances; of other artifacts the key."""
    inputs_a: list[str]
    """References that only A was made from."""
    inputs_b: list[str]
    summary: list[Difference]
    files_same: int
    """Files of both with the same bytes."""
    files_differ: list[str]
    files_a: list[str]
    """Files that only A has."""
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
    configs = [_config(folder, manifest) for folder, manifest in (a, b)]
    shared = sorted(one.files.keys() & other.files.keys())
    differ = [name for name in shared if one.files[name] != other.files[name]]
    return ArtifactDifference(
        a=one.reference,
        b=other.reference,
        configuration=[] if None in configs else differences(*configs),
        configuration_note=_note(one, other, configs),
        provenance=_provenance(a, b),
        inputs_a=[reference for reference in one.inputs if reference not in other.inputs],
        inputs_b=[reference for reference in other.inputs if reference not in one.inputs],
        summary=differences(one.summary, other.summary),
        files_same=len(shared) - len(differ),
        files_differ=differ,
        files_a=sorted(one.files.keys() - other.files.keys()),
        files_b=sorted(other.files.keys() - one.files.keys()),
        tables={
            name: compare_tables(_table(folder_a / name), _table(folder_b / name))
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
        if x == y and isinstance(x, bool) == isinstance(y, bool):
            continue
        numbers = is_number(x) and is_number(y)
        if numbers and x != x and y != y:  # neither is a number
            continue
        differing.append(Difference(name, x, y, y - x if numbers else None))
    return differing


def paired(
    a: Sequence[Manifest], b: Sequence[Manifest]
) -> tuple[list[tuple[Manifest, Manifest]], list[Manifest]]:
    """What two runs published, put side by side: of one type and name; else of one type, prompt and candidate set;
    else the only ones of their type. And what is left without a partner."""
    left, right, pairs = list(a), list(b), []
    for mark in (_by_name, _by_prompt, lambda m: m.type):
        for one in list(left):
            same = [m for m in right if mark(m) == mark(one)]
            if len(same) == 1 and [mark(m) for m in left].count(mark(one)) == 1:
                pairs.append((one, same[0]))
                left.remove(one)
                right.remove(same[0])
    return pairs, left + right


def _by_name(manifest: Manifest) -> tuple:
    return manifest.type, manifest.name


def _by_prompt(manifest: Manifest) -> tuple:
    summary = manifest.summary
    return manifest.type, *(str(summary.get(field)) for field in ("prompt", "prompts", "candidates"))


def _config(folder: Path, manifest: Manifest) -> dict | None:
    return json.loads((folder / CONFIG).read_text()) if CONFIG in manifest.files else None


def _note(a: Manifest, b: Manifest, configs: list[dict | None]) -> str | None:
    without = [m.reference for m, config in zip((a, b), configs, strict=True) if config is None]
    if not without:
        return None
    note = f"{' and '.join(without)} published without a {CONFIG}"
    if a.config_hash is None or b.config_hash is None:
        return note
    return f"{note}; by their hashes the configurations {'differ' if a.config_hash != b.config_hash else 'are the same'}"


def _provenance(a: tuple[Path, Manifest], b: tuple[Path, Manifest]) -> list[Difference]:
    if a[1].type == b[1].type == "score-table":
        return differences(*(read_provenance(folder).fields() for folder, _ in (a, b)))
    return differences({"key": a[1].key}, {"key": b[1].key})


def _table(file: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read as parquet: {error}") from error
