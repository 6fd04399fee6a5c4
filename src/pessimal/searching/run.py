"""One search on one model, in memory: `search(model, prompts, length=4) -> SearchResult`.

Opens a scorer a prompt, plans the budget, runs the procedure, scores the best responses again in
float32, certifies the best of all, and makes the tables. Knows no configuration, registry or W&B;
`api.search` brings these.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pessimal.conversation import Asked
from pessimal.errors import ConfigError
from pessimal.rewards.base import NetworkReward
from pessimal.rewards.checkpoint_files import model_fields
from pessimal.rewards.spec import Dtype, Mode
from pessimal.searching.allowed import best_retokenizing, digest
from pessimal.searching.climb import passes
from pessimal.searching.context import SearchContext
from pessimal.searching.exact import ONE_OPT, TIE, certify
from pessimal.searching.objective import EvaluationCounter, Objective, Point
from pessimal.searching.procedure import (
    LISTED,
    Final,
    Plan,
    Problem,
    Stages,
    baseline,
    best_of_each,
    plan,
    proven_by_sums,
)
from pessimal.searching.procedure import search as search_by_stages
from pessimal.searching.results import SearchResult
from pessimal.searching.spec import Certify, Filter, Method, SearchSpec
from pessimal.tables.score_table import ModelProvenance
from pessimal.texts import duration, speed

# Final responses that are scored again by the model's own forward; and evaluations that the
# certificate leaves: one scores a better response that it came to.
_RESCORED, _SPARE = 32, 4


def search(
    model: NetworkReward, prompts: Mapping[str, Asked], *, mode: str = "ids", **options: Any
) -> SearchResult:
    """`pessimal.search` (see there) on prompts or contexts by key; `options` are those of
    `SearchSpec` and `SearchContext`."""
    names = {option.name for option in fields(SearchSpec)}
    spec = {name: options.pop(name) for name in names & {*options}}
    spec = {name: value for name, value in spec.items() if value is not None}
    return run(SearchContext(model, prompts, SearchSpec(**spec), mode=Mode(mode), **options))


def run(
    context: SearchContext,
    *,
    folder: Path | None = None,
    warm_starts: Mapping[tuple[int, ...], str] | None = None,
    on_cost: Callable[[str, int], None] | None = None,
    on_begin: Callable[[str], None] | None = None,
    on_best: Callable[[int, float], None] | None = None,
    on_count: Callable[[int], None] | None = None,
) -> SearchResult:
    """The search of a context, with its checks.

    Args:
        folder: where what was evaluated is kept, so that a killed search goes on.
        warm_starts: good responses that are known before, and where from; they are evaluated, and
            begun from.
        on_cost: called before work begins with what the search will take, in words, and its
            evaluations in all, baselines included.
        on_begin, on_best, on_count: as `Stages` has them.

    Raises:
        ConfigError: search.certificate=full, and the budget does not pay for it.
    """
    spec, length, seed = context.spec, context.spec.length, context.seed
    (on_begin or str)("loading")
    alone = spec.method is Method.gcg
    free = None if alone else context.scanned_rewards()
    problem = Problem(
        length=length,
        allowed=context.allowed,
        retokenizes=context.retokenizes,
        warm_starts=warm_starts or {},
    )
    total = _total(context, problem, free=free is not None)
    stages = Stages(
        context.objective(folder=folder),
        problem,
        budget=total,
        on_begin=on_begin,
        on_best=on_best,
        on_count=on_count,
    )
    # 1. The noise and the rate, then single tokens where they are known or needed.
    rate = 1.0

    def sampled(counter: EvaluationCounter) -> list[Point]:
        nonlocal problem, rate
        noise, rate = context.noise(context.dtype)
        counter.count(2 * context.samples)
        problem = replace(problem, tolerance=2 * noise)
        return []

    stages.run("noise", sampled)
    rewards, references = free or (None, [])
    single = None
    if rewards is not None:
        single = torch.from_numpy(spec.goal.sign * rewards).nan_to_num(nan=-torch.inf)
    if single is None and context.is_scan:
        single = torch.full((len(context.mask),), -torch.inf, dtype=torch.float64)

        def scored(counter: EvaluationCounter) -> list[Point]:
            tokens = context.allowed.nonzero()[:, 0]
            single[tokens] = counter.values(tokens[:, None])
            return []

        stages.run("single tokens", scored)
    problem = replace(problem, single=single)
    # 2. What it will cost.
    after = 2 * context.samples + _SPARE + min(context.samples, _RESCORED)
    division = plan(problem, spec, total=stages.total - stages.evaluations - after)
    division = division._replace(certificate=division.certificate + after)
    everything = context.is_scan or division.every

    compared = total if spec.baselines is True else min(int(spec.baselines), total)
    compared = 0 if everything else compared

    if on_cost is not None:
        on_cost(*_cost(stages, problem, division, compared, rate))
    # 3. The search, and its baseline.
    finals: list[Final] = []
    if context.is_scan and single is not None:
        best = partial(best_retokenizing, count=LISTED, retokenizes=problem.retokenizes)
        for token in best(single, lambda ids: ids.unsqueeze(1)).tolist():
            point = Point(stages.evaluations, float(single[token]), (token,))
            finals.append(Final(point, "scan", "scan"))
    elif not alone and (proven := proven_by_sums(stages, problem, division)):
        finals, everything = proven, True
    else:
        finals = search_by_stages(stages, problem, spec, division, seed=seed)
    if compared and not everything:
        finals += baseline(stages, problem, budget=compared, seed=seed)
    # 4. The best of all, scored again and certified.
    finals = best_of_each(finals)
    in_float32 = None
    if context.dtype is not Dtype.float32:
        in_float32 = context.objective(dtype=Dtype.float32, folder=folder)
    return _concluded(
        context, stages, problem, finals, in_float32, inputs=references, exact=everything
    )


def _total(context: SearchContext, problem: Problem, *, free: bool) -> int:
    """The whole budget; of one token at least what all cost, since it is the scan."""
    spec = context.spec
    overhead = 4 * context.samples + _SPARE + min(context.samples, _RESCORED)
    needed = problem.changes + overhead + 1
    if context.is_scan:
        whole = 0 if context.dtype is Dtype.float32 else problem.changes
        return max(spec.evaluations, overhead + whole + (0 if free else problem.tokens))
    if spec.certificate is Certify.full and needed > spec.evaluations:
        raise ConfigError(
            f"search.certificate=full tries {problem.changes - 1:,} single changes: type "
            f"search.evaluations={2 * needed}, or search.certificate=rest"
        )
    return spec.evaluations


def _cost(
    stages: Stages, problem: Problem, division: Plan, compared: int, rate: float
) -> tuple[str, int]:
    """The cost of a search, in words, and its evaluations in all."""
    begun, total = stages.evaluations, stages.total
    scan = problem.length == 1 and problem.single is not None
    start = problem.responses if division.every else len(problem.warm_starts)
    start = 0 if scan else min(start, total)
    climb = 0 if division.every or scan else total - begun - start - division.certificate
    parts = {
        "start": begun + start,
        "sweeps, gradients and random changes": max(climb, 0),
        "certificate": division.certificate,
    }
    listed = ", ".join(f"{name} {n:,}" for name, n in parts.items() if n)
    more = f"; baseline {compared:,}" if compared else ""
    everything = total + compared
    cost = f"At most {total:,} evaluations ({listed}){more}"
    return f"{cost}: about {duration(everything / rate)} at {speed(rate)} a second.", everything


def _concluded(
    context: SearchContext,
    stages: Stages,
    problem: Problem,
    finals: list[Final],
    in_float32: Objective | None,
    **about: Any,
) -> SearchResult:
    """Score the final responses again, take the best that was ever evaluated, try its single
    changes in float32 and go on from those that are better, as far as the budget goes.

    `in_float32`: the objective where the search's own has another precision.
    """
    certificate = context.spec.certificate
    finals = finals[: min(_RESCORED, context.samples)]
    objective = in_float32 or stages.objective
    own_values = context.own_values(torch.tensor([final.point.response for final in finals]))
    best = int(np.argmax(own_values))
    start = torch.tensor(finals[best].point.response)
    noise, _ = context.noise(Dtype.float32, at=start)
    has_scan = problem.length == 1 and in_float32 is None and problem.single is not None
    response, values = start, torch.empty(0)
    best_of_all = not in_float32 and bool(stages.proof)  # there is nothing left to try

    def work(counter: EvaluationCounter) -> list[Point]:
        nonlocal response, values
        counter.count(len(finals) + 2 * context.samples)
        counter.objective = objective
        if has_scan and problem.single is not None:
            values = problem.single[None].clone()
        else:
            none = certificate is Certify.none or (certificate is Certify.rest and best_of_all)
            counter.budget = counter.used + 1 if none else stages.total - _SPARE
            response, values = passes(
                counter, start, tolerance=2 * noise, **problem.candidate_filter
            )
        if not torch.equal(response, start):
            counter.budget = stages.total
            counter.count(1)
        return []

    stages.run("certificate", work)
    proven = certify(values, response, noise=noise, **problem.candidate_filter)
    if not torch.equal(response, start):
        point = Point(stages.evaluations, proven.value, tuple(response.tolist()))
        by = finals[best].found_by.removesuffix(", polish") + ", polish"
        finals = [finals[best]._replace(point=point, found_by=by), *finals]
        own_values = np.concatenate([context.own_values(response[None]), own_values])
        best = 0
    order = [best, *(int(i) for i in np.argsort(-own_values, kind="stable") if i != best)]
    finals = [finals[i] for i in order]
    finals[0] = finals[0]._replace(one_opt=best_of_all or proven.verdict in (ONE_OPT, TIE) or None)
    return SearchResult(context, stages, problem, finals, own_values[order], proven, **about)


# --- What the result of a search depends on.


USUAL = ("ids", "float32", "all")
"""Mode, precision and method that a name leaves out."""


@dataclass(frozen=True, kw_only=True)
class SearchProvenance(ModelProvenance):
    """Two results with one key are the same search, but for the last bits that another device or
    batch size may change, and for what the registry held when it began."""

    prompts: dict[str, Asked]  # what is answered, or has the slot, by key; the mean is searched
    goal: str
    length: int
    mode: str
    allowed: int
    """The number of tokens a response may be made of; `allowed_digest` names them."""
    allowed_digest: str
    tokens: str = ""
    """The name of these tokens, where they are not the usual ones."""
    options: dict = field(default_factory=dict)  # the other options of the search
    seed: int = 0
    named: str = ""
    """The common name of the prompts."""
    objective: str = ""
    """The objective besides a whole answer's reward: the slot with its answer, the policy with
    its share; part of the name."""
    beside: dict = field(default_factory=dict)
    """Conditions that the result is reported on: what is held out, and the policy."""

    def fields(self) -> dict[str, Any]:
        """Every field that the key covers, by name."""
        fields = super().fields()
        del fields["tokens"]  # the digest says it
        return fields

    @property
    def name(self) -> str:
        """Name of the artifact: what distinguishes results in a list; the key covers everything."""
        parts = [self.model, self.named, f"{self.goal}-{self.length}", self.objective]
        method = self.options.get("method", "")
        more = (str(part) for part in (self.mode, self.dtype, self.tokens, method))
        parts = [part for part in parts if part]
        return "--".join([*parts, *(part for part in more if part and part not in USUAL)])


def identify(context: SearchContext) -> SearchProvenance:
    """The provenance of a search, known before the network is loaded."""
    spec = context.spec
    tokens = "+".join(name.value for name in spec.allowed) or "every-token"
    if spec.allowed_path is not None:
        tokens += f"+{Path(spec.allowed_path).stem}-{digest(context.mask)[:6]}"
    own_fields = ("length", "goal", "allowed", "allowed_path")
    return SearchProvenance(
        model=context.model.name,
        prompts=context.prompts,
        goal=spec.goal.value,
        length=spec.length,
        mode=context.mode.value,
        allowed=int(context.mask.sum()),
        allowed_digest=digest(context.mask),
        tokens="" if tokens == Filter.no_special.value else tokens,
        options={
            name: value.value if isinstance(value, Enum) else value
            for name, value in vars(spec).items()
            if name not in own_fields
        },
        seed=context.seed,
        named=context.prompts_name,
        objective="--".join(_objective(context)),
        beside={
            "held_out": repr(context.held_out),
            "policy": context.policy and context.policy.digests,
            "answers": None,  # for keys of earlier searches
        },
        **model_fields(context.model),
    )


def _objective(context: SearchContext) -> Iterator[str]:
    """Parts of a name: the slot, the given answer, the share and the name of a policy."""
    spec = context.spec
    if context.named_slot:
        answer = "" if context.edits is None else spec.answer
        content = repr((answer, list(context.prompts.values())))
        yield f"{context.named_slot}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"
    if spec.fluency and context.policy is not None:
        yield f"fluent{spec.fluency:g}-{context.policy.name}"
