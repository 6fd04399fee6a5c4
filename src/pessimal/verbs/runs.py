"""`pessimal runs`: what is in the registry, where it came from, how two results differ, and whether
all of it is sound.

Artifacts stand in one pandas frame: a row per artifact, a column per figure. Numbers of a
difference are B − A throughout; rows of tables are matched by what they are of, never by their
position.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype, is_bool_dtype, is_integer_dtype, is_numeric_dtype

from pessimal.config.schema import RunsAction, RunsConfig, RunsFormat
from pessimal.errors import ConfigError, InputError, VerdictError, did_you_mean
from pessimal.tables.score_table import read_provenance
from pessimal.texts import storable
from pessimal.tracking.registry import CONFIG, Manifest, Registry, damages, figures, find_artifact
from pessimal.verbs.printing import (
    as_csv,
    as_json,
    is_number,
    shown,
    table_text,
    terminal_width,
    visible,
    write_out,
)

log = logging.getLogger(__name__)

Published = dict[str, tuple[Path, Manifest]]
"""Folder and manifest of every artifact, by its reference."""


FIELDS = [
    *("type", "name", "version", "created", "run_id", "key", "config_hash", "commit", "dirty"),
    "inputs",
]
FIGURE = "summary."
"""Columns of figures begin so; those of an inner dictionary are `summary.outer.inner`."""
KEY_FIGURES = {
    "score-table": ("n", "optimal", "pessimal", "mean", "standard_deviation", "certified_share"),
    "comparison": ("models", "tables", "explanations", "pairs"),
    "search-result": ("goal", "length", "best_text", "best_reward", "verdict"),
    "study": ("trials", "best_value", "defaults_value", "held_out_difference", "held_out_p"),
    "explanation": ("comparisons", "perturber", "decided", "undecided", "edits", "reward_sd"),
    "conformance": ("passed", "failed", "failed_checks"),
    "audit": ("passed", "failed", "failed_checks"),
    "reward-model": ("word_accuracy", "frame_sign", "seconds"),
    "report": ("bytes",),
}
"""What a list shows of each type; of others, the first four figures."""
COLUMNS = ["part", "name", "a", "b", "difference", "rows", "at"]
ABSENT, THERE = "(not there)", "(there)"
"""Stand for the value of what one of the two does not have, and of what has none."""
CANDIDATE = ["candidate_id", "token", "text"]
"""What a row of a score table is of: the id alone is another token in another vocabulary."""


def run(config: RunsConfig) -> None:
    """Print what is asked for; nothing is written.

    Raises:
        InputError: there is no registry, or nothing of a name, type, model, prompt, figure or table
            that is asked for.
        VerdictError: `verify` found damage.
    """
    registry = Registry(Path(config.paths.registry))
    if not registry.root.is_dir():
        raise InputError(
            f"there is no registry in {registry.root} yet. Another one: paths.registry=FOLDER"
        )
    # A verification of everything says itself what cannot be read.
    whole = config.action is RunsAction.verify and not config.names
    published = {m.reference: (folder, m) for folder, m in ([] if whole else registry.manifests())}
    manifests = [manifest for _, manifest in published.values()]
    names = [_without_folder(name, registry.root) for name in config.names]
    named = [published[find_artifact(name, manifests).reference] for name in names]
    match config.action:
        case RunsAction.list:
            _list(config, registry, published)
        case RunsAction.show if config.format is RunsFormat.csv:
            registry.verify(named[0][0])
            write_out(as_csv(pd.read_parquet(chosen_table(*named[0], wanted=config.table))))
        case RunsAction.show:
            _show(config, *named[0], manifests)
        case RunsAction.diff:
            _diff(config, registry, *named)
        case RunsAction.verify:
            _verify(config, registry, [folder for folder, _ in named] or None)


def _without_folder(given: str, root: Path) -> str:
    """`type/name/vN` of a folder in the registry, as the verbs print it; other names as they
    are."""
    folder, root = Path(given).resolve(), root.resolve()
    inside = folder.is_dir() and folder.is_relative_to(root)
    return folder.relative_to(root).as_posix() if inside else given


def _list(config: RunsConfig, registry: Registry, published: Published) -> None:
    if not published and config.format is RunsFormat.table:
        log.info("nothing is published in %s yet", registry.root)
        return
    artifacts = frame(manifest for _, manifest in published.values())
    if published:  # of an empty registry nothing can be mistyped
        artifacts = select(
            artifacts,
            type=config.type,
            model=config.of_model,
            prompt=config.prompt,
            name=config.name,
            where=config.where,
            all=config.all,
        )
        artifacts = sort_artifacts(artifacts, config.sort, descending=config.descending)
    found = [published[reference][1] for reference in artifacts.index]
    if config.format is RunsFormat.json:
        write_out(as_json([record(manifest) for manifest in found]))
    elif config.format is RunsFormat.csv:
        write_out(as_csv(for_spreadsheet(artifacts)))
    else:
        write_out(list_text(found, width=terminal_width()))
        older = len({(m.type, m.name) for _, m in published.values()}) < len(published)
        hidden = "; older versions are left out (all=true lists them)"
        left_out = hidden if older and not config.all else ""
        log.info("%d of %d artifacts%s", len(found), len(published), left_out)


def list_text(found: Sequence[Manifest], *, width: int | None) -> str:
    """One line an artifact; where all are of one type, its key figures have columns of their own.
    What an artifact is called is never cut: it is what one types next."""
    chosen = [key_figures(m) for m in found]
    names = list(dict.fromkeys(name for one in chosen for name in one))
    begin = [[f"{m.name}:v{m.version}", m.created[:16].replace("T", " "), m.run_id] for m in found]
    header = ["artifact", "created (UTC)", "run"]
    if len({m.type for m in found}) == 1:
        header += names
        rows = [[*row, *map(one.get, names)] for row, one in zip(begin, chosen, strict=True)]
        return table_text(header, rows, width=width, keep=3)
    values = ["  ".join(f"{visible(k)}={shown(v)}" for k, v in one.items()) for one in chosen]
    rows = [[m.type, *row, value] for m, row, value in zip(found, begin, values, strict=True)]
    return table_text(["type", *header, "figures"], rows, width=width, keep=4)


def for_spreadsheet(artifacts: pd.DataFrame) -> pd.DataFrame:
    """The fields of every artifact, and every figure that one of them has, by its name."""
    there = artifacts.dropna(axis=1, how="all").columns
    chosen = artifacts[[*FIELDS, *sorted(name for name in there if name.startswith(FIGURE))]]
    return chosen.assign(inputs=chosen["inputs"].map(" ".join))


def record(manifest: Manifest) -> dict[str, Any]:
    """An artifact as JSON has it; its `path` counts from the registry's root."""
    path = f"{manifest.type}/{manifest.name}/v{manifest.version}"
    return {"reference": manifest.reference, "path": path, **vars(manifest)}


