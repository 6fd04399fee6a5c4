"""Models by what a person types for them in one word: a name of conf/model, a folder, a Hub
repository, a function in a file, or a server's address; and the kinds of models that there are."""

import pkgutil
import re
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pessimal.catalogue import is_folder, is_named, known_model, match_names, model_entry
from pessimal.errors import ConfigError, did_you_mean, unknown_option
from pessimal.extensions import installed
from pessimal.rewards.spec import KINDS, CheckpointSpec, ModelSpec

FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_][\w.]*)")
"""A function in a file: my_rewards.py:compute_score."""
ADAPTER = "adapter_config.json"
ADDRESS = re.compile(r"https?://\S+")
"""A server's address."""


@cache
def load_kinds() -> dict[str, type[ModelSpec]]:
    """The class of options of every kind, by name: those of `KINDS`, and those that installed
    packages offer under the entry point `pessimal.kinds`.

    Raises:
        ConfigError: a package's cannot be imported.
    """
    kinds = {kind: pkgutil.resolve_name(path) for kind, path in KINDS.items()}
    return kinds | {spec.kind: spec for spec in installed("pessimal.kinds").values()}


def kind_class(kind: str) -> type[ModelSpec]:
    """The class of options of a kind. ConfigError where there is none of this name."""
    kinds = load_kinds()
    if kind not in kinds:
        guess = did_you_mean(kind, kinds)
        raise ConfigError(f"kind={kind!r}: give {', '.join(kinds)}.{guess}".removesuffix("."))
    return kinds[kind]


def options_of(name: str) -> dict[str, Any] | None:
    """The options of a model that a function's file, a server's address, a folder or a Hub
    repository stands for; None for a name of conf/model, and for what is none of these."""
    if FUNCTION.fullmatch(name):
        return {"kind": "callable", "callable": {"_target_": name}}
    if ADDRESS.fullmatch(name):
        return {"kind": "endpoint", "endpoint": {"url": name}}
    folder = Path(name).expanduser() if is_folder(name) else None
    if folder and (folder / ADAPTER).is_file() and not (folder / "config.json").is_file():
        return {"adapter": name}
    if folder or ("/" in name and not is_named(name)):
        return {"path": name}
    return None


def name_of(model: str) -> str:
    """Name of a model's tables, for a model as it is typed; a name of conf/model, or of a model
    that has a file there, as it is."""
    if options_of(model) is None or known_model(model):
        return model
    return spec_of(model).name


def match_models(queries: Sequence[str], models: Iterable[str]) -> list[str]:
    """The names in `models` of the models that are queried by any of their names, or as they were
    typed to be scanned; a query that fits no model stays as it is."""
    names, matches = set(models), []
    for name in match_names(queries, names):
        scanned = name if name in names else name_of(name)
        matches.append(scanned if scanned in names else name)
    return matches


def describe_alien(option: str, schema: type[ModelSpec]) -> str | None:
    """Advice in place of an option that a kind of model has not, and another has; None where none
    has."""
    for field in fields(schema):
        if is_dataclass(field.type) and option in _field_names(field.type):
            return f"of model.kind={schema.kind} it is model.{field.name}.{option}"
    kinds = [kind for kind, other in load_kinds().items() if option in _field_names(other)]
    if not kinds:
        return None
    kind = f"model.kind={' or '.join(kinds)}, not of model.kind={schema.kind}"
    return f"model.{option} is of {kind} (in a file: override /kind@_here_: {kinds[0]})"


def _field_names(schema: Any) -> set[str]:
    return {field.name for field in fields(schema)}


def spec_of(model: str | None, /, **changes: object) -> ModelSpec:
    """The model of a name such as `smollm2` (a file of conf/model), of a local folder, of a Hub
    repository ORG/NAME, of FILE.py:FUNCTION, or of http://….

    Args:
        model: as typed; None where the changes say it all.
        changes: fields of the specification that are other than the file says.

    Raises:
        ConfigError: it is none of these, or has no such option.
    """
    entry = {} if model is None else options_of(model)
    if entry is None:
        assert model is not None
        entry = model_entry(model)
    elif "kind" in entry and changes.get("kind", entry["kind"]) != entry["kind"]:
        raise ConfigError(f"{model} is a {entry['kind']}, and no kind={changes['kind']}")
    schema = kind_class(str(changes.get("kind") or entry.get("kind", "head")))
    names = _field_names(schema)
    for change in changes:
        if change not in names:
            alien = describe_alien(change, schema)
            raise ConfigError(alien or unknown_option(change, change, sorted(names)))
    if extra_keys := [
        key for key, value in entry.items() if key not in names and value is not None
    ]:
        option = f"model.{extra_keys[0]}={entry[extra_keys[0]]} of {model!r}"
        raise ConfigError(f"{option} is of no model.kind={schema.kind}: give its own folder")
    entry["kind"] = schema.kind
    try:
        merged = OmegaConf.merge(OmegaConf.structured(schema), entry, changes)
        spec = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"the options of the model {model!r}: {reason}") from error
    assert isinstance(spec, ModelSpec)
    return spec


def language_model_of(model: str, /, **changes: object) -> CheckpointSpec:
    """The causal language model of a name, as `spec_of`: its log-probabilities."""
    spec = spec_of(model, kind="log_probability", **changes)
    assert isinstance(spec, CheckpointSpec)
    return spec
