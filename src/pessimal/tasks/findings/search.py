"""The page of one search: what was found, what may be claimed of it, and what it cost.

Knows the tables and facts of a search. Does not know models, objectives or registries.
"""

import json
from collections.abc import Mapping

import pandas as pd

from pessimal.figures.search_curves import best_so_far, duration, growth, restarts
from pessimal.figures.search_results import among_all, gradient_ranks, margins, rank_of
from pessimal.figures.words import literal, significant
from pessimal.report.contents import Contents, Entry, Section
from pessimal.tasks.findings.search_claims import (
    Facts,
    against_baselines,
    ahead_of,
    as_text,
    asked,
    claim,
    cost,
    exact,
    scored_again,
    spread,
    unbeaten,
)

BEATS = {
    "random search": "beats_random",
    "coordinate ascent": "beats_coordinate_ascent",
    "beam": "beats_beam",
    "beam search": "beats_beam",
}
"""Keys of the summary, by baseline."""


def search_contents(tables: Mapping[str, pd.DataFrame], facts: Mapping) -> Contents:
    """Sections, figures, tables and summary of one search.

    Args:
        tables: `sequences` and `provenance`; and, where there are, `curve`, `phases`, `neighbours`, `gradient_quality`,
            `growth`, `ladder`, and of an exhaustive search `histogram`, `standing`, `top_pairs`, `bottom_pairs`.
        facts: the fields of `Facts`; what else it holds is left.
    """
    told = Facts.of(facts)
    tables = {name: table for name, table in tables.items() if len(table)}
    contents = Contents()
    for name, table in tables.items():
        contents.add_table(name, _flat(table))
    keys = " + ".join(told.prompts)
    what = f"{told.best} {'token' if told.length == 1 else f'response of {told.length} tokens'}"
    name = f"{told.model} · {keys} · {what}{' that a text gives' if told.mode == 'text' else ''}"
    ahead = ahead_of(tables.get("curve"), tables["sequences"], told)
    worth = exact(told) if told.exact else against_baselines(ahead, tables.get("curve"), told)
    section = contents.section(name, f"{worth} {asked(told)}")
    _result(section, contents, tables, told, ahead)
    if "histogram" in tables:
        _every_pair(contents.section(f"{name} · every pair", exact(told)), contents, tables, told)
    how = contents.section(f"{name} · how it was found", cost(told))
    _progress(how, contents, tables, told, ahead)
    _gradients(how, contents, tables)
    _lengths(how, contents, tables, told)
    if not how.entries:
        contents.sections.pop()
    _summarise(contents, tables, told, ahead)
    return contents


def _result(
    section: Section, contents: Contents, tables: Mapping, facts: Facts, ahead: Mapping[str, float]
) -> None:
    """The response itself, what it may claim, and the other final responses."""
    sequences, neighbours = tables["sequences"], tables.get("neighbours")
    pairs = tables.get("top_pairs" if facts.goal == "optimal" else "bottom_pairs")
    found = "" if facts.exact else " found"
    title = f"The {facts.best} {'token' if facts.length == 1 else 'response'}{found}: {literal(sequences['text'].iloc[0], limit=60)}"
    if neighbours is not None:
        contents.figures["margins"] = margins(
            neighbours, noise=facts.noise, goal=facts.goal, title=f"Token by token: {facts.extreme} reward"
        )
    section.entries.append(
        Entry(
            title,
            f"{unbeaten(ahead, facts)}{claim(facts, sequences, neighbours, pairs)} {scored_again(facts, sequences)} {as_text(facts, sequences)}",
            figure=None if neighbours is None else "margins",
            table="sequences" if neighbours is None else "neighbours",
        )
    )
    if "ladder" in tables:
        section.entries.append(
            Entry("What this result may claim, rung by rung", _ladder(tables["ladder"]), table="ladder")
        )
    if neighbours is None:
        return
    several = len(sequences) > 1
    if several and not facts.exact:
        contents.figures["restarts"] = restarts(sequences, noise=facts.noise, goal=facts.goal)
    kind = "kept" if facts.exact else "final"
    section.entries.append(
        Entry(
            f"All {len(sequences):,} {kind} responses" if several else f"The one {kind} response",
            spread(facts, sequences),
            figure="restarts" if several and not facts.exact else None,
            table="sequences",
        )
    )


