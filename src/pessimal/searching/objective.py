"""The objective of a search, and the counter that every evaluation goes through.

Responses are torch int64 on the CPU, values float64 on the CPU; more is better. The pessimal search
is the optimal search of the negated reward: one code path for both. Knows no model.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from pessimal.errors import ModelError
from pessimal.searching.allowed import Ids, Retokenizes, best_retokenizing
from pessimal.searching.spec import Goal

if TYPE_CHECKING:
    from pessimal.scoring.common_prefix import ResponseScorer, SummedScorer

GRADIENT_COST = 3
"""Evaluations that a gradient counts as: one forward and one backward, which takes about two
forwards."""
AT_ONCE = 512
"""Responses of one call, at most: what a kill may lose, and how often progress is shown."""
_DIGEST = 16


class Objective(Protocol):
    """A value for every response, and its gradient."""

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Values (n,) float64 of `responses` (n, L) int64. `anchor` (L,) is a response that most of
        them differ from in a few places: what they share with it before the first change is
        computed once, which changes the speed alone."""

    def gradient(self, response: Tensor) -> Tensor:
        """d value / d one-hot (L, V) float32 at one `response` (L,), on whatever device."""


class TokenSum(Objective, Protocol):
    """A sum over tokens, of log-probabilities or of differences of such."""

    follows: bool
    """Whether it is one."""
    falls: bool
    """Whether no token adds more than 0."""

    def following(self, beginnings: Tensor) -> Tensor:
        """Additions (n, rows) float64 of every token behind each of `beginnings` (n, T)."""


