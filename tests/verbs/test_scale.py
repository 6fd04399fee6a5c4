"""One table whatever the machine: two processes, two nodes, a network in parts; and a large
vocabulary in bounded memory."""

import json
import os
import socket
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pandas as pd
import pytest
from lettered_checkpoint import make_checkpoint

from pessimal.tables import read_score_table
from pessimal.tracking.registry import Registry
from tiny_language_models import checkpoint as checkpoint_of

LOGGED = str(Path(__file__).with_name("logged_command.py"))
PEAK = str(Path(__file__).with_name("peak_memory.py"))
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
LOW = ("model.dtype=bfloat16", "certain=20")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("lettered") / "lettered", tokens=1000)


def scan_of(checkpoint: Path, *more: str) -> list[str]:
    return [
        "scan",
        "model=auto",
        f"model.path={checkpoint}",
        "prompts=greatest",
        "batch_size=64",
        "trainer.threads=1",
        "progress=false",
        *more,
    ]


def started(folder: Path, command: list[str]) -> subprocess.Popen:
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SHARD_LOG": str(folder / "shards.txt")}
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(*processes: subprocess.Popen) -> list[str]:
    """What they said; all of them must have ended well, and none may be waited for longer than
    ten minutes."""
    try:
        said = [process.communicate(timeout=600)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(said)
    return said


@pytest.fixture(scope="module")
def alone(checkpoint, tmp_path_factory):
    """Folders of scans by one process, in float32 and in bfloat16 with certain tails."""
    options, folders = {"float32": (), "bfloat16": LOW}, {}
    processes = []
    for dtype, more in options.items():
        folders[dtype] = tmp_path_factory.mktemp(dtype)
        line = scan_of(checkpoint, "tracking=off", *more)
        processes.append(started(folders[dtype], [sys.executable, LOGGED, *line]))
    finish(*processes)
    return folders


def shards_by_process(folder: Path) -> dict[str, list[str]]:
    """Batches of rewards that each process has scored."""
    found = defaultdict(list)
    for line in (folder / "shards.txt").read_text().splitlines():
        process, batch = line.split(" ", 1)
        if "/states-" not in batch:
            found[process].append(batch)
    return dict(found)


def assert_same_table_each_row_once(folder: Path, alone: Path, *, states: bool = True) -> None:
    """`folder` holds what one process `alone` made: one table, each batch scored by one of two
    processes; without the `states` of words, the same rows."""
    (table,) = (folder / "runs/registry").rglob("scores.parquet")
    (expected,) = (alone / "runs/registry").rglob("scores.parquet")
    assert table.relative_to(folder) == expected.relative_to(alone)
    if states:
        assert table.read_bytes() == expected.read_bytes()
    else:
        one, whole = read_score_table(table), read_score_table(expected)
        pd.testing.assert_frame_equal(one.rows, whole.rows, check_exact=True)
        assert one.states is None
        assert one.measured == {k: v for k, v in whole.measured.items() if k != "states"}
    registry = Registry(folder / "runs/registry")
    assert len(registry.manifests()) == 1
    registry.verify(table.parent)
    assert list((folder / "runs/cache/scans").iterdir()) == []
    by_process = shards_by_process(folder)
    assert by_process.keys() == {"0", "1"}, "both have scored"
    together = [*by_process["0"], *by_process["1"]]
    assert sorted(together) == sorted(shards_by_process(alone)["0"]), "each batch once"
    first_pass = [sum("/all " in batch for batch in batches) for batches in by_process.values()]
    assert sum(first_pass) == 16, "1000 candidates in batches of 64"
    assert max(first_pass) == 8, "the work is shared evenly"


def assert_one_run_is_tracked(folder: Path) -> None:
    (run,) = (folder / "runs/wandb/wandb").glob("offline-run-*")
    (manifest,) = (folder / "runs/registry").rglob("manifest.json")
    assert run.name.endswith(json.loads(manifest.read_text())["run_id"])


@pytest.mark.slow
def test_two_processes_share_the_two_networks_of_an_implicit_reward(tmp_path):
    policy, reference = (
        checkpoint_of(tmp_path / name, seed=i) for i, name in enumerate(("tiny", "begun"))
    )
    line = scan_of(
        policy, "model.kind=implicit", f"model.implicit.reference={reference}", "tracking=off"
    )
    folders = tmp_path / "alone", tmp_path / "two"
    for folder, more in zip(
        folders, ((), ("trainer=ddp", "trainer.accelerator=cpu", "trainer.devices=2")), strict=True
    ):
        finish(started(folder, [sys.executable, LOGGED, *line, *more]))
    tables = [next((folder / "runs/registry").rglob("scores.parquet")) for folder in folders]
    assert tables[0].read_bytes() == tables[1].read_bytes()
    by_process = shards_by_process(folders[1])
    assert by_process.keys() == {"0", "1"}, "both have scored"
    together = [*by_process["0"], *by_process["1"]]
    assert sorted(together) == sorted(shards_by_process(folders[0])["0"]), "each batch once"
    assert {batch.split("/")[0] for batch in together} == {"part-0", "part-1"}


@pytest.mark.slow
def test_two_nodes_give_the_table_of_one_process_in_low_precision_too(checkpoint, alone, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    nodes = [
        started(
            tmp_path,
            [
                *TORCHRUN,
                "--nnodes=2",
                "--nproc-per-node=1",
                f"--node-rank={rank}",
                "--master-addr=127.0.0.1",
                f"--master-port={port}",
                LOGGED,
                *scan_of(checkpoint, *LOW, "trainer.num_nodes=2"),
            ],
        )
        for rank in range(2)
    ]
    finish(*nodes)
    assert_same_table_each_row_once(tmp_path, alone["bfloat16"])
    assert_one_run_is_tracked(tmp_path)


@pytest.mark.slow
def test_two_processes_go_on_where_one_was_killed_though_there_is_nothing_left_for_one_of_them(
    checkpoint, alone, tmp_path, command, monkeypatch
):
    """All but one batch are finished, so one process has none; in the passes over the tails, too,
    there are few."""
    from pessimal.scoring.loop import Shards

    write, line = Shards.write, scan_of(checkpoint, "tracking=off", *LOW)

    class StoppedError(Exception):
        pass

    def stop(self, batch, rows, rewards):
        if batch == 15:
            raise StoppedError
        write(self, batch, rows, rewards)

    monkeypatch.setattr(Shards, "write", stop)
    assert command(*line)[0] == 4
    finish(started(tmp_path, [sys.executable, LOGGED, *line, "trainer.devices=2"]))
    (table,), (expected,) = (
        f.rglob("scores.parquet") for f in (tmp_path, alone["bfloat16"] / "runs")
    )
    assert table.read_bytes() == expected.read_bytes()
    again = [batch for batches in shards_by_process(tmp_path).values() for batch in batches]
    assert [batch for batch in again if batch.startswith("bfloat16/")] == ["bfloat16/all 15"]


def test_several_nodes_without_a_launcher_are_refused_with_the_command(
    checkpoint, command, monkeypatch
):
    for name in ("MASTER_ADDR", "SLURM_JOB_ID", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    code, _, err = command(*scan_of(checkpoint, "trainer.num_nodes=3", "trainer.devices=2"))
    assert code == 2
    assert "torchrun --nnodes=3 --nproc-per-node=2" in err


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_vocabulary_of_256_000_on_three_prompts_takes_less_than_a_gib_beside_the_network(tmp_path):
    checkpoint = make_checkpoint(tmp_path / "large", tokens=256_000)
    line = [
        "scan",
        "model=auto",
        f"model.path={checkpoint}",
        "prompts=core",
        "progress=false",
        "tracking=off",
    ]
    (said,) = finish(started(tmp_path / "work", [sys.executable, PEAK, *line]))
    loaded, peak = map(int, said.splitlines()[-1].split())
    assert said.count("score-table/large--") == 3
    assert len(list((tmp_path / "work/runs/registry").rglob("scores.parquet"))) == 3
    assert 0 < peak - loaded < 2**30
