"""Is an artifact of the registry in W&B, whole and the same? Asked of the server, never of what was sent.

Knows the client's read side and manifests. Sends nothing.
"""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

from pessimal.tables.files import sha256_of
from pessimal.tracking.mirrored import alias_of, mirrored_name
from pessimal.tracking.registry import MANIFEST, Manifest
from pessimal.tracking.upload import find_artifact


@dataclass(frozen=True)
class Verdict:
    """What the server has of one artifact."""

    reference: str
    """`type/name:vN` in the registry."""
    state: str
    """`ok`, `missing`, `mismatch`, or `alias` where all is the same but `latest` stands at another version."""
    message: str = ""
    """What is wrong and what to do; empty where nothing is."""

    @property
    def same(self) -> bool:
        """Whether the artifact is there with the same content."""
        return self.state in ("ok", "alias")


def verdict(api, folder: Path, manifest: Manifest, *, path: str, latest: bool = False) -> Verdict:
    """Compare W&B's version with the files on this disk: state, type, manifest, file count, size and md5 of every file.

    Args:
        path: `ENTITY/PROJECT`.
        latest: whether `latest` must stand at this version.

    Raises whatever the client raises where the server does not answer: that an artifact is missing is only said by one
    that does.
    """
    name = f"{path}/{mirrored_name(manifest.type, manifest.name)}:{alias_of(manifest.version)}"
    remote = find_artifact(api, name)
    if remote is None:
        return Verdict(manifest.reference, "missing", f"{name} is not there")
    if remote.metadata.get("manifest_sha256") != sha256_of(folder / MANIFEST):
        return Verdict(
            manifest.reference,
            "mismatch",
            f"{name} is there, but was made from another registry ({remote.type}, {remote.metadata.get('created')}); nothing "
            "is overwritten: choose another tracking.project, or delete it at W&B",
        )
    wrong = _differences(remote, folder, manifest)
    if wrong:
        return Verdict(
            manifest.reference,
            "mismatch",
            f"{name}: {'; '.join(wrong[:4])}. Delete this version at W&B and push again",
        )
    if latest and "latest" not in remote.aliases:
        return Verdict(manifest.reference, "alias", f"{name}: latest stands at another version; push again")
    return Verdict(manifest.reference, "ok")


def _differences(remote, folder: Path, manifest: Manifest) -> list[str]:
    expected = [*manifest.files, MANIFEST]
    files = remote.manifest.entries
    wrong = []
    if remote.state != "COMMITTED":
        wrong.append(f"its state is {remote.state}, not COMMITTED")
    if remote.type != manifest.type:
        wrong.append(f"its type is {remote.type}, not {manifest.type}")
    if remote.file_count != len(expected):
        wrong.append(f"it has {remote.file_count} files, not {len(expected)}")
    if missing := sorted(set(expected) - set(files)):
        wrong.append(f"without {', '.join(missing[:3])}")
    if foreign := sorted(set(files) - set(expected)):
        wrong.append(f"with {', '.join(foreign[:3])} besides")
    for name in expected:
        if name in files and files[name].digest != md5_of(folder / name):
            wrong.append(f"{name} differs")
    return wrong


def md5_of(path: Path) -> str:
    """md5 of a file's bytes in base64, as W&B gives it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    return base64.b64encode(digest.digest()).decode()
