"""Are the tests able to see a mistake? Each fault of faults.py by itself in a copy of the tree, and
the tests of its room.

python experiments/mutation/run.py [ROOM or number of a fault …] [--no-baseline]
"""

import argparse
import importlib.util
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest
from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
BEYOND = {
    "searching": ["tests/verbs/test_search.py"],
    "tracking": ["tests/verbs/test_tracked.py", "tests/verbs/test_runs.py"],
    "verbs": ["tests/tracking/test_push.py"],
}
"""Tests outside a room that see its faults, besides the frozen numbers of a comparison."""
WITHIN = {"verbs": "test_runs*.py"}
"""Files of a room whose other tests take long and see none of its faults."""
SUITES = {"make test": "not quickstart and not slow", "make test-all": "slow"}
SECONDS = 900
"""For one run of one room's tests; a fault that makes them hang is caught."""
HEAVY = ("scipy.stats", "pandas", "transformers", "pytorch_lightning", "sklearn.manifold")
"""Imported once, before the tests' processes are forked."""


def room(fault: Fault) -> str:
    return fault.file.partition("/")[0]


def tests(fault: Fault | None, of: str, home: Path) -> list[str]:
    """The room's test files, those named after the fault's module first: most faults are seen in
    the first one."""
    files = sorted((home / "tests" / of).rglob(WITHIN.get(of, "test_*.py")))
    if fault is not None:
        stem = Path(fault.file).stem
        files.sort(key=lambda file: (stem not in file.stem, stem.split("_")[0] not in file.stem))
    names = [str(file.relative_to(home)) for file in files]
    return names + BEYOND.get(of, ["tests/verbs/test_frozen_numbers.py"])


def failing(
    home: Path, files: list[str], *, marks: str, without: list[str], first: bool
) -> list[str]:
    """Ids of the tests that fail in the copy (the first one alone, or all)."""
    report = home / "failed.txt"
    report.unlink(missing_ok=True)
    arguments = (home, files, marks, without, first, report)
    child = multiprocessing.get_context("fork").Process(target=_child, args=arguments)
    child.start()
    child.join(SECONDS)
    if child.is_alive():
        child.kill()
        child.join()
        return ["(hangs)"]
    failed = report.read_text().splitlines() if report.exists() else []
    return failed or ([] if child.exitcode in (0, 5) else [f"(pytest exits with {child.exitcode})"])


class _Failures:
    def __init__(self, report: Path):
        self.report = report

    def pytest_runtest_logreport(self, report) -> None:
        if report.failed:
            with self.report.open("a") as sink:
                sink.write(report.nodeid + "\n")

    pytest_collectreport = pytest_runtest_logreport


def _child(
    home: Path, files: list[str], marks: str, without: list[str], first: bool, report: Path
) -> None:
    os.chdir(home)
    sys.path.insert(0, str(home / "src"))
    sink = os.open(home / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    options = ["-q", "-m", marks, "-p", "no:cacheprovider", "--tb=short", *["-x"] * first]
    # What cannot even be collected is named by its file.
    deselected = [f"--deselect={name}" if "::" in name else f"--ignore={name}" for name in without]
    code = pytest.main([*options, *deselected, *files], plugins=[_Failures(report)])
    os._exit(int(code))


def check(fault: Fault, home: Path) -> tuple[Path, str]:
    """The file that the fault belongs in and its text; an error where that does not hold it exactly
    once."""
    file = home / "src" / "pessimal" / fault.file
    text = file.read_text() if file.exists() else ""
    if (places := text.count(fault.old)) != 1:
        sys.exit(f"{fault.file}: {places} places hold {fault.old!r}; a fault needs exactly one")
    return file, text


def seed(home: Path, fault: Fault) -> str:
    """Put the fault into the copy; gives the text that was there."""
    file, text = check(fault, home)
    rewrite(file, text.replace(fault.old, fault.new))
    return text


def rewrite(file: Path, text: str) -> None:
    file.write_text(text)
    # Compiled code is known by time and size, and both may be those of the fault before.
    Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    rooms = "rooms, or numbers of faults from 1; all where none is given"
    parser.add_argument("which", nargs="*", help=rooms)
    without = "take all tests to pass without a fault"
    parser.add_argument("--no-baseline", action="store_true", help=without)
    asked = parser.parse_args()
    faults = list(enumerate(FAULTS, 1))
    if asked.which:
        faults = [(n, f) for n, f in faults if {str(n), room(f)} & set(asked.which)]
    for _, fault in faults:
        check(fault, ROOT)
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "WANDB_SILENT": "true"}
    for name in HEAVY:
        importlib.import_module(name)
    caught = dict.fromkeys(SUITES, 0)
    with tempfile.TemporaryDirectory(prefix="mutation-") as place:
        home = Path(place) / "main"
        home.mkdir()
        if (ROOT.parent / "shared").is_dir():  # published scores stand beside the checkout
            (home.parent / "shared").symlink_to(ROOT.parent / "shared")
        os.environ["PYTHONPATH"] = str(home / "src")
        files = ("pyproject.toml", "README.md", "requirements.txt")
        for name in ("src", "tests", "conf", "docs", "experiments", *files):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, home / name)
        broken: dict[str, list[str]] = {}
        for n, fault in faults:
            of, began = room(fault), time.monotonic()
            if of not in broken:
                asks = {"marks": SUITES["make test"], "without": [], "first": False}
                whole = [] if asked.no_baseline else failing(home, tests(None, of, home), **asks)
                broken[of] = whole
                for name in whole:
                    print(f"fails without a fault, and is left out: {name}", flush=True)
            was, by, test = seed(home, fault), "nothing", ""
            for suite, marks in SUITES.items():
                asks = {"marks": marks, "without": broken[of], "first": True}
                if failed := failing(home, tests(fault, of, home), **asks):
                    by, test = suite, failed[0]
                    caught[suite] += 1
                    break
            rewrite(home / "src" / "pessimal" / fault.file, was)
            effect, seconds = f"{fault.file}: {fault.effect}", time.monotonic() - began
            print(f"{n:2} {by:13} {effect} [{test}] {seconds:.0f} s", flush=True)
    fast, all_tests = caught["make test"], sum(caught.values())
    print(f"caught by make test: {fast} of {len(faults)}; by make test-all: {all_tests}")


if __name__ == "__main__":
    main()
