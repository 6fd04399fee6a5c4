"""Files of tasks: prompts with the columns that a trainer's dataset has beside them."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pessimal.conversation import Conversation, Prompt, prompt_of, read_messages
from pessimal.errors import InputError
from pessimal.options import existing_file

_KEY = re.compile(r"[\w.-]+")
TRUTHS = ("ground_truth", "answer", "target", "label", "solution")
"""Where a task's true answer stands, the first that is there."""


@dataclass(frozen=True)
class Task:
    """One line of a file of tasks."""

    key: str
    """Its column `id`, else `task-N`, counted from 1."""
    turns: Conversation
    """What is asked: a user turn, or several turns."""
    columns: Mapping[str, Any]
    """What stands beside the prompt, such as ground_truth."""
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
        raise InputError(
            f"tasks={str(path)!r} cannot be read as a file of tasks: {error}"
        ) from error
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


def truth_of(columns: Mapping[str, Any]) -> str | None:
    """The true answer of a task: of `ground_truth`, `answer`, `target`, `label`, `solution` or
    `reward_model.ground_truth` the first that is a text or number; without `$`, and what stands
    behind `####` or in the last `\\boxed{}`. None where there is none."""
    model = columns.get("reward_model")
    held = [columns.get(name) for name in TRUTHS]
    held += [model.get("ground_truth")] if isinstance(model, Mapping) else []
    for value in held:
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, str | int | float) and str(value).strip():
            text = str(value).rpartition("####")[2].strip()
            boxed = re.findall(r"\\boxed\{(.*)\}", text, flags=re.DOTALL)
            return (boxed[-1] if boxed else text).strip("$ \n") or None
    return None


def _task(line: str, number: int, where: str) -> Task:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is no JSON ({error}); give one object a line") from error
    if not isinstance(row, dict) or "prompt" not in row:
        got = (
            f"the columns {', '.join(row)}" if isinstance(row, dict) else f"a {type(row).__name__}"
        )
        raise InputError(f'{where}: a task is an object with "prompt", and this is {got}')
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
