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
        *("messages", "conversation"),
        *("solution", "answer"),  # where nothing else is the response
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
"""What the names of two columns differ in that hold a reward for each response of a pair."""
PARTS = ("answer", "thought", "all")
ENDINGS = (".parquet", ".jsonl", ".jsonl.gz", ".json", ".csv", ".tsv", ".eval")
REWARD = re.compile(r"reward|score|(^|_)acc(uracy)?$", re.IGNORECASE)
"""Names of columns that are taken for rewards besides those of `NAMES`."""
COUNTS = re.compile(r"(^|_)(id|idx|index|epoch|ms|seconds|tokens|length|len)$", re.IGNORECASE)
"""Names of numeric columns that no trainer means as rewards."""
LABELS = {
    **dict.fromkeys(("a", "a>b", "a>>b", "model_a", "response_a", "chosen"), 0.0),
    **dict.fromkeys(("b", "b>a", "b>>a", "model_b", "response_b", "rejected"), 1.0),
    **dict.fromkeys(("tie", "a=b", "both", "tie (bothbad)"), 0.5),
}
"""The share of a preference that goes to the second response, by labels in small letters."""
_WORDS = {"true": 1.0, "false": 0.0, **dict.fromkeys(("", "nan", "null", "none", "na"), math.nan)}
"""Numbers that are written as words."""
_THOUGHT = re.compile(r"<think>\n*(.*?)\n*(?:</think>\n*|\Z)", re.DOTALL)


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
    """What was left out and why, and what was taken for the reward, as whole sentences."""


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
    files = _list_files(Path(path).expanduser())
    tables, kinds = list[pd.DataFrame](), list[tuple[str, dict[str, str]]]()
    for file in files:
        source, table = _read_table(file)
        try:
            kinds.append((source, _find_columns(table, columns or {})))
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
        if kinds[-1] != kinds[0]:
            heads = [f"{source} with {_list_names(names)}" for source, names in kinds]
            raise InputError(
                f"{file} is a {heads[-1]}, and {files[0].name} is a {heads[0]}. Give a folder with "
                "files of one kind, or one file"
            )
        number = re.findall(r"step[_-]?(\d+)", str(file)) or re.findall(r"\d+", file.stem)
        if len(files) > 1 and "step" not in kinds[0][1] and number:
            table["step"] = int(number[-1])
        tables.append(table)
    try:
        return rollouts_of(pd.concat(tables, ignore_index=True), columns, where, source=kinds[0][0])
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def rollouts_of(
    frame: pd.DataFrame,
    columns: Mapping[str, str] | None = None,
    where: str = "answer",
    *,
    source: str = "table",
) -> Rollouts:
    """The rollouts of a table in memory. Arguments and errors as of `read_rollouts`."""
    if where not in PARTS:
        raise InputError(f"where={where!r}: type one of {', '.join(PARTS)}")
    frame = frame.rename(columns=str).reset_index(drop=True)
    names, notes = _find_columns(frame, columns or {}), list[str]()
    pairs, trainer = "response_a" in names, _guess_trainer(frame)
    if source == "table":
        source = "pairs" if pairs else trainer or source
    rewards: tuple[str, ...] = ("reward",)
    if pairs:
        rows = _read_pairs(frame, names, notes)
    else:
        rows = _read_texts(frame, names)
        rewards = _add_rewards(rows, frame, names, trainer or source, notes)
        for key in {"truth", "advantage"} & names.keys():
            rows[key] = _read_numbers(frame[names[key]], names[key])
        if "answer" in names:
            rows["answer"] = [_first_text(cell) for cell in frame[names["answer"]]]
        if "group" in names:
            rows["group"] = frame[names["group"]].map(str)
        if "step" in names:
            rows["step"] = _read_numbers(frame[names["step"]], names["step"])
    opened = rows["prompt"].str.rstrip().str.endswith("<think>")
    rows["response"] = list(map(_cut_part, rows["response"], opened, [where] * len(rows)))
    unpaid = ~np.isfinite(rows["reward"]) & bool(rewards)
    empty = ~rows["response"].str.strip().astype(bool) & ~unpaid
    part = "thought" if where == "thought" else "response"
    for rejected, reason in ((unpaid, "has no finite reward"), (empty, f"has an empty {part}")):
        if count := int(rejected.sum()):
            notes.append(f"Of {len(rows):,} rows {count:,} are left out: each {reason}.")
    rejected = unpaid | empty
    if pairs:
        rejected = rejected.groupby(rows["group"]).transform("any")
    rows = rows[~rejected].reset_index(drop=True)
    if rows.empty:
        raise InputError(
            f"no rollout is left. {' '.join(notes)} Type columns.response=NAME, columns.reward="
            f"NAME or where={'|'.join(PARTS)}. {_list_columns(frame)}"
        )
    if "step" in rows:
        if rows["step"].isna().any():
            raise InputError(f"the column {names['step']} lacks the step of some rows")
        rows["step"] = rows["step"].astype(int)
    rows["group"] = pd.factorize(rows["group"])[0]
    return Rollouts(rows, rewards, source, pairs, tuple(notes))


