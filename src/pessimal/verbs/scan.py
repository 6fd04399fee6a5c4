"""`pessimal scan`: one model, every candidate, every prompt; a score table each, published as soon
as it is whole."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pessimal.api.grade import census
from pessimal.api.scan import scan_missing
from pessimal.catalogue import ANSWERS
from pessimal.config.schema import ScanConfig
from pessimal.config.schema.scan import CENSUS, SCREENED, CandidatesSpec
from pessimal.conversation import Asked
from pessimal.errors import ConfigError
from pessimal.progress import console, quiet_libraries
from pessimal.rewards.base import NetworkReward, Reward
from pessimal.rewards.judge import HARDLY
from pessimal.rewards.log_probability import LogProbability
from pessimal.rewards.obtain import open_reward
from pessimal.rewards.spec import Mode
from pessimal.scoring.candidates import (
    Candidates,
    has_tokens_of,
    items,
    listed,
    rows_of,
    texts_of,
    vocabulary_of,
)
from pessimal.scoring.contexts import of_comparison, read_contexts, sample
from pessimal.scoring.sampling import answers_of
from pessimal.scoring.screen import screened
from pessimal.scoring.trainer import begin_process, is_first_process, make_trainer
from pessimal.tables import ScoreTable, read_score_table
from pessimal.tables.comparisons import load
from pessimal.tables.score_table import extremes
from pessimal.texts import literal, significant
from pessimal.tracking.registry import Registry
from pessimal.verbs.common import in_sweep, registry_of, store_of
from pessimal.verbs.printing import print_headlines, print_path, show

log = logging.getLogger(__name__)

WHOLE = ("vocabulary", ANSWERS)
"""Names of the candidates that are taken where none are typed."""


def run(config: ScanConfig) -> None:
    """Scan `config.model` on every prompt; tables that are finished already are named, not made
    again.

    Where there are several processes, each runs this: all score, the first publishes.
    """
    config = config.resolve()
    if config.candidates.name == CENSUS:
        grader = open_reward(config.model, cache=config.paths.cache)
        results = census(
            grader,
            token_limit=config.candidates.most or None,
            policy=config.policy,
            cache=config.paths.cache,
            store=store_of(config),
            progress=config.progress,
        )
        print_headlines(results, title=f"Census of {grader.name}")
        assert results.folder is not None
        return print_path(results.folder)
    for model, folders in scanned(config):
        if is_first_process():
            print_extremes(model, folders)
            print_tables(registry_of(config), folders)


def scanned(config: ScanConfig, model: Reward | None = None) -> Iterator[tuple[str, list[Path]]]:
    """The name of each model that is scanned, a policy first, and the folders of its tables in the
    registry; those that are there already are not made again.

    Args:
        config: as `ScanConfig.resolve` gives it.
        model: that of the configuration, where it is open already.
    """
    said = None
    if config.answers is not None:
        yield from _scan_written(config)
        return
    if config.policy is not None:
        of_lists = config.candidates if config.candidates.name not in WHOLE else CandidatesSpec()
        mode = Mode.ids if of_lists.name in WHOLE else Mode.text
        policy = replace(config, model=config.policy_spec(), policy=None, states=False)
        name, folders = _scan(replace(policy, candidates=of_lists, mode=mode))
        yield name, folders
        said = folders[0]
    yield _scan(config, said, model=model)


def _scan_written(config: ScanConfig) -> Iterator[tuple[str, list[Path]]]:
    """The reward of answers that the policy writes, prompt by prompt."""
    assert config.answers is not None
    policy = open_reward(config.policy_spec(), cache=config.paths.cache)
    if not isinstance(policy, LogProbability):
        raise ConfigError(f"policy={config.policy}: {policy.name} writes no answers")
    network = policy.network()
    for key, (prompt, _) in config.asked().items():
        written = answers_of(
            *(policy, network.causal, prompt),
            n=config.answers,
            tokens=config.answer_tokens,
            seed=config.seed,
            progress=config.progress,
        )
        kept = bool(config.states)
        one = replace(config, prompts={key: prompt}, policy=None, answers=None, states=kept)
        yield _scan(one, written=written)


def _scan(
    config: ScanConfig,
    policy: Path | None = None,
    *,
    written: Candidates | None = None,
    model: Reward | None = None,
) -> tuple[str, list[Path]]:
    """The model's name and the folders of the tables; candidates are those of a policy's table
    where one is given and the model's own are others."""
    quiet_libraries()
    first = begin_process(config.trainer)
    store = store_of(config)
    listed_items = written or _listed(config.candidates)
    contexts = contexts_of(config)
    model = model or open_reward(config.model, cache=config.paths.cache)
    if policy is not None and config.candidates.name in WHOLE:
        config, listed_items = _tokens_of(read_score_table(policy), model, config)
    whole = listed_items or vocabulary_of(model)
    most, ids = config.candidates.most, config.candidates.ids
    candidates = whole.frequent(most, ids) if most else whole
    if config.screens and isinstance(model, NetworkReward):
        device = make_trainer(config.trainer, root=config.paths.cache).strategy.root_device
        asked, bar = contexts.values(), config.progress
        candidates = screened(model, asked, whole, n=SCREENED, device=device, progress=bar)
    if config.candidates.name == ANSWERS and first:
        log.info(
            "%s has no vocabulary of its own: it is asked %d answers of all sorts "
            "(candidates=answers). model.tokenizer=DIR_OR_ID scans one, candidates=items a list",
            model.name,
            len(candidates.rows),
        )
    if first and not listed_items:
        _report_rows_without_token(model)
    prompts = {} if contexts else config.asked()
    scans = scan_missing(
        model,
        contexts or {key: prompt for key, (prompt, _) in prompts.items()},
        candidates,
        prefixed={key: behind for key, (_, behind) in prompts.items() if behind is not None},
        mode=config.asked_as,
        whole=whole,
        certain=config.certain,
        trainer=config.trainer,
        batch_size=config.batch_size,
        states=config.states,
        cache=config.paths.cache,
        store=store,
        progress=config.progress,
    )
    published = [store.registry.find("score-table", one.key()) for one, _ in scans]
    return model.name, [found[0] for found in published if found]


