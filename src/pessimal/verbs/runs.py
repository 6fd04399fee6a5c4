"""`pessimal runs`: the artifacts of the registry, their lineage, the differences of two of them,
and whether all of them are sound.

Artifacts stand in one pandas frame: a row per artifact, a column per field and per figure. A
difference is B − A; rows of tables are matched by their keys, never by their position.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_integer_dtype, is_numeric_dtype, is_object_dtype

from pessimal.config.schema import RunsAction, RunsConfig, RunsFormat
from pessimal.errors import ConfigError, InputError, VerdictError, did_you_mean
from pessimal.tables.score_table import read_provenance
from pessimal.texts import storable
from pessimal.tracking.registry import CONFIG, Manifest, Registry, damages, figures
from pessimal.verbs.common import (
    as_csv,
    as_json,
    cell_text,
    is_number,
    table_text,
    terminal_width,
    visible,
    write_out,
)

log = logging.getLogger(__name__)

Published = tuple[Path, Manifest]
FIELDS = [
    *("type", "name", "version", "created", "run_id", "key", "config_hash", "commit", "dirty"),
    "inputs",
]
KEY_FIGURES = {
    "score-table": ("n", "optimal", "pessimal", "mean", "standard_deviation", "certified_share"),
    "search-result": ("goal", "length", "best_text", "best_reward", "verdict"),
    "study": ("trials", "best_value", "defaults_value", "held_out_difference", "held_out_p"),
    "explanation": ("comparisons", "perturber", "decided", "undecided", "edits", "reward_sd"),
}
"""Figures in a list of artifacts of a type; of other types, the first four."""
COLUMNS = ["part", "name", "a", "b", "difference", "rows", "at"]
ABSENT, PRESENT = "(not there)", "(there)"
"""Stand for the value of a thing that one artifact lacks, and of a thing without a value."""
CANDIDATE = ["candidate_id", "token", "text"]
"""Keys of a score table: an id alone is another token in another vocabulary."""


def run(config: RunsConfig) -> None:
    """Print the list, the artifact, the difference or the damages; nothing is written.

    Raises:
        InputError: there is no registry, or nothing of a name, type, model, prompt, figure or table
            that is typed.
        VerdictError: `verify` found damage.
    """
    registry = Registry(Path(config.paths.registry))
    if not registry.root.is_dir():
        raise InputError(f"there is no registry in {registry.root}: type paths.registry=FOLDER")
    artifacts = [registry.artifact(name) for name in config.names]
    if config.action is RunsAction.list:
        _list(config, registry)
    elif config.action is RunsAction.diff:
        a, b = artifacts
        table = difference(registry, a, b)
        names = {"a": a[1].reference, "b": b[1].reference}
        text = (
            f"A  {names['a']}\nB  {names['b']}\n\n{difference_text(table, width=terminal_width())}"
        )
        _print(config.format, text, table, names | {"differences": table.to_dict("records")})
    elif config.action is RunsAction.verify:
        _verify(config, registry, [folder for folder, _ in artifacts] or None)
    elif config.format is RunsFormat.csv:
        registry.verify(artifacts[0][0])
        write_out(as_csv(pd.read_parquet(table_file(*artifacts[0], name=config.table))))
    else:
        _show(config, registry, *artifacts[0])


def _print(format: RunsFormat, text: str, table: pd.DataFrame, document: object) -> None:
    """Print what a format asks for."""
    if format is not RunsFormat.table:
        text = as_json(document) if format is RunsFormat.json else as_csv(table)
    write_out(text)


def _list(config: RunsConfig, registry: Registry) -> None:
    manifests = {manifest.reference: manifest for _, manifest in registry.manifests()}
    if not manifests and config.format is RunsFormat.table:
        log.info("nothing is published in %s yet", registry.root)
        return
    artifacts = artifact_frame(manifests.values())
    if manifests:  # of an empty registry nothing can be mistyped
        filters = {name: getattr(config, name) for name in ("type", "prompt", "name", "where")}
        artifacts = select(artifacts, model=config.of_model, all=config.all, **filters)
        artifacts = sort_artifacts(artifacts, config.sort, descending=config.descending)
    selected = [manifests[reference] for reference in artifacts.index]
    text, table = list_text(selected, width=terminal_width()), artifacts.dropna(axis=1, how="all")
    _print(config.format, text, table, [*map(record, selected)])
    if config.format is RunsFormat.table:
        log.info("%d of %d artifacts (all=true: every version)", len(selected), len(manifests))


def list_text(manifests: Sequence[Manifest], *, width: int | None) -> str:
    """One line per artifact; where all are of one type, its key figures have columns of their own.
    A name is never cut: it is typed next."""
    header, rows = ["artifact", "created (UTC)", "run"], []
    values = [key_figures(m) for m in manifests]
    names = list(dict.fromkeys(name for row in values for name in row))
    single = len({m.type for m in manifests}) == 1
    for m, value in zip(manifests, values, strict=True):
        row = [f"{m.name}:v{m.version}", m.created[:16].replace("T", " "), m.run_id]
        text = "  ".join(f"{visible(k)}={cell_text(v)}" for k, v in value.items())
        rows.append([*row, *map(value.get, names)] if single else [m.type, *row, text])
    header = [*header, *names] if single else ["type", *header, "figures"]
    return table_text(header, rows, width=width, keep=3 if single else 4)


def key_figures(manifest: Manifest) -> dict[str, Any]:
    """The figures of an artifact that a list has room for."""
    every = figures(manifest.summary)
    names = KEY_FIGURES.get(manifest.type) or list(every)[:4]
    return {name: every[name] for name in names if every.get(name) is not None}


def record(manifest: Manifest) -> dict[str, Any]:
    """An artifact as JSON has it; its `path` counts from the registry's root."""
    path = f"{manifest.type}/{manifest.name}/v{manifest.version}"
    return {"reference": manifest.reference, "path": path, **vars(manifest)}


