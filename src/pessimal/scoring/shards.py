"""Shards: finished batches on disk, so that a killed scan goes on where it stopped.

Knows files named by a batch's number. Does not know models.
"""

import hashlib
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from pessimal.tables.files import naming, open_to_others, write_atomically

_DIGEST = hashlib.sha256().digest_size


class Shards:
    """One folder of shards; a shard holds the row numbers and rewards of one batch, behind their
    sha256."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, batch: int, rows: np.ndarray, rewards: np.ndarray) -> None:
        """Store one finished batch: rows int (n,), rewards float32 (n,) or (n, outputs)."""
        payload = rows.astype("<i4").tobytes() + rewards.astype("<f4").tobytes()
        write_atomically(
            self._file(batch), hashlib.sha256(payload).digest() + payload, durable=False
        )

    def read(
        self, batch: int, rows: np.ndarray, *, width: tuple[int, ...] = ()
    ) -> np.ndarray | None:
        """Rewards float32 (n, *width) of a finished batch; None if it is missing, torn, damaged or
        of other rows."""
        try:
            content = self._file(batch).read_bytes()
        except FileNotFoundError:
            return None
        digest, payload = content[:_DIGEST], content[_DIGEST:]
        n, columns = len(rows), math.prod(width)
        if hashlib.sha256(payload).digest() != digest or len(payload) != 4 * n * (1 + columns):
            return None
        stored, rewards = np.split(np.frombuffer(payload, dtype="<i4"), [n])
        return rewards.view("<f4").reshape(n, *width) if np.array_equal(stored, rows) else None

    def agree(self, name: str, value: Any, *, insist: bool = False) -> Any:
        """What the first process to ask has settled on: `value`, as JSON has it, where nobody has,
        or where all `insist` on it; else what is written there."""
        file = self.folder / f"{name}.json"
        if insist:
            write_atomically(file, json.dumps(value).encode())
            return value
        # Process ids repeat from node to node, so the sibling's name is random.
        handle, draft_path = tempfile.mkstemp(prefix=f".{name}-", dir=self.folder)
        try:
            with naming(file), os.fdopen(handle, "w") as draft:
                draft.write(json.dumps(value))
                draft.flush()
                os.fsync(draft.fileno())
            open_to_others(draft_path)
            # Fails where it exists: one wins, and nobody sees half a file.
            os.link(draft_path, file)
        except FileExistsError:
            pass
        finally:
            os.unlink(draft_path)
        return json.loads(file.read_text())

    def _file(self, batch: int) -> Path:
        return self.folder / f"batch-{batch:06d}"
