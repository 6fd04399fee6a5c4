"""The registry: every result as an artifact on disk, published by one rename and never edited.

`registry/<type>/<name>/v<N>/` holds the files and a `manifest.json`; `registry/index.jsonl` lists all of it, one
line an artifact. Knows files and manifests. Does not know what is in them, nor W&B.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pessimal.errors import InputError
from pessimal.tables.files import is_unlocked, naming, sha256_of, write_atomically

MANIFEST = "manifest.json"
INDEX = "index.jsonl"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Manifest:
    """What an artifact is and where it came from."""

    type: str
    """`score-table`, `comparison`, `reward-model`, `report` …"""
    name: str
    """Artifact name, safe as a folder and as a W&B artifact name."""
    version: int
    """0, 1, 2 … in order of publishing."""
    files: dict[str, str]
    """sha256 of each file, by its path inside the artifact."""
    key: str | None = None
    """Hash of what the content depends on; the same key means the same content, so it is not made again."""
    inputs: list[str] = field(default_factory=list)
    """References (`type/name:vN`) of the artifacts it was made from."""
    config_hash: str | None = None
    """sha256 of the resolved configuration of the run."""
    run_id: str | None = None
    """W&B run that made it."""
    created: str = ""
    """UTC time of publishing, ISO 8601."""
    summary: dict = field(default_factory=dict)
    """The few figures a list of artifacts should show."""

    @property
    def reference(self) -> str:
        return f"{self.type}/{self.name}:v{self.version}"


def safe_name(name: str) -> str:
    """`name` with everything but letters, digits, '.', '_' and '-' replaced by '_': the charset W&B allows.

    Where more than slashes and spaces were replaced, six digits of a digest keep different names apart.
    """
    safe = _UNSAFE.sub("_", name).strip("._") or "unnamed"
    plain = safe == name.replace("/", "_").replace(" ", "_")
    return safe if plain else f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


class Registry:
    """A folder of artifacts. Any number of processes may read and publish at once."""

    def __init__(self, root: Path):
        self.root = Path(root)

    def publish(
        self,
        type: str,
        name: str,
        fill: Callable[[Path], None],
        *,
        key: str | None = None,
        inputs: list[str] | None = None,
        config_hash: str | None = None,
        run_id: str | None = None,
        summary: dict | None = None,
    ) -> tuple[Path, Manifest]:
        """Let `fill(folder)` write the files into a hidden folder, then publish it as the next version.

        Until the rename nobody sees anything; if `fill` raises, nothing stays; what a killed process was filling is
        removed by the next that publishes under this name. Returns the published folder and its manifest.
        """
        name = safe_name(name)
        home = self.root / type / name
        home.mkdir(parents=True, exist_ok=True)
        with naming(home), self._staging(home) as staging:
            fill(staging)
            files = {
                str(p.relative_to(staging)): sha256_of(p) for p in sorted(staging.rglob("*")) if p.is_file()
            }
            with self._lock():
                version = 1 + max(
                    (int(p.name[1:]) for p in home.glob("v*") if p.name[1:].isdigit()), default=-1
                )
                manifest = Manifest(
                    type=type,
                    name=name,
                    version=version,
                    files=files,
                    key=key,
                    inputs=list(inputs or []),
                    config_hash=config_hash,
                    run_id=run_id,
                    created=datetime.now(UTC).isoformat(timespec="microseconds"),
                    summary=summary or {},
                )
                (staging / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2, sort_keys=True))
                staging.chmod(0o755)
                folder = home / f"v{version}"
                os.rename(staging, folder)
                self._write_index()
        return folder, manifest

    def manifests(self, type: str | None = None) -> list[tuple[Path, Manifest]]:
        """Every artifact (of one type), ordered by type, name and version; an index out of step is mended."""
        everything, in_step = self._read_index()
        if not in_step:
            with contextlib.suppress(OSError), self._lock():  # read, also where nothing can be written
                self._write_index()
        found = [pair for pair in everything if type in (None, pair[1].type)]
        return _in_order(found)

    def find(self, type: str, key: str) -> tuple[Path, Manifest] | None:
        """The newest artifact of this type whose content depends on exactly `key`, or None."""
        matches = [pair for pair in self.manifests(type) if pair[1].key == key]
        return matches[-1] if matches else None

    def latest(self, type: str) -> list[tuple[Path, Manifest]]:
        """The newest version of every artifact of this type."""
        newest = {manifest.name: (folder, manifest) for folder, manifest in self.manifests(type)}
        return list(newest.values())

    def verify(self, folder: Path) -> None:
        """Raise InputError naming the file if a published file is missing or its bytes have changed."""
        manifest = Manifest(**json.loads((folder / MANIFEST).read_text()))
        for name, digest in manifest.files.items():
            file = folder / name
            if not file.is_file() or sha256_of(file) != digest:
                raise InputError(
                    f"{file} is missing or differs from what was published as {manifest.reference}. "
                    "Artifacts are never edited: remove the folder and run the task again with force=true."
                )

    def _read_index(self) -> tuple[list[tuple[Path, Manifest]], bool]:
        """What the index lists, and whether it is in step with the folders; where it is not (a process died), what
        the manifests themselves say."""
        index = self.root / INDEX
        try:
            found = [json.loads(line) for line in index.read_text().splitlines()]
        except (FileNotFoundError, ValueError):
            found = []
        folders = {
            str(path.parent.relative_to(self.root)) for path in self.root.glob(f"*/*/v[0-9]*/{MANIFEST}")
        }
        in_step = {entry["path"] for entry in found} == folders
        if not in_step:
            found = [
                {"path": folder, **json.loads((self.root / folder / MANIFEST).read_text())}
                for folder in sorted(folders)
            ]
        return [(self.root / entry.pop("path"), Manifest(**entry)) for entry in found], in_step

    def _write_index(self) -> None:
        """Only with the lock held."""
        for abandoned in self.root.glob(f".{INDEX}-*"):
            abandoned.unlink(missing_ok=True)
        everything, _ = self._read_index()
        lines = [
            json.dumps({"path": str(folder.relative_to(self.root)), **asdict(manifest)}, sort_keys=True)
            for folder, manifest in _in_order(everything)
        ]
        write_atomically(self.root / INDEX, ("\n".join(lines) + "\n").encode())

    @contextlib.contextmanager
    def _staging(self, home: Path) -> Iterator[Path]:
        """A hidden folder in `home`, to be filled and renamed; removed where that fails. It is locked for as long as
        this process lives, so that others can tell it from one whose process was killed."""
        with self._lock():
            for folder in home.glob(".staging-*"):
                if _is_abandoned(folder):
                    shutil.rmtree(folder, ignore_errors=True)
            staging = Path(tempfile.mkdtemp(prefix=".staging-", dir=home))
            handle = os.open(staging, os.O_RDONLY)
            with contextlib.suppress(OSError):  # where no folder can be locked, none is thought abandoned
                fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield staging
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        finally:
            os.close(handle)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        # Renames alone would do for the artifacts; the lock keeps version numbers and the index in step.
        with (self.root / ".lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _in_order(found: list[tuple[Path, Manifest]]) -> list[tuple[Path, Manifest]]:
    return sorted(found, key=lambda pair: (pair[1].type, pair[1].name, pair[1].version))


def _is_abandoned(staging: Path) -> bool:
    """Whether the process that filled this folder is dead; False where the file system cannot tell."""
    try:
        handle = os.open(staging, os.O_RDONLY)
    except OSError:
        return False
    return is_unlocked(handle)
