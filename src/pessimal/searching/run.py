"""One search on one model, in memory: `search(model, prompts, length=4) -> SearchResult`.

Opens a scorer a prompt, divides the budget, runs the procedure, scores the best responses again in
float32, certifies the best of all, and makes the tables. Knows no configuration, registry or W&B;
`verbs.search` brings these.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from pessimal.conversation import Prompt
from pessimal.errors import ConfigError, WorkError
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.spec import Dtype, Mode
from pessimal.searching.context import SearchContext
from pessimal.searching.exact import NOT_ONE_OPT, certify, neighbour_values
from pessimal.searching.exhaustive import ExhaustivePairs, exhaustive_pairs
from pessimal.searching.objective import Point
from pessimal.searching.procedure import (
    BASELINES,
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
    proven_most_probable,
)
from pessimal.searching.procedure import search as search_by_stages
from pessimal.searching.results import SearchResult, responses_of
from pessimal.searching.round_trip import best_retokenizing
from pessimal.searching.spec import Goal, SearchSpec

# Final responses that are scored again by the model's own forward.
_RESCORED = 32
RESCORED_PAIRS = 16
"""So many of the best pairs are scored again by the model's own forward, one by one; the best of
them is the result."""
_SINGLE_SHARE = 1 / 4
CERTIFICATE = "certificate"


def search(
    model: NetworkReward,
    prompts: Mapping[str, Prompt],
    *,
    mode: str = "ids",
    seed: int = 0,
    device: torch.device | str = "cpu",
    batch_size: int | None = None,
    **options: Any,
) -> SearchResult:
    """`pessimal.search` (see there) on user turns by key; `options` are those of `SearchSpec`."""
    spec = SearchSpec(**options | {"goal": Goal(options.get("goal", "optimal"))})
    context = SearchContext(
        model, prompts, spec, mode=Mode(mode), seed=seed, device=device, batch_size=batch_size
    )
    return run(context)


def run(
    context: SearchContext,
    *,
    folder: Path | None = None,
    warm_starts: Mapping[tuple[int, ...], str] | None = None,
    exact: Sequence[Final] = (),
    on_cost: Callable[[str, int], None] | None = None,
    on_stage: Callable[[Stage], None] | None = None,
    on_best: Callable[[int, float], None] | None = None,
) -> SearchResult:
    """The search of a context, with its checks.

    Args:
        folder: where finished stages are kept, so that a killed search goes on.
        warm_starts: good responses that are known before, and where from; they are evaluated, and
            begun from.
        exact: the true best responses where all were gone through.
        on_cost: called before work begins with what the search will take, in words, and its
            evaluations in all.
        on_stage, on_best: called with each finished stage; with evaluations and best value so far,
            at improvements.
    """
    spec, length, seed = context.spec, context.spec.length, context.seed
    # 1. Single tokens: scored for a search of more where that takes little of its budget, and it
    # cannot score everything.
    all_affordable = int(context.mask.sum()) ** length <= spec.evaluations
    everything = length == 1 or all_affordable or bool(exact)
    most = np.inf if length == 1 else 0 if all_affordable else _SINGLE_SHARE * spec.evaluations
    rewards, references, evaluations = context.single_rewards(most=most) or (None, [], 0)
    single = None
    if rewards is not None:
        single = torch.from_numpy(spec.goal.sign * rewards).nan_to_num(nan=-torch.inf)
    problem = Problem(
        length=length,
        allowed=context.allowed,
        single=single,
        single_evaluations=evaluations,
        retokenizes=context.retokenizes,
        tolerance=2 * context.noise(context.dtype),
        warm_starts=warm_starts or {},
    )
    stages = Stages(context.objective(), folder, on_stage=on_stage, on_best=on_best)

    def each_baseline(spent: int) -> int:
        if everything:
            return 0
        return spent if spec.baselines is True else min(int(spec.baselines), spent)

    # 2. What it will cost.
    if on_cost is not None:
        phases = divide(problem, spec).phases if length > 1 else {START: evaluations}
        baseline = each_baseline(sum(phases.values()))
        on_cost(*_cost(phases, length * problem.tokens, baseline, context.rate()))
    # 3. The search, and its baselines.
    hits: tuple[int | None, float] = (None, 0.0)
    if spec.check_gradient and single is not None:
        [best] = _best_tokens(problem, single, n=1)
        hits = one_token(stages, problem, spec, best=float(single[best]), seed=seed)
    if length == 1 and single is not None:
        tokens = _best_tokens(problem, single, n=spec.restarts)
        points = [Point(evaluations, float(single[token]), (token,)) for token in tokens]
        finals = [Final(one, "scan", "scan", one_opt=not rank) for rank, one in enumerate(points)]
    elif proven := proven_most_probable(stages, problem, spec.evaluations):
        finals, everything = proven, True
    else:
        finals = search_by_stages(stages, problem, spec, seed=seed)
    if each := each_baseline(stages.evaluations() + evaluations):
        finals += baselines(stages, problem, budget=each, seed=seed)
    # 4. The best of all, scored again and certified.
    finals = [*exact, *best_of_each(finals)]
    return _concluded(
        context, stages, problem, finals, hits=hits, inputs=references, exact=everything
    )


def every_pair(
    context: SearchContext, *, trainer: pl.Trainer, work: Path, progress: bool = True
) -> ExhaustivePairs:
    """Score all responses of two tokens, all processes together; what is finished is kept under
    `work` for the other goal and other lists of tokens.

    Raises:
        ConfigError: the reward is a sum or a negative of networks.
    """
    model, dtype = context.model, context.dtype
    if [part.weight for part in model.parts] != [1.0]:
        raise ConfigError(
            f"search.method=exhaustive goes through one network in one order; {model.name!r} is a "
            "sum or a negative of such. Type search.method=gcg"
        )
    ((prompt, frames),) = context.frames.items()
    network = context.network()
    output = "" if model.spec.output is None else f"-{model.spec.output}"
    name = f"{model.weights_digest[:16]}-{model.config_digest[:8]}-{dtype.value}{output}"
    pairs = exhaustive_pairs(
        network,
        frames[0],
        allowed=np.flatnonzero(context.mask),
        dtype=dtype,
        trainer=trainer,
        folder=work / name,
        batch_size=context.batch_size,
        keep=context.spec.keep,
        label=f"{model.name} · {prompt}",
        progress=progress,
    )
    network.to(context.device)  # the trainer took it back to the CPU
    return pairs


def best_pairs(context: SearchContext, pairs: ExhaustivePairs) -> list[Final]:
    """The best pairs by the goal that count, of which the result is taken."""
    goal = context.spec.goal
    ends = pairs.top if goal.sign > 0 else pairs.bottom
    n = len(ends)
    if context.retokenizes:
        ends = ends[context.retokenizes(responses_of(ends)).numpy()]
    if ends.empty:
        raise WorkError(
            f"none of the {n:,} {goal.value} pairs is given by a text. Keep more of them: "
            f"search.keep={10 * n}; or type mode=ids"
        )
    best = ends.head(RESCORED_PAIRS).itertuples()
    points = [Point(pairs.pairs, goal.sign * row.reward, (row.first, row.second)) for row in best]
    return [Final(point, "every pair", "exhaustive") for point in points]


def _cost(
    phases: Mapping[str, int], certificate: int, baseline: int, rate: float
) -> tuple[str, int]:
    """What a search will take, in words, and its evaluations in all; of the certificate one
    pass."""
    budget = sum(phases.values())
    named = ", ".join(f"{phase} {evaluations:,}" for phase, evaluations in phases.items())
    more = f", baselines {len(BASELINES)} × {baseline:,}" if baseline else ""
    total = budget + certificate + len(BASELINES) * baseline
    seconds = total / rate
    lasts = f"{seconds / 60:.0f} min" if seconds > 100 else f"{seconds:.0f} s"
    cost = f"At most {budget:,} evaluations ({named}), certificate at least {certificate:,}{more}"
    return f"{cost}: about {lasts} at {rate:,.0f} a second.", total


def _best_tokens(problem: Problem, values: Tensor, *, n: int) -> list[int]:
    """The n best single tokens that count, by their `values` (V,)."""
    return best_retokenizing(
        values, lambda ids: ids.unsqueeze(1), count=n, retokenizes=problem.retokenizes
    ).tolist()


def _concluded(
    context: SearchContext, stages: Stages, problem: Problem, finals: list[Final], **about: Any
) -> SearchResult:
    """Score the final responses again, take the best that was ever evaluated, certify it; where a
    single change of it is better, sweeps go on until none is."""
    sign = context.spec.goal.sign
    finals = finals[:_RESCORED]
    objective = context.objective(dtype=Dtype.float32)
    own = context.own_rewards(torch.tensor([final.point.response for final in finals]))
    best = int(np.argmax(sign * own))
    noise = context.noise(Dtype.float32, at=torch.tensor(finals[best].point.response))
    in_float32 = replace(problem, tolerance=2 * noise)
    folder = stages.folder and stages.folder / "float32"
    sweeps = Stages(objective, folder, on_stage=stages.on_stage)
    passes, started = 0, time.perf_counter()
    while True:
        response = torch.tensor(finals[best].point.response)
        values = neighbour_values(objective, response, context.allowed)
        passes += 1
        certificate = certify(values, response, noise=noise, **problem.among)
        if certificate.verdict != NOT_ONE_OPT:
            break
        better = certificate.neighbours.loc[certificate.neighbours["value"].idxmax()]
        changed = response.clone()
        changed[int(better["position"])] = int(better["token"])
        start = finals[best]._replace(point=Point(0, better["value"], tuple(changed.tolist())))
        name = f"polish {passes}"
        polished = polish_final(sweeps, in_float32, start, name=name, phase=CERTIFICATE)
        by = finals[best].found_by.removesuffix(", polish") + ", polish"
        finals = [polished._replace(found_by=by), *finals]
        own = np.concatenate([context.own_rewards(torch.tensor([polished.point.response])), own])
        best = 0
    order = [best, *(int(i) for i in np.argsort(-sign * own, kind="stable") if i != best)]
    finals = [finals[i] for i in order]
    finals[0] = finals[0]._replace(one_opt=True)
    spent = passes * certificate.evaluations + sweeps.evaluations((CERTIFICATE,))
    return SearchResult(
        context,
        stages,
        problem,
        finals,
        own[order],
        certificate,
        certified_at=(spent, time.perf_counter() - started),
        neighbour_values=values,
        objective=objective,
        **about,
    )
