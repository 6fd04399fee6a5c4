"""Blocks on disk are taken only where they are whole and of these pairs; each is scored by one process at a time."""

import os
import signal
import threading

import numpy as np
import pytest

from pessimal.search import exhaustive_store
from pessimal.search.exhaustive_block import Bins, summarise
from pessimal.search.exhaustive_store import BlockStore, Claims, forget_damaged, take_next

IDS = np.arange(3)
BLOCK = summarise(
    np.arange(9, dtype=np.float32).reshape(3, 3), firsts=IDS, seconds=IDS, keep=2, bins=Bins(0, 0)
)


@pytest.fixture
def store(tmp_path):
    made = BlockStore(tmp_path / "pairs", of="these pairs")
    made.write(7, BLOCK)
    return made


@pytest.fixture
def file(store):
    (file,) = store.folder.iterdir()
    return file


@pytest.fixture
def claims(store):
    made = Claims(store.folder)
    yield made
    made.close()


@pytest.fixture
def other(store):
    """other(numbers): a process that claims these blocks and lives until it is killed; its id."""
    children = []

    def start(numbers) -> int:
        ready, tell = os.pipe()
        child = os.fork()
        if not child:
            held = Claims(store.folder)
            os.write(tell, b"1" if all(held.take(number) for number in numbers) else b"0")
            signal.pause()
            os._exit(0)
        children.append(child)
        assert os.read(ready, 1) == b"1"
        os.close(ready)
        os.close(tell)
        return child

    yield start
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_stored_block_is_read_bit_by_bit(store):
    assert store.read(7).pack() == BLOCK.pack()
    assert store.read(6) is None
    assert store.finished() == {7}


def test_block_torn_or_changed_anywhere_is_not_taken(store, file):
    whole = file.read_bytes()
    for place in range(0, len(whole), 41):
        file.write_bytes(whole[:place])
        assert store.read(7) is None, place
        changed = bytearray(whole)
        changed[place] ^= 0x40
        file.write_bytes(changed)
        assert store.read(7) is None, place
    file.write_bytes(whole)
    assert store.read(7) is not None


def test_block_of_other_pairs_is_not_taken(store):
    assert BlockStore(store.folder, of="other pairs").read(7) is None


def test_damaged_blocks_are_removed_and_whole_ones_kept(store, file, claims):
    store.write(2, BLOCK)
    file.write_bytes(file.read_bytes()[:-1])
    forget_damaged(store, claims, 8)
    assert store.finished() == {2}


def test_block_that_another_process_has_is_left_to_it_until_it_dies(store, claims, other):
    child = other([0, 1])
    assert not claims.take(0)
    assert claims.take(2)
    assert take_next(store, claims, [1, 7, 0, 3]) == 3, "1 and 0 are the other's, 7 is finished"
    os.kill(child, signal.SIGKILL)
    while not claims.take(1):
        pass
    assert take_next(store, claims, [1, 7, 0, 3]) == 1


def test_process_with_nothing_left_to_take_waits_for_the_others(store, claims, other, monkeypatch):
    monkeypatch.setattr(exhaustive_store, "_LOOK_AGAIN_SECONDS", 0.01)
    other([0])
    timer = threading.Timer(0.2, store.write, (0, BLOCK))
    timer.start()
    assert take_next(store, claims, [0, 7]) is None
    assert store.finished() == {0, 7}


def test_block_that_was_finished_between_the_look_and_the_claim_is_not_scored_again(
    store, claims, monkeypatch
):
    take = Claims.take

    def finish_first(self, number):
        store.write(number, BLOCK)
        return take(self, number)

    monkeypatch.setattr(Claims, "take", finish_first)
    assert take_next(store, claims, [0, 1]) is None


def test_without_locks_every_block_can_be_taken(store, claims, other, monkeypatch):
    other([0])

    def no_locks(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.lockf", no_locks)
    assert take_next(store, claims, [0, 7]) == 0
    claims.release(0)
