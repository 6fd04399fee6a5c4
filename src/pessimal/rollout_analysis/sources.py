"""The files in which trainers keep rollouts, as tables with a row each.

Knows the layouts of files; does not know which column is what.
"""

import importlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pessimal.errors import InputError
from pessimal.rollout_analysis.columns import name_reward
from pessimal.tables.comparisons import numbered_rows
from pessimal.tables.files import read_csv

ENDINGS = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv", ".tsv", ".eval")
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Scores of inspect."""


def list_files(path: Path) -> list[Path]:
    """The file, or the files of a folder in the order of the numbers in their names."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    files = [file for file in files if file.name.endswith(ENDINGS) and file.name[0] != "."]
    # verifiers writes the options of a run beside its results.
    files = [file for file in files if file.name != "metadata.json" and "configs" not in file.parts]
    if not files:
        raise InputError(f"{path}: give a file or a folder of files in {', '.join(ENDINGS)}")
    return sorted(files, key=lambda file: re.sub(r"\d+", lambda m: m[0].zfill(12), str(file)))


def read_table(file: Path) -> tuple[str, pd.DataFrame]:
    """The source of a file, as far as its shape says it, and its rows."""
    if file.suffix in (".csv", ".tsv"):
        return "table", _read_cells(file)
    document = _read_document(file) if file.suffix in (".json", ".eval") else None
    document = document if isinstance(document, dict) else {}
    fields, source = document.keys(), "table"
    records: list[Any] = []
    if not ({"columns", "data"} <= fields or "samples" in fields):
        for number, row in numbered_rows(file, "path"):
            if isinstance(row, InputError):
                raise row
            if not isinstance(row, Mapping):
                raise InputError(f"{file}, line {number} holds {row!r:.80}; expected an object")
            records.append(row)
    try:
        if {"columns", "data"} <= fields:
            source = "W&B table"
            return source, _read_logged_table(document["columns"], document["data"])
        if "samples" in fields:
            source = "inspect"
            records = [*map(_read_sample, document["samples"] or ())]
        elif records and "traces" in records[0]:
            source = "verifiers"
            records = [_read_trace(trace, row) for row in records for trace in row["traces"]]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{file} is not laid out as a file of {source}: {error!r}") from error
    # As objects: a text may hold half a character, which no column of texts takes.
    return source, pd.DataFrame(records, dtype=object)


def _read_cells(file: Path) -> pd.DataFrame:
    """A CSV or TSV file; pandas would shift a row with too many cells and rename a column."""
    table = read_csv(file, "\t" if file.suffix == ".tsv" else ",")
    if not isinstance(table.index, pd.RangeIndex):
        raise InputError(f"{file} has rows with more cells than its first line has names")
    if twice := [name for name in table if f"{name}.1" in table]:
        raise InputError(f"{file}: two columns are called {', '.join(twice)}")
    return table


def _read_document(file: Path) -> Any:
    if file.suffix == ".eval":
        try:
            read_eval_log = importlib.import_module("inspect_ai.log").read_eval_log
        except ModuleNotFoundError as error:
            raise InputError(
                f"{file} is a log that the package inspect-ai reads. Type: pip install inspect-ai; "
                f"or turn it into .json: inspect log convert {file} --to json --output-dir FOLDER"
            ) from error
        try:
            return read_eval_log(str(file), resolve_attachments=True).model_dump(mode="json")
        except Exception as error:  # of zip files, of JSON, of its own schema
            raise InputError(f"{file} is not a log that inspect can read: {error}") from error
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {error}") from error


def _read_logged_table(columns: list, data: list) -> pd.DataFrame:
    """A table of W&B. verl logs a row for each step, with the columns step, input_1, output_1,
    score_1, input_2 and so on."""
    table = pd.DataFrame(data, columns=columns, dtype=object)
    names = ["input", "output", "score"]
    if columns[:4] != ["step", *(f"{name}_1" for name in names)]:
        return table
    blocks = [
        table[["step", *columns[start : start + 3]]].set_axis(["step", *names], axis=1)
        for start in range(1, len(columns), 3)
    ]
    return pd.concat(blocks, ignore_index=True)


def _read_sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample of an inspect log as a row."""
    choices = (sample.get("output") or {}).get("choices")
    row = {"prompt": sample["input"], "response": [choices[0]["message"]] if choices else ""}
    row |= {"answer": sample.get("target"), "group": sample["id"]}
    for scorer, score in (sample.get("scores") or {}).items():
        value = score["value"]
        for key, number in (value if isinstance(value, Mapping) else {"": value}).items():
            name = name_reward(f"{scorer}/{key}".rstrip("/"))
            row[name] = LETTERS.get(number, number) if isinstance(number, str) else number
    return row


def _read_trace(trace: Mapping[str, Any], episode: Mapping[str, Any]) -> dict[str, Any]:
    """A trace of verifiers as a row: the path to the last message, and its weighted rewards."""
    path, node = list[Any](), len(trace["nodes"]) - 1
    while node is not None and node >= 0:
        path.insert(0, trace["nodes"][node]["message"])
        node = trace["nodes"][node].get("parent")
    task = trace["task"]
    row = {"messages": path, "answer": task["data"].get("answer")}
    row["group"] = task.get("key") or task.get("hash") or json.dumps(task["data"])
    if step := ((episode.get("run") or {}).get("work") or {}).get("step"):
        row["step"] = step
    for name, reward in (trace.get("rewards") or {}).items():
        row[name_reward(name)] = reward and reward["score"] * reward.get("weight", 1.0)
    return row
