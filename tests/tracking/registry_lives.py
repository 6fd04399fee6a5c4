"""Processes that publish and read at once, some of them killed; a script for
`test_registry_parallel.py`, never imported.

`python registry_lives.py ROOT WRITERS READERS` forks writers and readers of one registry, and
prints how the writers ended and what the readers saw. A writer is `{"names": [...], "kill": null |
i}`: it publishes an artifact of each name in turn, and is killed in the middle of filling the i-th.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from pessimal.tracking.registry import Registry

FILES = ["0.txt", "1.txt", "2.txt", "manifest.json", "run_config.json"]


def linger(event: str, _arguments) -> None:
    """Two milliseconds before each rename: what is renamed piece by piece, readers see in
    pieces."""
    if event == "os.rename":
        time.sleep(0.002)


def write(root: Path, writer: int, names: list[str], kill: int | None) -> None:
    sys.addaudithook(linger)
    for i, name in enumerate(names):

        def fill(folder, i=i):
            for part in range(3):
                (folder / f"{part}.txt").write_text(
                    f"writer {writer}, artifact {i}, part {part}\n" * 200
                )
                if kill == i and part == 1:
                    os.kill(os.getpid(), signal.SIGKILL)

        Registry(root, config={"writer": writer, "i": i}).publish(
            "report", name, fill, summary={"i": i}
        )


def read(root: Path, stop: Path, report: Path) -> None:
    """Look at everything again and again: whole artifacts only, versions without a gap, none that
    vanishes."""
    seen, rounds, wrong = set(), 0, []
    while not stop.exists() or rounds == 0:
        registry, references = Registry(root), set()
        for folder in root.glob("*/*/v*"):  # as `ls` would see it, without asking for the lock
            files = sorted(p.name for p in folder.iterdir())
            wrong += [f"{folder} held {files}"] * (files != FILES)
        versions: dict[str, list[int]] = {}
        for folder, manifest in registry.manifests():
            references.add(manifest.reference)
            versions.setdefault(manifest.name, []).append(manifest.version)
            if manifest.reference not in seen:
                try:
                    registry.verify(folder)
                except Exception as error:
                    wrong.append(repr(error))
        wrong += [f"{reference} has vanished" for reference in seen - references]
        # Another may be published while the list is read: only what stands before the newest must
        # be there.
        wrong += [f"{n}: versions {v}" for n, v in versions.items() if len(set(v)) != len(v)]
        seen, rounds = references, rounds + 1
        time.sleep(0.005)
    report.write_text(json.dumps({"rounds": rounds, "wrong": wrong[:5]}))


def fork(work, *arguments) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work(*arguments)
        code = 0
    finally:
        os._exit(code)


def run(root: Path, plans: list[dict], readers: int) -> dict:
    stop = root.parent / "stop"
    reports = [root.parent / f"reader-{i}.json" for i in range(readers)]
    reading = [fork(read, root, stop, report) for report in reports]
    writing = [fork(write, root, i, one["names"], one["kill"]) for i, one in enumerate(plans)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in writing]
    stop.touch()
    for child in reading:
        os.waitpid(child, 0)
    return {"writers": codes, "readers": [json.loads(report.read_text()) for report in reports]}


if __name__ == "__main__":
    print(json.dumps(run(Path(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))))