class RewardObjective:
    """sign × raw reward; the mean of it over prompts where there are several. Never a squared error
    to a cap."""

    def __init__(self, prompts: "Sequence[ResponseScorer | SummedScorer]", goal: Goal):
        self.prompts, self.sign = list(prompts), goal.sign

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Raises ModelError where a reward is not a number."""
        each = [prompt.rewards(responses, anchor=anchor).double().cpu() for prompt in self.prompts]
        values = self.sign * torch.stack(each).mean(dim=0)
        if not values.isfinite().all():
            bad = (~values.isfinite()).nonzero()[:, 0]
            where = f"{len(bad)} of {len(values)} responses, first {responses[bad[0]].tolist()}"
            raise ModelError(f"no number is the reward of {where}: type model.dtype=float32")
        return values

    @property
    def follows(self) -> bool:
        """Whether values are sums over tokens, which `following` gives."""
        return all(prompt.follows for prompt in self.prompts)

    @property
    def falls(self) -> bool:
        """Whether no token adds more than 0: log-probabilities, the higher the better."""
        return self.sign > 0 and all(prompt.falls for prompt in self.prompts)

    def following(self, beginnings: Tensor) -> Tensor:
        """Additions (n, rows) float64 of every token behind each of `beginnings` (n, T); one
        evaluation each."""
        each = [prompt.following(beginnings).double().cpu() for prompt in self.prompts]
        return self.sign * torch.stack(each).mean(dim=0)

    def gradient(self, response: Tensor) -> Tensor:
        each = [prompt.gradient(response) for prompt in self.prompts]
        return self.sign * torch.stack(each).mean(dim=0)


class FluentObjective:
    """A reward, and a share of a policy's log-probability: what optimisation that is held to the
    policy by KL maximises, for single responses."""

    def __init__(self, reward: Objective, policy: Objective, share: float):
        self.reward, self.policy, self.share = reward, policy, share

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        reward, likely = (f.values(responses, anchor=anchor) for f in (self.reward, self.policy))
        return reward + self.share * likely

    def gradient(self, response: Tensor) -> Tensor:
        slopes = [objective.gradient(response) for objective in (self.reward, self.policy)]
        rows = min(slope.shape[1] for slope in slopes)
        return slopes[0][:, :rows] + self.share * slopes[1][:, :rows]


class Journal:
    """An objective whose values are kept in a file as they are made: whoever asks again in the same
    order, as a search that was killed does, is given what is there. Gradients are made again.

    A record is the digest of the responses, how many they are, and their values; one that a kill
    has torn ends the file.
    """

    def __init__(self, objective: Objective, file: Path):
        self.objective, self.file = objective, file
        self._known: dict[bytes, np.ndarray] = {}
        file.parent.mkdir(parents=True, exist_ok=True)
        whole, stored = 0, file.read_bytes() if file.exists() else b""
        while len(head := stored[whole : whole + _DIGEST + 8]) == _DIGEST + 8:
            end = whole + len(head) + 8 * int.from_bytes(head[_DIGEST:], "little")
            if end > len(stored):
                break
            self._known[head[:_DIGEST]] = np.frombuffer(stored[whole + len(head) : end], "<f8")
            whole = end
        file.write_bytes(stored[:whole])

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """The values kept of exactly these responses, or new ones, which are kept."""
        key = hashlib.sha256(responses.numpy().tobytes()).digest()[:_DIGEST]
        if key not in self._known:
            values = self.objective.values(responses, anchor=anchor)
            numbers = values.numpy().astype("<f8")
            with self.file.open("ab") as file:
                file.write(key + len(numbers).to_bytes(8, "little") + numbers.tobytes())
            return values
        return torch.from_numpy(self._known[key].copy())

    def gradient(self, response: Tensor) -> Tensor:
        return self.objective.gradient(response)

    def __getattr__(self, name: str) -> Any:
        """The attributes of a `TokenSum`, where the objective is one."""
        return getattr(self.__dict__["objective"], name)


@dataclass(frozen=True)
class Point:
    """One improvement on the curve of the best value against evaluations."""

    evaluations: int  # Candidate evaluations made when it was known
    value: float
    response: tuple[int, ...]


class BudgetExceededError(Exception):
    """More evaluations than are left."""


class EvaluationCounter:
    """An objective that counts, and keeps the best response ever evaluated. `budget` in candidate
    evaluations, None for no limit.

    Where a `length` is given only responses of that many tokens are on the curve, since a beam goes
    through shorter ones; where `retokenizes` is given only those that count: sweeps evaluate others
    too, and pass over them. `on_best` is called with each improvement.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        budget: int | None = None,
        length: int | None = None,
        retokenizes: Retokenizes | None = None,
        on_best: Callable[[Point], None] | None = None,
        on_count: Callable[[int], None] | None = None,
    ):
        self.objective, self.budget, self.length = objective, budget, length
        self.retokenizes = retokenizes
        self.on_best = on_best or (lambda point: None)
        self.on_count = on_count or (lambda evaluations: None)
        self.details: dict[str, Any] = {}  # further figures of whoever evaluates, as JSON has them
        self.used = 0  # Candidate evaluations so far; a gradient counts as GRADIENT_COST
        self.curve: list[Point] = []  # Improvements of the best value, in order

    @property
    def left(self) -> int:
        """Evaluations left in the budget."""
        return 2**62 if self.budget is None else self.budget - self.used

    @property
    def best(self) -> Point:
        """The best response ever evaluated, of those on the curve."""
        return self.curve[-1]

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """The objective's values; BudgetExceededError where fewer evaluations are left than
        responses: see `left`."""
        if len(responses) > self.left:
            raise BudgetExceededError(f"{len(responses)} evaluations, {self.left} are left")
        return torch.cat([self._part(part, anchor) for part in responses.split(AT_ONCE)])

    def gradient(self, response: Tensor) -> Tensor:
        """The objective's gradient, counted as GRADIENT_COST evaluations."""
        self.count(GRADIENT_COST)
        return self.objective.gradient(response)

    def following(self, beginnings: Tensor) -> Tensor:
        """The objective's `following`, counted as one evaluation a beginning."""
        self.count(len(beginnings))
        return cast(TokenSum, self.objective).following(beginnings)

    def count(self, evaluations: int) -> None:
        """Add evaluations; BudgetExceededError where fewer are left."""
        if evaluations > self.left:
            raise BudgetExceededError(f"{evaluations} evaluations are needed, {self.left} are left")
        self.used += evaluations
        self.on_count(evaluations)

    def _part(self, responses: Tensor, anchor: Tensor | None) -> Tensor:
        values = self.objective.values(responses, anchor=anchor)
        self.count(len(responses))
        if self.length in (None, responses.shape[1]):
            self._record(responses, values)
        return values

    def _record(self, responses: Tensor, values: Tensor) -> None:
        above = self.best.value if self.curve else float("-inf")
        best = best_retokenizing(
            values, responses.__getitem__, count=1, retokenizes=self.retokenizes, above=above
        )
        for row in best.tolist():
            self.curve.append(Point(self.used, float(values[row]), tuple(responses[row].tolist())))
            self.on_best(self.best)


