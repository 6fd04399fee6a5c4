"""The kinds of options: each is a field of one of pydantic's dataclasses, with its range as an
annotation and its meaning, unit included, as the sentence below it.

    @pydantic.dataclasses.dataclass
    class TrainerSpec(Options):
        _prefix: ClassVar[str] = "trainer"
        devices: Annotated[int, Ge(1)] = 1

OmegaConf composes such classes by their bare types; pydantic checks the ranges once a value is
whole; `pessimal VERB --help` and the manual read both, and the sentences.
"""

import glob
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Interval
from pydantic import (
    AfterValidator,
    ConfigDict,
    GetCoreSchemaHandler,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from pessimal.errors import ConfigError, InputError, did_you_mean, unknown_option

Count = Annotated[int, Ge(1)]
Share = Annotated[float, Interval(ge=0, le=1)]
Level = Annotated[float, Interval(gt=0, lt=1)]
"""The level of an interval: a probability other than 0 and 1."""
Text = Annotated[str, StringConstraints(pattern=r"\S")]
"""More than white space."""


@dataclass(frozen=True)
class OneOf:
    """The value is one of these; OmegaConf reads no Literal. An Enum where the choices are a type
    of their own."""

    choices: tuple

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return handler.generate_schema(Literal[self.choices])


DESCRIBED = ConfigDict(extra="forbid", use_attribute_docstrings=True, arbitrary_types_allowed=True)
"""Every class of options: unknown ones are refused, and the sentences below its fields are kept."""


class _Refusing(type):
    """Makes a ConfigError, with the option's name as it is typed, of a value that pydantic
    refuses."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        try:
            return super().__call__(*args, **options)
        except ValidationError as error:
            raise ConfigError(_refusal(cls, error)) from error


@pydantic_dataclass
class Options(metaclass=_Refusing):
    """Base of every class of options: pydantic checks each field against its annotation, then
    `check` what fields have to do with one another."""

    __pydantic_config__ = DESCRIBED
    _prefix: ClassVar[str] = ""
    """Stands before the fields' names as they are typed, such as `trainer`."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """ConfigError for what the annotations cannot say: what does not fit together."""


def _refusal(schema: Any, error: ValidationError) -> str:
    """The first value that pydantic refuses, what its option takes, and an example."""
    first = error.errors(include_url=False)[0]
    name, *inner = map(str, first["loc"])
    if first["type"] == "unexpected_keyword_argument":
        return unknown_option(name, name, [field.name for field in fields(schema)])
    document, definitions, keys = _schema_of(_hints(schema)[name], inner)
    words, choices = _describe(document, definitions), _choices(document, definitions)
    default = next(field.default for field in fields(schema) if field.name == name)
    typed = ".".join(([schema._prefix] if schema._prefix else []) + [name, *keys])
    default = getattr(default, "value", default)
    usual = not inner and default not in (MISSING, None, "???")
    example = f"; type for example {typed}={default}" if usual else ""
    guess = did_you_mean(str(first["input"]), choices)
    needed = f"one of {words}" if choices else f"a {words}"
    return f"{typed}={first['input']!r}, but {needed} is needed{example}.{guess}".removesuffix(".")


def takes(hint: Any) -> str:
    """The values that an option of this annotation takes, in words, as pydantic reads it: "number
    above 0 and below 1 or null"; choices with a comma and a blank between them."""
    return _describe(*_schema_of(hint)[:2])


def choices_of(hint: Any) -> list[str]:
    """The values that an option of this annotation takes, where they can be listed."""
    return _choices(*_schema_of(hint)[:2])


_hints: Callable[[Any], dict[str, Any]] = cache(partial(typing.get_type_hints, include_extras=True))
"""The annotations of a class of options, read once."""


def _schema_of(
    hint: Any, path: Sequence[str] = ()
) -> tuple[Mapping[str, Any], Mapping[str, Any], list[str]]:
    """The JSON Schema of an annotation, or of the value inside that pydantic's `path` leads to; the
    definitions that it refers to; and the keys on the way, without places in a list and pydantic's
    names for parts of a union."""
    document: Mapping[str, Any] = {} if hint is None else TypeAdapter(hint).json_schema()
    definitions, keys = document.get("$defs", {}), []
    for part in path:
        document = _without_null(_resolve(document, definitions), definitions)
        values = document.get("additionalProperties")
        if "properties" in document or isinstance(values, Mapping):
            document = document.get("properties", {}).get(part, values)
            keys.append(part)
        elif "items" in document:
            document = document["items"]
    return document, definitions, keys


def _resolve(document: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that this one refers to, or itself."""
    reference = document.get("$ref")
    return definitions[reference.rpartition("/")[2]] if reference else document


def _without_null(document: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first part of a union that is not null, or the schema itself."""
    parts = [part for part in document.get("anyOf", ()) if part != {"type": "null"}]
    return _resolve(parts[0], definitions) if parts else document


def _choices(document: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[str]:
    document = _without_null(_resolve(document, definitions), definitions)
    if document.get("type") == "boolean":
        return ["true", "false"]
    return [*dict.fromkeys(map(str, document.get("enum", ())))]


RANGES = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}
"""Limits of a number as JSON Schema calls them."""
TYPES = {"integer": "whole number", "number": "number", "string": "text"}


def _describe(document: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """A JSON Schema in words."""
    document = _resolve(document, definitions)
    if "anyOf" in document:
        first = _describe(_without_null(document, definitions), definitions)
        return first + " or null" * ({"type": "null"} in document["anyOf"])
    if choices := _choices(document, definitions):
        return ", ".join(choices)
    kind = document.get("type", "")
    if kind == "array":
        return f"list of {_describe(document['items'], definitions)}"
    if kind == "object":
        values = document.get("additionalProperties", True)
        if "properties" in document or values is True:
            return "options"
        return "group of files" if "$ref" in values else f"{_describe(values, definitions)} by name"
    limits = [f"{words} {document[name]:g}" for name, words in RANGES.items() if name in document]
    of = "of " if limits and limits[0].startswith("at") else ""
    noun = "text that is not empty" if "pattern" in document else TYPES.get(kind, "text or list")
    return f"{noun} {of}{' and '.join(limits)}".strip()


def existing_file(name: str, path: str) -> Path:
    """The path, of a file that is there; else InputError."""
    with _looking(name, path):
        file = Path(path).expanduser()
        check_ends(name, file)
        if not file.is_file():
            raise FileNotFoundError(f"looked in {file.absolute().parent}")
    return file


@contextmanager
def _looking(name: str, path: str) -> Iterator[None]:
    """InputError where no file is found, or none can be: too long a name, ~ of a user there is
    not."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        raise InputError(f"{name}={path!r}: there is no such file ({error})") from error


def check_ends(name: str, path: Path) -> None:
    """InputError for a pipe, a device or a socket, which would be read without end."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise InputError(f"{name}={str(path)!r} is a pipe, device or socket: give an ordinary file")


def matching(name: str, value: Any) -> list[str]:
    """Existing files and folders that `value` names: a path, a pattern with * or a list of
    these."""
    example = "a path, a pattern such as 'folder/*.parquet', or a list of paths"
    patterns = listed(name, value, example=example, minimum=1)
    paths = []
    for pattern in patterns:
        with _looking(name, pattern):
            expanded = str(Path(pattern).expanduser())
            matches = [expanded] if Path(expanded).exists() else sorted(glob.glob(expanded))
            for match in matches:
                check_ends(name, Path(match))
            if not matches:
                raise FileNotFoundError(f"looked in {Path(expanded).absolute().parent}")
        paths += matches
    return paths


def _match_files(value: Any, field: ValidationInfo) -> list[str] | None:
    return None if value is None else matching(str(field.field_name), value)


def _list_texts(value: Any, field: ValidationInfo) -> list[str]:
    name = str(field.field_name)
    return listed(name, value, example=f"a text or a list of texts, such as {name}=[a,b]")


Files = Annotated[Any, AfterValidator(_match_files)]
"""Existing files and folders, as of `matching`; None where nothing is given."""
Texts = Annotated[Any, AfterValidator(_list_texts)]
"""One text or several, as a list."""


def listed(name: str, value: Any, *, example: str, minimum: int = 0) -> list[str]:
    """One text, or a list of at least so many, as a list; none where it is null. ConfigError where
    it is anything else."""
    entries = [value] if isinstance(value, str) else [] if value is None else value
    texts = isinstance(entries, list) and all(isinstance(entry, str) for entry in entries)
    if not texts or len(entries) < minimum:
        raise ConfigError(f"{name}={value!r}: give {example}")
    return entries


UNITS = {"s": 1, "m": 60, "h": 3600}


def parse_duration(text: str) -> float:
    """Seconds of a time such as 90s, 10m or 2h. ConfigError where it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not match or float(match[1]) == 0:
        raise ConfigError(f"budget={text!r}: give a time, such as 90s, 10m or 2h")
    return float(match[1]) * UNITS[match[2]]
