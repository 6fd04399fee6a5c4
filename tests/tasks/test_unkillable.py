"""Whatever ends a scan (a kill at any moment, a full disk, a damaged checkpoint, a reward that is no number): what was
finished is kept, and the same command goes on to the same bytes."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from lettered_checkpoint import make_checkpoint

from pessimal.tables import read_score_table
from pessimal.tracking.registry import Registry

KILLING = Path(__file__).with_name("killing.py")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return make_checkpoint(tmp_path_factory.mktemp("lettered") / "lettered", tokens=2000)


def command_line(checkpoint: Path, *more: str, batch_size: int = 16) -> list[str]:
    return [
        "scan",
        "model=auto",
        f"model.path={checkpoint}",
        "progress=false",
        f"batch_size={batch_size}",
        *more,
    ]


def killed(tmp_path: Path, **plan) -> list[dict]:
    """What came of the lives that `plan` asks for; see `killing.py`."""
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"folder": str(tmp_path), "workers": 2, "seed": 0} | plan))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "WANDB_SILENT": "true"}
    ran = subprocess.run(
        [sys.executable, str(KILLING), str(file)], capture_output=True, text=True, env=environment
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def hidden(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob(".*"))


def published(folder: Path, name: str) -> str:
    """The sha256 of the one table of one life, after a look at everything around it."""
    root = folder / "runs/registry"
    home = root / "score-table" / name
    assert [p.name for p in home.iterdir()] == ["v0"], "one version, and nothing that a kill left"
    assert hidden(root) == [".lock"]
    (line,) = (root / "index.jsonl").read_text().splitlines()
    assert json.loads(line)["path"] == f"score-table/{name}/v0"
    registry = Registry(root)
    registry.verify(home / "v0")
    ((found, manifest),) = registry.manifests()
    assert found == home / "v0"
    assert manifest.version == 0
    assert list((folder / "runs/cache/scans").iterdir()) == [], "shards of a published table are gone"
    return hashlib.sha256((home / "v0/scores.parquet").read_bytes()).hexdigest()


def shards_stored(folder: Path) -> Counter:
    return Counter((folder / "shards.txt").read_text().splitlines())


@pytest.mark.slow
def test_scan_killed_at_random_moments_goes_on_to_the_same_bytes(checkpoint, tmp_path):
    # W&B starts slowly, and one of the two is enough.
    low = ("model.dtype=bfloat16", "certain=20", "tracking=off")
    commands = {
        "float32": command_line(checkpoint, "prompts=greatest", batch_size=8),
        "bfloat16": command_line(checkpoint, "prompts=greatest", *low, batch_size=8),
    }
    lives = killed(tmp_path, kind="random", kills=5, hits=[8, 12], commands=commands)
    assert sum(len(life["phases"]) for life in lives) >= 20, "kills that hit a running scan"
    for precision, suffix in (("float32", ""), ("bfloat16", "--bfloat16")):
        own = [life for life in lives if Path(life["folder"]).name.startswith(precision)]
        assert [life["code"] for life in own] == [0] * len(own), [
            Path(x["folder"], "said.txt").read_text() for x in own
        ]
        calm, *others = [Path(life["folder"]) for life in own]
        assert others
        assert own[0]["phases"] == []
        undisturbed = published(calm, f"lettered--greatest{suffix}")
        for folder in others:
            assert published(folder, f"lettered--greatest{suffix}") == undisturbed
            stored = shards_stored(folder)
            assert max(stored.values()) == 1, "nothing is scored and stored twice"
            assert stored.keys() <= shards_stored(calm).keys()


@pytest.mark.slow
def test_scan_killed_before_any_change_to_the_disk_goes_on_to_the_same_bytes(checkpoint, tmp_path):
    line = command_line(checkpoint, "prompts=greatest", "tracking=off", batch_size=700)
    lives = killed(tmp_path, kind="stepwise", commands={"all": line})
    told = "\n".join(life["step"] for life in lives if "step" in life)
    for moment in (
        "os.rename runs/cache/scans/", "mkdir runs/registry/score-table/lettered--greatest/.staging",
        "manifest.json", "os.rename runs/registry/score-table/lettered--greatest/.staging",
        "os.rename runs/registry/.index.jsonl", "os.remove runs/cache/scans/",
    ):  # fmt: skip
        assert moment in told, "the kills must reach every part of a run"
    assert len({published(Path(life["folder"]), "lettered--greatest") for life in lives}) == 1
    for life in lives:
        assert life["code"] == 0
        assert len(life["phases"]) == ("step" in life)
        assert set(shards_stored(Path(life["folder"])).values()) == {1}


def finished(root: Path) -> dict[str, bytes]:
    """The published tables by the folder of their artifact."""
    return {p.parent.parent.name: p.read_bytes() for p in root.rglob("v*/scores.parquet")}


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts (or resizes) a file system of so many KiB; the test is skipped where that is not allowed."""
    place = tmp_path / "small-disk"
    place.mkdir()

    def size(kilobytes: int) -> Path:
        options = f"remount,size={kilobytes}k" if os.path.ismount(place) else f"size={kilobytes}k"
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], capture_output=True
        )
        if mounted.returncode:
            pytest.skip("this user may not mount a file system")
        return place

    yield size
    if os.path.ismount(place):
        # Lazily: the last job's log is still open.
        subprocess.run(["umount", "-l", str(place)], check=True)


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
        patch.setattr("pessimal.tasks.scan_task.scan", while_another_scans)
        command(*arguments)
    code, _, told = held[0]
    assert code == 1
    assert "another command is scanning lettered on greatest" in told
    assert "Traceback" not in told
    assert command(*arguments)[0] == 0, "when the other has ended, it is free"
    assert list((tmp_path / "runs/cache/scans").iterdir()) == [], "the lock is on what goes with the shards"


