"""What can be typed after a verb: `pessimal VERB --help`, and what completes a line that is being
typed.

All of it is read from the classes of options (types, ranges, the sentence after each field) and
from `conf/`. The manual's tables are made by the same functions.
"""

import ast
import inspect
import os
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import pairwise

from omegaconf import DictConfig, OmegaConf

from pessimal.catalogue import CONF
from pessimal.config.compose import composed
from pessimal.config.schema import TASKS, TaskConfig
from pessimal.options import OneOf, needed, rules
from pessimal.rewards.spec import Kind

LONG = 40
"""Characters of a default above which only its size is shown."""
COLUMN = 34
"""Characters before the meaning of an option."""
SHARED = tuple(field.name for field in fields(TaskConfig))
"""Options that all verbs have, which come last."""
MANY = ("model", "trainer")
"""Groups of options that many verbs have, which come after their own."""


def print_help(overrides: Sequence[str], options: Mapping[str, str]) -> None:
    """The options of the verb that the overrides name, with the defaults that the other overrides
    leave."""
    folder = options.get("--config-dir") or options.get("-cd")
    config = composed(
        [*overrides, *([f"hydra.searchpath=[file://{os.path.abspath(folder)}]"] if folder else [])]
    )
    schema = TASKS[config.task]
    width = min(shutil.get_terminal_size((110, 0)).columns, 140)
    kind = config.model.kind if "kind" in config.get("model", {}) else None
    others = tuple(f"model.{one.value}" for one in Kind if one is not kind)
    every = [row for row in options_of(schema, config) if row[0] != "task"]
    rows = [row for row in every if not row[0].startswith(others)]

    def wrapped(text: str) -> list[str]:
        return textwrap.wrap(
            text, max(width - COLUMN, 40), break_long_words=False, break_on_hyphens=False
        )

    def part(title: str, keys: Sequence[str]) -> None:
        chosen = [row for row in rows if row[0].split(".")[0] in keys]
        if chosen:
            print(f"\n{title}")
        for key, kind, default, said in chosen:
            head = f"  {key}{'=' + default if default != 'required' else ' (required)'}"
            body = ". ".join(part for part in (kind, said) if part)
            gap = " " * max(COLUMN - len(head), 2) if len(head) < COLUMN else "\n" + " " * COLUMN
            print(head + gap + ("\n" + " " * COLUMN).join(wrapped(body)))

    print(" ".join((schema.__doc__ or "").split()).replace("`", ""))
    own = [field.name for field in fields(schema) if field.name not in (*SHARED, *MANY)]
    part("options of this verb", own)
    groups = [
        name for name in (*MANY, *own, "tracking") if name in config and (CONF / name).is_dir()
    ]
    print("\nfiles of conf/ to choose from: NAME, or [NAME,NAME] where the default is a list")
    for group in groups:
        names = ", ".join(
            sorted((file.stem for file in (CONF / group).glob("*.yaml")), key=str.lower)
        )
        print(f"  {group}=".ljust(COLUMN) + ("\n" + " " * COLUMN).join(wrapped(names)))
    part("the model", ["model"])
    if unexplained := [row[0] for row in every if row not in rows]:
        print("\noptions of other kinds of model; what they mean: --help with model.kind=KIND")
        print("  " + "\n  ".join(wrapped(", ".join(unexplained))))
    part("where it runs", ["trainer"])
    part("options of every verb", SHARED)
    print(
        "\nmore: --cfg job (the configuration composed), -m KEY=A,B (a sweep), --hydra-help (what "
        "Hydra can do)"
    )


def options_of(
    schema: type, values: DictConfig, prefix: str = ""
) -> Iterator[tuple[str, str, str, str]]:
    """Key, what it takes, default and sentence of every field; specs inside are gone through field
    by field."""
    hints, said = typing.get_type_hints(schema, include_extras=True), sentences(schema)
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
            yield key, takes(hint), shown(value), said.get(field.name, "")


