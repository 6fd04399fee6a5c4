"""From W&B into a registry-like folder: score tables that others pushed, each file checked against
its manifest.

Knows the client's read side and the registry's layout. What comes from a server is hostile until it
is checked.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pessimal.errors import InputError
from pessimal.progress import call_within
from pessimal.tables.files import sha256_of
from pessimal.texts import safe_name
from pessimal.tracking.client import PATIENCE, connected, mirrored_name, settle
from pessimal.tracking.registry import MANIFEST, Manifest, Registry, damages, parse_manifest

if TYPE_CHECKING:
    import wandb

TYPE = "score-table"
_SLOWEST = 100_000
"""Bytes a second below which a download is given up."""


def fetch_score_tables(
    project: str, entity: str | None, models: Sequence[str], prompts: Sequence[str], into: Registry
) -> list[tuple[Path, Manifest, bool]]:
    """Bring the newest score tables of these models and prompts (all where empty) from a W&B
    project into `into`, a registry of their own: folder, manifest, and whether it was downloaded
        now; `entity` null is the key's own.

    Raises:
        InputError: nothing there was asked for; or an artifact is not what its manifest says, or
            differs from what `into` has under its reference.
        WorkError: the server cannot be reached, knows no such key, or stopped answering.
    """
    settle(into.root.parent / "wandb")
    with connected() as api:
        path = f"{entity or api.default_entity}/{project}"
        tables = call_within(PATIENCE * 5, lambda: _tables_at(api, path), task="listing the tables")
        about = [(a, a.metadata.get("model"), a.metadata.get("prompt")) for a in tables]
        wanted = [
            a for a, m, p in about if (not models or m in models) and (not prompts or p in prompts)
        ]
        if not wanted:
            there = sorted({f"{model} on {prompt}" for _, model, prompt in about})
            raise InputError(
                f"{path} at W&B has no {TYPE} of models={list(models)} prompts={list(prompts)}. "
                f"There are: {'; '.join(there[:8]) or 'none; to send some: pessimal push'}"
            )
        return [_bring(artifact, into) for artifact in wanted]


def _tables_at(api: "wandb.Api", path: str) -> "list[wandb.Artifact]":
    """Of every name the newest score table that a push or a mirror made."""
    if TYPE not in {type.name for type in api.artifact_types(path)}:
        return []
    names = [c.name for c in api.artifact_type(TYPE, path).collections()]
    newest = [api.artifact(f"{path}/{name}:latest") for name in names]
    return [a for a in newest if "manifest_sha256" in a.metadata]


def _bring(artifact: "wandb.Artifact", into: Registry) -> tuple[Path, Manifest, bool]:
    """Folder, manifest, and whether it had to be downloaded."""
    wrong = f"{artifact.name} at W&B is not what its manifest says"
    into.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=into.root) as place:
        raw = Path(place) / "raw"
        call_within(
            PATIENCE + artifact.size / _SLOWEST,
            lambda: artifact.download(root=str(raw), skip_cache=True),
            task=f"downloading {artifact.name}",
        )
        try:
            manifest = parse_manifest(raw / MANIFEST)
        except InputError as error:
            raise InputError(f"{wrong}: {MANIFEST} cannot be read ({error.__cause__})") from error
        expected = (TYPE, safe_name(manifest.name), mirrored_name(TYPE, manifest.name), True)
        name = artifact.name.partition(":")[0]
        if (manifest.type, manifest.name, name, manifest.version >= 0) != expected:
            raise InputError(f"{wrong}: {MANIFEST} is that of {manifest.reference}")
        home = Path(manifest.type, manifest.name, f"v{manifest.version}")
        staged, folder = Path(place) / home, into.root / home
        staged.parent.mkdir(parents=True)
        raw.rename(staged)
        for damage in damages(Registry(Path(place)), only=[staged]):
            raise InputError(f"{wrong}: {damage.where} {damage.what}")
        if folder.exists():
            if sha256_of(folder / MANIFEST) != sha256_of(staged / MANIFEST):
                raise InputError(
                    f"{folder} differs from what {artifact.name} at W&B is: two registries count "
                    "versions on their own. Give each project a folder of its own"
                )
            into.verify(folder)
            return folder, manifest, False
        folder.parent.mkdir(parents=True, exist_ok=True)
        staged.rename(folder)
        return folder, manifest, True
