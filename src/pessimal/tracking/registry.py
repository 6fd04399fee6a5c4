"""The registry: every result as an artifact on disk, published by one rename and never edited.

`registry/<type>/<name>/v<N>/` holds the files and a `manifest.json`, which has the sha256 of every
file and, in its last line, of itself: so a byte that changes later is seen, wherever it is. Knows
files and manifests, not what is in them, nor W&B.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from types import UnionType
from typing import Any, NamedTuple, get_origin, get_type_hints

from filelock import FileLock, Timeout

from pessimal.errors import InputError, did_you_mean
from pessimal.tables.files import naming, sha256_of
from pessimal.texts import safe_name

PACKAGE = Path(__file__).resolve().parents[1]
_SECONDS = 10
"""For one question to git."""


class Checkout(NamedTuple):
    """The recorded state of the code; both None where the package is in no checkout (a wheel), or
    there is no git."""

    commit: str | None = None
    """40 hexadecimal digits."""
    dirty: bool | None = None
    """Whether the package or its configuration differs from the commit, new files included."""


@functools.cache
def checkout(package: Path = PACKAGE) -> Checkout:
    """The commit and state of the code in `package`, as they were when this process first asked."""
    try:
        # A wheel may lie in an environment that lies in somebody's checkout: only code that git
        # tracks counts.
        _git(package, "ls-files", "--error-unmatch", "__init__.py")
        root = Path(_git(package, "rev-parse", "--show-toplevel"))
        changes = _git(root, "status", "--porcelain", "--", str(package), "conf")
        return Checkout(_git(package, "rev-parse", "HEAD"), bool(changes))
    except (OSError, subprocess.SubprocessError):
        return Checkout()


def _git(folder: Path, *arguments: str) -> str:
    hidden = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    options: dict[str, Any] = {"timeout": _SECONDS, "env": environment, "stderr": subprocess.PIPE}
    return subprocess.check_output(command, text=True, **options).strip()


log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
CONFIG = "run_config.json"
"""The configuration of the run; not config.json, which a checkpoint has already."""
STAGING = ".staging-"
_LOCK = ".lock"
_CHECKSUM = ',\n  "checksum": "'


@dataclass(frozen=True)
class Manifest:
    """An artifact's name, files and origin."""

    type: str
    """`score-table`, `comparison`, `reward-model`, `report` …"""
    name: str
    """Artifact name, safe as a folder and as a W&B artifact name."""
    version: int
    """0, 1, 2 … in order of publishing."""
    files: dict[str, str]
    """sha256 of each file, by its path inside the artifact."""
    key: str | None = None
    """Hash of what the content depends on; the same key means the same content, so it is not made
    again."""
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
    commit: str | None = None
    """Git commit of the checkout that pessimal ran from; None where it was installed from a
    wheel."""
    dirty: bool | None = None
    """Whether its code differed from that commit."""

    @property
    def reference(self) -> str:
        return f"{self.type}/{self.name}:v{self.version}"

    def __post_init__(self):
        for name, hint in get_type_hints(Manifest).items():
            kind = hint if isinstance(hint, UnionType) else get_origin(hint) or hint
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} is {getattr(self, name)!r:.80}, and not of {hint}")
        for name in self.files:
            path = PurePosixPath(name)
            if path.is_absolute() or not path.parts or ".." in path.parts:
                raise ValueError(f"the file {name!r:.80} is not below the artifact's folder")

    def text(self) -> str:
        """The text of `manifest.json`: without the commit where there is none; a checksum of all
        that in the last line."""
        absent = [name for name in Checkout._fields if getattr(self, name) is None]
        fields = {name: value for name, value in asdict(self).items() if name not in absent}
        body = json.dumps(fields, indent=2, sort_keys=True).removesuffix("\n}")
        return f'{body}{_CHECKSUM}{_sha256(body)}"\n}}'