# --- Minimal edits of a given answer as responses: one id is one change, a token that stands in the
# place of the answer's, or is put in before it.


class Edits:
    """Changes of an answer of n tokens, over `rows` ids: change = place × rows + token. Places 0 to
    n − 1 replace a token of the answer; places n to 2n put one in before it, the last behind the
    answer."""

    def __init__(self, answer: Ids, rows: int):
        self.answer, self.rows = answer, rows

    @property
    def places(self) -> int:
        return 2 * len(self.answer) + 1

    def allowed(self, tokens: Tensor) -> Tensor:
        """bool (places × rows,): changes by tokens of a bool mask (rows,), but for those that leave
        the answer as it is."""
        allowed = tokens.repeat(self.places)
        for place, token in enumerate(self.answer):
            allowed[place * self.rows + token] = False
        return allowed

    def apply(self, changes: Tensor) -> list[Ids]:
        """The answer after each row of changes (n, L); of two that replace one token the last
        counts, and tokens put into one place stand in the order of the changes."""
        return [self._edited(row)[0] for row in changes.tolist()]

    def describe_change(self, change: int, texts: Mapping[int, str]) -> str:
        """A change in words, by the texts of tokens."""
        place, token = divmod(change, self.rows)
        n, new = len(self.answer), repr(texts[token])
        if place < n:
            return f"{texts[self.answer[place]]!r} → {new} at {place}"
        return f"{new} put in at {place - n}"

    def slope(self, gradient: Tensor, changes: Tensor) -> Tensor:
        """(L, places × rows) of each change: how much it would bring to first order, from the
        gradient (n', rows) of the edited answer. A token that is put in is taken to replace the one
        that it stands before, which only orders what is tried."""
        edited, at = self._edited(changes.tolist())
        places = torch.tensor([*at, *at, min(len(edited), len(gradient)) - 1])
        tokens = torch.tensor(edited)[places]
        slopes = gradient.cpu()[places, : self.rows]  # (places, rows)
        slopes = slopes - slopes.gather(1, tokens[:, None])
        return slopes.flatten().expand(len(changes), -1)

    def _edited(self, changes: list[int]) -> tuple[Ids, list[int]]:
        """The edited answer, and where the tokens of the answer stand in it."""
        n, answer = len(self.answer), list(self.answer)
        before: list[list[int]] = [[] for _ in range(n + 1)]
        for change in changes:
            place, token = divmod(change, self.rows)
            if place < n:
                answer[place] = token
            else:
                before[place - n].append(token)
        edited: list[int] = []
        at = []
        for put_in, piece in zip(before, [*([token] for token in answer), []], strict=True):
            edited += put_in
            at.append(len(edited))
            edited += piece
        return tuple(edited), at[:-1]


class EditObjective:
    """The value of an answer by the changes that are made in it."""

    def __init__(self, objective: Objective, edits: Edits):
        self.objective, self.edits = objective, edits

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Values (n,) float64 of changes (n, L). Answers of one length go together; what they share
        with the first of them is computed once."""
        answers = self.edits.apply(responses)
        lengths = torch.tensor([len(answer) for answer in answers])
        values = torch.empty(len(answers), dtype=torch.float64)
        for length in lengths.unique().tolist():
            rows = (lengths == length).nonzero()[:, 0]
            some = torch.tensor([answers[row] for row in rows.tolist()])
            values[rows] = self.objective.values(some, anchor=some[0])
        return values

    def gradient(self, response: Tensor) -> Tensor:
        [answer] = self.edits.apply(response[None])
        return self.edits.slope(self.objective.gradient(torch.tensor(answer)), response)
