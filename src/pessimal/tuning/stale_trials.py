"""Stale trials: running trials whose worker died are failed, and their options tried again.

A worker that is killed cannot say so. A SQLite storage knows it by heartbeats that stop, as Optuna does; beside a journal
lies a lock a trial, which the system frees when the process that holds it ends, however it ends.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import Trial, TrialState

from pessimal.tables.files import is_unlocked

ERROR = "error"
# How often options that ended their worker are tried again: a trial that exhausts the memory would do it for ever.
RETRIES = 3


class StaleTrials(Protocol):
    """Which of one study's running trials are stale. Several processes may work on one trial: the worker that took it and
    the job that runs it."""

    def working(self, trial: Trial) -> contextlib.AbstractContextManager[None]:
        """Show that somebody works on this trial, for as long as this lasts."""

    def give_up_stale(self) -> None:
        """Fail the running trials that nobody works on, and queue their options. Only with the lock `study` held."""


class TrialLocks:
    """Locks in a folder: at once known when they are free, on one machine or on a file system that shares locks."""

    def __init__(self, study: optuna.Study, folder: Path):
        self.study, self.folder = study, folder

    @contextlib.contextmanager
    def working(self, trial: Trial) -> Iterator[None]:
        handle = self._open(trial.number)
        try:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_SH)
            yield
        finally:
            os.close(handle)

    def give_up_stale(self) -> None:
        for trial in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if self._is_free(trial.number) and fail(self.study, trial.number, error="its worker died"):
                requeue(self.study, trial.number)

    def _is_free(self, number: int) -> bool:
        return is_unlocked(self._open(number))

    def _open(self, number: int) -> int:
        return os.open(self.folder / f"trial-{number}.lock", os.O_RDWR | os.O_CREAT, 0o666)


class Heartbeats:
    """A time stamp in the database every few seconds, from a thread."""

    def __init__(self, study: optuna.Study, *, seconds: float):
        self.study, self.seconds = study, seconds

    @contextlib.contextmanager
    def working(self, trial: Trial) -> Iterator[None]:
        stop = threading.Event()
        trial.storage.record_heartbeat(trial._trial_id)

        def beat() -> None:
            while not stop.wait(self.seconds):
                with contextlib.suppress(Exception):  # a database that is busy now takes the next one
                    trial.storage.record_heartbeat(trial._trial_id)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def give_up_stale(self) -> None:
        optuna.storages.fail_stale_trials(self.study)


def fail(study: optuna.Study, number: int, *, error: str | None = None) -> bool:
    """Fail a running trial; False where it is finished already, by whomever."""
    frozen = study.trials[number]
    if frozen.state is not TrialState.RUNNING:
        return False
    try:
        if error is not None:
            Trial(study, frozen._trial_id).set_user_attr(ERROR, error)
        study.tell(number, state=TrialState.FAIL)
    except (UpdateFinishedTrialError, ValueError):  # it was finished between the two lines
        return False
    return True


def requeue(study: optuna.Study, number: int) -> None:
    """Let the options of a failed trial be tried again, by a new trial that knows of the old one."""
    trial = study.trials[number]
    trial.user_attrs.pop(ERROR, None)
    retrying()(study, trial)


def retrying() -> RetryHeartbeatStaleTrialCallback:
    """Optuna's own way to put a failed trial's options into the queue, up to RETRIES times."""
    return RetryHeartbeatStaleTrialCallback(max_retry=RETRIES)
