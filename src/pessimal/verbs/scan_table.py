"""What a scan ends with: the best and the worst candidates of each prompt side by side, certified
or not; the paths.

Knows score tables and rich.
"""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pessimal.progress import console
from pessimal.rewards.judge import HARDLY
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.extremes import extremes
from pessimal.texts import literal, significant
from pessimal.tracking.registry import Registry
from pessimal.verbs.common import in_sweep
from pessimal.verbs.publish import print_path, show

RANKS = 10
"""Of one prompt at each end."""
LINES = 12
"""Of all prompts together."""
CERTIFIED = "✓"
OBJECTIVES = 5
LONGEST = 24
"""Characters of a candidate that are shown."""


def print_extremes(model: str, folders: Sequence[Path]) -> None:
    """The best and worst of each table: a line a rank; of more than three prompts, a line a
    prompt. Of a judge that hardly ever gives its answers none; of a gated head, which objective
    decides."""
    if not folders or in_sweep():
        return
    every = [read_score_table(folder) for folder in folders[: 2 * LINES]]
    unsaid = [table for table in every if _hardly_answers(table)]
    tables = [table for table in every if not _hardly_answers(table)]
    if tables:
        show(_by_prompt(model, tables) if len(tables) > 3 else _by_rank(model, tables))
    for table in unsaid:
        show(f"{_asked(model, table)}: no ranks, as the judge's answers are hardly ever given")
    for table in every:
        if "gate" in table.measured:
            show(_gate(model, table))
    if len(folders) > len(every):
        show(f"{len(folders) - len(every)} more tables are in the registry.")


def print_tables(registry: Registry, folders: Sequence[Path]) -> None:
    """The path of each table; of many, or in a sweep, of the folder that they are in."""
    if len(folders) > 1 and (in_sweep() or len(folders) > 3):
        print_path(registry.root / "score-table")
        return
    for folder in folders:
        print_path(folder / "scores.parquet")


def _by_rank(model: str, tables: Sequence[ScoreTable]) -> Table:
    """Two columns a prompt, a line a rank."""
    shown = _headed(model)
    shown.add_column("", justify="right", min_width=2)
    columns = []
    rewards = len(tables) < 3  # for more there is no room
    room = (console().width - 4) // (2 * len(tables)) - (11 if rewards else 4)
    for table in tables:
        ends = extremes(table.rows, k=RANKS)
        for end, word in (("top", "best"), ("bottom", "worst")):
            shown.add_column(
                Text(f"{_asked(model, table)}: {word}"), no_wrap=True, overflow="ellipsis"
            )
            cells = ends[ends["end"] == end].itertuples()
            columns.append([_cell(row, limit=min(room, LONGEST), reward=rewards) for row in cells])
    for rank in range(max(map(len, columns))):
        shown.add_row(
            str(rank + 1), *(column[rank] if rank < len(column) else "" for column in columns)
        )
    return shown


def _by_prompt(model: str, tables: Sequence[ScoreTable]) -> Table:
    """A line a prompt, with the three best and the three worst."""
    shown = _headed(model)
    for heading in ("prompt", "best", "worst"):
        shown.add_column(heading, no_wrap=True, overflow="ellipsis")
    for table in tables:
        ends = extremes(table.rows, k=3)
        cells = [
            Text("  ").join(
                [
                    _cell(row, limit=12, reward=False)
                    for row in ends[ends["end"] == end].itertuples()
                ]
            )
            for end in ("top", "bottom")
        ]
        shown.add_row(Text(_asked(model, table)), *cells)
    return shown


def _gate(model: str, table: ScoreTable) -> Table:
    """The objectives of a gated head by their share in the reward's variance."""
    shown = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column(Text(f"{_asked(model, table)}: objective"), overflow="ellipsis")
    for heading in ("share of variance", "coefficient"):
        shown.add_column(heading, justify="right")
    gate = table.measured["gate"]
    order = sorted(gate["share"], key=lambda name: -abs(gate["share"][name]))
    for name in order[:OBJECTIVES]:
        share, coefficient = gate["share"][name], gate["coefficient"][name]
        shown.add_row(literal(name, limit=LONGEST), f"{share:.0%}", significant(coefficient))
    return shown


def _asked(model: str, table: ScoreTable) -> str:
    """The prompt, and which output of the model, where each is scanned."""
    output = table.provenance.model.removeprefix(model).removeprefix(".")
    return f"{table.provenance.prompt} · {output}" if output else table.provenance.prompt


def _hardly_answers(table: ScoreTable) -> bool:
    answers = table.measured.get("answers")
    return answers is not None and answers["mean"] < HARDLY


def _headed(model: str) -> Table:
    title = Text(f"{model} ({CERTIFIED}: rank certified)")
    return Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))


def _cell(row, *, limit: int, reward: bool = True) -> Text:
    """A candidate with its reward, and a mark where its rank is certified."""
    number = f" {significant(row.reward)}" if reward else ""
    mark = f" {CERTIFIED}" if row.certified else ""
    return Text.assemble(literal(row.text, limit=limit), (f"{number}{mark}", "dim"))