def table_file(folder: Path, manifest: Manifest, *, name: str | None) -> Path:
    """The parquet file of an artifact's table of this name; without a name, of the only one.

    Raises:
        InputError: there is no such table, or there are several and none is named.
    """
    files = {
        PurePosixPath(file).with_suffix("").as_posix().removeprefix("tables/"): folder / file
        for file in manifest.files
        if file.endswith(".parquet")
    }
    name = next(iter(files)) if name is None and len(files) == 1 else name
    if name in files:
        return files[name]
    listing, guess = ", ".join(sorted(files)) or "none", did_you_mean(name or "", list(files))
    message = f"{manifest.reference} has {len(files)} tables: {listing}.{guess} Type for example:"
    typed = f"{manifest.reference} format=csv table={min(files, default='NAME')}"
    raise InputError(f"{message} pessimal runs show {typed}")


def _show(config: RunsConfig, registry: Registry, folder: Path, manifest: Manifest) -> None:
    manifests = [manifest for _, manifest in registry.manifests()]
    up, down = (lineage(manifest.reference, manifests, upwards=way) for way in (True, False))
    if config.format is RunsFormat.json:
        write_out(as_json(record(manifest) | {"made_from": up, "made_into": down}))
        return
    rows = [["", name, getattr(manifest, name), None] for name in FIELDS[3:-1]]
    rows += [["figure", visible(k), v, None] for k, v in figures(manifest.summary).items()]
    for name, digest in manifest.files.items():
        file = folder / name
        size = file.stat().st_size if file.is_file() else "missing"
        rows.append(["file", name, size, digest[:12]])
    for words, nodes in (("made from", up), ("made into", down)):
        rows += [[words, lineage_line(node), None, None] for node in nodes]
    header = [visible(manifest.reference), "", "value, bytes", "sha256"]
    write_out(table_text(header, rows, width=terminal_width(), keep=2))
    log.info("%s", folder)


def lineage(
    reference: str, manifests: Iterable[Manifest], *, upwards: bool
) -> list[dict[str, Any]]:
    """The artifacts that this one was made from (`upwards`), or that were made from it, each below
    the artifact that it belongs to.

    Columns: depth (1 for its own inputs) · reference · known (in the registry still) · repeated
    (its own lineage stands further up).
    """
    below: dict[str, list[str]] = {}
    references, seen = set(), {reference}
    for manifest in manifests:
        references.add(manifest.reference)
        for source in dict.fromkeys(manifest.inputs):
            pair = (manifest.reference, source) if upwards else (source, manifest.reference)
            below.setdefault(pair[0], []).append(pair[1])

    def walk(above: str, depth: int) -> Iterator[dict[str, Any]]:
        for node in below.get(above, []):
            repeated = node in seen and node in below
            seen.add(node)
            row = {"depth": depth, "reference": node, "known": node in references}
            yield row | {"repeated": repeated}
            if not repeated:
                yield from walk(node, depth + 1)

    return [*walk(reference, 1)]


def lineage_line(node: dict[str, Any]) -> str:
    """One node of `lineage`, further in the deeper it is."""
    notes = ("" if node["known"] else " (not in this registry)") + " (see above)" * node["repeated"]
    return "· " * (node["depth"] - 1) + node["reference"] + notes


