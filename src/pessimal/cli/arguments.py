"""A command line as Hydra wants it: bare verbs, and keys of prompts that have no file.

Knows the verbs and their options; does not compose anything.
"""

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from pessimal.catalogue import CONF, is_folder, is_named, known_model, model_entry
from pessimal.config.schema import TASKS
from pessimal.config.schema.explain import as_text, as_typed
from pessimal.config.schema.runs import runs_overrides
from pessimal.conversation import FILES
from pessimal.errors import ConfigError, did_you_mean
from pessimal.rewards.named import FUNCTION, options_of

VALUED = {
    *("--cfg", "-c", "--package", "-p", "--config-path", "-cp", "--config-name", "-cn"),
    *("--config-dir", "-cd", "--info", "-i", "--experimental-rerun"),
}
"""Hydra's options that are followed by a value; what comes after them is no verb."""
QUOTES = " '\""
LOOKS = "task=runs"
"""The verb that only looks at what there is: it makes no folder, and needs none that can be
written."""


def with_task(arguments: Sequence[str]) -> list[str]:
    """The command line as Hydra wants it: a bare verb as the override `task=VERB`, overrides before
    options. Bare words after `runs` are what it does and with what; after other verbs, models.

    Raises ConfigError for a bare word that is no verb or no model, naming the closest one.
    """
    options, overrides, words, models, previous = [], [], [], [], ""
    for argument in arguments:
        value = previous in VALUED and not (previous in ("--info", "-i") and argument in TASKS)
        if argument.startswith("-") or value:
            options.append(argument)
        elif LOOKS not in overrides and "=" in argument and _is_reward_path(argument):
            models.append(argument)
        elif "=" in argument or argument.startswith(("+", "~")):
            overrides.append(argument)
        elif LOOKS in overrides:
            words.append(argument)
        elif argument in TASKS:
            overrides.append(f"task={argument}")
        elif argument and (_verb(overrides) or options_of(argument) or is_named(argument)):
            models.append(argument)
        else:
            guess, verbs = did_you_mean(argument, TASKS), ", ".join(TASKS)
            raise ConfigError(f"unknown verb {argument!r}.{guess} The verbs are: {verbs}")
        previous = argument
    overrides = [_quote_path(override) for override in overrides + _bare(models, overrides)]
    overrides = _own_prompts(overrides)
    if "task=import" in overrides:  # `model` is a group of files, of which import needs none
        overrides = [re.sub(r"^model=", "model_name=", override) for override in overrides]
    overrides = [part for override in overrides for part in _known_model(override)]
    keys = {re.split("[.=]", override.lstrip("+"))[0] for override in overrides}
    if "tasks" in keys and keys & {"prompts", "prompts_path"}:
        raise ConfigError("tasks=FILE has prompts of its own: leave out prompts=, or tasks=")
    if LOOKS in overrides:
        overrides = runs_overrides(words, overrides, options)
    # Compare chooses among prompts of the registry, and needs no wording of them.
    compares = [_any_prompts] if "task=compare" in overrides else []
    for expand in (*compares, _prompt_file, _ratings):
        overrides = [part for override in overrides for part in expand(override)]
    overrides = [re.sub(r"^model\.kind=", "kind@model=", override) for override in overrides]
    if "task=explain" in overrides:
        overrides = [as_typed(override) for override in overrides]
    return [*overrides, *options]


def _ratings(override: str) -> list[str]:
    """model.judge.ratings={1: 1, 2: 2}, with answers in quotes or without, as an override of each:
    in braces Hydra reads a digit as a number and no quotes."""
    ratings = re.fullmatch(r"\+*(model\.judge\.ratings)=\{([^{}]+:[^{}]+)\}", override)
    if not ratings:
        return [override]
    pairs = [pair.rpartition(":") for pair in ratings[2].split(",")]
    return [f"++{ratings[1]}.{key.strip(QUOTES)}={value}" for key, _, value in pairs]


def _is_reward_path(argument: str) -> bool:
    """Whether a word is a folder, or FILE.py:FUNCTION of a file there is."""
    function = FUNCTION.fullmatch(argument)
    return is_folder(argument) or (function is not None and Path(function["file"]).is_file())


