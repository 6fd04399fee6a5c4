"""`pessimal search -m hparams_search=gcg`: a study of the search's options, from the overrides that
were typed to the artifact that is published.

The sweeper (`hydra_plugins/pessimal_optuna`) calls `tune`, which hands out the trials; each trial,
and the conclusion of all, is a job of its own, `run_study_job`, that may run in another process or
on another machine. Knows no model: `prepare` opens one, and tests give another.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override
from optuna.trial import Trial

from pessimal.config.schema import SearchConfig, TaskConfig
from pessimal.errors import ConfigError
from pessimal.options import at_least
from pessimal.progress import console
from pessimal.tracking.mirror import Mirror
from pessimal.tuning.results import best_of, conclude, key_of
from pessimal.tuning.space import as_overrides, check_space, parse_space
from pessimal.tuning.study import Trials, check_prompts, load, located, lock, options_tried
from pessimal.tuning.sweep import work
from pessimal.tuning.trial import PROVENANCE, Prepare, run_trial
from pessimal.verbs.common import registry_of, tracked
from pessimal.verbs.publish import Artifact, print_path, publish

log = logging.getLogger(__name__)

STUDY = "study"
"""The artifact's type."""
Compose = Callable[[Sequence[str]], TaskConfig]
"""The checked configuration that some overrides give."""
Run = Callable[[Sequence[Sequence[str]]], Sequence[Exception | None]]
"""Runs a batch of jobs, each given by its overrides; each one's error, or None."""


def tune(
    overrides: Sequence[Override], *, compose: Compose, run: Run, total: int, at_once: int
) -> None:
    """Tune what the overrides sweep until the study has `total` trials, conclude it, and print the
    folder of the artifact. Raises UserError before any trial, where the space, the prompts or the
    study's own past do not fit."""
    at_least(1, **{"hydra.sweeper.n_trials": total, "hydra.sweeper.n_jobs": at_once})
    space = parse_space(overrides)
    config = compose(space.fixed)
    if not isinstance(config, SearchConfig):
        raise ConfigError(
            f"this sweeper tunes `pessimal search`, not {config.task}; leave hydra/sweeper out"
        )
    check_space(space, config)
    check_prompts(config)
    config = located(config)
    tuning = config.tuning
    names = {"tuning.study": tuning.study, "tuning.storage": tuning.storage}
    common = [*space.fixed, *as_overrides(names)]
    trials = Trials(config, space)
    log.info(
        "study %s in %s: %d of %d trials are finished", *names.values(), trials.finished(), total
    )

    def launch(batch: Sequence[Trial]) -> Sequence[Exception | None]:
        own = [
            as_overrides({**options_tried(trial), "tuning.trial": trial.number}) for trial in batch
        ]
        return run([[*common, *overrides] for overrides in own])

    work(trials, launch, total=total, at_once=at_once)
    log.info("all trials are finished; one worker concludes the study, others wait for it")
    with lock(tuning.storage, "conclusion"):
        published = _published(config, trials)
        if published is not None and not config.force:
            log.info("the study is concluded already (force=true does it again)")
        elif error := run([common])[0]:
            raise error
        print_path(_published(config, trials))


def run_study_job(config: SearchConfig, prepare: Prepare) -> float | None:
    """Run the trial that the sweeper has filled in, and return its value; without one, conclude the
    study."""
    study, trial = config.tuning.study, config.tuning.trial
    if trial is not None:
        with tracked(config, name=f"{study} trial {trial}") as mirror:
            return run_trial(config, prepare, mirror=mirror)
    with tracked(config, name=study) as mirror:
        _conclude(config, prepare, mirror)
    return None


def _conclude(config: SearchConfig, prepare: Prepare, mirror: Mirror) -> None:
    """Publish the study, and say what it found; its path is the sweeper's to print."""
    study = load(config)
    results = conclude(config, study, prepare)
    summary = {"model": config.model.name, **study.user_attrs[PROVENANCE]}
    summary |= {name: value for result in results for name, value in result.summary.items()}
    artifact = Artifact(STUDY, study.study_name, key=key_of(config, study), summary=summary)
    publish(config, registry_of(config), mirror, artifact, results)
    # Not `show`, which keeps still in a sweep: this job speaks for all of them.
    for result in sorted((r for r in results if r.headline), key=lambda r: -r.weight):
        console().print(result.headline, markup=False)
    options = " ".join(as_overrides(options_tried(best_of(study))))
    console().print(f"The same options in a search: {options}", markup=False)


def _published(config: SearchConfig, trials: Trials) -> Path | None:
    """The folder of the published study with exactly these trials and held-out prompts."""
    return (registry_of(config).find(STUDY, key_of(config, trials.study)) or [None])[0]