def _list_files(path: Path) -> list[Path]:
    """The file, or the files of a folder in the order of the numbers in their names."""
    check_ends("path", path)
    names = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    files = [file for file in names if not file.name.startswith(".")]
    files = [file for file in files if file.name != "metadata.json"]  # verifiers' of its options
    if not files:
        raise InputError(f"{path} is no file, and no folder with files: give one of either")
    return sorted(
        files,
        key=lambda file: [
            (int(part), "") if part.isdigit() else (-1, part)
            for part in re.split(r"(\d+)", str(file))
        ],
    )


def _read_table(file: Path) -> tuple[str, pd.DataFrame]:
    """The source of a file, as far as its ending says it, and its rows."""
    if not file.name.endswith(ENDINGS):
        raise InputError(f"{file} does not end in one of {', '.join(ENDINGS)}")
    if file.suffix in (".csv", ".tsv"):
        return "table", read_csv(file, "\t" if file.suffix == ".tsv" else ",")
    document = _read_document(file) if file.suffix in (".json", ".eval") else None
    if isinstance(document, dict) and {"columns", "data"} <= document.keys():
        table = pd.DataFrame(document["data"], columns=document["columns"])
        return "W&B table", table
    if isinstance(document, dict) and "samples" in document:
        return "inspect", pd.DataFrame(map(_read_sample, document["samples"] or ()))
    records = list[Mapping[str, Any]]()
    for number, row in numbered_rows(file, "path"):
        if isinstance(row, InputError):
            raise row
        if not isinstance(row, Mapping):
            raise InputError(f"{file}, line {number} holds {row!r:.80}; expected an object")
        records.append(row)
    if not records:
        raise InputError(f"{file} has no rows")
    return "table", pd.DataFrame.from_records(records)


def _read_document(file: Path) -> Any:
    if file.suffix == ".eval":
        try:
            from inspect_ai.log import read_eval_log
        except ModuleNotFoundError as error:
            raise InputError(
                f"{file} is a log of inspect, which inspect reads itself. Type: pip install "
                f"inspect-ai; or: inspect log convert --to json --output-dir FOLDER {file}"
            ) from error
        return read_eval_log(str(file), resolve_attachments=True).model_dump(mode="json")
    try:
        return json.loads(file.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file} is not JSON: {error}") from error


