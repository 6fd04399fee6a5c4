"""What reward training began from."""

import json
import logging
from dataclasses import replace
from pathlib import Path

from pessimal.catalogue import is_named
from pessimal.errors import MissingExtraError, ModelError
from pessimal.rewards.digests import weights_digest
from pessimal.rewards.named import spec_of
from pessimal.rewards.spec import Kind, ModelSpec
from pessimal.training.obtain import fetch

log = logging.getLogger(__name__)


def base_of(
    spec: ModelSpec, folder: Path | None, *, cache: str, progress: bool = True
) -> tuple[ModelSpec, Path] | None:
    """The model that reward training began from, and the folder of its files: `model.base_path`,
    an adapter's base, a demo sibling before its training, or what `pessimal train` began from; None
    where none is known.

    Args:
        folder: with the reward's files; None for a function or a server.

    Raises:
        ConfigError, ModelError: what `model.base_path` names cannot be fetched.
    """
    if spec.base_path is not None:
        given = {"revision": spec.base_revision} if spec.base_revision else {}
        base = spec_of(spec.base_path, kind=Kind.log_probability, **given)
        files = fetch(base, cache=cache, progress=progress)
        if files is None:
            raise ModelError(f"model.base_path={spec.base_path} has no network")
        return base, files
    if folder is None or spec.kind is not Kind.head:
        return None
    if spec.recipe is not None:
        from pessimal.training.demo_family.family import untrained_sibling

        files = untrained_sibling(spec.recipe, cache=Path(cache) / "models", name=spec.name)
        return ModelSpec(path=str(files), name=f"{spec.name} before training"), files
    if spec.adapter is not None:
        path, name = spec.path or str(folder), f"{spec.name} base"
        return replace(spec, adapter=None, adapter_revision=None, path=path, name=name), folder
    return _recorded(folder, cache=cache, progress=progress)


def _recorded(folder: Path, *, cache: str, progress: bool) -> tuple[ModelSpec, Path] | None:
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
        files = fetch(base, cache=cache, progress=progress)
    except (ModelError, MissingExtraError) as error:
        log.warning("its base %s cannot be had (%s): its own states are taken", name, error)
        return None
    return (base, files) if files is not None and weights_digest(files) == digest else None
