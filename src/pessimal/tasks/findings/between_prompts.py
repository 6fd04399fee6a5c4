"""Each model's rewards under one prompt against its rewards under another."""

from collections.abc import Sequence

import pandas as pd

from pessimal.analysis.framing import axes, framing
from pessimal.config.schema import CompareConfig
from pessimal.figures.scatter import scatter
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry
from pessimal.tables import ScoreTable
from pessimal.tasks.findings.group import Group
from pessimal.tracking.registry import safe_name

PAIRS = (("best", "worst"), ("greatest", "worst"), ("greatest", "best"))
"""Prompts whose rewards are drawn against one another."""


def framings(members: Sequence[Group], config: CompareConfig, contents: Contents) -> None:
    """A section for each pair of prompts, an entry for each model. `members` are of one candidate set."""
    by_prompt = {group.prompt: group for group in members}
    for first, second in PAIRS:
        if first not in by_prompt or second not in by_prompt:
            continue
        group, others = by_prompt[first], {t.identity.model: t for t in by_prompt[second].tables}
        section = contents.section(
            f"{first} × {second} · {group.candidates}",
            f"Each model's rewards for *{first}* against its rewards for *{second}*.",
        )
        for table in group.tables:
            other = others.get(table.identity.model)
            if other and other.identity.mode != table.identity.mode:
                section.entries.append(_not_in_one_mode(table, other, group))
            elif other:
                section.entries.append(_framing(table, other, group, config, contents))


def _framing(
    x_table: ScoreTable, y_table: ScoreTable, group: Group, config: CompareConfig, contents: Contents
) -> Entry:
    model, first, second = x_table.identity.model, x_table.identity.prompt, y_table.identity.prompt
    label = group.labels()[model]
    where = {"model": model, "first": first, "second": second, "candidates": group.candidates}
    x, y = _rewards(x_table), _rewards(y_table)
    table = framing(x, y, replicates=config.replicates, confidence=config.confidence, seed=config.seed)
    contents.add_table("framing", table, **where)
    places = axes(x, y)
    ends = pd.concat([places.nlargest(config.top, "total"), places.nsmallest(config.top, "total")])
    contents.add_table(
        "orthogonal_axis", ends.rename(columns={"best": "reward_first", "worst": "reward_second"}), **where
    )
    name = f"{group.stem}-{second}-{safe_name(model)}"
    contents.figures[name] = scatter(x, y, x_name=first, y_name=second, title=label)
    row = table.iloc[0]
    contents.summary[f"{group.stem}-{second}/pearson/{model}"] = float(row["pearson"])
    liked, disliked = (
        ends["text"].iloc[0],
        ends["text"].iloc[config.top if len(places) >= config.top else len(places)],
    )
    return Entry(
        label,
        f"r = {row['pearson']:.2f} [{row['pearson_low']:.2f}, {row['pearson_high']:.2f}] over all {int(row['n']):,} "
        f"{group.things} of this model. The axis {first} − {second} carries {row['share_difference']:.0%} of the "
        f"variance; along the other one, liked either way: {literal(liked)}; disliked either way: {literal(disliked)}.",
        figure=name,
    )


def _not_in_one_mode(x_table: ScoreTable, y_table: ScoreTable, group: Group) -> Entry:
    """What is said in place of a framing: between two modes the mode would pass for the prompt."""
    x, y = x_table.identity, y_table.identity
    return Entry(
        group.labels()[x.model],
        f"Not compared: {x.prompt} was scanned in mode {x.mode}, {y.prompt} in mode {y.mode}. Scan both in one: "
        f"pessimal scan mode={x.mode} prompts=[{y.prompt}]",
    )


def _rewards(table: ScoreTable) -> pd.Series:
    """Rewards in order of candidate; two tokens may decode to one text, so the texts are names, not keys."""
    return pd.Series(table.rows["reward"].to_numpy(), index=pd.Index(table.rows["text"], name="text"))
