"""The search for responses of two tokens or more, stage by stage, within one budget; then the
baselines.

Where the budget pays for all responses, all are tried. Otherwise: for two tokens a pruned look at
pairs; a beam; greedy coordinate gradient from several starts; random single changes; exhaustive
coordinate sweeps from the best of all these. Each stage is kept on disk as soon as it is finished,
so that a killed search goes on where it stopped and gives the same result. Knows objectives. Does
not know models or texts.
"""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pessimal.searching.baselines import (
    affordable_width,
    beam,
    beam_cost,
    coordinate_ascent,
    random_changes,
)
from pessimal.searching.exact import every_response, most_probable, pair_sizes, pairs, polish
from pessimal.searching.gcg import gcg, starts
from pessimal.searching.objective import EvaluationCounter, Objective, Point
from pessimal.searching.round_trip import Retokenizes
from pessimal.searching.spec import SearchSpec
from pessimal.tables.files import write_atomically

log = logging.getLogger(__name__)

START, GRADIENT, RANDOM, POLISH = "start", "gradient", "random changes", "polish"
SEARCH = (START, GRADIENT, RANDOM, POLISH)
"""Phases whose evaluations are the search's budget."""
BASELINE, ONE_TOKEN = "baseline", "one token"
BASELINES = ("random search", "coordinate ascent", "beam")
# Shares of the budget that pairs and beam may take at most.
_PAIRS_SHARE, _BEAM_SHARE = 1 / 3, 1 / 10
# And the proof of what is most probable: each of its forwards costs less than a response, but gives
# a whole vocabulary's probabilities.
_PROOF_SHARE = 1 / 10
MOST_PROBABLE = "most probable"


@dataclass(frozen=True)
class Problem:
    """What is searched, as ids."""

    length: int
    """Tokens of a response."""
    allowed: Tensor
    """bool (V,): tokens that a response may be made of."""
    single: Tensor | None = None
    """float64 (V,): values of single tokens, -inf where not allowed; None: unknown."""
    single_evaluations: int = 0
    """What these cost, which counts to the budget."""
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
        """How many responses there are."""
        return self.tokens**self.length

    @property
    def among(self) -> dict[str, Any]:
        """Which responses there are, as every look takes it."""
        return {"allowed": self.allowed, "retokenizes": self.retokenizes}


class Budget(NamedTuple):
    """How a budget of candidate evaluations is divided; a stage that is not affordable has 0."""

    total: int
    every: int = 0  # all responses, where these are tried
    start: int = 0  # single tokens, known responses, pairs and beam
    pairs: tuple[int, int] | None = None  # width and m of the pruned look at pairs
    beam_width: int = 0
    gradient: int = 0
    random: int = 0
    polish: int = 0

    @property
    def phases(self) -> dict[str, int]:
        """Evaluations of each phase, at most."""
        if self.every:
            return {"all responses": self.every}
        evaluations = (self.start, self.gradient, self.random, self.polish)
        return {phase: n for phase, n in zip(SEARCH, evaluations, strict=True) if n}


def divide(problem: Problem, spec: SearchSpec) -> Budget:
    """The budget's division: starts first, within their shares; then gradient, random changes and
    polish by theirs. Where one sweep is not affordable, random changes get the polish's share."""
    total, tokens = spec.evaluations, problem.tokens
    if problem.responses <= total:
        return Budget(total, every=problem.responses)
    look, width, start = None, 0, problem.single_evaluations + len(problem.warm_starts)
    if problem.single is not None:
        length, beam_budget = problem.length, int(_BEAM_SHARE * total)
        if length == 2 and spec.pairs:
            look = pair_sizes(int(_PAIRS_SHARE * total), tokens, most=spec.pairs)
            start += look[1] ** 2 + 4 * look[0] * tokens if look else 0
        affordable = affordable_width(length, beam_budget, tokens, first_given=True)
        width = min(spec.beam_width, affordable)
        start += beam_cost(length, width, tokens, first_given=True) if width else 0
    left = max(total - start, 0)
    gradient, random = int(spec.gradient_share * left), int(spec.random_share * left)
    rest = left - gradient - random
    if not spec.gradient_share or gradient < spec.restarts:
        random, gradient = random + gradient, 0
    if rest < problem.length * tokens:
        random, rest = max(random + rest, 1), 0
    return Budget(total, 0, start, look, width, gradient, random, rest)


# --- Stages.


@dataclass(frozen=True)
class Stage:
    """The result of one stage."""

    name: str  # `beam`, `restart 0`, `polish 0` …
    phase: str
    evaluations: int  # candidate evaluations made
    seconds: float  # wall-clock time
    curve: list[Point]
    """Improvements of the stage's own best; the last is the best response that it ever
    evaluated."""
    finals: list[Point]
    """The responses it hands on, best first."""
    details: dict[str, Any] = field(default_factory=dict)
    """Further figures, as JSON has them."""


