"""Records of a run of W&B's as they lie on the disk."""

import struct
from pathlib import Path


def run_records(file: Path) -> dict[str, list]:
    """The records of a run by kind; W&B's log is blocks of 32 KiB after seven bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    raw, position, pieces, records = file.read_bytes(), 7, b"", {}
    while position + 7 <= len(raw):
        if (left := 32768 - position % 32768) < 7:
            position += left
            continue
        _, length, kind = struct.unpack("<IHB", raw[position : position + 7])
        pieces += raw[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the last piece of one
            record = Record.FromString(pieces)
            name = record.WhichOneof("record_type")
            records.setdefault(name, []).append(getattr(record, name))
            pieces = b""
    return records
