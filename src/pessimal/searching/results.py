"""What a search result: its tables and its Results, the response first.

Does not know registries or W&B; the verb adds other lengths to `growth`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pessimal.plots import Forest, Lines
from pessimal.searching import checks
from pessimal.searching.checks import FAILS, HOLDS, NOT_TRIED, TIE
from pessimal.searching.climb import SWEEPS
from pessimal.searching.context import NEIGHBOURS
from pessimal.searching.elsewhere import contexts_result, in_contexts, rarity, rarity_result
from pessimal.searching.exact import QUALITY, Certificate, gradient_quality, neighbour_values
from pessimal.searching.gcg import random_responses
from pessimal.searching.objective import GRADIENT_COST, FluentObjective, Objective
from pessimal.searching.procedure import (
    BASELINE,
    BASELINES,
    ONE_TOKEN,
    SEARCH,
    START,
    Final,
    Problem,
    Stages,
)
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.tables.score_table import storable
from pessimal.texts import literal, signed, significant

if TYPE_CHECKING:
    from pessimal.searching.context import SearchContext

_result = partial(Result, method="search")
Tables = Mapping[str, pd.DataFrame]
# A baseline that cannot use the last few evaluations has had an equal budget.
_EQUAL = 0.9
AHEAD = "reward ahead of the best baseline"
# Keys of the summary, by baseline.
BEATS = {name: f"beats_{name.removesuffix(' search').replace(' ', '_')}" for name in BASELINES}


@dataclass
class SearchResult:
    """What a search result, and all that is known when it is over."""

    context: "SearchContext"
    stages: Stages
    problem: Problem
    finals: list[Final]
    """The best by its own reward first."""
    own_values: np.ndarray
    """float64 (n,): what is searched, of the finals, by the models' own forwards in float32."""
    certificate: Certificate
    neighbour_values: Tensor
    """float64 (L, V): of the result with those tokens in place that were tried, -inf elsewhere."""
    objective: Objective
    """In float32."""
    hits: tuple[int | None, float]
    """Restarts of the gradient that find the best token, after how many evaluations."""
    exact: bool
    """Whether every response was scored."""
    inputs: list[str]
    """References of the score tables that it took single tokens' rewards from."""
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    """By their names in the artifact."""

    def __post_init__(self) -> None:
        best, certificate = self.finals[0], self.certificate
        self.response, self.found_by = best.point.response, best.found_by
        self.sign, responses = self.context.spec.goal.sign, [f.point.response for f in self.finals]
        self.likelihoods = self.context.likelihoods(torch.tensor(responses))
        """float64 (n,): log-probabilities of the finals by the policy, where fluency is asked
        for."""
        likely = self.context.spec.fluency * self.likelihoods
        self.own_rewards = self.sign * (self.own_values - likely)
        self.reward = float(self.own_rewards[0])
        # Two rewards within twice the noise are tied.
        self.verdict, self.noise = certificate.verdict, certificate.noise
        self.quality = _quality(self)  # takes a gradient, so before what counts them
        self.evaluations = self.stages.evaluations
        """Of the whole search, certificate included; not of its baselines."""
        self.begun_from = ", ".join(self.problem.warm_starts.values())
        """What the registry held and it began from."""
        self.bounds = self.context.bounds
        self.ceiling = self.bounds.high if self.sign > 0 else self.bounds.low
        """The best that any response of any length can have; infinite where no bound is known."""
        self.tables["sequences"] = _sequences(self)
        self.text = self.tables["sequences"]["text"][0]
        self.stages.on_begin("tables")
        for name, make in TABLES.items():
            self.tables[name] = make(self)

    def spelled(self, ids: Iterable[int]) -> pd.DataFrame:
        """`token` and `text` of the ids of responses, which are the index."""
        rows = self.context.vocabulary.rows.set_index("candidate_id")[["token", "text"]]
        if self.context.edits is None:
            return rows.loc[list(ids)]
        named = {one: self.context.edits.named(one, rows["text"]) for one in ids}
        return pd.DataFrame({"token": named, "text": named}, index=list(ids))

    @property
    def results(self) -> list[Result]:
        """The Results, the response first."""
        return search_results(self.tables, self)


