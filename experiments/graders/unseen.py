"""Which bugs the census names in graders that were written without knowing its strings.

    PYTHONPATH=src python experiments/graders/unseen.py [MODULE …]   # beside this file

Each buggy grader stands beside the right one (PAIRS). A bug is named where the example of a fault
is a string that the two do not pay alike (calls that hang or raise are not asked again, and do not
count); what the census says of a right one is a false alarm.
"""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import wordfreq

import pessimal
from pessimal.checking import grading
from pessimal.conversation import Turn
from pessimal.progress import quiet_libraries

COLUMNS = ("ground_truth", "answer", "label")
TOKENS = 2_000
CALLS = (grading.RAISES, grading.NOT_FINITE, grading.HANGS, grading.CRASHES)


def census(function: Callable, tasks: Path) -> dict[str, tuple[str, str]]:
    """By fault: its example, and the task's key."""
    tokens = wordfreq.top_n_list("en", TOKENS)
    results = pessimal.census(function, tasks, tokens=tokens, progress=False)
    rows = [row for one in results for row in one.table.to_dict("records")]
    found = {row.get("format", row["fault"]): (row["example"], row["task"]) for row in rows}
    return {fault: found[fault] for fault in grading.faults_of(results)}


def pays(function: Callable, tasks: Path, example: str, key: str) -> float:
    reward = pessimal.reward(function, tasks=tasks)
    turns = next(turns for turns, task in reward.tasks.items() if task.key == key)
    text = example.encode("latin-1", "backslashreplace").decode("unicode_escape")
    return float(reward.rewards([(*turns, Turn("assistant", text))])[0])


def main(*modules: str) -> None:
    quiet_libraries()
    for name in modules or ("unseen_graders",):
        module = importlib.import_module(name)
        named = alarms = 0
        with TemporaryDirectory() as folder:
            tasks = Path(folder) / "tasks.jsonl"
            for function, questions in module.GOOD.items():
                alarms += _good(function, _written(tasks, questions))
            for function, (right, questions) in module.PAIRS.items():
                alarms += _good(right, _written(tasks, questions))
                found = census(function, tasks)
                shown = {
                    fault: example
                    for fault, (example, key) in found.items()
                    if fault not in CALLS
                    and pays(function, tasks, example, key) != pays(right, tasks, example, key)
                }
                named += bool(shown)
                print(
                    f"{function.__name__:24s} named by {shown or 'nothing'}; all: {[*found]}",
                    flush=True,
                )
        good = len(module.GOOD) + len(module.PAIRS)
        print(f"{name}: {named} of {len(module.PAIRS)} bugs named; {alarms} of {good} right ones")


def _good(function: Callable, tasks: Path) -> bool:
    found = census(function, tasks)
    print(f"{function.__name__:24s} {found or 'silent'}", flush=True)
    return bool(found)


def _written(file: Path, questions: dict[str, str]) -> Path:
    lines = [
        {"prompt": asked, "data_source": "here"} | dict.fromkeys(COLUMNS, truth)
        for asked, truth in questions.items()
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


if __name__ == "__main__":
    main(*sys.argv[1:])
