"""What an artifact of the registry is in W&B: its name, aliases, metadata and files. The mirror and the push agree on it
here.

Knows manifests and `wandb.Artifact`. Talks to no server.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pessimal.tables.files import sha256_of
from pessimal.tracking.client import clean
from pessimal.tracking.registry import MANIFEST, Manifest

_COMPANIONS = ("report", "conformance")
"""Types whose artifacts are named after something of another type: a page after its comparison, a check after its model.
In W&B one name has one type, so these carry theirs."""

_LONGEST = 128


def mirrored_name(type: str, name: str) -> str:
    """The name in W&B: the registry's, for a report or conformance `NAME.TYPE`; beyond 128 characters, which W&B does
    not take, cut and kept apart by a digest."""
    full = f"{name}.{type}" if type in _COMPANIONS else name
    if len(full) <= _LONGEST:
        return full
    return f"{full[: _LONGEST - 9]}-{hashlib.sha256(f'{type}/{name}'.encode()).hexdigest()[:8]}"


def alias_of(version: int) -> str:
    """The alias of a version: W&B counts versions of its own, which are not the registry's."""
    return f"registry-v{version}"


def mirrored_reference(reference: str) -> str:
    """`NAME:registry-vN` in W&B of a registry's `type/name:vN`."""
    type, _, rest = reference.partition("/")
    name, _, version = rest.rpartition(":v")
    return f"{mirrored_name(type, name)}:{alias_of(int(version))}"


def metadata_of(folder: Path, manifest: Manifest, about: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What an artifact says of itself in W&B; ten keys (W&B takes 100), the figures one level below."""
    return clean(
        {
            "reference": manifest.reference,
            "manifest_sha256": sha256_of(folder / MANIFEST),
            "key": manifest.key,
            "config_hash": manifest.config_hash,
            "run_id": manifest.run_id,
            "created": manifest.created,
            "inputs": manifest.inputs,
            "model": manifest.summary.get("model"),
            "prompt": manifest.summary.get("prompt"),
            "summary": {**manifest.summary, **(about or {})},
        }
    )


def as_artifact(folder: Path, manifest: Manifest, about: Mapping[str, Any] | None = None):
    """The `wandb.Artifact` of a published folder: every file of it and the manifest."""
    import wandb

    artifact = wandb.Artifact(
        mirrored_name(manifest.type, manifest.name),
        type=manifest.type,
        metadata=metadata_of(folder, manifest, about),
    )
    for name in [*manifest.files, MANIFEST]:
        # Published files never change, so W&B may read them where they are.
        artifact.add_file(str(folder / name), name=name, policy="immutable")
    return artifact
