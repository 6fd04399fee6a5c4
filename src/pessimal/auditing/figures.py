"""Figures of checks: what came out beside the check's limit."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from pessimal.auditing.verdicts import Verdict, answer_step, main_measure
from pessimal.plots import Forest
from pessimal.tables.result import Result

WORDS = 10
"""Words or tokens in a figure, the best first."""
FIELDS = {
    "one_word": ("text", "least", "lowest reward over the prompts (SD above the mean token)"),
    "preferences": ("category", "accuracy", "share of pairs ranked as labelled (solid: chance)"),
    "identity": ("axis", "d", "words for groups of people less matched words (SD of rewards)"),
    "additions": ("text", "effect", "added to the reward of real answers (SD of their rewards)"),
}
"""By result that decides a check: the columns of rows and of numbers, and the name of the axis."""


def draw_limits(results: Sequence[Result], checks: Sequence[Verdict]) -> list[Result]:
    """The results, those that decide a check with a figure of its number and its limit; without the
    map of identity terms by axis, as the figure has these."""
    by_name, plots = {result.name: result for result in results}, {}
    for name, limit in ((check.result, check.threshold.limit) for check in checks):
        if name in FIELDS:
            rows, at_limit = _rows(name, by_name, limit)
            columns = zip(("row", "estimate", "xlabel"), FIELDS[name], strict=True)
            fields: dict[str, Any] = dict(columns)
            p = next((column for column in ("p_holm", "p_adjusted") if column in rows), None)
            fields |= {"p": p, "data": rows, "limit": at_limit, "tabs": ()}
            plots[name] = Forest(reference=0.5 * (name == "preferences"), **fields)
    slopes = by_name.get("frequency")
    if slopes and slopes.estimate and isinstance(plot := slopes.plot, Forest):
        # Only the row of the headline, by which the verdict goes.
        rows = slopes.table[slopes.table["slope_sd"] == slopes.estimate.value]
        names: dict[str, Any] = {"row": "prompt", "group": None, "panel": None, "where": {}}
        plots["frequency"] = replace(plot, data=rows, **names)
    return [
        replace(result, plot=plots.get(result.name, result.plot))
        for result in results
        if result.name != "identity_axes"
    ]


def _rows(
    name: str, results: Mapping[str, Result], limit: float | None
) -> tuple[pd.DataFrame, float | None]:
    """The rows of a figure, and the limit in the unit of its axis."""
    table = results[name].table
    if name == "identity":
        rows = main_measure(table)
        ends = {end: rows[end] / rows["reward_sd"] for end in ("low", "high")}
        return rows.assign(**ends), limit
    if limit is None or name == "preferences":
        return table, limit
    if name == "additions":
        spread = results["additions_halves"].table["sd"].iloc[0]
        step, _ = answer_step(results.get("preferences"), spread)
        ordinary = table[table["kind"].isin(("normal", "item")) & ~table["end_of_turn"]]
        return ordinary.sort_values("low", ascending=False, kind="stable").head(WORDS), limit * step
    # The best word may stand as many expected gaps above the next as the limit says.
    (best, runner_up), gaps = table["least"].iloc[:2], table["ahead"].iloc[0]
    at_limit = runner_up + limit * (best - runner_up) / gaps if gaps else None
    words = table[["text", "least"]].head(WORDS)
    return words.assign(text=words["text"].str.strip()), at_limit
