"""The tables of one search, and its Results: the response, the checklist, its neighbours, its curve against the baselines.

Knows what a search ended with. Does not know registries or W&B; the verb adds other lengths to `growth`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch

from pessimal.plots import Forest, Lines, TokenTable
from pessimal.search.checks import FAILS, HOLDS, NOT_TRIED, TIE, Check
from pessimal.search.exact import gradient_quality, neighbour_values
from pessimal.search.gcg import random_responses
from pessimal.search.procedure import BASELINE, BASELINES, SEARCH
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.texts import literal, significant

if TYPE_CHECKING:
    from pessimal.search.context import SearchContext
    from pessimal.search.exhaustive import ExhaustivePairs
    from pessimal.search.run import Ending, Found

METHOD = "search"
BEATS = {name: f"beats_{name.removesuffix(' search').replace(' ', '_')}" for name in BASELINES}
"""Keys of the summary, by baseline."""
UNREADABLE = "\ufffd"


@dataclass(frozen=True)
class About:
    """What a search was and how precise its numbers are."""

    model: str
    prompts: Sequence[str]
    """Keys of the prompts whose mean reward was searched."""
    goal: str
    """optimal or pessimal."""
    length: int
    """Tokens of the response."""
    mode: str
    """ids, or text: only responses that a text gives."""
    allowed: int
    """Tokens that a response may be made of."""
    evaluations: int
    """Of candidates, by the search; its certificate and its baselines are not among them."""
    noise: float
    """Bound on the numerical error of one reward; two rewards within twice of it are tied."""
    verdict: str
    """Of the certificate: 1-opt or tie."""
    dtype: str
    """Precision that was searched in."""
    exact: bool
    """Whether every allowed response was scored."""
    begun_from: str = ""
    """What the registry held and it began from."""

    @property
    def best(self) -> str:
        return "best" if self.goal == "optimal" else "worst"

    @property
    def sign(self) -> int:
        return 1 if self.goal == "optimal" else -1

    @property
    def thing(self) -> str:
        return "token" if self.length == 1 else f"response of {self.length} tokens"


# --- Tables.


def tables_of(ending: "Ending", checks: Sequence[Check]) -> tuple[dict[str, pd.DataFrame], About]:
    """The tables by the names that they have in the artifact, and what the search was."""
    context, certificate = ending.context, ending.certificate
    tables = {
        "sequences": _sequences(ending),
        "curve": _curve_rows(ending),
        "phases": _phases(ending),
        "neighbours": _neighbour_rows(ending),
        "gradient_quality": _quality(ending),
        "growth": _levels(ending),
        "ladder": pd.DataFrame(map(vars, checks)),
        "provenance": _provenance(ending),
    }
    about = About(
        model=context.model.name,
        prompts=list(context.prompts),
        goal=context.spec.goal.value,
        length=context.spec.length,
        mode=context.mode.value,
        allowed=ending.problem.tokens,
        evaluations=ending.stages.evaluations() + ending.problem.single_evaluations,
        noise=certificate.noise,
        verdict=certificate.verdict,
        dtype=context.dtype.value,
        exact=ending.exact,
        begun_from=", ".join(ending.problem.known.values()),
    )
    return tables, about


def _sequences(ending: "Ending") -> pd.DataFrame:
    context, finals, sign = ending.context, ending.finals, ending.context.spec.goal.sign
    tokens = context.vocabulary.rows.set_index("candidate_id")["token"]
    responses = torch.tensor([final.point.response for final in finals])
    return pd.DataFrame(
        {
            "rank": range(1, len(finals) + 1),
            "restart": [final.restart for final in finals],
            "start": [final.start for final in finals],
            "found_by": [final.found_by for final in finals],
            "token_ids": responses.tolist(),
            "tokens": [[tokens[i] for i in response] for response in responses.tolist()],
            "text": context.round_trip.text_of(responses),
            "reward": ending.own,
            "search_reward": [sign * final.point.value for final in finals],
            "survives": context.round_trip(responses).tolist(),
            "one_opt": pd.array([final.one_opt for final in finals], dtype="boolean"),
            "evaluations": [final.point.evaluations for final in finals],
        }
    )


def _curve_rows(ending: "Ending") -> pd.DataFrame:
    """Best reward so far against evaluations, for the search and each baseline; the last row of each is its budget."""
    rows, sign = [], ending.context.spec.goal.sign

    def add(method: str, points: list, evaluations: int, before: int = 0) -> None:
        rows.extend((method, before + point.evaluations, sign * point.value) for point in points)
        if points and before + points[-1].evaluations < evaluations:
            rows.append((method, evaluations, sign * points[-1].value))

    stages, before = ending.stages, ending.problem.single_evaluations
    if ending.problem.length == 1:
        rows.append(("search", ending.problem.tokens, sign * ending.finals[0].point.value))
    else:
        add("search", stages.curve(), before + stages.evaluations(), before)
    for stage in stages.done:
        if stage.phase == BASELINE:
            add(stage.name.removeprefix("baseline "), stage.curve, stage.evaluations)
    return pd.DataFrame(rows, columns=["method", "evaluations", "reward"])


def _phases(ending: "Ending") -> pd.DataFrame:
    """Evaluations and seconds of each phase; only those of the search count to its budget."""
    rows = [("start", ending.problem.single_evaluations, 0.0)]
    rows += [(s.phase, s.evaluations, s.seconds) for s in ending.stages.done if s.phase in SEARCH]
    rows.append(("certificate", ending.certificate_evaluations, ending.certificate_seconds))
    rows += [(s.phase, s.evaluations, s.seconds) for s in ending.stages.done if s.phase not in SEARCH]
    phases = pd.DataFrame(rows, columns=["phase", "evaluations", "seconds"])
    return phases.groupby("phase", sort=False).sum().reset_index()


def _neighbour_rows(ending: "Ending") -> pd.DataFrame:
    names = ending.context.vocabulary.rows.set_index("candidate_id")[["token", "text"]]
    response, sign = ending.finals[0].point.response, ending.context.spec.goal.sign
    return pd.DataFrame(
        [
            {
                "position": neighbour.position,
                "token_id": (old := response[neighbour.position]),
                "token": names.loc[old, "token"],
                "text": names.loc[old, "text"],
                "neighbour_id": neighbour.token,
                "neighbour": names.loc[neighbour.token, "token"],
                "neighbour_text": names.loc[neighbour.token, "text"],
                "reward": sign * neighbour.value,
                "margin": neighbour.margin,
            }
            for neighbour in ending.certificate.neighbours
        ]
    )


def _quality(ending: "Ending") -> pd.DataFrame:
    """At the result; and, where the gradient is to be checked, at a random response of its length."""
    context, objective = ending.context, ending.objective
    result = torch.tensor(ending.finals[0].point.response)
    points = {"result": (result, ending.neighbour_values)}
    if context.spec.check_gradient:
        random = torch.Generator().manual_seed(context.seed)
        [start] = random_responses(1, length=context.spec.length, allowed=context.allowed, generator=random)
        points = {"start": (start, neighbour_values(objective, start, context.allowed))} | points
    parts = [
        gradient_quality(values, objective.gradient(response), response, top_k=context.spec.top_k).assign(point=point)
        for point, (response, values) in points.items()
    ]  # fmt: skip
    quality = pd.concat(parts, ignore_index=True)
    texts = context.vocabulary.rows.set_index("candidate_id")["text"]
    return quality.assign(best=quality["best_id"].map(texts), allowed=quality["n"])


def _levels(ending: "Ending") -> pd.DataFrame:
    """The best of each length that the beam went through, from the best single token on, and of this search."""
    sign, single, length = ending.context.spec.goal.sign, ending.problem.single, ending.problem.length
    rows = [(1, sign * float(single.max()), "scan", "", "")] if single is not None else []
    for stage in ending.stages.done:
        if stage.name == "beam":
            levels = stage.details["levels"][1:]
            rows += [(level["length"], sign * level["value"], "beam", "", "") for level in levels]
    rows.append((length, float(ending.own[0]), "search", "", ending.certificate.verdict))
    return pd.DataFrame(rows, columns=["length", "reward", "what", "reference", "verdict"])


def _provenance(ending: "Ending") -> pd.DataFrame:
    context, model = ending.context, ending.context.model
    return pd.DataFrame(
        [
            {
                "model": model.name,
                "revision": model.revision,
                "weights_digest": model.weights_digest[:12],
                "tokenizer_digest": model.tokenizer_digest[:12],
                "template_digest": model.template_digest[:12],
                "dtype": context.dtype.value,
                "mode": context.mode.value,
                "path": context.scorer(next(iter(context.prompts)), context.dtype).path,
                "allowed": int(context.mask.sum()),
                "seed": context.seed,
            }
        ]
    )


def pair_tables(
    context: "SearchContext", pairs: "ExhaustivePairs", found: "Found"
) -> dict[str, pd.DataFrame]:
    """Both ends of all pairs, every token's own, all rewards, and where the best of each other stage stands among them."""
    texts = context.vocabulary.rows.set_index("candidate_id")["text"]
    sign, noise = found.about.sign, found.about.noise

    def named(ends: pd.DataFrame) -> pd.DataFrame:
        responses = responses_of(ends)
        return pd.DataFrame(
            {
                "rank": ends["rank"],
                "first_id": ends["first"],
                "second_id": ends["second"],
                "first": ends["first"].map(texts),
                "second": ends["second"].map(texts),
                "text": context.round_trip.text_of(responses),
                "reward": ends["reward"],
                "survives": context.round_trip(responses).tolist(),
            }
        )

    def better(reward: float) -> tuple[int, int]:
        """How many pairs are better than one with this reward, which another batch gave: it may err by the noise."""
        least, most = pairs.above(reward + noise)[0], pairs.above(reward - noise)[1]
        return (least, most) if sign > 0 else (pairs.pairs - most, pairs.pairs - least)

    ranks = (pairs.top if sign > 0 else pairs.bottom).set_index(["first", "second"])["rank"]
    rows = []
    for stage, value, response in found.ways:
        known = response in ranks.index
        least, most = [int(ranks.loc[response]) - 1] * 2 if known else better(sign * value)
        name = {"pairs": "pruned pairs"}.get(stage, stage.replace("restart", "gradient, start"))
        [pair] = context.round_trip.text_of(torch.tensor([response]))
        rows.append((name, pair, sign * value, 1 + least, 1 + most, pairs.pairs))
    return {
        "top_pairs": named(pairs.top),
        "bottom_pairs": named(pairs.bottom),
        "per_first": pairs.per_first,
        "per_second": pairs.per_second,
        "histogram": pairs.histogram,
        "standing": pd.DataFrame(rows, columns=["result", "pair", "reward", "rank", "rank_most", "of"]),
    }


