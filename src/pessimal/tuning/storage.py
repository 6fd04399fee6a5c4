"""The storage of a study: a journal file or a SQLite file, the locks beside it, and who is working on which trial.

Knows Optuna's storages and files. Does not know what a trial is about.
"""

import contextlib
import fcntl
import logging
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend

from pessimal.errors import ConfigError, InputError, WorkError
from pessimal.tuning.stale_trials import Heartbeats, StaleTrials, TrialLocks, retrying

log = logging.getLogger(__name__)

# Seconds. A SQLite trial without a sign of life for GRACE is given up: several heartbeats long, as a busy disk delays them.
HEARTBEAT, GRACE = 10, 60
SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Storage:
    """The file of a study."""

    file: Path
    """Absolute."""
    sqlite: bool
    """A SQLite database; otherwise a journal."""

    @classmethod
    def of(cls, storage: str) -> "Storage":
        """The storage that `tuning.storage` names; ConfigError where it is neither kind."""
        if storage.startswith(SQLITE) and storage != SQLITE:
            return cls(_absolute(storage.removeprefix(SQLITE)), sqlite=True)
        if "://" not in storage and storage.endswith(".log"):
            return cls(_absolute(storage), sqlite=False)
        instead = f"{SQLITE}{storage}" if storage.endswith(".db") else "study.log"
        raise ConfigError(
            f"tuning.storage={storage!r}: a study is kept in a journal (FILE.log) or in SQLite ({SQLITE}FILE.db). Type for "
            f"example tuning.storage={instead}"
        )

    @property
    def url(self) -> str:
        """As `tuning.storage` and `optuna-dashboard` take it, wherever they are started."""
        return f"{SQLITE}{self.file}" if self.sqlite else str(self.file)

    def open(self) -> BaseStorage:
        """Optuna's storage; made where it is not there yet. Only with the lock `study` held: two that make the tables of a
        SQLite file at once get in each other's way."""
        quiet_optuna()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            if not self.sqlite:
                return JournalStorage(JournalFileBackend(str(self.file)))
            return RDBStorage(
                self.url,
                engine_kwargs={"connect_args": {"timeout": 60}},  # seconds that a writer waits for another
                heartbeat_interval=HEARTBEAT,
                grace_period=GRACE,
                heartbeat_stale_trial_callback=retrying(),
            )
        except OSError:
            raise
        except Exception as error:  # whatever JSON and SQLAlchemy make of a file that is something else
            raise InputError(
                f"{self.file} cannot be read as a study's {'SQLite file' if self.sqlite else 'journal'} "
                f"({type(error).__name__}: {error}); give another tuning.storage"
            ) from error

    def stale_trials(self, study: optuna.Study) -> StaleTrials:
        """Who works on which trial: heartbeats in the database; beside a journal, which has none, locks."""
        if self.sqlite:
            return Heartbeats(study, seconds=HEARTBEAT)
        return TrialLocks(study, self._workers())

    @contextlib.contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """For one process at a time; ends with the process, however that ends."""
        handle = os.open(self._workers() / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
            except OSError as error:
                raise WorkError(
                    f"the file system of {self.file.parent} has no locks ({error.strerror}), by which workers share a study; "
                    "give a tuning.storage on another disk"
                ) from error
            yield
        finally:
            os.close(handle)

    def _workers(self) -> Path:
        # Not FILE.lock: Optuna's journal makes a link of that name for its own lock.
        folder = self.file.with_name(f"{self.file.name}.workers")
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def quiet_optuna() -> None:
    """Silence what Optuna says of each step, and of features that are called experimental; errors still come through."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used")


def _absolute(path: str) -> Path:
    return Path(os.path.abspath(os.path.expanduser(path)))
