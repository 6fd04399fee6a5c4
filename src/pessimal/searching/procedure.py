"""The search for responses of two tokens or more, within one budget; then the baseline.

Where the budget pays for all responses, all are tried. Otherwise: what is known, then the climb, to
what is kept for the certificate. `search.method=gcg` is a climb by the gradient alone. Knows
objectives. Does not know models or texts.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from pessimal.searching.allowed import Retokenizes
from pessimal.searching.climb import (
    GRADIENT,
    SWEEPS,
    WAYS,
    Visited,
    climb,
    random_responses,
    sample,
    unseen,
)
from pessimal.searching.exact import every_response, most_probable, summed_pairs
from pessimal.searching.objective import EvaluationCounter, Objective, Point, TokenSum
from pessimal.searching.spec import Certify, Method, SearchSpec

log = logging.getLogger(__name__)

BASELINE = "random search"
# Shares of the budget that the certificate may take: where the first does not pay for all single
# changes, it takes the second, of the gradient's best.
_WHOLE_SHARE, _PART_SHARE = 1 / 3, 1 / 20
# And the proof of what is most probable: each of its forwards costs less than a response, but gives
# a whole vocabulary's probabilities.
_PROOF_SHARE = 1 / 10
MOST_PROBABLE, SUMMED = "most probable", "every pair, summed"
_PAIRS_KEPT = 16  # of all, scored again
LISTED = 8
"""Responses that are handed on where all were tried."""
# Responses drawn at once (on a demo model batches of 1, 16 and 64 got equally far in 5,000
# evaluations, in 26, 5 and 1.6 s: `experiments/LOG.md`); how many times as many where that brings
# little; and how many such draws in vain are taken for an end.
_WALK, _MANY, _IN_VAIN = 64, 16, 8


@dataclass(frozen=True)
class Problem:
    """The search space, as ids."""

    length: int
    """Tokens of a response."""
    allowed: Tensor
    """bool (V,): tokens that a response may be made of."""
    single: Tensor | None = None
    """float64 (V,): values of single tokens, -inf where not allowed; None: unknown."""
    retokenizes: Retokenizes | None = None
    """bool (n,) of responses (n, L): whether they count; None where all do."""
    tolerance: float = 0.0
    """Twice the numerical error of a value: smaller improvements are none."""
    warm_starts: Mapping[tuple[int, ...], str] = field(default_factory=dict)
    """Responses known before, and where from."""

    @property
    def tokens(self) -> int:
        """A: how many tokens are allowed."""
        return int(self.allowed.sum())

    @property
    def responses(self) -> int:
        """The number of responses."""
        return self.tokens**self.length

    @property
    def changes(self) -> int:
        """The number of single changes of a response, at most, and itself."""
        return 1 + self.length * (self.tokens - 1)

    @property
    def candidate_filter(self) -> dict[str, Any]:
        """The filter of responses, as every look takes it."""
        return {"allowed": self.allowed, "retokenizes": self.retokenizes}


class Plan(NamedTuple):
    """The division of a budget of evaluations."""

    every: bool  # all responses are tried
    certificate: int  # kept for the end


def plan(problem: Problem, spec: SearchSpec, *, total: int) -> Plan:
    """The plan that `total` evaluations pay for; the certificate's part is kept to the end."""
    reserve = all_changes = 1  # the result's own value
    if spec.certificate is not Certify.none:
        all_changes = problem.changes
        whole = spec.certificate is Certify.full or all_changes <= _WHOLE_SHARE * total
        reserve = all_changes if whole else max(1, int(_PART_SHARE * total))
    if spec.method is Method.all and problem.responses + all_changes <= total:
        return Plan(every=True, certificate=all_changes)
    return Plan(every=False, certificate=reserve)


# --- Stages.


@dataclass
class Stage:
    """The evaluations and the responses of one stage."""

    name: str  # `sweeps`, `random search` …
    evaluations: int = 0
    finals: list[Point] = field(default_factory=list)
    """The responses it hands on, best first."""
    details: dict[str, Any] = field(default_factory=dict)
    """Further figures."""
    curve: list[Point] = field(default_factory=list)
    """Improvements of a baseline's best value."""
    baseline: bool = False
    """Whether it has a counter of its own."""


Work = Callable[[EvaluationCounter], list[Point]]
"""Does a stage's work on an evaluation counter; gives the responses it hands on, best first."""


