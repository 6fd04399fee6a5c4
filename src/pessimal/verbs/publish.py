"""One way from Results to what people see: parquet tables, figures, `results.json`, W&B, the
console, the path.

Every verb that finds something ends here.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pessimal import __version__
from pessimal.config.schema import TaskConfig
from pessimal.plots import TokenTable
from pessimal.plots.draw import save_figures
from pessimal.tables.result import RESULTS, Result, finite_or_none
from pessimal.tracking.mirror import MAX_TABLE_ROWS, Mirror
from pessimal.tracking.registry import Manifest, Registry
from pessimal.verbs.common import config_hash
from pessimal.verbs.progress import console, in_sweep, steps

log = logging.getLogger(__name__)

HEADLINES = 6
"""Printed at the end of a verb."""


@dataclass(frozen=True)
class Artifact:
    """What is to be published, besides the results themselves."""

    type: str
    name: str
    key: str | None = None
    inputs: Sequence[str] = ()
    summary: Mapping[str, object] = field(default_factory=dict)
    """What a list of runs shows."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Names of models as figures show them."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What else belongs to the artifact: texts by their path in it."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """What could not be computed, and why."""


def publish(
    config: TaskConfig,
    registry: Registry,
    mirror: Mirror,
    artifact: Artifact,
    results: Sequence[Result],
) -> tuple[Path, Manifest]:
    """Write, register and mirror the results; returns the artifact's folder and manifest.

    The folder holds `tables/NAME.parquet`, `figures/NAME[--TAB].svg` (the first as `.png` too),
    `results.json`, the artifact's own files, and `shown/NAME.parquet` of tokens that the page shows
    and the table has otherwise.
    """

    def fill(folder: Path) -> None:
        write_results(
            results, folder, labels=artifact.labels, skipped=artifact.skipped, files=artifact.files
        )

    folder, manifest = registry.publish(
        artifact.type,
        artifact.name,
        fill,
        key=artifact.key,
        inputs=list(artifact.inputs),
        config_hash=config_hash(config),
        run_id=mirror.run_id,
        summary=dict(artifact.summary),
    )
    for result in results:
        mirror.summary({key: finite_or_none(value) for key, value in result.summary.items()})
        if result.estimate is not None:
            mirror.summary({f"{result.name}/estimate": finite_or_none(result.estimate.value)})
        if len(result.table) <= MAX_TABLE_ROWS:
            mirror.table(result.name, result.table)
        for png in sorted((folder / "figures").glob(f"{result.name}*.png")):
            if png.stem.split("--")[0] == result.name:
                mirror.image(f"figures/{png.stem}", png, result.headline)
    mirror.artifact(folder, manifest, {"inputs": list(artifact.inputs), **artifact.summary})
    return folder, manifest


def write_results(
    results: Sequence[Result],
    folder: Path,
    *,
    labels: Mapping[str, str] | None = None,
    skipped: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
) -> None:
    """Write what an artifact consists of into a folder that is there and empty (see `Artifact` and
    `publish`)."""
    write_tables(results, folder)
    figures = save_figures(
        results, folder / "figures", labels, lambda many: steps(f"drawing {many} figures", many)
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
    (folder / RESULTS).write_text(
        json.dumps(document, indent=2, ensure_ascii=False), encoding="utf-8"
    )


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
    """What `results.json` says of a result; `figures` are the stems of its figures by tab."""
    plot = None
    if result.plot is not None:
        columns = {
            k: v
            for k, v in vars(result.plot).items()
            if isinstance(v, str | int | float | bool | tuple)
        }
        plot = {"kind": type(result.plot).__name__, **columns, "where": dict(result.plot.where)}
    return {
        "name": result.name,
        "headline": result.headline,
        "weight": finite_or_none(result.weight) or 0.0,
        "method": result.method,
        "estimate": {k: finite_or_none(v) for k, v in asdict(result.estimate).items()}
        if result.estimate
        else None,
        "plot": plot,
        "figures": dict(figures),
        "notes": list(result.notes),
        "effect": asdict(result.effect) if result.effect else None,
    }


def print_headlines(results: Sequence[Result], *, title: str) -> None:
    """The heaviest headlines with their numbers, on stderr: at most `HEADLINES` lines."""
    headed = sorted(
        (r for r in results if r.headline), key=lambda r: -(finite_or_none(r.weight) or 0.0)
    )
    table = Table(
        title=Text(title), title_justify="left", box=None, pad_edge=False, show_header=False
    )
    for result in headed[:HEADLINES]:
        table.add_row(Text(result.headline), number(result))  # no markup: tokens stand in headlines
    show(table)
    if len(headed) > HEADLINES:
        show(f"{len(headed) - HEADLINES} more on the page.")


def number(result: Result) -> str:
    """A result's estimate in a few characters: `0.79 [0.79, 0.80], n 6,963`; the headline says of
    what."""
    e = result.estimate
    if e is None:
        return ""
    interval = (
        "" if e.low is None or e.high is None or e.low != e.low else f" [{e.low:.2f}, {e.high:.2f}]"
    )
    p = "" if e.p is None or e.p != e.p else f", p {e.p:.3f}" if e.p >= 0.001 else ", p <.001"
    return f"{e.value:.2f}{interval}{p}, n {e.n:,}".replace("-", "−")


def print_path(path: Path) -> None:
    """What was written, last, on stdout."""
    print(path, flush=True)


def show(renderable: object) -> None:
    """What a verb ends with, on stderr; nothing in a job of a sweep."""
    if not in_sweep():
        console().print(renderable)
