"""The mirror: one W&B run per task, open while it works; a copy of results that are already in the
registry.

A run is always recorded on this disk first; `online` sends it on from there while it grows
(`upload`), so that a task does the same work online and offline and never waits for a network.
Whatever fails here (no network, no key, a full disk) costs the mirror, never a result: one warning
with the command that repairs it, and the task goes on.
"""

import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pessimal.tables.files import sha256_of
from pessimal.tracking.client import (
    PATIENCE,
    Target,
    alias_of,
    as_artifact,
    clean,
    mirrored_name,
    offline_run,
    within,
)
from pessimal.tracking.registry import MANIFEST, Manifest

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
    """What a task may send to its W&B run, which is recorded on this disk; without a run
    (`tracking=off`) nothing.

    All the client's faults together may take `patience` seconds.
    """

    run_id: str | None = None
    _run = None

    def __init__(self, run=None, *, patience: float = PATIENCE):
        self.patience, self._failed = patience, False
        if run is not None:
            self._run, self.run_id = run, run.id
        self.artifacts: list[tuple[str, str]] = []
        """Name in W&B, and sha256 of the manifest, of what was logged."""
        self.inputs: list[str] = []
        """References of what that was made from."""

    def send(self, call: Callable[[], Any]) -> None:
        """Let the client do something, for as long as patience lasts."""
        if self._run is None or self.patience <= 0:
            return
        begin = time.monotonic()
        try:
            within(self.patience, call, what="the W&B client")
        except Exception as error:
            if not self._failed:
                log.warning(
                    "Weights & Biases did not take a part of this run (%s: %s). Nothing is lost: "
                    "every result is in "
                    "the registry. To send results from there: pessimal push",
                    type(error).__name__,
                    error,
                )
            self._failed = True
        if self._failed:  # what fails slowly may do so for every figure of a run
            self.patience -= time.monotonic() - begin

    def summary(self, values: Mapping[str, Any]) -> None:
        """Final figures of the run, flat names such as `greatest/top`."""
        self.send(lambda: self._run.summary.update(clean(values)))

    def metrics(self, values: Mapping[str, float]) -> None:
        """One point of a time series, with what it is drawn against (see STEPS): `{"train/step":
        10, "train/loss": 0.5}`."""
        self.send(lambda: self._run.log(clean(values)))

    def table(self, name: str, frame: pd.DataFrame) -> None:
        """A small table (top and bottom tokens, a matrix)."""
        if len(frame) > MAX_TABLE_ROWS:
            raise ValueError(
                f"table {name!r} has {len(frame)} rows; log it as a parquet file in an artifact"
            )

        def call():
            import wandb

            # Half surrogates cannot be written as UTF-8.
            plain = frame.astype(object).where(frame.notna(), None)
            plain = plain.map(lambda value: clean(value) if isinstance(value, str) else value)
            self._run.log(
                {name: wandb.Table(dataframe=plain, allow_mixed_types=True)}, commit=False
            )

        self.send(call)

    def image(self, name: str, path: Path, caption: str) -> None:
        """A figure, as PNG."""

        def call():
            import wandb

            self._run.log({name: wandb.Image(str(path), caption=clean(caption))}, commit=False)

        self.send(call)

    def artifact(self, folder: Path, manifest: Manifest, metadata: Mapping[str, Any]) -> None:
        """A published artifact: same type and files, the name that `mirrored_name` gives it."""

        def call():
            aliases = ["latest", alias_of(manifest)]
            self._run.log_artifact(as_artifact(folder, manifest, metadata), aliases=aliases)
            name = mirrored_name(manifest.type, manifest.name)
            self.artifacts.append((name, sha256_of(folder / MANIFEST)))
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

    Faults of the client and, online, waiting for the upload at the end take at most `patience`
    seconds together; what has not arrived by then stays in the offline copy, and a message gives
    the command that sends it.
    """
    run = None if mode == "off" else _begin(target, job_type=job_type, name=name, config=config)
    if run is None:
        yield Mirror()
        return
    run_folder = Path(run.dir).parent
    upload = _start_upload(run_folder, target.folder) if mode == "online" else None
    mirror, exit_code = Mirror(run, patience=patience), 1
    try:
        yield mirror
        exit_code = 0
    finally:
        begin = time.monotonic()
        with contextlib.suppress(Exception):
            within(
                max(mirror.patience, 1.0),
                lambda: run.finish(exit_code=exit_code),
                what="finishing the run",
            )
        _look_at_disk(target.folder)
        if upload is not None:
            written = {
                "entity": target.entity,
                "project": target.project,
                "run_id": run.id,
                "artifacts": mirror.artifacts,
                "inputs": [*inputs, *mirror.inputs],
            }
            left = max(mirror.patience - (time.monotonic() - begin), 0.0)
            _report(_conclude_upload(upload, written, seconds=left), run_folder)


def _begin(target: Target, *, job_type: str, name: str, config: Mapping[str, Any]) -> Any | None:
    """An offline run; None, and a warning, where the client cannot begin one."""
    # W&B's own variables hold, but for the run's id: one a task, also where WANDB_RUN_ID is set in
    # the environment.
    job_type, name = (
        os.environ.get("WANDB_JOB_TYPE") or job_type,
        os.environ.get("WANDB_NAME") or name[:128],
    )
    try:
        run = offline_run(
            target, secrets.token_hex(4), job_type=job_type, name=name, config=clean(config)
        )
        for series, step in STEPS.items():
            run.define_metric(step, hidden=True)
            run.define_metric(series, step_metric=step)
        return run
    except Exception as error:
        log.warning(
            "Weights & Biases could not begin a run (%s: %s); going on without it. Results are in "
            "the registry, and "
            "pessimal push sends them from there. tracking=offline asks no server; tracking=off "
            "keeps this quiet.",
            type(error).__name__,
            error,
        )
        return None


def _look_at_disk(folder: Path) -> None:
    """Warn where the disk is full: the client's service drops what it cannot write without a
    word."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage(folder).free < _FULL:
            log.warning(
                "the disk of paths.wandb is full (%s), so that Weights & Biases may miss a part of "
                "this run. Nothing is lost "
                "from the registry; with space there, type: pessimal push",
                folder,
            )


def _start_upload(run_folder: Path, folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "pessimal.tracking.upload", str(run_folder), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C is the task's; and what it started can be ended together
    )


def _conclude_upload(
    process: subprocess.Popen, written: Mapping[str, Any], *, seconds: float
) -> dict:
    """Say that the run is written, and what must be at the server; how it went, at most so many
    seconds from now. Then the child and what it started are ended: the offline copy stays."""
    try:
        said, _ = process.communicate(json.dumps(written) + "\n", timeout=seconds)
        return json.loads(said or '{"message": "the upload ended without a word"}')
    except subprocess.TimeoutExpired:
        return {"message": "the upload did not finish in time"}
    finally:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def _report(result: Mapping[str, Any], run_folder: Path) -> None:
    if "message" in result:
        log.warning(
            "Weights & Biases did not get this run: %s. Nothing is lost: every result is in the "
            "registry, and the run "
            "is recorded here. When the server can be reached, type: wandb sync %s",
            result["message"],
            run_folder,
        )
        return
    log.info("Weights & Biases: %s", result["url"])
    if unknown := result["unknown_inputs"]:
        log.warning(
            "Weights & Biases does not have what this run was made from: %s. To send it: pessimal "
            "push",
            ", ".join(unknown[:8]),
        )