class Stages:
    """Runs stages over one objective on one counter, whose budget is the whole search's.

    `on_begin` is called with the name of each stage as it begins, `on_best` with evaluations and
    best value of the search so far, at improvements, `on_count` with all evaluations that are made.
    """

    def __init__(
        self,
        objective: Objective,
        problem: Problem,
        *,
        budget: int,
        on_begin: Callable[[str], None] | None = None,
        on_best: Callable[[int, float], None] | None = None,
        on_count: Callable[[int], None] | None = None,
    ):
        self.objective = objective
        self.on_begin = on_begin or (lambda name: None)
        report = on_best or (lambda evaluations, value: None)
        self.make_counter = partial(
            EvaluationCounter,
            objective,
            length=problem.length,
            retokenizes=problem.retokenizes,
            on_count=on_count,
        )
        """A new counter of the objective, by its budget."""
        self.counter = self.make_counter(
            budget=budget, on_best=lambda point: report(point.evaluations, point.value)
        )
        self.total = budget
        self.done: list[Stage] = []  # in the order of the calls

    def run(self, name: str, work: Work, *, limit: int | None = None) -> Stage:
        """A stage of the search, which may use the budget up to `limit` evaluations in all."""
        self.on_begin(name)
        self.counter.budget, self.counter.details = min(limit or self.total, self.total), {}
        before = self.counter.used
        finals = work(self.counter)
        self.counter.budget, used = self.total, self.counter.used - before
        self.done.append(Stage(name, used, finals, self.counter.details))
        return self.done[-1]

    def baseline(self, name: str, work: Work, *, budget: int) -> Stage:
        """A stage that is compared with the search, on a counter of its own."""
        self.on_begin(f"baseline {name}")
        counter = self.make_counter(budget=budget)
        finals = work(counter)
        self.done.append(Stage(name, counter.used, finals, counter.details, counter.curve, True))
        return self.done[-1]

    def stage(self, name: str) -> Stage | None:
        """The stage of this name, where it was run."""
        return next((stage for stage in self.done if stage.name == name), None)

    @property
    def proof(self) -> Stage | None:
        """The stage that proved which responses are the best of all, where one did."""
        return next((stage for stage in self.done if stage.details.get("proven")), None)

    @property
    def evaluations(self) -> int:
        """Evaluations of the search so far, certificate included."""
        return self.counter.used

    @property
    def best(self) -> float:
        """The best value of the search so far."""
        return self.counter.best.value if self.counter.curve else -np.inf


# --- The search.


class Final(NamedTuple):
    """A response that a stage ended with, or the best that it evaluated."""

    point: Point
    found_by: str  # the method, in words
    start: str = ""  # what that began with: random, registry
    one_opt: bool | None = None
    """Whether all single changes were tried and none is better; None: not tried."""


def search(
    stages: Stages, problem: Problem, spec: SearchSpec, division: Plan, *, seed: int
) -> list[Final]:
    """Distinct final responses, best first, within the stages' budget but for what is kept for the
    certificate; what was ever evaluated best is among them."""
    finals: list[Final] = []
    limit = stages.total - division.certificate

    def begin(name: str, look: Callable[[EvaluationCounter], tuple[Tensor, Tensor]]) -> list[Point]:
        def work(counter: EvaluationCounter) -> list[Point]:
            return _points(counter, *look(counter))

        return stages.run(name, work, limit=limit).finals

    if division.every:
        name = "every response"
        look = partial(
            every_response, length=problem.length, keep=LISTED, **problem.candidate_filter
        )
        return [Final(point, name, name) for point in begin(name, look)]
    if problem.warm_starts and stages.evaluations + len(problem.warm_starts) <= limit:
        responses = torch.tensor(list(problem.warm_starts))
        points = begin("known", lambda counter: (responses, counter.values(responses)))
        finals += [
            Final(point, problem.warm_starts[point.response], "registry") for point in points
        ]
    if stages.evaluations < limit:
        finals += _climb(stages, problem, spec, best_of_each(finals), limit=limit, seed=seed)
    finals += _best_ever(stages, finals)
    return best_of_each(finals)


def _climb(
    stages: Stages, problem: Problem, spec: SearchSpec, begun: list[Final], *, limit: int, seed: int
) -> list[Final]:
    """Climb with what is left; what each way did becomes a stage, and the starts one more."""
    counter = stages.counter
    counter.budget = limit
    done = climb(
        counter,
        spec,
        length=problem.length,
        generator=generator(seed, "climb"),
        tolerance=problem.tolerance,
        first=torch.tensor(begun[0].point.response) if begun else None,
        ways=(GRADIENT,) if spec.method is Method.gcg else WAYS,
        on_way=stages.on_begin,
        **problem.candidate_filter,
    )
    counter.budget = stages.total
    for way in WAYS:
        stage = Stage(way, done.evaluations.get(way, 0))
        if way in done.best:
            stage.finals.append(done.best[way])
        if way == SWEEPS:
            stage.details["ends"] = [point.value for point in done.ends]
        stages.done.append(stage)
    label = begun[0].start if begun else "random"
    finals = [Final(point, way, label) for way, point in done.best.items()]
    return finals + [Final(point, SWEEPS, label) for point in done.ends]