def chosen_table(folder: Path, manifest: Manifest, *, wanted: str | None) -> Path:
    """The parquet file of an artifact's table of this name; without a name, of the only one.

    Raises:
        InputError: there is none such, or there are several and none is named.
    """
    files = {
        PurePosixPath(name).with_suffix("").as_posix().removeprefix("tables/"): folder / name
        for name in manifest.files
        if name.endswith(".parquet")
    }
    if wanted is None and len(files) == 1:
        return next(iter(files.values()))
    if wanted in files:
        return files[wanted]
    show = f"pessimal runs show {manifest.reference}"
    if not files:
        raise InputError(f"{manifest.reference} has no table; its files: {show}")
    asked = (
        f"has {len(files)} tables"
        if wanted is None
        else f"has no table {wanted!r}.{did_you_mean(wanted, list(files))} Its tables"
    )
    raise InputError(
        f"{manifest.reference} {asked}: {', '.join(sorted(files))}. Type for example: {show} "
        f"format=csv table={min(files)}"
    )


def _show(
    config: RunsConfig, folder: Path, manifest: Manifest, manifests: Sequence[Manifest]
) -> None:
    up, down = (lineage(manifest.reference, manifests, upwards=way) for way in (True, False))
    if config.format is RunsFormat.json:
        write_out(as_json(record(manifest) | {"made_from": up, "made_into": down}))
        return
    fields = {name: getattr(manifest, name) for name in FIELDS[3:-1]}
    sizes = {
        name: (folder / name).stat().st_size if (folder / name).is_file() else "missing"
        for name in manifest.files
    }
    sections = {
        "": [[name, value] for name, value in fields.items() if value is not None],
        "figures": [[visible(name), value] for name, value in figures(manifest.summary).items()],
        f"files ({len(sizes)}): bytes, sha256": [
            [name, size, manifest.files[name][:12]] for name, size in sizes.items()
        ],
        "made from": [[lineage_line(node)] for node in up],
        "what was made from it": [[lineage_line(node)] for node in down],
    }
    parts = [visible(manifest.reference)]
    for title, rows in sections.items():
        parts += [f"\n{title}"] if title else []
        none = [""] * len(rows[0]) if rows else []
        text = (
            table_text(none, rows, width=terminal_width(), keep=1, indent=2) if rows else "  none"
        )
        parts.append(text)
    write_out("\n".join(parts))
    log.info("%s", folder)


