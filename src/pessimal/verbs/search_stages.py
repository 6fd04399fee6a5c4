"""The search for one response, from single tokens to the certificate: the stages, checked in float32."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pessimal.models.spec import Dtype
from pessimal.scoring.trust import numerical_noise
from pessimal.search import checks
from pessimal.search.allowed import digest
from pessimal.search.certificate import Certificate, certify
from pessimal.search.evaluation_counter import Point
from pessimal.search.polish import neighbour_values
from pessimal.search.procedure import (
    SEARCH,
    Final,
    Plan,
    Problem,
    baselines,
    one_token,
    polish_final,
    search,
)
from pessimal.search.round_trip import Retokenizes, best_retokenizing
from pessimal.search.stages import Stage, Stages
from pessimal.verbs.search_context import SearchContext, gcg_options
from pessimal.verbs.search_tables import Ending, Searched, tables_and_numbers

Report = Callable[[Stage], None]
NEIGHBOURS = 64


@dataclass(frozen=True)
class Singles:
    """Single tokens' rewards, where a search begins."""

    values: Tensor
    """float64 (V,): with the goal's sign; -inf where not allowed."""
    references: list[str]
    """Score tables that they are from."""
    evaluations: int
    """What they cost where there was no table."""

    @classmethod
    def of(cls, context: SearchContext) -> "Singles":
        rewards, references, evaluations = context.single_rewards(context.config.prompt_keys)
        values = torch.from_numpy(context.spec.goal.sign * rewards).nan_to_num(nan=float("-inf"))
        return cls(values, references, evaluations)


def search_one_token(context: SearchContext, work: Path, *, report: Report) -> Searched:
    """The scan's best allowed token, from its table where there is one; and how often gradients find it."""
    singles = Singles.of(context)
    stages = Stages(context.objective(context.config.prompt_keys), work, report=report)
    kept = _best_tokens(singles.values, context.retokenizes, n=context.spec.restarts)
    finals = [
        Final(
            0, "scan", Point(singles.evaluations, float(singles.values[token]), (token,)), one_opt=rank == 0
        )
        for rank, token in enumerate(kept)
    ]
    problem, plan = _problem(context, singles, tolerance=0.0), _plan(context)
    hits = _hits(stages, problem, plan)
    return _concluded(context, stages, singles, finals, hits=hits)


def search_by_stages(
    context: SearchContext, work: Path, *, report: Report, exact: Sequence[Final] = ()
) -> Searched:
    """Two tokens or more: the procedure's stages, then its best in float32, then the baselines. `exact` are the true
    best responses, where all have been gone through."""
    singles = Singles.of(context)
    keys = context.config.prompt_keys
    stages = Stages(context.objective(keys), work, report=report)
    plan = _plan(context)
    problem = _problem(context, singles, tolerance=2 * _noise(context, context.model.spec.dtype))
    hits = _hits(stages, problem, plan)
    finals = search(stages, problem, plan)
    if context.model.spec.dtype is not Dtype.float32:
        exactly = Stages(context.objective(keys, Dtype.float32), work / "float32", report=report)
        in_float32 = _problem(context, singles, tolerance=2 * _noise(context, Dtype.float32))
        finals = _polished_exactly(exactly, in_float32, finals)
        stages.done += exactly.done
    if exact:
        known = {final.point.response for final in exact}
        finals = [*exact, *(final for final in finals if final.point.response not in known)]
    if context.spec.baselines:
        baselines(stages, problem, plan, budget=stages.evaluations(phases=SEARCH) + singles.evaluations)
    return _concluded(context, stages, singles, finals, hits=hits)


def _concluded(
    context: SearchContext, stages: Stages, singles: Singles, finals: list[Final], *, hits: checks.Check
) -> Searched:
    """Score the final responses again, take the best, certify it."""
    keys, sign = context.config.prompt_keys, context.spec.goal.sign
    responses = torch.tensor([final.point.response for final in finals])
    own = context.own_rewards(keys, responses)
    best = int(np.argmax(sign * own))
    order = [best, *(int(i) for i in np.argsort(-sign * own, kind="stable") if i != best)]
    finals, responses, own = [finals[i] for i in order], responses[order], own[order]
    objective = context.objective(keys, Dtype.float32)
    noise = _noise(context, Dtype.float32, at=responses[0])
    begun = time.perf_counter()
    values = neighbour_values(objective, responses[0], context.allowed)
    certificate = certify(
        objective,
        responses[0],
        allowed=context.allowed,
        retokenizes=context.retokenizes,
        noise=noise,
        digest=digest(context.mask),
        sweeps=finals[0].sweeps,
        values=values,
    )
    ending = Ending(
        context=context,
        stages=stages,
        finals=finals,
        own=own,
        certificate=certificate,
        certificate_seconds=time.perf_counter() - begun,
        noise=noise,
        single=singles.values,
        single_evaluations=singles.evaluations,
        objective=objective,
        neighbour_values=values,
        checks=[hits, *_checks(context, stages, singles, finals, own, certificate, noise)],
    )
    tables, numbers = tables_and_numbers(ending)
    ways = [(stage.name, stage.best.value, stage.best.response) for stage in stages.done if stage.finals]
    ways = [way for way in ways if len(way[2]) == context.spec.length]
    return Searched(tables, numbers, float(sign * own[0]), singles.references, ways)


