"""What can be typed after a verb (`pessimal VERB --help`, `--help=GROUP`, `pessimal models`), and
what completes a line that is being typed.

All of it is read from the classes of options (types, ranges, the sentence after each field) and
from `conf/`. The manual's tables are made by the same functions.
"""

import json
import os
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from pessimal.catalogue import CONF, model_entry
from pessimal.config.compose import composed
from pessimal.config.schema import TASKS, TaskConfig
from pessimal.errors import ConfigError, did_you_mean
from pessimal.options import choices_of, takes
from pessimal.rewards.named import load_kinds

LONG = 40
"""Characters of a default above which only its size is shown."""
COLUMN = 34
"""Characters before the meaning of an option."""
SHARED = tuple(field.name for field in fields(TaskConfig))
"""Options that all verbs have, which come last."""
MANY = ("model", "trainer")
"""Groups of options that many verbs have."""
FEW = 5
"""Options of a group above which they are shown by --help=GROUP alone."""


def print_help(overrides: Sequence[str], options: Mapping[str, str], group: str = "") -> None:
    """The options of the verb that the overrides name, with the defaults that the other overrides
    leave: its own in a line or two each, or all of a `group` such as `model`, with what each takes.

    Raises:
        ConfigError: the verb has no such group.
    """
    folder = options.get("--config-dir") or options.get("-cd")
    searched = [f"hydra.searchpath=[file://{os.path.abspath(folder)}]"] if folder else []
    config = composed([*overrides, *searched])
    schema = TASKS[config.task]
    rows = [row for row in options_of(schema, config) if row[0] != "task"]
    names = list(dict.fromkeys(row[0].split(".")[0] for row in rows))
    if group and group not in names:
        guess = did_you_mean(group, names)
        raise ConfigError(f"--help={group}: {config.task} has no such options.{guess}")
    if group:
        for key, takes_, default, sentence in rows:
            if key.split(".")[0] == group:
                _print_row(key, default, ". ".join(part for part in (takes_, sentence) if part))
        if group == "model":
            kinds = ", ".join(kind for kind in load_kinds() if kind != config.model.kind)
            print(f"\noptions of another kind of model: model.kind=KIND --help=model, of {kinds}")
        return
    print(" ".join((schema.__doc__ or "").split()).replace("`", ""))
    print("\noptions of this verb")
    own = [name for name in names if name not in (*SHARED, *MANY)]
    large = [name for name in own if sum(r[0].startswith(f"{name}.") for r in rows) > FEW]
    for key, takes_, default, sentence in rows:
        name = key.split(".")[0]
        if name in own and name not in large:
            choices = f"{takes_}. " if "," in takes_ else ""
            _print_row(key, default, choices + sentence.split(". ")[0].rstrip("."))
    print("\nfiles to choose from: NAME, or [NAME,NAME] where the default is a list")
    for name in (option for option in names if (CONF / option).is_dir() and option != "paths"):
        files = sorted((file.stem for file in (CONF / name).glob("*.yaml")), key=str.lower)
        _print_row(name, "", "see: pessimal models" if name == "model" else ", ".join(files))
    typed = " ".join(option.removeprefix("task=") for option in overrides)
    every = [name for name in (*large, *MANY, *SHARED) if name in names and name != "task"]
    print(f"\nall that an option takes, and more options: pessimal {typed} --help=GROUP")
    print("  " + "\n  ".join(_wrap(", ".join([*every, *(o for o in own if o not in large)]))))
    print("\nmore: --cfg job (the configuration composed), -m KEY=A,B (a sweep), --hydra-help")


def print_jobs(overrides: Sequence[str]) -> None:
    """The composed configuration of every job of a sweep, which Hydra prints of single jobs
    alone."""
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    [jobs] = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    for number, job in enumerate(jobs):
        print(f"# job {number}: {' '.join(job)}\n{OmegaConf.to_yaml(composed(job))}")


def print_models() -> None:
    """The models that are known by a name, a line each: what it is, and where it comes from."""
    for file in sorted((CONF / "model").glob("*.yaml"), key=lambda file: file.stem.lower()):
        entry = model_entry(file.stem)
        size = f"{float(entry['parameters']) / 1e9:g}B" if entry.get("parameters") else ""
        package = entry.get("package") or {}
        source = entry.get("path") or package.get("requirement") or "???"
        kind = entry.get("kind", "head")
        print(f"{file.stem:36}{kind:16}{size:8}{source.replace('???', '')}".rstrip())


