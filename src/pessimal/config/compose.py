"""Hydra composes a configuration of files and overrides, and the schema checks it; what either
refuses is put into words that tell what to type. Calls no verb."""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from typing import Any

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException, InstantiationException, OverrideParseException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pessimal.catalogue import CONF
from pessimal.config.schema import SCHEMAS, TASKS, TaskConfig
from pessimal.config.schema.shared import DISK_FULL
from pessimal.errors import (
    EXTRAS,
    ConfigError,
    MissingExtraError,
    UserError,
    did_you_mean,
    missing_extra,
    require,
    unknown_option,
)
from pessimal.rewards.named import describe_alien, load_kinds
from pessimal.rewards.spec import ModelSpec

OF_GROUPS = {
    "Config group override must be a string or a list": "a group of options was set to null; a "
    "list empties it (identity=[]), and ~GROUP leaves it out (~lexicons)",
    "Config group override deletion value must be a string": "~ leaves a group of options out, and "
    "takes the name of an option or nothing: ~lexicons",
}
"""Hydra's words on a group in a plain ValueError, and what to type."""
EVERY_PAIR = (
    "scoring every pair of tokens is an experiment of the repository now. Type "
    "there: python experiments/optimal_pessimal_tokens/exhaustive_pairs.py MODEL FOLDER"
)
DEMO_FAMILY = "To train one of the demo family: python -m experiments.demo_family.train NAME"
MORE_PROMPTS = "each prompt has one random start: give more tuning.prompts and tuning.held_out"
MOVED = {
    "model": "compare takes models=[NAME,…], train takes base=NAME data=FILE. " + DEMO_FAMILY,
    "model.recipe": DEMO_FAMILY,
    "dictionaries": "ranks of a dictionary's words are an experiment of the repository now. Type "
    "there: PYTHONPATH=. pessimal compare 'analyses=[{_target_: "
    "experiments.inherited_values.dictionaries.rank_categories, dictionaries: {NAME: FILE}}]'",
    "source": "W&B's own client fetches score tables. Type: wandb artifact get "
    "ENTITY/PROJECT/MODEL--PROMPT:latest --root FOLDER/MODEL--PROMPT, and then: pessimal compare "
    "tables=FOLDER",
    "answers": "the answers of a policy are scanned. Type: pessimal scan MODEL policy=NAME "
    "answers=1000",
    "search.keep": EVERY_PAIR,
    "search.method=exhaustive": EVERY_PAIR,
    "search.restarts": "eight responses are listed where all were tried; leave it out",
    "search.pairs": "a search ends at the same pairs without it; leave it out",
    "search.beam_width": "a search ends at the same responses without it; leave it out",
    "search.check_gradient": "the gradient alone is a method: search.length=1 search.method=gcg",
    "tuning.evaluations": "a trial is a search with its own budget. Type search.evaluations=5000",
    "tuning.seeds": MORE_PROMPTS,
    "tuning.held_out_seeds": MORE_PROMPTS,
    "tuning.trials": "the sweeper has the number. Type hydra.sweeper.n_trials=30",
    "hydra.sweeper.n_jobs": "one process works on a study, a trial at a time; leave it out",
    "perturber=blank_filling": "it is an experiment of the repository now. Type there: "
    "PYTHONPATH=. pessimal --config-dir experiments/contrastive_explanations/conf "
    "explain perturber=blank_filling perturber.model=DIR_OR_ID",
    "model=PairRM-hf": "it is a package of its own. Type at the top of a checkout: pip install "
    "./experiments/pairrm, and then: model=auto model.kind=pairrm "
    "model.path=llm-blender/PairRM-hf model.opponent=TEXT",
}
"""Options and choices that went, and what to type instead."""


def composition_message(error: Exception) -> str | None:
    """The mistake in a configuration that cannot be composed; None where the error is neither
    Hydra's nor OmegaConf's."""
    message, cause = str(error).strip(), error.__cause__
    for words, advice in OF_GROUPS.items():
        if words in f"{message}\n{cause}":
            return advice
    if not isinstance(error, HydraException | OmegaConfBaseException):
        return None
    if isinstance(error, OverrideParseException):
        return _unreadable(str(error.override))
    if cause is not None and str(cause).strip() not in message:
        message += "\n" + str(cause).strip()
    if (group := re.search(r"Could not override '(\w+)'", message)) and group[1] in MOVED:
        return f"there is no option {group[1]!r}: {MOVED[group[1]]}"
    special = _unknown_option(message) or _unknown_key(cause) or _unwritable_group(message)
    return special or _shortened(message)


def _unreadable(override: str) -> str:
    """The remedy for an override that Hydra cannot read."""
    key, _, value = override.partition("=")
    bare = re.search(r"[^\w.-]", key.lstrip("+~"), re.ASCII)
    if bare and bare[0] not in "/@":
        return f"{override!r} cannot be read: {bare[0]!r} stands in the name of an option"
    special = re.search(r"[^\w./~@%:+-]", value, re.ASCII)
    if value.count("[") != value.count("]"):
        return f"the override {override!r} cannot be read: a list is written {key}=[A,B]"
    character = f"A value with {special[0]!r}" if special else "It"
    bare_value = value.strip("'\"").replace('"', '\\"')
    typed = f"'{key}=\"{bare_value}\"'"
    return f"{override!r} cannot be read. {character} goes in quotes of its own: type {typed}"


