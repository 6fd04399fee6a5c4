"""Finished blocks on disk, and who is at work on which of the others.

Any number of processes may share one folder: of one command, of several commands, on several machines. Each takes the
next block that is not finished and that no other process has; a process that ends, however it ends, has none.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

from pessimal.search.exhaustive_block import Block
from pessimal.tables.files import write_atomically

log = logging.getLogger(__name__)

_DIGEST = hashlib.sha256().digest_size
_NAME = "block-"
# How long a process with nothing left to take waits before it looks again.
_LOOK_AGAIN_SECONDS = 0.5


class BlockStore:
    """One folder of blocks; each stands behind a sha256 over what it depends on (`of`) and itself."""

    def __init__(self, folder: Path, *, of: str):
        self.folder, self.of = Path(folder), of.encode()
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, number: int, block: Block) -> None:
        """Store a finished block."""
        data = block.pack()
        write_atomically(self._file(number), self._digest(data) + data, durable=False)

    def read(self, number: int) -> Block | None:
        """A finished block; None if it is missing, torn, damaged or of other pairs."""
        data = self._whole(number)
        return None if data is None else Block.unpack(data)

    def holds(self, number: int) -> bool:
        """Whether `read` gives this block."""
        return self._whole(number) is not None

    def finished(self) -> set[int]:
        """Numbers of the blocks that are here, whole or not."""
        names = (entry.name for entry in os.scandir(self.folder))
        return {int(name.removeprefix(_NAME)) for name in names if name.startswith(_NAME)}

    def forget(self, number: int) -> None:
        """Remove a block, so that it is scored anew."""
        self._file(number).unlink(missing_ok=True)

    def _whole(self, number: int) -> bytes | None:
        try:
            content = self._file(number).read_bytes()
        except FileNotFoundError:
            return None
        digest, data = content[:_DIGEST], content[_DIGEST:]
        return data if self._digest(data) == digest else None

    def _digest(self, data: bytes) -> bytes:
        return hashlib.sha256(self.of + data).digest()

    def _file(self, number: int) -> Path:
        return self.folder / f"{_NAME}{number:06d}"


class Claims:
    """Which process is at work on which block: byte n of one file is locked while block n is scored.

    Locks of bytes, not a file for each block: they end with the process, leave nothing behind, and hold between the
    machines of a cluster. On a file system without locks every claim succeeds; then some blocks are scored twice, to
    the same numbers.
    """

    def __init__(self, folder: Path):
        self._handle = os.open(Path(folder) / "claims", os.O_RDWR | os.O_CREAT, 0o666)

    def take(self, number: int) -> bool:
        """Whether the block is this process's now; False where another one has it."""
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):  # systems differ in which of the two they raise
            return False
        except OSError:
            return True
        return True

    def release(self, number: int) -> None:
        """Leave the block to others."""
        with contextlib.suppress(OSError):
            fcntl.lockf(self._handle, fcntl.LOCK_UN, 1, number)

    def close(self) -> None:
        """Leave all blocks to others."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def take_next(store: BlockStore, claims: Claims, order: Sequence[int]) -> int | None:
    """Claim the first block in `order` that is neither finished nor another process's; None once all are finished.

    Waits while other processes are at work on all that are left: should one of them die, its block is there to take.
    """
    waiting = False
    while True:
        finished = store.finished()
        left = [number for number in order if number not in finished]
        for number in left:
            if claims.take(number):
                if number not in store.finished():
                    return number
                claims.release(number)  # it was finished just now
        if not left:
            return None
        if not waiting:
            log.info("waiting for %d blocks that other processes are scoring", len(left))
            waiting = True
        time.sleep(_LOOK_AGAIN_SECONDS)


def forget_damaged(store: BlockStore, claims: Claims, blocks: int) -> None:
    """Remove blocks that were torn or damaged since they were stored."""
    for number in sorted(store.finished()):
        if number >= blocks or not claims.take(number):
            continue
        if not store.holds(number):
            log.warning("block %d in %s is damaged; it is scored again", number, store.folder)
            store.forget(number)
        claims.release(number)