Work = Callable[[EvaluationCounter], list[Point]]
"""Does a stage's work on its evaluation counter; gives the responses it hands on, best first."""


class Stages:
    """Runs stages over one objective, each once: what is finished in `folder` is read from there.
    Calls `on_stage` with each finished one, and `on_best` with evaluations and best value of the
    search so far, at improvements."""

    def __init__(
        self,
        objective: Objective,
        folder: Path | None = None,
        *,
        on_stage: Callable[[Stage], None] | None = None,
        on_best: Callable[[int, float], None] | None = None,
    ):
        self.objective, self.folder = objective, folder
        self.on_stage = on_stage or (lambda stage: None)
        self.on_best = on_best or (lambda used, best: None)
        self.done: list[Stage] = []  # in the order of the calls

    def run(
        self, name: str, phase: str, problem: Problem, work: Work, *, budget: int | None = None
    ) -> Stage:
        """The stage of this name: as it was kept, or by doing its `work` on a fresh counter."""
        file = self.folder and self.folder / f"{name.replace(' ', '-')}.json"
        stage = _read(file)
        if stage is None:
            started, before, best = time.perf_counter(), self.evaluations(), self.best

            def improved(point: Point) -> None:
                if phase in SEARCH and point.value > best:
                    self.on_best(before + point.evaluations, point.value)

            counter = EvaluationCounter(
                self.objective,
                budget=budget,
                length=problem.length,
                retokenizes=problem.retokenizes,
                on_best=improved,
            )
            finals, seconds = work(counter), time.perf_counter() - started
            curve, details = counter.curve, counter.details
            stage = Stage(name, phase, counter.used, seconds, curve, finals, details)
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(file, json.dumps(asdict(stage)).encode())
        self.done.append(stage)
        self.on_stage(stage)
        return stage

    def evaluations(self, phases: tuple[str, ...] = SEARCH) -> int:
        """Evaluations of the finished stages of these phases."""
        return sum(stage.evaluations for stage in self.done if stage.phase in phases)

    @property
    def best(self) -> float:
        """The best value of the search so far."""
        return max((point.value for point in self.curve()), default=-np.inf)

    def curve(self) -> list[Point]:
        """The search's best value so far against all its evaluations so far."""
        curve: list[Point] = []
        before = 0
        for stage in (stage for stage in self.done if stage.phase in SEARCH):
            for point in stage.curve:
                if not curve or point.value > curve[-1].value:
                    curve.append(replace(point, evaluations=before + point.evaluations))
            before += stage.evaluations
        return curve


def _read(file: Path | None) -> Stage | None:
    """The stage of a file; None where there is none, or it was torn by a crash, or is of an earlier
    version."""
    if file is None or not file.exists():
        return None
    try:
        stored = json.loads(file.read_text())
        for key in ("curve", "finals"):
            stored[key] = [Point(**p | {"response": tuple(p["response"])}) for p in stored[key]]
        return Stage(**stored)
    except (ValueError, KeyError, TypeError):
        return None


# --- The search.


class Final(NamedTuple):
    """A response that a stage ended with, or the best that it evaluated."""

    point: Point
    found_by: str  # the method, in words
    start: str = ""  # what that began with: beam, repeat, random, pairs, registry
    restart: int = 0  # number of the start
    one_opt: bool | None = None
    """Whether a pass of single changes brought nothing; None: not polished."""


def search(stages: Stages, problem: Problem, spec: SearchSpec, *, seed: int) -> list[Final]:
    """Distinct final responses, best first, within `spec.evaluations` evaluations in all; what
    every stage ever evaluated best is among them."""
    budget, among, single = divide(problem, spec), problem.among, problem.single
    finals: list[Final] = []

    def begin(name: str, look: Callable[[EvaluationCounter], tuple[Tensor, Tensor]]) -> list[Point]:
        def work(counter: EvaluationCounter) -> list[Point]:
            return _points(counter, *look(counter))

        return stages.run(name, START, problem, work).finals

    if budget.every:
        name = "every response"
        look = partial(every_response, length=problem.length, keep=spec.restarts, **among)
        return [Final(point, name, name, n) for n, point in enumerate(begin(name, look))]
    if problem.warm_starts:
        responses = torch.tensor(list(problem.warm_starts))
        points = begin("known", lambda counter: (responses, counter.values(responses)))
        finals += [
            Final(point, problem.warm_starts[point.response], "registry") for point in points
        ]
    if budget.pairs and single is not None:
        width, m = budget.pairs
        look = partial(pairs, m=m, width=width, first_values=single, keep=1, **among)
        finals += [Final(point, "pruned pairs", "pairs") for point in begin("pairs", look)]
    if budget.beam_width:
        stage = stages.run("beam", START, problem, partial(_beam, problem, budget.beam_width))
        finals += [Final(point, "beam", "beam") for point in stage.finals]
    if budget.gradient:
        finals += _gradients(stages, problem, spec, budget.gradient, winners=finals, seed=seed)
    # One long walk, which begins anew where it is exhausted: several short ones end worse
    # (`experiments/LOG.md`).
    if budget.random:
        walk = partial(_from_random, random_changes, problem, generator(seed, "walk"))
        points = stages.run("random changes", RANDOM, problem, walk, budget=budget.random).finals
        finals += [Final(point, "random changes", "random", spec.restarts) for point in points]
    finals += _best_evers(stages, finals)
    return _polished(stages, problem, spec, finals, total=budget.total)


