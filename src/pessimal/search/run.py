"""One search on one model, in memory: `search(model, prompts, length=4) -> Found`.

Opens a scorer a prompt, divides the budget, runs the procedure, scores the best responses again in float32, certifies the
best of all, and makes the tables. Knows no configuration, registry or W&B; `verbs.search` brings these.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pessimal.models.load import RewardModel
from pessimal.models.spec import Dtype, Mode
from pessimal.search import checks
from pessimal.search.context import SearchContext
from pessimal.search.exact import NOT_ONE_OPT, Certificate, certify, neighbour_values
from pessimal.search.objective import Point, RewardObjective
from pessimal.search.procedure import (
    BASELINE,
    BASELINES,
    POLISH,
    START,
    Final,
    Problem,
    Stage,
    Stages,
    baselines,
    best_of_each,
    divide,
    one_token,
    polish_final,
)
from pessimal.search.procedure import search as search_by_stages
from pessimal.search.results import About, search_results, tables_of
from pessimal.search.round_trip import best_retokenizing
from pessimal.tables.result import Result

if TYPE_CHECKING:
    import pandas as pd


log = logging.getLogger(__name__)

# Final responses that are scored again by the model's own forward.
_RESCORED = 32
# Single tokens are scored for a search of more where that takes no more of its budget.
_SINGLE_SHARE = 1 / 4
CERTIFICATE = "certificate"


@dataclass(frozen=True)
class Found:
    """What a search found, and what is known about it."""

    response: tuple[int, ...]
    """Token ids."""
    text: str
    reward: float
    """By the model's own forward in float32; the mean over prompts."""
    found_by: str
    """The method that found it, baselines and the registry included."""
    verdict: str
    """1-opt, or tie: whether a single change is as good."""
    about: About
    tables: dict[str, "pd.DataFrame"]
    """By the names that they have in the artifact."""
    inputs: list[str] = field(default_factory=list)
    """References of the score tables that it took single tokens' rewards from."""
    ways: list[tuple[str, float, tuple[int, ...]]] = field(default_factory=list)
    """The best of each stage by itself: its name, the value, the response."""

    @property
    def results(self) -> list[Result]:
        """The Results, the response first."""
        return search_results(self.tables, self.about)


@dataclass(frozen=True)
class Cost:
    """What a search will take, said before it begins."""

    phases: Mapping[str, int]
    """Evaluations of each phase, at most; their sum is within the budget."""
    certificate: int
    """One pass; where it finds a better response there are more."""
    baseline: int
    """Of each baseline."""
    rate: float
    """Evaluations a second."""

    @property
    def total(self) -> int:
        """Evaluations in all."""
        return sum(self.phases.values()) + self.certificate + len(BASELINES) * self.baseline

    def __str__(self) -> str:
        named = ", ".join(f"{phase} {evaluations:,}" for phase, evaluations in self.phases.items())
        more = f", baselines {len(BASELINES)} × {self.baseline:,}" if self.baseline else ""
        seconds = self.total / self.rate
        lasts = f"{seconds / 60:.0f} min" if seconds > 100 else f"{seconds:.0f} s"
        return (
            f"At most {sum(self.phases.values()):,} evaluations ({named}), certificate at least {self.certificate:,}{more}: about "
            f"{lasts} at {self.rate:,.0f} a second."
        )


def search(
    model: RewardModel,
    prompts: str | Sequence[str] | Mapping[str, str],
    *,
    length: int = 4,
    mode: str = "ids",
    seed: int = 0,
    device: torch.device | str = "cpu",
    batch_size: int | None = None,
    **options: object,
) -> Found:
    """The best response of `length` tokens that is found within a budget of candidate evaluations, certified.

    Args:
        model: `models.load.open_model` gives it.
        prompts: one user turn, or several, whose mean reward is searched; by key, or keyed by their number.
        length: tokens of the response, 1 to 16.
        mode: `ids`, or `text`: only responses that a text gives.
        seed: of every random choice.
        device: where the network runs.
        batch_size: candidates per batch; None finds it from the memory there is.
        options: of `SearchSpec`, such as goal="pessimal", evaluations=50_000, baselines=0.

    Raises:
        ConfigError: an option out of its range, or no token is allowed.
        ModelError: a reward is not a number.
    """
    from pessimal.config.schema import Goal, SearchSpec

    if isinstance(prompts, str):
        prompts = [prompts]
    if not isinstance(prompts, Mapping):
        prompts = {f"prompt {number}": text for number, text in enumerate(prompts, start=1)}
    options = {**options, "goal": Goal(options.get("goal", "optimal"))}
    spec = SearchSpec(length=length, **options)
    return run(
        SearchContext(model, prompts, spec, mode=Mode(mode), seed=seed, device=device, batch_size=batch_size)
    )


