"""Statements of the page on each model: what it is, what it wants most and least, its numbers; and
its card: with whom it agrees, what is wrong with its scores.

Knows an artifact's tables by their declared effects and plots, and by name only `agreement`,
`models` and `provenance`.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from pessimal.plots import BETWEEN
from pessimal.report.artifact import Artifact, Shown, method
from pessimal.statistics import LEVEL
from pessimal.texts import literal, signed, significant

TOKENS = 3
"""At each end."""
Cell = tuple[str, str, bool]
"""The text of a number, the number, and whether it holds."""
NO_CELL: Cell = ("", "-Infinity", False)
PROMPTS = 6
"""On which the page begins with what is wanted; the section of extremes has all."""


def cards(artifact: Artifact) -> list[dict[str, Any]]:
    """One card a model, in the order of the artifact's labels; none of a model of which nothing is
    known.

    Columns: model · label · about · warnings · agreement (Closest or Farthest, the other model,
    Kendall's τ).
    """
    whole_cards = []
    for model, label in artifact.labels.items():
        about, warnings = _provenance(artifact, model)
        card: dict[str, Any] = {"model": model, "label": label, "about": about}
        card |= {"warnings": warnings, "agreement": _agreement(artifact, model)}
        if card["agreement"] or _ends(artifact, model):
            whole_cards.append(card)
    return whole_cards


def numbers(artifact: Artifact) -> dict[str, list]:
    """A table of models × numbers: columns (what is measured, of what, and the question) · rows
    (label, and for each column the text of the number, the number, and whether it holds after
    correction).

    Of each method it has the result of most weight.
    """
    by_method = dict[str, tuple[str, str, dict[str, Cell]]]()
    for result in sorted(artifact.results, key=lambda result: -result.weight):
        if result.method not in by_method and (column := _numbers(artifact, result)):
            by_method[result.method] = column
    columns = [(label, of, method(key).title) for key, (label, of, _) in by_method.items()]
    rows = [
        (label, [cells.get(model, NO_CELL) for *_, cells in by_method.values()])
        for model, label in artifact.labels.items()
        if any(model in cells for *_, cells in by_method.values())
    ]
    return {"columns": columns, "rows": rows}


def wanted(artifact: Artifact) -> list[dict[str, Any]]:
    """The wants of each model, in the order of the artifact's labels, a table for each prompt:
    label (the prompt) · rows (label, ends, and the prompt where it is another, as a language
    model's is)."""
    by_model = {model: _ends(artifact, model) for model in artifact.labels}
    first = next((prompts for prompts in by_model.values() if prompts), {})
    tables = []
    for prompt in itertools.islice(first, PROMPTS):
        rows = []
        for model, ends in by_model.items():
            for key in [prompt] if prompt in ends else [*ends][:1]:
                row = {"label": artifact.labels[model], "ends": ends[key]}
                rows.append(row | {"prompt": key if key != prompt else ""})
        tables.append({"label": prompt, "content": {"rows": rows}})
    return tables


def prompts(artifact: Artifact) -> dict[str, str]:
    """The user turns by prompt, in the order of the results; those whose wording nobody stated are
    left out."""
    table = artifact.table("provenance")
    if not {"prompt", "prompt_text"} <= set(table):
        return {}
    wording = table.dropna(subset="prompt_text").groupby("prompt", sort=False)["prompt_text"]
    texts = wording.first().to_dict()
    tables = (artifact.table(r.name) for r in artifact.results if r.name != "provenance")
    orders = (other["prompt"] for other in tables if "prompt" in other)
    order = max(orders, key=lambda column: len(set(texts) & set(column)), default=())
    return {key: texts[key] for key in dict.fromkeys([*order, *texts]) if key in texts}


def kinds(artifact: Artifact) -> list[tuple[str, list[str]]]:
    """One line on what models are, and the labels of those that it is said of; developer and base
    where there is none."""
    table, lines = artifact.table("models"), dict[str, list[str]]()
    for row in table.to_dict("records") if "model" in table else ():
        values = [row.get(name) for name in ("about", "developer", "base")]
        about, *rest = [text if isinstance(text, str) else "" for text in values]
        line = about or ", ".join(filter(None, rest))
        if line:
            lines.setdefault(line, []).append(artifact.labels.get(row["model"], row["model"]))
    return list(lines.items())


def model_figures(result: Shown, model: str, label: str) -> dict[str, str]:
    """Stems of a result's figures of this model, by what else is in the tab's name."""
    tabs = {tab: tab.split(BETWEEN) for tab in result.figures}
    return {
        BETWEEN.join(part for part in parts if part not in (model, label)): result.figures[tab]
        for tab, parts in tabs.items()
        if model in parts or label in parts
    }


def _first(rows: pd.DataFrame, tabs: Sequence[str]) -> pd.DataFrame:
    """The rows of the first value of each of these columns."""
    for column in tabs:
        rows = rows[rows[column] == rows[column].iloc[0]] if len(rows) and column in rows else rows
    return rows


Ends = dict[str, list[tuple[str, str, bool]]]
"""Tokens with their rewards, and whether their rank is certified, of Most and of Least."""


def _ends(artifact: Artifact, model: str) -> dict[str, Ends]:
    """Words that a model wants most and least, by prompt, from the first candidate set."""
    for result in artifact.results:
        plot, rows = result.plot, artifact.table(result.name)
        needed = {plot.get(field, "") for field in ("column", "rank", "end", "text", "value")}
        if plot.get("column") != "model" or not needed <= set(rows):  # it draws another table
            continue
        rows = rows[rows["model"] == model]
        if len(rows):  # rewards come before log-probabilities
            tabs = [column for column in plot["tabs"] if column != "prompt"]
            rows = _first(rows, ["candidates", *tabs]).sort_values(plot["rank"], kind="stable")
            prompts = rows["prompt"] if "prompt" in rows else pd.Series("", index=rows.index)
            return {str(p): _read_ends(of, plot) for p, of in rows.groupby(prompts, sort=False)}
    return {}


def _read_ends(rows: pd.DataFrame, plot: dict[str, Any]) -> Ends:
    tokens = marked(rows)[[plot["text"], plot["value"], "certified"]].astype(object)
    ends: Ends = {}
    for end, name in (("top", "Most"), ("bottom", "Least")):
        for text, value, certain in tokens[rows[plot["end"]] == end].head(TOKENS).to_numpy():
            token = literal(text), significant(value), bool(certain)
            ends.setdefault(name, []).append(token)
    return ends


def marked(rows: pd.DataFrame) -> pd.DataFrame:
    """Tokens with the column `certified`; all are, where none is: a mark on every token says
    nothing."""
    says = "certified" in rows and rows["certified"].any()
    return rows if says else rows.assign(certified=True)


def _agreement(artifact: Artifact, model: str) -> list[tuple[str, str, str]]:
    """The closest and the farthest other model on the first prompt; one where there is one."""
    pairs, declared = artifact.table("agreement"), artifact.effect("agreement")
    if pairs.empty or declared is None:
        return []
    tau = declared["column"]
    pairs = pairs[(pairs["model_a"] == model) | (pairs["model_b"] == model)]
    pairs = _first(pairs, ["candidates", "prompt"])
    pairs = pairs.dropna(subset=tau).sort_values(tau, ascending=False)
    rows = pairs.iloc[[0, -1][: len(pairs)]].to_dict("records")
    models = [row["model_b"] if row["model_a"] == model else row["model_a"] for row in rows]
    names = [artifact.labels.get(name, name) for name in models]
    taus = [signed(row[tau]) for row in rows]
    return list(zip(("Closest", "Farthest"), names, taus, strict=False))


def _numbers(artifact: Artifact, result: Shown) -> tuple[str, str, dict[str, Cell]] | None:
    """A number of each model, and what it is: of the prompt, list or the like that the result's
    headline is about; None of a result without such numbers."""
    effect, table = result.effect, artifact.table(result.name)
    if not effect or not result.estimate or not {effect["p"], "model"} <= set(table):
        return None
    column, p = effect["column"], effect["p"]
    table = table.dropna(subset=[column, p])
    if table.empty:
        return None
    signs = ".2f" if effect["null"] else "+.2f"
    texts = [c for c in table if c != "model" and not pd.api.types.is_numeric_dtype(table[c])]
    varied = table.groupby("model")[texts].nunique().max() > 1
    keys = [c for c in texts if c == "prompt" or varied[c]]
    first = table.loc[(table[column] - result.estimate["value"]).abs().idxmin()]
    is_there = (table[keys].astype(str) == first[keys].astype(str)).all(axis=1)
    rows = table[is_there].drop_duplicates("model")
    names = [str(first[key]).replace("_", " ") for key in keys]
    cells = {
        model: (signed(value, signs), f"{value:.6g}", bool(holds))
        for model, value, holds in zip(rows["model"], rows[column], rows[p] <= LEVEL, strict=True)
    }
    return effect["label"], ", ".join(literal(name, limit=40) for name in names), cells


def _provenance(artifact: Artifact, model: str) -> tuple[str, list[str]]:
    """Who made a model, how large it is, the share of ranks that is certain; what is wrong with its
    scores."""
    table = artifact.table("provenance")
    rows = table[table["model"] == model] if len(table) else table
    if rows.empty:
        return "", []
    first, warnings = rows.iloc[0], []
    makers = first.reindex(["developer", "base"]).dropna()
    about = [literal(str(maker), limit=30) for maker in makers]
    if pd.notna(size := first.get("parameters")):
        power = min(int(np.log10(max(size, 1)) // 3), 4)
        about.append(f"{size / 1000**power:.3g}{['', 'k', 'M', 'B', 'T'][power]} parameters")
    if "certified" in rows and (share := rows["certified"].mean()):
        about.append(f"{share:.0%} of ranks certified")
    elif "certified" in rows:
        warnings.append("no rank is certified: published by others, or not checked")
    if "dtype" in rows and (low := sorted({d for d in rows["dtype"].dropna() if d != "float32"})):
        warnings.append(f"scored in {', '.join(low)}")
    if {"lowest", "highest"} <= set(rows) and first[["lowest", "highest"]].notna().all():
        lowest, highest = (significant(float(first[end])) for end in ("lowest", "highest"))
        about.append(f"no answer can score beyond {lowest} and {highest}")
    return ", ".join(about), warnings
