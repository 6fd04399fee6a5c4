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
from pessimal.api.store import Artifact, publish
from pessimal.config.schema import SearchConfig
from pessimal.conversation import Asked
from pessimal.progress import quiet_libraries
from pessimal.rewards.base import Reward, require_network
from pessimal.rewards.log_probability import LogProbability
from pessimal.rewards.obtain import open_reward
from pessimal.scoring.contexts import halves, read_contexts, sample
from pessimal.scoring.trainer import begin_process, make_trainer
from pessimal.searching.context import SearchContext
from pessimal.searching.results import FAILS, HOLDS, NOT_TRIED, TIE, SearchResult
from pessimal.tables.result import Result
from pessimal.texts import safe_name
from pessimal.tracking.mirror import Mirror
from pessimal.verbs.common import registry_of, store_of, tracked
from pessimal.verbs.printing import print_path, show

log = logging.getLogger(__name__)

MARKS = {HOLDS: "[green]✓[/]", TIE: "[yellow]≈[/]", FAILS: "[red]✗[/]", NOT_TRIED: "[dim]–[/]"}


def run(config: SearchConfig) -> float | None:
    """Search, publish a `search-result` artifact and print its folder; a result that is finished
    already is named.

    Returns the best reward with the goal's sign, more is better, for whoever sweeps the options.
    """
    quiet_libraries()
    begin_process(config.trainer)
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
    checks = found.tables["checks"]
    for check in checks.itertuples():
        table.add_row(MARKS[check.verdict], check.check, Text(check.measured, style="dim"))
    show(table)
    if not found.exact:
        show(Text(checks["meaning"][0], style="dim"))
    for result in results:
        if result.name in ("contexts", "candidates") and result.headline:
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