def _read_sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample of an inspect log as a row; its letters C, P, I and N are 1, 1/2, 0 and 0."""
    letters = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
    choices = (sample.get("output") or {}).get("choices") or [{}]
    row = {
        "prompt": sample["input"],
        "response": [choices[0]["message"]] if choices[0] else "",
        "answer": sample.get("target"),
        "group": sample["id"],
    }
    for scorer, score in (sample.get("scores") or {}).items():
        value = score["value"]
        values = value if isinstance(value, Mapping) else {"": value}
        for key, item in values.items():
            row["/".join(filter(None, (scorer, key)))] = (
                letters.get(item, item) if isinstance(item, str) else item
            )
    return row


def _find_columns(frame: pd.DataFrame, columns: Mapping[str, str]) -> dict[str, str]:
    """The table's columns by the keys of `NAMES`, as they were named or are recognised."""
    present = list(frame.columns)
    if twice := sorted({name for name in present if present.count(name) > 1}):
        raise InputError(f"two columns are called {', '.join(twice)}. {_list_columns(frame)}")
    stems = _find_stems(present)
    for key, name in columns.items():
        if key not in NAMES:
            raise InputError(unknown_option(f"columns.{key}", key, list(NAMES)))
        if name not in present and not (key == "reward" and name in stems):
            guess = did_you_mean(name, present)
            raise InputError(
                f"columns.{key}={name!r}: there is no such column.{guess} {_list_columns(frame)}"
            )
        if others := [other for other, column in columns.items() if column == name != key != other]:
            raise InputError(f"columns.{key} and columns.{others[0]} both name {name!r}")
    if not len(frame):
        raise InputError(f"there are no rows. {_list_columns(frame)}")
    names, spelling = dict(columns), {name.lower(): name for name in reversed(present)}
    pair = next((pair for pair in PAIRS if {*pair} <= {*present}), ())
    if len({"response_a", "response_b"} & names.keys()) == 1:
        raise InputError("of columns.response_a and columns.response_b one is given: give both")
    if pair and "response" not in names:
        names = {"response_a": pair[0], "response_b": pair[1]} | names
    for key, candidates in NAMES.items():
        free = (spelling[name] for name in candidates if name in spelling)
        column = next((name for name in free if name not in names.values()), None)
        if key not in names and column and not (key == "response" and "response_a" in names):
            names[key] = column
    if not {"response", "response_a"} & names.keys():
        raise InputError(
            "no column is recognised as the response: type columns.response=NAME (or columns."
            f"response_a=NAME and columns.response_b=NAME). {_list_columns(frame)}"
        )
    whole = names.get("response_a", names.get("response", ""))
    if "prompt" not in names and not any(map(_read_turns, frame[whole].head())):
        raise InputError(
            f"no column is recognised as the prompt: type columns.prompt=NAME. "
            f"{_list_columns(frame)}"
        )
    return names


