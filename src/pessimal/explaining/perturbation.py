"""A change of one response along one attribute: what is asked for, what came of it, and who makes
it.

Knows texts and attributes. Does not know rewards: a perturbation depends on a reward model only
through which response that model prefers, so it is made once and serves all models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from pessimal.explaining.attribute import Attribute, Direction
from pessimal.tables.comparisons import Comparison


class Status(Enum):
    """What came of a request."""

    changed = "changed"
    """There is a text, and it differs from the response."""
    not_applicable = "not applicable"
    """The perturber says that this response cannot be changed so."""
    refused = "refused"
    """A language model refused."""
    failed = "failed"
    """No usable answer after all retries: an unreachable endpoint, malformed JSON, an unchanged
    text."""


@dataclass(frozen=True)
class Request:
    """One change that is asked for."""

    comparison: Comparison
    response: int  # which of its two responses: 0 or 1
    attribute: Attribute
    direction: Direction
    seed: int = 0  # of several perturbations of the same kind

    @property
    def text(self) -> str:
        """The response as it stands."""
        return self.comparison.responses[self.response]

    @property
    def key(self) -> tuple[str, int, str, str]:
        """What is asked for, whatever its seed: draws are made from it."""
        return self.comparison.key, self.response, self.attribute.name, self.direction.value


@dataclass(frozen=True)
class Perturbation:
    """What came of a request."""

    request: Request
    status: Status
    text: str | None = None  # the whole response after the change; None unless it was changed
    spans: tuple[tuple[int, int], ...] | None = None
    """(start, end) in characters of the response: the words said to bear on the attribute before
    the change was made; None where the perturber does not say."""
    note: str = ""  # which rule was used, or why there is no text


class Perturber(Protocol):
    """Changes responses."""

    name: str

    def provenance(self) -> dict[str, Any]:
        """Everything that decides its texts, as JSON: options, versions, digests of its prompts or
        word lists."""

    def perturb(self, requests: Sequence[Request]) -> list[Perturbation]:
        """One perturbation a request, in their order. The same request gives the same perturbation,
        whatever else is asked with it. Raises only for what concerns all requests (ConfigError,
        InputError, WorkError)."""

    def placebo(self) -> "Perturber | None":
        """Who makes edits that keep the meaning, the null of this one's edits; None where there is
        none.

        The null is of the same kind where it has this perturber's own name (a language model that
        rewrites for both). Against one of another kind nothing is tested: see
        `analyses.flips.null_makers`."""
