"""Rollouts of the files that trainers write: a prompt, a response and a reward a row, whatever each
trainer calls them.

Knows files and names of columns; knows no features and no statistics.
"""

import ast
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pessimal.conversation import Turn, plain_text
from pessimal.errors import InputError, did_you_mean, unknown_option
from pessimal.options import check_ends
from pessimal.tables.comparisons import RESPONSES, from_row, numbered_rows
from pessimal.tables.files import read_csv
from pessimal.texts import storable

NAMES: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt", "input", "question", "instruction", "problem", "query", "context"),
    "response": (
        *("completion", "response", "output", "generation", "generated_text", "model_output"),
        *("messages", "conversation", "solution", "answer"),
    ),
    "reward": ("reward", "score", "total_reward", "rewards"),
    "truth": ("truth", "oracle_reward", "is_correct", "correct", "true_reward", "gold_reward"),
    "answer": ("gts", "ground_truth", "gt_answer", "answer", "solution", "target"),
    "group": ("group", "group_id"),
    "step": ("step", "global_step", "training_step"),
    "advantage": ("advantage", "advantages"),
    "response_a": (),
    "response_b": (),
    "label": ("label", "winner", "preferred"),
    "preference": ("preference", "overall_preference", "preference_strength"),
}
"""Columns by what they hold, as trainers and data sets call them; the first one present counts."""
PAIRS = (*RESPONSES, ("chosen", "rejected"), ("output_1", "output_2"))
SIDES = (("a", "b"), ("1", "2"), ("chosen", "rejected"))
"""Pieces of the names of two columns with the rewards of the responses of a pair."""
ENDINGS = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv", ".tsv", ".eval")
PARTS = ("answer", "thought", "all")
REWARD = re.compile(r"reward|score|(^|_)acc(uracy)?$", re.IGNORECASE)
"""Names of columns that are taken for rewards besides those of `NAMES`."""
SHARES = {
    **dict.fromkeys(("a", "a>b", "a>>b", "model_a", "response_a", "chosen"), 0.0),
    **dict.fromkeys(("b", "b>a", "b>>a", "model_b", "response_b", "rejected"), 1.0),
    **dict.fromkeys(("tie", "a=b", "both", "tie (bothbad)"), 0.5),
}
"""The share of a preference that goes to the second response, by labels in small letters."""
WORDS = {"true": 1.0, "false": 0.0, **dict.fromkeys(("", "nan", "null", "none", "na"), math.nan)}
"""Numbers that are written as words."""
LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Scores of inspect."""
_THOUGHT = re.compile(r"<think>\n*(.*?)\n*(?:</think>\n*|\Z)", re.DOTALL)
_KNOWN = {*NAMES, *(name for names in NAMES.values() for name in names)}


@dataclass(frozen=True)
class Rollouts:
    """Rollouts of one source, a row each."""

    frame: pd.DataFrame
    """prompt, response (texts), reward (float), group (int from 0), and where the source has them
    step (int), truth (float), answer (text), advantage (float) and the columns of `rewards`. The
    index counts from 0. Where the source has no reward at all, `reward` is not a number."""
    rewards: tuple[str, ...]
    """Further reward columns of the frame; ("reward",) where there is one, () where none."""
    source: str
    """TRL, verl, verifiers, inspect, W&B table, pairs or table."""
    pairs: bool
    """Whether the groups are pairs, each of two rows."""
    notes: tuple[str, ...]
    """Whole sentences on the rows that are left out and on the column that is the reward."""


def read_rollouts(
    path: str | Path, columns: Mapping[str, str] | None = None, where: str = "answer"
) -> Rollouts:
    """The rollouts of a file, or of a folder with a file for each step.

    Args:
        columns: the file's columns by the keys of `NAMES`; others are recognised by their names.
        where: the part of a response that counts: `answer` is all outside of <think>…</think>,
            `thought` all inside, `all` both.

    Raises:
        InputError: the file cannot be read, or its columns are not those of rollouts.
    """
    tables, kinds = list[pd.DataFrame](), list[tuple[str, dict[str, str]]]()
    for file in (files := _list_files(Path(path).expanduser())):
        source, table = _read_table(file)
        kinds.append((source, _find_columns(table, columns or {}, str(file))))
        if kinds[-1] != kinds[0]:
            raise InputError(
                f"{file} is of another kind ({kinds[-1]}) than {files[0].name} ({kinds[0]}). Give "
                "a folder with files of one kind, or one file"
            )
        number = re.findall(r"step[_-]?(\d+)", str(file)) or re.findall(r"\d+", file.stem)
        if len(files) > 1 and "step" not in kinds[0][1] and number:
            table["step"] = int(number[-1])
        tables.append(table)
    whole = pd.concat(tables, ignore_index=True)
    return _make_rollouts(whole, columns or {}, where, kinds[0][0], str(path))


def rollouts_of(
    frame: pd.DataFrame,
    columns: Mapping[str, str] | None = None,
    where: str = "answer",
    *,
    source: str = "table",
) -> Rollouts:
    """The rollouts of a table in memory. Arguments and errors as of `read_rollouts`."""
    return _make_rollouts(frame.rename(columns=str), columns or {}, where, source, "the table")


def _make_rollouts(
    frame: pd.DataFrame, columns: Mapping[str, str], where: str, source: str, place: str
) -> Rollouts:
    """The rollouts of a table; `place` is what messages call it."""
    if where not in PARTS:
        raise InputError(f"where={where!r}: type one of {', '.join(PARTS)}")
    frame = frame.reset_index(drop=True)
    names, notes = _find_columns(frame, columns, place), list[str]()
    pairs, trainer = "response_a" in names, _guess_trainer(frame)
    if source == "table":
        source = "pairs" if pairs else trainer or source
    if pairs:
        rows, rewards = _read_pairs(frame, names, notes, place), ["reward"]
    else:
        rows = _read_texts(frame, names)
        rewards = _add_rewards(rows, frame, names, trainer or source, notes, place)
        for key in ("truth", "advantage", "step"):
            if key in names:
                rows[key] = _read_numbers(frame[names[key]], names[key], place)
        if "answer" in names:
            rows["answer"] = frame[names["answer"]].map(_read_text)
        if "group" in names:
            rows["group"] = frame[names["group"]].map(str)
    opened = rows["prompt"].str.rstrip().str.endswith("<think>")
    rows["response"] = list(map(_cut_part, rows["response"], opened, [where] * len(rows)))
    empty, part = ~rows["response"].str.strip().astype(bool), where.replace("all", "response")
    unpaid = ~np.isfinite(rows["reward"]) & bool(rewards)
    unclear = rows["step"].isna() if "step" in rows else empty & False
    omitted = pd.Series(False, rows.index)
    for rejected, reason in (
        (unpaid, "no finite reward"),
        (empty, f"an empty {part}"),
        (unclear, "no step"),
    ):
        if count := int((rejected & ~omitted).sum()):
            notes.append(f"Of {len(rows):,} rows {count:,} with {reason} are left out.")
        omitted |= rejected
    if pairs:
        omitted = omitted.groupby(rows["group"]).transform("any")
    rows = rows[~omitted].reset_index(drop=True)
    if rows.empty:
        options = f"columns.response=NAME, columns.reward=NAME or where={'|'.join(PARTS)}"
        raise _refuse(place, f"no rollout is left. {' '.join(notes)} Type {options}", frame)
    if "step" in rows:
        rows["step"] = rows["step"].astype(int)
    rows["group"] = pd.factorize(rows["group"])[0]
    return Rollouts(rows, tuple(rewards), source, pairs, tuple(notes))


def _refuse(place: str, message: str, frame: pd.DataFrame) -> InputError:
    return InputError(f"{place}: {message}. Its columns: {', '.join(frame.columns) or 'none'}")


def _list_files(path: Path) -> list[Path]:
    """The file, or the files of a folder in the order of the numbers in their names."""
    check_ends("path", path)
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    files = [file for file in files if file.name.endswith(ENDINGS) and file.name[0] != "."]
    # verifiers writes the options of a run beside its results.
    files = [file for file in files if file.name != "metadata.json" and "configs" not in file.parts]
    if not files:
        raise InputError(f"{path} is no file or folder of files in {', '.join(ENDINGS)}")
    return sorted(files, key=lambda file: re.sub(r"\d+", lambda m: m[0].zfill(12), str(file)))


def _read_table(file: Path) -> tuple[str, pd.DataFrame]:
    """The source of a file, as far as its shape says it, and its rows."""
    if file.suffix in (".csv", ".tsv"):
        return "table", read_csv(file, "\t" if file.suffix == ".tsv" else ",")
    document = _read_document(file) if file.suffix in (".json", ".eval") else None
    if isinstance(document, dict) and {"columns", "data"} <= document.keys():
        return "W&B table", pd.DataFrame(document["data"], columns=document["columns"])
    if isinstance(document, dict) and "samples" in document:
        return "inspect", pd.DataFrame(map(_read_sample, document["samples"] or ()))
    records = list[Mapping[str, Any]]()
    for number, row in numbered_rows(file, "path"):
        if isinstance(row, InputError):
            raise row
        if not isinstance(row, Mapping):
            raise InputError(f"{file}, line {number} holds {row!r:.80}; expected an object")
        records.append(row)
    if records and "traces" in records[0]:
        return "verifiers", pd.DataFrame(
            _read_trace(trace, row) for row in records for trace in row["traces"]
        )
    return "table", pd.DataFrame.from_records(records)


def _read_document(file: Path) -> Any:
    if file.suffix == ".eval":
        try:
            from inspect_ai.log import read_eval_log
        except ModuleNotFoundError as error:
            raise InputError(
                f"{file} is a log that the package inspect-ai reads. Type: pip install inspect-ai; "
                f"or turn it into .json: inspect log convert {file} --to json --output-dir FOLDER"
            ) from error
        return read_eval_log(str(file), resolve_attachments=True).model_dump(mode="json")
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {error}") from error


def _read_sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample of an inspect log as a row."""
    choices = (sample.get("output") or {}).get("choices")
    row = {"prompt": sample["input"], "response": [choices[0]["message"]] if choices else ""}
    row |= {"answer": sample.get("target"), "group": sample["id"]}
    for scorer, score in (sample.get("scores") or {}).items():
        value = score["value"]
        for key, number in (value if isinstance(value, Mapping) else {"": value}).items():
            name = _name_reward(f"{scorer}/{key}".rstrip("/"))
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
        row[_name_reward(name)] = reward and reward["score"] * reward.get("weight", 1.0)
    return row