def responses_of(ends: pd.DataFrame) -> torch.Tensor:
    return torch.from_numpy(ends[["first", "second"]].to_numpy().astype(np.int64))


# --- Results.


def search_results(tables: Mapping[str, pd.DataFrame], about: About) -> list[Result]:
    """The Results of one search, the response first.

    Args:
        tables: as `tables_of` gives them; and of an exhaustive search `histogram`, `standing`, `top_pairs`,
            `bottom_pairs`, `per_first`, `per_second`. Empty ones are left out.
        about: the search.
    """
    tables = {name: flat(table) for name, table in tables.items() if len(table)}
    ahead = ahead_of(tables.get("curve"), about)
    makers = {
        "sequences": lambda table: _response(table, tables, about, ahead),
        "ladder": _checks,
        "neighbours": lambda table: _neighbours(table, about),
        "curve": lambda table: _curve(table, about, ahead),
        "growth": lambda table: _growth(table, about),
        "gradient_quality": _gradient,
        "standing": lambda table: _standing(table, about),
        "histogram": _histogram,
        "top_pairs": lambda table: _pairs("top_pairs", table, about),
        "bottom_pairs": lambda table: _pairs("bottom_pairs", table, about),
    }
    rest = [Result(name, table, method=METHOD) for name, table in tables.items() if name not in makers]
    return [make(tables[name]) for name, make in makers.items() if name in tables] + rest


