"""Files: digests, writing so that a reader never sees half a file, and CSV whose cells stay the
text that they are."""

import contextlib
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from packaging.version import Version

from pessimal.errors import InputError
from pessimal.options import check_ends

# It can only be read by setting it.
_UMASK = os.umask(0)
os.umask(_UMASK)


def sha256_of(path: Path) -> str:
    """sha256 of a file's bytes, 64 hexadecimal digits, read in blocks."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write `data` to `path` by way of a sibling and one rename: readers see the old file or the
    new one.

    `durable` also survives a loss of power, for the price of waiting for the disk.
    """
    path = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with naming(path), os.fdopen(handle, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        open_to_others(temporary)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder to be filled, which becomes `folder` in one rename: a process that is
    killed leaves no half of it. Where another process was first, its folder stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the final one, because a rename is atomic only within a file system.
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        yield temporary
        temporary.chmod(0o755)
        os.rename(temporary, folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def open_to_others(path: str) -> None:
    """Make a temporary file an ordinary one: others may read a shared registry."""
    os.chmod(path, 0o666 & ~_UMASK)


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the operating system that names no file name `path`: a full disk shows while
    writing, which knows of none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def read_csv(path: Path, separator: str = ",") -> pd.DataFrame:
    """Every cell as the text it is; pandas would take `null` and `NA` for missing values.

    A line ends as the first one does. Before Python 3.13 the csv module left a lone `\\r` without
    quotes, and every vocabulary has such a token: it is a cell's text, and no end of a line, where
    lines end in `\\n`.

    Raises:
        InputError: the file is empty, not UTF-8, or no table.
    """
    check_ends("path", path)
    try:
        content, stand_in = Path(path).read_bytes(), ""
        if b"\0" in content and Version(pd.__version__) < Version("3.1"):
            # pandas then ends a cell at a NUL, which vocabularies have too.
            private = map(chr, range(0xE000, 0xF900))
            stand_in = next(c for c in private if c.encode() not in content)
            content = content.replace(b"\0", stand_in.encode())
        first, newline, _ = content.partition(b"\n")
        table = pd.read_csv(
            io.BytesIO(content),
            sep=separator,
            dtype=str,
            keep_default_na=False,
            na_filter=False,
            lineterminator="\n" if newline and b"\r" not in first else None,
        )
        return table.replace(stand_in, "\0", regex=True) if stand_in else table
    except (OSError, UnicodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise InputError(f"{path} cannot be read as a CSV file: {error}") from error


def require_columns(path: Path, table: pd.DataFrame, needed: Iterable[str], *, layout: str) -> None:
    """Raises InputError where a file lacks a column; `layout` says what such a file has."""
    if missing := set(needed) - set(table.columns):
        raise InputError(f"{path} lacks the column {' and '.join(sorted(missing))}; {layout}")


def check_cells(
    where: str, cells: pd.Series, wrong: pd.Series, message: str, *, noun: str = ""
) -> None:
    """Raises InputError for the first `wrong` cell of a column: "WHERE, row N: NOUN 'cell'
    MESSAGE"."""
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(f"{where}, row {row + 1}: {noun}{cells.iloc[row]!r} {message}")
