"""The search for one response, from single tokens to the certificate: what the stages found, checked in float32."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pessimal.models.spec import Dtype
from pessimal.scoring.trust import numerical_noise
from pessimal.search import ladder
from pessimal.search.allowed import digest
from pessimal.search.certificate import Certificate, certify
from pessimal.search.ledger import Point
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
from pessimal.search.stages import Stage, Stages
from pessimal.search.survival import Admissible, best_admissible
from pessimal.tasks.search_found import Found
from pessimal.tasks.search_setup import Setup, gcg_options
from pessimal.tasks.search_tables import Evidence, tables_and_facts

Told = Callable[[Stage], None]
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
    def of(cls, setup: Setup) -> "Singles":
        rewards, references, evaluations = setup.single_rewards(setup.config.prompt_keys)
        values = torch.from_numpy(setup.spec.goal.sign * rewards).nan_to_num(nan=float("-inf"))
        return cls(values, references, evaluations)


def search_one_token(setup: Setup, work: Path, *, told: Told) -> Found:
    """The scan's best allowed token, from its table where there is one; and how often gradients find it."""
    singles = Singles.of(setup)
    stages = Stages(setup.objective(setup.config.prompt_keys), work, told=told)
    kept = _best_tokens(singles.values, setup.admissible, n=setup.spec.restarts)
    finals = [
        Final(
            0, "scan", Point(singles.evaluations, float(singles.values[token]), (token,)), one_opt=rank == 0
        )
        for rank, token in enumerate(kept)
    ]
    problem, plan = _problem(setup, singles, tolerance=0.0), _plan(setup)
    hits = _hits(stages, problem, plan)
    return _found(setup, stages, singles, finals, hits=hits)


def search_by_stages(setup: Setup, work: Path, *, told: Told, exact: Sequence[Final] = ()) -> Found:
    """Two tokens or more: the procedure's stages, then its best in float32, then the baselines. `exact` are the true
    best responses, where all have been gone through."""
    singles = Singles.of(setup)
    keys = setup.config.prompt_keys
    stages = Stages(setup.objective(keys), work, told=told)
    plan = _plan(setup)
    problem = _problem(setup, singles, tolerance=2 * _noise(setup, setup.model.spec.dtype))
    hits = _hits(stages, problem, plan)
    finals = search(stages, problem, plan)
    if setup.model.spec.dtype is not Dtype.float32:
        exactly = Stages(setup.objective(keys, Dtype.float32), work / "float32", told=told)
        in_float32 = _problem(setup, singles, tolerance=2 * _noise(setup, Dtype.float32))
        finals = _polished_exactly(exactly, in_float32, finals)
        stages.done += exactly.done
    if exact:
        known = {final.point.response for final in exact}
        finals = [*exact, *(final for final in finals if final.point.response not in known)]
    if setup.spec.baselines:
        baselines(stages, problem, plan, budget=stages.spent(phases=SEARCH) + singles.evaluations)
    return _found(setup, stages, singles, finals, hits=hits)


def _found(
    setup: Setup, stages: Stages, singles: Singles, finals: list[Final], *, hits: ladder.Rung
) -> Found:
    """Score the final responses again, take the best, certify it."""
    keys, sign = setup.config.prompt_keys, setup.spec.goal.sign
    responses = torch.tensor([final.point.response for final in finals])
    own = setup.own_rewards(keys, responses)
    best = int(np.argmax(sign * own))
    order = [best, *(int(i) for i in np.argsort(-sign * own, kind="stable") if i != best)]
    finals, responses, own = [finals[i] for i in order], responses[order], own[order]
    objective = setup.objective(keys, Dtype.float32)
    noise = _noise(setup, Dtype.float32, at=responses[0])
    begun = time.perf_counter()
    values = neighbour_values(objective, responses[0], setup.allowed)
    certificate = certify(
        objective,
        responses[0],
        allowed=setup.allowed,
        admissible=setup.admissible,
        noise=noise,
        digest=digest(setup.mask),
        sweeps=finals[0].sweeps,
        values=values,
    )
    evidence = Evidence(
        setup=setup,
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
        rungs=[hits, *_rungs(setup, stages, singles, finals, own, certificate, noise)],
    )
    tables, facts = tables_and_facts(evidence)
    text = facts["best_text"]
    sentence = (
        f"{setup.spec.goal.value} response of {setup.spec.length} tokens: {text!r}, reward {own[0]:.4f} "
        f"({certificate.verdict}, {facts['spent']:,} evaluations)"
    )
    ways = [(stage.name, stage.best.value, stage.best.response) for stage in stages.done if stage.finals]
    ways = [way for way in ways if len(way[2]) == setup.spec.length]
    return Found(tables, facts, float(sign * own[0]), singles.references, sentence, ways)


