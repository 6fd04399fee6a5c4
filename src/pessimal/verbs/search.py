"""`pessimal search`: the best or the worst response of a given length, what is certain of it, and what it cost."""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from pessimal.config.schema import Method, SearchConfig
from pessimal.scoring.scan import of_model
from pessimal.search.allowed import digest
from pessimal.search.checks import ABSENT, FAILS, HOLDS, TIE
from pessimal.search.procedure import SEARCH
from pessimal.search.provenance import SearchProvenance
from pessimal.search.results import About, search_results
from pessimal.search.stages import Stage
from pessimal.tables.result import Result
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Registry
from pessimal.verbs.common import quiet_libraries, registry_of, tracked
from pessimal.verbs.progress import Counter, counted
from pessimal.verbs.publish import Artifact, print_path, publish, show
from pessimal.verbs.search_context import SearchContext, prepare
from pessimal.verbs.search_exhaustive import search_every_pair
from pessimal.verbs.search_stages import search_by_stages, search_one_token
from pessimal.verbs.search_tables import Searched, growth
from pessimal.verbs.search_tuning import run_study_job
from pessimal.verbs.trainer import begin_process

log = logging.getLogger(__name__)


def run(config: SearchConfig) -> float | None:
    """Search, publish a `search-result` artifact and print its folder; a result that is finished already is named.

    Returns the best reward with the goal's sign, more is better, for whoever sweeps the options. A job of a study
    (`-m hparams_search=gcg`) does what the sweeper asks of it instead.
    """
    quiet_libraries()
    first = begin_process(config.trainer)
    if config.tuning.study is not None:
        return run_study_job(config, prepare)
    registry = registry_of(config)
    context = SearchContext(config, config.prompt_keys)
    provenance = identify(context)
    published = registry.find("search-result", provenance.key())
    if published and not config.force:
        log.info("this search is finished already: %s (force=true searches again)", published[0])
        if first:
            print_path(published[0])
        return published[1].summary["best_value"]
    work = Path(config.paths.cache) / "searches" / provenance.key()
    if config.force and first:
        shutil.rmtree(work, ignore_errors=True)
    with tracked(config, name=f"search {provenance.name}", first=first) as mirror:
        bar = config.progress and config.search.method is not Method.exhaustive  # which has its own
        with counted(provenance.name, unit="evaluations", total=context.expected, bar=bar) as counter:
            context.advance = counter.advance
            searched = _look(context, work, counter)
        if searched is None:  # another process has it
            return None
        # Commands that share an exhaustive search end together; the first to be here publishes.
        published = registry.find("search-result", provenance.key())
        if published and not config.force:
            log.info("another command has published this search: %s", published[0])
            print_path(published[0])
            return published[1].summary["best_value"]
        searched.tables["growth"] = growth(registry, provenance, searched)
        folder, results = _publish(config, registry, provenance, searched, mirror)
    shutil.rmtree(work, ignore_errors=True)
    _print(results)
    print_path(folder)
    return searched.best_value


def identify(context: SearchContext) -> SearchProvenance:
    """What the result will depend on."""
    config, model, spec = context.config, context.model, context.spec
    options = {
        name: value
        for name, value in vars(spec).items()
        if name not in ("length", "goal", "method", "allowed", "allowed_path")
    }
    return SearchProvenance(
        model=model.name,
        prompts={key: config.prompts[key] for key in config.prompt_keys},
        goal=spec.goal.value,
        length=spec.length,
        mode=config.mode.value,
        method=spec.method.value,
        allowed=int(context.mask.sum()),
        allowed_digest=digest(context.mask),
        options=options,
        seed=config.seed,
        **of_model(model),
    )


def _look(context: SearchContext, work: Path, counter: Counter) -> Searched | None:
    """The search itself; None in a process that only helped."""
    searched: list[int] = []

    def finished(stage: Stage) -> None:
        best = context.spec.goal.sign * stage.best.value if stage.finals else float("nan")
        log.debug("%s: %.4f after %d evaluations, %.1f s", stage.name, best, stage.evaluations, stage.seconds)
        if stage.phase in SEARCH:  # the baselines get as much as all that, each
            searched.append(stage.evaluations)
        so_far = sum(searched) * (4 if context.spec.baselines else 1)
        counter.begin(f"{stage.name} {best:.3f}", total=max(counter.total, so_far))

    if context.spec.method is Method.exhaustive:
        return search_every_pair(context, work, report=finished)
    if context.spec.length == 1:
        return search_one_token(context, work, report=finished)
    return search_by_stages(context, work, report=finished)


def _publish(
    config: SearchConfig, registry: Registry, provenance: SearchProvenance, searched: Searched, mirror: Mirror
) -> tuple[Path, list[Result]]:
    """Publish the result, its curve to W&B step by step."""
    results = search_results(searched.tables, About.of(searched.numbers))
    what = {
        "model": provenance.model,
        "prompts": list(provenance.prompts),
        "goal": provenance.goal,
        "length": provenance.length,
        "mode": provenance.mode,
        "best_value": searched.best_value,
        "weights_digest": provenance.weights_digest,
        "allowed_digest": provenance.allowed_digest,
    }
    summary = {name: value for result in results for name, value in result.summary.items()} | what
    artifact = Artifact(
        "search-result", provenance.name, key=provenance.key(), inputs=searched.inputs, summary=summary
    )
    folder, _ = publish(config, registry, mirror, artifact, results)
    for row in searched.tables["curve"].itertuples():
        mirror.metrics({"evaluations": row.evaluations, f"best_reward/{row.method}": row.reward})
    mirror.summary({name: what[name] for name in ("best_value", "mode", "model", "prompts")})
    return folder, results


MARKS = {HOLDS: "[green]✓[/]", TIE: "[yellow]≈[/]", FAILS: "[red]✗[/]", ABSENT: "[dim]–[/]"}


def _print(results: Sequence[Result]) -> None:
    """The response, and its checks as a list."""
    response, checks = results[0], next(result for result in results if result.name == "ladder")
    table = Table(
        title=Text(response.headline), title_justify="left", box=None, pad_edge=False, show_header=False
    )
    for check in checks.table.itertuples():
        table.add_row(MARKS[check.verdict], check.check, Text(check.measured, style="dim"))
    show(table)
    for result in results:
        if result.name == "curve" and result.headline:
            show(Text(result.headline))
