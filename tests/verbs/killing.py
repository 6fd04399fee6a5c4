"""Runs a whole command in forked processes and kills it; a script for `test_unkillable.py`, never
imported by it.

Everything is imported once, here; a command then starts in milliseconds, in a process of its own.
`python killing.py PLAN.json` runs it in one folder undisturbed. In another it is killed right before
its first change to registry or shards, started again and killed before the first change of another
kind, and so on until it ends. What came of that is printed as JSON.
"""

import contextlib
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
import wordfreq

import pessimal.verbs.scan  # noqa: F401
from pessimal.__main__ import main
from pessimal.scoring.loop import Shards

# Operations that change a folder, as Python's audit hooks call them.
CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"}


# Names differ by the scan's key and a random ending. Each batch is a kind of its own, so that some
# kills leave a part of them finished.
NAMES = re.compile(r"[0-9a-f]{64}|(?<!-)-\w{8}(?=[/.]|$)")


def run(folder: Path, arguments: list[str], spared: list[str] | None) -> int:
    """Run a command in a forked process; its exit code. It is killed before its first change to
    registry or shards of a kind that is not `spared`, which then is; with None it is not."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = folder / "kind.txt"
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == -signal.SIGKILL and spared is not None:
            spared.append(kind.read_text())
        return code
    # A forked process makes torch's thread pool anew when it is first asked for, and two threads
    # that ask at once (the ones that load a checkpoint) find none: so it is asked for here, where
    # there is one thread.
    torch.set_num_threads(1)
    os.chdir(folder)
    said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    log_shards(folder / "shards.txt")
    if spared is not None:
        kill_before_changes(folder, spared, kind)
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


def kill_before_changes(folder: Path, spared: list[str], kind: Path) -> None:
    """Die before the first change to registry or shards of a kind that is not spared, and leave its
    name in a file."""
    watched = [str(folder / "runs" / place) for place in ("registry", "cache/scans")]

    def hook(event, arguments):
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
        name = NAMES.sub("", f"{event} {os.path.relpath(place, folder)}")
        if name not in spared:
            kind.write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


if __name__ == "__main__":
    plan = json.loads(Path(sys.argv[1]).read_text())
    folder, spared = Path(plan["folder"]), []
    torch.set_num_threads(1)
    wordfreq.zipf_frequency("the", "en")  # reads its list
    sys.path.append(str(Path(__file__).parents[1]))
    import quick_hydra

    quick_hydra.quicken()
    sys.argv = ["pessimal", *plan["arguments"], "--cfg", "job"]
    with contextlib.redirect_stdout(sys.stderr):
        main()  # composed here, it is in every child
    calm = run(folder / "calm", plan["arguments"], None)
    while (code := run(folder / "killed", plan["arguments"], spared)) == -signal.SIGKILL:
        pass
    print(json.dumps({"codes": [calm, code], "kinds": spared}))