def _verify(config: RunsConfig, registry: Registry, only: Sequence[Path] | None) -> None:
    files: list[int] = []
    damaged = list(damages(registry, only=only, checked=files.append))
    if config.format is RunsFormat.json:
        counts = {"files": sum(files), "artifacts": len(files)}
        write_out(as_json(counts | {"damages": [damage._asdict() for damage in damaged]}))
    else:
        for damage in damaged:
            write_out("{}: {}\n    {}".format(*map(visible, damage)))
    checked = f"{sum(files)} files of {len(files)} artifacts in {registry.root}"
    if damaged:
        raise VerdictError(f"{checked}: {len(damaged)} things, listed above, have changed")
    log.info("%s are as they were published", checked)


# --- The frame of artifacts.


def artifact_frame(manifests: Iterable[Manifest]) -> pd.DataFrame:
    """One row per artifact, by its reference: FIELDS and a column per figure, which is
    `summary.NAME` where a field has its name; all as objects, so that whole numbers stay whole."""
    rows = {}
    for manifest in manifests:
        row = {name: getattr(manifest, name) for name in FIELDS}
        for name, value in figures(manifest.summary).items():
            row[f"summary.{name}" if name in FIELDS else name] = value
        rows[storable(manifest.reference)] = {storable(k): _storable(v) for k, v in row.items()}
    columns = dict.fromkeys([*FIELDS, *(name for row in rows.values() for name in row)])
    return pd.DataFrame([*rows.values()], list(rows), list(columns), dtype=object)


def _storable(value: Any) -> Any:
    """Texts of pandas are UTF-8, which half a character is not."""
    if isinstance(value, list):
        return [*map(_storable, value)]
    return storable(value) if isinstance(value, str) else value


def _texts(artifact: Mapping[str, Any], option: str) -> list[str]:
    """An artifact's values under a filter: its type or name; the models or prompts that its summary
    names."""
    values = [artifact.get(option), artifact.get(f"{option}s")]
    if option == "model" and artifact["type"] == "reward-model":
        values = [artifact["name"]]
    several = [value if isinstance(value, list) else [value] for value in values]
    return [text for texts in several for text in texts if isinstance(text, str)]


def select(
    artifacts: pd.DataFrame, *, where: str | None = None, all: bool = False, **patterns: str | None
) -> pd.DataFrame:
    """The rows of `artifacts` that match; of each name the newest version, unless `all`.

    Args:
        where: a condition on fields and figures, as pandas' DataFrame.query reads it.
        patterns: of type, model, prompt and name, with * and ?.

    Raises:
        ConfigError: the condition cannot be read, or compares what cannot be compared.
        InputError: no artifact of the registry has the type, model, prompt or name.
    """
    selected = artifacts if all else artifacts.drop_duplicates(["type", "name"], keep="last")
    for option, pattern in patterns.items():
        if pattern is None:
            continue
        texts = [_texts(row, option) for row in artifacts.to_dict("records")]
        matches = [any(fnmatchcase(text, pattern) for text in row) for row in texts]
        if not any(matches):
            names = sorted({text for row in texts for text in row})
            listing, guess = ", ".join(names[:12]) or "none", did_you_mean(pattern, names)
            message = f"{option}={pattern!r}: no artifact in the registry is of it.{guess}"
            raise InputError(f"{message} There are: {listing}")
        selected = selected[selected.index.isin(artifacts.index[matches])]
    if where is None or selected.empty:
        return selected
    try:
        return selected.loc[selected.convert_dtypes().query(where, engine="python").index]
    except Exception as error:  # pandas' own errors of parsing and of types are of many classes
        listing = ", ".join(sorted(selected.columns.drop(FIELDS))[:40])
        message = f"where={where!r} is no condition such as where='n > 1000 and mean < 0'"
        raise ConfigError(f"{message}. Figures: {listing}") from error


def sort_artifacts(artifacts: pd.DataFrame, by: str, *, descending: bool = False) -> pd.DataFrame:
    """Sorted by `name` (type, name, version), a field or a figure: numbers before texts, artifacts
    without it at the end. InputError where no artifact has the figure."""
    if by not in artifacts:
        names, guess = ", ".join(sorted(artifacts)[:40]), did_you_mean(by, list(artifacts))
        raise InputError(f"sort={by}: no artifact has this figure.{guess} Figures: {names}")
    keys = artifacts[["type", "name", "version"]]
    if by != "name":
        numbers = pd.to_numeric(artifacts[by], errors="coerce")
        texts = artifacts[by].where(artifacts[by].map(lambda value: isinstance(value, str)))
        keys = pd.concat([numbers.rename("0"), texts.rename("1"), keys], axis=1)
    return artifacts.loc[keys.sort_values(list(keys), ascending=not descending).index]


# --- The differences of two artifacts.


def difference_text(differences: pd.DataFrame, *, width: int | None) -> str:
    """One line per difference; `null` is a value that is none, and not an absent one."""
    if differences.empty:
        return "no difference"
    rows = [
        [visible(part), visible(name), *("null" if v is None else v for v in (a, b)), *rest]
        for part, name, a, b, *rest in differences.to_numpy(dtype=object).tolist()
    ]
    header = ["", "", "A", "B", "B − A", "rows that differ", "largest at"]
    return table_text(header, rows, width=width, keep=2)