def ahead_of(curve: pd.DataFrame | None, about: About) -> dict[str, float]:
    """By how much the search ended better than each baseline, in units of reward as the engine gave them; {} where none
    was run, and where the search began from what was known."""
    if curve is None or about.begun_from:
        return {}
    ends = (about.sign * curve["reward"]).groupby(curve["method"], sort=False).max()
    return {method: float(ends["search"] - end) for method, end in ends.items() if method != "search"}


def flat(table: pd.DataFrame) -> pd.DataFrame:
    """Lists as JSON, which every reader of a table can show."""
    lists = [name for name in table if table[name].map(lambda value: isinstance(value, (list, tuple))).any()]
    return table.assign(
        **{name: [json.dumps(list(value), ensure_ascii=False) for value in table[name]] for name in lists}
    )


def spelling(token: str, text: str, *, limit: int = 22) -> str:
    """A token as people read it; as the vocabulary writes it where its bytes are no text by themselves."""
    return literal(token if not text or UNREADABLE in text else text, limit=limit)


def _response(
    table: pd.DataFrame, tables: Mapping[str, pd.DataFrame], about: About, ahead: Mapping[str, float]
) -> Result:
    """The response that was found, and those that other stages ended with."""
    winner = table.iloc[0]
    polished = table["one_opt"].fillna(False).astype(bool)
    kept = table.assign(ended=np.where(polished, "no single change is better", "not polished"))
    found = "" if about.exact else " found"
    summary = {
        "best_reward": float(winner["reward"]),
        "best_text": winner["text"],
        "found_by": winner["found_by"],
        "length": about.length,
        "goal": about.goal,
        "verdict": about.verdict,
        "exact": about.exact,
        "evaluations": int(about.evaluations),
        "survives": bool(winner["survives"]),
    }
    if "neighbours" in tables:
        summary["smallest_margin"] = float(tables["neighbours"]["margin"].min())
    summary |= {BEATS[method]: bool(by > 2 * about.noise) for method, by in ahead.items() if method in BEATS}
    if "gradient_quality" in tables and len(rows := _at_random(tables["gradient_quality"])):
        summary["gradient_within_top_k_share"] = float(rows["within_top_k"].mean())
    notes = [] if winner["survives"] else ["No text gives this response: typed, it becomes other ids."]
    if winner["start"] == "registry":
        notes.append(f"{winner['found_by']} held this response before; this search found none better.")
    return Result(
        "sequences",
        table,
        headline=f"The {about.best} {about.thing}{found} on {' and '.join(about.prompts[:2])}: "
        f"{literal(winner['text'], limit=60)}, reward {significant(winner['reward'], digits=4)}.",
        plot=Forest(
            data=kept, row="found_by", estimate="reward", low=None, high=None, group="ended",
            reference=float(winner["reward"]), xlabel=f"reward that each stage ended with; the line: {about.best} found",
        ) if len(table) > 1 and not about.exact else None,
        method=METHOD,
        weight=2.0,
        estimate=Estimate("reward", float(winner["reward"]), int(about.evaluations), "evaluations"),
        notes=tuple(notes),
        summary=summary,
    )  # fmt: skip