def run(
    context: SearchContext,
    *,
    folder: Path | None = None,
    known: Mapping[tuple[int, ...], str] | None = None,
    exact: Sequence[Final] = (),
    scored: int = 0,
    on_cost: Callable[[Cost], None] | None = None,
    on_stage: Callable[[Stage], None] | None = None,
    on_best: Callable[[int, float], None] | None = None,
) -> Found:
    """The search of a context, with its checks.

    Args:
        folder: where finished stages are kept, so that a killed search goes on.
        known: good responses that are known before, and where from; they are evaluated, and begun from.
        exact: the true best responses where all were gone through, and `scored`: how many that were.
        on_cost: called before work begins.
        on_stage: called with each finished stage.
        on_best: called with evaluations and best value so far, at improvements.
    """
    spec, length = context.spec, context.spec.length
    most = np.inf if length == 1 else _SINGLE_SHARE * spec.evaluations
    singles = context.single_rewards(most=most if int(context.mask.sum()) ** length > spec.evaluations else 0)
    if length == 1 and singles is None:
        singles = context.single_rewards()
    rewards, references, evaluations = singles or (None, [], 0)
    values = (
        None if rewards is None else torch.from_numpy(spec.goal.sign * rewards).nan_to_num(nan=-torch.inf)
    )
    problem = Problem(
        length=length,
        allowed=context.allowed,
        single=values,
        single_evaluations=evaluations,
        retokenizes=context.retokenizes,
        tolerance=2 * context.noise(context.dtype),
        known=known or {},
    )
    stages = Stages(context.objective(), folder, on_stage=on_stage, on_best=on_best)
    everything = length == 1 or problem.responses <= spec.evaluations or bool(exact)

    def each_baseline(spent: int) -> int:
        return 0 if everything else spent if spec.baselines is True else min(int(spec.baselines), spent)

    if on_cost is not None:
        phases = divide(problem, spec).phases if length > 1 else {START: evaluations}
        baseline = each_baseline(sum(phases.values()))
        on_cost(Cost(phases, length * problem.tokens, baseline, context.rate()))
    hits = (None, 0.0)
    if spec.check_gradient and values is not None:
        [best] = _best_tokens(problem, n=1)
        hits = one_token(stages, problem, spec, best=float(values[best]), seed=context.seed)
    if length == 1:
        finals = [
            Final(Point(evaluations, float(values[token]), (token,)), "scan", "scan", one_opt=rank == 0)
            for rank, token in enumerate(_best_tokens(problem, n=spec.restarts))
        ]
    else:
        finals = search_by_stages(stages, problem, spec, seed=context.seed)
    if each := each_baseline(stages.evaluations() + evaluations):
        finals += baselines(stages, problem, budget=each, seed=context.seed)
    finals = [*exact, *best_of_each(finals)]
    return _concluded(
        context, stages, problem, finals, hits=hits, inputs=references, scored=scored, exact=everything
    )


def _best_tokens(problem: Problem, *, n: int) -> list[int]:
    """The n best single tokens that count."""
    return best_retokenizing(
        problem.single, lambda ids: ids.unsqueeze(1), count=n, retokenizes=problem.retokenizes
    ).tolist()


@dataclass(frozen=True)
class Ending:
    """Everything that is known when a search is over."""

    context: SearchContext
    stages: Stages
    problem: Problem
    finals: list[Final]
    """The best by its own reward first."""
    own: np.ndarray
    """float64 (n,): mean rewards of the finals by the model's own forward in float32."""
    certificate: Certificate
    certificate_evaluations: int
    certificate_seconds: float
    neighbour_values: Tensor
    """float64 (L, V): values of the result with every allowed token at every position."""
    objective: RewardObjective
    """In float32."""
    hits: tuple[int | None, float]
    """How many restarts of the gradient alone found the best single token, after how many evaluations; None: not tried."""
    scored: int
    """Responses that an exhaustive search scored before."""
    exact: bool
    """Whether every response was scored."""