def difference(registry: Registry, a: Published, b: Published) -> pd.DataFrame:
    """The differences of two artifacts, one row each; both are first held to their digests.

    Columns: part (options, provenance, inputs, figures, files, or a parquet file) · name · a, b
    (the values) · difference (b − a, of numbers) · rows (of a column of a table: how many differ) ·
    at (the row that differs most, a and b being its values; of texts the first that differs).

    Raises:
        InputError: a file of one is missing or damaged.
    """
    for folder, _ in (a, b):
        registry.verify(folder)
    parts = zip(_parts(*a).items(), _parts(*b).values(), strict=True)
    rows = [{"part": part} | row for (part, x), y in parts for row in _compare_values(x, y)]
    for file in sorted(a[1].files.keys() & b[1].files.keys()):
        if file.endswith(".parquet") and a[1].files[file] != b[1].files[file]:
            tables = (pd.read_parquet(folder / file) for folder, _ in (a, b))
            rows += [{"part": file} | row for row in compare_tables(*tables)]
    cells = [[row.get(name) for name in COLUMNS] for row in rows]
    return pd.DataFrame(cells, columns=COLUMNS, dtype=object)


def _parts(folder: Path, manifest: Manifest) -> dict[str, Mapping[str, Any]]:
    """Everything but the tables by which an artifact is compared."""
    scores = manifest.type == "score-table"
    provenance = read_provenance(folder).fields() if scores else {"key": manifest.key}
    return {
        "options": json.loads((folder / CONFIG).read_text()) if CONFIG in manifest.files else {},
        "provenance": provenance | {"commit": manifest.commit, "dirty": manifest.dirty},
        "inputs": dict.fromkeys(manifest.inputs, PRESENT),
        "figures": manifest.summary,
        "files": {name: digest[:12] for name, digest in manifest.files.items()},
    }


def _compare_values(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[dict[str, Any]]:
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
    """Rows as `difference` has them. Rows of the tables are matched by the fewest leading columns
    of texts, then of whole numbers, whose values repeat in neither; `rows in both` names them.
    Missing values are alike."""
    rows: list[dict[str, Any]] = [
        {"name": "rows", "a": len(a), "b": len(b), "difference": len(b) - len(a)},
        *({"name": c, "a": PRESENT, "b": ABSENT} for c in a if c not in b),
        *({"name": c, "a": ABSENT, "b": PRESENT} for c in b if c not in a),
    ]
    a, b = (table[[c for c in a if c in b]].apply(_comparable) for table in (a, b))
    columns = [c for c in a if is_object_dtype(a[c])] + [c for c in a if is_integer_dtype(a[c])]
    sets = [columns[: k + 1] for k in range(len(columns))]
    if "candidate_id" in a:
        sets = [[c for c in CANDIDATE if c in a]]
    unique = (k for k in sets if not a.duplicated(k).any() and not b.duplicated(k).any())
    if not (keys := next(unique, [])):
        return [*rows, {"name": "rows in both", "at": "unknown: no columns name each row once"}]
    pairs = a.merge(b, on=keys, suffixes=("\0a", "\0b")).astype(object)
    rows.append({"name": "rows in both", "a": len(pairs), "b": len(pairs), "at": keys})
    values = pairs.drop(columns=keys)
    x, y = (values.filter(like=f"\0{side}").rename(columns=lambda c: c[:-2]) for side in "ab")
    changes = x.compare(y, result_names=("a", "b"))
    for column in changes.columns.unique(0):
        sides = changes[column].dropna(how="all")
        gaps = pd.Series(np.nan, sides.index)
        if is_numeric_dtype(a[column]) and not is_bool_dtype(a[column]):
            gaps = sides["b"].astype(float) - sides["a"].astype(float)
        row = gaps.abs().idxmax() if gaps.notna().any() else sides.index[0]
        cell = {"name": column, **sides.loc[row], "difference": gaps[row], "rows": len(sides)}
        rows.append(cell | {"at": pairs.loc[row, keys].tolist()})
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _comparable(values: pd.Series) -> pd.Series:
    """A column as it compares over tables: a category is its text, and a list a tuple."""
    if is_numeric_dtype(values):
        return values
    lists = values.map(lambda v: tuple(v) if isinstance(v, np.ndarray | list) else v)
    return lists.astype(object)


def _plain(value: Any) -> Any:
    """A value as JSON knows it; a missing one is None."""
    if isinstance(value, tuple | list):
        return [*map(_plain, value)]
    value = value.item() if isinstance(value, np.generic) else value
    return None if value is pd.NA or value != value else value
