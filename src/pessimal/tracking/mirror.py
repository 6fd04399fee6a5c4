"""The mirror: one W&B run per task, open while it works; a copy of results that are already in the
registry.

Every run is recorded on this disk; `online` also sends it while it grows. Whatever fails here (no
network, no key, a full disk) costs the mirror, never a result: one warning with the command that
repairs it, and the task goes on.
"""

import contextlib
import logging
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pessimal.tracking.client import (
    PATIENCE,
    REQUEST_SECONDS,
    Target,
    aliases_of,
    as_artifact,
    begin_run,
    clean,
    connect,
    folder_of,
    link_inputs,
    release,
    settle,
    within,
)
from pessimal.tracking.registry import Manifest

if TYPE_CHECKING:
    import wandb

log = logging.getLogger(__name__)

# wandb.Table cuts off at 200,000 rows with only a log line, and is slow long before: full tables
# travel as parquet.
MAX_TABLE_ROWS = 5_000
STEPS = {
    "train/*": "train/step",
    "pessimal/*": "train/step",
    "search/*": "search/evaluations",
    "scan/*": "scan/candidates",
    "tuning/*": "tuning/search",
}
"""What each time series is drawn against."""
_FULL = 1 << 20
"""Bytes that a disk must have left to be taken for one that can be written to."""


class Mirror:
    """What a task may send to its W&B run; without a run (`tracking=off`) nothing.

    All the client's faults together may take `patience` seconds.
    """

    run_id: str | None = None
    _run: "wandb.Run | None" = None

    def __init__(self, run: "wandb.Run | None" = None, *, patience: float = PATIENCE):
        self.patience, self._failed = patience, False
        if run is not None:
            self._run, self.run_id = run, run.id
        self.artifacts: "list[wandb.Artifact]" = []  # noqa: UP037 wandb is imported where it is used
        """What was logged."""
        self.inputs: list[str] = []
        """References of what that was made from."""

    def send(self, call: "Callable[[wandb.Run], object]") -> None:
        """Let the client do something, for as long as patience lasts."""
        run = self._run
        if run is None or self.patience <= 0:
            return
        begin = time.monotonic()
        try:
            within(self.patience, lambda: call(run), what="the W&B client")
        except Exception as error:
            if not self._failed:
                log.warning(
                    "Weights & Biases did not take a part of this run (%s: %s). Nothing is lost: "
                    "every result is in the registry. To send results from there: pessimal push",
                    type(error).__name__,
                    error,
                )
            self._failed = True
        if self._failed:  # what fails slowly may do so for every figure of a run
            self.patience -= time.monotonic() - begin

    def summary(self, values: Mapping[str, Any]) -> None:
        """Final figures of the run, flat names such as `greatest/top`."""
        self.send(lambda run: run.summary.update(clean(values)))

    def metrics(self, values: Mapping[str, float]) -> None:
        """One point of a time series, with what it is drawn against (see STEPS): `{"train/step":
        10, "train/loss": 0.5}`."""
        self.send(lambda run: run.log(clean(values)))

    def table(self, name: str, frame: pd.DataFrame) -> None:
        """A small table (top and bottom tokens, a matrix)."""
        if len(frame) > MAX_TABLE_ROWS:
            raise ValueError(
                f"table {name!r} has {len(frame)} rows; log it as a parquet file in an artifact"
            )

        def call(run: "wandb.Run") -> None:
            import wandb

            # Half surrogates cannot be written as UTF-8.
            plain = frame.astype(object).where(frame.notna(), None)
            plain = plain.map(lambda value: clean(value) if isinstance(value, str) else value)
            run.log({name: wandb.Table(dataframe=plain, allow_mixed_types=True)}, commit=False)

        self.send(call)

    def image(self, name: str, path: Path, caption: str) -> None:
        """A figure, as PNG."""

        def call(run: "wandb.Run") -> None:
            import wandb

            run.log({name: wandb.Image(str(path), caption=clean(caption))}, commit=False)

        self.send(call)

    def artifact(self, folder: Path, manifest: Manifest, metadata: Mapping[str, Any]) -> None:
        """A published artifact: same type and files, the name that `mirrored_name` gives it."""

        def call(run: "wandb.Run") -> None:
            artifact = as_artifact(folder, manifest, metadata)
            self.artifacts.append(run.log_artifact(artifact, aliases=aliases_of(manifest)))
            self.inputs += manifest.inputs

        self.send(call)


