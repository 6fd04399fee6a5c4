"""A command line as Hydra wants it: bare verbs, old names, and keys of prompts that have no file.

Knows the verbs and their options; does not compose anything.
"""

import re
import sys
from collections.abc import Sequence

from pessimal.catalogue import CONF, known_model
from pessimal.config.schema import TASKS
from pessimal.config.schema.explain import as_typed
from pessimal.config.schema.runs import runs_overrides
from pessimal.errors import ConfigError, did_you_mean

VALUED = {
    "--cfg",
    "-c",
    "--package",
    "-p",
    "--config-path",
    "-cp",
    "--config-name",
    "-cn",
    "--config-dir",
    "-cd",
    "--info",
    "-i",
    "--experimental-rerun",
}
"""Hydra's options that are followed by a value; what comes after them is no verb."""
LOOKS = "task=runs"
"""The verb that only looks at what there is: it makes no folder, and needs none that can be
written."""
TAKES_ANY_PROMPT = ("task=compare",)
"""Verbs that choose among prompts of the registry, and need no wording of them."""
RENAMED = {"frames": "polarity", "model.score": "model.kind"}
"""Options that had another name; the old one is understood for one release, with a notice."""


def with_task(arguments: Sequence[str]) -> list[str]:
    """The command line as Hydra wants it: a bare verb as the override `task=VERB`, overrides before
    options. Bare words after `runs` are what it does and with what.

    Raises ConfigError for a bare word that is no verb, naming the closest one.
    """
    options, overrides, words, previous = [], [], [], ""
    for argument in arguments:
        value = previous in VALUED and not (previous in ("--info", "-i") and argument in TASKS)
        if argument.startswith("-") or value:
            options.append(argument)
        elif "=" in argument or argument.startswith(("+", "~")):
            overrides.append(argument)
        elif LOOKS in overrides:
            words.append(argument)
        elif argument in TASKS:
            overrides.append(f"task={argument}")
        else:
            raise ConfigError(
                f"unknown verb {argument!r}.{did_you_mean(argument, TASKS)} The verbs are: "
                f"{', '.join(TASKS)}. See pessimal --help"
            )
        previous = argument
    overrides = [_present_name(override) for override in overrides]
    if "task=import" in overrides:  # `model` is a group of files, of which import needs none
        overrides = [re.sub(r"^model=", "model_name=", override) for override in overrides]
    overrides = [_known_model(override) for override in overrides]
    if LOOKS in overrides:
        overrides = runs_overrides(words, overrides, options)
    if any(verb in overrides for verb in TAKES_ANY_PROMPT):
        overrides = [part for override in overrides for part in _any_prompts(override)]
    if "task=explain" in overrides:
        overrides = [as_typed(override) for override in overrides]
    return [*overrides, *options]


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


def _present_name(override: str) -> str:
    """The override with an option's present name, and a notice where the old one was given."""
    old = re.match(rf"([+~]*)({'|'.join(map(re.escape, RENAMED))})(?=[.=]|$)", override)
    if old is None:
        return override
    new = RENAMED[old[2]]
    override = override.replace("model.score=reward", "model.score=head")
    print(
        f"pessimal: {old[2]} is called {new} now; the old name goes with the next release",
        file=sys.stderr,
    )
    return f"{old[1]}{new}{override[old.end() :]}"


def _known_model(override: str) -> str:
    """model=OWNER/NAME (or OWNER--NAME, OWNER_NAME) of a model that has a file in conf/model, as
    the choice of that file. A bare NAME may be a file of the user's own."""
    given = re.fullmatch(r"model=([\w.,/-]+)", override)
    if given is None or all(
        (CONF / "model" / f"{name}.yaml").is_file() for name in given[1].split(",")
    ):
        return override
    names = given[1].split(",")
    rows = {name: known_model(name) if re.search("/|_|--", name) else None for name in names}
    return f"model={','.join(row['label'] if row else name for name, row in rows.items())}"


def _any_prompts(override: str) -> list[str]:
    """prompts=[A,B] with keys that have no file in conf/prompts: score tables may know them all the
    same."""
    given = re.fullmatch(r"prompts=\[?([^\[\]{}()]*)\]?", override)
    keys = [key.strip() for key in given[1].split(",")] if given else []
    unknown = [
        key
        for key in keys
        if re.fullmatch(r"[\w-]+", key) and not (CONF / "prompts" / f"{key}.yaml").is_file()
    ]
    if not unknown:
        return [override]
    known = [key for key in keys if key not in unknown]
    return [f"prompts=[{','.join(known)}]", *(f"+prompts.{key}=''" for key in unknown)]
