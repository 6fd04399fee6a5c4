"""Artifacts as verbs publish them, made in a folder, for tests of the page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pessimal.plots.draw import save_figures
from pessimal.report.artifact import Artifact
from pessimal.tables.result import Result
from pessimal.verbs.publish import as_json, write_tables


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
    """Tables, figures (unless they are not `drawn`, which takes time), `results.json` and other files."""
    write_tables(results, folder)
    figures = save_figures(results, folder / "figures", labels or {}) if drawn else {}
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
