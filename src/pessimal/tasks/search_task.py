"""`pessimal search`: the best or the worst response of a given length, what is certain of it, and what it cost."""

import logging
import shutil
from pathlib import Path

from pessimal.config.schema import Method, SearchConfig
from pessimal.scoring.scan import of_model
from pessimal.search.allowed import digest
from pessimal.search.identity import SearchIdentity
from pessimal.search.stages import Stage
from pessimal.tasks.common import config_hash, quiet_libraries, registry_of, tracked
from pessimal.tasks.findings.search import search_contents
from pessimal.tasks.search_exhaustive import search_every_pair
from pessimal.tasks.search_found import Found
from pessimal.tasks.search_growth import growth
from pessimal.tasks.search_setup import Setup
from pessimal.tasks.search_stages import search_by_stages, search_one_token
from pessimal.tasks.search_tuning import run_study_job
from pessimal.tasks.trainer import begin_process
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import Registry
from pessimal.tracking.tell import tell_contents

log = logging.getLogger(__name__)


def run(config: SearchConfig) -> float | None:
    """Search, publish a `search-result` artifact and print its folder; a result that is finished already is named.

    Returns the best reward with the goal's sign, more is better, for whoever sweeps the options. A job of a study
    (`-m hparams_search=gcg`) does what the sweeper asks of it instead.
    """
    quiet_libraries()
    first = begin_process(config.trainer)
    if config.tuning.study is not None:
        return run_study_job(config)
    registry = registry_of(config)
    setup = Setup(config, config.prompt_keys)
    identity = identify(setup)
    found = registry.find("search-result", identity.key())
    if found and not config.force:
        log.info("this search is finished already: %s (force=true searches again)", found[0])
        return found[1].summary["best_value"]
    work = Path(config.paths.cache) / "searches" / identity.key()
    if config.force and first:
        shutil.rmtree(work, ignore_errors=True)
    with tracked(config, name=f"search {identity.name}", first=first) as mirror:
        result = _look(setup, work)
        if result is None:  # another process has it
            return None
        # Commands that share an exhaustive search end together; the first to be here publishes.
        found = registry.find("search-result", identity.key())
        if found and not config.force:
            log.info("another command has published this search: %s", found[0])
            return found[1].summary["best_value"]
        result.tables["growth"] = growth(registry, identity, result)
        folder = _publish(config, registry, identity, result, mirror)
    shutil.rmtree(work, ignore_errors=True)
    log.info("%s", result.sentence)
    print(folder)
    return result.best_value


def identify(setup: Setup) -> SearchIdentity:
    """What the result will depend on."""
    config, model, spec = setup.config, setup.model, setup.spec
    options = {
        name: value
        for name, value in vars(spec).items()
        if name not in ("length", "goal", "method", "allowed", "allowed_path")
    }
    return SearchIdentity(
        model=model.name,
        prompts={key: config.prompts[key] for key in config.prompt_keys},
        goal=spec.goal.value,
        length=spec.length,
        mode=config.mode.value,
        method=spec.method.value,
        allowed=int(setup.mask.sum()),
        allowed_digest=digest(setup.mask),
        options=options,
        seed=config.seed,
        **of_model(model),
    )


def _look(setup: Setup, work: Path) -> Found | None:
    """The search itself; None in a process that only helped."""

    def told(stage: Stage) -> None:
        best = setup.spec.goal.sign * stage.best.value if stage.finals else float("nan")
        log.info("%s: %.4f after %d evaluations, %.1f s", stage.name, best, stage.evaluations, stage.seconds)

    if setup.spec.method is Method.exhaustive:
        return search_every_pair(setup, work, told=told)
    if setup.spec.length == 1:
        return search_one_token(setup, work, told=told)
    return search_by_stages(setup, work, told=told)


def _publish(
    config: SearchConfig, registry: Registry, identity: SearchIdentity, result: Found, mirror: Mirror
) -> Path:
    """Publish the result, and tell W&B."""
    contents = search_contents(result.tables, result.facts)
    contents.summary |= {
        "model": identity.model,
        "prompts": list(identity.prompts),
        "goal": identity.goal,
        "length": identity.length,
        "mode": identity.mode,
        "best_value": result.best_value,
    }
    digests = {"weights_digest": identity.weights_digest, "allowed_digest": identity.allowed_digest}
    folder, manifest = registry.publish(
        "search-result",
        identity.name,
        contents.write,
        key=identity.key(),
        inputs=result.inputs,
        config_hash=config_hash(config),
        run_id=mirror.run_id,
        summary=digests | contents.summary,
    )
    for row in result.tables["curve"].itertuples():
        mirror.metrics({"evaluations": row.evaluations, f"best_reward/{row.method}": row.reward})
    tell_contents(mirror, contents, folder)
    mirror.artifact(folder, manifest, manifest.summary)
    return folder
