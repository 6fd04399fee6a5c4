"""`pessimal scan`: one model, every candidate, every prompt; a score table each, published as soon
as it is whole."""

import logging
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pessimal.api.grade import census
from pessimal.api.scan import scan_all
from pessimal.catalogue import ANSWERS
from pessimal.config.schema import ScanConfig
from pessimal.config.schema.scan import CENSUS, SCREENED
from pessimal.progress import console, quiet_libraries
from pessimal.rewards.obtain import open_reward
from pessimal.rewards.question import hardly_answers
from pessimal.scoring.trainer import begin_process
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.score_table import extremes
from pessimal.texts import literal, significant
from pessimal.tracking.registry import Registry
from pessimal.verbs.common import in_sweep, store_of
from pessimal.verbs.printing import print_headlines, print_path, show

log = logging.getLogger(__name__)


def run(config: ScanConfig) -> None:
    """Scan `config.model` on every prompt; tables that are finished already are named, not made
    again.

    Where there are several processes, each runs this: all score, the first publishes.
    """
    config = config.resolve()
    quiet_libraries()
    first, store = begin_process(config.trainer), store_of(config)
    candidates, answered, prompts = config.candidates.read(), config.real_answers(), config.asked()
    cache = config.paths.cache
    model = open_reward(config.model, cache=cache)
    if config.candidates.name == CENSUS:
        results = census(
            model,
            token_limit=config.candidates.most or None,
            policy=config.policy,
            cache=cache,
            store=store,
            progress=config.progress,
        )
        print_headlines(results, title=f"Census of {model.name}")
        assert results.folder is not None
        return print_path(results.folder)
    policy = open_reward(config.policy_spec(), cache=cache) if config.policy else None
    if config.candidates.name == ANSWERS and first:
        log.info(
            "%s has no vocabulary of its own: it is asked %d answers of all sorts "
            "(candidates=answers). model.tokenizer=DIR_OR_ID scans one, candidates=items a list",
            model.name,
            len(config.candidates.texts),
        )
    tables = scan_all(
        model,
        answered or {key: prompt for key, (prompt, _) in prompts.items()},
        candidates,
        policy=policy,
        answers=config.answers,
        answer_tokens=config.answer_tokens,
        seed=config.seed,
        most=config.candidates.most,
        ids=config.candidates.ids,
        n_screened=SCREENED if config.screens else None,
        prefixed={key: behind for key, (_, behind) in prompts.items() if behind is not None},
        mode=config.mode,
        certain=config.certain,
        trainer=config.trainer,
        batch_size=config.batch_size,
        states=config.states,
        cache=cache,
        store=store,
        progress=config.progress,
    )
    for name, scanned in groupby(tables, key=lambda table: table[0].name):
        keys = [provenance.key() for _, provenance, _ in scanned]
        found = [store.registry.find("score-table", key) for key in keys]
        folders = [published[0] for published in found if published]
        if first:
            print_extremes(name, folders)
            print_tables(store.registry, folders)


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
    unsaid = [table for table in every if hardly_answers(table.measured)]
    tables = [table for table in every if not hardly_answers(table.measured)]
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


def _headed(model: str) -> Table:
    title = Text(f"{model} ({CERTIFIED}: rank certified)")
    return Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))


def _cell(row, *, limit: int, reward: bool = True) -> Text:
    """A candidate with its reward, and a mark where its rank is certified."""
    number = f" {significant(row.reward)}" if reward else ""
    mark = f" {CERTIFIED}" if row.certified else ""
    return Text.assemble(literal(row.text, limit=limit), (f"{number}{mark}", "dim"))
