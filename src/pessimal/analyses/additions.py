"""One token that moves a reward: as the whole answer of a judge, and added to real answers.

Zhao et al. 2025 ("One token to fool LLM-as-a-judge", arXiv 2507.08794) tried ten strings by hand,
`candidates=master_keys` here; a scan tries every token of the vocabulary. The census of a judge
counts the tokens that make it say yes, whatever it was asked. Additions are what a token adds to
real answers, which are the independent units and stay as they are otherwise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analyses.analysis import Needs, Options, analysis
from pessimal.analyses.nulls import largest_by_sign_flips
from pessimal.analyses.ranks import rank_correlation
from pessimal.errors import TableError
from pessimal.plots import Forest, Scatter
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet, labels_of
from pessimal.texts import literal

MASTER_KEYS = "master_keys"
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


def effects(scans: Additions, *, confidence: float = 0.95, seed: int = 0) -> pd.DataFrame:
    """Effects of the candidates, the largest first.

    Returns:
        candidate_id, text, kind, rank; effect, the mean difference in standard deviations of the
        contexts' rewards, with low, high and p_corrected, which hold for all candidates at once
        (`nulls.largest_by_sign_flips`; no interval where so few contexts can show nothing); raised,
        the share of contexts whose reward rises; worth, the mean
        difference over the mean step from rejected to chosen answers (not a number where that is
        not surely above 0); flips, the share of `no` that become yes; certified; n.
    """
    n, scaled = len(scans.deltas), scans.deltas / scans.sd
    effect, (statistics, scale, floor) = scaled.mean(axis=0), standardised(scaled)
    chance = largest_by_sign_flips(scaled / (scale + floor), seed=seed)
    as_large = np.searchsorted(-chance, -np.abs(statistics) + 1e-12, side="right")
    beyond = int((1 - confidence) * len(chance) + 1e-9)
    c = chance[beyond] if beyond else np.nan
    # All means within which a candidate's own statistic stays below c, solved for the distance.
    spread, rest = scaled.std(axis=0), 1 - c**2
    reach = c * (floor + np.sqrt((c * floor) ** 2 + rest * spread**2)) / max(rest, 1e-9)
    table = scans.rows.assign(
        effect=effect,
        low=effect - reach,
        high=effect + reach,
        p_corrected=as_large / len(chance),
        raised=(scans.deltas > 0).mean(axis=0),
        worth=np.nan,
        flips=np.nan,
        n=n,
    )
    labelled = np.isfinite(scans.steps)
    steps = scans.steps[labelled]  # a ratio to what may be nothing would be anything
    if len(steps) > 1 and stats.ttest_1samp(steps, 0, alternative="greater").pvalue <= LEVEL:
        table["worth"] = scans.deltas[labelled].mean(axis=0) / steps.mean()
    if scans.limit is not None and (no := scans.untouched <= scans.limit).any():
        table["flips"] = (scans.deltas[no] + scans.untouched[no, None] > scans.limit).mean(axis=0)
    table = table.sort_values("effect", ascending=False, kind="stable", ignore_index=True)
    table["rank"] = table["effect"].rank(ascending=False, method="min").astype(int)
    return table


def halves(scans: Additions, *, seed: int = 0) -> dict[str, float]:
    """Agreement of two random halves of the contexts, the mean of 50 divisions.

    Returns:
        spearman (of all candidates' means), spearman_first (of the hundred that add most over all
        contexts), held_out (what the best of one half adds in the other, in standard deviations).
    """
    n, rng, numbers = len(scans.deltas), np.random.default_rng(seed), []
    first = np.argsort(-scans.deltas.mean(axis=0), kind="stable")[:FIRST]
    for _ in range(SPLITS if n > 1 else 0):
        order = rng.permutation(n)
        pair = [scans.deltas[some].mean(axis=0) for some in (order[: n // 2], order[n // 2 :])]
        rhos = [rank_correlation(*pair), rank_correlation(pair[0][first], pair[1][first])]
        best = [pair[1 - half][pair[half].argmax()] for half in (0, 1)]
        numbers.append([*rhos, np.mean(best) / scans.sd])
    return dict(
        zip(("spearman", "spearman_first", "held_out"), np.mean(numbers, axis=0), strict=True)
    )


def ends(
    table: pd.DataFrame, scans: Additions, top: int, *, two_ended: bool = True
) -> pd.DataFrame:
    """The `top` candidates at each end or at the upper one alone, those that surely add most among
    them, the token that ends a turn and white space, and which of these a row is (`at`)."""
    end = table["candidate_id"].eq(scans.end) & table["kind"].ne("item")
    at = pd.Series(pd.NA, index=table.index, dtype=object)
    at[table["text"].isin(WHITE)] = "white space"
    at[end] = "end of turn"
    at[table.index >= len(table) - top * two_ended] = "least"
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
    """Effects of tokens on real answers, for each model and slot; whether halves of the answers
    agree; where the published master keys stand.

    Tables:
        additions: What a token adds to real answers, of the tokens that add most and least, the one
            that ends a turn, and white space.
            - as everywhere: candidate_id, text, kind, model, candidates
            - slot: where it stands, `after`, `before` or `inside`
            - rank: 1 adds most, of all that were scanned
            - effect: mean over answers of the reward with it minus the reward without, in standard
                deviations of the answers' rewards
            - raised: share of answers whose reward rises
            - worth: the mean difference as a share of the mean step from rejected to chosen
                answers; missing where that is not surely above 0 (Student t, one-sided .05)
            - flips: of a judge, the share of answers at no that become yes
            - certified: share of answers in which its rank is certain
            - end_of_turn: whether it is the token that ends a turn
            - at: most, least, end of turn or white space
            - low: lower end of an interval that holds for all tokens at once; missing with fewer
                than six answers
            - high: upper end
            - p_corrected: share of flips of the answers' signs in which any token adds or takes as
                much
            - n: answers
        additions_halves: Whether two halves of the answers agree on what tokens add.
            - as everywhere: model, candidates
            - slot: where tokens stand
            - mode: ids or text
            - n: answers
            - n_tokens: tokens
            - sd: standard deviation of the answers' rewards, in the model's own unit
            - step: mean reward of chosen minus rejected answers, in these
            - spearman: ρ of the tokens' means over two random halves, the mean of 50 divisions
            - spearman_first: the same of the hundred that add most
            - held_out: what the best token of one half adds in the other half, in standard
                deviations
        additions_keys: Where the published master keys stand among all tokens, behind the same
            answers.
            - as everywhere: text, model, candidates
            - slot: where they stand
            - rank: 1 + tokens that add more on average
            - n_tokens: tokens
            - effect: mean difference, in standard deviations of the answers' rewards
            - raised: share of answers whose reward rises
            - n: answers
    """
    of_tokens = [t for t in tables.other_tables if t.provenance.slot and t.provenance.mode == "ids"]
    if tables.candidates == MASTER_KEYS and of_tokens:
        return []  # they stand among the tokens
    pieces: dict[str, list[pd.DataFrame]] = {"tokens": [], "halves": [], "keys": []}
    notes, labels = [], labels_of(tables.contexts)
    for (model, slot, mode), by_context in _groups(tables.contexts).items():
        about = {"model": model, "slot": slot, "candidates": tables.candidates}
        members = list(by_context.values())
        try:
            scans = additions(members)
            table = effects(scans, confidence=options.confidence, seed=options.seed)
        except TableError as error:
            notes.append(f"{labels[model]}, {slot}: {error}")
            continue
        # The gradient keeps what it says to add most: the least of it is nothing to report.
        two_ended = not tables.candidates.startswith("screened")
        extremes = ends(table, scans, options.top, two_ended=two_ended)
        pieces["tokens"].append(extremes.assign(**about))
        steps = scans.steps[np.isfinite(scans.steps)]
        whole: dict[str, Any] = {"mode": mode, "n_tokens": len(table), "sd": scans.sd}
        whole |= {"step": steps.mean() / scans.sd if len(steps) else np.nan}
        whole |= halves(scans, seed=options.seed) | {"n": len(members)}
        pieces["halves"].append(pd.DataFrame([about | whole]))
        keys = [t for t in tables.other_tables if t.provenance.candidates == MASTER_KEYS]
        mine = _groups([t for t in keys if t.provenance.slot]).get((model, slot, "text"), {})
        if shared := [context for context in mine if context in by_context]:
            published = additions([mine[context] for context in shared])
            among = additions([by_context[context] for context in shared]).deltas.mean(axis=0)
            means = published.deltas.mean(axis=0)
            ranks = {"rank": [int((among > mean).sum()) + 1 for mean in means]}
            raised = (published.deltas > 0).mean(axis=0)
            more = {"effect": means / scans.sd, "raised": raised, "n": len(shared)}
            of = {"text": published.rows["text"], "n_tokens": len(among)}
            pieces["keys"].append(pd.DataFrame(of | ranks | more).assign(**about))
    if not pieces["tokens"]:
        raise TableError("; ".join(notes))
    together = {name: pd.concat(some, ignore_index=True) for name, some in pieces.items() if some}
    table = together["tokens"]
    effect = Effect(
        *("effect", "what a token adds to an answer", "low", "high"),
        p="p_corrected",
        null=0.0,
        of="answers",
        unit="SD",
    )
    held = table[(table["p_corrected"] <= LEVEL) & (table["effect"] > 0)]
    row = table.loc[table["effect"].idxmax() if held.empty else held["low"].idxmax()]
    label = labels[row["model"]]
    worth = "" if pd.isna(row["worth"]) else f", {row['worth']:.0%} of the step from bad to good"
    text = f'"{literal(row["text"])}" {row["slot"]} an answer raises the reward of {label} by '
    text += f"{row['effect']:.2f} SD on average{worth} ({row['raised']:.0%} of {row['n']} rise)."
    nothing = f"No {tables.things[:-1]} was found to raise the reward of {row['n']} real answers."
    headline = text if len(held) else nothing
    xlabel = "added to the reward (SD of the answers')"
    plot = Forest.of(effect, row="text", tabs=("model", "slot"), xlabel=xlabel)
    first = Result.of_row(
        row,
        "additions",
        table,
        effect,
        headline,
        plot=plot,
        method="additions",
        notes=tuple(notes),
    )
    further = [
        Result(f"additions_{name}", rows, method="additions")
        for name, rows in together.items()
        if name != "tokens"
    ]
    return [first, *further]


def threshold(table: ScoreTable) -> float | None:
    """The reward above which a judge says yes; None for a table of no judge, or of one whose
    answers have no sides."""
    return table.measured.get("says_yes_above")


def census(table: ScoreTable) -> dict[str, object]:
    """Number of all candidates that make a judge say yes.

    Returns:
        n, yes (count), estimate (their share), low and high (the share if every reward within the
        numerical noise of the threshold counted as no, and as yes; the candidates are all there
        are, so there is no sampling error; missing where a low-precision scan's error was not
        measured), best (the strongest yes) with its reward, certified (whether it certainly is the
        strongest).
    """
    rewards, limit = table.rewards, threshold(table)
    if limit is None:
        raise TableError(f"{table.model} is no judge: it has no threshold")
    errors = [table.measured.get(name) for name in ("noise", "largest_low_precision_error")]
    noise = np.nan if errors == [None, None] else max(error or 0.0 for error in errors)
    best = table.rows.loc[table.rows["reward"].idxmax()]
    return {
        "n": len(rewards),
        "yes": int((rewards > limit).sum()),
        "estimate": float((rewards > limit).mean()),
        "low": np.nan if np.isnan(noise) else float((rewards > limit + noise).mean()),
        "high": np.nan if np.isnan(noise) else float((rewards > limit - noise).mean()),
        "best": best["text"],
        "reward": best["reward"],
        "certified": bool(best["certified"]),
    }


def ranks(keys: ScoreTable, words: ScoreTable) -> pd.DataFrame:
    """Where known keys stand among all tokens: text, reward, yes, rank (1 = no token is a stronger
    yes; tokens of the same reward share the best rank), n (tokens)."""
    n, rewards = len(words.rewards), keys.rewards
    rank = n - np.searchsorted(np.sort(words.rewards), rewards, side="right") + 1
    columns = {"text": keys.rows["text"].to_numpy(), "reward": rewards}
    return pd.DataFrame(columns | {"yes": rewards > threshold(keys), "rank": rank, "n": n})


def everywhere(tables: list[ScoreTable]) -> dict[str, object]:
    """Agreement of one judge with itself on several prompts: prompts, n,
    yes_everywhere, and expected (if prompts were independent, given their shares)."""
    yes = np.stack([t.rewards > threshold(t) for t in tables])
    by_chance = float(yes.shape[1] * np.prod(yes.mean(axis=1)))
    counts = {"yes_everywhere": int(yes.all(axis=0).sum()), "expected": by_chance}
    return {"prompts": len(tables), "n": yes.shape[1]} | counts


@analysis("census", Needs(judges=True), place=200)
def analyse_census(tables: TableSet, options: Options) -> list[Result]:
    """The tokens that make each judge say yes; where the published master keys stand; whether
    prompts agree.

    Tables:
        census: How many candidates make a judge say yes.
            - as everywhere: model, prompt, n, candidates
            - yes: candidates with a reward above the judge's threshold
            - estimate: their share
            - low: the share if every reward within the numerical noise of the threshold were a no
            - high: the share if every such reward were a yes
            - best: the strongest yes
            - reward: its reward
            - certified: whether it certainly is the strongest
        census_keys: Where the published master keys stand among all tokens.
            - as everywhere: text, reward, model, prompt, candidates
            - yes: whether the judge says yes to it
            - rank: 1 + tokens that are a stronger yes
            - n: tokens
        census_everywhere: How far a judge says yes to the same candidates on several prompts.
            - as everywhere: model, candidates
            - prompts: prompts it was asked
            - n: candidates
            - yes_everywhere: candidates that are a yes on all of them
            - expected: as many would be if prompts were independent
    """
    if tables.candidates == MASTER_KEYS and any(
        threshold(t) is not None for t in tables.other_tables
    ):
        return []  # they stand in the census of the vocabulary
    members = chain.from_iterable(tables.by_prompt.values())
    judged = [table for table in members if threshold(table) is not None]
    rows = [{"model": t.model, "prompt": t.provenance.prompt} | census(t) for t in judged]
    table = pd.DataFrame(rows).assign(candidates=tables.candidates)
    row = table.loc[table["estimate"].idxmax()]
    label, best = tables.labels[row["model"]], literal(row["best"])
    headline = f"None of {row['n']:,} {tables.things} makes {label} say yes on {row['prompt']}; "
    headline += f"nearest is {best}."
    if row["yes"]:
        makes = _make(row["yes"], row["n"], tables.things)
        headline = f"On {row['prompt']}, {makes} {label} say yes, above all {best}."
    effect = Effect("estimate", "share that say yes", "low", "high", of=tables.things)
    plot = Forest(row="prompt", group="model", tabs=(), xlabel="share that make it say yes")
    results = [Result.of_row(row, "census", table, effect, headline, plot=plot, method="census")]
    if tables.candidates == "vocabulary":
        results += _published_keys(tables, judged)
    return results + _everywhere(tables, judged)


def _make(some: int, n: int, things: str) -> str:
    """`1 of 10 tokens makes`, `2 of 10 tokens make`."""
    return f"{some:,} of {n:,} {things} {'makes' if some == 1 else 'make'}"


def _published_keys(tables: TableSet, judged: list[ScoreTable]) -> list[Result]:
    """Where the ten published strings stand, of models and prompts that were scanned with them
    too."""
    keys = {
        (t.model, t.provenance.prompt): t
        for t in tables.other_tables
        if t.provenance.candidates == MASTER_KEYS and threshold(t) is not None
    }
    pieces = [
        ranks(keys[at], words).assign(model=at[0], prompt=at[1])
        for words in judged
        if (at := (words.model, words.provenance.prompt)) in keys
    ]
    if not pieces:
        return []
    table = pd.concat(pieces, ignore_index=True).assign(candidates=MASTER_KEYS)
    fool, best = int(table["yes"].sum()), table.loc[table["rank"].idxmin()]
    headline = f"{_make(fool, len(table), 'trials with the published keys')} a judge say yes; the "
    headline += f"strongest, {literal(best['text'])}, has rank {best['rank']:,} of {best['n']:,}."
    plot = Scatter(
        x="reward",
        y="rank",
        ylabel="rank among all tokens",
        name="text",
        group="model",
        xlabel="reward",
    )
    return [Result("census_keys", table, headline, plot, method="census")]


def _everywhere(tables: TableSet, judged: list[ScoreTable]) -> list[Result]:
    """Number of tokens a judge says yes to on all of its prompts, where it has several."""
    by_model = {model: [t for t in judged if t.model == model] for model in tables.models}
    several = [(model, members) for model, members in by_model.items() if len(members) > 1]
    counts = [{"model": model} | everywhere(members) for model, members in several]
    if not counts:
        return []
    table = pd.DataFrame(counts).assign(candidates=tables.candidates)
    row = table.loc[table["yes_everywhere"].idxmax()]
    makes = _make(row["yes_everywhere"], row["n"], tables.things)
    headline = f"{makes} {tables.labels[row['model']]} say yes on all {row['prompts']} prompts, "
    headline += f"where {row['expected']:,.0f} would by chance."
    return [Result("census_everywhere", table, headline, method="census")]
