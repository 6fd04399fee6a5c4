"""How many positions a step replaces: several at first, one in the end.

The best discrete recipe of Panfilov, Romov et al. 2026: 2, then 1 after 80 % of the budget.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class StepSize:
    """A step size for each moment of a search."""

    first: int
    """Positions replaced a step, at the beginning."""
    until: float
    """Share of the budget after which it is one position, 0 to 1."""

    def at(self, share: float) -> int:
        """Positions that a step replaces when this share of the budget is used."""
        return self.first if share < self.until else 1
