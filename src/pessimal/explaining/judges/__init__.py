"""Did an edit move the attribute it was asked to move? Who answers that, behind one protocol.

A judge knows texts and attributes. It does not know who made the edit, nor any reward.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from pessimal.explaining.attribute import Amount, Attribute

Item = tuple[str, str, str, Attribute, Amount]
"""(prompt, original, edited, attribute, the amount that was asked for)."""


class Judge(Protocol):
    """Judges edits."""

    name: str

    def provenance(self) -> dict[str, Any]:
        """Everything that decides its judgements, as JSON."""

    def judge(self, items: Sequence[Item]) -> list[bool | None]:
        """Whether each edit moved its attribute the way that was asked; one judgement an item, in
        their order. None where it has no opinion."""
