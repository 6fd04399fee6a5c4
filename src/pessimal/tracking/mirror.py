"""The mirror: one W&B run per task, open while it works; a copy of results that are already in the
registry.

Every run is recorded on this disk; `online` also sends it while it grows. A fault (no network, no
key, a full disk) costs the mirror, never a result: one warning with the command that repairs it,
and the task goes on. Only what W&B documents is used, and its own timeouts bound the beginning and
the end of a run.
"""

import contextlib
import hashlib
import logging
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pessimal.errors import InputError, WorkError
from pessimal.progress import call_within
from pessimal.tables.files import sha256_of
from pessimal.tracking.registry import MANIFEST, Manifest, Registry

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)

PATIENCE = 12.0
"""Seconds that W&B may hold up a command: a third each to begin, to take artifacts and to end."""
_REQUEST_SECONDS = 5
"""For one request to the server, its repetitions included."""
_COMPANIONS = ("report", "conformance")
"""Types whose artifacts are named after something of another type: a page after its comparison, a
check after its model. In W&B one name has one type, so these carry theirs."""
_LONGEST = 128
"""Characters of a name in W&B."""
# wandb.Table cuts off at 200,000 rows with only a log line, and is slow long before: full tables
# travel as parquet.
MAX_TABLE_ROWS = 5_000
STEPS = {"train": "step", "search": "evaluations", "scan": "candidates", "forecast": "kl"}
"""The axis of each time series; those of `pessimal/*` are drawn against `train/step`."""
SAFE = "Nothing is lost: every result is in the registry"
_FULL = 1 << 20
"""Bytes that a disk must have left to be taken for one that can be written to."""


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
    """Let this process' wandb write under `folder` (which is made), and send nothing but runs.
    Variables that are set already hold."""
    folder.mkdir(parents=True, exist_ok=True)
    # Else staged bytes go into the user's data folder, which may be gone before they are sent.
    # And W&B's own telemetry goes to the server, offline too, and waits 30 seconds for it.
    variables = {"DATA_DIR": str(folder / "data"), "CACHE_DIR": str(folder / "cache")}
    for name, value in (variables | {"SILENT": "true", "ERROR_REPORTING": "false"}).items():
        os.environ.setdefault(f"WANDB_{name}", value)


def clean(value: Any) -> Any:
    """`value` as JSON that the client and a server take: half surrogates written out as \\ud800
    (the client refuses an artifact whose metadata has one), numbers that are none as null, unknown
    objects as text."""
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [clean(item) for item in value]
    if getattr(value, "shape", None) == ():
        value = value.item()
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, bool | int | float):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode()


def check_key() -> None:
    """WorkError where there is no API key; a terminal would be asked for one."""
    import wandb

    if not wandb.login(prompt=False, verify=False):
        raise WorkError("there is no API key for W&B; type: wandb login, or set WANDB_API_KEY")


