"""One study in one SQLite file: begun or opened, and its trials handed out and taken back by any
number of workers.

Trials whose worker died are noticed and queued again by Optuna, whose heartbeats stand in the
database. Trials are handed out under a lock beside the file, so that a total is a total. Does not
know how a trial is run.
"""

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from filelock import FileLock
from optuna.distributions import distribution_to_json
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.storages._heartbeat import (
    get_heartbeat_thread,
)  # what Study.optimize uses; it has no public name
from optuna.trial import FrozenTrial, Trial, TrialState

from pessimal import __version__
from pessimal.config.schema import SearchConfig
from pessimal.errors import ConfigError, InputError
from pessimal.tables.files import sha256_of
from pessimal.tracking.registry import figures, safe_name
from pessimal.tuning.space import TUNABLE, Options, Space, contains, options_of

STUDY_SPEC, DEFAULTS, ERROR = "spec", "defaults", "error"
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
# Seconds. A trial without a sign of life for GRACE is given up: several heartbeats long, as a busy
# disk delays them.
HEARTBEAT, GRACE = 5, 30
# How often options that ended their worker are tried again: a trial that exhausts the memory would
# do it for ever.
RETRIES = 3
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used")
# Parts of a model's specification that describe it and change no reward.
_DESCRIPTIONS = (
    "name",
    "base",
    "developer",
    "parameters",
    "rank",
    "trust_remote_code",
    "score",
    "chat",
)


def located(config: SearchConfig) -> SearchConfig:
    """The configuration with its study's name and storage filled in: by model, goal and length,
    under `paths.root`."""
    search, tuning = config.search, config.tuning
    name = tuning.study or safe_name(f"gcg-{config.model.name}-{search.goal.value}-{search.length}")
    storage = tuning.storage or f"{config.paths.root}/studies/{safe_name(name)}.db"
    return replace(
        config, tuning=replace(tuning, study=name, storage=f"sqlite:///{database(storage)}")
    )


def check_prompts(config: SearchConfig) -> None:
    """ConfigError where options would be tuned on nothing, or compared on what they were tuned
    on."""
    tuning = config.tuning
    if not tuning.prompts:
        raise ConfigError(
            "tuning.prompts is empty: give the keys of the prompts that options are tuned on, and "
            "of others that they are "
            "compared with the defaults on: tuning.prompts=[greatest,worst] tuning.held_out=[best]"
        )
    tuned_on = {config.prompts[key].strip(): key for key in tuning.prompts}
    for key in tuning.held_out:
        if same := tuned_on.get(config.prompts[key].strip()):
            raise ConfigError(
                f"tuning.held_out={key} is worded exactly as tuning.prompts={same}, which options "
                f"are tuned on: leave one "
                "of them out, or the comparison would flatter the tuned options"
            )


def database(storage: str) -> Path:
    """The absolute path of the file that `tuning.storage` names; ConfigError where it names
    none."""
    path = storage.removeprefix("sqlite:///")
    if not path or "://" in path:
        raise ConfigError(
            f"tuning.storage={storage!r}: a study is kept in a SQLite file; type for example "
            f"tuning.storage=study.db"
        )
    return Path(os.path.abspath(os.path.expanduser(path)))


def lock(storage: str, name: str = "lock") -> FileLock:
    """For one process at a time; free again when that process ends, however it ends."""
    file = database(storage)
    file.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{file}.{name}")