def lineage_line(node: dict[str, Any]) -> str:
    """One of `runs_frame.lineage`, further in the deeper it is."""
    notes = ("" if node["known"] else " (not in this registry)") + " (see above)" * node["repeated"]
    return "· " * (node["depth"] - 1) + node["reference"] + notes


def _diff(
    config: RunsConfig, registry: Registry, a: tuple[Path, Manifest], b: tuple[Path, Manifest]
) -> None:
    found = difference(registry, a, b)
    if config.format is RunsFormat.json:
        rows = found.to_dict("records")
        write_out(as_json({"a": a[1].reference, "b": b[1].reference, "differences": rows}))
    elif config.format is RunsFormat.csv:
        write_out(as_csv(found))
    else:
        write_out(f"A  {a[1].reference}\nB  {b[1].reference}\n")
        write_out(difference_text(found, width=terminal_width()))


def difference_text(found: pd.DataFrame, *, width: int | None) -> str:
    """A line a difference; `null` where a value is none, so that it can be told from what is not
    there."""
    if found.empty:
        return "no difference"
    rows = [
        [visible(part), visible(name), *("null" if v is None else v for v in (a, b)), *rest]
        for part, name, a, b, *rest in found.to_numpy(dtype=object).tolist()
    ]
    header = ["", "", "A", "B", "B − A", "rows that differ", "largest at"]
    return table_text(header, rows, width=width, keep=2)


def _verify(config: RunsConfig, registry: Registry, only: Sequence[Path] | None) -> None:
    files: list[int] = []
    found = list(damages(registry, only=only, checked=files.append))
    checked = f"{sum(files)} files of {len(files)} artifacts in {registry.root}"
    if config.format is RunsFormat.json:
        listed = [asdict(damage) for damage in found]
        write_out(as_json({"files": sum(files), "artifacts": len(files), "damages": listed}))
    elif found:
        lines = [f"{visible(d.where)}: {visible(d.what)}\n    {visible(d.mend)}" for d in found]
        write_out("\n".join(lines))
    if found:
        raise VerdictError(
            f"{checked}: {len(found)} things, listed above, are not as they were published"
        )
    log.info("%s are as they were published", checked)


# --- The frame of artifacts.


def key_figures(manifest: Manifest) -> dict[str, Any]:
    """The figures of an artifact that a list has room for."""
    every = figures(manifest.summary)
    names = KEY_FIGURES.get(manifest.type) or list(every)[:4]
    return {name: every[name] for name in names if every.get(name) is not None}


def frame(manifests: Iterable[Manifest]) -> pd.DataFrame:
    """One row per artifact, by its reference: FIELDS, the models and prompts it is of (lists), and
    a column per figure; all as objects, so that whole numbers stay whole."""
    rows: dict[str, dict[str, Any]] = {}
    for manifest in manifests:
        origin = {f"{what}s": _names_of(manifest, what) for what in ("model", "prompt")}
        numbers = {f"{FIGURE}{name}": value for name, value in figures(manifest.summary).items()}
        fields = {name: getattr(manifest, name) for name in FIELDS}
        rows[manifest.reference] = fields | origin | numbers
    inner = (name for row in rows.values() for name in row)
    columns = dict.fromkeys([*FIELDS, "models", "prompts", *inner])
    values = [[_storable(row.get(name)) for name in columns] for row in rows.values()]
    index, header = (list(map(storable, texts)) for texts in (rows, columns))
    return pd.DataFrame(values, index=index, columns=header, dtype=object)


def _storable(value: Any) -> Any:
    """Texts of pandas are UTF-8, which half a character is not."""
    if isinstance(value, list):
        return [*map(_storable, value)]
    return storable(value) if isinstance(value, str) else value


def _names_of(manifest: Manifest, what: str) -> list[str]:
    """The models or prompts that an artifact is of, as its summary says."""
    single, several = manifest.summary.get(what), manifest.summary.get(f"{what}s")
    if (what, manifest.type) == ("model", "reward-model") and single is None:
        single = manifest.name
    names = [single, *several] if isinstance(several, list) else [single]
    return [name for name in names if isinstance(name, str)]