def proven_by_sums(stages: Stages, problem: Problem, division: Plan) -> list[Final]:
    """The best responses, proven, where the reward is a sum over tokens and all responses are not
    tried anyway: of log-probabilities where a share of the budget proves the most probable; of two
    tokens where the budget pays for all first ones. None otherwise, which is said."""
    if division.every or not getattr(stages.objective, "follows", False):
        return []
    objective = cast(TokenSum, stages.objective)
    limit = stages.total - division.certificate

    def likeliest(counter: EvaluationCounter) -> list[Point]:
        alone = EvaluationCounter(objective, budget=int(_PROOF_SHARE * counter.left))
        likely = most_probable(
            alone, length=problem.length, tolerance=problem.tolerance, **problem.candidate_filter
        )
        counter.count(alone.used)
        counter.details |= {"forwards": likely.forwards, "proven": likely.proven}
        return _points(counter, likely.responses, counter.values(likely.responses))

    def paired(counter: EvaluationCounter) -> list[Point]:
        responses, _ = summed_pairs(counter, keep=_PAIRS_KEPT, **problem.candidate_filter)
        counter.details |= {"forwards": problem.tokens + 1, "proven": len(responses) > 0}
        return _points(counter, responses, counter.values(responses))

    if objective.falls:
        stage = stages.run(MOST_PROBABLE, likeliest)
        if stage.details["proven"]:
            return [Final(point, stage.name, stage.name) for point in stage.finals]
        log.info(
            "%d forwards do not prove which response is the most probable: the search goes on",
            stage.details["forwards"],
        )
    if problem.length == 2 and stages.evaluations + problem.tokens + 1 + _PAIRS_KEPT <= limit:
        stage = stages.run(SUMMED, paired, limit=limit)
        return [Final(point, stage.name, stage.name) for point in stage.finals]
    return []


# --- The baseline.


def baseline(stages: Stages, problem: Problem, *, budget: int, seed: int) -> list[Final]:
    """The best of random single changes after `budget` evaluations."""

    def work(counter: EvaluationCounter) -> list[Point]:
        random = generator(seed, BASELINE)
        random_changes(counter, length=problem.length, generator=random, **problem.candidate_filter)
        return counter.curve[-1:]

    stage = stages.baseline(BASELINE, work, budget=budget)
    return [Final(point, f"baseline: {BASELINE}", "baseline") for point in stage.finals]


def random_changes(
    counter: EvaluationCounter,
    *,
    length: int,
    allowed: Tensor,
    generator: torch.Generator,
    retokenizes: Retokenizes | None = None,
) -> None:
    """Replace one token of the best response so far by a random one, again and again; begins at a
    random response, and at another one when all changes have been tried. The counter has a budget,
    and its `best` is the result.

    Greedy coordinate gradient without the gradient, and what Panfilov, Romov et al. 2026 call
    random search. Uniformly random responses would be a far weaker baseline (`experiments/LOG.md`),
    and flatter a search.
    """

    start = partial(random_responses, length=length, allowed=allowed, generator=generator)
    tokens = allowed.nonzero()[:, 0].expand(length, -1)  # (L, A)

    def change(point: Tensor, width: int) -> Tensor:
        return sample(point, tokens, width=width, step_size=1, generator=generator)

    new = partial(_new, visited=Visited(), retokenizes=retokenizes)
    while len(first := new(start, limit=min(1, counter.left))):
        point, best = first[0], float(counter.values(first)[0])
        while len(changed := new(partial(change, point), limit=counter.left)):
            values = counter.values(changed, anchor=point)
            top = int(values.argmax())
            if values[top] > best:
                point, best = changed[top], float(values[top])


def _new(
    draw: Callable[[int], Tensor], *, limit: int, visited: Visited, retokenizes: Retokenizes | None
) -> Tensor:
    """Up to `limit`, and _WALK, that are new and retokenize; none where none of many draws does."""
    new = unseen(draw(_WALK), visited, retokenizes=retokenizes, limit=limit)
    for _ in range(_IN_VAIN):
        if limit == 0 or len(new) >= min(limit, _WALK // 2):
            break
        # Most changes of this point have been tried: batches of the few that are left would be as
        # dear as full ones.
        left = min(limit, _WALK) - len(new)
        more = unseen(draw(_MANY * _WALK), visited, retokenizes=retokenizes, limit=left)
        new = torch.cat([new, more])
        if len(more):
            break
    return new


def _best_ever(stages: Stages, finals: list[Final]) -> list[Final]:
    """The best that was evaluated, where no stage handed it on."""
    handed_on = max((final.point.value for final in finals), default=-np.inf)
    best = stages.counter.curve[-1:]
    return [Final(point, "start", "random") for point in best if point.value > handed_on]


def best_of_each(finals: list[Final]) -> list[Final]:
    """One of each response, best first; of equal ones a 1-opt one, and one from the
    registry last."""
    rank = {True: 0, False: 1, None: 2}
    unique: dict[tuple[int, ...], Final] = {}
    for final in sorted(finals, key=lambda f: (rank[f.one_opt], f.start == "registry")):
        unique.setdefault(final.point.response, final)
    return sorted(unique.values(), key=lambda final: -final.point.value)


def _points(counter: EvaluationCounter, responses: Tensor, values: Tensor) -> list[Point]:
    pairs = zip(values.tolist(), responses.tolist(), strict=True)
    return [Point(counter.used, value, tuple(response)) for value, response in pairs]


def generator(seed: int, name: str) -> torch.Generator:
    """One stream of random numbers for each seed and stage, so that a resumed search draws the
    same."""
    words = np.random.SeedSequence([seed, *name.encode()]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0] >> 1))
