"""Rollouts of the files that trainers write: a prompt, a response and a reward a row, whatever each
trainer calls them.

Knows conversations, rewards and pairs; knows no features and no statistics.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pessimal.errors import InputError
from pessimal.options import matching
from pessimal.rollout_analysis.columns import (
    NAMES,
    REWARD,
    check_options,
    find_columns,
    find_scores,
    guess_trainer,
    read_number,
    read_numbers,
    read_shares,
    refuse,
)
from pessimal.rollout_analysis.conversations import (
    PARTS,
    cut_part,
    read_text,
    read_texts,
    write_prompt,
)
from pessimal.rollout_analysis.sources import list_files, read_table
from pessimal.tables.comparisons import from_row


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
    columns = check_options(columns, where)
    top, *more = map(Path, matching("path", str(path)))
    if more:
        raise InputError(f"path={str(path)!r} is several files: give a folder, or one file")
    tables, kinds = list[pd.DataFrame](), list[str]()
    for file in (files := list_files(top)):
        source, table = read_table(file)
        names = find_columns(table, columns, str(file))
        kinds.append(f"{file.suffix}, {source}: {', '.join(map('='.join, names.items()))}")
        if kinds[-1] != kinds[0]:
            raise InputError(
                f"{file} is of another kind ({kinds[-1]}) than {files[0].name} ({kinds[0]}). Give "
                "a folder with files of one kind, or one file"
            )
        place = str(file.relative_to(top))
        number = re.findall(r"step[_-]?(\d+)", place) or re.findall(r"\d+", file.stem)
        if len(files) > 1 and "step" not in names and number:
            table["step"] = int(number[-1])
        tables.append(table)
    whole = pd.concat(tables, ignore_index=True)
    return _make_rollouts(whole, columns, where, source, str(path))


def rollouts_of(
    frame: pd.DataFrame,
    columns: Mapping[str, str] | None = None,
    where: str = "answer",
    *,
    source: str = "table",
) -> Rollouts:
    """The rollouts of a table in memory. Arguments and errors as of `read_rollouts`."""
    columns = check_options(columns, where)
    return _make_rollouts(frame.rename(columns=str), columns, where, source, "the table")


def _make_rollouts(
    frame: pd.DataFrame, columns: Mapping[str, str], where: str, source: str, place: str
) -> Rollouts:
    """The rollouts of a table; `place` is what messages call it."""
    frame = frame.reset_index(drop=True).astype(object)
    frame = frame.where(frame.notna(), None)
    names, notes = find_columns(frame, columns, place), list[str]()
    pairs, trainer = "response_a" in names, guess_trainer(frame)
    if source == "table":
        source = "pairs" if pairs else trainer or source
    if pairs:
        rows, rewards = _read_pairs(frame, names, notes, place), ["reward"]
    else:
        rows = read_texts(frame, names, notes)
        if "group" in names:
            rows["group"] = frame[names["group"]].map(str)
        rewards = _add_rewards(rows, frame, names, trainer or source, notes, place)
        for key in ("truth", "advantage", "step"):
            if key not in names:
                continue
            try:
                rows[key] = read_numbers(frame[names[key]], names[key], place)
            except InputError as error:
                if key in columns:
                    raise
                notes.append(f"No column is read as the {key}, as {error}.")
        if "truth" in rows:
            notes.append(f"The truth is the column {names['truth']}.")
        if "advantage" in rows:
            _compare_advantages(rows, notes)
        if "answer" in names:
            rows["answer"] = frame[names["answer"]].map(read_text)
    opened = rows["prompt"].str.rstrip().str.endswith("<think>")
    rows["response"] = list(map(cut_part, rows["response"], opened, [where] * len(rows)))
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
        raise refuse(place, f"no rollout is left. {' '.join(notes)} Type {options}", frame)
    if "step" in rows:
        rows["step"] = rows["step"].astype(int)
    rows["group"] = pd.factorize(rows["group"])[0]
    return Rollouts(rows, tuple(rewards), source, pairs, tuple(notes))


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
    cells = frame.drop(columns="step", errors="ignore").iloc[0]
    written = all(isinstance(cell, str) for cell in cells)  # as in a CSV file
    parts = dict[str, pd.Series]()
    for name in frame.columns.difference(list(names.values()), sort=False):
        every = source in ("TRL", "verl", "inspect") or (source == "verifiers" and total is None)
        numbers = list(map(read_number, frame[name]))
        texts = any(isinstance(cell, str) for cell in frame[name]) and not written
        paid = name in metrics or REWARD.search(name) or (every and not texts)
        if None in numbers or not paid:
            continue
        if name in NAMES:
            notes.append(f"The column {name} is left out, as {total} stands under its name.")
        elif not np.isnan(np.array(numbers, dtype=float)).all():
            parts[name] = pd.Series(numbers, dtype=float)
    if total is not None:
        rows["reward"] = read_numbers(frame[total], total, place)
        if total != "reward":
            notes.append(f"The reward is the column {total}.")
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
        raise refuse(place, message, frame)
    for name, part in parts.items():
        rows[name] = part
    return list(parts) or ["reward"]


def _compare_advantages(rows: pd.DataFrame, notes: list[str]) -> None:
    """Add a note where the trainer's advantages are not proportional to the rewards of a group: it
    weighed the reward functions, or a column is none of them."""
    keys = rows.columns.intersection(["step", "group"]).tolist()
    pair = rows[["reward", "advantage"]]
    pair = pair - pair.groupby([rows[key] for key in keys]).transform("mean")
    products = pair.assign(both=pair.prod(axis=1)) ** [2, 2, 1]
    sums = products.groupby([rows[key] for key in keys]).sum()
    sums = sums[sums["reward"] > 1e-12]  # rewards that differ by more than rounding
    cosines = sums["both"] / np.sqrt(sums["reward"] * sums["advantage"])
    if (cosines < 0.999).any():
        count = f"In {(cosines < 0.999).sum():,} of {len(cosines):,} groups"
        notes.append(
            f"{count} the trainer's advantages do not follow from this reward. Where it weighed "
            "its reward functions, add a column with its sum and type columns.reward=NAME."
        )


def _read_pairs(
    frame: pd.DataFrame, names: Mapping[str, str], notes: list[str], place: str
) -> pd.DataFrame:
    """Two rows for each pair: prompt, response, reward, group, step, and truth where there are both
    scores and a label."""
    scores, label = find_scores(list(frame.columns)), names.get("preference", names.get("label"))
    choice = names.get("reward", next(iter(scores)) if len(scores) == 1 else None)
    if scores and choice is None:
        options = ", ".join(scores)
        raise refuse(place, f"type columns.reward=NAME with one of {options}", frame)
    values, shares = dict[str, list[pd.Series]](), None
    if choice in scores:
        values["reward"] = [read_numbers(frame[name], name, place) for name in scores[choice]]
    elif choice is not None:
        label = choice
    if label is not None:
        shares = read_shares(frame[label], label, place)
    elif names["response_a"] == "chosen":
        shares = pd.Series(0.0, frame.index)
    if shares is not None:
        values["truth" if values else "reward"] = [1 - shares, shares]
    if not values:
        options = "columns.label=NAME, columns.preference=NAME or columns.reward=NAME"
        raise refuse(place, f"nothing says which response is preferred: type {options}", frame)
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
            rollout = {"prompt": write_prompt(pair.turns), "response": response, "group": number}
            rollout |= {name: sides[side][number] for name, sides in values.items()}
            rollout |= {"step": read_number(row[names["step"]])} if "step" in names else {}
            rows.append(rollout)
    if broken:
        notes.append(f"Of {len(frame):,} pairs {len(broken):,} are left out. First: {broken[0]}.")
    if not rows:
        message = f"no pair can be read: type columns.prompt=NAME. First: {broken[0]}"
        raise refuse(place, message, frame)
    if not choice:
        reason = f"by the column {label}" if label else "the chosen one has 1"
        notes.append(f"The rewards of a pair are shares of the preference: {reason}.")
    return pd.DataFrame(rows)