def select(
    artifacts: pd.DataFrame,
    *,
    type: str | None = None,
    model: str | None = None,
    prompt: str | None = None,
    name: str | None = None,
    where: str | None = None,
    all: bool = False,
) -> pd.DataFrame:
    """The rows of `artifacts` (in the registry's order) that are asked for; of each name the newest
    version, unless `all`.

    Args:
        type, model, prompt, name: patterns with * and ?.
        where: a condition on figures, as pandas' DataFrame.query reads it.

    Raises:
        ConfigError: the condition cannot be read, or compares what cannot be compared.
        InputError: no artifact of the registry has the type, model, prompt or name.
    """
    chosen = artifacts if all else artifacts.drop_duplicates(["type", "name"], keep="last")
    for option, pattern in {"type": type, "models": model, "prompts": prompt, "name": name}.items():
        if pattern is None:
            continue
        texts = [value if isinstance(value, list) else [value] for value in artifacts[option]]
        matches = [any(fnmatchcase(text, pattern) for text in row) for row in texts]
        if not any(matches):
            known, option = sorted({text for row in texts for text in row}), option.rstrip("s")
            there = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if known[12:] else "")
            raise InputError(
                f"{option}={pattern!r}: no artifact in the registry is of this "
                f"{option}.{did_you_mean(pattern, known)} There are: "
                f"{there or f'none with a {option}'}"
            )
        chosen = chosen[chosen.index.isin(artifacts.index[matches])]
    if where is None or chosen.empty:
        return chosen
    values = _figure_table(chosen)
    try:
        return chosen.loc[values.query(where, engine="python").index]
    except Exception as error:  # pandas' own errors of parsing and of types are of many classes
        raise ConfigError(
            f"where={where!r} cannot be asked of the figures ({error}). Type a condition as pandas "
            "reads it: where='n > 1000' or where='optimal == \"love\" and mean < 0'. Figures: "
            f"{', '.join(sorted(values)[:40])}"
        ) from error


def _figure_table(artifacts: pd.DataFrame) -> pd.DataFrame:
    """The figures of artifacts by their own names, as numbers, truths and texts."""
    names = [name for name in artifacts if name.startswith(FIGURE)]
    return artifacts[names].rename(columns=lambda name: name.removeprefix(FIGURE)).convert_dtypes()


def sort_artifacts(artifacts: pd.DataFrame, by: str, *, descending: bool = False) -> pd.DataFrame:
    """Sorted `by` name (type, name, version), created, or a figure: numbers before texts, those
    without it last. InputError where no artifact has the figure."""
    keys = {"name": [], "created": ["created"]}.get(by)
    if keys is None:
        if (column := f"{FIGURE}{by}") not in artifacts:
            known = sorted(_figure_table(artifacts))
            raise InputError(
                f"sort={by}: no artifact has this figure.{did_you_mean(by, known)} Figures: "
                f"{', '.join(known[:40])}"
            )
        values, keys = artifacts[column], ["_numbers", "_texts"]
        artifacts = artifacts.assign(
            _numbers=pd.to_numeric(values, errors="coerce"),
            _texts=values.where(values.map(lambda value: isinstance(value, str))),
        )
    ordered = artifacts.sort_values([*keys, "type", "name", "version"], ascending=not descending)
    return ordered.drop(columns=["_numbers", "_texts"], errors="ignore")


def lineage(
    reference: str, manifests: Iterable[Manifest], *, upwards: bool
) -> list[dict[str, Any]]:
    """What an artifact was made from (`upwards`) or what was made from it, and so on, each below
    what it belongs to.

    Columns: depth (1 for its own inputs) · reference · known (in the registry still) · repeated
    (what is below it stands further up).
    """
    below: dict[str, list[str]] = {}
    known, seen = set(), {reference}
    for m in manifests:
        known.add(m.reference)
        for one in dict.fromkeys(m.inputs):
            above, under = (m.reference, one) if upwards else (one, m.reference)
            below.setdefault(above, []).append(under)

    def under_it(above: str, depth: int) -> Iterator[dict[str, Any]]:
        for one in below.get(above, []):
            repeated = one in seen and one in below
            seen.add(one)
            yield {"depth": depth, "reference": one, "known": one in known, "repeated": repeated}
            if not repeated:
                yield from under_it(one, depth + 1)

    return [*under_it(reference, 1)]


# --- How two artifacts differ.


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
            if row := _compare_columns(*pair, both[keys]):
                found.append({"name": column} | row)
    return found


def _is_text(column: pd.Series) -> bool:
    kind = infer_dtype(column, skipna=True)
    return kind in ("string", "empty", "categorical") and not is_numeric_dtype(column)


def _compare_columns(a: pd.Series, b: pd.Series, keys: pd.DataFrame) -> dict[str, Any]:
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
