"""A high-level attribute along which responses are changed.

Knows its name, its meaning, which end of it is the better one, and the rules that change it
(carried out by `edits`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import cached_property
from typing import Any

import regex

from pessimal.errors import ConfigError

PLACEBO = "placebo"
"""The attribute of edits that keep the meaning: neither text is the better one."""
OVERALL = "overall"
"""The attribute of edits that make a response better or worse in whatever way: Jiang et al.'s
(2025) baseline."""
KINDS = ("find", "swap", "drop", "open_with", "prepend", "append")


class Direction(Enum):
    """Whether a perturbation makes a response better or worse."""

    better = "better"
    worse = "worse"


class Amount(Enum):
    """The same in terms of the attribute itself."""

    more = "more"
    less = "less"


@dataclass(frozen=True)
class Edit:
    """One rule. Give exactly one of `find`, `swap`, `drop`, `open_with`, `prepend` and `append`.
    What stands in code, formulas and addresses is left alone."""

    find: str | None = None
    """Regular expression; every match (case is ignored) gives way to `put`."""
    put: Any = field(default="", hash=False)
    """find: what takes its place, or a list to draw from; `\\1` is its first group, `\\u1` with a
    capital, `\\l1` without. drop: what takes the place of the first sentence that is dropped."""
    swap: str | None = None
    """Words or phrases in small letters, each with what takes its place: `very: | big: large |
    help: aid / assist` takes 'very' out, and draws one of 'aid' and 'assist'."""
    drop: str | None = None
    """Regular expression; the sentences with a match are taken out, unless none would be left."""
    open_with: list[str] | None = field(default=None, hash=False)
    """Openings to draw from, such as 'I think that', put before statements."""
    prepend: str | None = None
    """Text put before the response."""
    append: str | None = None
    """Text put behind the response."""
    most: int | None = None
    """Largest number of places, drawn by the seed; null takes all."""
    example: dict[str, str] | None = field(default=None, hash=False)
    """`from` and `to`: what the rule does, for the reader and for the test that runs it."""

    def __post_init__(self) -> None:
        """ConfigError for a rule that cannot be carried out."""
        kinds = [name for name in KINDS if getattr(self, name) is not None]
        texts = isinstance(self.put, str | list) and all(isinstance(each, str) for each in self.put)
        wrong = None
        if len(kinds) != 1:
            wrong = (
                f"gives {' and '.join(kinds) or 'nothing'}; give exactly one of "
                f"{', '.join(KINDS)}, e.g. {{find: '\\bvery\\b', put: ''}}"
            )
        elif self.most is not None and self.most < 1:
            wrong = f"has most: {self.most}; give 1 or more, or leave it out"
        elif not texts:
            wrong = f"has put: {self.put!r}; give a text, or a list of texts"
        elif not self.texts or self.open_with == []:
            wrong = "has an empty list; give what is to be put"
        elif self.swap is not None and not all(self.table):
            wrong = f"swaps {self.swap!r}; write it as `very: | big: large | help: aid / assist`"
        if wrong:
            options = {each.name: getattr(self, each.name) for each in fields(self)}
            rule = {name: value for name, value in options.items() if value not in (None, "")}
            raise ConfigError(f"a rule {wrong}. The rule: {rule}")
        self._check_expression(self.find or self.drop)

    @property
    def kind(self) -> str:
        """The one of the kinds that is given."""
        return next(name for name in KINDS if getattr(self, name) is not None)

    @property
    def texts(self) -> list[str]:
        """The texts that `put` may be drawn from."""
        return [self.put] if isinstance(self.put, str) else list(self.put)

    @cached_property
    def table(self) -> dict[str, list[str]]:
        """Texts to put for each word of `swap`; under '' where something is no pair."""
        pairs = [each.partition(":") for each in " ".join((self.swap or "").split()).split("|")]
        return {
            word.strip() * bool(colon): [each.strip() for each in put.split(" / ")]
            for word, colon, put in pairs
        }

    def _check_expression(self, expression: str | None) -> None:
        if expression is None:
            return
        try:
            groups = regex.compile(expression, regex.IGNORECASE).groups
        except (regex.error, ValueError, OverflowError, RecursionError) as error:
            raise ConfigError(
                f"a rule has {self.kind}: {expression!r}, which is not a regular expression: "
                f"{error}. Put a backslash before a character that is meant as such, and single "
                "quotes around the whole, e.g. find: 'really\\?'"
            ) from error
        numbers = [int(digits) for put in self.texts for digits in re.findall(r"\\[ul]?(\d+)", put)]
        if (highest := max(numbers, default=0)) > groups:
            raise ConfigError(
                f"a rule has put: {self.put!r}, which names group {highest}, but {self.kind}: "
                f"{expression!r} has {groups}. Put parentheses around what is to be kept."
            )


@dataclass(frozen=True)
class Attribute:
    """One attribute."""

    name: str
    """As it is called in tables and figures."""
    description: str
    """One sentence on what a response has that has more of it, shown to a language model that
    perturbs or judges."""
    polarity: int
    """1 where more of it makes a response better, -1 where more of it makes it worse."""
    more: tuple[Edit, ...] = ()
    """Rules that make a response have more of it, all applied in their order."""
    less: tuple[Edit, ...] = ()
    """Rules that make a response have less of it."""
    detect: str | None = None
    """Regular expression whose matches in a text are counted as its amount, for the judge."""
    english: bool = False
    """Its rules are for English: a response that does not read as English is left alone."""

    def __post_init__(self) -> None:
        """ConfigError where `detect` is no regular expression."""
        try:
            re.compile(self.detect or "")
        except re.error as error:
            raise ConfigError(
                f"detect={self.detect!r} is no regular expression ({error}). Correct it, or leave "
                "it out."
            ) from error

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, Any]) -> "Attribute":
        """From what its file says. Raises ConfigError where a rule cannot be carried out."""
        more, less = (
            tuple(Edit(**edit) for edit in options.get(way) or ()) for way in ("more", "less")
        )
        return cls(name, **(dict(options) | {"more": more, "less": less}))

    def amount(self, direction: Direction) -> Amount:
        """Whether a response needs more or less of it to become better or worse."""
        more = (direction is Direction.better) == (self.polarity > 0)
        return Amount.more if more else Amount.less


def read_attributes(contrast: Mapping[str, Mapping[str, Any]]) -> list[Attribute]:
    """The attributes of conf/contrast, by name, as objects.

    Raises:
        ConfigError: the rules or the detector of one, which is named, cannot be read.
    """
    attributes = []
    for name, options in contrast.items():
        try:
            attributes.append(Attribute.from_options(name, options))
        except ConfigError as error:
            raise ConfigError(f"contrast.{name}: {error}") from error
    return attributes


ANY_WAY = Attribute(OVERALL, "It is the better response, in whatever way.", 1)
"""The attribute that language models are asked for under `OVERALL`."""