@contextlib.contextmanager
def connected() -> Iterator["wandb.Api"]:
    """The server's API for the length of some work; every request takes at most five seconds.

    Raises:
        WorkError: the client raised something; it says what to do.
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
        server = wandb.setup().settings.base_url
        raise WorkError(
            f"the W&B server {server} cannot be reached, does not know this key, or is at fault "
            f"({type(error).__name__}: {error}). Look at the network and WANDB_BASE_URL, or type "
            "wandb login --relogin. Then the same command goes on from where it was"
        ) from error
    finally:
        release()


def release(seconds: float = 2.0) -> None:
    """End wandb's service. The client waits for ever where the service misses the word, as it does
    where a request hangs (0.31.0); nothing of its own bounds this."""
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
    """A run, recorded below the target's folder, and sent from there where `mode` is online.
    Beginning it takes at most a third of `patience`, and so does finishing it. Raises whatever the
    client raises where the server cannot be asked in that time.

    Git, system metrics and console are recorded unless W&B's own variables turn them off
    (WANDB_DISABLE_GIT, WANDB_X_DISABLE_STATS, WANDB_CONSOLE).
    """
    import wandb

    settle(target.folder)
    seconds = max(patience / 3, 1.0)
    limits: dict[str, Any] = {"init_timeout": PATIENCE, "finish_timeout": seconds}
    if mode == "online":
        check_key()
        limits["init_timeout"] = seconds
    about |= {name: getattr(target, name) for name in ("project", "entity", "group")}
    return wandb.init(
        id=id or secrets.token_hex(4),  # one per task, also where WANDB_RUN_ID is set
        mode="online" if mode == "online" else "offline",
        dir=str(target.folder),
        tags=list(target.tags) or None,
        reinit="finish_previous",
        settings=wandb.Settings(finish_timeout_raises=True, **limits, **settings or {}),
        **about,
    )


def folder_of(run: "wandb.Run") -> Path:
    """Where a run is recorded; what `wandb sync` takes."""
    return Path(run.dir).parent


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
    metadata = {name: getattr(manifest, name) for name in copied}
    metadata |= {name: manifest.summary.get(name) for name in ("model", "prompt")}
    metadata |= {"summary": {**manifest.summary, **(about or {})}}
    metadata["manifest_sha256"] = sha256_of(folder / MANIFEST)
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


class Mirror:
    """The W&B run of a task as its parts see it; without a run (`tracking=off`) nothing is sent."""

    run_id: str | None = None

    def __init__(self, run: "wandb.Run | None" = None):
        self._run = run
        if run is not None:
            self.run_id = run.id
        self.artifacts: "list[wandb.Artifact]" = []  # noqa: UP037 wandb is imported where it is used
        """Every artifact that was logged."""
        self.inputs: dict[str, None] = {}
        """References of their inputs."""

    def send(self, call: "Callable[[wandb.Run], object]") -> None:
        """Let the client do something; after its first fault nothing more."""
        try:
            if self._run is not None:
                call(self._run)
        except Exception as error:
            self._run = None
            message = "W&B did not take a part of this run (%r). %s. To send results: pessimal push"
            log.warning(message, error, SAFE)

    def summary(self, values: Mapping[str, Any]) -> None:
        """Final figures of the run, flat names such as `greatest/top`."""
        self.send(lambda run: run.summary.update(clean(values)))

    def metrics(self, values: Mapping[str, float]) -> None:
        """One point of a time series, with what it is drawn against (see STEPS): `{"train/step":
        10, "train/loss": 0.5}`."""
        self.send(lambda run: run.log(clean(values)))

    def table(self, name: str, frame: pd.DataFrame) -> None:
        """A small table (top and bottom tokens, a matrix)."""
        if (n := len(frame)) > MAX_TABLE_ROWS:
            raise ValueError(f"table {name!r} has {n} rows; log it as parquet in an artifact")
        # Half surrogates cannot be written as UTF-8.
        plain = frame.astype(object).where(frame.notna(), None)
        plain = plain.map(lambda value: clean(value) if isinstance(value, str) else value)
        self._log(name, "Table", False, dataframe=plain, allow_mixed_types=True)

    def image(self, name: str, path: Path, caption: str) -> None:
        """A figure, as PNG."""
        self._log(name, "Image", False, data_or_path=str(path), caption=clean(caption))

    def page(self, name: str, path: Path) -> None:
        """A page of HTML, which the run shows as it is."""
        self._log(name, "Html", True, data=str(path), inject=False)

    def _log(self, name: str, kind: str, commit: bool, **content: Any) -> None:
        """Log an object of a class of wandb's."""

        def call(run: "wandb.Run") -> None:
            import wandb

            run.log({name: getattr(wandb, kind)(**content)}, commit=commit)

        self.send(call)

    def publish(
        self,
        registry: Registry,
        type: str,
        name: str,
        fill: Callable[[Path], object],
        *,
        more: Mapping[str, Any] | None = None,
        **about: Any,
    ) -> tuple[Path, Manifest]:
        """Publish in the registry (`about` as there), then mirror that; `more` is said at W&B
        alone."""
        folder, manifest = registry.publish(type, name, fill, run_id=self.run_id, **about)
        self.artifact(folder, manifest, more or {})
        return folder, manifest

    def artifact(self, folder: Path, manifest: Manifest, metadata: Mapping[str, Any]) -> None:
        """A published artifact: same type and files, the name that `mirrored_name` gives it."""

        def call(run: "wandb.Run") -> None:
            self.artifacts.append(log_artifact(run, folder, manifest, metadata))
            self.inputs |= dict.fromkeys(manifest.inputs)

        self.send(call)


