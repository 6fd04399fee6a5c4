"""Where a model's files are on this machine: fetched, converted or trained where they are not."""

import logging
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pessimal.progress import quiet_libraries
from pessimal.rewards.hub import files_of
from pessimal.rewards.packaged import obtain_packaged
from pessimal.rewards.spec import ModelSpec
from pessimal.training.demo_family.family import checkpoint_folder, is_cached, obtain

if TYPE_CHECKING:
    from pytorch_lightning import Callback

    from pessimal.training.demo_family.progress import Report

log = logging.getLogger(__name__)


def fetch(spec: ModelSpec, *, cache: str, progress: bool) -> Path | None:
    """The folder with a model's files: a local one, a Hub snapshot, a packaged model's, converted
    if it is not cached, or a demo sibling's, trained if it is not; None for a function or a server."""
    if spec.recipe is not None:
        return obtain_demo(spec, cache=cache, progress=progress)
    if spec.package is not None:
        return obtain_packaged(spec, cache=Path(cache) / "models")
    return files_of(spec)


def obtain_demo(
    spec: ModelSpec,
    *,
    cache: str,
    progress: bool,
    again: bool = False,
    report: "Report | None" = None,
) -> Path:
    """The checkpoint of a demo sibling; trains it where it is not cached (or `again`), saying how
    far it is.

    Args:
        report: called with the figures of a step while it is trained; for these it is also tried
            on what is held out.
    """
    recipe, models = spec.recipe, Path(cache) / "models"
    assert recipe is not None
    assert spec.name is not None
    if again:  # trained in a place of its own first: a kill leaves the old checkpoint where it is
        fresh = obtain_demo(
            spec, cache=str(Path(cache) / "again"), progress=progress, report=report
        )
        folder = checkpoint_folder(recipe, cache=models, name=spec.name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return fresh.rename(folder)
    bar = progress and sys.stderr.isatty()
    callbacks: list[Callback] = []
    if not is_cached(recipe, cache=models, name=spec.name):
        quiet_libraries()
        from pessimal.training.demo_family.progress import TrainingProgress

        log.info("training %s on the CPU, under two minutes on a free core", spec.name)
        callbacks = [
            TrainingProgress(recipe, name=spec.name, models=models, lines=not bar, report=report)
        ]
    return obtain(recipe, cache=models, name=spec.name, progress=bar, callbacks=callbacks)