def _ladder(ladder: pd.DataFrame) -> str:
    verdicts = ("holds", "tie", "does not hold", "not applicable")
    told = []
    for verdict in verdicts:
        rows = ladder[ladder["verdict"] == verdict]
        checks = "; ".join(
            f"{row.check} [{row.measured}]" if row.measured else row.check for row in rows.itertuples()
        )
        if checks:
            told.append(f"{verdict.capitalize()}: {checks}.")
    return f"{' '.join(told)} What each means stands in the table."


def _every_pair(section: Section, contents: Contents, tables: Mapping, facts: Facts) -> None:
    standing = tables.get("standing", pd.DataFrame(columns=["result", "pair", "reward", "rank", "of"]))
    contents.figures["pairs"] = among_all(tables["histogram"], standing, goal=facts.goal)
    text = " Pairs that no text gives are among them." if facts.mode == "text" else ""
    section.entries.append(
        Entry(
            "Where what cheaper ways find stands among all pairs",
            f"All {int(tables['histogram']['n'].sum()):,} rewards; rank 1 is the {facts.best}.{text}{_ranks(standing)}",
            figure="pairs",
            table="standing" if "standing" in tables else "histogram",
        )
    )
    for end, name in (("highest", "top_pairs"), ("lowest", "bottom_pairs")):
        if name in tables:
            rows = tables[name]
            shown = ", ".join(
                f"{literal(row.text)} ({significant(row.reward, digits=5)})"
                for row in rows.head(5).itertuples()
            )
            section.entries.append(
                Entry(
                    f"The {len(rows):,} pairs of {end} reward",
                    f"{shown}. {rows['survives'].mean():.0%} of the {len(rows):,} survive as text.",
                    table=name,
                )
            )


def _ranks(standing: pd.DataFrame) -> str:
    """Which ways reach the best pair, and where the worst of the others stands; with a space before it."""
    if standing.empty:
        return ""
    reached = standing[(standing["rank"] == 1) & (standing.get("rank_most", standing["rank"]) == 1)]
    told = f" {len(reached)} of {len(standing)} cheaper ways reach it"
    told += f" ({', '.join(reached['result'])})" if 0 < len(reached) <= 5 else ""
    others = standing[standing["rank"].notna() & ~standing.index.isin(reached.index)]
    if others.empty:
        return f"{told}."
    ends = [others.loc[others["rank"].idxmin()], others.loc[others["rank"].idxmax()]]
    named = [
        f"{row['result']} {literal(row['pair'])}, rank {rank_of(row['rank'], row.get('rank_most'))}"
        for row in ends[: len(others)]
    ]
    return f"{told}; {'of the others the best and the worst are ' if len(named) > 1 else 'another is '}{' and '.join(named)}."


def _progress(
    section: Section, contents: Contents, tables: Mapping, facts: Facts, ahead: Mapping[str, float]
) -> None:
    """Best reward against evaluations, and what each phase took."""
    phases = tables.get("phases", pd.DataFrame(columns=["phase", "evaluations", "seconds"]))
    if "curve" in tables and len(tables["curve"]) > 1:
        contents.figures["curve"] = best_so_far(tables["curve"], phases, goal=facts.goal)
        section.entries.append(
            Entry(
                "The best reward against evaluations",
                against_baselines(ahead, tables["curve"], facts),
                figure="curve",
                table="curve",
            )
        )
    if len(phases):
        shares = ", ".join(
            f"{row.phase} {int(row.evaluations):,}" + (f" in {duration(row.seconds)}" if row.seconds else "")
            for row in phases.itertuples()
        )
        section.entries.append(Entry("What each phase took", f"Evaluations: {shares}.", table="phases"))


