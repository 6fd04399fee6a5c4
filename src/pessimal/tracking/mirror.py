"""The mirror: one W&B run per task, told of results that are already in the registry.

Knows the wandb client. Whatever fails here (no network, no key, a full disk) costs the mirror, never a result:
the user is told once, and the task goes on.
"""

import contextlib
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from pessimal.tracking.registry import Manifest

log = logging.getLogger(__name__)

# wandb.Table cuts off at 200,000 rows with only a log line, and is slow long before: full tables travel as parquet.
MAX_TABLE_ROWS = 5_000


class Mirror:
    """What a task may tell W&B. This one tells nobody (`tracking=off`)."""

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
        """A published artifact: same name, type and files."""


class WandbMirror(Mirror):
    """Tells a W&B run, online or offline."""

    def __init__(self, run, *, inputs: list[str], online: bool):
        self._run = run
        self._failed = False
        self.run_id = run.id
        if online:
            for reference in inputs:
                _, name = reference.split("/", 1)
                with self._forgiving():
                    run.use_artifact(name)

    @contextlib.contextmanager
    def _forgiving(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not self._failed:
                log.warning(
                    "Weights & Biases did not take a part of this run (%s: %s). Nothing is lost: every result is in "
                    "the registry. tracking=offline keeps the run for a later `wandb sync`.",
                    type(error).__name__,
                    error,
                )
            self._failed = True

    def summary(self, values):
        with self._forgiving():
            self._run.summary.update(dict(values))

    def metrics(self, values):
        with self._forgiving():
            self._run.log(dict(values))

    def table(self, name, frame):
        import wandb

        if len(frame) > MAX_TABLE_ROWS:
            raise ValueError(f"table {name!r} has {len(frame)} rows; log it as a parquet file in an artifact")
        with self._forgiving():
            plain = frame.astype(object).where(frame.notna(), None)
            self._run.log({name: wandb.Table(dataframe=plain, allow_mixed_types=True)}, commit=False)

    def image(self, name, path, caption):
        import wandb

        with self._forgiving():
            self._run.log({name: wandb.Image(str(path), caption=caption)}, commit=False)

    def artifact(self, folder, manifest, metadata):
        import wandb

        with self._forgiving():
            artifact = wandb.Artifact(manifest.name, type=manifest.type, metadata=dict(metadata))
            for name in [*manifest.files, "manifest.json"]:
                # Published files never change, so W&B may read them where they are.
                artifact.add_file(str(folder / name), name=name, policy="immutable")
            self._run.log_artifact(artifact, aliases=["latest", f"registry-v{manifest.version}"])


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
) -> Iterator[Mirror]:
    """A W&B run for the length of one task (`mode` online or offline), or a mirror that tells nobody (off).

    Everything that the client writes stays under `folder`, staged artifact bytes included: left in the user's
    data folder they can vanish before `wandb sync`, which then says "Finished" having uploaded nothing.
    """
    if mode == "off":
        yield Mirror()
        return
    os.environ["WANDB_DATA_DIR"] = str(folder / "data")
    os.environ["WANDB_CACHE_DIR"] = str(folder / "cache")
    try:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        run = wandb.init(
            id=secrets.token_hex(4),  # one a task, also where WANDB_RUN_ID is set in the environment
            mode=mode,
            dir=str(folder),
            project=project,
            entity=entity,
            group=group,
            tags=tags,
            job_type=job_type,
            name=name,
            config=dict(config),
            reinit="finish_previous",
            settings=wandb.Settings(
                init_timeout=15, console="off", silent=True, disable_git=True, x_disable_stats=True
            ),
        )
    except Exception as error:
        log.warning(
            "Weights & Biases could not start a run (%s: %s); going on without it. Results are in the registry. "
            "Type tracking=offline to record the run here, or tracking=off for no tracking.",
            type(error).__name__,
            error,
        )
        yield Mirror()
        return
    exit_code = 1
    try:
        yield WandbMirror(run, inputs=inputs or [], online=mode == "online")
        exit_code = 0
    finally:
        with contextlib.suppress(Exception):
            run.finish(exit_code=exit_code)
