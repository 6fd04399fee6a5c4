"""A scan killed at any moment goes on, given the same command, to the same bytes."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lettered_checkpoint import command_line, hidden, make_checkpoint

from pessimal.scoring.scan import NetworkScanner
from pessimal.tables import read_score_table
from pessimal.tracking.registry import Registry

KILLING = Path(__file__).with_name("killing.py")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A random model over 900 tokens."""
    return make_checkpoint(tmp_path_factory.mktemp("lettered") / "lettered", tokens=900)


def kill_again_and_again(tmp_path: Path, arguments: list[str]) -> dict:
    """What came of a command that was killed before each kind of change; see `killing.py`."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"folder": str(tmp_path), "arguments": arguments}))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "WANDB_SILENT": "true"}
    ran = subprocess.run(
        [sys.executable, str(KILLING), str(file)], capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def published(folder: Path, name: str) -> str:
    """The sha256 of the one table in a folder, after a look at everything around it."""
    root = folder / "runs/registry"
    home = root / "score-table" / name
    assert [p.name for p in home.iterdir()] == ["v0"], "one version, and nothing that a kill left"
    assert hidden(root) == [".lock"]
    registry = Registry(root)
    registry.verify(home / "v0")
    ((found, manifest),) = registry.manifests()
    assert found == home / "v0"
    assert manifest.version == 0
    assert list((folder / "runs/cache/scans").iterdir()) == [], (
        "shards of a published table are gone"
    )
    return hashlib.sha256((home / "v0/scores.parquet").read_bytes()).hexdigest()


@pytest.mark.slow
def test_scan_killed_before_any_change_to_the_disk_goes_on_to_the_same_bytes(checkpoint, tmp_path):
    # W&B starts slowly, and makes no change to the registry. In low precision the tails are
    # certified besides.
    options = ("prompts=greatest", "tracking=off", "model.dtype=bfloat16", "certain=20")
    done = kill_again_and_again(tmp_path, command_line(checkpoint, *options, batch_size=300))
    text = "\n".join(done["kinds"])
    name = "lettered--greatest--bfloat16"
    home = f"runs/registry/score-table/{name}/.staging"
    for moment in (
        "os.rename runs/cache/scans/",
        f"mkdir {home}",
        "manifest.json",
        f"os.rename {home}",
        "os.remove runs/cache/scans/",
    ):
        assert moment in text, "the kills must reach every part of a run"
    assert "round-" in text, "certification too"
    folders = [tmp_path / "calm", tmp_path / "killed"]
    assert done["codes"] == [0, 0], (folders[1] / "said.txt").read_text()
    assert len({published(folder, name) for folder in folders}) == 1
    shards = [(folder / "shards.txt").read_text().splitlines() for folder in folders]
    assert sorted(shards[0]) == sorted(shards[1]), "nothing is stored twice"


def children(process: int) -> set[int]:
    """Ids of the processes that a process has started and that run, at any depth."""
    listed = Path(f"/proc/{process}/task").glob("*/children")
    started = {int(child) for file in listed for child in file.read_text().split()}
    return started.union(*map(children, started))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "signals"), [(["tracking=off", "trainer.devices=2", "trainer.strategy=ddp"], 1)]
)
def test_scan_that_is_terminated_ends_with_its_children_and_goes_on(
    checkpoint, tmp_path, more, signals
):
    arguments = command_line(checkpoint, "prompts=greatest", "states=false", *more, batch_size=1)
    line = [sys.executable, "-m", "pessimal", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "WANDB_SILENT": "true"}
    scan = subprocess.Popen(line, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    until(lambda: list(tmp_path.glob("runs/cache/scans/**/batch-0*")), scan)
    started = children(scan.pid)
    assert started
    for _ in range(signals):
        scan.terminate()
    _, text = scan.communicate(timeout=30)
    assert scan.returncode == 143
    assert "the same command goes on from there" in text
    assert "Traceback" not in text
    until(lambda: not any(Path(f"/proc/{child}").exists() for child in started))
    shards = [*tmp_path.glob("runs/cache/scans/**/batch-0*")]
    assert shards, "what was finished is kept"
    again = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    published(tmp_path, "lettered--greatest")


def until(holds: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    """Wait until something holds, for a minute at most and while a process lives."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_two_commands_do_not_scan_one_table_at_once(checkpoint, command, tmp_path):
    arguments = [
        *command_line(checkpoint, "prompts=greatest", "tracking=off", batch_size=256),
        "paths.root=runs",
    ]
    held = []

    def while_another_scans(*_, **__):
        held.append(command(*arguments))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NetworkScanner, "scan", while_another_scans)
        command(*arguments)
    code, _, text = held[0]
    assert code == 4
    assert "another command is scanning lettered on greatest" in text
    assert "Traceback" not in text
    assert command(*arguments)[0] == 0, "when the other has ended, it is free"
    assert list((tmp_path / "runs/cache/scans").iterdir()) == [], (
        "the lock is on what goes with the shards"
    )


def test_killed_scan_takes_what_survives_from_the_last_finished_prompt(
    checkpoint, command, tmp_path, monkeypatch
):
    """An undisturbed scan hands it from prompt to prompt; one that goes on must not look closer
    than that."""
    known = {}
    inner = NetworkScanner.scan

    def noting(scanner, provenance):
        trips = scanner.round_trips
        known[provenance.prompt] = None if trips is None else trips.tolist()
        return inner(scanner, provenance)

    monkeypatch.setattr(NetworkScanner, "scan", noting)
    line = command_line(checkpoint, "tracking=off", batch_size=300)
    assert command(*line, "prompts=greatest")[0] == 0
    assert command(*line, "prompts=[greatest,best]")[0] == 0
    rows = read_score_table(tmp_path / "runs/registry/score-table/lettered--greatest/v0").rows
    assert known == {"greatest": None, "best": rows["survives"].tolist()}
    assert len(set(known["best"])) == 2, "or nothing is tested"