# --- Tables.


def checklist(result: SearchResult) -> pd.DataFrame:
    """One row a claim: rung (its number), check, measured, verdict (holds, tie, fails, not tried),
    meaning."""
    problem, certificate, exact = result.problem, result.certificate, result.exact
    stages, noise, margin = result.stages, result.noise, certificate.smallest_margin
    baselines = [stage for stage in stages.done if stage.phase == BASELINE]
    pairs, sweeps = stages.named("pairs"), stages.named(SWEEPS)
    verdicts = (
        checks.one_token(*result.hits, restarts=result.context.spec.restarts),
        checks.all_responses(
            problem.responses,
            scored=exact,
            needs=problem.responses + problem.changes + 10 * NEIGHBOURS,
            pruned=pairs.details["tried"] if pairs else None,
            forwards=stages.proof.details["forwards"] if stages.proof else None,
        ),
        checks.one_opt(
            certificate.verdict,
            tried=certificate.evaluations - 1,
            of=certificate.changes,
            margin=margin,
            noise=noise,
            exact=exact,
        ),
        checks.spread(sweeps.details["ends"] if sweeps else [], noise=noise, exact=exact),
        checks.scored_again(abs(result.own_values[0] - certificate.value), margin),
        (HOLDS, "yes") if result.tables["sequences"]["survives"][0] else (FAILS, "no"),
        checks.beats(
            result.stages.best,
            {s.name.removeprefix("baseline "): s.curve[-1].value for s in baselines if s.curve},
            budget=max((stage.evaluations for stage in baselines), default=0),
            spent=result.evaluations,
            noise=noise,
            exact=exact,
            begun_from=result.begun_from,
        ),
    )
    table = pd.DataFrame(verdicts, columns=["verdict", "measured"])
    table = table.assign(
        rung=range(1, len(checks.CHECKS) + 1),
        check=checks.CHECKS.keys(),
        meaning=checks.CHECKS.values(),
    )
    return table[["rung", "check", "measured", "verdict", "meaning"]]


def _sequences(result: SearchResult) -> pd.DataFrame:
    context, finals = result.context, result.finals
    responses = torch.tensor([final.point.response for final in finals])
    spelled = [result.spelled(response)["token"].tolist() for response in responses.tolist()]
    table = pd.DataFrame(
        {
            "rank": range(1, len(finals) + 1),
            "restart": [final.restart for final in finals],
            "start": [final.start for final in finals],
            "found_by": [final.found_by for final in finals],
            "token_ids": [json.dumps(response) for response in responses.tolist()],
            "tokens": [json.dumps(response, ensure_ascii=False) for response in spelled],
            "text": context.round_trip.text_of(responses),
            "reward": result.own_rewards,
            "search_reward": [result.sign * final.point.value for final in finals],
            "ceiling": result.ceiling if np.isfinite(result.ceiling) else np.nan,
            "ceiling_share": [result.sign * result.bounds.share(r) for r in result.own_rewards],
            "survives": context.round_trip(responses).tolist(),
            "one_opt": pd.array([final.one_opt for final in finals], dtype="boolean"),
            "evaluations": [final.point.evaluations for final in finals],
        }
    )
    return table.assign(log_probability=result.likelihoods) if context.fluent else table


def _front(result: SearchResult) -> pd.DataFrame:
    """Responses that no other evaluated one beats in reward and log-probability, the best reward
    first."""
    objective = result.stages.objective
    objective = getattr(objective, "objective", objective)  # of edits, what they are made in
    if not isinstance(objective, FluentObjective):
        return pd.DataFrame()
    rows = [
        (result.sign * value, likely, *_texts(result, [ids]))
        for value, likely, ids in objective.front
    ]
    return pd.DataFrame(rows, columns=["reward", "log_probability", "text"])


