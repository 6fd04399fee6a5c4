"""`pessimal scan`: one model, every candidate, every prompt; a score table each, published as soon
as it is whole."""

import logging
from collections.abc import Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

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
from pessimal.verbs.common import is_sweep, print_headlines, print_path, show, store_of

log = logging.getLogger(__name__)

OPTIONS = (
    *("answers", "answer_tokens", "seed", "mode", "certain", "trainer", "batch_size", "states"),
    "progress",
)
"""Those that `scan_all` takes as they are."""


def run(config: ScanConfig) -> None:
    """Scan `config.model` on every prompt; tables that are finished already are named, not made
    again.

    Where there are several processes, each runs this: all score, the first publishes.
    """
    quiet_libraries()
    store, cache = store_of(config), config.paths.cache
    candidates, (prompts, prefixed) = config.candidates.read(), config.questions()
    first = begin_process(config.trainer)
    is_census = config.candidates.name == CENSUS
    model = open_reward(config.model, cache=cache)
    if is_census:
        from pessimal.api.check import census  # all checks, which a scan does without

        about: dict[str, Any] = {"cache": cache, "policy": config.policy, "store": store}
        limit = config.candidates.most or None
        results = census(model, token_limit=limit, progress=config.progress, **about)
        print_headlines(results, title=f"Census of {model.name}")
        assert results.folder is not None
        return print_path(results.folder)
    policy = open_reward(config.policy_spec, cache=cache) if config.policy else None
    if config.candidates.name == ANSWERS and first:
        message = "%s has no vocabulary: %d answers are asked instead; model.tokenizer= adds it"
        log.info(message, model.name, len(config.candidates.texts))
    tables = scan_all(
        model,
        prompts,
        candidates,
        policy=policy,
        most=config.candidates.most,
        ids=config.candidates.ids,
        n_screened=SCREENED if config.screens else None,
        prefixed=prefixed,
        cache=cache,
        store=store,
        **{option: getattr(config, option) for option in OPTIONS},
    )
    for name, scanned in groupby(tables, key=lambda table: table[0].name):
        keys = [provenance.key() for _, provenance, _ in scanned]
        artifacts = [store.registry.find("score-table", key) for key in keys]
        folders = [published[0] for published in artifacts if published]
        if first:
            print_extremes(name, folders)
            several = len(folders) > 1 and (is_sweep() or len(folders) > 3)
            files = [folder / "scores.parquet" for folder in folders]
            for path in [store.registry.root / "score-table"] if several else files:
                print_path(path)


RANKS = 10
"""Ranks of one prompt at each end."""
LINES = 12
"""Lines of all prompts together."""
CERTIFIED = "✓"
OBJECTIVES = 5
LONGEST = 24
"""Characters of a candidate that are shown."""


def print_extremes(model: str, folders: Sequence[Path]) -> None:
    """The best and worst of each table: a line a rank; of more than three prompts, a line a
    prompt. Of a judge that hardly ever gives its answers none; of a gated head, which objective
    decides."""
    if not folders or is_sweep():
        return
    every = [read_score_table(folder) for folder in folders[: 2 * LINES]]
    tables = [table for table in every if not hardly_answers(table.measured)]
    if tables:
        show(_table_by_prompt(model, tables) if len(tables) > 3 else _table_by_rank(model, tables))
    for table in every:
        if hardly_answers(table.measured):
            text = "no ranks, as the judge's answers are hardly ever given"
            show(f"{_prompt_text(model, table)}: {text}")
        if "gate" in table.measured:
            show(_gate(model, table))
    if len(folders) > len(every):
        show(f"{len(folders) - len(every)} more tables are in the registry.")


def _cells(table: ScoreTable, *, k: int, limit: int, reward: bool) -> list[list[Text]]:
    """The k best candidates of a table, and the k worst."""
    ends = extremes(table.rows, k=k)
    return [
        [_cell(row, limit=limit, reward=reward) for row in ends[ends["end"] == end].itertuples()]
        for end in ("top", "bottom")
    ]


def _table_by_rank(model: str, tables: Sequence[ScoreTable]) -> Table:
    """Two columns a prompt, a line a rank."""
    grid = _headed(model)
    grid.add_column("", justify="right", min_width=2)
    rewards = len(tables) < 3  # for more there is no room
    room = (console().width - 4) // (2 * len(tables)) - (11 if rewards else 4)
    columns = []
    for table in tables:
        for end in ("best", "worst"):
            grid.add_column(Text(f"{_prompt_text(model, table)}: {end}"), no_wrap=True)
        columns += _cells(table, k=RANKS, limit=min(room, LONGEST), reward=rewards)
    for rank, row in enumerate(zip_longest(*columns, fillvalue=Text()), 1):
        grid.add_row(str(rank), *row)
    return grid


def _table_by_prompt(model: str, tables: Sequence[ScoreTable]) -> Table:
    """A line a prompt, with the three best and the three worst."""
    grid = _headed(model)
    for heading in ("prompt", "best", "worst"):
        grid.add_column(heading, no_wrap=True, overflow="ellipsis")
    for table in tables:
        ends = _cells(table, k=3, limit=12, reward=False)
        grid.add_row(Text(_prompt_text(model, table)), *(Text("  ").join(cells) for cells in ends))
    return grid


def _gate(model: str, table: ScoreTable) -> Table:
    """The objectives of a gated head by their share in the reward's variance."""
    gate = table.measured["gate"]
    names = sorted(gate["share"], key=lambda name: -abs(gate["share"][name]))[:OBJECTIVES]
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    grid.add_column(Text(f"{_prompt_text(model, table)}: objective"), overflow="ellipsis")
    for heading in ("share of variance", "coefficient"):
        grid.add_column(heading, justify="right")
    for name in names:
        numbers = f"{gate['share'][name]:.0%}", significant(gate["coefficient"][name])
        grid.add_row(literal(name, limit=LONGEST), *numbers)
    return grid


def _prompt_text(model: str, table: ScoreTable) -> str:
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
