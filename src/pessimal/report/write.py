"""Results as files: parquet tables, figures, and `results.json`, which the page reads
(`report.artifact`)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pessimal.plots import TokenTable
from pessimal.plots.draw import save_figures
from pessimal.progress import steps
from pessimal.tables.result import RESULTS, Result, finite_or_none
from pessimal.version import __version__


def write_results(
    results: Sequence[Result],
    folder: Path,
    *,
    labels: Mapping[str, str] | None = None,
    skipped: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    progress: bool = True,
) -> None:
    """Write what an artifact consists of into a folder that is there and empty.

    Args:
        results: in the order of the page.
        labels: names of models as figures show them, by model.
        skipped: what could not be done, by name: why.
        files: what else belongs to the artifact, by path in it.
        progress: draw a bar where there is a terminal.
    """
    write_tables(results, folder)
    figures = save_figures(
        results,
        folder / "figures",
        labels,
        lambda many: steps(f"drawing {many} figures", many, bar=progress),
    )
    for path, text in (files or {}).items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    document = {
        "version": __version__,
        "labels": dict(labels or {}),
        "skipped": dict(skipped or {}),
        "results": [as_json(result, figures.get(result.name, {})) for result in results],
    }
    text = json.dumps(document, indent=2, ensure_ascii=False)
    (folder / RESULTS).write_text(text, encoding="utf-8")


def write_tables(results: Sequence[Result], folder: Path) -> None:
    """Write `tables/NAME.parquet`, and `shown/NAME.parquet` of tokens that are drawn from another
    table."""
    (folder / "tables").mkdir(parents=True)
    for result in results:
        result.table.to_parquet(folder / "tables" / f"{result.name}.parquet", index=False)
        if isinstance(result.plot, TokenTable) and result.plot.data is not None:
            (folder / "shown").mkdir(exist_ok=True)
            result.plot.data.to_parquet(folder / "shown" / f"{result.name}.parquet", index=False)


def as_json(result: Result, figures: Mapping[str, str]) -> dict:
    """Entry of a result in `results.json`; `figures` are the stems of its figures by tab."""
    plot = None
    if result.plot is not None:
        plain = str | int | float | bool | tuple
        columns = {k: v for k, v in vars(result.plot).items() if isinstance(v, plain)}
        plot = {"kind": type(result.plot).__name__, **columns, "where": dict(result.plot.where)}
    estimate = None
    if result.estimate:
        estimate = {k: finite_or_none(v) for k, v in asdict(result.estimate).items()}
    return {
        "name": result.name,
        "headline": result.headline,
        "weight": finite_or_none(result.weight) or 0.0,
        "method": result.method,
        "estimate": estimate,
        "plot": plot,
        "figures": dict(figures),
        "notes": list(result.notes),
        "effect": asdict(result.effect) if result.effect else None,
    }