def _checks(table: pd.DataFrame) -> Result:
    """How many hold, tie, fail and were not tried; the page lists them."""
    count = table["verdict"].value_counts()
    named = {
        verdict: f"{count[verdict]} {verdict}"
        for verdict in (HOLDS, TIE, FAILS, NOT_TRIED)
        if verdict in count
    }
    held, tried = int(count.get(HOLDS, 0)), len(table) - int(count.get(NOT_TRIED, 0))
    return Result(
        "ladder",
        table,
        headline=f"Of {len(table)} checks: {', '.join(named.values())}.",
        method=METHOD,
        weight=weight_of(1 - held / max(tried, 1)),
        estimate=Estimate("checks that hold", held, tried, "checks tried"),
        summary={"checks_held": held},
    )


def _neighbours(table: pd.DataFrame, about: About) -> Result:
    """The best change of one token at each position."""
    tie = 2 * about.noise
    old = [spelling(row.token, row.text) for row in table.itertuples()]
    new = [spelling(row.neighbour, row.neighbour_text) for row in table.itertuples()]
    swaps = [f"{at}: {one} → {other}" for at, one, other in zip(table["position"], old, new, strict=True)]
    drawn = table.assign(swap=swaps, low=table["margin"] - tie, high=table["margin"] + tie)
    place = int(table["margin"].to_numpy().argmin())
    closest = table.iloc[place]
    margin = float(closest["margin"])
    how = "is worse" if margin > tie else "is BETTER" if margin < -tie else "ties"
    return Result(
        "neighbours",
        table,
        headline=f"The closest change of one token, {new[place]} for {old[place]} at position {closest['position']}, "
        f"{how} by {significant(abs(margin), digits=3)}.",
        plot=Forest(
            data=drawn, row="swap", estimate="margin",
            xlabel="margin to the best other token (reward; ± twice the noise)",
        ),
        method=METHOD,
        weight=weight_of(0.5),
        estimate=Estimate(
            "smallest margin, reward", margin, about.allowed * len(table), "changes",
            float(drawn["low"].iloc[place]), float(drawn["high"].iloc[place]),
        ),
    )  # fmt: skip


