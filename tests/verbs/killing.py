"""Runs whole commands in forked processes and kills them; a script for `test_unkillable.py`, never
imported by it.

Everything is imported once, here; a command then starts in milliseconds, each in a process and a
folder of its own. `python killing.py PLAN.json` prints what came of every life as JSON. A life is
one folder in which a command is started, killed right before one of the changes that it makes to
registry or shards, and started again.
"""

import json
import os
import re
import signal
import sys
from pathlib import Path

# What a command imports while it runs, so that no child has to.
import pyarrow.parquet  # noqa: F401
import torch
import transformers.models.llama.modeling_llama  # noqa: F401
import wandb  # noqa: F401

import pessimal.verbs.scan  # noqa: F401
from pessimal.__main__ import main
from pessimal.scoring.loop import Shards

# Operations that change a folder, as Python's audit hooks call them.
CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"}


def start(folder: Path, arguments: list[str], *, kill_before: int | None = None) -> int:
    """Start a command in a forked process; its id. `kill_before` kills it before that change to
    registry or shards."""
    child = os.fork()
    if child:
        return child
    # A forked process makes torch's thread pool anew when it is first asked for, and two threads
    # that ask at once (the ones that load a checkpoint) find none: so it is asked for here, where
    # there is one thread.
    torch.set_num_threads(1)
    os.chdir(folder)
    said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    log_shards(folder / "shards.txt")
    log_changes(folder, kill_before)
    sys.argv = ["pessimal", *arguments]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def log_shards(file: Path) -> None:
    """Note each shard once it is stored: one line, the run's folder and the batch number."""
    write, log = Shards.write, os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def logged(self, batch, rows, rewards):
        write(self, batch, rows, rewards)
        os.write(log, f"{self.folder.parent.name}/{self.folder.name} {batch}\n".encode())

    Shards.write = logged


def log_changes(folder: Path, kill_before: int | None) -> None:
    """Note every change to registry and shards, in this life's last run; die before the one that is
    named."""
    log = os.open(folder / "changes.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    watched = [str(folder / "runs" / place) for place in ("registry", "cache/scans")]
    seen = 0

    def hook(event, arguments):
        nonlocal seen
        if event == "open" and isinstance(arguments[0], str):
            changes = bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR))
        else:
            changes = event in CHANGES
        if not changes:
            return
        place = os.fspath(arguments[0])
        directory = arguments[-1] if event in ("os.remove", "os.rmdir") else -1
        if directory >= 0:
            place = os.path.join(os.readlink(f"/proc/self/fd/{directory}"), place)
        place = os.path.abspath(place)
        if not any(place.startswith(root + os.sep) for root in watched):
            return
        if seen == kill_before:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1
        os.write(log, f"{event} {os.path.relpath(place, folder)}\n".encode())

    sys.addaudithook(hook)


def wait(child: int) -> int:
    """Its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def live(folder: Path, arguments: list[str], kill_before: int | None) -> dict:
    """One life: start the command, kill it as planned, and let the same command finish."""
    folder.mkdir(parents=True)
    killed = (
        kill_before is not None
        and wait(start(folder, arguments, kill_before=kill_before)) == -signal.SIGKILL
    )
    return {"folder": str(folder), "code": wait(start(folder, arguments)), "killed": killed}


def lives(folder: Path, arguments: list[str], *, worker: int, workers: int) -> list[dict]:
    """An undisturbed life, then this worker's share of one for every kind of change that it made,
    killed right before the last of that kind."""
    calm = folder / f"calm-{worker}"
    made = [live(calm, arguments, None)]
    changes = (calm / "changes.txt").read_text().splitlines()
    # Names differ by the scan's key, a batch's number and a random ending.
    kinds = {
        re.sub(r"[0-9a-f]{64}|\d{6}|(?<!-)-\w{8}(?=/|$)", "", change): step
        for step, change in enumerate(changes)
    }
    for kind, step in list(kinds.items())[worker::workers]:
        made.append(live(folder / f"step-{step}", arguments, step) | {"step": kind})
    return made


def run(folder: Path, arguments: list[str], workers: int) -> list[dict]:
    """All lives of a command, from workers that run beside each other."""
    torch.set_num_threads(1)
    children = []
    for worker in range(workers):
        child = os.fork()
        if not child:
            code = 1
            try:
                found = lives(folder / "lives", arguments, worker=worker, workers=workers)
                (folder / f"{worker}.json").write_text(json.dumps(found))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [wait(child) for child in children]  # of all of them
    if any(codes):
        raise RuntimeError("a worker failed")
    parts = [json.loads((folder / f"{worker}.json").read_text()) for worker in range(workers)]
    return [life for part in parts for life in part]


if __name__ == "__main__":
    plan = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(run(Path(plan["folder"]), plan["arguments"], plan["workers"])))
