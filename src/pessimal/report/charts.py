"""What the page's charts of models are drawn from: agreement of pairs, and places on the map.

Knows a comparison's tables. Does not know how a chart looks.
"""

import math
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal.analysis.geometry import order
from pessimal.report.contents import Entry
from pessimal.report.packing import plain

MEASURES = ("kendall", "spearman", "rbo", "top_overlap", "bottom_overlap")
_OF_PAIRS = ("n", "low", "high", "spearman_low", "spearman_high", "top")


def chart_of(folder: Path, entry: Entry, beside: list[Entry]) -> dict | None:
    """The chart that belongs to an entry of a section, or None.

    Args:
        folder: of the published comparison.
        entry: the finding.
        beside: the entries of its section; one of them says on which prompt and candidates a map rests.
    """
    if entry.figure and entry.table == "agreement":
        return _agreement(_rows(folder, "agreement", entry.where))
    if entry.figure and entry.figure.endswith("-map") and entry.table is None:
        where = next((e.where for e in beside if e.table == "agreement"), None)
        return None if where is None else _map(_rows(folder, "mds", where), folder)
    return None


def _agreement(pairs: pd.DataFrame) -> dict | None:
    if pairs.empty:
        return None
    models = _in_figures_order(pairs)
    kept = [c for c in (*MEASURES, *_OF_PAIRS) if c in pairs]
    rows = [
        [models.index(a), models.index(b), *map(_number, values)]
        for a, b, *values in pairs[["model_a", "model_b", *kept]].itertuples(index=False)
    ]
    return {
        "kind": "agreement",
        "models": [plain(model) for model in models],
        "measures": [measure for measure in MEASURES if measure in kept],
        "columns": ["a", "b", *kept],
        "pairs": rows,
    }


def _in_figures_order(pairs: pd.DataFrame) -> list[str]:
    """Models in the order of the static figure; in their own where a τ is missing."""
    models = list(dict.fromkeys([*pairs["model_a"], *pairs["model_b"]]))
    tau = pd.DataFrame(np.eye(len(models)), index=models, columns=models)
    for a, b, value in pairs[["model_a", "model_b", "kendall"]].itertuples(index=False):
        tau.loc[a, b] = tau.loc[b, a] = value
    return models if tau.isna().any(axis=None) else order(tau)


def _map(places: pd.DataFrame, folder: Path) -> dict | None:
    if places.empty:
        return None
    provenance = (
        pd.read_parquet(folder / "tables" / "provenance.parquet").drop_duplicates("model").set_index("model")
    )
    known = [c for c in ("developer", "base", "parameters") if c in provenance]
    described = provenance[known].reindex(places["model"])
    return {
        "kind": "map",
        "models": [plain(model) for model in places["model"]],
        "x": places["x"].astype(float).tolist(),
        "y": places["y"].astype(float).tolist(),
        "described": {c: [_number(v) for v in described[c]] for c in known},
    }


def _rows(folder: Path, table: str, where: dict[str, str]) -> pd.DataFrame:
    file = folder / "tables" / f"{table}.parquet"
    if not file.is_file():
        return pd.DataFrame()
    frame = pd.read_parquet(file)
    for column, value in where.items():
        frame = frame[frame[column] == value]
    return frame


def _number(value: object) -> object:
    """As JSON can hold it: a text, a number or null."""
    if isinstance(value, str):
        return plain(value)
    if value is None or value is pd.NA or not math.isfinite(value):
        return None
    return value.item() if isinstance(value, np.generic) else value
