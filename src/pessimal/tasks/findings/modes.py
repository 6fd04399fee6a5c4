"""Ids or text: each model scanned in several modes, against itself."""

from collections.abc import Mapping

import pandas as pd

from pessimal.analysis.sensitivity import SideBySide, moved, sensitivity, side_by_side
from pessimal.config.schema import CompareConfig
from pessimal.figures.modes import modes as figure_of
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry
from pessimal.tables import ScoreTable
from pessimal.tasks.findings.group import Group
from pessimal.tasks.findings.scans import MODES, Modes
from pessimal.tracking.registry import safe_name

HOW = {
    "ids": "ids (exactly this token)",
    "text": "text (as a person would type it, through the chat template)",
    "paper": "paper (the text, tokenised with special tokens added again, as published)",
}
"""The modes in words."""


def what_the_mode_changes(
    group: Group, several: Mapping[str, Modes], config: CompareConfig, contents: Contents
) -> None:
    """A section for one prompt, two entries for each model: `several` are the models with two or more modes."""
    named = [mode for mode in MODES if any(mode in tables for tables in several.values())]
    section = contents.section(
        title_of(group),
        f"Each model against itself, its {group.things} scored in other ways: {'; '.join(HOW[mode] for mode in named)}. "
        f"Intervals ({config.confidence:.0%}) are a bootstrap over {group.things}. All other sections on this prompt rest "
        f"on mode {named[0]}.",
    )
    for model, tables in several.items():
        section.entries.extend(_entries(model, tables, group, config, contents))


def title_of(group: Group) -> str:
    """Heading of the section on a group's modes."""
    return f"{group.prompt} · {group.candidates} · {'ids or text' if group.things == 'tokens' else 'modes'}"


def _entries(
    model: str, tables: Modes, group: Group, config: CompareConfig, contents: Contents
) -> list[Entry]:
    label = group.labels()[model]
    scans = side_by_side({mode: table.rows for mode, table in tables.items()})
    table = sensitivity(
        scans,
        top=config.top,
        replicates=config.replicates,
        confidence=config.confidence,
        seed=config.seed,
    )
    low_precision = any(scan.identity.dtype != "float32" for scan in tables.values())
    noise = {mode: _noise(scan) for mode, scan in tables.items()}
    table["noise"] = table["mode_a"].map(noise) + table["mode_b"].map(noise)
    farthest = moved(scans, top=config.top)
    where = {"model": model, **group.where}
    contents.add_table("sensitivity", table, **where)
    contents.add_table("moved", farthest, **where)

    first, second = scans.pairs[0]
    name = f"{group.stem}-modes-{safe_name(model)}"
    contents.figures[name] = figure_of(
        SideBySide(scans.tokens, scans.rewards[[first, second]]),
        farthest[(farthest["mode_a"] == first) & (farthest["mode_b"] == second)],
        title=f"{label}: {group.prompt}, {first} or {second}",
    )
    whole = table[table["tokens"] == "all"]
    for row in whole.itertuples():
        contents.summary[f"{group.stem}/modes/{row.mode_a}-{row.mode_b}/kendall/{model}"] = float(row.kendall)
        contents.summary[f"{group.stem}/modes/{row.mode_a}-{row.mode_b}/rbo/{model}"] = float(row.rbo)
    if scans.tokens["survives"].notna().all():
        contents.summary[f"{group.stem}/modes/survives/{model}"] = float(whole["surviving"].iloc[0])
    told = [
        _survival(table),
        *(_pair(row) for row in whole.itertuples()),
        _survivors(table, low_precision=low_precision),
        _ties(scans, group),
    ]
    return [
        Entry(label, " ".join(filter(None, told)), figure=name, table="sensitivity", where=where),
        Entry(
            f"{label}: the {group.things} that move most",
            _movers(farthest, group, n=len(scans.rewards)),
            table="moved",
            where=where,
        ),
    ]


def _survival(table: pd.DataFrame) -> str:
    first = table.drop_duplicates("tokens").set_index("tokens")
    if first["surviving"].isna().any():
        return ""
    kinds = first.drop(index=["all", "surviving", "changed"], errors="ignore")
    by_kind = ", ".join(f"{kind} {row.surviving:.1%} of {row.n:,}" for kind, row in kinds.iterrows())
    return (
        f"{first.at['all', 'surviving']:.1%} of {first.at['all', 'n']:,} tokens survive: typed as text they become the "
        f"same ids again{f' ({by_kind})' if by_kind else ''}."
    )


def _pair(row) -> str:
    return (
        f"{row.mode_a} × {row.mode_b}, n = {row.n:,}: τ-b = {row.kendall:.3f} [{row.low:.3f}, {row.high:.3f}], "
        f"rank-biased overlap {row.rbo:.2f}; {round(row.top_overlap * row.top)} of the {row.top} best and "
        f"{round(row.bottom_overlap * row.top)} of the {row.top} worst are the same."
    )


def _survivors(table: pd.DataFrame, *, low_precision: bool) -> str:
    """Whether ids and text agree where they must: on tokens that are the same input in both."""
    rows = table[(table["mode_a"] == "ids") & (table["mode_b"] == "text") & (table["tokens"] == "surviving")]
    if rows.empty:
        return ""
    row = rows.iloc[0]
    told = (
        f"On the {row['n']:,} surviving tokens, one input in modes ids and text, rewards differ by at most "
        f"{row['largest_difference']:.2g}"
    )
    if pd.isna(row["noise"]):
        return f"{told}; the scans' numerical error is not known."
    if row["largest_difference"] <= row["noise"]:
        return f"{told}, within the numerical error of the two scans ({row['noise']:.2g})."
    more = f"{told}, MORE than the numerical error of the two scans ({row['noise']:.2g})"
    if low_precision:
        return f"{more}, which scans in low precision measure on the tokens scored again only."
    return f"{more}: something besides the mode differs between them. Scan both again on one machine, with force=true."


def _ties(scans: SideBySide, group: Group) -> str:
    tied = {mode: int(column.duplicated(keep=False).sum()) for mode, column in scans.rewards.items()}
    counts = ", ".join(f"{count:,} in {mode}" for mode, count in tied.items())
    return f"{group.things.capitalize()} with exactly another's reward: {counts}."


def _movers(farthest: pd.DataFrame, group: Group, *, n: int) -> str:
    """The farthest up and down between the first two modes, with both ranks."""
    if farthest.empty:
        return f"None of {n:,} {group.things} changes its rank."
    first = farthest[
        (farthest["mode_a"] == farthest["mode_a"].iloc[0])
        & (farthest["mode_b"] == farthest["mode_b"].iloc[0])
    ]
    told = [
        f"{way}: "
        + ", ".join(
            f"{literal(row.text)} ({row.rank_a:,.0f} → {row.rank_b:,.0f})"
            for row in rows.head(3).itertuples()
        )
        for way, rows in (("up", first[first["moved"] > 0]), ("down", first[first["moved"] < 0]))
        if len(rows)
    ]
    return (
        f"By rank among {n:,} {group.things}, 1 = best, ties at their average; of {group.things} with one text the "
        f"farthest. From {first['mode_a'].iloc[0]} to {first['mode_b'].iloc[0]}, {'; '.join(told)}."
    )


def _noise(table: ScoreTable) -> float:
    """Largest numerical error that a scan knows of, in units of reward; NaN where it was not measured."""
    measured = [table.measured.get(name) for name in ("noise", "largest_low_precision_error")]
    return float("nan") if None in measured else float(sum(measured))
