"""What an option may be: ranges and choices as annotations, checked once when the class of options
is made.

    @dataclass
    class TrainerSpec(Options):
        _prefix: ClassVar[str] = "trainer"
        devices: Annotated[int, Ge(1)] = 1

OmegaConf 2.3 sees the bare type of such a field, and converts and refuses by it; the range is
checked here.
"""

import glob
import math
import re
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, GroupedMetadata, Gt, Interval, Le, Lt

from pessimal.errors import ConfigError, InputError, did_you_mean

Count = Annotated[int, Ge(1)]
Share = Annotated[float, Interval(ge=0, le=1)]
Level = Annotated[float, Interval(gt=0, lt=1)]
"""Of an interval: a probability other than 0 and 1."""


@dataclass(frozen=True)
class OneOf:
    """The value is one of these. An Enum where the choices are a type of their own."""

    choices: tuple


@dataclass(frozen=True)
class NotBlank:
    """The text has more than white space; `what` says what it is for."""

    what: str


@dataclass(eq=False)
class Options:
    """Base of every class of options: takes the words of an enum for its members, checks each field
    against its annotation, then what `check` adds."""

    _prefix: ClassVar[str] = ""
    """What is typed before the fields' names, such as `trainer`."""

    def __post_init__(self):
        prefix, hints = self._prefix and self._prefix + ".", _hints(self.__class__)
        for field in fields(self):
            usual = (
                field.default not in (MISSING, None, "???")
                and f"{prefix}{field.name}={field.default}"
            )
            example = f"; type for example {usual}" if usual else ""
            name, hint = prefix + field.name, hints[field.name]
            setattr(self, field.name, _with_members(name, getattr(self, field.name), hint))
            check_value(name, getattr(self, field.name), hint, example)
        self.check()

    def check(self) -> None:
        """ConfigError for what the annotations cannot say: what does not fit together."""


_hints: Callable[[Any], dict[str, Any]] = cache(partial(typing.get_type_hints, include_extras=True))
"""The annotations of a class of options, read once."""


def check_value(name: str, value: Any, hint: Any, example: str = "") -> None:
    """ConfigError where a value, or one inside a list or dictionary, breaks a rule of its
    annotation."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if value is None:
        return
    if origin is Annotated:
        check_value(name, value, inner[0], example)
        for rule in rules(hint):
            if not _allowed(value, rule):
                guess = (
                    did_you_mean(str(value), map(str, rule.choices))
                    if isinstance(rule, OneOf)
                    else ""
                )
                raise ConfigError(
                    f"{name}={value!r}, but {needed(hint)} is needed{example}.{guess}".removesuffix(
                        "."
                    )
                )
    elif origin in (typing.Union, UnionType):
        for one in inner:
            check_value(name, value, one, example)
    elif origin is list and isinstance(value, list):
        for entry in value:
            check_value(name, entry, inner[0], example)
    elif origin is dict and isinstance(value, dict):
        for key, entry in value.items():
            check_value(f"{name}.{key}", entry, inner[1])


def _with_members(name: str, value: Any, hint: Any) -> Any:
    """The value, its words as members where the annotation is of an enum, or a list of such;
    ConfigError for a word that is none."""
    inner = typing.get_args(hint)
    if isinstance(value, list) and inner:
        return [_with_members(name, one, inner[0]) for one in value]
    for one in inner or (hint,):
        if isinstance(value, str) and isinstance(one, type) and issubclass(one, Enum):
            words = [str(member.value) for member in one]
            if value not in words:
                guess = did_you_mean(value, words)
                needs = f"but one of {', '.join(words)} is needed.{guess}".removesuffix(".")
                raise ConfigError(f"{name}={value!r}, {needs}")
            return one(value)
    return value


def rules(hint: Any) -> list:
    """The ranges and choices of an annotated type."""
    given = hint.__metadata__ if typing.get_origin(hint) is Annotated else ()
    return [
        rule for each in given for rule in (each if isinstance(each, GroupedMetadata) else [each])
    ]


def _allowed(value: Any, rule: Any) -> bool:
    match rule:
        case Ge(ge):
            return value >= ge
        case Gt(gt):
            return value > gt and not math.isinf(value)
        case Le(le):
            return value <= le
        case Lt(lt):
            return value < lt
        case OneOf(choices):
            return value in choices
        case NotBlank():
            return bool(str(value).strip())
    return True


def needed(hint: Any) -> str:
    """What an annotated type takes, in words: "a number above 0 and below 1"."""
    words = []
    for rule in rules(hint):
        match rule:
            case Ge(ge):
                words.append(f"at least {ge}")
            case Gt(gt):
                words.append(f"above {gt}")
            case Le(le):
                words.append(f"at most {le}")
            case Lt(lt):
                words.append(f"below {lt}")
            case OneOf(choices):
                return f"one of {', '.join(map(str, choices))}"
            case NotBlank(what):
                return f"a text that is not empty ({what})"
    bare = typing.get_args(hint)[0]
    kind = "whole number" if int in (bare, *typing.get_args(bare)) else "number"
    return f"a {kind} {'of ' if words[0].startswith('at') else ''}{' and '.join(words)}"


def at_least(minimum: int, **values: int) -> None:
    """ConfigError where a value is smaller; for what no annotation checks."""
    for name, value in values.items():
        if value < minimum:
            raise ConfigError(f"{name}={value}, but at least {minimum} is needed")


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


def matching(name: str, given: Any) -> list[str]:
    """Existing files and folders that `given` names: a path, a pattern with * or a list of
    these."""
    example = "a path, a pattern such as 'folder/*.parquet', or a list of paths"
    patterns = listed(name, given, example=example, least=1)
    found = []
    for pattern in patterns:
        with _looking(name, pattern):
            expanded = str(Path(pattern).expanduser())
            matches = [expanded] if Path(expanded).exists() else sorted(glob.glob(expanded))
            for match in matches:
                check_ends(name, Path(match))
            if not matches:
                raise FileNotFoundError(f"looked in {Path(expanded).absolute().parent}")
        found += matches
    return found


def listed(name: str, given: Any, *, example: str, least: int = 0) -> list[str]:
    """One text, or a list of at least so many, as a list; none where it is null. ConfigError where
    it is anything else."""
    entries = [given] if isinstance(given, str) else [] if given is None else given
    texts = isinstance(entries, list) and all(isinstance(entry, str) for entry in entries)
    if not texts or len(entries) < least:
        raise ConfigError(f"{name}={given!r}: give {example}")
    return entries


UNITS = {"s": 1, "m": 60, "h": 3600}


def parse_duration(text: str) -> float:
    """Seconds of a time such as 90s, 10m or 2h. ConfigError where it is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if not match or float(match[1]) == 0:
        raise ConfigError(f"budget={text!r}: give a time, such as 90s, 10m or 2h")
    return float(match[1]) * UNITS[match[2]]
