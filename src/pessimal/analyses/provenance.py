"""Where each score comes from: one row a score table, published scores and log-probabilities
included; and what is known of each model."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from pessimal.analyses.analysis import Needs, Options, analysis
from pessimal.catalogue import described, known_model, models_table
from pessimal.tables.result import Result
from pessimal.tables.score_table import ScoreTable
from pessimal.tables.table_set import TableSet

COLUMNS = [
    "model", "prompt", "prompt_text", "candidates", "n", "score", "mode", "source", "dtype",
    "attention", "largest_difference", "checked", "certified", "survives", "base", "developer",
    "parameters", "revision", "weights", "lowest", "highest",
]  # fmt: skip


def provenance(table: ScoreTable) -> dict[str, object]:
    """The thing that was scored, how, and how far the scores can be trusted.

    `largest_difference` is the trust check's, in units of reward, over `checked` candidates;
    `certified` and `survives` are shares of the n candidates. `lowest` and `highest` are what the
    head could give any answer at all, where that is known.
    """
    origin, description, survives = table.provenance, table.description, table.rows["survives"]
    trust = table.measured.get("trust") or {}
    ceiling = table.measured.get("ceiling") or {}
    fields = [
        "model", "prompt", "prompt_text", "candidates", "score", "mode", "source", "dtype",
        "attention", "revision",
    ]  # fmt: skip
    return {name: getattr(origin, name) for name in fields} | {
        "n": len(table.rows),
        "largest_difference": trust.get("largest_difference"),
        "checked": trust.get("n"),
        "certified": float(table.rows["certified"].mean()),
        "survives": None if survives.isna().all() else float(survives.mean()),
        "base": description.base,
        "developer": description.developer,
        "parameters": description.parameters,
        "weights": (origin.weights_digest or "")[:12],
        "lowest": ceiling.get("low"),
        "highest": ceiling.get("high"),
    }


@analysis("provenance", Needs(models=0, prompts=0), place=10)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Every table that was given, those that stand for no model included.

    Tables:
        provenance: Where each score comes from, a row a score table.
            - as everywhere: model, prompt, candidates
            - prompt_text: the user turn, word by word; missing where a published file does not
                state it
            - score: reward or log_probability
            - mode: how candidates were scored, ids, text, paper, or published for imported scores
            - source: scan, or the file imported
            - dtype: precision of the network
            - attention: path that computed the scores
            - largest_difference: largest difference that the trust check met, in units of reward
            - checked: candidates that the trust check scored again
            - base: pretrained model or family
            - developer: who trained the model
            - parameters: number of parameters
            - revision: commit of the model's repository
            - weights: first 12 digits of the weights' sha256
            - lowest: the lowest reward that any answer of any length can have; missing where no
                bound is known
            - highest: the highest such reward
            - n: candidates
            - certified: share of candidates whose rank is certain
            - survives: share of candidates whose ids come back
    """
    rows = pd.DataFrame([provenance(table) for table in tables.tables])[COLUMNS]
    rows = rows.astype({"lowest": float, "highest": float})
    ordered = rows.sort_values(["model", "prompt"], kind="stable", ignore_index=True)
    return [Result("provenance", ordered, method="provenance")]


def models(sets: Sequence[TableSet]) -> Result:
    """Every model compared, by the names it goes under, with what a representational similarity
    analysis asks of it.

    What the score tables say of a model comes first, then what `conf/model` does.

    Tables:
        models: What is known of each model.
            - as everywhere: model
            - label: name in figures
            - repository: Hub repository
            - base: pretrained model or family
            - developer: who trained it
            - size: parameters, in billions
            - rank: rank on RewardBench, 1 is best
            - about: one line on what it is
    """
    rows: dict[str, dict[str, Any]] = {}
    for table in (table for table_set in sets for table in table_set.tables):
        model, description = table.model, table.description
        fields_of: dict[str, Any] = described(model, asdict(description))
        parameters = fields_of.pop("parameters")
        fields_of |= {
            "repository": (known_model(model) or {}).get("repository"),
            "size": parameters and parameters / 1e9,
        }
        row = rows.setdefault(model, {"model": model})
        for name, value in fields_of.items():
            if value is not None:
                row.setdefault(name, value)
    columns = ["model", *models_table().columns, "about"]
    table = pd.DataFrame(rows.values(), columns=columns).astype({"size": float, "rank": float})
    label = table["label"].where(table["label"].notna(), table["model"])
    ordered = table.assign(label=label).sort_values(
        ["rank", "label"], kind="stable", ignore_index=True
    )
    return Result("models", ordered, method="provenance")
