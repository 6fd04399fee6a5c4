"""The W&B client: where it writes, how long it may take, and what a registry's artifact is there.

Only what W&B documents is used: `wandb.init`, `wandb.Api`, settings, environment variables, and
the command `wandb sync`. Does not know what a task sends.
"""

import contextlib
import hashlib
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pessimal.errors import InputError, WorkError
from pessimal.progress import call_within
from pessimal.tables.files import sha256_of
from pessimal.tracking.registry import MANIFEST, Manifest

if TYPE_CHECKING:
    import wandb

T = TypeVar("T")

PATIENCE = 12.0
"""Seconds that W&B may hold up a command beyond the command's own work."""
_REQUEST_SECONDS = 5
"""For one request to the server, its repetitions included."""
_COMPANIONS = ("report", "conformance")
"""Types whose artifacts are named after something of another type: a page after its comparison, a
check after its model. In W&B one name has one type, so these carry theirs."""
_LONGEST = 128
"""Characters of a name in W&B."""
_NOTE = "pessimal.json"


@dataclass(frozen=True)
class Target:
    """Where runs go."""

    project: str
    folder: Path
    """Everything wandb writes; also where runs that tasks recorded are."""
    entity: str | None = None
    """None: the key's own."""
    group: str | None = None
    tags: Sequence[str] = field(default_factory=list)


def settle(folder: Path) -> None:
    """Let this process' wandb, and the `wandb sync` that it starts, write under `folder` (which is
    made), and send nothing but runs. Variables that are set already hold."""
    folder.mkdir(parents=True, exist_ok=True)
    # By default staged bytes go into the user's data folder, and where that is gone `wandb sync`
    # says "Finished" having uploaded nothing.
    os.environ.setdefault("WANDB_DATA_DIR", str(folder / "data"))
    os.environ.setdefault("WANDB_CACHE_DIR", str(folder / "cache"))
    os.environ.setdefault("WANDB_SILENT", "true")
    # Else W&B's own telemetry goes to the server, offline too, and waits 30 seconds for it.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")


