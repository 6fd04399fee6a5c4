"""One way from Results to what people see: parquet tables, figures, `results.json`, W&B, the
console, the path.

Every verb that finds something ends here.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from pessimal.config.schema import TaskConfig
from pessimal.progress import console
from pessimal.report.write import write_results
from pessimal.tables.result import Result, finite_or_none
from pessimal.texts import interval
from pessimal.tracking.mirror import MAX_TABLE_ROWS, Mirror
from pessimal.tracking.registry import Manifest, Registry
from pessimal.verbs.common import in_sweep
from pessimal.verbs.printing import write_out

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

    fill = partial(
        write_results,
        results,
        labels=artifact.labels,
        skipped=artifact.skipped,
        files=artifact.files,
        progress=config.progress,
    )
    folder, manifest = mirror.publish(
        registry,
        artifact.type,
        artifact.name,
        fill,
        key=artifact.key,
        inputs=artifact.inputs,
        summary=artifact.summary,
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
    return folder, manifest


def print_headlines(results: Sequence[Result], *, title: str, asked: str = "") -> None:
    """The heaviest headlines with their numbers, on stderr: at most `HEADLINES` lines, that of the
    result which was `asked` for first."""
    headed = sorted(
        (r for r in results if r.headline),
        key=lambda r: (r.name != asked, -np.nan_to_num(r.weight)),
    )
    show_rows(title, [(result.headline, number(result)) for result in headed[:HEADLINES]])
    if len(headed) > HEADLINES:
        show(f"{len(headed) - HEADLINES} more on the page.")


def show_rows(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Texts in two columns below a title. No markup: tokens stand in headlines."""
    table = Table(
        title=Text(title), title_justify="left", box=None, pad_edge=False, show_header=False
    )
    for row in rows:
        table.add_row(*map(Text, row))
    show(table)


def number(result: Result) -> str:
    """A result's estimate in a few characters: `0.79 [0.79, 0.80], n 6,963`; the headline says of
    what."""
    e = result.estimate
    if e is None:
        return ""
    p = ""
    if e.p is not None and e.p == e.p:
        size = f"{e.p:.3f}" if e.p >= 0.001 else "<.001"
        p = f", {'random heads' if e.heads else 'p'} {size}"
    return f"{interval(e.value, e.low, e.high)}{p}, n {e.n:,}"


def print_path(path: Path) -> None:
    """What was written, last, on stdout."""
    write_out(str(path))


def show(renderable: object) -> None:
    """What a verb ends with, on stderr; nothing in a job of a sweep."""
    if not in_sweep():
        console().print(renderable)