@pytest.mark.skipif(not shutil.which("mount"), reason="no `mount` here")
@pytest.mark.parametrize("tracking", ["offline", "off"])
def test_full_disk_is_told_once_and_the_same_command_goes_on(
    checkpoint, command, small_disk, tmp_path, tracking
):
    small = command_line(checkpoint, "prompts=[greatest,best]", f"tracking={tracking}")
    assert command(*small)[0] == 0
    expected = finished(tmp_path / "runs/registry")
    disk, stored, said = small_disk(40), 0, []
    for kilobytes in (40, 200, 560, 600, 10_000):
        small_disk(kilobytes)
        code, _, err = command(*small, f"paths.root={disk}")
        if code == 0:
            break
        assert code == 1
        assert err.count("pessimal: the disk is full: No space left on device") == 1
        assert str(disk) in err.split("the disk is full")[1], "it says where"
        assert "the same command goes on from there" in err
        assert "Traceback" not in err
        assert "Error executing job" not in err
        shards = [p for p in disk.rglob("batch-0*") if p.stat().st_size]
        assert len(shards) >= stored or finished(disk), "what was finished is kept"
        stored = len(shards)
        assert hidden(disk / "cache") == hidden(disk / "registry/score-table") == []
        said.append(err)
    assert len(said) >= 2, "or the disk was never full"
    assert finished(disk / "registry") == expected


def test_disk_that_fills_while_a_shard_is_written_keeps_the_others(
    checkpoint, command, monkeypatch, tmp_path
):
    from pessimal.scoring.shards import Shards

    write = Shards.write

    def full(self, batch, rows, rewards):
        if batch == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))
        write(self, batch, rows, rewards)

    line = command_line(checkpoint, "prompts=greatest", "tracking=off", batch_size=400)
    monkeypatch.setattr(Shards, "write", full)
    code, _, err = command(*line)
    assert code == 1
    assert err.startswith("pessimal: the disk is full: No space left on device (")
    assert err.count("\n") == 1
    kept = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("batch-0*")}
    assert [p.name for p in sorted(kept)] == ["batch-000000", "batch-000001", "batch-000002"]
    again = []
    monkeypatch.setattr(
        Shards, "write", lambda self, batch, *rest: (again.append(batch), write(self, batch, *rest))
    )
    assert command(*line)[0] == 0
    assert again == [3, 4], "the rest, and nothing twice"


def test_table_that_does_not_fit_on_the_disk_leaves_nothing_and_no_shard_is_lost(
    checkpoint, command, monkeypatch, tmp_path
):
    import pessimal.tasks.common as common

    def full(table, path):
        path.write_bytes(b"half a table")
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    line = command_line(checkpoint, "prompts=greatest", "tracking=off", batch_size=400)
    with monkeypatch.context() as patch:
        patch.setattr(common, "write_score_table", full)
        code, _, err = command(*line)
    assert code == 1
    assert "the disk is full: Disk quota exceeded" in err
    assert "score-table/lettered--greatest" in err, "it says where"
    assert not list(tmp_path.rglob("scores.parquet"))
    assert len(list(tmp_path.rglob("batch-0*"))) == 5
    assert command(*line)[0] == 0
    assert len(finished(tmp_path)) == 1


def test_other_failures_of_the_disk_are_not_called_full(checkpoint, command, monkeypatch):
    from pessimal.scoring.shards import Shards

    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Shards, "write", broken)
    with pytest.raises(OSError, match="Input/output error"):
        command(*command_line(checkpoint, "prompts=greatest", "tracking=off", batch_size=400))


