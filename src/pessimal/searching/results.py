"""The result of a search: its tables, the claims that hold of it, and its Results, the response
first.

Each claim holds, ties, fails or was not tried, with its limit. `noise` is the bound on one reward's
numerical error, everywhere: two rewards within twice of it are tied. Does not know registries or
W&B.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from pessimal.plots import Forest, Lines
from pessimal.searching.climb import SWEEPS
from pessimal.searching.context import NEIGHBOURS
from pessimal.searching.elsewhere import contexts_result, contexts_table
from pessimal.searching.exact import Certificate
from pessimal.searching.procedure import BASELINE, Final, Problem, Stages
from pessimal.searching.spec import Method
from pessimal.tables.result import Estimate, Result, Results, weight_of
from pessimal.texts import literal, signed, significant

if TYPE_CHECKING:
    from pessimal.searching.context import SearchContext

_result = partial(Result, method="search")
Tables = Mapping[str, pd.DataFrame]
# A baseline that cannot use the last few evaluations has had an equal budget.
_EQUAL = 0.9
AHEAD = f"reward ahead of {BASELINE}"
HOLDS, TIE, FAILS, NOT_TRIED = "holds", "tie", "fails", "not tried"
# Up to so many responses, a budget that pays for all of them is offered.
_OFFERED = 10_000_000
ALL_SCORED = "every response was scored or ruled out"
CHECKS = {
    ALL_SCORED: "Where all were, the best is the best of all. Otherwise it is the best found: a "
    "response whose tokens do well only together may be better and be missed.",
    "no single change is better": "Where it holds, every allowed token was tried at each position, "
    "in float32. Two changes at once may be better.",
    "several starts end at this response": "Where sweeps bring no more. Where several do, a better "
    "response is less likely, never excluded.",
    "scored again by the model's own forward": "One input, no cache, float32. The margin must "
    "exceed the drift of both, else the two responses are tied.",
    "a text gives this response": "ids → text → template → ids in the whole conversation. Where it "
    "fails, no text typed by a person gets this reward; mode=text searches those that do.",
    "better than random changes at equal budgets": "Equal is not better: such a search found no "
    "more than the baseline did with as many candidate evaluations.",
}
"""Each claim, and what it says and does not."""


@dataclass
class SearchResult:
    """The result of a search, and all that is known when it is over."""

    context: "SearchContext"
    stages: Stages
    problem: Problem
    finals: list[Final]
    """The best by its own reward first."""
    own_values: np.ndarray
    """float64 (n,): what is searched, of the finals, by the models' own forwards in float32."""
    certificate: Certificate
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
        self.evaluations = self.stages.evaluations
        """Evaluations of the whole search, certificate included; not of its baselines."""
        self.begun_from = ", ".join(self.problem.warm_starts.values())
        """The references of earlier results that it began from."""
        self.bounds = self.context.bounds
        self.ceiling = self.bounds.high if self.sign > 0 else self.bounds.low
        """The best that any response of any length can have; infinite where no bound is known."""
        self.stages.on_begin("tables")
        candidates = _candidates(self)
        self.text = candidates["text"][0]
        self.tables |= {"result": _outcome(self, candidates), "curve": _curve_rows(self)}
        self.tables |= {"candidates": candidates, "certificate": _neighbours(self)}
        self.tables["checks"] = checklist(self)
        self.tables["contexts"] = contexts_table(self.context, self.text)

    def __repr__(self) -> str:
        return f"<SearchResult: {self.results[0].headline}>"

    def spelled(self, ids: Iterable[int]) -> list[str]:
        """The tokens, or changes of the answer, of the ids of a response, as people read them."""
        rows = self.context.vocabulary.rows.set_index("candidate_id")[["token", "text"]]
        if self.context.edits is not None:
            return [self.context.edits.describe_change(change, rows["text"]) for change in ids]
        return [spelling(row.token, row.text) for row in rows.loc[list(ids)].itertuples()]

    @property
    def results(self) -> Results:
        """The Results, the response first."""
        return Results(search_results(self.tables, self))


# --- Tables.


