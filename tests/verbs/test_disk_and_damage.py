"""A full disk, a damaged checkpoint, a reward that is no number: reported once, and what was
finished is kept."""

import errno
import os
import shutil
from pathlib import Path

import pytest
from lettered_checkpoint import command_line


def finished(root: Path) -> dict[str, bytes]:
    """The published tables by the folder of their artifact."""
    return {p.parent.parent.name: p.read_bytes() for p in root.rglob("v*/scores.parquet")}


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


@pytest.mark.parametrize("damage", [truncate, lose_a_shard, garble_tokenizer])
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


def read_text(folder: Path, token: int) -> str:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder).decode([token])
