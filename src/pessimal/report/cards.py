"""The cards of models: what each wants most and least, with whom it agrees, what moves it, what is
wrong with its scores.

Knows an artifact's tables by their declared effects and plots, and by name only `agreement` and
`provenance`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pessimal.plots import BETWEEN
from pessimal.report.artifact import Artifact, Shown, chosen_rows
from pessimal.statistics import LEVEL
from pessimal.texts import literal, signed, significant

TOKENS = 3
"""At each end."""


def cards(artifact: Artifact) -> list[dict[str, Any]]:
    """One card a model, in the order of the artifact's labels; none of a model of which nothing is
    known.

    Columns: model · label · about · warnings · prompt (to which the tokens answer) · ends (Most and
    Least wanted: text, reward, whether its rank is certified) · agreement (Closest or Farthest, the
    other model, Kendall's τ) · effects (result, largest effect that holds after correction, where
    it is found and how many hold of how many).
    """
    cards_made = []
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
            cards_made.append(card | {"agreement": agreement, "effects": [*effects.values()]})
    return cards_made


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
    of_model = ((plot, rows[rows["model"] == model]) for plot, rows in tables)
    plot, rows = next(
        ((plot, rows) for plot, rows in of_model if len(rows)), (dict[str, Any](), pd.DataFrame())
    )
    if rows.empty:
        return "", {}
    rows = _first(rows, plot["tabs"]).sort_values(plot["rank"])
    if "certified" not in rows or not rows["certified"].any():  # a mark on every token says nothing
        rows = rows.assign(certified=True)
    ends = {
        name: [
            (literal(text), significant(value), bool(certain))
            for text, value, certain in of_model[[plot["text"], plot["value"], "certified"]]
            .head(TOKENS)
            .to_numpy(dtype=object)
        ]
        for end, name in (("top", "Most"), ("bottom", "Least"))
        if len(of_model := rows[rows[plot["end"]] == end])
    }
    return (str(rows["prompt"].iloc[0]) if len(rows) and "prompt" in rows else ""), ends


def _agreement(artifact: Artifact, model: str) -> list[tuple[str, str, str]]:
    """The closest and the farthest other model on the first prompt; one where there is one."""
    pairs, declared = artifact.table("agreement"), artifact.effect("agreement")
    if pairs.empty or declared is None:
        return []
    tau = declared["column"]
    pairs = _first(pairs[(pairs["model_a"] == model) | (pairs["model_b"] == model)])
    pairs = pairs.dropna(subset=tau).sort_values(tau, ascending=False)
    return [
        (how, artifact.labels.get(other, other), signed(row[tau]))
        for how, rows in (("Closest", pairs.head(1)), ("Farthest", pairs.iloc[1:].tail(1)))
        for _, row in rows.iterrows()
        for other in [row["model_b"] if row["model_a"] == model else row["model_a"]]
    ]


def _effect(artifact: Artifact, result: Shown, model: str) -> tuple[str, str, str] | None:
    """The largest effect on a model, of those whose corrected p is at most LEVEL."""
    effect, table = result.effect, artifact.table(result.name)
    if effect is None or effect["p"] not in table or "model" not in table:
        return None
    where = result.plot.get("where", {})
    if set(where) <= set(table):
        table = chosen_rows(table, where)
    column, p = effect["column"], effect["p"]
    tested = table[(table["model"] == model) & table[p].notna()]
    holds = tested[tested[p] <= LEVEL]
    if holds.empty:
        return None
    null = holds[effect["null"]] if isinstance(effect["null"], str) else effect["null"] or 0.0
    distance = holds[column] - null
    row = holds.loc[distance.abs().idxmax()]
    texts = [c for c in table if c != "model" and not pd.api.types.is_numeric_dtype(table[c])]
    keys = [
        c
        for c in texts
        if tested[c].nunique() > 1 and not any(_follows(table, c, other) for other in texts)
    ]
    keys_of_row = ", ".join(literal(str(row[key]), limit=40).replace("_", " ") for key in keys)
    symbol = f"{effect['symbol']}=" if effect["symbol"] else ""
    value = signed(row[column], "+.2f" if (distance == holds[column]).all() else ".2f")
    unit = f" {effect['unit']}" if effect["unit"] else ""
    return result.name, f"{symbol}{value}{unit}", f"{keys_of_row} {len(holds)}/{len(tested)}"


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
