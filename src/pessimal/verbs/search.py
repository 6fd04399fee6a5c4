"""`pessimal search`: the best or the worst response of a given length, what is certain of it, and
what it cost."""

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import cast

from rich.table import Table
from rich.text import Text

from pessimal.api.search import run_search, scanned_rewards
from pessimal.config.schema import SearchConfig
from pessimal.conversation import Asked
from pessimal.progress import quiet_libraries
from pessimal.rewards.base import Reward, require_network
from pessimal.rewards.log_probability import LogProbability
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.contexts import halves, read_contexts, sample
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.searching.checks import FAILS, HOLDS, NOT_TRIED, TIE
from pessimal.searching.context import SearchContext, TrialContext
from pessimal.searching.results import SearchResult
from pessimal.tables.result import Result
from pessimal.verbs.common import registry_of, store_of
from pessimal.verbs.printing import print_path, show

log = logging.getLogger(__name__)

MARKS = {HOLDS: "[green]✓[/]", TIE: "[yellow]≈[/]", FAILS: "[red]✗[/]", NOT_TRIED: "[dim]–[/]"}


def run(config: SearchConfig) -> float | None:
    """Search, publish a `search-result` artifact and print its folder; a result that is finished
    already is named.

    Returns the best reward with the goal's sign, more is better, for whoever sweeps the options. A
    job of a study (`-m hparams_search=gcg`) does what the sweeper asks of it instead.
    """
    quiet_libraries()
    begin_process(config.trainer)
    if config.tuning.study is not None:
        from pessimal.verbs.search_tuning import run_study_job  # Optuna comes with it

        return run_study_job(config, prepare)
    context = open_context(config, config.prompt_keys)
    cache, progress = config.paths.cache, config.progress
    done = run_search(context, store=store_of(config), cache=cache, progress=progress)
    if done.result is not None:
        print_checklist(done.result.results, done.result, done.known)
    print_path(done.folder)
    return done.best


def open_context(
    config: SearchConfig, prompts: list[str], model: Reward | None = None
) -> SearchContext:
    """The model of a configuration, opened where it is not yet, to be searched on these prompts;
    single tokens come from finished scans."""
    open_one = partial(open_reward, cache=config.paths.cache)
    model = model or open_one(config.model)
    policy = config.policy_spec()
    asked, held_out, named = _asked(config, prompts)
    context = SearchContext(
        require_network(model, "search", "gradient"),
        asked,
        config.search,
        mode=config.mode,
        seed=config.seed,
        device=make_trainer(config.trainer, root=config.paths.cache).strategy.root_device,
        batch_size=config.batch_size,
        held_out=held_out,
        policy=cast(LogProbability, open_one(policy)) if policy else None,
        answers=config.answers,
        named=named,
    )
    context.scanned = partial(scanned_rewards, registry_of(config), context)
    return context


def _asked(
    config: SearchConfig, prompts: list[str]
) -> tuple[dict[str, Asked], dict[str, Asked], str | None]:
    """What is searched and what is held out, by key, and what the former are called together."""
    if config.contexts is None:
        keys = (prompts, config.held_out)
        asked, held_out = ({key: config.prompts[key] for key in some} for some in keys)
        return asked, held_out, None
    slot = config.search.slot and config.search.slot.value
    found = sample(read_contexts(config.contexts, slot), config.n_contexts, seed=config.seed)
    one, other = halves(found)
    asked, held_out = {**one}, {**other}
    return asked, held_out, f"{Path(config.contexts).stem}-{len(asked)}"


def print_checklist(
    results: list[Result], found: SearchResult, known: Mapping[tuple[int, ...], str]
) -> None:
    """The response, who found it, and what is certain of it."""
    title = f"{results[0].headline} {found.evaluations:,} evaluations. By {found.found_by}."
    table = Table(
        title=Text(title), title_justify="left", box=None, pad_edge=False, show_header=False
    )
    checks = found.tables["ladder"]
    for check in checks.itertuples():
        table.add_row(MARKS[check.verdict], check.check, Text(check.measured, style="dim"))
    show(table)
    if not found.exact:
        show(Text(checks["meaning"][1], style="dim"))
    for result in results:
        if result.name in ("contexts", "rarity", "front") and result.headline:
            show(Text(result.headline))
    for response, reference in known.items():
        same = response == found.response
        show(
            Text(
                f"No better response was found than {reference} held."
                if same
                else f"Better than {reference} held."
            )
        )


# --- What a study of the options tries.


def prepare(config: SearchConfig, prompts: list[str]) -> TrialContext:
    """The model of a configuration, ready to be searched on these prompts."""
    return TrialContext(open_context(config, prompts), prompts)
