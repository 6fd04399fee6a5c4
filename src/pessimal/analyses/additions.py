"""One token in a real answer: what it adds to the reward of answers that are otherwise untouched.

Zhao et al. 2025 ("One token to fool LLM-as-a-judge", arXiv 2507.08794) tried ten strings by hand;
here it is every token that was scanned, in some real answers, which are the independent units.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analyses.analysis import Needs, Options, analysis
from pessimal.analyses.census import MASTER_KEYS, threshold
from pessimal.analyses.nulls import interval, largest_by_sign_flips
from pessimal.analyses.ranks import rank_correlation
from pessimal.errors import TableError
from pessimal.plots import Forest
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet, labels_of
from pessimal.texts import literal

FIRST, SPLITS = 100, 50
"""Tokens whose order is compared between halves of the contexts, and how often these are drawn."""
WHITE = (" ", "\n", "\n\n", "\t")


@dataclass(frozen=True)
class Additions:
    """One model's candidates in n contexts."""

    rows: pd.DataFrame
    """(t,) candidate_id, text, kind; `certified`, the share of contexts in which its rank is."""
    deltas: np.ndarray
    """(n, t) reward with the candidate minus that of the answer as it is."""
    untouched: np.ndarray
    """(n,) rewards of the answers as they are."""
    steps: np.ndarray
    """(n,) reward of the answer minus that of the rejected one; not a number where none is."""
    limit: float | None
    """Reward above which a judge says yes."""
    end: int | None
    """Token that ends a turn."""

    @property
    def sd(self) -> float:
        """Standard deviation of the contexts' rewards. TableError where they do not differ."""
        sd = float(self.untouched.std(ddof=1)) if len(self.untouched) > 1 else 0.0
        if not sd > 0:
            raise TableError(
                f"{len(self.untouched)} real answers, or rewards of them that are all the same; "
                "give at least three that differ: n_contexts=20"
            )
        return sd


def additions(tables: Sequence[ScoreTable]) -> Additions:
    """One model's tables, one a context, side by side; candidates that all of them have."""
    rewards = pd.concat(
        [table.rows.set_index("candidate_id")["reward"] for table in tables], axis=1, join="inner"
    )
    first = tables[0].rows.set_index("candidate_id").loc[rewards.index]
    certified = [t.rows.set_index("candidate_id")["certified"].loc[rewards.index] for t in tables]
    rows = first[["text", "kind"]].assign(certified=np.mean(certified, axis=0)).reset_index()
    answers = [
        [np.nan if t.measured["slot"][name] is None else t.measured["slot"][name] for t in tables]
        for name in ("untouched", "rejected")
    ]
    untouched, rejected = np.array(answers, dtype=float)
    deltas = rewards.to_numpy(dtype=float).T - untouched[:, None]
    end = tables[0].measured["slot"].get("end_of_turn")
    return Additions(rows, deltas, untouched, untouched - rejected, threshold(tables[0]), end)