def parse_manifest(file: Path) -> Manifest:
    """The manifest that a file holds; those of earlier versions have no checksum.

    Raises:
        InputError: it is not what was published, or was never a manifest.
    """
    try:
        text = file.read_bytes().decode()
        body, marker, checksum = text.rpartition(_CHECKSUM)
        if marker and checksum != _sha256(body) + '"\n}':
            raise ValueError("it was changed after it was published")
        return Manifest(**json.loads(body + "\n}" if marker else text))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        message = f"{file} cannot be read as a manifest ({error}); type: pessimal runs verify"
        raise InputError(message) from error


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def figures(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Every figure of a summary by its name; those of an inner dictionary as `outer.inner`."""
    flat: dict[str, Any] = {}
    for name, value in summary.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{key}": number for key, number in figures(value).items()}
        else:
            flat[name] = value
    return flat


class Registry:
    """A folder of artifacts. Any number of processes may read and publish at once."""

    def __init__(self, root: Path, *, config: dict | None = None):
        """`config` is the configuration of the run that publishes: it goes with whatever is
        published from here."""
        self.root = Path(root)
        self.config = config
        self._warned: set[str] = set()
        self._read: dict[Path, tuple[tuple[int, int], Manifest]] = {}

    def publish(
        self,
        type: str,
        name: str,
        fill: Callable[[Path], object],
        *,
        key: str | None = None,
        inputs: Sequence[str] = (),
        run_id: str | None = None,
        summary: Mapping[str, Any] | None = None,
    ) -> tuple[Path, Manifest]:
        """Let `fill(folder)` write the files into a hidden folder, then publish it as the next
        version.

        Until the rename nobody sees anything; if `fill` raises, nothing stays; what a killed
        process was filling is removed by the next that publishes anything. The registry's `config`
        is kept beside the files as `run_config.json`. Returns the published folder and its
        manifest.

        Raises:
            ValueError: `fill` wrote a file of a name that is the registry's own.
        """
        name, code, config = safe_name(name), checkout(), self.config
        home = self.root / type / name
        as_read = json.loads(json.dumps(dict(summary or {})))
        config_hash = None if config is None else _sha256(json.dumps(config, sort_keys=True))
        self.root.mkdir(parents=True, exist_ok=True)
        with naming(home), self._staging(home) as staging:
            fill(staging)
            if taken := [file for file in (MANIFEST, CONFIG) if (staging / file).exists()]:
                raise ValueError(f"{type}/{name}: the name {taken[0]} is the registry's own")
            if config is not None:
                (staging / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
            paths = [path for path in sorted(staging.rglob("*")) if path.is_file()]
            files = {str(path.relative_to(staging)): sha256_of(path) for path in paths}
            with self._lock():
                version = 1 + max(
                    (int(p.name[1:]) for p in home.glob("v*") if p.name[1:].isdigit()), default=-1
                )
                created = datetime.now(UTC).isoformat(timespec="microseconds")
                about = (key, list(inputs), config_hash, run_id, created, as_read, *code)
                manifest = Manifest(type, name, version, files, *about)
                (staging / MANIFEST).write_text(manifest.text())
                staging.chmod(0o755)
                folder = home / f"v{version}"
                Path(f"{staging}{_LOCK}").unlink()  # a kill after the rename leaves nothing
                os.rename(staging, folder)
        return folder, manifest

    def manifests(
        self, *types: str, needs: Mapping[str, Any] | None = None
    ) -> list[tuple[Path, Manifest]]:
        """Every artifact (of these types), ordered by type, name and version. One whose manifest
        cannot be read, or whose summary has no figure of a type that the caller `needs`, is left
        out with a warning: it does not hide the others."""
        artifacts = []
        files = (self.root.glob(f"{type}/*/v[0-9]*/{MANIFEST}") for type in types or "*")
        for file in itertools.chain.from_iterable(files):
            try:
                stamp = file.stat().st_mtime_ns, file.stat().st_size
                # A scan of many prompts looks again and again.
                if self._read.get(file, (None,))[0] != stamp:
                    self._read[file] = stamp, read_manifest(file.parent)
                manifest = self._read[file][1]
                for name, kind in (needs or {}).items():
                    if not isinstance(manifest.summary.get(name), kind):
                        raise InputError(f"{file} says no {name!r}; type: pessimal runs verify")
                artifacts.append((file.parent, manifest))
            except (InputError, FileNotFoundError) as error:
                # A file that is not there was removed meanwhile.
                if file.exists() and str(error) not in self._warned:
                    self._warned.add(str(error))
                    log.warning("left out: %s", error)
        return sorted(artifacts, key=lambda pair: (pair[1].type, pair[1].name, pair[1].version))

    def find(self, type: str, key: str) -> tuple[Path, Manifest] | None:
        """The newest artifact of this type whose content depends on exactly `key`, or None."""
        matches = [pair for pair in self.manifests(type) if pair[1].key == key]
        return matches[-1] if matches else None

    def latest(
        self, type: str, *, needs: Mapping[str, Any] | None = None
    ) -> list[tuple[Path, Manifest]]:
        """The newest version of every artifact of this type; `needs` as of `manifests`."""
        pairs = self.manifests(type, needs=needs)
        return list({manifest.name: (folder, manifest) for folder, manifest in pairs}.values())

    def artifact(
        self, name: str, *types: str, needs: Mapping[str, Any] | None = None
    ) -> tuple[Path, Manifest]:
        """The artifact (of these types) that is named, see `find_artifact`, or whose folder it is.

        Raises:
            InputError: there is no such artifact, or there are several.
        """
        root = self.root.resolve()
        if os.path.isdir(name) and Path(name).resolve().is_relative_to(root):
            name = Path(name).resolve().relative_to(root).as_posix()
        every = self.manifests(*types, needs=needs)
        reference = find_artifact(name, [manifest for _, manifest in every]).reference
        return next(pair for pair in every if pair[1].reference == reference)

    def choose(
        self, type: str, names: Sequence[str], *, needs: Mapping[str, Any] | None = None
    ) -> list[tuple[Path, Manifest]]:
        """The artifacts of this type that are named (see `artifact`), in the registry's order, with
        files as they were published; for the names ["all"] the newest version of each.

        Raises:
            InputError: there is none of a name, or none at all, or a file has changed.
        """
        artifacts = self.latest(type, needs=needs)
        if list(names) != ["all"]:
            artifacts = [self.artifact(name, type, needs=needs) for name in names]
        if not artifacts:
            raise InputError(f"there is no {type} in {self.root} yet. To list all: pessimal runs")
        folders = {manifest.reference: (folder, manifest) for folder, manifest in artifacts}
        for folder, _ in folders.values():
            self.verify(folder)
        return sorted(folders.values(), key=lambda pair: (pair[1].name, pair[1].version))

    def verify(self, folder: Path) -> None:
        """Raise InputError naming the file if a published file is missing or its bytes have
        changed."""
        manifest = read_manifest(folder)
        for name, digest in manifest.files.items():
            if fault_of(folder / name, digest):
                message = f"{folder / name} is missing or differs from what was published as"
                raise InputError(f"{message} {manifest.reference}: {AGAIN}")

    @contextlib.contextmanager
    def _staging(self, home: Path) -> Iterator[Path]:
        """A hidden folder in `home`, to be filled and renamed; removed where that fails. A lock
        beside it is held for as long as this process lives, so that others can distinguish it from
        one whose process was killed."""
        with self._lock():
            left = self.root.glob(f"*/*/{STAGING}*")
            for name in sorted({str(path).removesuffix(_LOCK) for path in left}):
                with contextlib.suppress(Timeout), FileLock(f"{name}{_LOCK}", blocking=False):
                    shutil.rmtree(name, ignore_errors=True)
                    Path(f"{name}{_LOCK}").unlink(missing_ok=True)
            for other in self.root.glob("*/*"):
                with contextlib.suppress(OSError):  # unless it is empty, it stays
                    other.rmdir()
            home.mkdir(parents=True, exist_ok=True)
            staging = Path(tempfile.mkdtemp(prefix=STAGING, dir=home))
            lock = FileLock(f"{staging}{_LOCK}")
            lock.acquire()
        try:
            yield staging
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()

    def _lock(self) -> FileLock:
        """Two processes must neither take one version, nor take what the other is filling for
        abandoned. The system lets go of it when a process is killed."""
        return FileLock(self.root / _LOCK)


def read_manifest(folder: Path) -> Manifest:
    """The manifest in an artifact's folder.

    Raises:
        InputError: there is none, it cannot be read as one, or it is that of another artifact.
    """
    manifest = parse_manifest(folder / MANIFEST)
    if folder.absolute().parts[-3:] != (manifest.type, manifest.name, f"v{manifest.version}"):
        message = f"{folder} holds the manifest of {manifest.reference}"
        raise InputError(f"{message}; type: pessimal runs verify")
    return manifest


def find_artifact(name: str, manifests: Sequence[Manifest]) -> Manifest:
    """The artifact that `name` names, of those in the registry's order; a name is `type/name:vN`,
    as a folder `type/name/vN`, `type/name`, `name:vN` or `name` (without a version the newest), or
    the id of the W&B run that published it.

    Raises:
        InputError: there is none such, or there are several.
    """
    typed = re.sub(r"(.+/.+)/(v\d+)", r"\1:\2", name)

    def names(m: Manifest) -> list[str]:
        return [m.name, f"{m.name}:v{m.version}", f"{m.type}/{m.name}", m.reference]

    newest = {(m.type, m.name): m for m in manifests if typed in names(m)}
    newest = newest or {(m.type, m.name): m for m in manifests if m.run_id == name}
    if len(newest) == 1:
        return next(iter(newest.values()))
    if newest:
        several = ", ".join(m.reference for m in newest.values())
        raise InputError(f"{name!r} stands for several: {several}. Type one of these")
    guess = did_you_mean(name, sorted({text for m in manifests for text in names(m)}))
    listing = ", ".join(m.reference for m in manifests[:8]) or "none"
    raise InputError(f"there is no artifact {name!r}.{guess} There are: {listing}; pessimal runs")


AGAIN = "remove the folder and run the task again with force=true, or put its mirrored copy there"


class Damage(NamedTuple):
    """One thing that is not as it was published."""

    where: str
    """The file or folder, counted from the registry's root."""
    what: str
    """The fault."""
    mend: str
    """The remedy."""


def damages(
    registry: Registry,
    *,
    only: Iterable[Path] | None = None,
    checked: Callable[[int], None] = lambda _: None,
) -> Iterator[Damage]:
    """Everything that is wrong with the registry, or with the artifacts in the folders `only`;
    reads every byte.

    `checked` is called with the number of files of each artifact that was looked at.
    """
    root = registry.root
    if only is None:
        yield from _strays(root)
    for folder in sorted(root.glob("*/*/v[0-9]*")) if only is None else only:
        where = folder.relative_to(root).as_posix()
        try:
            files = read_manifest(folder).files
        except InputError as error:
            file = folder / MANIFEST
            wrong = str(error.__cause__ or error) if file.exists() else "is missing"
            yield Damage(f"{where}/{MANIFEST}", wrong, AGAIN)
            continue  # nothing says which files there were
        yield from _file_damages(where, folder, files)
        checked(len(files))


def fault_of(file: Path, digest: str) -> str | None:
    """The fault of a published file; None where its bytes are as they were."""
    if not file.is_file():
        return "is missing"
    return None if sha256_of(file) == digest else "differs from what was published"


def _file_damages(where: str, folder: Path, files: dict[str, str]) -> Iterator[Damage]:
    for name, digest in files.items():
        try:
            if wrong := fault_of(folder / name, digest):
                yield Damage(f"{where}/{name}", wrong, AGAIN)
        except OSError as error:
            wrong = f"cannot be read: {error.strerror}"
            yield Damage(f"{where}/{name}", wrong, "read as a user who may")
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name not in files and name != MANIFEST and (not path.is_dir() or path.is_symlink()):
            wrong = "was not published with the artifact"
            yield Damage(f"{where}/{name}", wrong, "move the file elsewhere")


def _strays(root: Path) -> Iterator[Damage]:
    """Files and folders between artifacts; a folder that a process is filling, or that a killed one
    left, is none of these."""
    for path in sorted({*root.glob("*/*/*"), *root.glob("*/*"), *root.glob("*")}):
        where = path.relative_to(root)
        depth = len(where.parts)
        used = path.name == _LOCK if depth == 1 else depth == 3 and path.name.startswith(STAGING)
        if not used and not (path.is_dir() and (depth < 3 or path.match("v[0-9]*"))):
            yield Damage(where.as_posix(), "is no part of any artifact", "move it elsewhere")
