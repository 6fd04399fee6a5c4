"""Score tables, and artifacts as verbs publish them, made for tests."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd

from pessimal.plots import draw
from pessimal.report.artifact import Artifact
from pessimal.report.write import as_json, write_tables
from pessimal.tables import ModelDescription, ScoreProvenance, ScoreTable
from pessimal.tables.result import Result


def write_artifact(
    folder: Path,
    results: Sequence[Result],
    *,
    labels: Mapping[str, str] | None = None,
    skipped: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    drawn: bool = True,
    reference: str = "comparison/x:v0",
    created: str = "2026-01-01T00:00:00",
) -> Artifact:
    """Tables, figures as SVG (unless they are not `drawn`, which takes time), `results.json` and
    other files."""
    write_tables(results, folder)
    figures = {}
    if drawn:
        with patch.object(draw, "save", partial(_save_vector, draw.save)):
            figures = draw.save_figures(results, folder / "figures", labels or {})
    document = {
        "version": "0",
        "labels": dict(labels or {}),
        "skipped": dict(skipped or {}),
        "results": [as_json(result, figures.get(result.name, {})) for result in results],
    }
    (folder / "results.json").write_text(json.dumps(document), encoding="utf-8")
    for path, text in (files or {}).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return Artifact(reference, folder, created)


def _save_vector(save, figure, folder: Path, stem: str, *, raster: bool) -> None:
    """A page reads no PNG."""
    save(figure, folder, stem, raster=False)


OUTCOME = {
    "model": "m",
    "comparison": "first",
    "response": 0,
    "side": "chosen",
    "attribute": "clarity",
    "direction": "worse",
    "seed": 0,
    "perturber": "rules",
    "note": "",
    "status": "changed",
    "original": "Drink water.",
    "edited": "Drink wine.",
    "reward": 3.0,
    "margin": 2.0,
    "new_margin": -0.5,
    "change_in_sd": -1.0,
    "outcome": "CF",
}
"""A row of a table of outcomes: an edit that flips the preference."""


def score_table(
    texts: Sequence[str],
    rewards,
    *,
    model: str = "m",
    prompt: str = "greatest",
    rows: Mapping[str, object] | pd.DataFrame | None = None,
    described: Mapping[str, object] | None = None,
    measured: dict | None = None,
    **provenance,
) -> ScoreTable:
    """A scan's table; `rows` has columns otherwise than usual."""
    columns = {
        "candidate_id": np.arange(len(texts), dtype=np.int32),
        "token": texts,
        "text": texts,
        "kind": "normal",
        "survives": pd.array([True] * len(texts), dtype="boolean"),
        "reward": np.asarray(rewards, dtype=float),
        "certified": True,
    }
    known = {
        "prompt_text": f"{prompt}?",
        "candidates": "vocabulary",
        "candidates_digest": "d",
        "mode": "ids",
        "source": "scan",
        "dtype": "float32",
    }
    identity = ScoreProvenance(model=model, prompt=prompt, **known | provenance)
    frame = pd.DataFrame(columns | dict({} if rows is None else rows))
    return ScoreTable(identity, frame, ModelDescription(**described or {}), measured or {})