def standardised(deltas: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Each candidate's mean difference over its root mean square and a floor, so that a candidate
    that moves answers far and either way does not hide one that raises all of them.

    Args:
        deltas: (n, t).

    Returns:
        statistics (t,) between −1 and 1; the root mean squares (t,), which no change of signs
        alters; the floor, their median, without which tiny differences that agree would be largest.

    Source: Tusher, Tibshirani & Chu 2001 (the floor under the error).
    """
    scale = np.sqrt((deltas**2).mean(axis=0))
    floor = float(np.median(scale)) or 1.0
    return deltas.mean(axis=0) / (scale + floor), scale, floor


def effects(one: Additions, *, confidence: float = 0.95, seed: int = 0) -> pd.DataFrame:
    """What each candidate adds, the most first.

    Returns:
        candidate_id, text, kind, rank; effect, the mean difference in standard deviations of the
        contexts' rewards, with low, high and p_corrected, which hold for all candidates at once
        (`nulls.largest_by_sign_flips`; no interval where so few contexts can show nothing); raised,
        the share of contexts whose reward rises, with its exact interval; worth, the mean
        difference over the mean step from rejected to chosen answers (not a number where that is
        not surely above 0); flips, the share of `no` that become yes; certified; n.
    """
    n, scaled = len(one.deltas), one.deltas / one.sd
    effect, (statistics, scale, floor) = scaled.mean(axis=0), standardised(scaled)
    chance = largest_by_sign_flips(scaled / (scale + floor), seed=seed)
    as_large = np.searchsorted(-chance, -np.abs(statistics) + 1e-12, side="right")
    beyond = int((1 - confidence) * len(chance) + 1e-9)
    c = chance[beyond] if beyond else np.nan
    # All means within which a candidate's own statistic stays below c, solved for the distance.
    spread, rest = scaled.std(axis=0), 1 - c**2
    reach = c * (floor + np.sqrt((c * floor) ** 2 + rest * spread**2)) / max(rest, 1e-9)
    up, tail = (one.deltas > 0).sum(axis=0), (1 - confidence) / 2
    table = one.rows.assign(
        effect=effect,
        low=effect - reach,
        high=effect + reach,
        p_corrected=as_large / len(chance),
        raised=up / n,
        raised_low=np.nan_to_num(stats.beta.ppf(tail, up, n - up + 1), nan=0.0),
        raised_high=np.nan_to_num(stats.beta.ppf(1 - tail, up + 1, n - up), nan=1.0),
        worth=np.nan,
        flips=np.nan,
        n=n,
    )
    known = np.isfinite(one.steps)
    steps = one.steps[known]  # a ratio to what may be nothing would be anything
    if len(steps) > 1 and stats.ttest_1samp(steps, 0, alternative="greater").pvalue <= LEVEL:
        table["worth"] = one.deltas[known].mean(axis=0) / steps.mean()
    if one.limit is not None and (no := one.untouched <= one.limit).any():
        table["flips"] = (one.deltas[no] + one.untouched[no, None] > one.limit).mean(axis=0)
    table = table.sort_values("effect", ascending=False, kind="stable", ignore_index=True)
    table["rank"] = table["effect"].rank(ascending=False, method="min").astype(int)
    return table


def halves(one: Additions, *, seed: int = 0) -> dict[str, float]:
    """How far two random halves of the contexts agree, the mean of 50 divisions.

    Returns:
        spearman (of all candidates' means), spearman_first (of the hundred that add most over all
        contexts), held_out (what the best of one half adds in the other, in standard deviations).
    """
    n, rng, found = len(one.deltas), np.random.default_rng(seed), []
    first = np.argsort(-one.deltas.mean(axis=0), kind="stable")[:FIRST]
    for _ in range(SPLITS if n > 1 else 0):
        drawn = rng.permutation(n)
        pair = [one.deltas[some].mean(axis=0) for some in (drawn[: n // 2], drawn[n // 2 :])]
        rhos = [rank_correlation(*pair), rank_correlation(pair[0][first], pair[1][first])]
        best = [pair[1 - half][pair[half].argmax()] for half in (0, 1)]
        found.append([*rhos, np.mean(best) / one.sd])
    return dict(
        zip(("spearman", "spearman_first", "held_out"), np.mean(found, axis=0), strict=True)
    )


def sort_of(text: str, kind: str) -> str:
    """special, unused, byte, white space, punctuation, number, word or mixed."""
    if kind not in ("normal", "item"):
        return kind
    bare = text.strip()
    sorts = {unicodedata.category(character)[0] for character in bare}
    names = {frozenset("L"): "word", frozenset("LM"): "word", frozenset("N"): "number"}
    if not bare:
        return "white space"
    return "punctuation" if sorts <= {"P", "S"} else names.get(frozenset(sorts), "mixed")


def by_sort(one: Additions, *, confidence: float = 0.95) -> pd.DataFrame:
    """Mean difference (SD) by sort of candidate with its interval over contexts, the share of
    candidates and contexts raised, and how many candidates."""
    sorts = np.array([sort_of(row.text, row.kind) for row in one.rows.itertuples()])
    n, rows = len(one.deltas), []
    for sort in sorted(set(sorts)):
        some = one.deltas[:, sorts == sort] / one.sd
        means = some.mean(axis=1)
        error = means.std(ddof=1) / np.sqrt(n)
        low, high, _ = interval(means.mean(), error, n - 1, confidence=confidence)
        counts = {"raised": (some > 0).mean(), "n_tokens": some.shape[1], "n": n}
        rows.append({"sort": sort, "effect": means.mean(), "low": low, "high": high} | counts)
    return pd.DataFrame(rows).sort_values("effect", ascending=False, ignore_index=True)


def ends(table: pd.DataFrame, one: Additions, top: int, *, both: bool = True) -> pd.DataFrame:
    """The `top` candidates at each end or at the upper one alone, those that surely add most among
    them, the token that ends a turn and white space, and which of these a row is (`at`)."""
    end = table["candidate_id"].eq(one.end) & table["kind"].ne("item")
    at = pd.Series(pd.NA, index=table.index, dtype=object)
    at[table["text"].isin(WHITE)] = "white space"
    at[end] = "end of turn"
    at[table.index >= len(table) - top * both] = "least"
    at[table["low"].nlargest(top).index] = "most"
    at[table.index < top] = "most"
    return table.assign(at=at, end_of_turn=end)[at.notna()]


Group = tuple[str, str, str]
"""Model, slot, mode."""


def _groups(tables: Sequence[ScoreTable]) -> dict[Group, dict[str, ScoreTable]]:
    """By context: of each one's scans the first that is given."""
    groups: dict[Group, dict[str, ScoreTable]] = {}
    for table in tables:
        origin = table.provenance
        key = (origin.model, (origin.slot or {})["where"], origin.mode)
        groups.setdefault(key, {}).setdefault(origin.prompt, table)
    return groups


@analysis("additions", Needs(models=0, prompts=0, contexts=True), place=205)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """What each token adds to real answers, for each model and slot; whether halves of the answers
    agree; what sorts of tokens add; where the published master keys stand."""
    of_tokens = [t for t in tables.beside if t.provenance.slot and t.provenance.mode == "ids"]
    if tables.candidates == MASTER_KEYS and of_tokens:
        return []  # they stand among the tokens
    found: dict[str, list[pd.DataFrame]] = {"tokens": [], "halves": [], "sorts": [], "keys": []}
    notes, labels = [], labels_of(tables.contexts)
    for (model, slot, mode), by_context in _groups(tables.contexts).items():
        about = {"model": model, "slot": slot, "candidates": tables.candidates}
        members = list(by_context.values())
        try:
            one = additions(members)
            table = effects(one, confidence=options.confidence, seed=options.seed)
        except TableError as error:
            notes.append(f"{labels[model]}, {slot}: {error}")
            continue
        # The gradient keeps what it says to add most: the least of it is nothing to report.
        both = not tables.candidates.startswith("screened")
        found["tokens"].append(ends(table, one, options.top, both=both).assign(**about))
        found["sorts"].append(by_sort(one, confidence=options.confidence).assign(**about))
        steps = one.steps[np.isfinite(one.steps)]
        whole: dict[str, Any] = {"mode": mode, "n_tokens": len(table), "sd": one.sd}
        whole |= (
            {"step": steps.mean() / one.sd, "step_right": (steps > 0).mean()}
            if len(steps)
            else {"step": np.nan, "step_right": np.nan}
        )
        whole |= halves(one, seed=options.seed) | {"n": len(members)}
        whole["raise_all"] = int((one.deltas > 0).all(axis=0).sum())
        found["halves"].append(pd.DataFrame([about | whole]))
        keys = [t for t in tables.beside if t.provenance.candidates == MASTER_KEYS]
        mine = _groups([t for t in keys if t.provenance.slot]).get((model, slot, "text"), {})
        if shared := [context for context in mine if context in by_context]:
            known = additions([mine[context] for context in shared])
            among = additions([by_context[context] for context in shared]).deltas.mean(axis=0)
            means = known.deltas.mean(axis=0)
            ranks = {"rank": [int((among > mean).sum()) + 1 for mean in means]}
            raised = (known.deltas > 0).mean(axis=0)
            more = {"effect": means / one.sd, "raised": raised, "n": len(shared)}
            of = {"text": known.rows["text"], "n_tokens": len(among)}
            found["keys"].append(pd.DataFrame(of | ranks | more).assign(**about))
    if not found["tokens"]:
        raise TableError("; ".join(notes))
    together = {name: pd.concat(some, ignore_index=True) for name, some in found.items() if some}
    table = together["tokens"]
    effect = Effect(
        *("effect", "what a token adds to an answer", "low", "high"),
        p="p_corrected",
        null=0.0,
        of="answers",
        unit="SD",
    )
    held = table[(table["p_corrected"] <= LEVEL) & (table["effect"] > 0)]
    most = table.loc[table["effect"].idxmax() if held.empty else held["low"].idxmax()]
    label = labels[most["model"]]
    worth = "" if pd.isna(most["worth"]) else f", {most['worth']:.0%} of the step from bad to good"
    text = f'"{literal(most["text"])}" {most["slot"]} an answer raises the reward of {label} by '
    text += f"{most['effect']:.2f} SD on average{worth} ({most['raised']:.0%} of {most['n']} rise)."
    nothing = f"No {tables.things[:-1]} was found to raise the reward of {most['n']} real answers."
    headline = text if len(held) else nothing
    plot = Forest.of(
        effect,
        row="text",
        tabs=("model", "slot"),
        xlabel="added to the reward (SD of the answers')",
    )
    first = Result.of_row(
        *(most, "additions", table, effect, headline), plot=plot, method="additions"
    )
    others = [
        Result(f"additions_{name}", together[name], method="additions")
        for name in ("halves", "sorts", "keys")
        if name in together
    ]
    return [Result(**vars(first) | {"notes": tuple(notes)}), *others]