def _concluded(
    context: SearchContext, stages: Stages, problem: Problem, finals: list[Final], *, hits: tuple[int | None, float],
    inputs: list[str], scored: int, exact: bool,
) -> Found:  # fmt: skip
    """Score the final responses again, take the best that was ever evaluated, certify it; where a single change of it is
    better, sweeps go on until none is."""
    sign = context.spec.goal.sign
    finals = finals[:_RESCORED]
    objective = context.objective(dtype=Dtype.float32)
    own = context.own_rewards(torch.tensor([final.point.response for final in finals]))
    best = int(np.argmax(sign * own))
    noise = context.noise(Dtype.float32, at=torch.tensor(finals[best].point.response))
    in_float32 = replace(problem, tolerance=2 * noise)
    sweeps = Stages(objective, stages.folder and stages.folder / "float32", on_stage=stages.on_stage)
    passes, begun = 0, time.perf_counter()
    while True:
        response = torch.tensor(finals[best].point.response)
        values = neighbour_values(objective, response, context.allowed)
        passes += 1
        certificate = certify(
            values, response, allowed=context.allowed, retokenizes=context.retokenizes, noise=noise
        )
        if certificate.verdict != NOT_ONE_OPT:
            break
        better = max(certificate.neighbours, key=lambda neighbour: neighbour.value)
        changed = response.clone()
        changed[better.position] = better.token
        start = replace(finals[best], point=Point(0, better.value, tuple(changed.tolist())))
        polished = polish_final(sweeps, in_float32, start, name=f"polish {passes}", phase=CERTIFICATE)
        by = finals[best].found_by.removesuffix(", polish") + ", polish"
        finals = [replace(polished, found_by=by), *finals]
        own = np.concatenate([context.own_rewards(torch.tensor([polished.point.response])), own])
        best = 0
    order = [best, *(int(i) for i in np.argsort(-sign * own, kind="stable") if i != best)]
    finals, own = [finals[i] for i in order], own[order]
    finals[0] = replace(finals[0], one_opt=True)
    ending = Ending(
        context=context,
        stages=stages,
        problem=problem,
        finals=finals,
        own=own,
        certificate=certificate,
        certificate_evaluations=passes * certificate.evaluations + sweeps.evaluations((CERTIFICATE,)),
        certificate_seconds=time.perf_counter() - begun,
        neighbour_values=values,
        objective=objective,
        hits=hits,
        scored=scored,
        exact=exact,
    )
    tables, about = tables_of(ending, _checks(ending))
    best, ends = (
        tables["sequences"].iloc[0],
        [(stage.name, stage.curve[-1]) for stage in stages.done if stage.curve],
    )
    ways = [(name, end.value, end.response) for name, end in ends if len(end.response) == problem.length]
    return Found(
        finals[0].point.response, best["text"], float(own[0]), finals[0].found_by, certificate.verdict, about, tables,
        inputs, ways,
    )  # fmt: skip


def _checks(ending: Ending) -> list[checks.Check]:
    spec, problem, certificate = ending.context.spec, ending.problem, ending.certificate
    done, noise, exact = ending.stages.done, certificate.noise, ending.exact
    response = torch.tensor([ending.finals[0].point.response])
    drift = abs(spec.goal.sign * ending.own[0] - certificate.value)
    others = [stage for stage in done if stage.phase == BASELINE]
    return [
        checks.one_token(ending.hits[0], spec.restarts, ending.hits[1]),
        checks.all_responses(
            max(problem.responses if exact else 0, ending.scored),
            problem.responses,
            length=problem.length,
            pruned=next((stage.details["tried"] for stage in done if stage.name == "pairs"), None),
        ),
        checks.locally_best(certificate),
        checks.spread([s.finals[0].value for s in done if s.phase == POLISH], noise=noise, exact=exact),
        checks.scored_again(drift, certificate.smallest_margin),
        checks.retokenizes(bool(ending.context.round_trip(response)[0])),
        checks.beats(
            ending.stages.best,
            {s.name.removeprefix("baseline "): s.curve[-1].value for s in others if s.curve},
            budget=max((stage.evaluations for stage in others), default=0),
            spent=ending.stages.evaluations() + problem.single_evaluations,
            noise=noise,
            exact=exact,
            begun_from=", ".join(problem.known.values()),
        ),
    ]
