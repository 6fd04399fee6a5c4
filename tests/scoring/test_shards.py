"""Shards: what a killed scan left is taken only where it is whole and of these very rows."""

import numpy as np
import pytest

from pessimal.scoring.loop import Shards

ROWS = np.array([3, 1, 4, 15])
REWARDS = np.array([0.5, -1.25, 3e-30, 7.0], dtype=np.float32)


@pytest.fixture
def shards(tmp_path):
    made = Shards(tmp_path / "all")
    made.write(7, ROWS, REWARDS)
    return made


@pytest.fixture
def file(shards):
    (file,) = shards.folder.iterdir()
    return file


def test_finished_batch_is_read_bit_by_bit(shards):
    assert shards.read(7, ROWS).tobytes() == REWARDS.tobytes()
    assert Shards(shards.folder).read(7, ROWS) is not None, "another process finds it too"


def test_shard_torn_or_changed_anywhere_is_not_taken(shards, file):
    whole = file.read_bytes()
    damaged = [whole[:length] for length in range(len(whole))] + [whole + b"\0"]
    for place in range(len(whole)):
        damaged += [
            whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :]
            for flip in (0x01, 0x80, 0xFF)
        ]
    for content in damaged:
        file.write_bytes(content)
        assert shards.read(7, ROWS) is None, content
    file.write_bytes(whole)
    assert shards.read(7, ROWS) is not None
    assert shards.read(6, ROWS) is None, "not finished"


@pytest.mark.parametrize("rows", [[3, 1, 4, 16], [1, 3, 4, 15], [3, 1, 4], [3, 1, 4, 15, 9], []])
def test_shard_of_other_rows_is_not_taken(shards, rows):
    assert shards.read(7, np.array(rows, dtype=int)) is None


def test_write_that_fails_leaves_the_shard_that_was_there_and_nothing_else(
    shards, file, monkeypatch
):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        shards.write(7, ROWS, REWARDS + 1)
    assert list(shards.folder.iterdir()) == [file]
    assert shards.read(7, ROWS).tobytes() == REWARDS.tobytes()


def test_first_to_ask_settles_a_number_for_all_who_come_after(tmp_path):
    assert Shards(tmp_path).agree("batch-size", 64) == 64
    assert Shards(tmp_path).agree("batch-size", 128) == 64, (
        "the same scan, resumed where more memory is free"
    )
    assert Shards(tmp_path).agree("other", 128) == 128
    assert sorted(p.name for p in tmp_path.iterdir()) == ["batch-size.json", "other.json"]


def test_processes_of_one_number_on_two_nodes_agree(tmp_path, monkeypatch):
    """Containers count their processes from 1, and the folder is shared."""
    import os

    monkeypatch.setattr("os.getpid", lambda: 1)
    link, answers = os.link, []

    def link_while_the_other_asks_too(source, target):
        monkeypatch.setattr("os.link", link)
        answers.append(Shards(tmp_path).agree("batch-size", 128))
        link(source, target)

    monkeypatch.setattr("os.link", link_while_the_other_asks_too)
    answers.append(Shards(tmp_path).agree("batch-size", 64))
    assert answers == [128, 128]