def open_storage(storage: str) -> RDBStorage:
    """Optuna's storage, made where it is not there yet. Only with the lock held: making its tables
    is not safe twice at once."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    file = database(storage)
    try:
        return RDBStorage(
            f"sqlite:///{file}",
            engine_kwargs={
                "connect_args": {"timeout": 60}
            },  # seconds that a writer waits for another
            heartbeat_interval=HEARTBEAT,
            grace_period=GRACE,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=RETRIES),
        )
    except OSError:
        raise
    except Exception as error:  # whatever SQLAlchemy makes of a file that is something else
        raise InputError(
            f"{file} cannot be read as a study's SQLite file ({type(error).__name__}); give "
            f"another tuning.storage"
        ) from error


def load(config: SearchConfig) -> optuna.Study:
    """The study that a job belongs to, which is there already."""
    tuning = config.tuning
    if tuning.study is None or tuning.storage is None:
        raise ConfigError(
            "a job of a study needs both tuning.study=NAME and tuning.storage=FILE.db"
        )
    if not database(tuning.storage).exists():
        raise InputError(f"tuning.storage={tuning.storage!r}: there is no such file")
    with lock(tuning.storage):
        storage = open_storage(tuning.storage)
    known = optuna.get_all_study_names(storage)
    if tuning.study not in known:
        raise InputError(
            f"there is no study {tuning.study!r} in {tuning.storage}; there are: "
            f"{', '.join(known) or 'none'}"
        )
    return optuna.load_study(study_name=tuning.study, storage=storage)


def options_tried(trial: FrozenTrial | Trial) -> Options:
    """The options of a trial. The defaults' own may lie outside of the space, where Optuna keeps no
    parameters."""
    return trial.user_attrs.get(DEFAULTS, trial.params)


def working(trial: Trial) -> contextlib.AbstractContextManager:
    """Show that somebody works on a trial: the worker that took it, and the job that runs it, which
    may outlive it."""
    return get_heartbeat_thread(trial._trial_id, trial.storage)


class Trials:
    """The trials of one study, as a worker sees them."""

    def __init__(self, config: SearchConfig, space: Space):
        """Open the study of a `located` configuration, or begin it; ConfigError where it was begun
        for something else."""
        tuning = config.tuning
        self.space, self.seed, self.storage = space, config.seed, tuning.storage
        self.defaults = options_of(config, list(space.distributions))
        spec = _study_spec(config, space)
        with lock(self.storage):
            self.study = optuna.create_study(
                study_name=tuning.study,
                storage=open_storage(self.storage),
                direction="maximize",  # of the value, which is signed by the goal: more is better
                load_if_exists=True,
            )
            if STUDY_SPEC not in self.study.user_attrs:
                self.study.set_user_attr(STUDY_SPEC, spec)
        before, now = figures(self.study.user_attrs[STUDY_SPEC]), figures(spec)
        changed = [key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key)]
        if changed:
            how = "; ".join(
                f"{key} was {before.get(key)!r} and is now {now.get(key)!r}" for key in changed
            )
            raise ConfigError(
                f"the study {tuning.study!r} in {self.storage} was begun for something else: "
                f"{how}. Its trials' values could "
                f"not be compared with new ones. Begin another: tuning.study={tuning.study}-2; or "
                f"give the options it was "
                "begun with"
            )

    def all(self) -> list[FrozenTrial]:
        """Every trial so far, in order."""
        return self.study.get_trials(deepcopy=False)

    def finished(self) -> int:
        """Trials that have a value: complete or pruned. Failed ones count for nothing."""
        return sum(trial.state in FINISHED for trial in self.all())

    @contextlib.contextmanager
    def taken(self, most: int, *, total: int) -> Iterator[list[Trial]]:
        """Up to `most` trials to be run now; fewer, or none, where the study has `total` with those
        that are running.

        For as long as this lasts they count as worked on. Those that are not finished then are
        stale after GRACE seconds, and their options are tried again.
        """
        with contextlib.ExitStack() as alive:
            with lock(self.storage):
                optuna.storages.fail_stale_trials(self.study)
                occupied = [t for t in self.all() if t.state in (*FINISHED, TrialState.RUNNING)]
                trials = [self._ask() for _ in range(min(most, total - len(occupied)))]
                for trial in trials:
                    alive.enter_context(working(trial))
            yield trials

    def failed(self, trial: Trial, error: BaseException) -> None:
        """Note that the job of a trial failed, and why; its options are not tried again."""
        with contextlib.suppress(
            UpdateFinishedTrialError, ValueError
        ):  # another worker gave it up already
            trial.set_user_attr(ERROR, one_line(error))
            self.study.tell(trial.number, state=TrialState.FAIL)

    def _ask(self) -> Trial:
        """The next trial, running: the defaults before all others, so that the best can be compared
        with them; then one from the queue, or a new one. Its options follow from the seed, its
        number and the trials before it, whoever asks."""
        inside = {
            k: v for k, v in self.space.distributions.items() if contains(v, self.defaults[k])
        }
        if not any(DEFAULTS in t.user_attrs and t.state is not TrialState.FAIL for t in self.all()):
            own = {name: self.defaults[name] for name in inside}
            self.study.enqueue_trial(own, user_attrs={DEFAULTS: self.defaults})
        elif TrialState.WAITING not in {trial.state for trial in self.all()}:
            self.study.enqueue_trial({})
        [trial, *_] = self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        # Before it runs: a trial whose worker dies without a heartbeat would count as running for
        # ever.
        self.study._storage.record_heartbeat(trial._trial_id)
        drawn = np.random.SeedSequence([self.seed, trial.number]).generate_state(1)
        self.study.sampler = TPESampler(seed=int(drawn[0]), multivariate=True, group=True)
        return self.study.ask(inside if DEFAULTS in trial.user_attrs else self.space.distributions)


def one_line(error: BaseException) -> str:
    """An error as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _study_spec(config: SearchConfig, space: Space) -> dict[str, Any]:
    """What the values of trials depend on, so that one study never mixes values that cannot be
    compared: what is searched, on what, from how many starts, at what budget, and the defaults and
        the values of options."""
    search, tuning = config.search, config.tuning
    listed = search.allowed_path and sha256_of(Path(search.allowed_path).expanduser())
    prompts = {key: config.prompts[key] for key in tuning.prompts}
    fixed = ("length", "goal", "allowed", *TUNABLE)
    spec = {
        "model": {
            key: value for key, value in asdict(config.model).items() if key not in _DESCRIPTIONS
        },
        "mode": config.mode,
        "search": {"allowed_path": listed, **{option: getattr(search, option) for option in fixed}},
        "tuning": {"prompts": prompts, "seeds": tuning.seeds, "evaluations": tuning.evaluations},
        "seed": config.seed,
        "params": {
            name: distribution_to_json(values) for name, values in space.distributions.items()
        },
        "pessimal": __version__,
    }
    return json.loads(
        json.dumps(spec, default=lambda v: v.value if isinstance(v, Enum) else str(v))
    )
