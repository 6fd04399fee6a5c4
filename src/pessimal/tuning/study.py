"""One study: opened or begun, its trials counted, handed out and taken back. Any number of workers do this at once.

Knows Optuna and the lock by which workers take turns. Does not know how a trial is run.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import TPESampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from pessimal.config.schema import SearchConfig
from pessimal.errors import ConfigError, InputError
from pessimal.tracking.registry import safe_name
from pessimal.tuning.pruning import FallenBehind
from pessimal.tuning.space import Options, Space, options_of
from pessimal.tuning.stale_trials import fail, requeue
from pessimal.tuning.storage import Storage
from pessimal.tuning.study_spec import check_same, study_spec

log = logging.getLogger(__name__)

STUDY_SPEC, DEFAULTS = "subject", "defaults"
FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


def located(config: SearchConfig) -> SearchConfig:
    """The configuration with its study's name and storage filled in: by model, goal and length, under `paths.root`."""
    search, tuning = config.search, config.tuning
    name = tuning.study or safe_name(f"gcg-{config.model.name}-{search.goal.value}-{search.length}")
    storage = tuning.storage or f"{config.paths.root}/studies/{safe_name(name)}.log"
    return replace(config, tuning=replace(tuning, study=name, storage=Storage.of(storage).url))


def check_prompts(config: SearchConfig) -> None:
    """ConfigError where options would be tuned on nothing, or compared on what they were tuned on."""
    tuning = config.tuning
    if not tuning.prompts:
        raise ConfigError(
            "tuning.prompts is empty: give the keys of the prompts that options are tuned on, and of others that they are "
            "compared with the defaults on: tuning.prompts=[greatest,worst] tuning.held_out=[best]"
        )
    tuned_on = {config.prompts[key].strip(): key for key in tuning.prompts}
    for key in tuning.held_out:
        if same := tuned_on.get(config.prompts[key].strip()):
            raise ConfigError(
                f"tuning.held_out={key} is worded exactly as tuning.prompts={same}, which options are tuned on: leave one "
                "of them out, or the comparison would flatter the tuned options"
            )


def load(config: SearchConfig) -> tuple[optuna.Study, Storage]:
    """The study that a job belongs to, which is there already."""
    tuning = config.tuning
    if tuning.study is None or tuning.storage is None:
        raise ConfigError("a job of a study needs both tuning.study=NAME and tuning.storage=FILE.log")
    storage = Storage.of(tuning.storage)
    if not storage.file.exists():
        raise InputError(f"tuning.storage={tuning.storage!r}: there is no such file")
    with storage.lock("study"):
        opened = storage.open()
        try:
            study = optuna.load_study(
                study_name=tuning.study,
                storage=opened,
                pruner=FallenBehind(searches=len(tuning.prompts)),
            )
        except KeyError as error:
            known = ", ".join(optuna.get_all_study_names(opened)) or "none"
            raise InputError(
                f"there is no study {tuning.study!r} in {storage.file}; there are: {known}"
            ) from error
    return study, storage


def options_tried(trial: FrozenTrial | Trial) -> Options:
    """The options of a trial. The defaults' own may lie outside of the space, where Optuna keeps no parameters."""
    return trial.user_attrs.get(DEFAULTS, trial.params)


class Trials:
    """The trials of one study, as a worker sees them."""

    def __init__(self, config: SearchConfig, space: Space):
        """Open the study of a `located` configuration, or begin it; ConfigError where it was begun for something else."""
        tuning = config.tuning
        self.space, self.seed = space, config.seed
        self.defaults = options_of(config, list(space.distributions))
        self.storage = Storage.of(tuning.storage)
        spec = study_spec(config, space)
        with self.storage.lock("study"):
            self.study = optuna.create_study(
                study_name=tuning.study,
                storage=self.storage.open(),
                direction="maximize",  # of the value, which is signed by the goal: more is better
                load_if_exists=True,
                pruner=FallenBehind(searches=len(tuning.prompts)),
            )
            if STUDY_SPEC not in self.study.user_attrs:
                self.study.set_user_attr(STUDY_SPEC, spec)
            begun = self.study.user_attrs[STUDY_SPEC]
        check_same(begun, spec, name=tuning.study, file=self.storage.file)
        self.stale_trials = self.storage.stale_trials(self.study)

    def all(self) -> list[FrozenTrial]:
        """Every trial so far, in order."""
        return self.study.get_trials(deepcopy=False)

    def finished(self) -> int:
        """Trials that have a value: complete or pruned. Failed ones count for nothing."""
        return sum(trial.state in FINISHED for trial in self.all())

    def running(self) -> list[int]:
        """Numbers of the trials that somebody works on."""
        return [trial.number for trial in self.all() if trial.state is TrialState.RUNNING]

    @contextlib.contextmanager
    def taken(self, most: int, *, total: int) -> Iterator[list[Trial]]:
        """Up to `most` trials to be run now; fewer, or none, where the study has `total` with those that are running.

        For as long as this lasts the trials count as worked on. Where it ends with an exception, those that are not finished
        were lost, and their options are queued again.
        """
        with contextlib.ExitStack() as alive:
            with self.storage.lock("study"):
                self.stale_trials.give_up_stale()
                self._queue_defaults()
                occupied = sum(trial.state in (*FINISHED, TrialState.RUNNING) for trial in self.all())
                trials = []
                for _ in range(min(most, total - occupied)):
                    trials.append(self._ask())
                    alive.enter_context(self.stale_trials.working(trials[-1]))
            try:
                yield trials
            except BaseException as error:
                self.lost(trials, error)
                raise

    def failed(self, trial: Trial, error: Exception) -> None:
        """Note that the job of a trial failed, and why; its options are not tried again."""
        fail(self.study, trial.number, error=one_line(error))

    def lost(self, trials: Sequence[Trial], error: BaseException) -> None:
        """Note that jobs ended without a word, and queue the options of those that are not finished again."""
        with self.storage.lock("study"):
            for trial in trials:
                if fail(self.study, trial.number, error=one_line(error)):
                    requeue(self.study, trial.number)

    def _queue_defaults(self) -> None:
        """Let the defaults be the first trial, so that the best can be compared with them."""
        if any(DEFAULTS in t.user_attrs and t.state is not TrialState.FAIL for t in self.all()):
            return
        inside = {
            name: values
            for name, values in self.space.distributions.items()
            if _contains(values, self.defaults[name])
        }
        self.study.add_trial(
            create_trial(
                state=TrialState.WAITING,
                params={name: self.defaults[name] for name in inside},
                distributions=inside,
                user_attrs={DEFAULTS: self.defaults},
            )
        )

    def _ask(self) -> Trial:
        """The next trial, running: one from the queue, or a new one. Its options follow from the seed, its number and the
        trials before it, whichever worker asks."""
        trials = self.all()
        queued = next((trial for trial in trials if trial.state is TrialState.WAITING), None)
        drawn = np.random.SeedSequence([self.seed, len(trials)]).generate_state(1)
        self.study.sampler = TPESampler(seed=int(drawn[0]), multivariate=True, group=True)
        if queued is not None and DEFAULTS in queued.user_attrs:
            return self.study.ask()
        return self.study.ask(fixed_distributions=self.space.distributions)


def one_line(error: BaseException) -> str:
    """An error as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _contains(values: BaseDistribution, value: Any) -> bool:
    """Whether a value is one of those that a dimension takes."""
    if isinstance(values, CategoricalDistribution):
        return value in values.choices
    steps = (value - values.low) / values.step if values.step else 0.0
    return values.low <= value <= values.high and abs(steps - round(steps)) < 1e-8
