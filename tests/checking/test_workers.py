"""Calls in processes of their own, which leave no process behind however they end."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pessimal.checking.workers import CRASHES, HANGS, Job, answered

JOBS = [Job(0, ["a"]), Job(0, ["b"])]
OPTIONS = {"workers": 1, "seconds": 1.0, "memory": 2**30}


def alive(file: Path) -> list[str]:
    """The processes noted in a file that run, by id."""
    states = {}
    for process in file.read_text().split():
        stat = Path(f"/proc/{process}/stat")
        states[process] = stat.read_text().rpartition(")")[2].split()[0] if stat.exists() else "X"
    return [process for process, state in states.items() if state not in "XZ"]


def ends(file: Path) -> bool:
    """Whether all of them end within two seconds."""
    end = time.monotonic() + 2
    while alive(file) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(file)


def note(file: Path, process: int) -> None:
    with file.open("a") as out:
        out.write(f"{process}\n")


def popen(file: Path) -> None:
    note(file, subprocess.Popen(["sleep", "60"]).pid)


def session(file: Path) -> None:
    note(file, subprocess.Popen(["sleep", "60"], start_new_session=True).pid)


def process(file: Path) -> None:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
    child.start()
    note(file, child.pid)


def daemon(file: Path) -> None:
    """A child of a child that is gone, in a session of its own."""
    if (child := os.fork()) == 0:
        session(file)
        os._exit(0)
    os.waitpid(child, 0)


SPAWNS = pytest.mark.parametrize("spawn", [popen, session, process, daemon])


@SPAWNS
@pytest.mark.parametrize("hangs", [True, False])
def test_what_a_grader_has_started_ends_with_it(spawn, hangs, tmp_path):
    file = tmp_path / "children"

    def grade(task, strings):
        spawn(file)
        time.sleep(60 * hangs)
        return [1.0] * len(strings)

    options = OPTIONS | {"seconds": 1.5 if hangs else 20.0}
    answers = [answer for _, answer in answered(grade, JOBS, **options)]
    assert answers == [[HANGS if hangs else 1.0]] * 2
    assert len(file.read_text().split()) == 2
    assert ends(file)


@pytest.mark.parametrize("spawn", [popen, process])
def test_what_a_grader_has_started_ends_after_a_crash(spawn, tmp_path):
    file = tmp_path / "children"

    def grade(task, strings):
        spawn(file)
        os._exit(1)

    # A child that is a fork holds the pipe of the dead; a crash is noticed at once.
    options = OPTIONS | {"seconds": 10.0 if spawn is popen else 0.3}
    answers = [answer for _, [answer] in answered(grade, JOBS, **options)]
    assert answers == [CRASHES if spawn is popen else HANGS] * 2
    assert ends(file)


GRADER = """
import subprocess, time
def reward(response, ground_truth):
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    with open("children", "a") as file:
        print(child.pid, file=file)
    time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143)])
def test_a_stopped_scan_leaves_none_of_a_graders_children(tmp_path, number, code):
    (tmp_path / "grader.py").write_text(GRADER)
    (tmp_path / "tasks.jsonl").write_text('{"prompt": "6 times 7?", "ground_truth": "42"}')
    line = ["scan", "grader.py:reward", "tasks=tasks.jsonl", "tracking=off"]
    default = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    start = f"{default}import sys; from pessimal.__main__ import main; main()"
    scan = subprocess.Popen([sys.executable, "-c", start, *line], cwd=tmp_path)
    file = tmp_path / "children"
    while not file.exists() or not file.read_text():
        assert scan.poll() is None
        time.sleep(0.05)
    scan.send_signal(number)
    assert scan.wait(30) == code
    assert ends(file)