def _name_reward(name: str) -> str:
    """The name of a reward as a column, which is not taken for something else."""
    return f"score/{name}" if name in _KNOWN else name


def _guess_trainer(frame: pd.DataFrame) -> str | None:
    """The trainer that writes such columns."""
    present = set(frame.columns)
    if {"input", "output", "score", "step"} <= present:
        return "verl"
    if {"prompt", "completion", "reward"} <= present and {"example_id", "task"} & present:
        return "verifiers"
    return "TRL" if {"step", "prompt", "completion"} <= present else None


def _find_columns(frame: pd.DataFrame, columns: Mapping[str, str], place: str) -> dict[str, str]:
    """The table's columns by the keys of `NAMES`, as they were named or are recognised."""
    present = list(frame.columns)
    if twice := sorted({name for name in present if present.count(name) > 1}):
        raise _refuse(place, f"two columns are called {', '.join(twice)}", frame)
    if frame.empty:
        raise _refuse(place, "there are no rows", frame)
    for key, name in columns.items():
        if key not in NAMES:
            raise InputError(unknown_option(f"columns.{key}", key, list(NAMES)))
        if name not in present and not (key == "reward" and name in _find_scores(present)):
            guess = did_you_mean(name, present)
            raise _refuse(place, f"columns.{key}={name!r} is no column{guess}", frame)
        if list(columns.values()).count(name) > 1:
            raise InputError(f"columns.{key}={name!r} is given twice: name each column once")
    pair = next((pair for pair in PAIRS if {*pair} <= {*present}), ())
    names = dict(zip(("response_a", "response_b"), pair, strict=False)) | dict(columns)
    if "response" in columns or len({"response_a", "response_b"} & names.keys()) == 1:
        names = dict(columns)
    spelling = {name.lower(): name for name in reversed(present)}
    for key, candidates in NAMES.items():
        free = (spelling[name] for name in candidates if name in spelling)
        column = next((name for name in free if name not in names.values()), None)
        if column and key not in names and not (key == "response" and "response_a" in names):
            names[key] = column
    text = names.get("response", names.get("response_a"))
    if text is None or ("response" not in names and "response_b" not in names):
        options = "columns.response=NAME, or columns.response_a=NAME and columns.response_b=NAME"
        raise _refuse(place, f"no column is recognised as the response: type {options}", frame)
    if "prompt" not in names and not any(map(_read_turns, frame[text].head())):
        message = "no column is recognised as the prompt: type columns.prompt=NAME"
        raise _refuse(place, message, frame)
    return names