def disk_full_message(error: Exception) -> str | None:
    """The remedy of a full disk; None where the error is another."""
    if not isinstance(error, OSError) or error.errno not in DISK_FULL:
        return None
    return (
        f"the disk is full: {os.strerror(error.errno or 0)} ({error.filename or 'paths.root'}). "
        "What was finished is kept. Free space, and the same command goes on from there"
    )


def missing_extra_message(error: Exception) -> str | None:
    """The extra to install; None where the missing module is of none of the extras."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    name = error.name or ""
    module = name if name in EXTRAS else name.partition(".")[0]
    return str(missing_extra(module, purpose="this")) if module in EXTRAS else None


def _unknown_option(message: str) -> str | None:
    unknown = re.search(r"Key '([^']+)' not in '(\w+)'", message)
    if unknown is None:
        return None
    key, schema = unknown.groups()
    full = re.search(r"full_key: (\S+)", message)
    file = re.search(r"In '([^']+)': \w+ raised while composing", message)
    if file and (kind := _kind_of(schema)):
        return (
            f"the file {file[1]}.yaml has the option {key!r}, which model.kind={kind.kind} does "
            f"not take. Give model={kind.kind} its own options; a file of your own says its kind "
            "as defaults: [_self_, override /kind@_here_: KIND]"
        )
    return unknown_option_message(key, schema, full[1] if full else key)


def _kind_of(schema: str) -> type[ModelSpec] | None:
    """The kind whose class of options has this name; None where it is of no kind."""
    return next((kind for kind in load_kinds().values() if kind.__name__ == schema), None)


def unknown_option_message(key: str, schema: str, name: str) -> str:
    """The options that a class of options has in place of an unknown one, or what to type for one
    that went; `name` is what was typed."""
    if name in MOVED:
        return f"there is no option {name!r}: {MOVED[name]}"
    options = [field.name for field in fields(SCHEMAS[schema])] if schema in SCHEMAS else []
    if (kind := _kind_of(schema)) and (alien := describe_alien(key, kind)):
        return alien
    folder = ". There is no folder of this name either" if "/" in name else ""
    return unknown_option(name, key, options) + folder


def _unknown_key(cause: BaseException | None) -> str | None:
    """For options that a file of conf/ lists, and no class: those of a perturber."""
    if not isinstance(cause, OmegaConfBaseException) or "is not in struct" not in str(cause):
        return None
    group = cause.parent_node
    if not isinstance(group, DictConfig) or "_target_" not in group:
        return None
    options = [name for name in map(str, group) if name != "_target_"]
    return unknown_option(str(cause.full_key), str(cause.key), options)


def _unwritable_group(message: str) -> str | None:
    spec = re.search(r"\+(\w+)\.([\w-]+).*is not a subclass of (\w+)", message, re.DOTALL)
    if spec is None:
        return None
    group, name, _ = spec.groups()
    return (
        f"{group}.{name} cannot be put together here. Write it into FOLDER/{group}/{name}.yaml, as "
        f"conf/{group} has others, and type: --config-dir FOLDER '{group}=[…,{name}]'"
    )


def _shortened(message: str) -> str:
    """The message without where the configuration was searched and which class was being filled,
    and with a guess at the name or value that was meant."""
    lines = [
        line.rstrip()
        for line in message.partition("Config search path")[0].splitlines()
        if line.strip() and "_type=" not in line and "full_key:" not in line
    ]
    if choice := re.search(r"Could not (?:find|load) '(\w+)/(.+)'", message):
        group, name = choice.groups()
        if (typed := f"{group}={name}") in MOVED:
            return f"there is no {typed}: {MOVED[typed]}"
        if launcher := re.match("launcher/(joblib|submitit)", name):
            try:
                require(f"hydra_plugins.hydra_{launcher[1]}_launcher", purpose=f"hydra/{name}")
            except MissingExtraError as missing:
                return str(missing)
        options = [line.strip() for line in lines if line.startswith("\t")]
        options = options or sorted(file.stem for file in (CONF / group).glob("*.yaml"))
        lines[0] = lines[0].removesuffix(".") + "." + did_you_mean(name, options)
        lines[1:] = [f"{group} takes: {', '.join(options)}"]
        if group == "prompts":
            lines.append(f"One without a file, or of tables alone: +prompts.{name}='user turn'")
    elif value := re.search(r"Invalid value '(.*)', expected one of \[(.*)\]", message):
        typed = lines[0].rpartition(" ")[2]
        if typed in MOVED:
            return f"there is no {typed}: {MOVED[typed]}"
        lines[-1] += "." + did_you_mean(value[1], value[2].split(", "))
    return "\n".join(lines)


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


def request(config: TaskConfig) -> dict:
    """The request of a configuration: all but folders, tracking and bars."""
    places = ("paths", "tracking", "progress", "force")
    return {name: value for name, value in plain(config).items() if name not in places}


def config_hash(config: TaskConfig) -> str:
    """sha256 of what a configuration asks for."""
    return hashlib.sha256(json.dumps(request(config), sort_keys=True).encode()).hexdigest()


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