def _options_of_class(values: DictConfig, prefix: str) -> Iterator[tuple[str, str, str, str]]:
    """The same of a class that a file of conf/ names."""
    names = [str(name) for name in values if name != "_target_"]
    if not names:
        return
    from pessimal.explaining.perturbers import class_of, kinds_of  # pandas comes with it

    made = class_of(values["_target_"])
    for name in names:
        yield (
            prefix + name,
            takes(kinds_of(made).get(name)),
            shown(values[name]),
            sentences(made).get(name, ""),
        )


def takes(hint: object) -> str:
    """What may be typed, in words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if choices := choices_of(hint):
        return ", ".join(choices)
    if origin is typing.Annotated:
        return (
            needed(hint).removeprefix("a ") if any(map(_is_range, rules(hint))) else takes(inner[0])
        )
    if origin in (types.UnionType, typing.Union):
        return takes(next(t for t in inner if t is not type(None))) + " or null"
    if origin is list:
        return f"list of {takes(inner[0])}"
    if origin is dict:
        return "group of files" if is_dataclass(inner[1]) else f"{takes(inner[1])} by name"
    for plain, word in ((str, "text"), (int, "whole number"), (float, "number")):
        if hint is plain:
            return word
    return "options" if is_dataclass(hint) else "text or list"


def _is_range(rule: object) -> bool:
    return type(rule).__module__.startswith("annotated_types")


def choices_of(hint: object) -> list[str]:
    """The values that a type has, where they can be listed."""
    for rule in rules(hint):
        if isinstance(rule, OneOf):
            return [str(choice) for choice in rule.choices]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [str(choice.value) for choice in hint]
    if typing.get_origin(hint) is typing.Literal:
        return list(map(str, typing.get_args(hint)))
    return ["true", "false"] if hint is bool else []


def shown(value: object) -> str:
    """A default as it would be typed."""
    value = OmegaConf.to_container(value, enum_to_str=True) if OmegaConf.is_config(value) else value
    value = value.value if isinstance(value, Enum) else value
    if isinstance(value, dict | list):
        text = f"[{', '.join(map(str, value))}]"
        return text if len(text) <= LONG else f"({len(value)} of them)"
    return (
        {None: "null", True: "true", False: "false"}[value]
        if value is None or isinstance(value, bool)
        else str(value)
    )


@cache
def sentences(schema: type) -> dict[str, str]:
    """What stands after each field of a dataclass, and of those that it inherits from."""
    by_field: dict[str, str] = {}
    for owner in reversed([c for c in schema.__mro__ if is_dataclass(c)]):
        [definition] = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(definition, ast.ClassDef)
        for line, after in pairwise(definition.body):
            if isinstance(line, ast.AnnAssign) and isinstance(after, ast.Expr):
                sentence = " ".join(ast.literal_eval(after.value).split())
                by_field[ast.unparse(line.target)] = sentence
    return by_field


def completed(line: str) -> list[str] | None:
    """What may follow on a line being typed (`COMP_LINE`), where it is a verb or a value that the
    schema lists; None where Hydra knows better. The line that Hydra is to complete is then put in
    its place."""
    program, *words = line.split(" ")
    verb = next(
        (word.removeprefix("task=") for word in words if word.removeprefix("task=") in TASKS), None
    )
    last = words[-1] if words else ""
    if verb is None and "=" not in last and not last.startswith("-"):
        return [known for known in TASKS if known.startswith(last)]
    key, equals, _ = last.partition("=")
    if equals and (choices := choices_of(_hint_of(TASKS[verb], key) if verb else None)):
        return [f"{key}={choice}" for choice in choices if f"{key}={choice}".startswith(last)]
    os.environ["COMP_LINE"] = " ".join(
        [program, *(f"task={word}" if word == verb else word for word in words)]
    )
    return None


def _hint_of(schema: type, key: str) -> object:
    """The type of an option, without null; None where there is none such."""
    hint: object = schema
    for name in key.split("."):
        hint = (
            typing.get_type_hints(hint, include_extras=True).get(name)
            if is_dataclass(hint)
            else None
        )
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            hint = next(t for t in typing.get_args(hint) if t is not type(None))
    return hint