def _tokens_of(
    said: ScoreTable, model: Reward, config: ScanConfig
) -> tuple[ScanConfig, Candidates | None]:
    """The configuration with a policy's tokens as candidates, and these; the vocabulary and None
    where the model has the same one."""
    if "ids" in model.can and has_tokens_of(said, model):
        return replace(config, candidates=CandidatesSpec(), mode=Mode.ids), None
    spec = CandidatesSpec(f"{said.provenance.model}-tokens", None, texts_of(said))
    return replace(config, candidates=spec, mode=Mode.text), _listed(spec)


def contexts_of(config: ScanConfig) -> dict[str, Asked]:
    """The real answers that candidates are put into; none where prompts are asked."""
    if not config.in_answers:
        return {}
    slot = config.slot and config.slot.value
    if config.contexts is not None:
        found = read_contexts(config.contexts, slot)
    else:
        given = config.comparisons
        comparisons = load(
            given.source.value,
            path=Path(given.path).expanduser() if given.path else None,
            revision=given.revision,
            split=given.split,
            subset=given.subset,
        ).comparisons
        some = [one for one in comparisons if not given.single_turn or len(one.turns) == 1]
        found = {one.key: of_comparison(one, slot or "after") for one in some}
    return {**sample(found, config.n_contexts, seed=config.seed)}


def _listed(spec: CandidatesSpec) -> Candidates | None:
    """The list of items, read before any model is fetched; None for the vocabulary, which the model
    brings."""
    if spec.name == "vocabulary":
        return None
    if spec.path is None:
        return listed(spec.texts, name=spec.name, where=f"candidates={spec.name}")
    return items(Path(spec.path).expanduser(), name=spec.name)


def _report_rows_without_token(model: Reward) -> None:
    rows = rows_of(model)
    assert model.tokenizer is not None
    beyond = {i: token for token, i in model.tokenizer.get_vocab().items() if i >= rows}
    if beyond:
        log.warning(
            "%d tokens of the tokenizer of %s have no row in its embedding of %d, and no score: "
            "they are left out (such as %r)",
            len(beyond),
            model.name,
            rows,
            beyond[min(beyond)],
        )


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
