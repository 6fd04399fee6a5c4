"""`pessimal search`: the best or the worst response of a given length, what is certain of it, and
what it cost; and with `-m hparams_search=gcg` a study of its options."""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from rich.table import Table
from rich.text import Text

from pessimal.api.search import run_search, scanned_rewards
from pessimal.api.store import Artifact, Store, publish
from pessimal.config.schema import SearchConfig
from pessimal.conversation import Asked
from pessimal.progress import quiet_libraries
from pessimal.rewards.base import require_network
from pessimal.rewards.log_probability import LogProbability
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.contexts import halves, read_contexts, sample
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.searching.context import SearchContext
from pessimal.searching.results import FAILS, HOLDS, NOT_TRIED, TIE, SearchResult
from pessimal.tables.result import Result
from pessimal.texts import safe_name
from pessimal.tracking.mirror import Mirror
from pessimal.verbs.common import print_path, show, store_of, tracked

log = logging.getLogger(__name__)

MARKS = {HOLDS: "[green]✓[/]", TIE: "[yellow]≈[/]", FAILS: "[red]✗[/]", NOT_TRIED: "[dim]–[/]"}


def run(config: SearchConfig) -> float | None:
    """Search, publish a `search-result` artifact and print its folder; a result that is finished
    already is named.

    Returns the best reward with the goal's sign, more is better, for whoever sweeps the options.
    """
    quiet_libraries()
    store, cache = store_of(config), config.paths.cache
    context = open_context(config, store)
    done = run_search(context, store=store, cache=cache, progress=config.progress)
    if done.result is not None:
        print_checklist(done.result.results, done.result, done.origins)
    print_path(done.folder)
    return done.best


def open_context(config: SearchConfig, store: Store) -> SearchContext:
    """The model of a configuration, opened to be searched on its prompts or real answers; single
    tokens come from finished scans of the store."""
    begin_process(config.trainer)
    cache, name = config.paths.cache, None
    device = make_trainer(config.trainer, root=cache).strategy.root_device
    searched: Mapping[str, Asked] = {key: config.prompts[key] for key in config.prompt_keys}
    held_out: Mapping[str, Asked] = {key: config.prompts[key] for key in config.held_out}
    if config.contexts is not None:
        slot = config.search.slot and config.search.slot.value
        file = Path(config.contexts).expanduser()
        contexts = sample(read_contexts(file, slot), config.n_contexts, seed=config.seed)
        searched, held_out = halves(contexts)
        name = f"{file.stem}-{len(searched)}"
    policy = config.policy and open_reward(config.policy_spec, cache=cache)
    model = require_network(open_reward(config.model, cache=cache), "search", "gradient")
    context = SearchContext(
        *(model, searched, config.search),
        device=device,
        held_out=held_out,
        policy=cast(LogProbability | None, policy),
        prompts_name=name,
        **{option: getattr(config, option) for option in ("mode", "seed", "batch_size")},
    )
    context.scanned = partial(scanned_rewards, store.registry, context)
    return context


def print_checklist(
    results: list[Result], result: SearchResult, references: Mapping[tuple[int, ...], str]
) -> None:
    """The response, who found it, and what is certain of it."""
    title = f"{results[0].headline} {result.evaluations:,} evaluations. By {result.found_by}."
    table = Table(
        title=Text(title), title_justify="left", box=None, pad_edge=False, show_header=False
    )
    checks = result.tables["checks"]
    for check in checks.itertuples():
        table.add_row(MARKS[check.verdict], check.check, Text(check.measured, style="dim"))
    show(table)
    if not result.exact:
        show(Text(checks["meaning"][0], style="dim"))
    for part in results:
        if part.name in ("contexts", "candidates") and part.headline:
            show(Text(part.headline))
    for response, reference in references.items():
        better = "No better response than" if response == result.response else "Better than"
        show(Text(f"{better} {reference} held."))


def tune(config: SearchConfig, space: Mapping[str, Any], *, trials: int) -> None:
    """Tune options of the search until their study has so many trials, publish a `study` artifact
    and print its folder; one that is published already is named."""
    from pessimal.api.tune import tune as tune_search  # Optuna comes with it

    quiet_libraries()
    begin_process(config.trainer)
    search, tuning, store = config.search, config.tuning, store_of(config)
    name = f"{search.method.value}-{config.model.name}-{search.goal.value}-{search.length}"
    name = tuning.study or safe_name(name)

    def track(number: int, options: dict[str, Any]) -> AbstractContextManager[Mirror]:
        job = replace(config, search=replace(search, **options))
        return tracked(job, name=f"{name} trial {number}", group=name)

    results, key = tune_search(
        open_reward(config.model, cache=config.paths.cache),
        {prompt: config.prompts[prompt] for prompt in tuning.prompts},
        space=space,
        storage=tuning.storage or f"{config.paths.root}/studies/{safe_name(name)}.db",
        name=name,
        trials=trials,
        held_out={prompt: config.prompts[prompt] for prompt in tuning.held_out},
        track=track,
        seed=config.seed,
        mode=config.mode.value,
        batch_size=config.batch_size,
        policy=config.policy,
        device=make_trainer(config.trainer, root=config.paths.cache).strategy.root_device,
        **vars(search),
    )
    for result in results:
        show(Text(result.headline))
    published = store.find("study", key)
    if published is None:
        with store.track(name=name, group=name) as mirror:
            summary: dict[str, Any] = {"model": config.model.name}
            for result in results:
                summary |= result.summary
            artifact = Artifact("study", name, key=key, summary=summary)
            published = publish(store.registry, mirror, artifact, results, progress=config.progress)
    print_path(published[0])
