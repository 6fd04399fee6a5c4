"""The search for responses of two tokens or more, stage by stage.

Beam from the scan → for two tokens the exact search over pairs of the best → greedy coordinate gradient from several
starts → exhaustive coordinate polish of their results; then the baselines, at the budget that all this used. Knows
objectives and stages. Does not know models, texts or files.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pessimal.search.beam import affordable_width, beam
from pessimal.search.coordinate_ascent import coordinate_ascent
from pessimal.search.evaluation_counter import EvaluationCounter, Point
from pessimal.search.gcg import GCGOptions, gcg
from pessimal.search.pairs import pairs
from pessimal.search.polish import polish
from pessimal.search.random_search import random_search
from pessimal.search.stages import Run, Stage, Stages
from pessimal.search.starts import starts

SEARCH = ("start", "gradient", "polish")
"""Phases whose evaluations are the search's budget, which the baselines get too."""


@dataclass(frozen=True)
class Problem:
    """What is searched, as ids."""

    length: int
    """Tokens of a response."""
    allowed: Tensor
    """bool (V,): tokens that a response may be made of."""
    single: Tensor
    """float64 (V,): values of the single tokens, which a scan gives; -inf where not allowed."""
    retokenizes: Callable[[Tensor], Tensor] | None
    """bool (n,) of responses (n, L): whether they count; None where all do."""
    tolerance: float
    """By how much two values may differ and be tied: twice the numerical error of one. Smaller improvements are none."""

    @property
    def counted(self) -> dict:
        """Options of the evaluation counter: which responses may be on its curve."""
        return {"length": self.length, "retokenizes": self.retokenizes}


@dataclass(frozen=True)
class Plan:
    """The budget of each phase."""

    gcg: GCGOptions
    evaluations: int
    """Candidate evaluations of greedy coordinate gradient, over all restarts."""
    restarts: int
    """Starts of it."""
    beam_width: int
    """Responses kept at each length; 0 for no beam."""
    polish: int
    """How many distinct best responses are polished."""
    pairs: int
    """m of the exact search over pairs, for two tokens."""
    seed: int
    """Of every random choice."""


@dataclass(frozen=True)
class Final:
    """A response that a search ends with."""

    restart: int
    """Number of the restart that it came from."""
    start: str
    """What that began with: beam, repeat, random, pairs."""
    point: Point
    one_opt: bool | None = None
    """Whether a whole pass of single changes brought nothing; None where it was not polished."""
    sweeps: float = 0.0
    """Passes over all positions that led to it."""


def search(stages: Stages, problem: Problem, plan: Plan) -> list[Final]:
    """Distinct final responses, best first."""
    winners = []
    if problem.length == 2:
        winners += stages.run(
            "pairs", "start", lambda counter: _pairs(counter, problem, plan), **problem.counted
        ).finals[:1]
    if plan.beam_width:
        winners += stages.run(
            "beam", "start", lambda counter: _beam(counter, problem, plan.beam_width), **problem.counted
        ).finals
    begun = starts(
        plan.restarts,
        length=problem.length,
        allowed=problem.allowed,
        generator=_generator(plan.seed, "starts"),
        winners=torch.tensor([point.response for point in _distinct(winners)]) if winners else None,
        best_token=int(problem.single.argmax()),
        retokenizes=problem.retokenizes,
    )
    found: list[Final] = []
    for number, (label, start) in enumerate(begun):
        stage = stages.run(
            f"restart {number}",
            "gradient",
            lambda counter, number=number, start=start: _gcg(counter, problem, plan, number, start),
            budget=plan.evaluations // len(begun),
            **problem.counted,
        )
        found.append(Final(number, label, stage.best))
    return _polished(stages, problem, plan, found)


def baselines(stages: Stages, problem: Problem, plan: Plan, *, budget: int) -> list[Stage]:
    """Random search, coordinate ascent and beam search, each with `budget` evaluations."""

    def from_random_starts(look: Callable, name: str, **options) -> Run:
        def work(counter: EvaluationCounter) -> tuple[list[Point], dict]:
            look(
                counter,
                length=problem.length,
                allowed=problem.allowed,
                generator=_generator(plan.seed, name),
                retokenizes=problem.retokenizes,
                **options,
            )
            return counter.curve[-1:], {}

        return work

    def by_beam(counter: EvaluationCounter) -> tuple[list[Point], dict]:
        allowed = int(problem.allowed.sum())
        width = affordable_width(problem.length, budget, allowed, first_given=True)
        return _beam(counter, problem, max(width, 1))

    works = {
        "random search": from_random_starts(random_search, "random search"),
        "coordinate ascent": from_random_starts(
            coordinate_ascent, "coordinate ascent", tolerance=problem.tolerance
        ),
        "beam search": by_beam,
    }
    return [
        stages.run(name, "baseline", work, budget=budget, **problem.counted) for name, work in works.items()
    ]


