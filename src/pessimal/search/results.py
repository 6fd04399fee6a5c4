"""What one search reports: the response, the checks it passes, its neighbours, its curve against the baselines.

Knows the tables of a search and numbers about it. Does not know models, objectives or registries.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import pandas as pd

from pessimal.plots import Forest, Lines, TokenTable
from pessimal.search.checks import ABSENT, HOLDS
from pessimal.tables.result import Estimate, Result, weight_of
from pessimal.texts import literal, significant

METHOD = "search"
SEARCH = "search"
"""The method of the curve that is no baseline."""
BEATS = {
    "random search": "beats_random",
    "coordinate ascent": "beats_coordinate_ascent",
    "beam": "beats_beam",
    "beam search": "beats_beam",
}
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
    method: str
    """auto or exhaustive."""
    allowed: int
    """Tokens that a response may be made of."""
    evaluations: int
    """Of candidates, by the search; its certificate and its baselines are not among them."""
    noise: float
    """Bound on the numerical error of one reward; two rewards within twice of it are tied."""
    verdict: str
    """Of the certificate: 1-opt, tie or not 1-opt; "" where there is none."""
    dtype: str
    """Precision that was searched in."""

    @classmethod
    def of(cls, numbers: Mapping) -> "About":
        """From a mapping that may hold more."""
        return cls(**{field.name: numbers[field.name] for field in fields(cls)})

    @property
    def best(self) -> str:
        return "best" if self.goal == "optimal" else "worst"

    @property
    def sign(self) -> int:
        return 1 if self.goal == "optimal" else -1

    @property
    def exact(self) -> bool:
        """Whether every allowed response was scored."""
        return self.length == 1 or self.method == "exhaustive"

    @property
    def thing(self) -> str:
        return "token" if self.length == 1 else f"response of {self.length} tokens"


def search_results(tables: Mapping[str, pd.DataFrame], about: About) -> list[Result]:
    """The Results of one search, the response first.

    Args:
        tables: `sequences` and `provenance`; and, where there are, `curve`, `phases`, `neighbours`, `gradient_quality`,
            `growth`, `ladder`, and of an exhaustive search `histogram`, `standing`, `top_pairs`, `bottom_pairs`,
            `per_first`, `per_second`. Empty ones are left out.
        about: the search.
    """
    tables = {name: flat(table) for name, table in tables.items() if len(table)}
    ahead = ahead_of(tables.get("curve"), tables["sequences"], about)
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


def ahead_of(curve: pd.DataFrame | None, sequences: pd.DataFrame, about: About) -> dict[str, float]:
    """By how much the search ended better than each baseline, in units of reward as the engine gave them; {} where none
    was run. What the search ended with is its best response, or the end of its curve where all were gone through."""
    if curve is None:
        return {}
    ends = (about.sign * curve["reward"]).groupby(curve["method"], sort=False).max()
    own = ends[SEARCH] if about.exact else about.sign * sequences["search_reward"].iloc[0]
    return {method: float(own - end) for method, end in ends.items() if method != SEARCH}


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
    """The response that was found, and those that other restarts ended with."""
    winner = table.iloc[0]
    polished = table["one_opt"].fillna(False).astype(bool)
    kept = table.assign(ended=np.where(polished, "no single change is better", "not polished"))
    found = "" if about.exact else " found"
    summary = {
        "best_reward": float(winner["reward"]),
        "best_text": winner["text"],
        "length": about.length,
        "goal": about.goal,
        "verdict": about.verdict,
        "evaluations": int(about.evaluations),
        "survives": bool(winner["survives"]),
    }
    if "neighbours" in tables:
        summary["smallest_margin"] = float(tables["neighbours"]["margin"].min())
    summary |= {BEATS[method]: bool(by > 2 * about.noise) for method, by in ahead.items() if method in BEATS}
    if "gradient_quality" in tables:
        rows = _searched(tables["gradient_quality"])
        summary["gradient_within_top_k_share"] = float(rows["within_top_k"].mean())
    return Result(
        "sequences",
        table,
        headline=f"The {about.best} {about.thing}{found} on {' and '.join(about.prompts[:2])}: "
        f"{literal(winner['text'], limit=60)}, reward {significant(winner['reward'], digits=4)}.",
        plot=Forest(
            data=kept, row="start", estimate="reward", low=None, high=None, group="ended", reference=float(winner["reward"]),
            xlabel=f"reward at the end of each restart; the line: {about.best} found",
        ) if len(table) > 1 and not about.exact else None,
        method=METHOD,
        weight=2.0,
        estimate=Estimate("reward", float(winner["reward"]), int(about.evaluations), "evaluations"),
        notes=() if winner["survives"] else ("No text gives this response: typed, it becomes other ids.",),
        summary=summary,
    )  # fmt: skip


def _checks(table: pd.DataFrame) -> Result:
    asked = table[table["verdict"] != ABSENT]
    open_ = asked.loc[asked["verdict"] != HOLDS, "check"]
    missed = "" if open_.empty else f"; open: {', '.join(open_.head(2))}" + " …" * (len(open_) > 2)
    held = len(asked) - len(open_)
    return Result(
        "ladder",
        table,
        headline=f"{held} of {len(asked)} checks hold{missed}.",
        method=METHOD,
        weight=weight_of(len(open_) / max(len(asked), 1)),
        estimate=Estimate("checks that hold", held, len(asked), "checks"),
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
            if about.exact
            else ("No baseline was run, so nothing is known to be beaten: search.baselines=true",)
        )
        return Result("curve", table, plot=plot, method=METHOD, notes=why)  # fmt: skip
    method = min(ahead, key=ahead.get)
    by, tie = ahead[method], 2 * about.noise
    verb = "beats" if by > tie else "does NOT beat" if by < -tie else "only ties with"
    spent = int(table.loc[table["method"] == SEARCH, "evaluations"].max())
    rounding = f"Rewards of the curve are in {about.dtype}: differences within its rounding mean nothing."
    return Result(
        "curve",
        table,
        headline=f"The search {verb} its strongest baseline, {method} (by {significant(by, digits=3)}), "
        f"at {spent:,} evaluations each.",
        plot=plot,
        method=METHOD,
        weight=weight_of(0.4 if by > tie else 0.8),
        estimate=Estimate("reward ahead of the best baseline", by, spent, "evaluations", by - tie, by + tie),
        notes=() if about.dtype == "float32" else (rounding,),
    )


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


def _searched(quality: pd.DataFrame) -> pd.DataFrame:
    """Rows at a random response: at the result no change is an improvement to be found."""
    begun = quality[quality["point"] == "start"]
    return begun if len(begun) else quality


def _gradient(table: pd.DataFrame) -> Result:
    """How the gradient ranks the truly best change of each position."""
    rows = _searched(table)
    hits, top_k, n = int(rows["within_top_k"].sum()), int(table["top_k"].iloc[0]), int(table["n"].max())
    drawn = table.assign(
        share=table["gradient_rank"] / table["n"],
        place=[f"position {position}" for position in table["position"]],
        at=table["point"].map({"start": "a random response", "result": "the result"}).fillna(table["point"]),
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
