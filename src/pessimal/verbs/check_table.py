"""The table of a conformance suite as people read it: in a terminal, on a pipe, in a file.

Knows rich. Takes rows, gives text; a terminal gets colours.
"""

import io

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pessimal.scoring.conformance import Check, Conformance

STYLES = {"pass": "green", "FAIL": "bold red", "info": "cyan", "n/a": "dim"}
NARROW, WIDE = 80, 120
FILE_WIDTH = 100


def show(found: Conformance, *, title: str) -> None:
    """Print on stdout, between 80 and 120 columns wide."""
    console = Console(highlight=False, markup=False, emoji=False)
    width = console.width if console.is_terminal else FILE_WIDTH
    console.width = min(max(width, NARROW), WIDE)
    console.print(_page(found, title))


def as_text(found: Conformance, *, title: str) -> str:
    """The same, without colours."""
    console = Console(
        file=io.StringIO(), width=FILE_WIDTH, highlight=False, markup=False, emoji=False, color_system=None
    )
    console.print(_page(found, title))
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def _page(found: Conformance, title: str) -> Group:
    details = found.details
    spread = (
        ""
        if details["spread"] is None
        else f", whose rewards have a standard deviation of {details['spread']:.3g}"
    )
    parts = [
        Text(f"\n{title}", style="bold"),
        Text(
            f"{details['dtype']} on {details['device']}, path of scans: {details['attention']}; {details['n']} random responses"
            f"{spread}. Differences are the largest, in units of reward where no unit is given."
        ),
        _checks(found.checks),
    ]
    if found.precision is not None:
        parts += [
            Text("Precisions, against the model's own forward in float32", style="bold"),
            _precision(found),
        ]
    parts += [line for check in found.failed for line in _failure(check)]
    return Group(*parts, _verdict(found))


def _checks(checks: list[Check]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, expand=True)
    table.add_column("", width=4, no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("allowed", justify="right", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    table.add_column("what", ratio=1)
    for check in checks:
        what = Text(check.what, style="dim" if check.result == "n/a" else "")
        if check.result == "n/a":
            what.append(f" Does not apply: {check.note}.")
        elif check.result == "info":
            what.append(f" {check.note}", style="dim")
        table.add_row(
            Text(check.result, style=STYLES[check.result]),
            Text(check.check, style="bold red" if check.result == "FAIL" else ""),
            _amount(check.measured, check),
            _amount(check.allowed, check),
            str(check.n or ""),
            what,
        )
    return table


def _precision(found: Conformance) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in ("precision", "path", "largest", "mean", "Spearman", "top 10", "distinct"):
        table.add_column(name, justify="left" if name in ("precision", "path") else "right")
    for row in found.precision.itertuples():
        table.add_row(
            row.dtype,
            row.path,
            f"{row.largest_difference:.2g} SD",
            f"{row.mean_difference:.2g} SD",
            f"{row.spearman:.4f}",
            f"{row.top_10_overlap:.0%}",
            f"{row.distinct} of {row.n}",
        )
    return table


def _failure(check: Check) -> list[Text | Padding]:
    return [Text(f"FAIL  {check.check}", style=STYLES["FAIL"]), Padding(Text(check.note), (0, 0, 1, 6))]


def _verdict(found: Conformance) -> Text:
    counts = [sum(check.result == result for check in found.checks) for result in STYLES]
    passed, failed, reported, idle = counts
    verdict = f"{passed} passed, {failed} failed, {reported} only reported, {idle} do not apply"
    return Text(verdict, style=STYLES["FAIL" if failed else "pass"])


def _amount(value: float | None, check: Check) -> str:
    """Two figures of a measure, and counts as counts."""
    if value is None:
        return "" if check.passed is None else "–"
    if check.unit == "share":
        return f"{value:.1%}"
    if check.unit not in ("reward", "SD"):
        return f"{value:.0f}"
    return f"{value:.2g}{' SD' if check.unit == 'SD' else ''}"