def _curve(table: pd.DataFrame, about: About, ahead: Mapping[str, float]) -> Result:
    """The best reward so far of the search and of each baseline."""
    plot = Lines(
        x="evaluations", y="reward", group="method", ends=True, steps=True, log_x=True,
        xlabel="candidate evaluations", ylabel="best reward so far",
    ) if len(table) > 1 else None  # fmt: skip
    if about.exact or not ahead:
        why = (
            ()
            if about.exact or about.begun_from
            else ("No baseline was run, so nothing is known to be beaten: search.baselines=true",)
        )
        return Result("curve", table, plot=plot, method=METHOD, notes=why)
    method = min(ahead, key=ahead.get)
    by, tie = ahead[method], 2 * about.noise
    verb = "is ahead of" if by > tie else "is BEHIND" if by < -tie else "ties with"
    spent = table.groupby("method")["evaluations"].max()
    equal = spent[method] >= spent["search"]
    budgets = "evaluations each" if equal else f"evaluations, the search had {spent['search']:,}"
    rounding = f"Rewards of the curve are in {about.dtype}: differences within its rounding mean nothing."
    return Result(
        "curve",
        table,
        headline=f"The search {verb} its strongest baseline, {method} (by {significant(abs(by), digits=3)}), "
        f"at {spent[method]:,} {budgets}.",
        plot=plot,
        method=METHOD,
        weight=weight_of(0.8 if by < -tie else 0.4 if equal else 0.1),
        estimate=Estimate("reward ahead of the best baseline", by, int(spent[method]), "evaluations", by - tie, by + tie),
        notes=() if about.dtype == "float32" else (rounding,),
    )  # fmt: skip


def _growth(table: pd.DataFrame, about: About) -> Result:
    """How the best reward grows with the number of tokens, where more than one length is known."""
    lengths = sorted(table["length"].unique())
    if len(lengths) < 2:
        return Result("growth", table, method=METHOD)
    best = about.sign * (about.sign * table["reward"]).groupby(table["length"]).max()
    first, last = (significant(best[length], digits=4) for length in (lengths[0], lengths[-1]))
    return Result(
        "growth",
        table,
        headline=f"From {lengths[0]} to {lengths[-1]} tokens the {about.best} reward found goes from {first} to {last}.",
        plot=Lines(
            x="length", y="reward", group="what", marks=True, ends=True,
            xlabel="tokens in the response", ylabel=f"{about.best} reward found",
        ),
        method=METHOD,
        weight=weight_of(0.3),
        estimate=Estimate("reward gained", float(best[lengths[-1]] - best[lengths[0]]), len(lengths), "lengths"),
    )  # fmt: skip


