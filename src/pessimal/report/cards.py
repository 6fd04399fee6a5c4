"""The cards of models: what each wants most and least, with whom it agrees, what moves it, what is
wrong with its scores.

Knows an artifact's tables by their columns and declared plots, and by name only `agreement` and
`provenance`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pessimal.plots import BETWEEN
from pessimal.report.artifact import Artifact, Shown
from pessimal.tables.result import LEVEL
from pessimal.texts import literal, significant

TOKENS = 3
"""At each end."""
EFFECTS = ("d", "slope_sd", "difference_sd", "steeper_sd", "effect_sd", "estimate", "effect")
"""Columns of which the first that is there is the size of an effect, where no plot declares one."""
CORRECTED = {"flip_q": "flip_rate", "slope_q": "slope", "change_q": "change"}
"""Corrected p values of explanations, and the sizes that they belong to."""


def cards(artifact: Artifact) -> list[dict[str, Any]]:
    """One card a model, in the order of the artifact's labels; none of a model of which nothing is
    known.

    Columns: model · label · about · warnings · prompt (to which the tokens answer) · ends (Most and
        Least wanted: text,
    reward, whether its rank is certified) · agreement (Closest or Farthest, the other model,
    Kendall's τ) · effects (result, largest effect that holds after correction, where it is found
    and how many hold of how many).
    """
    made = []
    for model, label in artifact.labels.items():
        about, warnings = _provenance(artifact, model)
        prompt, ends = _ends(artifact, model)
        effects: dict[str, tuple[str, str, str]] = {}  # one a method
        for result in artifact.results:
            if result.method not in effects and (effect := _effect(artifact, result, model)):
                effects[result.method] = effect
        agreement = _agreement(artifact, model)
        if ends or agreement or effects:
            card = {
                "model": model,
                "label": label,
                "about": about,
                "warnings": warnings,
                "prompt": prompt,
                "ends": ends,
            }
            made.append(card | {"agreement": agreement, "effects": [*effects.values()]})
    return made


def of_model(result: Shown, model: str, label: str) -> dict[str, str]:
    """Stems of a result's figures of this model, by what else is in the tab's name."""
    tabs = {tab: tab.split(BETWEEN) for tab in result.figures}
    return {
        BETWEEN.join(part for part in parts if part not in (model, label)): result.figures[tab]
        for tab, parts in tabs.items()
        if model in parts or label in parts
    }


def _first(rows: pd.DataFrame, tabs: Sequence[str] = ()) -> pd.DataFrame:
    """The rows of the first candidate set and prompt, and of the first of other tabs."""
    for column in ("candidates", "prompt", *tabs):
        rows = rows[rows[column] == rows[column].iloc[0]] if len(rows) and column in rows else rows
    return rows


def _ends(artifact: Artifact, model: str) -> tuple[str, dict[str, list[tuple[str, str, bool]]]]:
    of_tokens = [
        r for r in artifact.results if r.plot.get("column") == "model" and "rank" in r.plot
    ]
    # Rewards, then log-probabilities.
    tables = ((r.plot, artifact.table(r.name)) for r in of_tokens)
    own = ((plot, rows[rows["model"] == model]) for plot, rows in tables)
    plot, rows = next(((plot, rows) for plot, rows in own if len(rows)), ({}, pd.DataFrame()))
    if rows.empty:
        return "", {}
    rows = _first(rows, plot["tabs"]).sort_values(plot["rank"])
    if "certified" not in rows or not rows["certified"].any():  # a mark on every token says nothing
        rows = rows.assign(certified=True)
    ends = {
        name: [
            (literal(text), significant(value), bool(certain))
            for text, value, certain in own[[plot["text"], plot["value"], "certified"]]
            .head(TOKENS)
            .to_numpy(dtype=object)
        ]
        for end, name in (("top", "Most"), ("bottom", "Least"))
        if len(own := rows[rows[plot["end"]] == end])
    }
    return (str(rows["prompt"].iloc[0]) if len(rows) and "prompt" in rows else ""), ends


def _agreement(artifact: Artifact, model: str) -> list[tuple[str, str, str]]:
    """The closest and the farthest other model on the first prompt; one where there is one."""
    pairs = artifact.table("agreement")
    if pairs.empty:
        return []
    own = _first(pairs[(pairs["model_a"] == model) | (pairs["model_b"] == model)])
    own = own.dropna(subset="kendall").sort_values("kendall", ascending=False)
    found = []
    for how, rows in (("Closest", own.head(1)), ("Farthest", own.iloc[1:].tail(1))):
        for row in rows.itertuples():
            other = row.model_b if row.model_a == model else row.model_a
            found.append(
                (how, artifact.labels.get(other, other), f"{row.kendall:.2f}".replace("-", "−"))
            )
    return found


def _effect(artifact: Artifact, result: Shown, model: str) -> tuple[str, str, str] | None:
    """The largest effect on a model, of those whose corrected p is at most LEVEL."""
    table = artifact.table(result.name)
    if set(result.plot.get("where", ())) <= set(table):
        table = artifact.rows(result)
    corrected = [c for c in table if c == "p_adjusted" or c.endswith("p_holm") or c in CORRECTED]
    p = next((c for c in (result.plot.get("p"), *corrected) if c in corrected), None)
    size = next(
        (c for c in (result.plot.get("estimate"), CORRECTED.get(p), *EFFECTS) if c in table), None
    )
    if "model" not in table or p is None or size is None:
        return None
    own = table[(table["model"] == model) & table[p].notna()]
    holds = own[own[p] <= LEVEL]
    if holds.empty:
        return None
    zero = result.plot.get("reference") or 0.0
    row = holds.loc[(holds[size] - zero).abs().idxmax()]
    keys = [
        c
        for c in table
        if c not in ("model", "unit") and not pd.api.types.is_numeric_dtype(table[c])
    ]
    keys = [
        c
        for c in keys
        if own[c].nunique() > 1 and not any(_follows(table, c, other) for other in keys)
    ]
    where = ", ".join(literal(str(row[key]), limit=40).replace("_", " ") for key in keys)
    name = (
        ""
        if size.endswith("_sd") or size in ("estimate", "effect")
        else f"{size.replace('_', ' ')} = "
    )
    sign = "+" if zero == 0 and row[size] > 0 else ""
    unit = " SD" if size.endswith("_sd") or size == "d" else ""
    text = f"{name}{sign}{row[size]:.2f}{unit}".replace("-", "−")
    return result.name, text, f"{where} {len(holds)}/{len(own)}"


def _follows(table: pd.DataFrame, key: str, other: str) -> bool:
    """Whether a key says nothing that another one, of more values, does not say."""
    values = table[other].nunique()
    return table[key].nunique() < values == len(table[[key, other]].drop_duplicates())


def _provenance(artifact: Artifact, model: str) -> tuple[str, list[str]]:
    """Who made a model, how large it is, the share of ranks that is certain; what is wrong with its
    scores."""
    table = artifact.table("provenance")
    rows = table[table["model"] == model] if len(table) else table
    if rows.empty:
        return "", []
    first, warnings = rows.iloc[0], []
    about = [
        literal(str(first[c]), limit=30)
        for c in ("developer", "base")
        if c in rows and pd.notna(first[c])
    ]
    if "parameters" in rows and pd.notna(first["parameters"]):
        power = min(int(np.log10(max(first["parameters"], 1)) // 3), 4)
        about.append(f"{first['parameters'] / 1000**power:.3g}{['', 'k', 'M', 'B', 'T'][power]}")
    if "certified" in rows and (share := rows["certified"].mean()):
        about.append(f"{share:.0%} certified")
    elif "certified" in rows:
        warnings.append("no rank is certified: published by others, or not checked")
    if "dtype" in rows and (low := sorted({d for d in rows["dtype"].dropna() if d != "float32"})):
        warnings.append(f"scored in {', '.join(low)}")
    return ", ".join(about), warnings
