"""The W&B client, tamed: where it writes, what may be sent, how long it may take, and what a
registry's artifact is there.

Knows wandb's environment and its ways of failing. Does not know runs.
"""

import base64
import contextlib
import hashlib
import json
import math
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pessimal.errors import InputError, WorkError
from pessimal.tables.files import sha256_of
from pessimal.tracking.registry import MANIFEST, Manifest

T = TypeVar("T")

PATIENCE = 12.0
"""Seconds that W&B may hold up a command beyond the command's own work."""
_PROBE = b'{"query":"query Viewer { viewer { id entity } }"}'
_PROBE_SECONDS = 5.0
_COMPANIONS = ("report", "conformance")
"""Types whose artifacts are named after something of another type: a page after its comparison, a
check after its model. In W&B one name has one type, so these carry theirs."""
_LONGEST = 128
"""Characters of a name in W&B."""
_NOTE = "pessimal.json"
_own: dict[str, str] = {}
"""Variables that this process has set; those that a user has set hold."""


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


def environment(folder: Path) -> dict[str, str]:
    """The variables that keep everything wandb writes under `folder`, but for those that the user
    has set: by default staged bytes go into the user's data folder, and where that is gone `wandb
        sync` says "Finished" having uploaded
    nothing."""
    chosen = {
        "WANDB_DATA_DIR": str(folder / "data"),
        "WANDB_CACHE_DIR": str(folder / "cache"),
        "WANDB_SILENT": "true",
    }
    return {
        name: value
        for name, value in chosen.items()
        if os.environ.get(name) in (None, _own.get(name))
    }


def settle(folder: Path) -> None:
    """Let this process' wandb write under `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    _own.update(environment(folder))
    os.environ.update(environment(folder))


def within(seconds: float, call: Callable[[], T], *, what: str) -> T:
    """What `call` returns or raises; TimeoutError naming `what` where that takes longer than
    `seconds`.

    The client has calls without any limit of time, and others whose limit is minutes. What does not
    come back in time goes on in a thread that dies with this process.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, daemon=True, name=f"wandb {what}")
    thread.start()
    thread.join(max(seconds, 0.01))
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"{what} took longer than {seconds:.0f} seconds")
    return results[0]


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


def base_url() -> str:
    """The server that wandb would ask, without a slash at its end."""
    import wandb

    return str(os.environ.get("WANDB_BASE_URL") or wandb.setup().settings.base_url).rstrip("/")


def check_server() -> None:
    """Raise WorkError, within about ten seconds, where the server cannot be reached, is at fault,
    or knows no such key."""
    from wandb.sdk.lib import wbauth

    url = base_url()
    session = wbauth.authenticate_session(
        host=url, source="pessimal", prompt=False, update_session=False
    )
    if session is None:
        raise WorkError(
            f"there is no API key for the W&B server {url}; type: wandb login, or set WANDB_API_KEY"
        )
    request = urllib.request.Request(f"{url}/graphql", _PROBE, {"Content-Type": "application/json"})
    if key := getattr(session, "api_key", None):
        request.add_header(
            "Authorization", "Basic " + base64.b64encode(f"api:{key}".encode()).decode()
        )
    viewer = None
    try:
        with urllib.request.urlopen(request, timeout=_PROBE_SECONDS) as answer:
            viewer = (json.load(answer).get("data") or {}).get("viewer")
    except (OSError, ValueError) as error:
        if getattr(error, "code", None) not in (401, 403):
            raise WorkError(
                f"the W&B server {url} cannot be reached or is at fault ({error}). Try again "
                f"later; look at the network, and "
                "at WANDB_BASE_URL where the server is your own"
            ) from error
    if not viewer:
        raise WorkError(
            f"the W&B server {url} does not know this API key; type: wandb login --relogin, or set "
            f"WANDB_API_KEY"
        )


def connect():
    """A `wandb.Api` for a server that is there and takes the key; WorkError within 15 seconds where
    it is not."""
    import wandb

    check_server()
    try:
        return within(
            PATIENCE - _PROBE_SECONDS, lambda: wandb.Api(timeout=10), what="asking the W&B server"
        )
    except Exception as error:
        raise WorkError(
            f"the W&B server {base_url()} did not let the client in: {error}"
        ) from error


