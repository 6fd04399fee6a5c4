"""Hydra composes a configuration of files and overrides; the schema checks it. Calls no verb."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pessimal.catalogue import CONF
from pessimal.config.messages import composition_message, unknown_option_message
from pessimal.config.schema import TASKS, TaskConfig
from pessimal.errors import ConfigError, UserError
from pessimal.rewards.named import load_kinds


@cache
def register() -> None:
    """Register the schemas with Hydra: a key that is not in them, or of another type, is refused
    while composing."""
    store = ConfigStore.instance()
    for name, schema in TASKS.items():
        store.store(group="schema", name=name, node=schema, package="_global_")
    for kind, options in load_kinds().items():
        store.store(group="kind", name=kind, node=options)
        if not (CONF / "model" / f"{kind}.yaml").is_file():  # else model=KIND is that file
            defaults = [{"override /kind@_here_": kind}]
            store.store(group="model", name=kind, node={"defaults": defaults})


def build(config: DictConfig) -> TaskConfig:
    """The typed configuration of one job, checked.

    Raises:
        ConfigError: a value breaks a rule, or `+KEY=VALUE` adds an option that the verb has not.
    """
    task = OmegaConf.to_object(config)
    assert isinstance(task, TaskConfig)
    options = {field.name for field in fields(task)}
    if unknown := [key for key in map(str, config) if key not in options]:
        key = unknown[0]
        raise ConfigError(unknown_option_message(key, type(task).__name__, name=key))
    return task


def composed(overrides: Sequence[str]) -> DictConfig:
    """The configuration that overrides give, without checks of the schema; Hydra's own errors. In a
    verb, of the files that its own configuration is of."""
    register()
    if GlobalHydra.instance().is_initialized():
        return hydra.compose("config", overrides=list(overrides))
    with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        return hydra.compose("config", overrides=list(overrides))


def configuration(
    verb: str,
    options: Mapping[str, object] | None = None,
    *,
    groups: Mapping[str, str] | None = None,
) -> TaskConfig:
    """A verb's typed configuration for a caller in Python, with the defaults of the command line.

    Args:
        options: values by the names of the verb's own options, such as `replicates`.
        groups: choices of configuration files by group, such as `model`.

    Raises:
        ConfigError: there is no such option or choice, or a value does not fit.
    """
    choices = [f"{group}={name}" for group, name in (groups or {}).items()]
    try:
        config = composed([f"task={verb}", *choices])
        for name, value in (options or {}).items():  # with names of the caller's own
            if isinstance(value, Mapping) and OmegaConf.get_type(config, name) is dict:
                OmegaConf.set_struct(config[name], False)
        merged = OmegaConf.merge(config, dict(options or {}))
        assert isinstance(merged, DictConfig)
        return build(merged)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(composition_message(error) or str(error)) from error


def plain(config: TaskConfig) -> dict:
    """The configuration as JSON would have it: choices as their values."""
    text = json.dumps(asdict(config), default=lambda choice: getattr(choice, "value", str(choice)))
    return json.loads(text)


def asked(config: TaskConfig) -> dict:
    """The request of a configuration: all but folders, tracking and bars."""
    places = ("paths", "tracking", "progress", "force")
    return {name: value for name, value in plain(config).items() if name not in places}


def config_hash(config: TaskConfig) -> str:
    """sha256 of what a configuration asks for."""
    return hashlib.sha256(json.dumps(asked(config), sort_keys=True).encode()).hexdigest()


def make_analysis(entry: Mapping) -> Any:
    """The analysis that the function `_target_` of an entry returns, given the entry's options;
    ConfigError where it cannot be made."""
    try:
        return instantiate(dict(entry), _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, UserError):
            raise cause from error
        target = entry.get("_target_")
        raise ConfigError(f"analyses=[{{_target_: {target}}}]: {cause or error}") from error