def checklist(result: SearchResult) -> pd.DataFrame:
    """One row a claim: check, measured, verdict (holds, tie, fails, not tried), meaning."""
    problem, certificate, exact = result.problem, result.certificate, result.exact
    stages, noise, margin = result.stages, result.noise, certificate.smallest_margin
    baseline = stages.stage(BASELINE)
    sweeps, needs = stages.stage(SWEEPS), problem.responses + problem.changes + 10 * NEIGHBOURS
    bounds: dict[str, Any] = {"noise": noise, "exact": exact}
    verdicts = (
        all_responses(
            problem.responses,
            scored=exact,
            needs=None if result.context.spec.method is Method.gcg else needs,
            forwards=stages.proof.details["forwards"] if stages.proof else None,
        ),
        one_opt(
            certificate.verdict,
            tried=certificate.evaluations - 1,
            of=certificate.changes,
            margin=margin,
            **bounds,
        ),
        spread(sweeps.details["ends"] if sweeps else [], **bounds),
        scored_again(abs(result.own_values[0] - certificate.value), margin),
        (HOLDS, "yes") if result.tables["result"]["survives"][0] else (FAILS, "no"),
        beats(
            stages.best - baseline.curve[-1].value if baseline and baseline.curve else None,
            budget=baseline.evaluations if baseline else 0,
            spent=result.evaluations,
            begun_from=result.begun_from,
            **bounds,
        ),
    )
    table = pd.DataFrame(verdicts, columns=["verdict", "measured"])
    table = table.assign(check=CHECKS.keys(), meaning=CHECKS.values())
    return table[["check", "measured", "verdict", "meaning"]]


def _candidates(result: SearchResult) -> pd.DataFrame:
    """The responses that stages ended with, the best first."""
    context, finals = result.context, result.finals
    responses = torch.tensor([final.point.response for final in finals])
    table = pd.DataFrame(
        {
            "found_by": [final.found_by for final in finals],
            "start": [final.start for final in finals],
            "token_ids": [json.dumps(response) for response in responses.tolist()],
            "text": context.round_trip.text_of(responses),
            "reward": result.own_rewards,
            "survives": context.round_trip(responses).tolist(),
            "one_opt": pd.array([final.one_opt for final in finals], dtype="boolean"),
            "evaluations": [final.point.evaluations for final in finals],
        }
    )
    return table.assign(log_probability=result.likelihoods) if context.fluent else table


def _outcome(result: SearchResult, candidates: pd.DataFrame) -> pd.DataFrame:
    """The best of the candidates, in one row."""
    return candidates.head(1).assign(
        tokens=json.dumps(result.spelled(result.response), ensure_ascii=False),
        ceiling=result.ceiling if np.isfinite(result.ceiling) else np.nan,
        ceiling_share=result.sign * result.bounds.share(result.reward),
    )


def _curve_rows(result: SearchResult) -> pd.DataFrame:
    """Best reward so far against evaluations, for the search and each baseline; the last row of
    each is its budget."""
    points = result.stages.counter.curve or [result.finals[0].point]
    curves = [("search", points, result.evaluations)]
    curves += [(s.name, s.curve, s.evaluations) for s in result.stages.done if s.baseline]
    rows: list[tuple[str, int, float]] = []
    for method, points, evaluations in curves:
        rows += [(method, point.evaluations, point.value) for point in points]
        if points and rows[-1][1] < evaluations:
            rows.append((method, evaluations, points[-1].value))
    curve = pd.DataFrame(rows, columns=["method", "evaluations", "reward"])
    return curve.assign(reward=result.sign * curve["reward"])


def _neighbours(result: SearchResult) -> pd.DataFrame:
    """The best change of one token at each position, where some were tried."""
    best = result.certificate.neighbours
    return pd.DataFrame(
        {
            "position": best["position"],
            "token": result.spelled(result.response[position] for position in best["position"]),
            "neighbour": result.spelled(best["token"]),
            "neighbour_id": best["token"],
            "reward": result.sign * best["value"],
            "margin": best["margin"],
        }
    )


# --- Claims.


def all_responses(
    responses: int, *, scored: bool, needs: int | None, forwards: int | None = None
) -> tuple[str, str]:
    """Were all responses of this length scored? `needs`: a budget that pays for all and for the
    certificate, None where none does; `forwards`: those of best-first search that rule all others
    out."""
    if scored and forwards is not None:
        return HOLDS, f"{forwards:,} forwards rule out all others of {responses:.0e}"
    if scored:
        return HOLDS, f"all {responses:,}"
    measured = f"{responses:,} responses" if responses < 10**12 else f"{responses:.0e} responses"
    if needs is not None and responses <= _OFFERED:
        measured += f"; search.evaluations={needs} scores all"
    return NOT_TRIED, measured