def _checks(
    context: SearchContext,
    stages: Stages,
    singles: Singles,
    finals: list[Final],
    own: np.ndarray,
    certificate: Certificate,
    noise: float,
) -> list[checks.Check]:
    by_name = {stage.name: stage for stage in stages.done}
    gradient = [stage.best.value for stage in stages.done if stage.phase == "gradient"]
    exact = max((final.point.value for final in finals if final.start == "exhaustive"), default=None)
    if exact is None and "pairs" in by_name:
        exact = by_name["pairs"].best.value
    spread = [stage.best.value for stage in stages.done if stage.name.startswith("polish ")] or [
        final.point.value for final in finals[:1]
    ]
    value = context.spec.goal.sign * own[0]
    others = {
        stage.name: stage.best.value for stage in stages.done if stage.phase == "baseline" and stage.finals
    }
    text = bool(context.round_trip(torch.tensor([finals[0].point.response]))[0])
    return [
        checks.two_tokens(max(gradient) if gradient and exact is not None else None, exact, noise=noise),
        checks.locally_best(certificate),
        checks.spread(spread, noise=noise),
        checks.scored_again(abs(value - certificate.value), certificate.smallest_margin),
        checks.retokenizes(text),
        checks.beats(
            value, others, budget=stages.evaluations(phases=SEARCH) + singles.evaluations, noise=noise
        ),
    ]


def _hits(stages: Stages, problem: Problem, plan: Plan) -> checks.Check:
    [best] = _best_tokens(problem.single, problem.retokenizes, n=1)
    hits, evaluations = one_token(stages, problem, plan, best=float(problem.single[best]))
    return checks.one_token(hits, plan.restarts, evaluations)


def _plan(context: SearchContext) -> Plan:
    spec = context.spec
    return Plan(
        gcg=gcg_options(spec),
        evaluations=spec.evaluations,
        restarts=spec.restarts,
        beam_width=spec.beam_width,
        polish=spec.polish,
        pairs=spec.pairs,
        seed=context.config.seed,
    )


def _problem(context: SearchContext, singles: Singles, *, tolerance: float) -> Problem:
    return Problem(
        length=context.spec.length,
        allowed=context.allowed,
        single=singles.values,
        retokenizes=context.retokenizes,
        tolerance=tolerance,
    )


def _polished_exactly(stages: Stages, problem: Problem, finals: list[Final]) -> list[Final]:
    """The best of a low-precision search goes on in float32."""
    polished = polish_final(stages, problem, finals[0], name="polish in float32")
    return [polished, *(final for final in finals if final.point.response != polished.point.response)]


def _best_tokens(values: Tensor, retokenizes: Retokenizes | None, *, n: int) -> list[int]:
    """The n best single tokens that count, by their values (V,)."""
    return best_retokenizing(values, lambda ids: ids.unsqueeze(1), count=n, retokenizes=retokenizes).tolist()


def _noise(context: SearchContext, dtype: Dtype, *, at: Tensor | None = None) -> float:
    """Bound on the numerical error of a value in this precision: random single changes of one response (L,), with a common prefix,
    against the model's own forward (for low precision, against the engine without an anchor: rounding of the weights
    is no noise between responses)."""
    random = torch.Generator().manual_seed(0)
    allowed = context.allowed.nonzero()[:, 0]

    def draw(*shape: int) -> Tensor:
        return allowed[torch.randint(len(allowed), shape, generator=random)]

    anchor = draw(context.spec.length) if at is None else at
    changed = anchor.repeat(NEIGHBOURS, 1)
    places = torch.arange(NEIGHBOURS) % context.spec.length
    changed[torch.arange(NEIGHBOURS), places] = draw(NEIGHBOURS)
    errors = []
    for key in context.config.prompt_keys:
        scorer = context.scorer(key, dtype)
        rewards = scorer.rewards(changed, anchor=anchor).double().cpu().numpy()
        if dtype is Dtype.float32:
            own = scorer.own_rewards(changed)
        else:
            own = np.concatenate([scorer.rewards(row).double().cpu().numpy() for row in changed.split(1)])
        errors.append(numerical_noise(rewards, own))
    return max(errors)