def _find_stems(present: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Two columns with the rewards of both responses of pairs, by what their names share."""
    stems = dict[str, tuple[str, str]]()
    for (first, second), column in ((sides, column) for sides in SIDES for column in present):
        match = re.fullmatch(rf"(.+)([:_]){first}|{first}(_)(.+)", column, re.IGNORECASE)
        if not match:
            continue
        stem = match[1] or match[4]
        other = stem + match[2] + second if match[1] else second + match[3] + stem
        partner = next((name for name in present if name.lower() == other.lower()), None)
        if partner and (match[2] == ":" or REWARD.search(stem)):
            stems[stem] = (column, partner)
    return stems


def _list_columns(frame: pd.DataFrame) -> str:
    return f"Its columns: {', '.join(map(str, frame.columns)) or 'none'}"


def _list_names(names: Mapping[str, str]) -> str:
    return ", ".join(f"{name} as the {key}" for key, name in sorted(names.items()))


def _guess_trainer(frame: pd.DataFrame) -> str | None:
    """The trainer that writes such columns."""
    present = set(frame.columns)
    if {"input", "output", "score", "step"} <= present:
        return "verl"
    if {"prompt", "completion", "reward"} <= present and {"example_id", "task"} & present:
        return "verifiers"
    return "TRL" if {"step", "prompt", "completion"} <= present else None


def _read_turns(value: Any) -> list[Turn]:
    """The messages of a list of them, or of its JSON or Python text; none of any other value. What
    a model thought stands in <think>…</think>; images are left out."""
    if isinstance(value, str) and value.lstrip()[:1] == "[" and "role" in value:
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
    return [Turn(str(message["role"]), _read_content(message)) for message in messages]


def _read_content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    parts = [content] if isinstance(content, str) or content is None else list(content)
    thought = message.get("reasoning_content") or message.get("reasoning") or ""
    text = ""
    for part in parts:
        if isinstance(part, Mapping):
            thought += str(part.get("reasoning") or part.get("thinking") or "")
            part = part.get("text")
        text += str(part or "")
    return f"<think>\n{thought}\n</think>\n\n{text}" if thought else text


def _read_texts(frame: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """prompt, response and group (the prompt as the source has it) of each row."""
    responses = frame[names["response"]].tolist()
    prompts = frame[names["prompt"]].tolist() if "prompt" in names else [None] * len(frame)
    rows = list[tuple[str, str, str]]()
    for prompt, response in zip(prompts, responses, strict=True):
        before = _read_turns(prompt) or [Turn("user", _text(prompt))] * (prompt is not None)
        turns = _read_turns(response) or [Turn("assistant", _text(response))]
        speakers = [number for number, turn in enumerate(turns) if turn.role == "assistant"]
        last = speakers[-1] if speakers else len(turns) - 1
        if turns[0].role in ("user", "system"):  # the whole conversation
            before = []
        before = [*before, *turns[:last]]
        text = _write_prompt(before)
        group = text if prompt is None else str(prompt)
        rows.append((text, turns[last].content, group))
    return pd.DataFrame(rows, columns=["prompt", "response", "group"])


def _write_prompt(turns: Sequence[Turn]) -> str:
    return turns[0].content if len(turns) == 1 else plain_text(tuple(turns))


def _text(cell: object) -> str:
    missing = cell is None or (isinstance(cell, float) and math.isnan(cell))
    return "" if missing else storable(str(cell))


def _first_text(cell: object) -> str:
    """A cell as a text; of a list of answers the first."""
    return _first_text(next(iter(cell), "")) if isinstance(cell, list | tuple) else _text(cell)


def _cut_part(text: str, opened: bool, where: str) -> str:
    """The answer, the thought or all of a response; `opened` where its prompt opens the thought."""
    if where == "all":
        return text
    if opened or ("</think>" in text and "<think>" not in text.partition("</think>")[0]):
        text = f"<think>{text}"
    if where == "thought":
        return "\n".join(match[1] for match in _THOUGHT.finditer(text))
    return _THOUGHT.sub("", text)


def _number(cell: object) -> float | None:
    """A cell as a number; None where it is none."""
    if cell is None:
        return math.nan
    if isinstance(cell, str):
        cell = _WORDS.get(cell.strip().lower(), cell)
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _read_numbers(column: pd.Series, name: str) -> pd.Series:
    """A column as floats; InputError for a cell that is no number."""
    numbers = [_number(cell) for cell in column]
    if None in numbers:
        row = numbers.index(None)
        raise InputError(f"row {row + 1}: {name} is {column.iloc[row]!r:.80}; expected a number")
    return pd.Series(numbers, column.index, dtype=float)


def _add_rewards(
    rows: pd.DataFrame, frame: pd.DataFrame, names: Mapping[str, str], source: str, notes: list[str]
) -> tuple[str, ...]:
    """Add the reward and the further reward columns to the rows; gives the names of these."""
    total = names.get("reward", names.get("preference"))
    free = frame.columns.difference(list(names.values()), sort=False)
    plain = all(isinstance(cell, str) for cell in frame.iloc[0])  # a CSV file has texts alone
    columns = {}
    for name in free:
        texts = frame[name].map(lambda cell: isinstance(cell, str)).any() and not plain
        numbers = [] if texts else [_number(cell) for cell in frame[name]]
        trained = source in ("TRL", "verl", "inspect") and not COUNTS.search(name)
        if (trained or REWARD.search(name)) and numbers and None not in numbers:
            columns[name] = pd.Series(numbers, dtype=float)
    if hidden := [name for name in columns if name in NAMES]:
        notes.append(f"The column {hidden[0]} is left out, as {total} takes its name.")
    parts = {name: column for name, column in columns.items() if name not in NAMES}
    if total is not None:
        rows["reward"] = _read_numbers(frame[total], total)
    elif parts:
        rows["reward"] = pd.DataFrame(parts).sum(axis=1, min_count=1)
        verb = "the sum of the columns" if len(parts) > 1 else "the column"
        notes.append(f"The reward is {verb} {', '.join(parts)}.")
        parts = parts if len(parts) > 1 else {}
    elif {"truth", "answer"} & names.keys():
        rows["reward"] = math.nan
        notes.append("No column is a reward: type columns.reward=NAME, or give a grader.")
        return ()
    else:
        raise InputError(
            f"no column is recognised as the reward: type columns.reward=NAME. "
            f"{_list_columns(frame)}"
        )
    for name, column in parts.items():
        rows[name] = column
    return tuple(parts) or ("reward",)


def _read_pairs(frame: pd.DataFrame, names: Mapping[str, str], notes: list[str]) -> pd.DataFrame:
    """Two rows for each pair: prompt, response, reward, group, and truth where both scores and a
    label are there."""
    stems = _find_stems(list(frame.columns))
    label = next((names[key] for key in ("preference", "label") if key in names), None)
    choice = names.get("reward") or (next(iter(stems), None) if len(stems) < 2 else None)
    if choice is None and len(stems) > 1:
        raise InputError(f"type columns.reward=NAME with one of {', '.join(stems)}")
    shares = None if label is None else _read_shares(frame[label], label)
    truths = None if choice not in stems or shares is None else (1 - shares, shares)
    if choice in stems:
        rewards = [_read_numbers(frame[column], column) for column in stems[choice]]
    else:
        if choice is not None:
            shares, label = _read_shares(frame[choice], choice), choice
        elif shares is None and names["response_a"] == "chosen":
            shares, label = pd.Series(0.0, frame.index), "chosen"
        if shares is None:
            raise InputError(
                "nothing says which response of a pair is preferred: type columns.label=NAME, "
                f"columns.preference=NAME or columns.reward=NAME. {_list_columns(frame)}"
            )
        rewards = [1 - shares, shares]
        notes.append(f"The rewards of a pair are the shares of its preference, by {label}.")
    rows, broken = list[dict[str, Any]](), list[str]()
    for number, row in enumerate(frame.to_dict("records")):
        pair = {"chosen": row[names["response_a"]], "rejected": row[names["response_b"]]}
        pair |= {"prompt": row[names["prompt"]]} if "prompt" in names else {}
        try:
            comparison = from_row(pair, where=f"row {number + 1}", key=str(number))
        except InputError as error:
            broken.append(str(error))
            continue
        prompt = (
            comparison.turns[0].content
            if len(comparison.turns) == 1
            else plain_text(comparison.turns)
        )
        for side, response in enumerate(comparison.responses):
            rollout = {"prompt": prompt, "response": response, "reward": rewards[side][number]}
            rollout["group"] = number
            if truths is not None:
                rollout["truth"] = truths[side][number]
            if "step" in names:
                rollout["step"] = _number(row[names["step"]])
            rows.append(rollout)
    if broken:
        notes.append(
            f"Of {len(frame):,} pairs {len(broken):,} are left out; the first: {broken[0]}."
        )
    if not rows:
        raise InputError(f"no pair can be read; the first: {broken[0]}")
    return pd.DataFrame(rows)


def _read_shares(column: pd.Series, name: str) -> pd.Series:
    """The share of a preference that goes to the second response, from labels (a, A>B, tie) or
    from numbers that are larger the better the second is: from 0 to 1, 1 to 2 or -3 to 3."""
    labels = [
        LABELS.get(cell.strip().lower(), cell) if isinstance(cell, str) else cell for cell in column
    ]
    numbers = _read_numbers(pd.Series(labels, column.index, dtype=object), name)
    low, high = numbers.min(), numbers.max()
    if low >= 0 and high <= 1 and (low < 1 or any(isinstance(cell, str) for cell in column)):
        return numbers
    if low >= 1 and 1 < high <= 2:
        return numbers - 1
    if -3 <= low < 0 and high <= 3:
        return 0.5 + numbers / 6
    raise InputError(
        f"{name} runs from {low:g} to {high:g}; expected labels such as a, b, A>B or tie, or "
        "numbers from 0 to 1, 1 to 2 or -3 to 3, larger where the second response is better"
    )
