"""From W&B into a registry-like folder: artifacts that others pushed, each file checked against its manifest.

Knows the client's read side and the registry's layout. What comes from a server is hostile until it is checked.
"""

import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath

from pessimal.errors import InputError, WorkError
from pessimal.tables.files import sha256_of
from pessimal.tracking.client import PATIENCE, check_server, connect, mirrored_name, settle, within
from pessimal.tracking.registry import MANIFEST, Manifest, Registry, safe_name

log = logging.getLogger(__name__)

_TYPE = re.compile(r"[a-z]+(-[a-z]+)*")
_SLOWEST = 100_000
"""Bytes a second below which a download is given up."""


@dataclass(frozen=True)
class Fetched:
    """What came from a server."""

    artifacts: list[tuple[Path, Manifest]]
    """Folder and manifest of everything asked for, also of what was here before."""
    downloaded: list[str]
    """References of what was not."""


def fetch_artifacts(
    project: str,
    entity: str | None,
    models: Sequence[str],
    prompts: Sequence[str],
    into: Registry,
    *,
    types: Sequence[str] = ("score-table",),
    every_version: bool = False,
) -> Fetched:
    """Bring artifacts of a W&B project into `into`, a registry of their own: `type/name/vN` as they were published.

    Args:
        entity: null for the key's own.
        models, prompts: only score tables of these; all where empty. Other types are taken whole.
        types: for example also `comparison`.
        every_version: also versions before the newest.

    Raises:
        InputError: nothing there was asked for; or an artifact is not what its manifest says, or differs from
            what `into` has under its reference.
        WorkError: the server cannot be reached, knows no such key, or stopped answering.
    """
    settle(into.root.parent / "wandb")
    api = connect()
    path = f"{entity or api.default_entity}/{project}"
    try:
        artifacts = _artifacts_at(api, path, types, every_version=every_version)
        wanted = [artifact for artifact in artifacts if _is_selected(artifact, models, prompts)]
        if not wanted:
            there = sorted({f"{a.metadata.get('model')} on {a.metadata.get('prompt')}" for a in artifacts})
            raise InputError(
                f"{path} at W&B has no {' or '.join(types)} of models={list(models)} prompts={list(prompts)}. There are: "
                f"{'; '.join(there[:8]) or 'none; to send some: pessimal push'}"
            )
        got = [_bring(artifact, into) for artifact in wanted]
    except (InputError, WorkError):
        raise
    except Exception as error:  # the client has many, and their texts are for its own developers
        check_server()
        raise WorkError(
            f"the W&B client stopped while fetching from {path}: {type(error).__name__}: {error}"
        ) from error
    references = {manifest.reference for _, manifest, _ in got}
    there = [pair for pair in into.manifests() if pair[1].reference in references]
    return Fetched(there, [manifest.reference for _, manifest, new in got if new])


def _artifacts_at(api, path: str, types: Sequence[str], *, every_version: bool) -> list:
    """The artifacts of these types that a push or a mirror made, newest first within a name."""
    known = {type.name for type in api.artifact_types(path)}
    artifacts = []
    for type in types:
        if type not in known:
            continue
        for collection in api.artifact_type(type, path).collections():
            versions = [
                a for a in api.artifacts(type, f"{path}/{collection.name}") if "manifest_sha256" in a.metadata
            ]
            versions.sort(key=lambda a: str(a.metadata.get("created")), reverse=True)
            artifacts += versions if every_version else versions[:1]
    return artifacts


def _is_selected(artifact, models: Sequence[str], prompts: Sequence[str]) -> bool:
    if artifact.type != "score-table":
        return True
    about = artifact.metadata
    return (not models or about.get("model") in models) and (not prompts or about.get("prompt") in prompts)


def _bring(artifact, into: Registry) -> tuple[Path, Manifest, bool]:
    """Folder, manifest, and whether it had to be downloaded."""
    file = artifact.manifest.entries.get(MANIFEST)
    if file is None:
        raise InputError(f"{artifact.name} at W&B has no {MANIFEST}: it was not made by pessimal")
    into.root.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=".fetch-", dir=into.root))
    try:
        seconds = PATIENCE + artifact.size / _SLOWEST
        within(
            seconds,
            lambda: artifact.download(root=str(staging), skip_cache=True),
            what=f"downloading {artifact.name}",
        )
        manifest = _checked(staging, artifact)
        folder = into.root / manifest.type / manifest.name / f"v{manifest.version}"
        if folder.exists():
            if sha256_of(folder / MANIFEST) != sha256_of(staging / MANIFEST):
                raise InputError(
                    f"{folder} differs from what {artifact.name} at W&B is: two registries count versions on their own. "
                    "Give each project a folder of its own"
                )
            into.verify(folder)
            return folder, manifest, False
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging.chmod(0o755)
        os.rename(staging, folder)
        return folder, manifest, True
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _checked(staging: Path, artifact) -> Manifest:
    """The manifest of a download whose files are exactly what it says; InputError otherwise."""
    wrong = f"{artifact.name} at W&B is not what its manifest says"
    try:
        document = json.loads((staging / MANIFEST).read_text())
        manifest = Manifest(**{field.name: document[field.name] for field in fields(Manifest)})
        named = [manifest.type, manifest.name, *manifest.files]
        sound = all(isinstance(name, str) for name in named) and isinstance(manifest.version, int)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{wrong}: {MANIFEST} cannot be read ({type(error).__name__}: {error})") from error
    if not sound or manifest.version < 0 or not _TYPE.fullmatch(manifest.type):
        raise InputError(f"{wrong}: {MANIFEST} names no artifact of a registry")
    if safe_name(manifest.name) != manifest.name or not all(map(_inside, manifest.files)):
        raise InputError(f"{wrong}: it names files outside its own folder")
    expected = mirrored_name(manifest.type, manifest.name)
    if artifact.type != manifest.type or artifact.name.partition(":")[0] != expected:
        raise InputError(f"{wrong}: the manifest is that of {manifest.reference}")
    for name, digest in manifest.files.items():
        file = staging / name
        if file.is_symlink() or not file.is_file() or sha256_of(file) != digest:
            raise InputError(f"{wrong}: {name} is missing or has other bytes")
    there = {str(file.relative_to(staging)) for file in staging.rglob("*") if not file.is_dir()}
    if foreign := sorted(there - {*manifest.files, MANIFEST}):
        raise InputError(f"{wrong}: it also has {', '.join(foreign[:3])}")
    return manifest


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and name != MANIFEST