def split(typed: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Overrides, and options by name with their values ("" where they have none), of what
    `with_task` gave."""
    overrides, options, previous = [], {}, ""
    for argument in typed:
        if previous in VALUED and not argument.startswith("-") and "=" not in argument:
            options[previous] = argument
        elif argument.startswith("-"):
            name, _, value = argument.partition("=")
            options[name] = value
        else:
            overrides.append(argument)
        previous = argument
    return overrides, options


def _verb(overrides: Sequence[str]) -> str | None:
    typed = (o.removeprefix("task=") for o in overrides if o.startswith("task="))
    return next((verb for verb in typed if verb in TASKS), None)


def _bare(models: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Models that were typed as words of their own, as the option that takes them."""
    if not models:
        return []
    task = _verb(overrides)
    if task is None:
        raise ConfigError(f"{models[0]!r} has no verb before it: pessimal scan {models[0]}")
    options = {field.name for field in fields(TASKS[task])}
    if "models" in options:
        return [f"models=[{','.join(map(as_text, models))}]"]
    if "model" not in options and task != "train":  # which says what it takes instead
        raise ConfigError(f"{task} takes no model, and {models[0]!r} stands alone: type KEY=VALUE")
    if len(models) > 1 or any(override.startswith("model=") for override in overrides):
        raise ConfigError(f"{task} takes one model, and {models[-1]!r} is another: -m model=A,B")
    if options_of(models[0]) is None:
        model_entry(models[0])  # says which it may have been
    return [f"model={models[0]}"]


_TYPED = {"path": "auto", "adapter": "adapter", "callable": "callable", "endpoint": "endpoint"}
"""Options that say where a model is, and the file of conf/model that takes each."""


def _known_model(override: str) -> list[str]:
    """model=OWNER/NAME (or OWNER--NAME, OWNER_NAME) of a model that has a file in conf/model, as
    the choice of that file; another repository, a folder, FILE.py:FUNCTION or http://… as
    model=auto model.path=… and its like. A bare NAME may be a file of the user's own, which goes
    before a folder."""
    if not override.startswith("model="):
        return [override]
    typed = override.removeprefix("model=").strip("'\"")
    if not typed:
        return [override]
    names = [typed] if is_folder(typed) else typed.split(",")
    if all((CONF / "model" / f"{name}.yaml").is_file() for name in names):
        return [override]
    rows = {name: known_model(name) if re.search("/|_|--", name) else None for name in names}
    given = {name: None if row else options_of(name) for name, row in rows.items()}
    if not any(given.values()):
        return [f"model={','.join(row['label'] if row else name for name, row in rows.items())}"]
    kinds = [next(filter(_TYPED.get, options or ()), None) for options in given.values()]
    if (kind := kinds[0]) is None or set(kinds) != {kind}:
        raise ConfigError(f"{override}: a sweep takes models that are named in one way alone")
    option = {"callable": "callable._target_", "endpoint": "endpoint.url"}.get(kind, kind)
    return [f"model={_TYPED[kind]}", f"model.{option}={','.join(map(as_text, names))}"]


def _quote_path(override: str) -> str:
    """KEY=PATH with the path in quotes where it has a character, such as =, that Hydra reads."""
    key, _, path = override.partition("=")
    special = re.search(r"[^\w./~-]", path, re.ASCII) and path[0] not in "'\"[{"
    exists = special and Path(path).expanduser().exists()
    return f"{key}={as_text(path)}" if exists and key != "model" else override


def _own_prompts(overrides: Sequence[str]) -> list[str]:
    """prompts=[A,MINE] without the keys whose wording another override adds: +prompts.MINE=…"""
    added = (o.partition("=")[0] for o in overrides if o.startswith("+prompts."))
    own = {key.removeprefix("+prompts.") for key in added}

    def drop_own(override: str) -> str:
        choice = re.fullmatch(r"prompts=\[?([\w,\s-]+)\]?", override)
        keys = [key.strip() for key in choice[1].split(",")] if choice else []
        left = [key for key in keys if key not in own]
        return override if left == keys else f"prompts=[{','.join(left)}]"

    return [drop_own(override) for override in overrides]


def _prompt_file(override: str) -> list[str]:
    """prompts=FILE of YAML or JSON lines, as the option that reads one."""
    key, _, path = override.partition("=")
    if key != "prompts" or not path.endswith(FILES):
        return [override]
    return ["prompts=[]", f"prompts_path={path}"]


def _any_prompts(override: str) -> list[str]:
    """prompts=[A,B] with keys that have no file in conf/prompts: score tables may know them all the
    same."""
    typed = re.fullmatch(r"prompts=\[?([^\[\]{}()]*)\]?", override)
    keys = [key.strip() for key in typed[1].split(",")] if typed else []
    names = [key for key in keys if re.fullmatch(r"[\w-]+", key)]
    unknown = [key for key in names if not (CONF / "prompts" / f"{key}.yaml").is_file()]
    if not unknown:
        return [override]
    files = [key for key in keys if key not in unknown]
    return [f"prompts=[{','.join(files)}]", *(f"+prompts.{key}=''" for key in unknown)]
