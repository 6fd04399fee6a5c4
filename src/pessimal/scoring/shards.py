"""Shards: finished batches on disk, so that a killed scan goes on where it stopped.

Knows files named by a batch's number. Does not know models.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pessimal.tables.files import write_atomically


class Shards:
    """One folder of shards; a shard holds the row numbers and rewards of one batch."""

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def write(self, batch: int, rows: np.ndarray, rewards: np.ndarray) -> None:
        """Store one finished batch: rows int (n,), rewards float32 (n,)."""
        table = pa.table({"row": pa.array(rows, pa.int32()), "reward": pa.array(rewards, pa.float32())})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, write_page_checksum=True)
        write_atomically(self._file(batch), sink.getvalue().to_pybytes())

    def read(self, batch: int, rows: np.ndarray) -> np.ndarray | None:
        """Rewards float32 (n,) of a finished batch; None if it is missing, damaged or of other rows."""
        try:
            table = pq.read_table(self._file(batch), page_checksum_verification=True)
        except (OSError, pa.ArrowInvalid):
            return None
        if not np.array_equal(table["row"].to_numpy(), rows):
            return None
        return table["reward"].to_numpy()

    def _file(self, batch: int) -> Path:
        return self.folder / f"batch-{batch:06d}.parquet"
