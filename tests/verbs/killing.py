"""Runs whole commands in forked processes and kills them; a script for `test_unkillable.py`, never imported by it.

Everything is imported once, here; a command then starts in milliseconds, each in a process and a folder of its own.
`python killing.py PLAN.json` prints what came of every life as JSON. A life is one folder in which the same command is
started again and again: it is killed as the plan says, then left to finish.
"""

import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

# What a command imports while it runs, so that no child has to.
import pyarrow.parquet  # noqa: F401
import torch
import transformers.models.llama.modeling_llama  # noqa: F401
import wandb  # noqa: F401

import pessimal.verbs.scan  # noqa: F401
from pessimal.__main__ import main
from pessimal.scoring.shards import Shards

# Operations that change a folder, as Python's audit hooks call them.
CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"}


def start(folder: Path, arguments: list[str], *, kill_before: int | None = None) -> int:
    """Start a command in a forked process; its id. `kill_before` kills it before that change to registry or shards."""
    child = os.fork()
    if child:
        return child
    # A forked process makes torch's thread pool anew when it is first asked for, and two threads that ask at once (the
    # ones that load a checkpoint) find none: so it is asked for here, where there is one thread.
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
    """Note every change to registry and shards, in this life's last run; die before the one that is named."""
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


def wait(child: int, *, seconds: float | None = None) -> int | None:
    """Its exit code; None where it was killed, after so many `seconds` by us."""
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, 0 if deadline is None else os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return None if code == -signal.SIGKILL else code
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            deadline = None
        else:
            time.sleep(0.001)


def phase(folder: Path) -> str:
    """How far a killed scan had come, by what it left."""
    runs = folder / "runs"
    if list(runs.glob("registry/score-table/*/*")) or list(runs.glob("registry/score-table/*/.*")):
        return "publishing"
    if list(runs.glob("cache/scans/*/float32/round-*")):
        return "certification"
    return "loop" if list(runs.glob("cache/scans/*/*/all/batch-*")) else "before the loop"


def live(folder: Path, arguments: list[str], kills: list[dict]) -> dict:
    """One life: start the command, kill it as planned, and at last let it finish."""
    folder.mkdir(parents=True)
    phases, began = [], time.monotonic()
    for kill in kills:
        child = start(folder, arguments, kill_before=kill.get("before"))
        if wait(child, seconds=kill.get("after")) is not None:
            break  # it had finished before
        phases.append(phase(folder))
    code = wait(start(folder, arguments))
    return {"folder": str(folder), "code": code, "phases": phases, "seconds": time.monotonic() - began}


def random_lives(plan: dict, worker: int) -> list[dict]:
    """Lives of this worker's commands, killed at moments drawn over a run's whole duration, until enough kills have hit
    a running scan."""
    moments, lives, hits = random.Random(plan["seed"] + worker), [], 0
    commands = dict(list(plan["commands"].items())[worker :: plan["workers"]])
    for name, arguments in commands.items():
        lives.append(live(Path(plan["folder"]) / f"{name}-calm", arguments, []))
    calm = {name: life["seconds"] for name, life in zip(commands, lives, strict=True)}
    while hits < plan["hits"][worker]:
        for name, arguments in commands.items():
            kills = [{"after": moments.uniform(0, calm[name])} for _ in range(plan["kills"])]
            lives.append(live(Path(plan["folder"]) / f"{name}-{len(lives)}", arguments, kills))
            hits += len(lives[-1]["phases"])
    return lives


def stepwise_lives(plan: dict, worker: int) -> list[dict]:
    """A life for every kind of change that an undisturbed run makes, killed right before the last of that kind."""
    root, (arguments,) = Path(plan["folder"]), plan["commands"].values()
    lives = [live(root / f"calm-{worker}", arguments, [])]
    changes = (root / f"calm-{worker}/changes.txt").read_text().splitlines()
    # Names differ by the scan's key, a batch's number and a random ending.
    kinds = {
        re.sub(r"[0-9a-f]{64}|\d{6}|(?<!-)-\w{8}(?=/|$)", "", change): step
        for step, change in enumerate(changes)
    }
    for kind, step in list(kinds.items())[worker :: plan["workers"]]:
        lives.append(live(root / f"step-{step}", arguments, [{"before": step}]) | {"step": kind})
    return lives


def run(plan: dict) -> list[dict]:
    """All lives, from workers that run beside each other."""
    torch.set_num_threads(1)
    of = {"random": random_lives, "stepwise": stepwise_lives}[plan["kind"]]
    results, workers = Path(plan["folder"]), []
    for worker in range(plan["workers"]):
        child = os.fork()
        if not child:
            code = 1
            try:
                (results / f"{worker}.json").write_text(json.dumps(of(plan, worker)))
                code = 0
            finally:
                os._exit(code)
        workers.append(child)
    codes = [wait(worker) for worker in workers]
    if any(code != 0 for code in codes):
        raise RuntimeError("a worker failed")
    return [life for w in range(plan["workers"]) for life in json.loads((results / f"{w}.json").read_text())]


if __name__ == "__main__":
    print(json.dumps(run(json.loads(Path(sys.argv[1]).read_text()))))