def clean(value: Any) -> Any:
    """`value` as JSON that the client and a server take: half surrogates written out as \\ud800
    (the client refuses an artifact whose metadata has one), numbers that are none as null, unknown
    objects as text."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [clean(item) for item in value]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return clean(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float) else clean(str(value))


def check_key() -> None:
    """WorkError where there is no API key; a terminal would be asked for one."""
    import wandb

    if not wandb.login(prompt=False, verify=False):
        raise WorkError("there is no API key for W&B; type: wandb login, or set WANDB_API_KEY")


@contextlib.contextmanager
def connected() -> Iterator["wandb.Api"]:
    """The server's API for the length of some work; every request takes at most five seconds.

    Raises:
        WorkError: what the client raises, said so that one can act on it.
    """
    import wandb

    try:
        # WANDB_MODE is about runs that are made, not about what is asked of a server.
        wandb.setup(settings=wandb.Settings(mode="online"))
        check_key()
        yield wandb.Api(timeout=_REQUEST_SECONDS)
    except (WorkError, InputError):
        raise
    except Exception as error:
        raise WorkError(
            f"the W&B server {wandb.setup().settings.base_url} cannot be reached, does not know "
            f"this API key, or is at fault ({type(error).__name__}: {error}). Look at the network, "
            "and at WANDB_BASE_URL where the server is your own; for another key, type: wandb "
            "login --relogin. Then the same command goes on from where it was"
        ) from error
    finally:
        release()


def release(seconds: float = 2.0) -> None:
    """End wandb's service. A process that ends does so too, but waits for ever where the service
    misses the word, as it may on a busy machine (0.31.0)."""
    import wandb

    with contextlib.suppress(Exception, SystemExit):
        call_within(seconds, wandb.teardown, task="ending the client")


def begin_run(
    target: Target,
    *,
    mode: str,
    id: str | None = None,
    patience: float = PATIENCE,
    settings: Mapping[str, Any] | None = None,
    **about: Any,
) -> "wandb.Run":
    """A run, recorded below the target's folder with a note of where it is meant to go, and sent
    from there where `mode` is online. Beginning it takes at most a third of `patience`, finishing
    it a quarter. Raises whatever the client raises where the server cannot be asked in that time.

    Git, system metrics and console are recorded unless W&B's own variables turn them off
    (WANDB_DISABLE_GIT, WANDB_X_DISABLE_STATS, WANDB_CONSOLE).
    """
    import wandb

    settle(target.folder)
    if mode == "online":
        check_key()
    run = wandb.init(
        # One a task, also where WANDB_RUN_ID is set.
        id=id or secrets.token_hex(4),
        mode="online" if mode == "online" else "offline",
        dir=str(target.folder),
        project=target.project,
        entity=target.entity,
        group=target.group,
        tags=list(target.tags) or None,
        reinit="finish_previous",
        settings=wandb.Settings(
            init_timeout=max(patience / 3, 1.0) if mode == "online" else PATIENCE,
            finish_timeout=max(patience / 4, 0.5),
            finish_timeout_raises=True,
            **settings or {},
        ),
        **about,
    )
    with contextlib.suppress(OSError):  # without the note the run is still whole
        (folder_of(run) / _NOTE).write_text(_note(target))
    return run


def folder_of(run: "wandb.Run") -> Path:
    """Where a run is recorded; what `wandb sync` takes."""
    return Path(run.dir).parent


def _note(target: Target) -> str:
    return json.dumps({"project": target.project, "entity": target.entity})


def recorded_runs(target: Target, id: str) -> list[Path]:
    """Folders of runs of this id that were recorded for exactly this project and entity: `wandb
    sync --project` would leave the artifacts where they were recorded for."""
    notes = sorted((target.folder / "wandb").glob(f"*run-*-{id}/{_NOTE}"))
    return [note.parent for note in notes if note.read_text() == _note(target)]


def mirrored_name(type: str, name: str) -> str:
    """The name in W&B: the registry's, for a report or conformance `NAME.TYPE`; one that is too
    long is cut and kept apart by a digest."""
    full = f"{name}.{type}" if type in _COMPANIONS else name
    if len(full) <= _LONGEST:
        return full
    return f"{full[: _LONGEST - 9]}-{hashlib.sha256(f'{type}/{name}'.encode()).hexdigest()[:8]}"


def mirrored_reference(reference: str) -> str:
    """`NAME:registry-vN` in W&B of a registry's `type/name:vN`: W&B counts versions of its own."""
    type, _, rest = reference.partition("/")
    name, _, version = rest.rpartition(":v")
    return f"{mirrored_name(type, name)}:registry-v{version}"


def as_artifact(
    folder: Path, manifest: Manifest, about: Mapping[str, Any] | None = None
) -> "wandb.Artifact":
    """A published folder as W&B has it, every file of it and the manifest; the figures of its
    metadata are a level below, as W&B takes a hundred keys."""
    import wandb

    copied = ("reference", "key", "config_hash", "run_id", "created", "inputs", "commit", "dirty")
    metadata = {
        **{name: getattr(manifest, name) for name in copied},
        "manifest_sha256": sha256_of(folder / MANIFEST),
        "model": manifest.summary.get("model"),
        "prompt": manifest.summary.get("prompt"),
        "summary": {**manifest.summary, **(about or {})},
    }
    name = mirrored_name(manifest.type, manifest.name)
    artifact = wandb.Artifact(name, type=manifest.type, metadata=clean(metadata))
    for file in [*manifest.files, MANIFEST]:
        # Published files never change, so W&B may read them where they are.
        artifact.add_file(str(folder / file), name=file, policy="immutable")
    return artifact


def log_artifact(
    run: "wandb.Run", folder: Path, manifest: Manifest, about: Mapping[str, Any] | None = None
) -> "wandb.Artifact":
    """Let a run log a published folder, as `latest` and by the registry's version."""
    artifact = as_artifact(folder, manifest, about)
    return run.log_artifact(artifact, aliases=["latest", f"registry-v{manifest.version}"])