def truncate(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


def damage_header(folder):
    file = folder / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[8:40] = b"\xff" * 32
    file.write_bytes(content)


def empty_weights(folder):
    (folder / "model.safetensors").write_bytes(b"")


def lose_a_shard(folder):
    from transformers import AutoModelForSequenceClassification

    network = AutoModelForSequenceClassification.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    network.save_pretrained(folder, max_shard_size="100KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    shards[-1].unlink()


def garble_configuration(folder):
    (folder / "config.json").write_text('{"architectures": [')


def garble_tokenizer(folder):
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model"')


@pytest.mark.parametrize(
    "damage", [truncate, damage_header, empty_weights, lose_a_shard, garble_configuration, garble_tokenizer]
)
def test_unreadable_checkpoint_is_refused_before_anything_is_scored(
    tiny_checkpoint, command, tmp_path, monkeypatch, damage
):
    from pessimal.scoring.scorer import FrameScorer

    folder = shutil.copytree(tiny_checkpoint, tmp_path / "tiny-llama")
    line = command_line(folder, "tracking=off")
    assert command(*line, "prompts=greatest")[0] == 0
    before = finished(tmp_path / "runs")
    assert len(before) == 1
    damage(folder)
    monkeypatch.setattr(FrameScorer, "__init__", lambda *_, **__: pytest.fail("a scan began"))
    code, _, err = command(*line, "prompts=best")
    assert code == 2
    assert err.count("pessimal: ") == 1
    assert str(folder) in err
    assert "'tiny-llama'" in err
    assert "Traceback" not in err
    assert finished(tmp_path / "runs") == before
    assert not list((tmp_path / "runs/cache").rglob("batch-*"))


def with_a_reward_that_is_no_number(checkpoint: Path, folder: Path, token: int) -> Path:
    """A copy whose embedding of one token is NaN."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(checkpoint, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][token] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_reward_that_is_no_number_stops_the_scan_and_names_the_token(checkpoint, command, tmp_path, dtype):
    token = 1234
    folder = with_a_reward_that_is_no_number(checkpoint, tmp_path / "spoilt", token)
    text = read_text(folder, token)
    line = command_line(folder, "prompts=greatest", f"model.dtype={dtype}", "tracking=off", batch_size=100)
    code, _, err = command(*line)
    assert code == 2
    assert err.count("pessimal: ") == 1
    assert f"not a number for 1 of 100 candidates of a batch, first for {text!r}, in {dtype}" in err
    assert "Batches finished before are kept" in err
    assert "Traceback" not in err
    kept = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("batch-0*")}
    assert [p.name for p in sorted(kept)] == [f"batch-{i:06d}" for i in range(12)]
    assert command(*line)[0] == 2
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("batch-0*")} == kept, "they are not scored again"


def test_reward_that_is_no_number_among_those_of_the_trust_check_is_named_all_the_same(
    checkpoint, command, tmp_path
):
    import numpy as np

    from pessimal.scoring.trust import SAMPLE

    token = int(np.random.default_rng(0).permutation(2000)[:SAMPLE][0])
    folder = with_a_reward_that_is_no_number(checkpoint, tmp_path / "spoilt", token)
    code, _, err = command(*command_line(folder, "prompts=greatest", "tracking=off", batch_size=100))
    assert code == 2
    assert repr(read_text(folder, token)) in err
    assert "differs from the model's own forward" not in err, "the engine is not to blame"


def test_reward_that_is_no_number_on_a_later_prompt_leaves_the_finished_tables(
    tiny_checkpoint, command, tmp_path
):
    """The prompt itself holds the token: every reward on it is NaN, those on the other prompt are sound."""
    from transformers import AutoTokenizer

    (kind,) = AutoTokenizer.from_pretrained(tiny_checkpoint)("kind")["input_ids"]
    folder = with_a_reward_that_is_no_number(tiny_checkpoint, tmp_path / "spoilt", kind)
    items = tmp_path / "items.txt"
    items.write_text("love\nhate\npeace\n")
    line = command_line(
        folder, "candidates=items", f"candidates.path={items}", "mode=text", "tracking=off",
        "prompts=greatest", "+prompts.kind='kind'",
    )  # fmt: skip
    code, _, err = command(*line)
    assert code == 2
    assert "first for 'love'" in err, "the first of the first batch: all of them are spoilt"
    ((name, content),) = finished(tmp_path / "runs").items()
    assert name == "spoilt--greatest--items--text"
    assert read_score_table(tmp_path / f"runs/registry/score-table/{name}/v0").rows["reward"].notna().all()
    Registry(tmp_path / "runs/registry").verify(tmp_path / f"runs/registry/score-table/{name}/v0")
    assert command(*line)[0] == 2
    assert finished(tmp_path / "runs") == {name: content}


def read_text(folder: Path, token: int) -> str:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder).decode([token])


def test_killed_scan_takes_what_survives_from_the_last_finished_prompt(
    checkpoint, command, tmp_path, monkeypatch
):
    """An undisturbed scan hands it from prompt to prompt; one that goes on must not look closer than that."""
    import pessimal.tasks.scan_task as task

    known = {}
    inner = task.scan

    def noting(model, networks, identity, *arguments, known_survivors=None, **options):
        known[identity.prompt] = None if known_survivors is None else known_survivors.tolist()
        return inner(model, networks, identity, *arguments, known_survivors=known_survivors, **options)

    monkeypatch.setattr(task, "scan", noting)
    line = command_line(checkpoint, "tracking=off", batch_size=700)
    assert command(*line, "prompts=greatest")[0] == 0
    assert command(*line, "prompts=[greatest,best]")[0] == 0
    rows = read_score_table(tmp_path / "runs/registry/score-table/lettered--greatest/v0").rows
    assert known == {"greatest": None, "best": rows["survives"].tolist()}
    assert len(set(known["best"])) == 2, "or nothing is tested"
