"""Columns of tables of rollouts: what each holds, by the names that trainers and data sets give
them; cells as numbers.

Knows no files.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from pessimal.errors import InputError, did_you_mean, unknown_option
from pessimal.rollout_analysis.conversations import PARTS, read_turns
from pessimal.tables.comparisons import RESPONSES

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
REWARD = re.compile(r"reward|score|(^|_)acc(uracy)?$", re.IGNORECASE)
"""Names of columns that are taken for rewards besides those of `NAMES`."""
WORDS = {"true": 1.0, "false": 0.0, **dict.fromkeys(("", "nan", "null", "none", "na"), math.nan)}
"""Numbers that are written as words."""
SHARES = {
    **dict.fromkeys(("a", "a>b", "a>>b", "model_a", "response_a", "chosen"), 0.0),
    **dict.fromkeys(("b", "b>a", "b>>a", "model_b", "response_b", "rejected"), 1.0),
    **dict.fromkeys(("tie", "a=b", "both", "tie (bothbad)"), 0.5),
}
"""The share of a preference that goes to the second response, by labels in small letters."""
_KNOWN = {*NAMES, *(name for names in NAMES.values() for name in names)}


def check_options(columns: Mapping[str, str | None] | None, where: str) -> dict[str, str]:
    """The columns that are named; InputError for a key that is not one of `NAMES`, or for a part of
    a response that there is not."""
    columns = columns or {}
    for key in columns:
        if key not in NAMES:
            raise InputError(unknown_option(f"columns.{key}", key, list(NAMES)))
    if where not in PARTS:
        raise InputError(f"where={where!r}: type one of {', '.join(PARTS)}")
    return {key: name for key, name in columns.items() if name is not None}


def find_columns(frame: pd.DataFrame, columns: Mapping[str, str], place: str) -> dict[str, str]:
    """The table's columns by the keys of `NAMES`, as they were named or are recognised."""
    present = list(frame.columns)
    if twice := sorted({name for name in present if present.count(name) > 1}):
        raise refuse(place, f"two columns are called {', '.join(twice)}", frame)
    if frame.empty:
        raise refuse(place, "there are no rows", frame)
    for key, name in columns.items():
        if name not in present and not (key == "reward" and name in find_scores(present)):
            guess = did_you_mean(name, present)
            raise refuse(place, f"columns.{key}={name!r} is no column{guess}", frame)
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
        single = key in ("response", "reward") and "response_a" in names  # says nothing of a pair
        if column and key not in names and not single:
            names[key] = column
    text = names.get("response", names.get("response_a"))
    if text is None or ("response" not in names and "response_b" not in names):
        options = "columns.response=NAME, or columns.response_a=NAME and columns.response_b=NAME"
        raise refuse(place, f"no column is recognised as the response: type {options}", frame)
    alone = "prompt" not in names and "response_a" not in names
    if alone and not any(map(read_turns, frame[text].head())):
        message = "no column is recognised as the prompt: type columns.prompt=NAME"
        raise refuse(place, message, frame)
    return names


def find_scores(present: Sequence[str]) -> dict[str, list[str]]:
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


def guess_trainer(frame: pd.DataFrame) -> str | None:
    """The trainer that writes such columns."""
    present = set(frame.columns)
    if {"input", "output", "score", "step"} <= present:
        return "verl"
    if {"prompt", "completion", "reward"} <= present and {"example_id", "task"} & present:
        return "verifiers"
    return "TRL" if {"step", "prompt", "completion"} <= present else None


def name_reward(name: str) -> str:
    """The name of a reward as a column, which is not taken for something else."""
    return f"score/{name}" if name in _KNOWN else name


def refuse(place: str, message: str, frame: pd.DataFrame) -> InputError:
    return InputError(f"{place}: {message}. Its columns: {', '.join(frame.columns) or 'none'}")


def read_number(cell: Any) -> float | None:
    """A cell as a number, not a number for a missing one; None where it is none."""
    try:
        cell = WORDS.get(cell.strip().lower(), cell) if isinstance(cell, str) else cell
        return math.nan if cell is None else float(cell)
    except (TypeError, ValueError):
        return None


def read_numbers(column: pd.Series, name: str, place: str) -> pd.Series:
    """A column as floats; InputError for a cell that is no number."""
    numbers = list(map(read_number, column))
    if None in numbers:
        row = numbers.index(None)
        cell = f"{column.iloc[row]!r:.80}"
        raise InputError(f"{place}, row {row + 1}: {name} is {cell}; expected a number")
    return pd.Series(numbers, column.index, dtype=float)


def read_shares(column: pd.Series, name: str, place: str) -> pd.Series:
    """The share of a preference that goes to the second response, from labels (a, A>B, tie) or
    from numbers that are larger the better the second is: from 0 to 1, 1 to 2 or -3 to 3."""
    cells = [SHARES.get(str(cell).strip().lower(), cell) for cell in column]
    numbers = read_numbers(pd.Series(cells, column.index, dtype=object), name, place)
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


def sort_by_group(frame: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
    """The rollouts with those of one prompt (`group`) at one `step` beside one another, and their
    group (n,), whole numbers from 0."""
    keys = ["step", "group"] if "step" in frame else ["group"]
    groups = frame.groupby(keys, sort=True).ngroup().to_numpy()
    order = np.argsort(groups, kind="stable")
    return frame.iloc[order].reset_index(drop=True), groups[order]
