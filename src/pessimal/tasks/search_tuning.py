"""The jobs of a study of the search's options: one trial, or its conclusion; each a W&B run of the study's group."""

from pessimal.config.schema import SearchConfig
from pessimal.tasks.common import config_hash, registry_of, tracked
from pessimal.tasks.search_setup import prepare
from pessimal.tuning.conclusion import conclude
from pessimal.tuning.trial import run_trial


def run_study_job(config: SearchConfig) -> float | None:
    """Run the trial that the sweeper has filled in, and return its value; without one, conclude the study."""
    study, trial = config.tuning.study, config.tuning.trial
    if trial is not None:
        with tracked(config, name=f"{study} trial {trial}") as mirror:
            return run_trial(config, prepare, mirror=mirror)
    with tracked(config, name=study) as mirror:
        conclude(
            config, prepare, registry=registry_of(config), mirror=mirror, config_hash=config_hash(config)
        )
    return None