@contextlib.contextmanager
def client_faults() -> Iterator[None]:
    """Let the client's own errors, which are many and written for its developers, be a WorkError
    that says what to do."""
    try:
        yield
    except (WorkError, InputError):
        raise
    except Exception as error:
        check_server()
        raise WorkError(f"the W&B client stopped: {type(error).__name__}: {error}") from error


def offline_run(target: Target, id: str, **about: Any):
    """An offline run, recorded below the target's folder with a note of where it is meant to go.

    Git, system metrics and console are recorded unless W&B's own variables turn them off
    (WANDB_DISABLE_GIT, WANDB_X_DISABLE_STATS, WANDB_CONSOLE).
    """
    import wandb

    settle(target.folder)
    run = wandb.init(
        id=id,
        mode="offline",
        dir=str(target.folder),
        project=target.project,
        entity=target.entity,
        group=target.group,
        tags=list(target.tags) or None,
        reinit="finish_previous",
        settings=wandb.Settings(init_timeout=PATIENCE, **about.pop("settings", {})),
        **about,
    )
    with contextlib.suppress(OSError):  # without the note the run is still whole
        note = json.dumps({"project": target.project, "entity": target.entity})
        (Path(run.dir).parent / _NOTE).write_text(note)
    return run


def recorded_runs(target: Target, id: str) -> list[Path]:
    """Folders of offline runs of this id that were recorded for exactly this project and entity."""

    def note(run: Path) -> Any:
        try:
            return json.loads((run / _NOTE).read_text())
        except (OSError, ValueError):
            return None

    wanted = {"project": target.project, "entity": target.entity}
    runs = sorted((target.folder / "wandb").glob(f"offline-run-*-{id}"))
    return [run for run in runs if note(run) == wanted]


def sync_process(
    *run_folders: Path | str, said, folder: Path, live: bool = False
) -> subprocess.Popen:
    """`wandb sync` of runs, which writes its output into the file `said`; `live` while a run is
    being written. To another project than the run's own it would not go whole: `wandb sync
    --project` leaves the artifacts where they were recorded for."""
    verb = ["beta", "sync", "--live"] if live else ["sync", "--include-synced"]
    variables = {**os.environ, **environment(folder), "WANDB_DIR": str(folder)}
    variables.pop("WANDB_MODE", None)  # of runs that are made, not of those that are sent
    return subprocess.Popen(
        [sys.executable, "-m", "wandb", *verb, "--yes", *map(str, run_folders)],
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        cwd=run_folders[0],  # it makes a folder `wandb` where it stands
        env=variables,
    )


def check_sync(process: subprocess.Popen, said) -> None:
    """WorkError with the end of what it `said` where a `wandb sync` that has ended failed."""
    if process.wait():
        said.seek(0)
        raise WorkError(f"wandb sync failed: {said.read().decode(errors='replace').strip()[-300:]}")


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


def alias_of(manifest: Manifest) -> str:
    """The alias of its version in W&B."""
    return f"registry-v{manifest.version}"


def as_artifact(folder: Path, manifest: Manifest, about: Mapping[str, Any] | None = None):
    """The `wandb.Artifact` of a published folder: every file of it and the manifest; the figures of
    its metadata are a level below, as W&B takes a hundred keys."""
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


def find_artifact(api, name: str):
    """The artifact `ENTITY/PROJECT/NAME:ALIAS`, or None where the server says that there is
    none."""
    from wandb.errors import CommError

    try:
        return api.artifact(name)
    except (CommError, ValueError):
        if api.artifact_exists(name):  # raises where the server did not answer
            raise
        return None


def link_inputs(api, run, *, path: str, inputs: Sequence[str], known: dict[str, Any]) -> list[str]:
    """Record at W&B what a run was made from (references of the registry), which wandb refuses to
    record in an offline run; returns those that W&B does not have. `known` keeps what was looked
    up, for other runs."""
    names = {reference: mirrored_reference(reference) for reference in dict.fromkeys(inputs)}
    linked = {
        f"{a.name.partition(':')[0]}:{alias}" for a in run.used_artifacts() for alias in a.aliases
    }
    unlinked = {reference: name for reference, name in names.items() if name not in linked}
    for name in unlinked.values():
        if name not in known:
            known[name] = find_artifact(api, f"{path}/{name}")
        if known[name] is not None:
            run.use_artifact(known[name])
    return [reference for reference, name in unlinked.items() if known[name] is None]