def _find_scores(present: Sequence[str]) -> dict[str, list[str]]:
    """Two columns with the rewards of the responses of pairs, by what their names share."""
    scores = dict[str, list[str]]()
    for ((first, second), column), end in product(product(SIDES, present), (0, -1)):
        pieces = re.split("([:_])", column)
        if len(pieces) > 1 and pieces[end].lower() == first:
            stem = column[len(first) + 1 :] if end == 0 else column[: -len(first) - 1]
            pieces[end] = second.upper() if pieces[end].isupper() else second
            partner = "".join(pieces)
            if partner in present and (":" in column or REWARD.search(stem)):
                scores[stem] = [column, partner]
    return scores


def _read_turns(value: Any) -> list[Turn]:
    """The messages of a list of them, or of its JSON or Python text; none of any other value. What
    a model thought stands in <think>…</think>; images are left out."""
    if isinstance(value, str):
        if not re.match(r"\s*\[\s*\{.*role", value, re.DOTALL):
            return []
        try:
            value = json.loads(value)
        except ValueError:
            try:
                value = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                return []
    messages = list(value) if isinstance(value, list | tuple | np.ndarray) else []
    if not all(isinstance(message, Mapping) and "role" in message for message in messages):
        return []
    turns = list[Turn]()
    for message in messages:
        content = message.get("content")
        parts = [content] if isinstance(content, str | None) else list(content)
        thought, text = message.get("reasoning_content") or message.get("reasoning") or "", ""
        for part in parts:
            if isinstance(part, Mapping):
                thought += part.get("reasoning") or part.get("thinking") or ""
                part = part.get("text")
            text += part or ""
        text = f"<think>\n{thought}\n</think>\n\n{text}" if thought else text
        turns.append(Turn(str(message["role"]), storable(text)))
    return turns


