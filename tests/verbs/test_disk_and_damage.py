"""A full disk, a damaged checkpoint, a reward that is no number: reported once, and what was
finished is kept."""

import errno
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from lettered_checkpoint import command_line, hidden

from pessimal.tables import read_score_table
from pessimal.tracking.registry import Registry


def finished(root: Path) -> dict[str, bytes]:
    """The published tables by the folder of their artifact."""
    return {p.parent.parent.name: p.read_bytes() for p in root.rglob("v*/scores.parquet")}


@pytest.fixture
def small_disk(tmp_path):
    """A function that mounts (or resizes) a file system of so many KiB; the test is skipped where
    that is not allowed."""
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


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("mount"), reason="no `mount` here")
def test_full_disk_is_reported_once_and_the_same_command_goes_on(
    checkpoint, command, small_disk, tmp_path
):
    small = command_line(checkpoint, "prompts=[greatest,best]", "tracking=off")
    assert command(*small)[0] == 0
    expected = finished(tmp_path / "runs/registry")
    disk, stored, said = small_disk(40), 0, []
    for kilobytes in (40, 200, 560, 600, 10_000):
        small_disk(kilobytes)
        code, _, err = command(*small, f"paths.root={disk}")
        if code == 0:
            break
        assert code == 4
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
    from pessimal.scoring.loop import Shards

    write = Shards.write

    def full(self, batch, rows, rewards):
        if batch == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.folder))
        write(self, batch, rows, rewards)

    line = command_line(
        checkpoint, "prompts=greatest", "tracking=off", "states=false", batch_size=400
    )
    monkeypatch.setattr(Shards, "write", full)
    code, _, err = command(*line)
    assert code == 4
    *_, message = err.splitlines()  # before it, lines of progress
    assert message.startswith("pessimal: the disk is full: No space left on device (")
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
    import pessimal.api.store as store

    def full(table, path):
        path.write_bytes(b"half a table")
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    line = command_line(checkpoint, "prompts=greatest", "tracking=off", batch_size=400)
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_score_table", full)
        code, _, err = command(*line)
    assert code == 4
    assert "the disk is full: Disk quota exceeded" in err
    assert "score-table/lettered--greatest" in err, "it says where"
    assert not list(tmp_path.rglob("scores.parquet"))
    assert len(list(tmp_path.rglob("all/batch-0*"))) == 5
    assert command(*line)[0] == 0
    assert len(finished(tmp_path)) == 1


def truncate(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1000])


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


def garble_tokenizer(folder):
    (folder / "tokenizer.json").write_text('{"version": "1.0", "model"')


@pytest.mark.parametrize("damage", [truncate, empty_weights, lose_a_shard, garble_tokenizer])
def test_unreadable_checkpoint_is_refused_before_anything_is_scored(
    tiny_checkpoint, command, tmp_path, monkeypatch, damage
):
    from pessimal.scoring.scorer import FrameScorer

    folder = shutil.copytree(tiny_checkpoint, tmp_path / "tiny-llama")
    line = command_line(folder, "tracking=off")
    damage(folder)
    monkeypatch.setattr(FrameScorer, "__init__", lambda *_, **__: pytest.fail("a scan began"))
    code, _, err = command(*line, "prompts=best")
    assert code == 2
    assert err.count("pessimal: ") == 1
    assert str(folder) in err
    assert "'tiny-llama'" in err
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("batch-*"))


def with_a_reward_that_is_no_number(checkpoint: Path, folder: Path, token: int) -> Path:
    """A copy whose embedding of one token is NaN."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(checkpoint, folder)
    weights = load_file(folder / "model.safetensors")
    weights["model.embed_tokens.weight"][token] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_reward_that_is_no_number_stops_the_scan_and_names_the_token(checkpoint, command, tmp_path):
    token = 1234
    folder = with_a_reward_that_is_no_number(checkpoint, tmp_path / "spoilt", token)
    text = read_text(folder, token)
    line = command_line(
        folder, "prompts=greatest", "model.dtype=bfloat16", "tracking=off", batch_size=100
    )
    code, _, err = command(*line)
    assert code == 2
    assert err.count("pessimal: ") == 1
    assert (
        f"not a number for 1 of 100 candidates of a batch, first for {text!r}, in bfloat16" in err
    )
    assert "Batches finished before are kept" in err
    assert "Traceback" not in err
    kept = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("batch-0*")}
    assert [p.name for p in sorted(kept)] == [f"batch-{i:06d}" for i in range(12)]
    assert command(*line)[0] == 2
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("batch-0*")} == kept, (
        "they are not scored again"
    )


def test_reward_that_is_no_number_on_a_later_prompt_leaves_the_finished_tables(
    tiny_checkpoint, command, tmp_path
):
    """The prompt itself holds the token: every reward on it is NaN, those on the other prompt are
    sound."""
    from transformers import AutoTokenizer

    (kind,) = AutoTokenizer.from_pretrained(tiny_checkpoint)("kind")["input_ids"]
    folder = with_a_reward_that_is_no_number(tiny_checkpoint, tmp_path / "spoilt", kind)
    items = tmp_path / "items.txt"
    items.write_text("love\nhate\npeace\n")
    line = command_line(
        folder,
        "candidates=items",
        f"candidates.path={items}",
        "mode=text",
        "tracking=off",
        "prompts=greatest",
        "+prompts.kind='kind'",
    )
    code, _, err = command(*line)
    assert code == 2
    assert "first for 'love'" in err, "the first of the first batch: all of them are spoilt"
    ((name, content),) = finished(tmp_path / "runs").items()
    assert name == "spoilt--greatest--items--text"
    assert (
        read_score_table(tmp_path / f"runs/registry/score-table/{name}/v0")
        .rows["reward"]
        .notna()
        .all()
    )
    Registry(tmp_path / "runs/registry").verify(tmp_path / f"runs/registry/score-table/{name}/v0")
    assert command(*line)[0] == 2
    assert finished(tmp_path / "runs") == {name: content}


def read_text(folder: Path, token: int) -> str:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder).decode([token])
