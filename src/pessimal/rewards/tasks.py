"""Files of tasks: prompts with the columns that a trainer's dataset has beside them."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pessimal.conversation import Conversation, Prompt, prompt_of, read_messages
from pessimal.errors import InputError
from pessimal.options import existing_file

_KEY = re.compile(r"[\w.-]+")
TRUTHS = ("ground_truth", "answer", "target", "label", "solution", "reference")
CLASSES = 3
"""Most different labels that are classes of responses where each is that of several tasks."""


@dataclass(frozen=True)
class Task:
    """One line of a file of tasks."""

    key: str
    """Its column `id`, else `task-N`, counted from 1."""
    turns: Conversation
    columns: Mapping[str, Any]
    messages: bool
    """Whether the file has the prompt as a list of messages, and not as a text."""

    @property
    def digest(self) -> str:
        """sha256 over all of it but its key."""
        turns = [[turn.role, turn.content] for turn in self.turns]
        held = json.dumps([turns, self.messages, dict(self.columns)], sort_keys=True)
        return hashlib.sha256(held.encode()).hexdigest()


def read_tasks(path: str | Path) -> tuple[Task, ...]:
    """The tasks of a JSONL file: a line each, an object with `prompt` (a text, or a list of
    messages with role and content) and any further columns; `id` names it.

    Raises:
        InputError: there is no such file, a line is no task, or two have one name or one prompt.
    """
    file = existing_file("tasks", str(path))
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"tasks={str(path)!r} is no file of tasks: {error}") from error
    tasks: dict[str, Task] = {}
    prompts: dict[Conversation, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where = f"tasks={str(path)!r}, line {number}"
        task = _task(line, len(tasks) + 1, where)
        if task.key in tasks:
            raise InputError(f"{where}: a second task has the id {task.key!r}; give each its own")
        if (other := prompts.get(task.turns)) is not None:
            raise InputError(f"{where}: its prompt is that of {other!r}: give each prompt once")
        tasks[task.key], prompts[task.turns] = task, task.key
    if not tasks:
        raise InputError(f"tasks={str(path)!r} holds no task; write one a line, as JSON")
    return tuple(tasks.values())


def prompts_of(tasks: Sequence[Task]) -> dict[str, Prompt]:
    """The prompts of tasks by key. ConfigError where a turn's role is unknown."""
    return {task.key: prompt_of(task.turns, name=f"task {task.key!r}") for task in tasks}


def truths_of(columns: Mapping[str, Any]) -> tuple[str, ...]:
    """The true answers of a task, of which each is right: of the columns `TRUTHS` and of
    `reward_model.ground_truth` the first that holds a text, a number, a list of these, or a
    dictionary of one of these; without `$`, and what stands behind `####` or in the last
    `\\boxed{}`. Empty where there is none."""
    model = columns.get("reward_model")
    held = [columns.get(name) for name in TRUTHS]
    held += [model.get("ground_truth")] if isinstance(model, Mapping) else []
    for value in held:
        inner = next(iter(value.values())) if isinstance(value, dict) and len(value) == 1 else value
        parts = inner if isinstance(inner, list) else [inner]
        if parts and all(isinstance(part, str | int | float) for part in parts):
            texts = [_answer(str(part)) for part in parts]
            if any(texts):
                return tuple(dict.fromkeys(filter(None, texts)))
    return ()


def true_answers(tasks: Sequence[Task]) -> list[tuple[str, ...]]:
    """The true answers of each task, as `truths_of`; none at all where they are classes: at most
    `CLASSES` different labels, each of several tasks, in a column `label` alone."""
    truths = [truths_of(task.columns) for task in tasks]
    counts = Counter(truths)
    few = () not in counts and len(counts) <= CLASSES and min(counts.values(), default=0) > 1
    if few and not any(truths_of({**task.columns, "label": None}) for task in tasks):
        return [()] * len(tasks)
    return truths


def _answer(text: str) -> str:
    text = text.rpartition("####")[2].strip()
    boxed = re.findall(r"\\boxed\{(.*)\}", text, flags=re.DOTALL)
    return (boxed[-1] if boxed else text).strip("$ \n")


def _task(line: str, number: int, where: str) -> Task:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is no JSON ({error}); give one object a line") from error
    if not isinstance(row, dict) or "prompt" not in row:
        got = f"columns {', '.join(row)}" if isinstance(row, dict) else type(row).__name__
        raise InputError(f'{where}: a task is an object with "prompt", got {got}')
    prompt = row.pop("prompt")
    listed = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    turns = read_messages(listed, where=where)
    if not all(turn.content.strip() for turn in turns):
        raise InputError(f"{where}: a prompt is a text that is not empty; got {prompt!r:.80}")
    if turns[-1].role == "assistant":
        raise InputError(f"{where}: a prompt ends with what is to be answered, a user's turn")
    key = str(row.get("id", f"task-{number}"))
    if not _KEY.fullmatch(key):
        raise InputError(f"{where}: id={key!r}; give letters, digits, _, . and - alone")
    return Task(key, turns, row, isinstance(prompt, list))
