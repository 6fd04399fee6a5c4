"""A worker: takes trials of a study, has them run, and goes on until the study has them all.

Knows a study's trials and a function that runs a batch of them. Does not know how they are run.
"""

import logging
import time
from collections.abc import Callable, Sequence

from optuna.trial import FrozenTrial, Trial, TrialState

from pessimal.errors import UserError, WorkError
from pessimal.tuning.space import short
from pessimal.tuning.study import FINISHED, GRACE, Trials, one_line, options_tried

log = logging.getLogger(__name__)

# Failures in a row after which a worker ends: one may be an accident, three are not.
PATIENCE = 3
# Seconds between looks at the trials of other workers.
WAIT = 1.0

Launch = Callable[[Sequence[Trial]], Sequence[Exception | None]]
"""Runs a batch of trials, which report their values to the study themselves; gives each one's
error, or None. Raises where the batch as a whole was lost."""


def work(trials: Trials, launch: Launch, *, total: int, at_once: int) -> None:
    """Run trials, `at_once` in a batch, until the study has `total` finished ones, whoever runs
    them.

    A trial that fails counts for nothing; its options are not tried again. One whose worker dies is
    noticed and tried again, here if need be: a worker that finds nothing to take waits for the
        others. Raises UserError where a trial does (no other
    one would fare better), and WorkError where several in a row failed.
    """
    failures: list[str] = []
    waited = False
    while trials.finished() < total:
        with trials.taken(at_once, total=total) as batch:
            if batch:
                failures = _run(trials, batch, launch, failures)
        if len(failures) >= PATIENCE:
            raise WorkError(
                f"{len(failures)} trials in a row failed, the last with: {failures[-1]}. What was "
                f"finished is kept in "
                f"{trials.storage}, and the same command goes on from there"
            )
        for trial in batch:
            _report(trials, trials.all()[trial.number], total=total)
        if not batch:
            if not waited:
                log.info(
                    "waiting for other workers' trials (where one died, its trial is tried again "
                    "after %d s)",
                    GRACE,
                )
            time.sleep(WAIT)
        waited = not batch


def _run(trials: Trials, batch: list[Trial], launch: Launch, failures: list[str]) -> list[str]:
    """The failures in a row after this batch."""
    try:
        errors = launch(batch)
    except UserError:
        raise
    except Exception as error:  # say a killed process of a pool
        log.warning(
            "the trials %s were lost: %s", [trial.number for trial in batch], one_line(error)
        )
        return [*failures, one_line(error)]
    for trial, error in zip(batch, errors, strict=True):
        if error is None and trials.all()[trial.number].state is TrialState.RUNNING:
            error = WorkError("the job ended without a value")
        if error is None:
            failures = []
            continue
        trials.failed(trial, error)
        if isinstance(error, UserError):
            raise error
        unforeseen = None if isinstance(error, WorkError) else error
        log.warning("trial %d failed: %s", trial.number, one_line(error), exc_info=unforeseen)
        failures = [*failures, one_line(error)]
    return failures


def _report(trials: Trials, trial: FrozenTrial, *, total: int) -> None:
    """A line on a trial: where it stands among the others."""
    if trial.state in FINISHED:
        tried = " ".join(
            f"{short(name)}={value:.4g}" for name, value in options_tried(trial).items()
        )
        best = max(
            (t.value for t in trials.all() if t.state is TrialState.COMPLETE), default=trial.value
        )
        log.info(
            "%d of %d: trial %d %s at %.4f with %s; best %.4f",
            trials.finished(),
            total,
            trial.number,
            trial.state.name.lower(),
            trial.value,
            tried,
            best,
        )
