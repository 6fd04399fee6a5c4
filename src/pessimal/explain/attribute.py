"""A high-level attribute along which responses are changed.

Knows its name, its meaning and which end of it is the better one. Does not know how a text is changed.
"""

from dataclasses import dataclass
from enum import Enum

PLACEBO = "placebo"
"""The attribute of edits that keep the meaning: neither text is the better one."""


class Direction(Enum):
    """What a perturbation is to make of a response."""

    better = "better"
    worse = "worse"


class Amount(Enum):
    """The same in terms of the attribute itself."""

    more = "more"
    less = "less"


@dataclass(frozen=True)
class Edit:
    """One rule of a user-defined attribute; exactly one of `find`, `prepend` and `append` is given."""

    find: str | None = None
    """Regular expression; every match (case is ignored) is replaced by `put`."""
    put: str = ""
    """What takes its place; `\\1` stands for its first group."""
    prepend: str | None = None
    """Text put before the response."""
    append: str | None = None
    """Text put behind the response."""


@dataclass(frozen=True)
class Attribute:
    """One attribute."""

    name: str
    """As it is called in tables and figures."""
    description: str
    """What a response has that has more of it: one sentence, shown to a language model that perturbs or judges."""
    polarity: int
    """1 where more of it makes a response better, -1 where more of it makes it worse."""
    more: tuple[Edit, ...] = ()
    """Rules that make a response have more of it; for attributes that the `rules` perturber does not know itself."""
    less: tuple[Edit, ...] = ()
    """Rules that make a response have less of it."""
    detect: str | None = None
    """Regular expression whose matches in a text are counted as its amount, for the judge."""

    def amount(self, direction: Direction) -> Amount:
        """Whether a response needs more or less of it to become better or worse."""
        return Amount.more if (direction is Direction.better) == (self.polarity > 0) else Amount.less
