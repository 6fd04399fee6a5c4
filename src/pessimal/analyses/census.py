"""The census of a judge: which of all tokens make it say yes, whatever they were asked to answer.

Zhao et al. 2025 ("One token to fool LLM-as-a-judge", arXiv 2507.08794) tried ten strings by hand,
`candidates=master_keys` here; a scan tries every token of the vocabulary.
"""

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import Needs, Options, analysis
from pessimal.errors import TableError
from pessimal.plots import Forest, Scatter
from pessimal.tables.result import Effect, Result
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet
from pessimal.texts import literal

MASTER_KEYS = "master_keys"


def threshold(table: ScoreTable) -> float | None:
    """The reward above which a judge says yes; None for a table of no judge, or of one whose
    answers have no sides."""
    return table.measured.get("says_yes_above")


def census(table: ScoreTable) -> dict[str, object]:
    """How many of all candidates make a judge say yes.

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
    rewards = np.sort(words.rewards)
    rewards_of_keys = keys.rewards
    above = len(rewards) - np.searchsorted(rewards, rewards_of_keys, side="right")
    return pd.DataFrame(
        {
            "text": keys.rows["text"].to_numpy(),
            "reward": rewards_of_keys,
            "yes": rewards_of_keys > threshold(keys),
            "rank": above + 1,
            "n": len(rewards),
        }
    )


def everywhere(tables: list[ScoreTable], *, top: int) -> tuple[dict[str, object], pd.DataFrame]:
    """How far one judge says yes to the same tokens on several prompts, and the tokens that hold
    best.

    Returns:
        prompts, n, yes_everywhere, expected (if prompts were independent, given their shares),
        yes_anywhere; and of the `top` candidates whose weakest yes is strongest: rank, text,
        weakest (the least reward above the threshold over the prompts), prompts on which they are a
        yes.
    """
    margins = np.stack([t.rewards - threshold(t) for t in tables])
    yes, weakest = margins > 0, margins.min(axis=0)
    best = np.argsort(-weakest, kind="stable")[:top]
    counts = {
        "prompts": len(tables),
        "n": margins.shape[1],
        "yes_everywhere": int(yes.all(axis=0).sum()),
        "expected": float(margins.shape[1] * np.prod(yes.mean(axis=1))),
        "yes_anywhere": int(yes.any(axis=0).sum()),
    }
    tokens = pd.DataFrame(
        {
            "rank": np.arange(1, len(best) + 1),
            "text": tables[0].rows["text"].to_numpy()[best],
            "weakest": weakest[best],
            "yes_on": yes[:, best].sum(axis=0),
        }
    )
    return counts, tokens


@analysis("census", Needs(judges=True), place=200)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Which tokens make each judge say yes; where the published master keys stand; whether prompts
    agree."""
    if tables.candidates == MASTER_KEYS and any(
        threshold(table) is not None for table in tables.beside
    ):
        return []  # they stand in the census of the vocabulary
    judged = [
        table
        for members in tables.by_prompt.values()
        for table in members
        if threshold(table) is not None
    ]
    table = pd.DataFrame(
        [{"model": t.model, "prompt": t.provenance.prompt} | census(t) for t in judged]
    ).assign(candidates=tables.candidates)
    most = table.loc[table["estimate"].idxmax()]
    label, best = tables.labels[most["model"]], literal(most["best"])
    headline = (
        f"On {most['prompt']}, {_make(most['yes'], most['n'], tables.things)} {label} say "
        f"yes, above all {best}."
        if most["yes"]
        else f"None of {most['n']:,} {tables.things} makes {label} say yes on {most['prompt']}; "
        f"nearest is {best}."
    )
    effect = Effect("estimate", "share that say yes", "low", "high", of=tables.things)
    results = [
        Result.of_row(
            most,
            "census",
            table,
            effect,
            headline,
            plot=Forest(row="prompt", group="model", tabs=(), xlabel="share that make it say yes"),
            method="census",
        )
    ]
    if tables.candidates == "vocabulary":
        results += _published_keys(tables, judged)
    return results + _everywhere(tables, judged, options)


def _make(some: int, n: int, things: str) -> str:
    """`1 of 10 tokens makes`, `2 of 10 tokens make`."""
    return f"{some:,} of {n:,} {things} {'makes' if some == 1 else 'make'}"


def _published_keys(tables: TableSet, judged: list[ScoreTable]) -> list[Result]:
    """Where the ten published strings stand, of models and prompts that were scanned with them
    too."""
    keys = {
        (t.model, t.provenance.prompt): t
        for t in tables.beside
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
    headline = (
        f"{_make(fool, len(table), 'trials with the published keys')} a judge say yes; the "
        f"strongest, {literal(best['text'])}, has rank {best['rank']:,} of {best['n']:,}."
    )
    plot = Scatter(
        x="reward",
        y="rank",
        name="text",
        group="model",
        xlabel="reward",
        ylabel="rank among all tokens",
    )
    return [Result("census_keys", table, headline, plot, method="census")]


def _everywhere(tables: TableSet, judged: list[ScoreTable], options: Options) -> list[Result]:
    """The tokens that a judge says yes to on all of its prompts, where it has several."""
    counts, tokens = [], []
    for model in dict.fromkeys(table.model for table in judged):
        members = [table for table in judged if table.model == model]
        if len(members) > 1:
            number, best = everywhere(members, top=options.top)
            counts.append({"model": model} | number)
            tokens.append(best.assign(model=model))
    if not counts:
        return []
    table = pd.DataFrame(counts).assign(candidates=tables.candidates)
    most = table.loc[table["yes_everywhere"].idxmax()]
    headline = (
        f"{_make(most['yes_everywhere'], most['n'], tables.things)} "
        f"{tables.labels[most['model']]} say yes on all {most['prompts']} prompts, where "
        f"{most['expected']:,.0f} would by chance."
    )
    named = pd.concat(tokens, ignore_index=True).assign(candidates=tables.candidates)
    return [
        Result("census_everywhere", table, headline, method="census"),
        Result("census_tokens", named, method="census"),
    ]