def proven_most_probable(stages: Stages, problem: Problem, budget: int) -> list[Final]:
    """The most probable responses, where the reward is a log-probability, all are not tried anyway,
    and a share of the budget proves that there are none better; none otherwise, which is said."""
    objective = stages.objective
    if problem.responses <= budget or not getattr(objective, "follows", False):
        return []

    def work(counter: EvaluationCounter) -> list[Point]:
        most = int(_PROOF_SHARE * budget)
        alone = EvaluationCounter(objective, budget=most)
        found = most_probable(
            alone, length=problem.length, tolerance=problem.tolerance, **problem.among
        )
        counter.used += alone.used
        counter.details |= {"forwards": found.forwards, "proven": found.proven}
        return _points(counter, found.responses, counter.values(found.responses))

    stage = stages.run(MOST_PROBABLE, START, problem, work)
    if not stage.details["proven"]:
        log.info(
            "%d forwards do not prove which response is the most probable: the search goes on",
            stage.details["forwards"],
        )
        return []
    return [Final(point, MOST_PROBABLE, MOST_PROBABLE) for point in stage.finals]


def baselines(stages: Stages, problem: Problem, *, budget: int, seed: int) -> list[Final]:
    """The best of random search (random single changes), coordinate ascent and beam search,
    `budget` evaluations each."""
    width = affordable_width(
        problem.length, budget, problem.tokens, first_given=problem.single is not None
    )
    ascent = partial(coordinate_ascent, tolerance=problem.tolerance)
    works = (
        partial(_from_random, random_changes, problem, generator(seed, BASELINES[0])),
        partial(_from_random, ascent, problem, generator(seed, BASELINES[1])),
        partial(_beam, problem, width),
    )
    finals = []
    for name, work in zip(BASELINES, works, strict=True):
        stage = stages.run(f"baseline {name}", BASELINE, problem, work, budget=budget)
        if ends := [*stage.finals, *stage.curve[-1:]]:
            best = max(ends, key=lambda point: point.value)
            finals.append(Final(best, f"baseline: {name}", "baseline"))
    return finals


