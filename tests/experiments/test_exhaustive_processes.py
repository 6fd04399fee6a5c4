"""Every pair, by several processes that share a folder: of one command, of two commands, one of
them killed.

As a script it is such a process: see `run_as_command`.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from test_exhaustive_pairs import BLOCKS, Trainer, contents, search

from experiments.optimal_pessimal_tokens.exhaustive_pairs import BlockStore
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model


@pytest.fixture(scope="module")
def alone(tiny_checkpoint, tmp_path_factory):
    """What one process finds."""
    model = open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)
    return contents(search(model, tmp_path_factory.mktemp("alone")))


def run_as_command(name: str, checkpoint: str, folder: str, *, devices: int, die_at: int) -> None:
    """One command: search, note each stored block as a line `name number`, leave the result as
    `name.json`. Blocks take their time, so that others have theirs; the `die_at`-th is never
    stored."""
    name += os.environ.get("RANK", "")
    write, stored, root = BlockStore.write, [], Path(folder)

    def noted(self, number, block):
        time.sleep(0.05)
        stored.append(number)
        if len(stored) == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, number, block)
        with (root / "stored.txt").open("a") as log:
            log.write(f"{name} {number}\n")

    BlockStore.write = noted
    model = open_model(HeadSpec(path=checkpoint), Path(checkpoint))
    (root / f"ready-{name}").touch()
    while len(list(root.glob("ready-*"))) < 2:
        time.sleep(0.01)
    trainer = Trainer(devices=devices, strategy="ddp" if devices > 1 else "auto")
    result = search(model, root / "pairs", trainer=trainer)
    (root / f"{name}.json").write_text(json.dumps(contents(result)))


def started(launcher: list[str], *arguments: str) -> subprocess.Popen:
    paths = os.pathsep.join(filter(None, sys.path))  # modules of tests import one another
    threads = str(torch.get_num_threads())
    environment = os.environ | {"OMP_NUM_THREADS": threads, "PYTHONPATH": paths}
    return subprocess.Popen(
        [sys.executable, *launcher, __file__, *map(str, arguments)],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(*commands: subprocess.Popen) -> list[int]:
    """Their exit codes; none is waited for longer than three minutes."""
    try:
        said = [command.communicate(timeout=180)[0] for command in commands]
    finally:
        for command in commands:
            command.kill()
    print(*said)  # shown where a test fails
    return [command.returncode for command in commands]


def stored_by(folder: Path) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for line in (folder / "stored.txt").read_text().splitlines():
        name, number = line.split()
        found.setdefault(name, []).append(int(number))
    return found


@pytest.mark.slow
def test_two_commands_share_the_blocks_and_one_finishes_what_the_other_was_killed_at(
    tiny_checkpoint, alone, tmp_path
):
    killed = started([], "killed", tiny_checkpoint, tmp_path, 1, 3)
    survivor = started([], "survivor", tiny_checkpoint, tmp_path, 1, 0)
    assert finish(killed, survivor) == [-signal.SIGKILL, 0]
    by = stored_by(tmp_path)
    assert len(by["killed"]) == 2
    assert sorted(by["killed"] + by["survivor"]) == list(range(BLOCKS)), "each block once"
    assert json.loads((tmp_path / "survivor.json").read_text()) == alone


if __name__ == "__main__":
    named, path, work, processes, dies = sys.argv[1:]
    run_as_command(named, path, work, devices=int(processes), die_at=int(dies))