def _texts(result: SearchResult, responses: list[tuple[int, ...]]) -> list[str]:
    tokenizer = result.context.model.tokenizer
    return [storable(str(tokenizer.decode(list(ids)))) for ids in responses]


def _curve_rows(result: SearchResult) -> pd.DataFrame:
    """Best reward so far against evaluations, for the search and each baseline; the last row of
    each is its budget."""
    found = result.stages.counter.curve or [result.finals[0].point]
    curves = [("search", found, result.evaluations)]
    for stage in result.stages.done:
        if stage.phase == BASELINE:
            curves.append((stage.name.removeprefix("baseline "), stage.curve, stage.evaluations))
    rows: list[tuple[str, int, float]] = []
    for method, points, evaluations in curves:
        rows += [(method, point.evaluations, point.value) for point in points]
        if points and rows[-1][1] < evaluations:
            rows.append((method, evaluations, points[-1].value))
    curve = pd.DataFrame(rows, columns=["method", "evaluations", "reward"])
    return curve.assign(reward=result.sign * curve["reward"])


def _phases(result: SearchResult) -> pd.DataFrame:
    """Evaluations and seconds of each phase; those of baselines and of one token are beyond the
    budget."""
    rows = [(stage.phase, stage.evaluations, stage.seconds) for stage in result.stages.done]
    if every := result.evaluations - result.stages.evaluations:
        rows.append((START, every, np.nan))
    phases = pd.DataFrame(rows, columns=["phase", "evaluations", "seconds"])
    order = [*SEARCH, ONE_TOKEN, BASELINE]
    sums = phases.groupby("phase").sum().reindex(order).dropna()
    return sums.astype({"evaluations": int}).reset_index()


def _neighbour_rows(result: SearchResult) -> pd.DataFrame:
    best = result.certificate.neighbours
    old = result.spelled([result.response[position] for position in best["position"]])
    new = result.spelled(best["token"]).set_axis(["neighbour", "neighbour_text"], axis=1)
    parts = [
        best["position"],
        old.reset_index(names="token_id"),
        new.reset_index(names="neighbour_id"),
        (result.sign * best["value"]).rename("reward"),
        best["margin"],
    ]
    return pd.concat(parts, axis=1)


def _quality(result: SearchResult) -> pd.DataFrame:
    """At the result, where all its single changes were tried; and, where the gradient is to be
    checked, at a random response of its length, beyond the budget."""
    context, objective, certificate = result.context, result.objective, result.certificate
    points = {}
    if certificate.evaluations > certificate.changes > 0:
        points["result"] = (torch.tensor(result.response), result.neighbour_values)
        result.stages.counter.count(GRADIENT_COST)
    if context.spec.check_gradient:
        random = torch.Generator().manual_seed(context.seed)
        length, allowed = context.spec.length, context.allowed
        [start] = random_responses(1, length=length, allowed=allowed, generator=random)
        points = {"start": (start, neighbour_values(objective, start, allowed))} | points
    parts = []
    for point, (response, values) in points.items():
        slopes, top_k = objective.gradient(response), context.spec.top_k
        parts.append(gradient_quality(values, slopes, response, top_k=top_k).assign(point=point))
    if not parts:
        return pd.DataFrame(columns=[*QUALITY, "point", "best", "allowed"])
    quality = pd.concat(parts, ignore_index=True)
    best = result.spelled(quality["best_id"])["text"].to_numpy()
    return quality.assign(best=best, allowed=quality["n"])


def _levels(result: SearchResult) -> pd.DataFrame:
    """The best of each length that the beam went through, from the best single token on, and of
    this search."""
    sign, single = result.sign, result.problem.single
    rows = []
    if single is not None and not result.context.fluent:
        rows.append((1, sign * float(single.max()), "scan", "", ""))
    for stage in result.stages.done:
        if stage.name == "beam":
            best = enumerate(stage.details["best"][1:], start=2)
            rows += [(length, sign * value, "beam", "", "") for length, value in best]
    rows.append((result.problem.length, result.reward, "search", "", result.verdict))
    return pd.DataFrame(rows, columns=["length", "reward", "what", "reference", "verdict"])


