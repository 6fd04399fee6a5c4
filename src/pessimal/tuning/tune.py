"""A whole sweep, from the overrides that were typed to the study that is published.

Knows the order of things: check all that can be checked, work through the trials, conclude once. Composing configurations
and running jobs are Hydra's, given as functions.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override
from optuna.trial import Trial

from pessimal.config.schema import SearchConfig, TaskConfig
from pessimal.config.schema.values import at_least
from pessimal.errors import ConfigError
from pessimal.tracking.registry import Registry
from pessimal.tuning.conclusion import concluded
from pessimal.tuning.space import as_overrides, check_space, parse_space
from pessimal.tuning.study import Trials, check_prompts, located, options_tried
from pessimal.tuning.sweep import work

log = logging.getLogger(__name__)

Compose = Callable[[Sequence[str]], TaskConfig]
"""The checked configuration that some overrides give."""
Run = Callable[[Sequence[Sequence[str]]], Sequence[Exception | None]]
"""Runs a batch of jobs, each given by its overrides; each one's error, or None."""


def tune(overrides: Sequence[Override], *, compose: Compose, run: Run, total: int, at_once: int) -> None:
    """Tune what the overrides sweep until the study has `total` trials, conclude it, and print the folder of the artifact.

    Raises:
        UserError: before any trial, where the space, the prompts or the study's own past do not fit.
        WorkError: where trials keep failing.
    """
    at_least(1, **{"hydra.sweeper.n_trials": total, "hydra.sweeper.n_jobs": at_once})
    space = parse_space(overrides)
    config = compose(space.fixed)
    if not isinstance(config, SearchConfig):
        raise ConfigError(f"this sweeper tunes `pessimal search`, not {config.task}; leave hydra/sweeper out")
    check_space(space, config)
    check_prompts(config)
    config = located(config)
    common = [*space.fixed, *_filled_in(config)]
    trials = Trials(config, space)
    log.info(
        "study %s in %s: %d of %d trials are finished",
        config.tuning.study, trials.storage.url, trials.finished(), total,
    )  # fmt: skip

    def launch(batch: Sequence[Trial]) -> Sequence[Exception | None]:
        jobs = [
            [*common, *as_overrides(options_tried(trial)), f"tuning.trial={trial.number}"] for trial in batch
        ]
        return run(jobs)

    work(trials, launch, total=total, at_once=at_once)
    print(_conclude_once(config, trials, run, common))


def _conclude_once(config: SearchConfig, trials: Trials, run: Run, common: Sequence[str]) -> Path:
    """The folder of the published study; one worker has it made, the others wait for it."""
    registry = Registry(Path(config.paths.registry))
    log.info(
        "all %d trials are finished; one worker concludes the study, others wait for it", trials.finished()
    )
    with trials.storage.lock("conclusion"):
        published = concluded(config, trials.study, registry)
        if published is None or config.force:
            [error] = run([common])
            if error is not None:
                raise error
            published = concluded(config, trials.study, registry)
        else:
            log.info("the study is concluded already (force=true does it again)")
    return published


def _filled_in(config: SearchConfig) -> list[str]:
    """The overrides of a job beside the options of its trial."""
    tuning = config.tuning
    settings = {"tuning.study": tuning.study, "tuning.storage": tuning.storage}
    if config.tracking.group is None:
        settings["tracking.group"] = tuning.study
    return as_overrides(settings)
