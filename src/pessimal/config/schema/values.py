"""Checks of single values, and what their messages say."""

import glob
from pathlib import Path
from typing import Any

from pessimal.errors import ConfigError, InputError


def at_least(minimum: int, **values: int) -> None:
    for name, value in values.items():
        if value < minimum:
            raise ConfigError(f"{name}={value}, but at least {minimum} is needed")


def existing_file(name: str, path: str) -> Path:
    try:
        file = Path(path).expanduser()
        there = file.is_file()
    except (OSError, RuntimeError) as error:  # too long a name, or ~ of a user there is not
        raise InputError(f"{name}={path!r}: there is no such file ({error})") from error
    if not there:
        raise InputError(f"{name}={path!r}: there is no such file (looked in {file.absolute().parent})")
    return file


def matching(name: str, given: Any) -> list[str]:
    """Existing files and folders that `given` names: a path, a pattern with * or a list of these."""
    patterns = [given] if isinstance(given, str) else given
    if not isinstance(patterns, list) or not all(isinstance(p, str) for p in patterns) or not patterns:
        raise ConfigError(
            f"{name}={given!r}: give a path, a pattern such as 'folder/*.parquet', or a list of paths"
        )
    values = []
    for pattern in patterns:
        try:
            expanded = str(Path(pattern).expanduser())
            matches = [expanded] if Path(expanded).exists() else sorted(glob.glob(expanded))
        except (OSError, RuntimeError, ValueError) as error:  # as above, or what no name of a file can hold
            raise InputError(f"{name}={pattern!r}: no such file ({error})") from error
        if not matches:
            raise InputError(
                f"{name}={pattern!r}: no such file (looked in {Path(expanded).absolute().parent})"
            )
        values += matches
    return values