def _provenance(result: SearchResult) -> pd.DataFrame:
    context, model = result.context, result.context.model
    digests = ("weights_digest", "tokenizer_digest", "template_digest")
    row = {
        "model": model.name,
        "revision": model.revision,
        **{name: getattr(model, name)[:12] for name in digests},
        "dtype": context.dtype.value,
        "mode": context.mode.value,
        "path": context.scorer(next(iter(context.prompts)), context.dtype).path,
        "allowed": int(context.mask.sum()),
        "seed": context.seed,
    }
    return pd.DataFrame([row])


TABLES = {
    "curve": _curve_rows,
    "phases": _phases,
    "neighbours": _neighbour_rows,
    "gradient_quality": lambda result: result.quality,
    "growth": _levels,
    "ladder": checklist,
    "provenance": _provenance,
    "contexts": lambda result: in_contexts(result.context, result.text),
    "rarity": lambda result: rarity(
        result.context, result.text, token=result.response[0], single=result.problem.single
    ),
    "front": _front,
}


# --- Results.


def search_results(tables: Tables, result: SearchResult) -> list[Result]:
    """The Results of one search, the response first. Empty tables are left out."""
    tables = {name: table for name, table in tables.items() if len(table)}
    results = [
        make(tables[name], tables, result) for name, make in MAKERS.items() if name in tables
    ]
    return results + [_result(name, table) for name, table in tables.items() if name not in MAKERS]


def ahead_of(tables: Tables, result: SearchResult) -> dict[str, float]:
    """By how much the search ended better than each baseline of as many evaluations, in units of
    reward as the engine gave them; {} where none was run, where all responses were scored, and
    where the search began from what was known."""
    if "curve" not in tables or result.begun_from or result.exact:
        return {}
    curve = tables["curve"]
    spent = curve.groupby("method")["evaluations"].transform("max")
    curve = curve[spent >= _EQUAL * spent[curve["method"] == "search"].max()]
    ends = (result.sign * curve["reward"]).groupby(curve["method"], sort=False).max().to_dict()
    best = ends.pop("search")
    return {method: float(best - end) for method, end in ends.items()}


def spelling(token: str, text: str, *, limit: int = 22) -> str:
    """A token as people read it; as the vocabulary writes it where its bytes are no text by
    themselves."""
    return literal(token if not text or "\ufffd" in text else text, limit=limit)


def _best(result: SearchResult) -> str:
    return "best" if result.sign > 0 else "worst"


