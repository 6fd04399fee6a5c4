"""The mirror: one W&B run per task, a copy of results that are already in the registry.

Knows the wandb client. A run is always recorded on this disk first; `online` sends it on from there while it grows
(`uploader`), so that a task does the same work online and offline and never waits for a network. Whatever fails here
(no network, no key, a full disk) costs the mirror, never a result: one warning, and the task goes on.
"""

import contextlib
import logging
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pessimal.tables.files import sha256_of
from pessimal.tracking.client import PATIENCE, clean, settle, within
from pessimal.tracking.mirrored import alias_of, as_artifact, mirrored_name, mirrored_reference
from pessimal.tracking.recorded import note_target
from pessimal.tracking.registry import MANIFEST, Manifest
from pessimal.tracking.uploader import Uploader

log = logging.getLogger(__name__)

# wandb.Table cuts off at 200,000 rows with only a log line, and is slow long before: full tables travel as parquet.
MAX_TABLE_ROWS = 5_000

_FULL = 1 << 20
"""Bytes that a disk must have left to be taken for one that can be written to."""


class Mirror:
    """What a task may send to W&B. This one sends nothing (`tracking=off`)."""

    run_id: str | None = None

    def summary(self, values: Mapping[str, Any]) -> None:
        """Final figures of the run, flat names such as `greatest/top`."""

    def metrics(self, values: Mapping[str, float]) -> None:
        """One step of a time series."""

    def table(self, name: str, frame: pd.DataFrame) -> None:
        """A small table (top and bottom tokens, a matrix)."""

    def image(self, name: str, path: Path, caption: str) -> None:
        """A figure, as PNG."""

    def artifact(self, folder: Path, manifest: Manifest, metadata: Mapping[str, Any]) -> None:
        """A published artifact: same type and files, the name that `mirrored_name` gives it."""


class WandbMirror(Mirror):
    """Sends to a W&B run that is recorded on this disk; its uploader (online) follows."""

    def __init__(self, run, *, uploader: Uploader | None = None):
        self._run = run
        self._uploader = uploader
        self._failed = False
        self._patience = PATIENCE
        self.run_id = run.id
        self.artifacts: list[tuple[str, str]] = []
        """Name in W&B, and sha256 of the manifest, of what was logged."""
        self.inputs: dict[str, None] = {}
        """References of what that was made from, each once."""

    @contextlib.contextmanager
    def _forgiving(self) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
            if self._uploader is not None:
                self._uploader.look()
        except Exception as error:
            if not self._failed:
                log.warning(
                    "Weights & Biases did not take a part of this run (%s: %s). Nothing is lost: every result is in "
                    "the registry. To send results from there: pessimal push",
                    type(error).__name__,
                    error,
                )
            self._failed = True
        if self._failed:  # what fails slowly may do so for every figure of a run
            self._patience -= time.monotonic() - begin

    def _send(self, call) -> None:
        with self._forgiving():
            if self._patience <= 0:
                raise TimeoutError(
                    f"the client held up this run for {PATIENCE:.0f} seconds; it is not tried again"
                )
            within(self._patience, call, what="the W&B client")

    def summary(self, values):
        self._send(lambda: self._run.summary.update(clean(values)))

    def metrics(self, values):
        self._send(lambda: self._run.log(clean(values)))

    def table(self, name, frame):
        if len(frame) > MAX_TABLE_ROWS:
            raise ValueError(f"table {name!r} has {len(frame)} rows; log it as a parquet file in an artifact")

        def call():
            import wandb

            plain = frame.astype(object).where(frame.notna(), None).map(_cell)
            self._run.log({name: wandb.Table(dataframe=plain, allow_mixed_types=True)}, commit=False)

        self._send(call)

    def image(self, name, path, caption):
        def call():
            import wandb

            self._run.log({name: wandb.Image(str(path), caption=clean(caption))}, commit=False)

        self._send(call)

    def artifact(self, folder, manifest, metadata):
        def call():
            aliases = ["latest", alias_of(manifest.version)]
            self._run.log_artifact(as_artifact(folder, manifest, metadata), aliases=aliases)
            logged = (mirrored_name(manifest.type, manifest.name), sha256_of(folder / MANIFEST))
            self.artifacts.append(logged)
            self.inputs |= dict.fromkeys(manifest.inputs)

        self._send(call)


def _cell(value: Any) -> Any:
    """A cell as W&B's tables take it: half surrogates cannot be written as UTF-8."""
    return clean(value) if isinstance(value, str) else value


@contextlib.contextmanager
def open_mirror(
    *,
    mode: str,
    folder: Path,
    project: str,
    entity: str | None,
    group: str | None,
    tags: list[str],
    job_type: str,
    name: str,
    config: Mapping[str, Any],
    inputs: list[str] | None = None,
    patience: float = PATIENCE,
) -> Iterator[Mirror]:
    """A W&B run for the length of one task (`mode` online or offline), or a mirror that sends nothing (off).

    Everything that the client writes stays under `folder`. Online, the end of the task waits at most `patience` seconds
    for the upload; what has not arrived by then stays in the offline copy, and a message gives the command that sends it.
    """
    if mode == "off":
        yield Mirror()
        return
    run = _begin(
        folder,
        project=project,
        entity=entity,
        group=group,
        tags=tags,
        job_type=job_type,
        name=name,
        config=config,
    )
    if run is None:
        yield Mirror()
        return
    note_target(Path(run.dir).parent, project=project, entity=entity)
    uploader = None
    if mode == "online":
        uploader = Uploader(folder, Path(run.dir).parent, patience=patience)
    mirror, exit_code = WandbMirror(run, uploader=uploader), 1
    try:
        yield mirror
        exit_code = 0
    finally:
        with contextlib.suppress(Exception):
            within(patience, lambda: run.finish(exit_code=exit_code), what="finishing the run")
        _look_at_disk(folder)
        if uploader is not None:
            written = {"entity": entity, "project": project, "run_id": run.id, "artifacts": mirror.artifacts}
            made_from = dict.fromkeys(inputs or []) | mirror.inputs
            uploader.conclude(
                written | {"inputs": [mirrored_reference(reference) for reference in made_from]}
            )


def _look_at_disk(folder: Path) -> None:
    """Warn where the disk is full: the client's service drops what it cannot write without a word."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(folder).free < _FULL:
            log.warning(
                "the disk of paths.wandb is full (%s), so that Weights & Biases may miss a part of this run. Nothing is lost "
                "from the registry; with space there, type: pessimal push",
                folder,
            )


def _begin(folder: Path, **about) -> Any | None:
    """An offline run; None, and a warning, where the client cannot begin one."""
    try:
        import wandb

        settle(folder)
        return wandb.init(
            id=secrets.token_hex(4),  # one a task, also where WANDB_RUN_ID is set in the environment
            mode="offline",
            dir=str(folder),
            reinit="finish_previous",
            settings=wandb.Settings(
                init_timeout=PATIENCE, console="off", silent=True, disable_git=True, x_disable_stats=True
            ),
            **about | {"config": clean(about["config"])},
        )
    except Exception as error:
        log.warning(
            "Weights & Biases could not begin a run (%s: %s); going on without it. Results are in the registry, and "
            "pessimal push sends them from there. tracking=offline asks no server; tracking=off keeps this quiet.",
            type(error).__name__,
            error,
        )
        return None