def _gradients(section: Section, contents: Contents, tables: Mapping) -> None:
    if "gradient_quality" not in tables:
        return
    quality = tables["gradient_quality"]
    contents.figures["gradient"] = gradient_ranks(quality)
    top_k, n = int(quality["top_k"].iloc[0]), int(quality["n"].max())
    told = [
        f"At {'the result' if point == 'result' else 'a random response'} the truly best swap is among the gradient's top {top_k:,} at "
        f"{int(rows['within_top_k'].sum())} of {len(rows)} positions (median rank {rows['gradient_rank'].median():,.0f} of "
        f"{n:,}); {_agreement(rows['spearman'])}."
        for point, rows in quality.groupby("point", sort=False)
    ]
    section.entries.append(
        Entry(
            "How far the gradient knows the best swap",
            f"{' '.join(told)} Blind guessing would have it there at {min(1.0, top_k / n):.1%} of positions. The final "
            "polish and the certificate try every token and do not rest on gradients.",
            figure="gradient",
            table="gradient_quality",
        )
    )


def _agreement(spearman: pd.Series) -> str:
    """Spearman's ρ over positions, where it is defined."""
    if spearman.isna().all():
        return "Spearman's ρ between gradient and true change is not defined"
    return f"Spearman's ρ between gradient and true change, median over positions: {spearman.median():.2f}"


def _lengths(section: Section, contents: Contents, tables: Mapping, facts: Facts) -> None:
    """How the best grows with length, where more than one length is known."""
    if "growth" not in tables or tables["growth"]["length"].nunique() < 2:
        return
    table = tables["growth"]
    contents.figures["growth"] = growth(table, goal=facts.goal)
    sign = 1 if facts.goal == "optimal" else -1
    best = table.loc[(sign * table["reward"]).groupby(table["length"]).idxmax()]
    told = ", ".join(
        f"{row.length}: {significant(row.reward, digits=5)} ({row.what}{_standing_of(row)})"
        for row in best.itertuples()
    )
    section.entries.append(
        Entry(
            "How the best grows with the number of tokens",
            f"The {facts.extreme} reward known of each number of tokens: {told}. Above one token each is the {facts.best} "
            "found, and their budgets differ.",
            figure="growth",
            table="growth",
        )
    )


def _standing_of(row) -> str:
    """What is known of one length's best, for the sentence on growth."""
    if row.what == "scan":
        return ", exact"
    return f", {row.verdict}" if row.verdict else ""


def _summarise(contents: Contents, tables: Mapping, facts: Facts, ahead: Mapping[str, float]) -> None:
    """The figures by which searches are compared."""
    summary = contents.summary
    winner = tables["sequences"].iloc[0]
    summary |= {
        "best_reward": float(winner["reward"]),
        "best_text": winner["text"],
        "length": facts.length,
        "goal": facts.goal,
        "verdict": facts.verdict,
        "evaluations": int(facts.spent),
        "survives": bool(winner["survives"]),
    }
    if "neighbours" in tables:
        summary["smallest_margin"] = float(tables["neighbours"]["margin"].min())
    summary |= {BEATS[method]: bool(by > 2 * facts.noise) for method, by in ahead.items() if method in BEATS}
    if "gradient_quality" in tables:
        quality = tables["gradient_quality"]
        begun = quality[quality["point"] == "start"]  # at the result no swap is an improvement to be found
        rows = begun if len(begun) else quality
        summary["gradient_within_top_k_share"] = float(rows["within_top_k"].mean())


def _flat(table: pd.DataFrame) -> pd.DataFrame:
    """Lists as JSON, which every reader of a table can show."""
    lists = [name for name in table if table[name].map(lambda value: isinstance(value, (list, tuple))).any()]
    return table.assign(
        **{name: [json.dumps(list(value), ensure_ascii=False) for value in table[name]] for name in lists}
    )
