"""The evaluation counter: every candidate evaluation counted, the best response ever seen, and the curve.

Searches and baselines run on an EvaluationCounter in place of the bare objective, so that equal budgets are equal.
"""

from dataclasses import dataclass

from torch import Tensor

from pessimal.search.objective import Objective
from pessimal.search.round_trip import Retokenizes, best_retokenizing

# A gradient is one forward and one backward of one response; a backward pass takes about twice its forward.
GRADIENT_COST = 3


@dataclass(frozen=True)
class Point:
    """One improvement on the curve of the best value against evaluations."""

    evaluations: int
    """Candidate evaluations made when it was known."""
    value: float
    response: tuple[int, ...]


class BudgetExceededError(Exception):
    """More evaluations than are left."""


class EvaluationCounter:
    """An objective that counts. `budget` in candidate evaluations, None for no limit.

    Where a `length` is given only responses of that many tokens are on the curve, since a beam goes through shorter ones;
    where `retokenizes` is given only those that count: sweeps evaluate others too, and pass over them.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        budget: int | None = None,
        length: int | None = None,
        retokenizes: Retokenizes | None = None,
    ):
        self.objective, self.budget, self.length, self.retokenizes = objective, budget, length, retokenizes
        self.used = 0
        """Candidate evaluations so far; a gradient counts as GRADIENT_COST."""
        self.curve: list[Point] = []
        """Improvements of the best value, in order."""

    @property
    def left(self) -> int:
        """Evaluations left in the budget."""
        return 2**62 if self.budget is None else self.budget - self.used

    @property
    def best(self) -> Point:
        """The best response ever evaluated, of those on the curve."""
        return self.curve[-1]

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """The objective's values; BudgetExceededError where fewer evaluations are left than responses: see `left`."""
        self._count(len(responses))
        values = self.objective.values(responses, anchor=anchor)
        if self.length in (None, responses.shape[1]):
            self._record(responses, values)
        return values

    def gradient(self, response: Tensor) -> Tensor:
        """The objective's gradient, counted as GRADIENT_COST evaluations."""
        self._count(GRADIENT_COST)
        return self.objective.gradient(response)

    def _record(self, responses: Tensor, values: Tensor) -> None:
        top = best_retokenizing(
            values,
            lambda rows: responses[rows],
            count=1,
            retokenizes=self.retokenizes,
            above=self.best.value if self.curve else float("-inf"),
        ).tolist()
        self.curve += [Point(self.used, float(values[i]), tuple(responses[i].tolist())) for i in top]

    def _count(self, evaluations: int) -> None:
        if evaluations > self.left:
            raise BudgetExceededError(f"{evaluations} evaluations are needed, {self.left} are left")
        self.used += evaluations
