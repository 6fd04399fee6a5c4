"""The mirror: one W&B run per task, open while it works; a copy of results that are already in the
registry.

Every run is recorded on this disk; `online` also sends it while it grows. Whatever fails here (no
network, no key, a full disk) costs the mirror, never a result: one warning with the command that
repairs it, and the task goes on.
"""

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pessimal.progress import call_within
from pessimal.tracking.client import (
    PATIENCE,
    Target,
    begin_run,
    clean,
    folder_of,
    log_artifact,
    mirrored_reference,
    release,
)
from pessimal.tracking.registry import Manifest, Registry

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
    "forecast/*": "forecast/kl",
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
        self.inputs: dict[str, None] = {}
        """References of what that was made from."""

    def send(self, call: "Callable[[wandb.Run], object]") -> None:
        """Let the client do something, for as long as patience lasts."""
        run = self._run
        if run is None or self.patience <= 0:
            return
        begin = time.monotonic()
        try:
            call_within(self.patience, lambda: call(run), task="the W&B client")
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

    def page(self, name: str, path: Path) -> None:
        """A page of HTML, which the run shows as it is."""

        def call(run: "wandb.Run") -> None:
            import wandb

            run.log({name: wandb.Html(str(path), inject=False)})

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
    target: Target,
    *,
    mode: str,
    job_type: str,
    name: str,
    config: Mapping[str, Any],
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
    import wandb  # noqa: F401 seconds on a busy machine, of which no server is the reason

    begin = time.monotonic()
    about = {
        # W&B's own variables hold.
        "job_type": os.environ.get("WANDB_JOB_TYPE") or job_type,
        "name": os.environ.get("WANDB_NAME") or name[:128],
        "config": clean(config),
    }
    run = _begin(target, mode=mode, patience=patience, **about)
    left = patience - (time.monotonic() - begin if mode == "online" else 0.0)
    mirror, exit_code = Mirror(run, patience=left), 1
    try:
        yield mirror
        exit_code = 0
    finally:
        if run is not None:
            _finish(mirror, run, target, exit_code=exit_code, reserve=patience / 4)
            release()
            _look_at_disk(target.folder)


def _begin(target: Target, *, mode: str, **about: Any) -> "wandb.Run | None":
    """A run; an offline one where the server cannot be asked; none, and a warning, where the client
    cannot begin one."""
    refused: Exception | None = None
    for way in dict.fromkeys((mode, "offline")):
        try:
            run = begin_run(target, mode=way, **about)
            for series, step in STEPS.items():
                run.define_metric(step, hidden=True)
                run.define_metric(series, step_metric=step)
            if refused is not None:
                _warn(refused, run, target)
            return run
        except Exception as error:
            refused = error
    log.warning(
        "W&B could not begin a run (%s: %s); going on without it. To send results from the "
        "registry: pessimal push. tracking=offline asks no server; tracking=off is quiet.",
        type(refused).__name__,
        refused,
    )
    return None


def _finish(
    mirror: Mirror,
    run: "wandb.Run",
    target: Target,
    *,
    exit_code: int,
    reserve: float,
) -> None:
    """End the run; online, first wait for its artifacts and record its lineage, for as long as
    patience lasts without the `reserve` of seconds that ending it may take."""
    missing: list[str] = []
    failed: list[Exception] = []

    def arrive() -> None:
        from wandb.errors import CommError

        for artifact in mirror.artifacts:
            try:
                artifact.wait()
            except ValueError as error:
                raise ValueError(f"{artifact.name} did not arrive: {error}") from error
        for reference in mirror.inputs:
            try:
                run.use_artifact(mirrored_reference(reference))
            except CommError:
                missing.append(reference)

    def end() -> None:
        run.finish(exit_code=exit_code)

    sent = [] if run.offline else [(mirror.patience - reserve, arrive, "sending the run")]
    for seconds, call, what in [*sent, (reserve + 1, end, "finishing the run")]:
        try:
            call_within(seconds, call, task=what)
        except Exception as error:
            failed.append(error)
    if failed:
        _warn(failed[0], run, target)
    elif not run.offline:
        log.info("Weights & Biases: %s", run.url)
    if missing:
        log.warning(
            "W&B does not have what this run was made from: %s. To send it: pessimal push",
            ", ".join(missing[:8]),
        )


def _warn(error: Exception, run: "wandb.Run", target: Target) -> None:
    # What an online run logged as artifacts is not in what it recorded: that is what push is for.
    log.warning(
        "Weights & Biases did not get this run: %s. Nothing is lost: every result is in the "
        "registry, and the run is recorded here. When the server can be reached, type: wandb sync "
        "--include-online %s, and then: pessimal push tracking.project=%s",
        error,
        folder_of(run),
        target.project,
    )


def _look_at_disk(folder: Path) -> None:
    """Warn where the disk is full: the client's service drops what it cannot write without a
    word."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(folder).free < _FULL:
            log.warning(
                "the disk of paths.wandb is full (%s), and W&B may miss a part of this run. "
                "Nothing is lost from the registry; with space there, type: pessimal push",
                folder,
            )
