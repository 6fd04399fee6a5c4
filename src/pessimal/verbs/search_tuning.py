"""The jobs of a study of the search's options: one trial, or its conclusion; each a W&B run of the study's group.

Knows no model: `prepare` opens one, and tests give another.
"""

import logging

from pessimal.config.schema import SearchConfig
from pessimal.tracking.mirror import Mirror
from pessimal.tuning.conclusion import STUDY, conclude
from pessimal.tuning.trial import Prepare, run_trial
from pessimal.verbs.common import registry_of, tracked
from pessimal.verbs.progress import console
from pessimal.verbs.publish import Artifact, publish

log = logging.getLogger(__name__)


def run_study_job(config: SearchConfig, prepare: Prepare) -> float | None:
    """Run the trial that the sweeper has filled in, and return its value; without one, conclude the study."""
    study, trial = config.tuning.study, config.tuning.trial
    if trial is not None:
        with tracked(config, name=f"{study} trial {trial}") as mirror:
            return run_trial(config, prepare, mirror=mirror)
    with tracked(config, name=study) as mirror:
        _conclude(config, prepare, mirror)
    return None


def _conclude(config: SearchConfig, prepare: Prepare, mirror: Mirror) -> None:
    """Publish the study, and say what it found; its path is the sweeper's to print."""
    conclusion = conclude(config, prepare)
    summary = {name: value for result in conclusion.results for name, value in result.summary.items()}
    artifact = Artifact(
        STUDY, conclusion.study, key=conclusion.key, summary={"model": config.model.name, **summary}
    )
    publish(config, registry_of(config), mirror, artifact, conclusion.results)
    # Not `show`, which keeps still in a sweep: this job speaks for all of them.
    for result in sorted((r for r in conclusion.results if r.headline), key=lambda r: -r.weight):
        console().print(result.headline, markup=False)
    options = " ".join(f"{name}={value}" for name, value in conclusion.tuned.items())
    console().print(f"The same options in a search: {options}", markup=False)