@contextlib.contextmanager
def open_mirror(
    target: Target, *, mode: str, job_type: str, name: str, config: dict, patience: float = PATIENCE
) -> Iterator[Mirror]:
    """A W&B run for the length of one task (`mode` online or offline), or a mirror that sends
    nothing (off).

    Online, asking the server, waiting for the artifacts and ending the run take at most `patience`
    seconds together. A server that cannot be asked makes the run an offline one; what has not
    arrived in time stays recorded, and a message gives the command that sends it.
    """
    if mode == "off":
        yield Mirror()
        return
    # W&B's own variables hold.
    about = {"job_type": os.environ.get("WANDB_JOB_TYPE") or job_type, "config": clean(config)}
    about["name"] = os.environ.get("WANDB_NAME") or name[:128]
    run = _begin(target, mode=mode, patience=patience, **about)
    mirror, exit_code = Mirror(run), 1
    try:
        yield mirror
        exit_code = 0
    finally:
        if run is not None:
            _finish(mirror, run, target, exit_code=exit_code, seconds=patience / 3)


def _begin(target: Target, *, mode: str, **about: Any) -> "wandb.Run | None":
    """A run; an offline one where the server cannot be asked; none, and a warning, where the client
    cannot begin one."""
    refused: Exception | None = None
    for way in dict.fromkeys((mode, "offline")):
        try:
            run = begin_run(target, mode=way, **about)
            for series, step in STEPS.items():
                run.define_metric(f"{series}/{step}", hidden=True)
                run.define_metric(f"{series}/*", step_metric=f"{series}/{step}")
            run.define_metric("pessimal/*", step_metric="train/step")
            if refused is not None:
                _warn(refused, run, target)
            return run
        except Exception as error:
            refused = error
    message = "W&B could not begin a run (%r). %s. To send results: pessimal push"
    log.warning(message, refused, SAFE)
    return None


def _finish(
    mirror: Mirror, run: "wandb.Run", target: Target, *, exit_code: int, seconds: float
) -> None:
    """End the run and the client; online, first wait some seconds for its artifacts, and record
    its lineage."""
    faults: list[Exception] = []
    for step in (partial(_await_artifacts, mirror, run, seconds), partial(run.finish, exit_code)):
        try:
            step()
        except Exception as error:
            faults.append(error)
    if faults:
        _warn(faults[0], run, target)
    elif not run.offline:
        log.info("Weights & Biases: %s", run.url)
    release()
    # The client's service drops what it cannot write without a word.
    with contextlib.suppress(OSError):
        if shutil.disk_usage(target.folder).free < _FULL:
            message = "W&B may miss a part of this run: %s is full. %s. To send it: pessimal push"
            log.warning(message, target.folder, SAFE)


def _await_artifacts(mirror: Mirror, run: "wandb.Run", seconds: float) -> None:
    """Wait for the artifacts of a run, and record what they were made from. Raises whatever the
    client raises where one does not arrive in time."""
    from wandb.errors import CommError

    if run.offline:
        return
    deadline, missing = time.monotonic() + seconds, []
    for artifact in mirror.artifacts:
        try:
            artifact.wait(timeout=max(int(deadline - time.monotonic()), 1))
        except ValueError as error:
            raise ValueError(f"{artifact.name} did not arrive: {error}") from error
    for reference in mirror.inputs:
        try:
            run.use_artifact(mirrored_reference(reference))
        except CommError:
            missing.append(reference)
    if missing:
        log.warning("W&B lacks inputs of this run: %s. To send them: pessimal push", missing[:8])


def _warn(error: Exception, run: "wandb.Run", target: Target) -> None:
    # What an online run logged as artifacts is not in what it recorded: that is what push is for.
    log.warning(
        "W&B did not get this run: %s. %s, and the run is recorded here. Type, when the server can "
        "be reached: wandb sync --include-online %s; then pessimal push tracking.project=%s",
        *(error, SAFE, folder_of(run), target.project),
    )