def one_token(
    stages: Stages, problem: Problem, spec: SearchSpec, *, best: float, seed: int
) -> tuple[int, float]:
    """How many restarts of greedy coordinate gradient, from one random token each, reach the value
    `best` of the best single token; and the median of the evaluations until each had its own
    best."""
    alone, random = replace(problem, length=1, warm_starts={}), generator(seed, "one token")
    each = max(int(spec.gradient_share * spec.evaluations) // spec.restarts, 4)
    points = []
    for number, (_, start) in enumerate(
        starts(spec.restarts, length=1, generator=random, **problem.among)
    ):
        work = partial(_gcg, alone, spec, generator(seed, f"restart {number}"), start)
        points += stages.run(f"one token {number}", ONE_TOKEN, alone, work, budget=each).finals
    hits = sum(point.value >= best - problem.tolerance for point in points)
    return hits, float(np.median([point.evaluations for point in points]))


def _from_random(
    look: Callable, problem: Problem, random: torch.Generator, counter: EvaluationCounter
) -> list[Point]:
    """The best that a look from random starts evaluates."""
    look(counter, length=problem.length, generator=random, **problem.among)
    return counter.curve[-1:]


def _beam(problem: Problem, width: int, counter: EvaluationCounter) -> list[Point]:
    """The beam's last level; the best value of each is noted."""
    if not width:
        return []
    levels = beam(
        counter, length=problem.length, width=width, first_values=problem.single, **problem.among
    )
    points = [_points(counter, *level) for level in levels]
    counter.details["best"] = [level[0].value for level in points]
    return points[-1] if len(levels) == problem.length else []


def _gcg(
    problem: Problem,
    spec: SearchSpec,
    random: torch.Generator,
    start: Tensor,
    counter: EvaluationCounter,
) -> list[Point]:
    return [gcg(counter, start, spec, budget=counter.left, generator=random, **problem.among)]


def _gradients(
    stages: Stages,
    problem: Problem,
    spec: SearchSpec,
    budget: int,
    *,
    winners: list[Final],
    seed: int,
) -> list[Final]:
    distinct = list(dict.fromkeys(final.point.response for final in winners))
    labelled = starts(
        spec.restarts,
        length=problem.length,
        generator=generator(seed, "starts"),
        winners=torch.tensor(distinct) if distinct else None,
        best_token=int(problem.single.argmax()) if problem.single is not None else None,
        **problem.among,
    )
    finals = []
    for number, (label, start) in enumerate(labelled):
        name, each = f"restart {number}", budget // len(labelled)
        work = partial(_gcg, problem, spec, generator(seed, name), start)
        stage = stages.run(name, GRADIENT, problem, work, budget=each)
        if stage.finals[0].response != tuple(start.tolist()):  # else it is whose start it is
            finals.append(Final(stage.finals[0], "gradient", label, number))
    return finals


def _best_evers(stages: Stages, finals: list[Final]) -> list[Final]:
    """What stages evaluated and did not hand on, where it is better than all that was."""
    handed_on = max((final.point.value for final in finals), default=-np.inf)
    improved = [stage for stage in stages.done if stage.phase in SEARCH and stage.curve]
    stage = max(improved, key=lambda stage: stage.curve[-1].value)
    point = stage.curve[-1]
    return [Final(point, stage.phase, stage.name)] if point.value > handed_on else []


def _polished(
    stages: Stages, problem: Problem, spec: SearchSpec, finals: list[Final], *, total: int
) -> list[Final]:
    """Some distinct responses go through exhaustive coordinate sweeps, as far as the budget goes;
    others stay as they are."""
    unique = best_of_each(finals)
    polished = []
    for turn, final in enumerate(_by_turns(unique)[: spec.polish]):
        left = total - problem.single_evaluations - stages.evaluations()
        if left < problem.tokens:
            break
        # The first sweep overwrites most of a response: begun at one position, all would end alike.
        first, name = turn % problem.length, f"polish {turn}"
        polished.append(
            polish_final(stages, problem, final, name=name, first_position=first, budget=left)
        )
    return best_of_each([*polished, *unique])


def polish_final(
    stages: Stages,
    problem: Problem,
    final: Final,
    *,
    name: str,
    first_position: int = 0,
    budget: int | None = None,
    phase: str = POLISH,
) -> Final:
    """The final response after exhaustive coordinate sweeps, a stage of its own."""

    def work(counter: EvaluationCounter) -> list[Point]:
        options = problem.among | {"first_position": first_position}
        start = torch.tensor(final.point.response)
        polished = polish(counter, start, tolerance=problem.tolerance, **options)
        counter.details["one_opt"] = polished.converged
        return [Point(counter.used, polished.value, polished.response)]

    stage = stages.run(name, phase, problem, work, budget=budget)
    [point] = stage.finals
    found_by = final.found_by
    if point.response != final.point.response and not found_by.endswith(", polish"):
        found_by += ", polish"
    return final._replace(point=point, found_by=found_by, one_opt=stage.details["one_opt"])


def best_of_each(finals: list[Final]) -> list[Final]:
    """One of each response, best first; of equal ones a 1-opt one, then a polished one, and one
    from the registry last."""
    rank = {True: 0, False: 1, None: 2}
    unique: dict[tuple[int, ...], Final] = {}
    for final in sorted(finals, key=lambda f: (rank[f.one_opt], f.start == "registry")):
        unique.setdefault(final.point.response, final)
    return sorted(unique.values(), key=lambda final: -final.point.value)


def _by_turns(finals: list[Final]) -> list[Final]:
    """The best of each kind of start, then the second best of each …: responses from one kind lie
    close together, and polish would take most of them to one end (`experiments/LOG.md`)."""
    seen: Counter[tuple[str, str]] = Counter()
    turns = []
    for final in finals:
        turns.append(seen[final.found_by, final.start])
        seen[final.found_by, final.start] += 1
    return [finals[number] for number in np.argsort(turns, kind="stable")]


def _points(counter: EvaluationCounter, responses: Tensor, values: Tensor) -> list[Point]:
    both = zip(values.tolist(), responses.tolist(), strict=True)
    return [Point(counter.used, value, tuple(response)) for value, response in both]


def generator(seed: int, name: str) -> torch.Generator:
    """One stream of random numbers for each seed and stage, so that a resumed search draws the
    same."""
    words = np.random.SeedSequence([seed, *name.encode()]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0] >> 1))
