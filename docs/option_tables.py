"""The directive `options`: a verb's options as a table, made from the schema that checks them.

    ```{options} search
    :only: search
    ```

One row a field: its key, what it takes, its default as Hydra composes it from `conf/`, and the sentence after the field
in `pessimal/config/schema/`. `only` and `without` choose by the first part of the key.
"""

import ast
import inspect
import types
import typing
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import pairwise

from docutils import nodes
from docutils.parsers.rst import directives
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf
from sphinx.util.docutils import SphinxDirective

from pessimal.config.front_door import CONF, register
from pessimal.config.schema import TASKS, TaskConfig

SHARED = {field.name for field in fields(TaskConfig)}
ELSEWHERE = {"model", "trainer"}
"""Specs that many verbs have: tables of their own, on the pages models and configuration."""
LONG = 40
"""Characters of a default above which only its size is shown."""


class Options(SphinxDirective):
    """`options VERB`, with `only` or `without`; the fields that all verbs share only where they are named."""

    required_arguments = 1
    option_spec: typing.ClassVar = {"only": directives.unchanged, "without": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        verb = self.arguments[0]
        self.env.note_dependency(inspect.getfile(TASKS[verb]))
        only, without = (set(self.options.get(name, "").split(",")) for name in ("only", "without"))
        rows = []
        for key, kind, default, said in options(TASKS[verb], composed(verb)):
            first = key.split(".")[0]
            if first in only if only != {""} else first not in SHARED | ELSEWHERE | without:
                rows.append(f"| `{key}` | {kind} | {default} | {said} |")
        if not rows:
            raise self.error(f"options {verb}: nothing is left of its fields")
        return self.parse_text_to_nodes(
            "\n".join(["| option | takes | default | meaning |", "|---|---|---|---|", *rows])
        )


def composed(verb: str) -> DictConfig:
    """The configuration of `pessimal VERB` without a single override."""
    register()
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("config", overrides=[f"task={verb}"])


def options(schema: type, values: DictConfig, prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Key, what it takes, default and sentence of every field; specs inside are gone through field by field."""
    hints, said = typing.get_type_hints(schema), sentences(schema)
    for field in fields(schema):
        key, hint = prefix + field.name, hints[field.name]
        missing = OmegaConf.is_missing(values, field.name)
        value = "required" if missing else values[field.name]
        inner = next((t for t in (hint, *typing.get_args(hint)) if is_dataclass(t)), None)
        if inner is not None and typing.get_origin(hint) is not dict and isinstance(value, DictConfig):
            yield from options(inner, value, f"{key}.")
        else:
            yield key, takes(hint), shown(value), said.get(field.name, "").replace("|", "\\|")


def takes(hint: object) -> str:
    """What may be typed, in words."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(f"`{choice.value}`" for choice in hint)
    if origin in (types.UnionType, typing.Union):
        return takes(next(t for t in inner if t is not type(None))) + " or `null`"
    if origin is list:
        return f"list of {takes(inner[0])}"
    if origin is dict:
        return "group of files" if is_dataclass(inner[1]) else f"{takes(inner[1])} by name"
    names = {str: "text", int: "whole number", float: "number", bool: "`true`, `false`"}
    return names.get(hint, "options" if is_dataclass(hint) else "text or list")


def shown(value: object) -> str:
    """A default as it would be typed."""
    value = OmegaConf.to_container(value, enum_to_str=True) if OmegaConf.is_config(value) else value
    value = value.value if isinstance(value, Enum) else value
    if isinstance(value, dict | list):
        text = f"[{', '.join(map(str, value))}]"
        return f"`{text}`" if len(text) <= LONG else f"{len(value)} of them"
    if isinstance(value, bool) or value is None:
        return {None: "`null`", True: "`true`", False: "`false`"}[value]
    return value if value == "required" else f"`{value}`" if value != "" else ""


def sentences(schema: type) -> dict[str, str]:
    """What stands after each field of a dataclass, and of those that it inherits from."""
    said: dict[str, str] = {}
    for owner in reversed([c for c in schema.__mro__ if is_dataclass(c)]):
        for line, after in pairwise(ast.parse(inspect.getsource(owner)).body[0].body):
            if isinstance(line, ast.AnnAssign) and isinstance(after, ast.Expr):
                said[line.target.id] = " ".join(ast.literal_eval(after.value).split())
    return said


def setup(app) -> dict:
    app.add_directive("options", Options)
    return {"version": "1", "parallel_read_safe": False}
