"""Processes that publish and read at once, some of them killed; a script for `test_registry_parallel.py`, never imported.

`python registry_lives.py PLANS` goes through a JSON list of plans, one registry each: it forks the plan's writers and
readers, and prints how the writers ended and what the readers saw. A writer is
`{"names": [...], "kill": null | {"fill": i} | {"change": k}}`: it publishes an artifact of each name in turn, and is
killed in the middle of filling the i-th, or before the k-th change that it makes to the registry.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

from pessimal.tracking.registry import Registry

CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.chmod"}
FILES = ["0.txt", "1.txt", "2.txt", "manifest.json", "run_config.json"]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_before_change(root: Path, number: int) -> None:
    """Kill this process before so many changes, as Python's audit hooks tell them."""
    seen = 0

    def hook(event, arguments):
        nonlocal seen
        writes = event == "open" and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in CHANGES) and str(arguments[0]).startswith(str(root)):
            if seen == number:
                die()
            seen += 1

    sys.addaudithook(hook)


def linger(event: str, _arguments) -> None:
    """Two milliseconds before each rename: what is renamed piece by piece, readers see in pieces."""
    if event == "os.rename":
        time.sleep(0.002)


def write(root: Path, writer: int, names: list[str], kill: dict | None) -> None:
    kill = kill or {}
    if "change" in kill:
        die_before_change(root, kill["change"])
    else:
        sys.addaudithook(linger)
    for i, name in enumerate(names):

        def fill(folder, i=i):
            for part in range(3):
                (folder / f"{part}.txt").write_text(f"writer {writer}, artifact {i}, part {part}\n" * 200)
                if kill.get("fill") == i and part == 1:
                    die()

        Registry(root, config={"writer": writer, "i": i}).publish("report", name, fill, summary={"i": i})


def read(root: Path, stop: Path, report: Path) -> None:
    """Look at everything again and again: whole artifacts only, versions without a gap, none that vanishes."""
    seen, rounds, wrong, looked = set(), 0, [], set()
    while not stop.exists() or rounds == 0:
        for folder in set(root.glob("*/*/v*")) - looked:  # as `ls` would see it, without asking for the lock
            files = sorted(p.name for p in folder.iterdir())
            looked.add(folder)
            if files != FILES:
                wrong.append(f"{folder} held {files} when it was first seen")
        registry = Registry(root)
        published = registry.manifests()
        references = {manifest.reference for _, manifest in published}
        wrong += [f"{reference} has vanished" for reference in seen - references]
        versions: dict[str, list[int]] = {}
        for folder, manifest in published:
            versions.setdefault(manifest.name, []).append(manifest.version)
            if manifest.reference not in seen:
                try:
                    registry.verify(folder)
                except Exception as error:
                    wrong.append(repr(error))
            if sorted([*manifest.files, "manifest.json"]) != FILES:
                wrong.append(f"{manifest.reference} lists {sorted(manifest.files)}")
        wrong += [f"{n}: versions {v}" for n, v in versions.items() if v != list(range(len(v)))]
        seen, rounds = references, rounds + 1
        time.sleep(0.005)
    report.write_text(json.dumps({"rounds": rounds, "wrong": wrong[:5], "seen": len(seen)}))


def fork(work, *arguments) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work(*arguments)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    os._exit(code)


def run(plan: dict) -> dict:
    root = Path(plan["root"])
    stop = root.parent / "stop"
    reports = [root.parent / f"reader-{i}.json" for i in range(plan["readers"])]
    readers = [fork(read, root, stop, report) for report in reports]
    writers = [fork(write, root, i, one["names"], one["kill"]) for i, one in enumerate(plan["writers"])]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in writers]
    stop.touch()
    failed = [os.waitpid(child, 0)[1] for child in readers]
    return {
        "writers": codes,
        "readers": [json.loads(report.read_text()) for report in reports] if not any(failed) else failed,
    }


if __name__ == "__main__":
    print(json.dumps([run(plan) for plan in json.loads(sys.argv[1])]))
