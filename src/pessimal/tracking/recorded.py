"""Offline runs on this disk: for which project each was recorded, and which one a run id means.

Knows wandb's names of run folders. Reads no run.
"""

import contextlib
import json
from pathlib import Path

_NOTE = "pessimal.json"


def note_target(run_folder: Path, *, project: str, entity: str | None) -> None:
    """Leave in a run's folder where it is meant to go; without it the run is still whole."""
    with contextlib.suppress(OSError):
        (run_folder / _NOTE).write_text(json.dumps({"project": project, "entity": entity}))


def recorded_runs(folder: Path, id: str, *, project: str, entity: str | None) -> list[Path]:
    """Folders of the run `id` below wandb's `folder` that were recorded for exactly this project and entity."""
    wanted = {"project": project, "entity": entity}
    return [run for run in sorted((folder / "wandb").glob(f"offline-run-*-{id}")) if _note(run) == wanted]


def _note(run_folder: Path) -> dict | None:
    try:
        return json.loads((run_folder / _NOTE).read_text())
    except (OSError, ValueError):
        return None
