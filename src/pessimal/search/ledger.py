"""What a search has spent and found: every candidate evaluation counted, the best response ever seen, and the curve.

Searches and baselines run on a Ledger in place of the bare objective, so that equal budgets are equal.
"""

from dataclasses import dataclass

from torch import Tensor

from pessimal.search.objective import Objective
from pessimal.search.survival import Admissible, best_admissible

# A gradient is one forward and one backward of one response; a backward pass takes about twice its forward.
GRADIENT_COST = 3


@dataclass(frozen=True)
class Point:
    """One improvement on the curve of the best value against evaluations."""

    evaluations: int
    """Candidate evaluations spent when it was known."""
    value: float
    response: tuple[int, ...]


class BudgetSpentError(Exception):
    """More evaluations were asked for than are left."""


class Ledger:
    """An objective that counts. `budget` in candidate evaluations, None for no limit.

    Where a `length` is given only responses of that many tokens are on the curve, since a beam goes through shorter ones;
    where `admissible` is given only those that count: sweeps evaluate others too, and pass over them.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        budget: int | None = None,
        length: int | None = None,
        admissible: Admissible | None = None,
    ):
        self.objective, self.budget, self.length, self.admissible = objective, budget, length, admissible
        self.spent = 0
        """Candidate evaluations so far; a gradient counts as GRADIENT_COST."""
        self.curve: list[Point] = []
        """Improvements of the best value, in order."""

    @property
    def left(self) -> int:
        """Evaluations that may still be spent."""
        return 2**62 if self.budget is None else self.budget - self.spent

    @property
    def best(self) -> Point:
        """The best response ever evaluated, of those on the curve."""
        return self.curve[-1]

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """The objective's values; BudgetSpentError where fewer evaluations are left than responses: ask `left` first."""
        self._spend(len(responses))
        values = self.objective.values(responses, anchor=anchor)
        if self.length in (None, responses.shape[1]):
            self._enter(responses, values)
        return values

    def gradient(self, response: Tensor) -> Tensor:
        """The objective's gradient, counted as GRADIENT_COST evaluations."""
        self._spend(GRADIENT_COST)
        return self.objective.gradient(response)

    def _enter(self, responses: Tensor, values: Tensor) -> None:
        top = best_admissible(
            values,
            lambda rows: responses[rows],
            count=1,
            admissible=self.admissible,
            above=self.best.value if self.curve else float("-inf"),
        ).tolist()
        self.curve += [Point(self.spent, float(values[i]), tuple(responses[i].tolist())) for i in top]

    def _spend(self, evaluations: int) -> None:
        if evaluations > self.left:
            raise BudgetSpentError(f"{evaluations} evaluations were asked for, {self.left} are left")
        self.spent += evaluations
