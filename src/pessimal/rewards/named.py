"""Models by what a person types for them in one word: a name of conf/model, a folder, a Hub
repository, a function in a file, or a server's address."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pessimal.catalogue import answering, is_folder, is_named, known_model, model_entry
from pessimal.errors import ConfigError, did_you_mean
from pessimal.rewards.spec import Kind, ModelSpec

FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_][\w.]*)")
"""A function in a file: my_rewards.py:compute_score."""
ADAPTER = "adapter_config.json"
ADDRESS = re.compile(r"https?://\S+")
"""A server's address."""


def options_of(name: str) -> dict[str, Any] | None:
    """The options of a model that a function's file, a server's address, a folder or a Hub
    repository stands for; None for a name of conf/model, and for what is none of these."""
    if FUNCTION.fullmatch(name):
        return {"kind": Kind.callable, "callable": {"_target_": name}}
    if ADDRESS.fullmatch(name):
        return {"kind": Kind.endpoint, "endpoint": {"url": name}}
    folder = Path(name).expanduser() if is_folder(name) else None
    if folder and (folder / ADAPTER).is_file() and not (folder / "config.json").is_file():
        return {"adapter": name}
    if folder or ("/" in name and not is_named(name)):
        return {"path": name}
    return None


def name_of(model: str) -> str:
    """What a model's tables are called, of a model as it is typed; a name of conf/model, or of a
    model that has a file there, as it is."""
    if options_of(model) is None or known_model(model):
        return model
    return spec_of(model).name


def answering_to(asked: Sequence[str], there: Iterable[str]) -> list[str]:
    """Models `asked` for under any of their names, or as they were typed to be scanned, as the
    models that are `there` are called; what none answers to stays as it is."""
    known, found = set(there), []
    for name in answering(asked, known):
        scanned = name if name in known else name_of(name)
        found.append(scanned if scanned in known else name)
    return found


def spec_of(model: str | None, /, **changes: object) -> ModelSpec:
    """The model of a name such as `smollm2` (a file of conf/model), of a local folder, of a Hub
    repository ORG/NAME, of FILE.py:FUNCTION, or of http://….

    Args:
        model: as typed; None where the changes say it all.
        changes: fields of the specification that are other than the file says.

    Raises:
        ConfigError: it is none of these, or has no such option.
    """
    known = {field.name for field in fields(ModelSpec)}
    for change in changes:
        if change not in known:
            guess = did_you_mean(change, known)
            raise ConfigError(f"a model has no option {change!r}.{guess}".removesuffix("."))
    entry = {} if model is None else options_of(model)
    if entry is None:
        assert model is not None
        entry = {key: value for key, value in model_entry(model).items() if key in known} | changes
    elif "kind" in entry and changes.get("kind", entry["kind"]) != entry["kind"]:
        kind = getattr(changes["kind"], "value", changes["kind"])
        raise ConfigError(f"{model} is a {entry['kind'].value}, and cannot be asked as kind={kind}")
    try:
        merged = OmegaConf.merge(OmegaConf.structured(ModelSpec), entry, changes)
        spec = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        said = str(error).strip().splitlines()[0]
        raise ConfigError(f"the options of the model {model!r}: {said}") from error
    assert isinstance(spec, ModelSpec)
    return spec


def has_vocabulary(spec: ModelSpec) -> bool:
    """Whether a tokenizer comes with a reward, whose vocabulary can be scanned."""
    if spec.kind is Kind.sum and spec.tokenizer is None:
        return any(has_vocabulary(part) for _, part in parts_of(spec))
    return spec.tokenizer is not None or "ids" in spec.kind.can


def parts_of(spec: ModelSpec) -> list[tuple[float, ModelSpec]]:
    """The terms of a sum: weight and model of each.

    Raises:
        ConfigError: one is no model, or its weight no number.
    """
    return [_part(one, spec.tasks) for one in spec.parts]


def _part(given: Any, tasks: str | None) -> tuple[float, ModelSpec]:
    options = {"model": given} if isinstance(given, str) else given
    if not isinstance(options, Mapping):
        raise ConfigError(
            f"model.parts: {given!r} is no term; give a model's name, or {{model: NAME, weight: 1}}"
        )
    changes = {str(name): value for name, value in options.items()}
    weight, name = changes.pop("weight", 1.0), changes.pop("model", None)
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        raise ConfigError(f"model.parts: weight={weight!r} is no number")
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"model.parts: model={name!r} is no name of a model")
    spec = spec_of(name, **changes)
    if spec.kind is Kind.callable and spec.tasks is None:
        spec = replace(spec, tasks=tasks)
    return float(weight), spec
