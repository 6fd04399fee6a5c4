"""What a verb ends with on the console: headlines, rows, and the path of what was written."""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.table import Table
from rich.text import Text

from pessimal.progress import console
from pessimal.tables.result import Result
from pessimal.texts import interval
from pessimal.verbs.common import in_sweep
from pessimal.verbs.printing import write_out

log = logging.getLogger(__name__)

HEADLINES = 6
"""Printed at the end of a verb."""


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