def _rungs(
    setup: Setup,
    stages: Stages,
    singles: Singles,
    finals: list[Final],
    own: np.ndarray,
    certificate: Certificate,
    noise: float,
) -> list[ladder.Rung]:
    by_name = {stage.name: stage for stage in stages.done}
    gradient = [stage.best.value for stage in stages.done if stage.phase == "gradient"]
    exact = max((final.point.value for final in finals if final.start == "exhaustive"), default=None)
    if exact is None and "pairs" in by_name:
        exact = by_name["pairs"].best.value
    spread = [stage.best.value for stage in stages.done if stage.name.startswith("polish ")] or [
        final.point.value for final in finals[:1]
    ]
    value = setup.spec.goal.sign * own[0]
    others = {
        stage.name: stage.best.value for stage in stages.done if stage.phase == "baseline" and stage.finals
    }
    text = bool(setup.survival(torch.tensor([finals[0].point.response]))[0])
    return [
        ladder.two_tokens(max(gradient) if gradient and exact is not None else None, exact, noise=noise),
        ladder.locally_best(certificate),
        ladder.spread(spread, noise=noise),
        ladder.scored_again(abs(value - certificate.value), certificate.smallest_margin),
        ladder.survives_as_text(text),
        ladder.beats(value, others, budget=stages.spent(phases=SEARCH) + singles.evaluations, noise=noise),
    ]


def _hits(stages: Stages, problem: Problem, plan: Plan) -> ladder.Rung:
    [best] = _best_tokens(problem.single, problem.admissible, n=1)
    hits, evaluations = one_token(stages, problem, plan, best=float(problem.single[best]))
    return ladder.one_token(hits, plan.restarts, evaluations)


def _plan(setup: Setup) -> Plan:
    spec = setup.spec
    return Plan(
        gcg=gcg_options(spec),
        evaluations=spec.evaluations,
        restarts=spec.restarts,
        beam_width=spec.beam_width,
        polish=spec.polish,
        pairs=spec.pairs,
        seed=setup.config.seed,
    )


def _problem(setup: Setup, singles: Singles, *, tolerance: float) -> Problem:
    return Problem(
        length=setup.spec.length,
        allowed=setup.allowed,
        single=singles.values,
        admissible=setup.admissible,
        tolerance=tolerance,
    )


def _polished_exactly(stages: Stages, problem: Problem, finals: list[Final]) -> list[Final]:
    """The best of a low-precision search goes on in float32."""
    polished = polish_final(stages, problem, finals[0], name="polish in float32")
    return [polished, *(final for final in finals if final.point.response != polished.point.response)]


def _best_tokens(values: Tensor, admissible: Admissible | None, *, n: int) -> list[int]:
    """The n best single tokens that count, by their values (V,)."""
    return best_admissible(values, lambda ids: ids.unsqueeze(1), count=n, admissible=admissible).tolist()


def _noise(setup: Setup, dtype: Dtype, *, at: Tensor | None = None) -> float:
    """Bound on the numerical error of a value in this precision: random single changes of one response (L,), anchored,
    against the model's own forward (for low precision, against the engine without an anchor: rounding of the weights
    is no noise between responses)."""
    random = torch.Generator().manual_seed(0)
    allowed = setup.allowed.nonzero()[:, 0]

    def draw(*shape: int) -> Tensor:
        return allowed[torch.randint(len(allowed), shape, generator=random)]

    anchor = draw(setup.spec.length) if at is None else at
    changed = anchor.repeat(NEIGHBOURS, 1)
    places = torch.arange(NEIGHBOURS) % setup.spec.length
    changed[torch.arange(NEIGHBOURS), places] = draw(NEIGHBOURS)
    errors = []
    for key in setup.config.prompt_keys:
        scorer = setup.scorer(key, dtype)
        found = scorer.rewards(changed, anchor=anchor).double().cpu().numpy()
        if dtype is Dtype.float32:
            own = scorer.own_rewards(changed)
        else:
            own = np.concatenate([scorer.rewards(row).double().cpu().numpy() for row in changed.split(1)])
        errors.append(numerical_noise(found, own))
    return max(errors)
