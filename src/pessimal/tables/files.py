"""Small facts about files: digests, and writing so that a reader never sees half a file."""

import hashlib
import os
import tempfile
from pathlib import Path


def sha256_of(path: Path) -> str:
    """sha256 of a file's bytes, 64 hexadecimal digits, read in blocks."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path` by way of a sibling and one rename: readers see the old file or the new one."""
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