def one_opt(
    verdict: str, *, tried: int, of: int, margin: float, noise: float, exact: bool
) -> tuple[str, str]:
    """The outcome of the certificate, and the number of single changes tried."""
    if not tried and exact:
        return HOLDS, ALL_SCORED
    if not tried:
        return NOT_TRIED, f"0 of {of:,} changes tried; search.certificate=rest tries them"
    share = f"all {of:,}" if tried == of else f"{tried:,} of {of:,} ({tried / of:.1%})"
    measured = f"{verdict}: {share} changes tried; smallest margin {margin:.3g} (noise {noise:.2g})"
    verdicts = {"1-opt": HOLDS, "tie": TIE, "partly tried": NOT_TRIED}
    return verdicts.get(verdict, FAILS), measured


def spread(values: Sequence[float], *, noise: float, exact: bool) -> tuple[str, str]:
    """The number of climbs that end at the best value."""
    if exact or len(values) < 2:
        return NOT_TRIED, ALL_SCORED if exact else f"{len(values)} ended within the budget"
    best = max(values)
    reached = sum(value >= best - 2 * noise for value in values)
    measured = f"{reached} of {len(values)}"
    if reached < len(values):
        measured += f"; the others fall short by up to {best - min(values):.3g}"
    return HOLDS if reached > 1 else FAILS, measured


def scored_again(drift: float, margin: float) -> tuple[str, str]:
    """The result's reward by the model's own forward, float32, batch 1, no cache."""
    measured = f"differs by {drift:.2g}; margin to the best neighbour {margin:.3g}"
    return HOLDS if margin > 2 * drift else TIE, measured


def beats(
    ahead: float | None, *, budget: int, spent: int, noise: float, exact: bool, begun_from: str = ""
) -> tuple[str, str]:
    """Lead of the search's best after `spent` evaluations over the baseline's after `budget`, if
    one was run. A search that began from what is known (`begun_from`) is compared with nothing."""
    if exact:
        return NOT_TRIED, ALL_SCORED
    if begun_from:
        return NOT_TRIED, f"it began from {begun_from}; search.from_registry=false compares"
    if ahead is None:
        return NOT_TRIED, "search.baselines=true runs it"
    measured = f"ahead of {BASELINE} {ahead:+.3g}; {budget:,} evaluations"
    if ahead < -2 * noise:
        return FAILS, measured
    if budget < spent:
        more = f"the search {spent:,}: search.baselines=true gives it as many"
        return NOT_TRIED, f"{measured}, {more}"
    return HOLDS if ahead > 2 * noise else TIE, measured


# --- Results.


def search_results(tables: Tables, result: SearchResult) -> list[Result]:
    """The Results of one search, the response first. Empty tables are left out."""
    tables = {name: table for name, table in tables.items() if len(table)}
    survives = bool(tables["result"]["survives"].iloc[0])
    makers = {
        "result": lambda table: _response(table, tables, result),
        "checks": _checks,
        "certificate": lambda table: _certificate(table, result),
        "curve": lambda table: _curve(table, result),
        "candidates": lambda table: _result("candidates", table),
        "contexts": lambda table: contexts_result(table, sign=result.sign, survives=survives),
    }
    return [make(tables[name]) for name, make in makers.items() if name in tables]


def ahead_of(curve: pd.DataFrame, result: SearchResult) -> float | None:
    """By how much the search ended better than the baseline of as many evaluations, in units of
    reward as the engine gave them; None where none was run, where all responses were scored, and
    where the search began from what was known."""
    ends = curve.groupby("method").last()
    if result.begun_from or result.exact or BASELINE not in ends.index:
        return None
    search, baseline = ends.loc["search"], ends.loc[BASELINE]
    if baseline["evaluations"] < _EQUAL * search["evaluations"]:
        return None
    return float(result.sign * (search["reward"] - baseline["reward"]))


def spelling(token: str, text: str, *, limit: int = 22) -> str:
    """A token as people read it; as the vocabulary writes it where its bytes are no text by
    themselves."""
    return literal(token if not text or "\ufffd" in text else text, limit=limit)