def _response(table: pd.DataFrame, tables: Tables, result: SearchResult) -> Result:
    """The response that was found, and those that other stages ended with."""
    winner, spec = table.iloc[0], result.context.spec
    reward = float(winner["reward"])
    polished = table["one_opt"].fillna(False).astype(bool)
    drawn = table.assign(ended=np.where(polished, "no single change is better", "not certified"))
    summary = {
        "best_reward": reward,
        "best_text": winner["text"],
        "found_by": winner["found_by"],
        "length": spec.length,
        "goal": spec.goal.value,
        "verdict": result.verdict,
        "exact": result.exact,
        "evaluations": result.evaluations,
        "survives": bool(winner["survives"]),
    }
    share, reached = float(winner["ceiling_share"]), ""
    if np.isfinite(share):
        summary |= {"ceiling": float(winner["ceiling"]), "ceiling_share": share}
        reached = f", {signed(share, 'z.0%')} of its ceiling"
    if "neighbours" in tables:
        summary["smallest_margin"] = float(tables["neighbours"]["margin"].min())
    ahead = ahead_of(tables, result)
    summary |= {BEATS[method]: by > 2 * result.noise for method, by in ahead.items()}
    quality = tables.get("gradient_quality", pd.DataFrame({"point": []}))
    # At the result no change is an improvement to be found.
    if len(at_random := quality[quality["point"] == "start"]):
        summary["gradient_within_top_k_share"] = float(at_random["within_top_k"].mean())
    notes = []
    if not winner["survives"]:
        notes.append("No text gives this response: typed, it becomes other ids.")
    if winner["start"] == "registry":
        notes.append(
            f"{winner['found_by']} held this response before; this search found none better."
        )
    some = "token" if spec.length == 1 else f"{spec.length} tokens"
    where = {"after": f"{some} behind the answer", "before": f"{some} before the answer"}
    where |= {"inside": f"{some} in the answer", "edit": f"change of at most {some} of the answer"}
    whole = "token" if spec.length == 1 else f"response of {some}"
    thing = where.get(result.context.named_slot or "", whole)
    prompts = " and ".join(list(result.context.prompts)[:2])
    if len(result.context.prompts) > 2:
        kind = "contexts" if result.context.named_slot else "prompts"
        prompts = f"{len(result.context.prompts)} {kind}"
    forest = Forest(
        data=drawn,
        row="found_by",
        estimate="reward",
        low=None,
        high=None,
        group="ended",
        reference=reward,
        xlabel="reward that each stage ended with; the line: the result",
    )
    return _result(
        "sequences",
        table,
        headline=f"The {_best(result)} {thing}{'' if result.exact else ' found'} on {prompts}: "
        f"{literal(winner['text'], limit=60)}, reward {significant(winner['reward'], digits=4)}"
        f"{reached}.",
        plot=forest if len(table) > 1 and not result.exact else None,
        weight=2.0,
        estimate=Estimate("reward", reward, result.evaluations, "evaluations"),
        notes=tuple(notes),
        summary=summary,
    )


def _checks(table: pd.DataFrame, *_) -> Result:
    """How many hold, tie, fail and were not tried; the page lists them."""
    count = table["verdict"].value_counts().reindex([HOLDS, TIE, FAILS, NOT_TRIED], fill_value=0)
    named = [f"{n} {verdict}" for verdict, n in count.items() if n]
    held, tried = int(count[HOLDS]), len(table) - int(count[NOT_TRIED])
    return _result(
        "ladder",
        table,
        headline=f"Of {len(table)} checks: {', '.join(named)}.",
        weight=weight_of(1 - held / max(tried, 1)),
        estimate=Estimate("checks that hold", held, tried, "checks tried"),
        summary={"checks_held": held},
    )


def _neighbours(table: pd.DataFrame, _tables: Tables, result: SearchResult) -> Result:
    """The best change of one token at each position."""
    tie = 2 * result.noise
    old = [spelling(row.token, row.text) for row in table.itertuples()]
    new = [spelling(row.neighbour, row.neighbour_text) for row in table.itertuples()]
    changes = zip(table["position"], old, new, strict=True)
    swaps = [f"{at}: {one} → {other}" for at, one, other in changes]
    drawn = table.assign(swap=swaps, low=table["margin"] - tie, high=table["margin"] + tie)
    place = int(table["margin"].to_numpy().argmin())
    closest = drawn.iloc[place]
    margin, low, high = (float(closest[name]) for name in ("margin", "low", "high"))
    tried = result.certificate.evaluations - 1
    how = "is worse" if margin > tie else "ties"
    return _result(
        "neighbours",
        table,
        headline=f"The closest change of one token that was tried, {new[place]} for {old[place]} "
        f"at position {closest['position']}, {how} by {significant(abs(margin), digits=3)}.",
        plot=Forest(
            data=drawn,
            row="swap",
            estimate="margin",
            xlabel="margin to the best other token (reward; ± twice the noise)",
        ),
        weight=weight_of(0.5),
        estimate=Estimate("smallest margin, reward", margin, tried, "changes", low, high),
    )