def _print_row(key: str, default: str, sentence: str) -> None:
    required = default == "required"
    head = f"  {key} (required)" if required else f"  {key}={default}"
    gap = " " * max(COLUMN - len(head), 2) if len(head) < COLUMN else "\n" + " " * COLUMN
    print(head + gap + ("\n" + " " * COLUMN).join(_wrap(sentence)))


def _wrap(text: str) -> list[str]:
    width = min(shutil.get_terminal_size((110, 0)).columns, 140)
    return textwrap.wrap(
        text, max(width - COLUMN, 40), break_long_words=False, break_on_hyphens=False
    )


def options_of(
    schema: type, values: DictConfig, prefix: str = ""
) -> Iterator[tuple[str, str, str, str]]:
    """Key, what it takes, default and sentence of every field; specs inside are gone through field
    by field."""
    typed = OmegaConf.get_type(values)
    schema = typed if isinstance(typed, type) and issubclass(typed, schema) else schema
    hints, texts = typing.get_type_hints(schema, include_extras=True), sentences(schema)
    for field in fields(schema):
        key, hint = prefix + field.name, hints[field.name]
        missing = OmegaConf.is_missing(values, field.name)
        value = "required" if missing else values[field.name]
        types_named = (hint, *typing.get_args(hint))
        inner = next((t for t in types_named if isinstance(t, type) and is_dataclass(t)), None)
        nested = inner is not None and typing.get_origin(hint) is not dict
        if inner is not None and nested and isinstance(value, DictConfig):
            yield from options_of(inner, value, f"{key}.")
        elif isinstance(value, DictConfig) and "_target_" in value:
            yield from _options_of_class(value, f"{key}.")
        else:
            yield key, takes(hint), shown(value), texts.get(field.name, "")


def _options_of_class(values: DictConfig, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """The same of a class that a file of conf/ names."""
    names = [str(name) for name in values if name != "_target_"]
    if not names:
        return
    from pessimal.explaining.perturbers import class_of, kinds_of  # pandas comes with it

    owner = class_of(values["_target_"])
    kinds, texts = kinds_of(owner), sentences(owner)
    for name in names:
        yield prefix + name, takes(kinds.get(name)), shown(values[name]), texts.get(name, "")


def shown(value: object) -> str:
    """A default as it would be typed."""
    value = OmegaConf.to_container(value, enum_to_str=True) if OmegaConf.is_config(value) else value
    value = value.value if isinstance(value, Enum) else value
    if isinstance(value, dict | list):
        text = f"[{', '.join(map(str, value))}]"
        return text if len(text) <= LONG else f"({len(value)} of them)"
    return json.dumps(value) if value is None or isinstance(value, bool) else str(value)


def sentences(schema: type) -> dict[str, str]:
    """The sentence below each field of a class of options; pydantic keeps it at the class that
    declares the field."""
    texts = {}
    for owner in reversed(schema.__mro__):
        for name, info in vars(owner).get("__pydantic_fields__", {}).items():
            if info.description:
                texts[name] = " ".join(info.description.split())
    return texts


def completed(line: str) -> list[str] | None:
    """The words that may follow on a line being typed (`COMP_LINE`), where it is a verb or a value
    that the schema lists; None where Hydra knows better. The line that Hydra is to complete is then
    put in its place."""
    program, *words = line.split(" ")
    verb = next((w for word in words if (w := word.removeprefix("task=")) in TASKS), None)
    word_typed = words[-1] if words else ""
    if verb is None and "=" not in word_typed and not word_typed.startswith("-"):
        return [name for name in TASKS if name.startswith(word_typed)]
    key, equals, _ = word_typed.partition("=")
    choices = list(load_kinds()) if key == "model.kind" else []
    if verb and not choices:
        choices = choices_of(_hint_of(TASKS[verb], key))
    if equals and choices:
        return [f"{key}={choice}" for choice in choices if f"{key}={choice}".startswith(word_typed)]
    typed = [f"task={word}" if word == verb else word for word in words]
    os.environ["COMP_LINE"] = " ".join([program, *typed])
    return None


def _hint_of(schema: type, key: str) -> object:
    """The type of an option, without null; None where there is none such. Of a model, in the first
    kind that has it."""
    hint: object = schema
    group, _, option = key.partition(".")
    if group == "model" and option:
        first, key = option.split(".")[0], option
        kinds = load_kinds().values()
        hint = next((kind for kind in kinds if first in {f.name for f in fields(kind)}), None)
    for name in key.split("."):
        hints = typing.get_type_hints(hint, include_extras=True) if is_dataclass(hint) else {}
        hint = hints.get(name)
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            hint = next(t for t in typing.get_args(hint) if t is not type(None))
    return hint