def _read_texts(frame: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """prompt, response and group (the prompt as the source has it) of each row."""
    rows = list[tuple[str, str, str]]()
    prompts = frame[names["prompt"]] if "prompt" in names else [None] * len(frame)
    for prompt, response in zip(prompts, frame[names["response"]], strict=True):
        turns = _read_turns(response) or [Turn("assistant", _read_text(response))]
        before = _read_turns(prompt) or [Turn("user", _read_text(prompt))]
        if prompt is None or turns[0].role in ("system", "user"):  # the whole conversation
            before = []
        speakers = [number for number, turn in enumerate(turns) if turn.role == "assistant"]
        end = speakers[-1] if speakers else len(turns) - 1
        text = _write_prompt([*before, *turns[:end]])
        rows.append((text, turns[end].content, text if prompt is None else str(prompt)))
    return pd.DataFrame(rows, columns=["prompt", "response", "group"])


def _write_prompt(turns: Sequence[Turn]) -> str:
    return turns[0].content if len(turns) == 1 else plain_text(tuple(turns))


def _read_text(cell: object) -> str:
    """A cell as a text; of a list the first; nothing of a missing one."""
    if isinstance(cell, list | tuple | np.ndarray):
        return _read_text(next(iter(cell), None))
    missing = cell is None or (isinstance(cell, float) and math.isnan(cell))
    return "" if missing else storable(str(cell))


def _cut_part(text: str, opened: bool, where: str) -> str:
    """The answer, the thought or all of a response; `opened` where its prompt opens the thought."""
    if where == "all":
        return text
    if opened or ("<think>" not in text.partition("</think>")[0] and "</think>" in text):
        text = f"<think>{text}"
    if where == "thought":
        return "\n".join(match[1] for match in _THOUGHT.finditer(text))
    return _THOUGHT.sub("", text)


def _read_number(cell: Any) -> float | None:
    """A cell as a number, not a number for a missing one; None where it is none."""
    try:
        cell = WORDS.get(cell.strip().lower(), cell) if isinstance(cell, str) else cell
        return math.nan if cell is None else float(cell)
    except (TypeError, ValueError):
        return None


def _read_numbers(column: pd.Series, name: str, place: str) -> pd.Series:
    """A column as floats; InputError for a cell that is no number."""
    numbers = list(map(_read_number, column))
    if None in numbers:
        row = numbers.index(None)
        cell = f"{column.iloc[row]!r:.80}"
        raise InputError(f"{place}, row {row + 1}: {name} is {cell}; expected a number")
    return pd.Series(numbers, column.index, dtype=float)


def _add_rewards(
    rows: pd.DataFrame,
    frame: pd.DataFrame,
    names: Mapping[str, str],
    source: str,
    notes: list[str],
    place: str,
) -> list[str]:
    """Add the reward and the further reward columns to the rows; gives the names of the latter."""
    total = names.get("reward", names.get("preference"))
    metrics = frame["metrics"].iloc[0] if "metrics" in frame else None  # verifiers' by their names
    metrics = metrics if isinstance(metrics, Mapping) else {}
    written = all(isinstance(cell, str) for cell in frame.iloc[0])  # a CSV file: texts alone
    parts = dict[str, pd.Series]()
    for name in frame.columns.difference(list(names.values()), sort=False):
        every = source in ("TRL", "verl", "inspect") or (source == "verifiers" and total is None)
        texts = [cell for cell in frame[name] if isinstance(cell, str)]
        numbers = list(map(_read_number, frame[name]))
        if (
            None in numbers
            or (texts and not written)
            or not (every or name in metrics or REWARD.search(name))
        ):
            continue
        if name in NAMES:
            notes.append(f"The column {name} is left out, as {total} stands under its name.")
        elif not np.isnan(np.array(numbers, dtype=float)).all():
            parts[name] = pd.Series(numbers, dtype=float)
    if total is not None:
        rows["reward"] = _read_numbers(frame[total], total, place)
        parts = {name: part for name, part in parts.items() if not part.equals(rows["reward"])}
    elif parts:
        rows["reward"] = pd.DataFrame(parts).sum(axis=1, min_count=1)
        noun = "sum of the columns" if len(parts) > 1 else "column"
        notes.append(f"The reward is the {noun} {', '.join(parts)}.")
        parts = parts if len(parts) > 1 else {}
    elif "truth" in names or "answer" in names:
        rows["reward"] = math.nan
        notes.append("No column is a reward: type columns.reward=NAME, or give a grader.")
        return []
    else:
        message = "no column is recognised as the reward: type columns.reward=NAME"
        raise _refuse(place, message, frame)
    for name, part in parts.items():
        rows[name] = part
    return list(parts) or ["reward"]


def _read_pairs(
    frame: pd.DataFrame, names: Mapping[str, str], notes: list[str], place: str
) -> pd.DataFrame:
    """Two rows for each pair: prompt, response, reward, group, step, and truth where there are both
    scores and a label."""
    scores, label = _find_scores(list(frame.columns)), names.get("preference", names.get("label"))
    choice = names.get("reward", next(iter(scores)) if len(scores) == 1 else None)
    if scores and choice is None:
        options = ", ".join(scores)
        raise _refuse(place, f"type columns.reward=NAME with one of {options}", frame)
    values, shares = dict[str, list[pd.Series]](), None
    if choice in scores:
        values["reward"] = [_read_numbers(frame[name], name, place) for name in scores[choice]]
    elif choice is not None:
        label = choice
    if label is not None:
        shares = _read_shares(frame[label], label, place)
    elif names["response_a"] == "chosen":
        shares = pd.Series(0.0, frame.index)
    if shares is not None:
        values["truth" if values else "reward"] = [1 - shares, shares]
    if not values:
        options = "columns.label=NAME, columns.preference=NAME or columns.reward=NAME"
        raise _refuse(place, f"nothing says which response is preferred: type {options}", frame)
    rows, broken = list[dict[str, Any]](), list[InputError]()
    fields = {"prompt": "prompt", "response_a": "chosen", "response_b": "rejected"}
    for number, row in enumerate(frame.to_dict("records")):
        texts = {fields[key]: row[names[key]] for key in fields if key in names}
        try:
            pair = from_row(texts, where=f"row {number + 1}", key=str(number))
        except InputError as error:
            broken.append(error)
            continue
        for side, response in enumerate(pair.responses):
            rollout = {"prompt": _write_prompt(pair.turns), "response": response, "group": number}
            rollout |= {name: sides[side][number] for name, sides in values.items()}
            rollout |= {"step": _read_number(row[names["step"]])} if "step" in names else {}
            rows.append(rollout)
    if broken:
        notes.append(f"Of {len(frame):,} pairs {len(broken):,} are left out. First: {broken[0]}.")
    if not rows:
        raise _refuse(place, f"no pair can be read. First: {broken[0]}", frame)
    if not choice:
        reason = f"by the column {label}" if label else "the chosen one has 1"
        notes.append(f"The rewards of a pair are shares of the preference: {reason}.")
    return pd.DataFrame(rows)


def _read_shares(column: pd.Series, name: str, place: str) -> pd.Series:
    """The share of a preference that goes to the second response, from labels (a, A>B, tie) or
    from numbers that are larger the better the second is: from 0 to 1, 1 to 2 or -3 to 3."""
    cells = [SHARES.get(str(cell).strip().lower(), cell) for cell in column]
    numbers = _read_numbers(pd.Series(cells, column.index, dtype=object), name, place)
    low, high = numbers.min(), numbers.max()
    if low >= 0 and high <= 1 and (low < 1 or cells[0] != column.iloc[0]):
        return numbers
    if low >= 1 and 1 < high <= 2:
        return numbers - 1
    if -3 <= low < 0 and high <= 3:
        return 0.5 + numbers / 6
    raise InputError(
        f"{place}: {name} is from {low:g} to {high:g}; expected labels (a, b, A>B, tie) or numbers "
        "from 0 to 1, 1 to 2 or -3 to 3, larger where the second response is better"
    )
