"""Each model's rewards under one prompt against its rewards under another."""

from collections.abc import Mapping

import pandas as pd

from pessimal.analysis.framing import ends_of_axes, highest_and_lowest_in_both
from pessimal.analysis.framing import framings as compare
from pessimal.config.schema import CompareConfig
from pessimal.figures.axes import two_axes
from pessimal.figures.scatter import scatter
from pessimal.figures.words import literal
from pessimal.report.contents import Contents, Entry
from pessimal.tables import ScoreTable
from pessimal.tasks.findings.factorial import sign_of
from pessimal.tasks.findings.group import Group
from pessimal.tracking.registry import safe_name

PAIRS = (("best", "worst"), ("greatest", "worst"), ("greatest", "best"))
"""Prompts whose rewards are drawn against one another."""


def framings(members: Mapping[str, Group], config: CompareConfig, contents: Contents) -> None:
    """A section for each pair of prompts: all models in one entry, then an entry for each.

    `members` are of one candidate set, by prompt.
    """
    for first, second in PAIRS:
        if first in members and second in members:
            _two_prompts(members[first], members[second], config, contents)


def _two_prompts(group: Group, other: Group, config: CompareConfig, contents: Contents) -> None:
    """The section on one pair of prompts."""
    first, second = group.prompt, other.prompt
    section = contents.section(
        f"{first} × {second} · {group.candidates}",
        f"Each model's rewards for “{first}” against its rewards for “{second}”. {_expected(first, second, config)}",
    )
    others = {table.identity.model: table for table in other.tables}
    pairs: dict[str, tuple[pd.Series, pd.Series]] = {}
    refused: list[Entry] = []
    for table in group.tables:
        model = table.identity.model
        if model not in others:
            continue
        if others[model].identity.mode != table.identity.mode:
            refused.append(_not_in_one_mode(table, others[model], group))
        else:
            pairs[model] = _rewards(table), _rewards(others[model])
    if pairs:
        where = {"first": first, "second": second, "candidates": group.candidates}
        table = compare(pairs, replicates=config.replicates, confidence=config.confidence, seed=config.seed)
        contents.add_table("framing", table, **where)
        section.entries.append(_all_models(table, group, second, where, config, contents))
        for row in table.itertuples():
            section.entries.append(_one_model(row, pairs[row.model], group, where, config, contents))
    else:
        missing = (
            f"No model was scanned in one mode for both {first} and {second}, so there is nothing to compare."
        )
        section.entries.append(Entry("All models", missing))
    section.entries.extend(refused)


def _expected(first: str, second: str, config: CompareConfig) -> str:
    """What the two prompts ask for, and so what a model that reads them would do."""
    asked = sign_of(first, config), sign_of(second, config)
    if None in asked:
        return "Which of them good words answer is not stated (+frames.KEY=1 or -1)."
    if asked[0] == asked[1]:
        return (
            "Both ask for the same end of the scale: a model that reads them has a reversal score near 0, and the axis "
            f"{first} + {second} carries nearly all of the variance."
        )
    return (
        "They ask for opposite ends of the scale: a model that scored nothing but how well an item answers would have a "
        f"reversal score near 1. What lies along {first} + {second} instead is liked, or disliked, whatever is asked."
    )


def _all_models(
    table: pd.DataFrame,
    group: Group,
    second: str,
    where: dict[str, str],
    config: CompareConfig,
    contents: Contents,
) -> Entry:
    """The entry that compares models: reversal scores and shares of variance, with the table of all statistics."""
    first, labels = group.prompt, group.labels()
    name = f"{group.stem}-{second}-framing"
    contents.figures[name] = two_axes(
        table.assign(model=table["model"].map(labels)),
        first=first,
        second=second,
        title=f"{first} × {second}: how much turns round",
    )
    for row in table.itertuples():
        contents.summary[f"{group.stem}-{second}/reversal/{row.model}"] = float(row.reversal)
        contents.summary[f"{group.stem}-{second}/pearson/{row.model}"] = float(row.pearson)
    most, least = table.loc[table["reversal"].idxmax()], table.loc[table["reversal"].idxmin()]
    if len(table) == 1:
        told = f"{_score(most, labels)}."
    else:
        above = int((table["reversal_low"] > 0.5).sum())
        below = int((table["reversal_high"] < 0.5).sum())
        told = (
            f"Highest: {_score(most, labels)}; lowest: {_score(least, labels)}. Surely more than half of the pairs: "
            f"{above} of {len(table)} models; surely less: {below}."
        )
    sizes = " or ".join(f"{n:,}" for n in sorted(table["n"].unique()))
    tied = table["tied"].max()
    return Entry(
        "All models",
        f"Reversal score: of the pairs of {group.things} that a model orders under both prompts, the share that it orders "
        f"the other way round (1 mirror image, ½ unrelated, 0 one order whatever is asked). {told} Each model over all "
        f"its {sizes} {group.things}; pairs tied under either prompt, at most {tied:.2%}, are left out. Intervals "
        f"({config.confidence:.0%}) are a bootstrap over {group.things}, and say nothing about other wordings. The score "
        "does not tell words from noise: of a model that rates few words and scatters the rest it is near ½.",
        figure=name,
        table="framing",
        where=where,
    )


def _one_model(
    row,
    pair: tuple[pd.Series, pd.Series],
    group: Group,
    where: dict[str, str],
    config: CompareConfig,
    contents: Contents,
) -> Entry:
    """One model's scatter, and the ends of both axes."""
    model, first, second = row.model, where["first"], where["second"]
    label = group.labels()[model]
    ends = ends_of_axes(*pair, k=config.top)
    where = {"model": model, **where}
    contents.add_table(
        "axes", ends.rename(columns={"best": "reward_first", "worst": "reward_second"}), **where
    )
    name = f"{group.stem}-{second}-{safe_name(model)}"
    contents.figures[name] = scatter(*pair, x_name=first, y_name=second, title=label)
    outermost = ends[ends["rank"] == 1].set_index(["axis", "end"])["text"].map(literal)
    liked, disliked = map(literal, highest_and_lowest_in_both(*pair))
    return Entry(
        label,
        f"Reversal score {row.reversal:.3f} [{row.reversal_low:.3f}, {row.reversal_high:.3f}], τ-b = {row.kendall:.2f}, "
        f"r = {row.pearson:.2f} [{row.pearson_low:.2f}, {row.pearson_high:.2f}] over all {row.n:,} {group.things} of this "
        f"model. The axis {first} − {second} carries {row.share_difference:.1%} "
        f"[{row.share_difference_low:.1%}, {row.share_difference_high:.1%}] of the variance of both: from "
        f"{outermost['difference', 'bottom']} to {outermost['difference', 'top']}. High under both "
        f"prompts: {liked}; low under both: {disliked}. The {config.top} "
        f"{group.things} at each end of both axes are in the table.",
        figure=name,
        table="axes",
        where=where,
    )


def _score(row: pd.Series, labels: dict[str, str]) -> str:
    return (
        f"{labels[row['model']]}, {row['reversal']:.3f} [{row['reversal_low']:.3f}, {row['reversal_high']:.3f}], with "
        f"{row['share_difference']:.1%} of the variance along the difference"
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
