"""Models by what a person types for them in one word: a name of `conf/model`, a folder, or a Hub
repository."""

import json
import logging
from dataclasses import fields, replace
from pathlib import Path

from omegaconf import OmegaConf

from pessimal.catalogue import is_folder, is_named, model_entry
from pessimal.errors import MissingExtraError, ModelError
from pessimal.rewards.digests import weights_digest
from pessimal.rewards.spec import Kind, ModelSpec
from pessimal.training.obtain import fetch

log = logging.getLogger(__name__)


def spec_of(name: str, **changes: object) -> ModelSpec:
    """The model of a name such as `smollm2` (a file of conf/model), of a local folder, or of a Hub
    repository ORG/NAME.

    Args:
        name: as typed.
        changes: fields of the specification that are other than the file says.

    Raises:
        ConfigError: it is none of these.
    """
    if is_folder(name) or ("/" in name and not is_named(name)):
        return ModelSpec(path=name, **changes)  # type: ignore[arg-type]
    known = {field.name for field in fields(ModelSpec)}
    entry = {key: value for key, value in model_entry(name).items() if key in known}
    merged = OmegaConf.merge(OmegaConf.structured(ModelSpec), entry | changes)
    spec = OmegaConf.to_object(merged)
    assert isinstance(spec, ModelSpec)
    return spec


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
        return replace(spec, adapter=None, adapter_revision=None, name=f"{spec.name} base"), folder
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
