"""Is everything in the registry what was published? Every file by its sha256, every manifest by its line in the index.

Changes nothing. Only where a manifest and its line were changed alike, or a manifest while there was no index, does that
go unseen.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pessimal.errors import InputError
from pessimal.tables.files import sha256_of
from pessimal.tracking.registry import (
    INDEX,
    MANIFEST,
    STAGING,
    VERSIONS,
    Registry,
    manifest_text,
    read_line,
    read_manifest,
)

AGAIN = "remove the folder and run the task again with force=true, or put its mirrored copy there"


@dataclass(frozen=True)
class Damage:
    """One thing that is not as it was published."""

    where: str
    """The file or folder, counted from the registry's root."""
    what: str
    """What is wrong with it."""
    mend: str
    """What to do about it."""


def damages(
    registry: Registry, *, only: Iterable[Path] | None = None, checked: Callable[[int], None] = lambda _: None
) -> Iterator[Damage]:
    """Everything that is wrong with the registry, or with the artifacts in the folders `only`; reads every byte.

    `checked` is called with the number of files of each artifact that was looked at.
    """
    root, recorded = registry.root, {}
    for number, line in enumerate(registry.index_lines(), 1):
        recorded_line = read_line(line)
        if recorded_line:
            recorded[recorded_line[0]] = recorded_line[1]
        elif only is None:
            yield Damage(
                INDEX,
                f"line {number} is damaged",
                "the next command that lists the registry writes it again from the manifests",
            )
    if only is None:
        yield from _strays(root)
        there = {p.relative_to(root).as_posix() for p in root.glob(VERSIONS)}
        folders = [root / path for path in sorted(there | set(recorded))]
    else:
        folders = list(only)
    for folder in folders:
        yield from _of_artifact(root, folder, recorded.get(folder.relative_to(root).as_posix()), checked)


def _of_artifact(
    root: Path, folder: Path, recorded: dict | None, checked: Callable[[int], None]
) -> Iterator[Damage]:
    where = folder.relative_to(root).as_posix()
    if not folder.is_dir():
        yield Damage(
            where,
            "the index lists it, but there is no such folder",
            "where it was removed on purpose nothing is to be done: the next listing forgets it. Else run the task again",
        )
        return
    try:
        manifest = read_manifest(folder)
        files = manifest.files
    except InputError as error:
        there = (folder / MANIFEST).exists()
        yield Damage(f"{where}/{MANIFEST}", str(error.__cause__ or error) if there else "is missing", AGAIN)
        files = None if recorded is None else recorded["files"]
    else:
        if recorded is not None and (folder / MANIFEST).read_bytes() != manifest_text(recorded).encode():
            yield Damage(f"{where}/{MANIFEST}", f"differs from {INDEX}{_fields(folder, recorded)}", AGAIN)
            files = recorded["files"]
    if files is None:  # nothing says which files there were
        return
    yield from _of_files(where, folder, files)
    checked(len(files))


def _of_files(where: str, folder: Path, files: dict[str, str]) -> Iterator[Damage]:
    for name, digest in files.items():
        file = folder / name
        try:
            if not file.is_file():
                yield Damage(f"{where}/{name}", "is missing", AGAIN)
            elif sha256_of(file) != digest:
                yield Damage(f"{where}/{name}", "differs from what was published", AGAIN)
        except OSError as error:
            yield Damage(f"{where}/{name}", f"cannot be read: {error.strerror}", "read as a user who may")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name not in files and name != MANIFEST and (not path.is_dir() or path.is_symlink()):
            yield Damage(f"{where}/{name}", "was not published with the artifact", "move the file elsewhere")


def _strays(root: Path) -> Iterator[Damage]:
    """What lies between artifacts; what a process is filling, or a killed one left, is none of these."""
    for path in sorted({*root.glob("*/*/*"), *root.glob("*/*"), *root.glob("*")}):
        where = path.relative_to(root)
        depth = len(where.parts)
        own = depth == 1 and (path.name in (INDEX, ".lock") or path.name.startswith(f".{INDEX}-"))
        staged = depth == 3 and path.name.startswith(STAGING)
        version = depth == 3 and path.match("v[0-9]*")
        if own or staged or (path.is_dir() and (depth < 3 or version)):
            continue
        yield Damage(where.as_posix(), "is no part of any artifact", "move it elsewhere")


def _fields(folder: Path, recorded: dict) -> str:
    """Which fields of a manifest are not those that the index recorded."""
    now = json.loads((folder / MANIFEST).read_text())
    names = sorted(name for name in now.keys() | recorded.keys() if now.get(name) != recorded.get(name))
    return f" in {', '.join(names)}" if names else " in how it is written"