def _at_random(quality: pd.DataFrame) -> pd.DataFrame:
    """Rows at a random response: at the result no change is an improvement to be found."""
    return quality[quality["point"] == "start"]


def _gradient(table: pd.DataFrame) -> Result:
    """How the gradient ranks the truly best change of each position."""
    rows = _at_random(table)
    if rows.empty:
        return Result("gradient_quality", table, method=METHOD)
    hits, top_k, n = int(rows["within_top_k"].sum()), int(table["top_k"].iloc[0]), int(table["n"].max())
    drawn = table.assign(
        share=table["gradient_rank"] / table["n"],
        place=[f"position {position}" for position in table["position"]],
        at=table["point"].map({"start": "a random response", "result": "the result"}),
    )
    return Result(
        "gradient_quality",
        table,
        headline=f"At a random response the gradient's top {top_k:,} hold the best change at {hits} of {len(rows)} "
        f"positions; guessing expects {min(1.0, top_k / n):.1%}.",
        plot=Forest(
            data=drawn, row="place", estimate="share", low=None, high=None, group="at", reference=0.5,
            xlabel="rank by gradient of the truly best token, share of the vocabulary (line: chance)",
        ),
        method=METHOD,
        weight=weight_of(0.2),
        estimate=Estimate("share of positions", hits / len(rows), len(rows), "positions"),
    )  # fmt: skip


def _standing(table: pd.DataFrame, about: About) -> Result:
    """Where what cheaper searches found stands among all pairs."""
    most = table["rank_most"] if "rank_most" in table else table["rank"]
    reached = int(((table["rank"] == 1) & (most == 1)).sum())
    return Result(
        "standing",
        table,
        headline=f"{reached} of {len(table)} cheaper searches reach the {about.best} of all {int(table['of'].max()):,} pairs.",
        plot=Forest(row="result", estimate="reward", low=None, high=None, reference=None, xlabel="reward of the best pair found"),
        method=METHOD,
        weight=weight_of(0.6),
        estimate=Estimate("searches that reach it", reached, len(table), "searches"),
        notes=("Pairs that no text gives are among them.",) if about.mode == "text" else (),
    )  # fmt: skip


def _histogram(table: pd.DataFrame) -> Result:
    """The rewards of all pairs."""
    bins = table[np.isfinite(table[["low", "high"]]).all(axis=1) & (table["n"] > 0)]
    return Result(
        "histogram",
        table,
        plot=Lines(
            data=bins.assign(middle=(bins["low"] + bins["high"]) / 2), x="middle", y="n", steps=True, log_y=True,
            xlabel="reward", ylabel="pairs in a bin",
        ),
        method=METHOD,
    )  # fmt: skip


def _pairs(name: str, table: pd.DataFrame, about: About) -> Result:
    """One end of all pairs; at the goal's end, how far the second is behind."""
    end = "top" if name == "top_pairs" else "bottom"
    table = table.assign(end=end, model=about.model)
    result = Result(name, table, plot=TokenTable(shown=20), method=METHOD)
    ordered = (table[table["survives"]] if about.mode == "text" else table).sort_values("rank", kind="stable")
    # In low precision pairs are as the engine gave them, and a difference may be rounding.
    if (end == "top") != (about.sign > 0) or about.dtype != "float32" or len(ordered) < 2:
        return result
    behind = (ordered["reward"] - ordered["reward"].iloc[0]).abs()
    tied, gap, second = (
        int((behind <= 2 * about.noise).sum()) - 1,
        float(behind.iloc[1]),
        literal(ordered["text"].iloc[1]),
    )
    how = f"ties with {second}" if tied else f"leads {second} by {significant(gap, digits=3)}"
    return replace(
        result,
        headline=f"Of all pairs the {about.best} {how}.",
        weight=weight_of(0.5),
        estimate=Estimate("margin to the second pair, reward", gap, about.allowed**2, "pairs"),
        notes=(f"{tied:,} other pairs are within twice the numerical noise of the first.",) if tied else (),
    )  # fmt: skip