def one_token(stages: Stages, problem: Problem, plan: Plan, *, best: float) -> tuple[int, float]:
    """How many restarts of greedy coordinate gradient, from one random token each, reach the value `best` of the best
    single token; and the median of the evaluations until each had its own best."""
    begun = starts(
        plan.restarts,
        length=1,
        allowed=problem.allowed,
        generator=_generator(plan.seed, "one token"),
        winners=None,
        best_token=None,
        retokenizes=problem.retokenizes,
    )
    found = []
    for number, (_, start) in enumerate(begun):
        stage = stages.run(
            f"one token {number}",
            "one token",
            lambda counter, number=number, start=start: _gcg(counter, problem, plan, number, start),
            budget=plan.evaluations // plan.restarts,
            length=1,
            retokenizes=problem.retokenizes,
        )
        found.append(stage.best)
    hits = sum(point.value >= best - problem.tolerance for point in found)
    return hits, float(np.median([point.evaluations for point in found]))


def _gcg(
    counter: EvaluationCounter, problem: Problem, plan: Plan, number: int, start: Tensor
) -> tuple[list[Point], dict]:
    best = gcg(
        counter,
        start,
        plan.gcg,
        allowed=problem.allowed,
        budget=counter.left,
        generator=_generator(plan.seed, f"restart {number}"),
        retokenizes=problem.retokenizes,
    )
    return [best], {"start": start.tolist()}


def _pairs(counter: EvaluationCounter, problem: Problem, plan: Plan) -> tuple[list[Point], dict]:
    found = pairs(
        counter,
        m=plan.pairs,
        allowed=problem.allowed,
        first_values=problem.single,
        retokenizes=problem.retokenizes,
        keep=plan.restarts,
    )
    return _points(counter, found.top, found.values), {"m": found.m, "label": found.label}


def _beam(counter: EvaluationCounter, problem: Problem, width: int) -> tuple[list[Point], dict]:
    levels = beam(
        counter,
        length=problem.length,
        width=width,
        allowed=problem.allowed,
        retokenizes=problem.retokenizes,
        first_values=problem.single,
    )
    rows = [
        {"length": level.length, "value": level.best_value, "response": level.best_response}
        for level in levels
    ]
    finals = []
    if (
        levels and levels[-1].length == problem.length
    ):  # else what was left, or what counts, did not reach so far
        finals = _points(counter, levels[-1].responses, levels[-1].values)
    return finals, {"levels": rows, "width": width}


def _points(counter: EvaluationCounter, responses: Tensor, values: Tensor) -> list[Point]:
    pairs_of = zip(values.tolist(), responses.tolist(), strict=True)
    return [Point(counter.used, value, tuple(response)) for value, response in pairs_of]


def _polished(stages: Stages, problem: Problem, plan: Plan, found: list[Final]) -> list[Final]:
    """Some distinct responses go through exhaustive coordinate sweeps; the others stay as they are."""
    unique = _best_of_each(found)
    chosen = _by_turns(unique)[: plan.polish]
    finals = [final for final in unique if final not in chosen]
    for final in chosen:
        # The first sweep overwrites most of a response: begun at one position, all would end alike.
        first = final.restart % problem.length
        finals.append(
            polish_final(stages, problem, final, name=f"polish {final.restart}", first_position=first)
        )
    return _best_of_each(finals)


def polish_final(
    stages: Stages, problem: Problem, final: Final, *, name: str, first_position: int = 0
) -> Final:
    """The final response after exhaustive coordinate sweeps, a stage of its own."""

    def work(counter: EvaluationCounter) -> tuple[list[Point], dict]:
        polished = polish(
            counter,
            torch.tensor(final.point.response),
            allowed=problem.allowed,
            retokenizes=problem.retokenizes,
            tolerance=problem.tolerance,
            first_position=first_position,
        )
        details = {"one_opt": polished.converged, "sweeps": polished.sweeps}
        return [Point(counter.used, polished.value, polished.response)], details

    stage = stages.run(name, "polish", work, **problem.counted)
    return Final(final.restart, final.start, stage.best, **stage.details)


def _best_of_each(finals: list[Final]) -> list[Final]:
    """One of each response, best first; of equal ones a polished one."""
    unique: dict[tuple[int, ...], Final] = {}
    for final in sorted(finals, key=lambda final: (-final.point.value, final.one_opt is None)):
        unique.setdefault(final.point.response, final)
    return list(unique.values())


def _by_turns(finals: list[Final]) -> list[Final]:
    """The best of each kind of start, then the second best of each …: responses from one kind lie close together, and
    polish would take most of them to one end (`experiments/LOG.md`)."""
    turns: dict[str, int] = {}
    ordered = []
    for number, final in enumerate(finals):
        ordered.append((turns.get(final.start, 0), number, final))
        turns[final.start] = turns.get(final.start, 0) + 1
    return [final for _, _, final in sorted(ordered, key=lambda row: row[:2])]


def _distinct(points: list[Point]) -> list[Point]:
    """Points of different responses, in order."""
    return list({point.response: point for point in reversed(points)}.values())[::-1]


def _generator(seed: int, name: str) -> torch.Generator:
    """One stream of random numbers for each seed and stage, so that a resumed search draws the same."""
    words = np.random.SeedSequence([seed, *name.encode()]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0] >> 1))