def _curve(table: pd.DataFrame, tables: Tables, result: SearchResult) -> Result:
    """The best reward so far of the search and of each baseline."""
    lines = Lines(
        x="evaluations",
        y="reward",
        group="method",
        ends=True,
        steps=True,
        log_x=True,
        xlabel="candidate evaluations",
        ylabel="best reward so far",
    )
    plot = lines if len(table) > 1 else None
    ahead = ahead_of(tables, result)
    if not ahead:
        why = "No baseline had as many evaluations, so none is compared: search.baselines=true"
        notes = () if result.exact or result.begun_from else (why,)
        return _result("curve", table, plot=plot, notes=notes)
    method = min(ahead, key=ahead.__getitem__)
    by, tie = ahead[method], 2 * result.noise
    verb = "is ahead of" if by > tie else "is BEHIND" if by < -tie else "ties with"
    spent = table.groupby("method")["evaluations"].max()
    dtype = result.context.dtype.value
    rounding = f"Rewards of the curve are in {dtype}: differences within its rounding mean nothing."
    return _result(
        "curve",
        table,
        headline=f"On one seed the search {verb} its strongest baseline, {method} (by "
        f"{significant(abs(by), digits=3)}), at {spent[method]:,} evaluations each.",
        plot=plot,
        weight=weight_of(0.8 if by < -tie else 0.4),
        estimate=Estimate(AHEAD, by, 1, "seeds", by - tie, by + tie),
        notes=() if dtype == "float32" else (rounding,),
    )


def _growth(table: pd.DataFrame, _tables: Tables, result: SearchResult) -> Result:
    """How the best reward grows with the number of tokens, where more than one length is known."""
    sign = result.sign
    best = sign * (sign * table["reward"]).groupby(table["length"]).max()
    if len(best) < 2:
        return _result("growth", table)
    first, last = (significant(value, digits=4) for value in (best.iloc[0], best.iloc[-1]))
    which = _best(result)
    return _result(
        "growth",
        table,
        headline=f"From {best.index[0]} to {best.index[-1]} tokens the {which} reward found goes "
        f"from {first} to {last}.",
        plot=Lines(
            x="length",
            y="reward",
            group="what",
            marks=True,
            ends=True,
            xlabel="tokens in the response",
            ylabel=f"{which} reward found",
        ),
        weight=weight_of(0.3),
        estimate=Estimate(
            "reward gained", float(best.iloc[-1] - best.iloc[0]), len(best), "lengths"
        ),
    )


def _gradient(table: pd.DataFrame, *_) -> Result:
    """How the gradient ranks the truly best change of each position."""
    drawn = table.assign(
        share=table["gradient_rank"] / table["n"],
        place="position " + table["position"].astype(str),
        at=table["point"].map({"start": "a random response", "result": "the result"}),
    )
    plot = Forest(
        data=drawn,
        row="place",
        estimate="share",
        low=None,
        high=None,
        group="at",
        reference=0.5,
        xlabel="rank by gradient of the truly best token, share of the vocabulary (line: chance)",
    )
    checked = (table["point"] == "start").any()
    return _result("gradient_quality", table, plot=plot if checked else None)


def _front_result(table: pd.DataFrame, _tables: Tables, result: SearchResult) -> Result:
    """Reward against log-probability, where each can only be had for the other."""
    reach = f"{significant(table['reward'].iloc[-1], digits=3)} to "
    reach += significant(table["reward"].iloc[0], digits=3)
    lines = Lines(
        x="log_probability",
        y="reward",
        marks=True,
        steps=True,
        xlabel="log-probability by the policy, nats",
        ylabel="reward",
    )
    return _result(
        "front",
        table,
        headline=f"{len(table)} responses are the front of reward and log-probability: rewards of "
        f"{reach}.",
        plot=lines if len(table) > 1 else None,
        weight=weight_of(0.5),
    )


MAKERS: dict[str, Callable[..., Result]] = {
    "sequences": _response,
    "ladder": _checks,
    "neighbours": _neighbours,
    "curve": _curve,
    "growth": _growth,
    "gradient_quality": _gradient,
    "contexts": lambda table, _, result: contexts_result(
        table, sign=result.sign, survives=bool(result.tables["sequences"]["survives"][0])
    ),
    "rarity": lambda table, _, result: rarity_result(
        table, result.context.policy.name if result.context.policy else ""
    ),
    "front": _front_result,
}  # in the order of the page