@contextlib.contextmanager
def open_mirror(
    target: Target,
    *,
    mode: str,
    job_type: str,
    name: str,
    config: Mapping[str, Any],
    inputs: Sequence[str] = (),
    patience: float = PATIENCE,
) -> Iterator[Mirror]:
    """A W&B run for the length of one task (`mode` online or offline), or a mirror that sends
    nothing (off).

    Online, asking the server, waiting for the upload at the end, and all faults take at most
    `patience` seconds together. A server that cannot be asked makes the run an offline one; what
    has not arrived in time stays recorded, and a message gives the command that sends it.
    """
    if mode == "off":
        yield Mirror()
        return
    begin = time.monotonic()
    run, api = _begin(
        target, mode=mode, patience=patience, job_type=job_type, name=name, config=config
    )
    left = patience - (time.monotonic() - begin if mode == "online" else 0.0)
    mirror, exit_code = Mirror(run, patience=left), 1
    try:
        yield mirror
        exit_code = 0
    finally:
        if run is not None:
            _finish(
                mirror, run, api, target.project, inputs, exit_code=exit_code, reserve=patience / 4
            )
            release()
            _look_at_disk(target.folder)


def _begin(
    target: Target, *, mode: str, patience: float, job_type: str, name: str, config: Mapping
) -> "tuple[wandb.Run | None, wandb.Api | None]":
    """A run, and the server's API where that is online; an offline run where the server cannot be
    asked; no run, and a warning, where the client cannot begin one."""
    # W&B's own variables hold, but for the run's id: one a task, also where WANDB_RUN_ID is set in
    # the environment.
    id = secrets.token_hex(4)
    about = {
        "job_type": os.environ.get("WANDB_JOB_TYPE") or job_type,
        "name": os.environ.get("WANDB_NAME") or name[:128],
        "config": clean(config),
    }
    run = api = refused = None
    try:
        settle(target.folder)
        if mode == "online":
            try:
                api = connect(seconds=min(patience / 3, REQUEST_SECONDS))
                run = begin_run(target, id, mode="online", patience=patience, **about)
            except Exception as error:
                api, refused = None, error
        if run is None:
            run = begin_run(target, id, mode="offline", patience=patience, **about)
        for series, step in STEPS.items():
            run.define_metric(step, hidden=True)
            run.define_metric(series, step_metric=step)
    except Exception as error:
        log.warning(
            "Weights & Biases could not begin a run (%s: %s); going on without it. Results are in "
            "the registry, and pessimal push sends them from there. tracking=offline asks no "
            "server; tracking=off keeps this quiet.",
            type(error).__name__,
            error,
        )
        return None, None
    if refused is not None:
        _tell(refused, run, target.project)
    return run, api


def _finish(
    mirror: Mirror,
    run: "wandb.Run",
    api: "wandb.Api | None",
    project: str,
    inputs: Sequence[str],
    *,
    exit_code: int,
    reserve: float,
) -> None:
    """End the run; online, first wait for its artifacts and record its lineage, for as long as
    patience lasts without the `reserve` of seconds that ending it may take."""
    failed: Exception | None = None
    missing: list[str] = []

    def arrive(api: "wandb.Api") -> list[str]:
        for artifact in mirror.artifacts:
            try:
                artifact.wait()
            except ValueError as error:
                raise ValueError(f"{artifact.name} did not arrive: {error}") from error
        return link_inputs(api, run.path, [*inputs, *mirror.inputs])

    if api is not None:
        try:
            seconds = mirror.patience - reserve
            missing = within(seconds, lambda: arrive(api), what="sending the run")
        except Exception as error:
            failed = error
    try:
        within(reserve + 1, lambda: run.finish(exit_code=exit_code), what="finishing the run")
    except Exception as error:
        failed = failed or error
    if api is None:
        return
    if failed is not None:
        _tell(failed, run, project)
        return
    log.info("Weights & Biases: %s", run.url)
    if missing:
        log.warning(
            "Weights & Biases does not have what this run was made from: %s. To send it: pessimal "
            "push",
            ", ".join(missing[:8]),
        )


def _tell(error: Exception, run: "wandb.Run", project: str) -> None:
    # What an online run logged as artifacts is not in what it recorded: that is what push is for.
    log.warning(
        "Weights & Biases did not get this run: %s. Nothing is lost: every result is in the "
        "registry, and the run is recorded here. When the server can be reached, type: wandb sync "
        "--include-online %s, and then: pessimal push tracking.project=%s",
        error,
        folder_of(run),
        project,
    )


def _look_at_disk(folder: Path) -> None:
    """Warn where the disk is full: the client's service drops what it cannot write without a
    word."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(folder).free < _FULL:
            log.warning(
                "the disk of paths.wandb is full (%s), so that Weights & Biases may miss a part of "
                "this run. Nothing is lost from the registry; with space there, type: pessimal "
                "push",
                folder,
            )