def _response(table: pd.DataFrame, tables: Tables, result: SearchResult) -> Result:
    """The response that was found, beside those that other stages ended with."""
    winner, spec = table.iloc[0], result.context.spec
    reward = float(winner["reward"])
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
    if "certificate" in tables:
        summary["smallest_margin"] = float(tables["certificate"]["margin"].min())
    if (ahead := ahead_of(tables["curve"], result)) is not None:
        summary["beats_random"] = ahead > 2 * result.noise
    notes = []
    if not winner["survives"]:
        notes.append("No text gives this response: typed, it becomes other ids.")
    if winner["start"] == "registry":
        notes.append(
            f"{winner['found_by']} held this response before; this search found none better."
        )
    candidates = tables["candidates"]
    certified = candidates["one_opt"].fillna(False).astype(bool)
    ended = np.where(certified, "no single change is better", "not certified")
    forest = Forest(
        data=candidates.assign(ended=ended),
        row="found_by",
        estimate="reward",
        low=None,
        high=None,
        group="ended",
        reference=reward,
        xlabel="reward that each stage ended with; the line: the result",
    )
    best = "best" if result.sign > 0 else "worst"
    return _result(
        "result",
        table,
        headline=f"The {best} {_thing(result)}{'' if result.exact else ' found'} on "
        f"{_prompts(result)}: {literal(winner['text'], limit=60)}, reward "
        f"{significant(reward, digits=4)}{reached}.",
        plot=forest if len(candidates) > 1 and not result.exact else None,
        weight=2.0,
        estimate=Estimate("reward", reward, result.evaluations, "evaluations"),
        notes=tuple(notes),
        summary=summary,
    )


def _thing(result: SearchResult) -> str:
    """A response of so many tokens, in words, and where it stands."""
    length = result.context.spec.length
    some = "token" if length == 1 else f"{length} tokens"
    where = {"after": f"{some} behind the answer", "before": f"{some} before the answer"}
    where |= {"inside": f"{some} in the answer", "edit": f"change of at most {some} of the answer"}
    whole = "token" if length == 1 else f"response of {some}"
    return where.get(result.context.named_slot or "", whole)


def _prompts(result: SearchResult) -> str:
    """The prompts that were searched, in words."""
    keys = list(result.context.prompts)
    kind = "contexts" if result.context.named_slot else "prompts"
    return " and ".join(keys) if len(keys) < 3 else f"{len(keys)} {kind}"


def _checks(table: pd.DataFrame) -> Result:
    """Counts of checks that hold, tie, fail and were not tried; the page lists them."""
    count = table["verdict"].value_counts().reindex([HOLDS, TIE, FAILS, NOT_TRIED], fill_value=0)
    counts = [f"{n} {verdict}" for verdict, n in count.items() if n]
    held, tried = int(count[HOLDS]), len(table) - int(count[NOT_TRIED])
    return _result(
        "checks",
        table,
        headline=f"Of {len(table)} checks: {', '.join(counts)}.",
        weight=weight_of(1 - held / max(tried, 1)),
        estimate=Estimate("checks that hold", held, tried, "checks tried"),
        summary={"checks_held": held},
    )


def _certificate(table: pd.DataFrame, result: SearchResult) -> Result:
    """The best change of one token at each position."""
    tie = 2 * result.noise
    swaps = [f"{row.position}: {row.token} → {row.neighbour}" for row in table.itertuples()]
    rows = table.assign(swap=swaps, low=table["margin"] - tie, high=table["margin"] + tie)
    closest = rows.iloc[int(table["margin"].to_numpy().argmin())]
    margin, low, high = (float(closest[name]) for name in ("margin", "low", "high"))
    tried = result.certificate.evaluations - 1
    how = "is worse" if margin > tie else "ties"
    return _result(
        "certificate",
        table,
        headline=f"The closest change of one token that was tried, {closest['neighbour']} for "
        f"{closest['token']} at position {closest['position']}, {how} by "
        f"{significant(abs(margin), digits=3)}.",
        plot=Forest(
            data=rows,
            row="swap",
            estimate="margin",
            xlabel="margin to the best other token (reward; ± twice the noise)",
        ),
        weight=weight_of(0.5),
        estimate=Estimate("smallest margin, reward", margin, tried, "changes", low, high),
    )


def _curve(table: pd.DataFrame, result: SearchResult) -> Result:
    """The best reward so far of the search and of the baseline."""
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
    bare = _result("curve", table, plot=lines if len(table) > 1 else None)
    ahead = ahead_of(table, result)
    if ahead is None:
        note = "No baseline had as many evaluations, so none is compared: search.baselines=true"
        return replace(bare, notes=() if result.exact or result.begun_from else (note,))
    tie = 2 * result.noise
    verb = "is ahead of" if ahead > tie else "trails" if ahead < -tie else "ties with"
    dtype = result.context.dtype.value
    rounding = f"Rewards of the curve are in {dtype}: differences within its rounding mean nothing."
    return replace(
        bare,
        headline=f"On one seed the search {verb} {BASELINE} (by "
        f"{significant(abs(ahead), digits=3)}), at as many evaluations.",
        weight=weight_of(0.8 if ahead < -tie else 0.4),
        estimate=Estimate(AHEAD, ahead, 1, "seeds", ahead - tie, ahead + tie),
        notes=() if dtype == "float32" else (rounding,),
    )
