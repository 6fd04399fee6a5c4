"""One study in one SQLite file: begun or opened, its trials run, one a job, by any number of
workers.

Optuna draws a trial's options and keeps its values. Options are drawn under a lock beside the file,
so that a total is a total and a seed gives the same options whoever asks. A worker holds a lock of
its trial while it lives: what a dead one leaves behind is failed and queued again. Knows neither a
model nor a whole configuration.
"""

import json
import logging
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from statistics import median
from typing import Any, Protocol, cast

import numpy as np
import optuna
from filelock import FileLock, Timeout
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)
from optuna.pruners import BasePruner
from optuna.samplers import TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from pessimal.conversation import Prompt, plain_text
from pessimal.errors import ConfigError, InputError, UserError, WorkError
from pessimal.options import existing_file
from pessimal.searching.spec import SearchSpec
from pessimal.tables.files import sha256_of
from pessimal.tracking.mirror import Mirror
from pessimal.tracking.registry import figures
from pessimal.tuning.spec import TuningSpec
from pessimal.version import __version__

log = logging.getLogger(__name__)
warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)

# How greedy coordinate gradient searches. What is searched for, and the budget, are not among them:
# values of trials that differ in these cannot be compared.
TUNABLE = ("search_width", "top_k", "step_size", "step_size_until", "momentum")

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
# User attributes of a study: what it was begun for, and its model's digests.
STUDY_SPEC, PROVENANCE = "spec", "provenance"
# User attributes of a trial: the defaults, where it tries them; its searches; why it failed.
DEFAULTS, SEARCHES, ERROR = "defaults", "searches", "error"
# How often options that ended their worker are tried again: a trial that exhausts the memory would
# do it for ever.
RETRIES = 3
# Failures in a row after which a worker ends: one may be an accident, three are not.
PATIENCE = 3
# What every SQLite file begins with.
SQLITE = b"SQLite format 3\0"
# Seconds between looks at the trials of other workers.
WAIT = 1.0

Distribution = CategoricalDistribution | FloatDistribution | IntDistribution
Space = Mapping[str, Distribution]
"""The values that each varied option may take, by its full name, such as `search.top_k`."""
Values = dict[str, Any]
"""Values of options by their full names."""


class Searchable(Protocol):
    """One model, ready to be searched on some prompts with some options."""

    @property
    def provenance(self) -> Mapping[str, str]:
        """Digests of the model: values of another are not to be compared with these."""

    def search(self, prompt: str, *, seed: int, budget: int) -> float:
        """The best value that the search reaches on the prompt of this key, from this seed, within
        `budget` candidate evaluations. More is better; in units that prompts share."""


Prepare = Callable[[SearchSpec, list[str]], Searchable]
"""Opens the model for these options and prompts by their keys."""
Track = Callable[[SearchSpec, int], AbstractContextManager[Mirror]]
"""Opens the W&B run of the trial with these options and this number."""
Run = Callable[[int], Sequence[Exception | None]]
"""Runs that many jobs, a trial each; each one's error, or None. Raises where all were lost."""


@dataclass(frozen=True)
class StudySpec:
    """What a study tunes, and on what."""

    name: str
    file: Path
    model: Mapping[str, Any]
    """The options of the model that its rewards depend on."""
    mode: str
    search: SearchSpec
    """The defaults that tuned options are compared with."""
    tuning: TuningSpec
    prompts: Mapping[str, Prompt]
    """The user turns by their keys."""
    seed: int

    @property
    def storage(self) -> str:
        return f"sqlite:///{self.file}"

    def document(self, space: Space) -> Values:
        """What the values of trials depend on, so that one study never mixes values that cannot be
        compared: what is searched, on what, from how many starts, at what budget, the defaults, and
        the values of options."""
        search, tuning = self.search, self.tuning
        allowed = search.allowed_path and sha256_of(Path(search.allowed_path).expanduser())
        options = {name: getattr(search, name) for name in ("length", "goal", "allowed", *TUNABLE)}
        prompts = {key: self.prompts[key] for key in tuning.prompts}
        budget = {"seeds": tuning.seeds, "evaluations": tuning.evaluations}
        document = {
            "model": dict(self.model),
            "mode": self.mode,
            "search": {"allowed_path": allowed, **options},
            "tuning": {"prompts": prompts, **budget},
            "seed": self.seed,
            "params": {name: distribution_to_json(values) for name, values in space.items()},
            "pessimal": __version__,
        }
        text = json.dumps(document, default=lambda v: v.value if isinstance(v, Enum) else str(v))
        return json.loads(text)


class FallenBehind(BasePruner):
    """Prunes a trial whose running median is below the median of the others' at the same search,
    failed ones aside.

    Optuna's MedianPruner compares a trial's best running median so far, and the first, from one
    prompt where rewards are high, stays the best for ever. Here all trials go through the same
    searches in the same order, from the same starts. `searches`: what every trial may make (each
    prompt once, or one would decide); `trials`: others that must be as far.
    """

    def __init__(self, *, searches: int, trials: int = 5):
        self.searches, self.trials = searches, trials

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        step = trial.last_step
        if step is None or step + 1 < self.searches:
            return False
        others = [
            other.intermediate_values[step]
            for other in study.get_trials(deepcopy=False)
            if other.number != trial.number
            and other.state is not TrialState.FAIL
            and step in other.intermediate_values
        ]
        return len(others) >= self.trials and trial.intermediate_values[step] < median(others)


# --- Options.


def short(name: str) -> str:
    """An option's name without `search.`."""
    return name.removeprefix("search.")


def with_options(search: SearchSpec, values: Mapping[str, Any]) -> SearchSpec:
    """The search with other options, checked as if they had been typed."""
    return replace(search, **{short(name): value for name, value in values.items()})


def options_of(search: SearchSpec, names: Sequence[str]) -> Values:
    """The values that these options have in a search."""
    return {name: getattr(search, short(name)) for name in names}


def options_tried(trial: FrozenTrial | Trial) -> Values:
    """The options of a trial. The defaults' own may lie outside of the space, where Optuna keeps no
    parameters."""
    return trial.user_attrs.get(DEFAULTS, trial.params)


def space_of(study: optuna.Study) -> dict[str, Distribution]:
    """The space that a study was begun with."""
    texts = study.user_attrs[STUDY_SPEC]["params"]
    return {name: cast(Distribution, json_to_distribution(text)) for name, text in texts.items()}


# --- A study in its file.


def database(storage: str) -> Path:
    """The absolute path of the file that `tuning.storage` names; ConfigError where it names
    none."""
    path = storage.removeprefix("sqlite:///")
    if not path or "://" in path:
        raise ConfigError(
            f"tuning.storage={storage!r}: a study is kept in a SQLite file; type for example "
            "tuning.storage=study.db"
        )
    file = Path(os.path.abspath(os.path.expanduser(path)))
    if os.path.exists(file):  # before a lock is made beside it
        with existing_file("tuning.storage", str(file)).open("rb") as begun:
            if begun.read(len(SQLITE)) not in (b"", SQLITE):
                raise InputError(
                    f"tuning.storage={storage!r} is no SQLite file: give a study's, or a new name"
                )
    return file


def check_prompts(spec: StudySpec) -> None:
    """ConfigError where options would be tuned on nothing, or compared on what they were tuned
    on."""
    tuning = spec.tuning
    if not tuning.prompts:
        raise ConfigError(
            "tuning.prompts is empty: give the keys of the prompts that options are tuned on, and "
            "of others that they are compared with the defaults on: "
            "tuning.prompts=[greatest,worst] tuning.held_out=[best]"
        )
    tuned_on = {plain_text(spec.prompts[key]).strip(): key for key in tuning.prompts}
    for key in tuning.held_out:
        if same := tuned_on.get(plain_text(spec.prompts[key]).strip()):
            raise ConfigError(
                f"tuning.held_out={key} is worded exactly as tuning.prompts={same}, which options "
                "are tuned on: leave one out, or the comparison would flatter the tuned options"
            )


def lock(file: Path, name: str = "lock") -> FileLock:
    """For one process at a time; free again when that process ends, however it ends. The same
    object for the same file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{file}.{name}", is_singleton=True)


def begin(spec: StudySpec, space: Space) -> optuna.Study:
    """The study, opened or begun; ConfigError where it was begun for something else."""
    now = spec.document(space)
    with lock(spec.file):
        study = optuna.create_study(
            study_name=spec.name,
            storage=_open(spec.file),
            direction="maximize",  # of the value, which is signed by the goal: more is better
            load_if_exists=True,
        )
        if STUDY_SPEC not in study.user_attrs:
            study.set_user_attr(STUDY_SPEC, now)
    before, after = figures(study.user_attrs[STUDY_SPEC]), figures(now)
    changes = [
        f"{name} was {before.get(name)!r} and is now {after.get(name)!r}"
        for name in before | after
        if before.get(name) != after.get(name)
    ]
    if changes:
        raise ConfigError(
            f"the study {spec.name!r} in {spec.storage} was begun for something else: "
            f"{'; '.join(changes)}. Its trials' values could not be compared with new ones. Begin "
            f"another: tuning.study={spec.name}-2; or give the options it was begun with"
        )
    return study


def load(spec: StudySpec) -> optuna.Study:
    """The study of a job; InputError where it was not begun."""
    names: list[str] = []
    if spec.file.exists():
        with lock(spec.file):
            storage = _open(spec.file)
        names = optuna.get_all_study_names(storage)
    if spec.name not in names:
        raise InputError(
            f"there is no study {spec.name!r} in {spec.storage}; there are: "
            f"{', '.join(names) or 'none'}"
        )
    return optuna.load_study(study_name=spec.name, storage=storage)


def _open(file: Path) -> RDBStorage:
    """Optuna's storage. Only with the lock held: making its tables is not safe twice at once."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # what failed is logged here
    try:
        # Seconds that a writer waits for another.
        return RDBStorage(f"sqlite:///{file}", engine_kwargs={"connect_args": {"timeout": 60}})
    except OSError:
        raise
    except Exception as error:  # whatever SQLAlchemy makes of a file that is something else
        raise InputError(
            f"{file} cannot be read as a study's SQLite file ({type(error).__name__}); give "
            "another tuning.storage"
        ) from error


def same_model(study: optuna.Study, model: Searchable) -> Searchable:
    """The model; WorkError where it is another than in the trials before: a folder of one name with
    other weights."""
    if PROVENANCE not in study.user_attrs:
        study.set_user_attr(PROVENANCE, dict(model.provenance))
    before, now = study.user_attrs[PROVENANCE], model.provenance
    if changed := ", ".join(name for name in now if before.get(name) != now[name]):
        raise WorkError(
            f"the model is not the one that the study {study.study_name!r} was begun with "
            f"({changed}), so trials cannot be compared. Begin another study: tuning.study=NAME"
        )
    return model


# --- A worker.


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """Trials that have a value: complete or pruned. Failed ones count for nothing."""
    return study.get_trials(deepcopy=False, states=FINISHED)


def work(study: optuna.Study, spec: StudySpec, run: Run, *, total: int, at_once: int) -> None:
    """Run trials, `at_once` in a batch, until the study has `total` finished ones, whoever runs
    them.

    A trial that fails counts for nothing; its options are not tried again. One whose worker dies is
    noticed and tried again, here if need be: a worker that finds nothing to take waits for the
    others. Raises UserError where a trial does (no other one would fare better), and WorkError
    where several in a row failed.
    """
    failures: list[str] = []
    reported, waiting = {trial.number for trial in finished(study)}, False
    while len(reported) < total:
        places = min(at_once, _places(study, spec.file, total))
        try:
            errors = run(places) if places else ()
        except Exception as error:  # say a killed process of a pool
            log.warning("trials were lost: %s", _one_line(error))
            errors = [error]
        for failure in errors:
            if isinstance(failure, UserError):
                raise failure
            failures = [*failures, _one_line(failure)] if failure else []
        if len(failures) >= PATIENCE:
            raise WorkError(
                f"{len(failures)} trials in a row failed, the last with: {failures[-1]}. What was "
                f"finished is kept in {spec.storage}, and the same command goes on from there"
            )
        if not places and not waiting:
            log.info("waiting for other workers' trials (where one dies, its trial is tried again)")
        time.sleep(0 if places else WAIT)
        waiting = not places
        for trial in finished(study):
            if trial.number not in reported:
                reported.add(trial.number)
                log.info("%d of %d: %s", len(reported), total, _standing(trial, study))


def _standing(trial: FrozenTrial, study: optuna.Study) -> str:
    """A trial, and the best value so far."""
    tried = " ".join(f"{short(name)}={value:.4g}" for name, value in options_tried(trial).items())
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    best = max((t.values[0] for t in complete), default=trial.values[0])
    what = f"trial {trial.number} {trial.state.name.lower()} at {trial.values[0]:.4f}"
    return f"{what} with {tried}; best {best:.4f}"


def _one_line(error: BaseException) -> str:
    """An error as one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _places(study: optuna.Study, file: Path, total: int) -> int:
    """How many trials may begin, so that the study has `total` with those that run. Those whose
    worker died are failed first, and their options queued."""
    with lock(file):
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            with suppress(Timeout), _life(file, trial.number):
                _give_up(study, trial.number)
        taken = study.get_trials(deepcopy=False, states=(*FINISHED, TrialState.RUNNING))
        return max(0, total - len(taken))


# --- A trial.


def run_trial(spec: StudySpec, prepare: Prepare, track: Track) -> float | None:
    """Run the next trial of a study and return its value; of a pruned trial, the median so far.
    None where the study has all its `tuning.trials`. Raises WorkError where a search gave no
    number."""
    study = load(spec)
    study.pruner = FallenBehind(searches=len(spec.tuning.prompts))
    with ExitStack() as until_done:
        with lock(spec.file):
            if spec.tuning.trials and not _places(study, spec.file, spec.tuning.trials):
                return None
            trial = _ask(study, spec)
            until_done.enter_context(_life(spec.file, trial.number))
        try:
            search = with_options(spec.search, options_tried(trial))
            with track(search, trial.number) as mirror:
                mirror.summary({"trial": trial.number, **options_tried(trial)})
                model = same_model(study, prepare(search, spec.tuning.prompts))
                value, state = _run_searches(trial, spec, model, mirror)
            study.tell(trial, value if state is TrialState.COMPLETE else None, state)
        except KeyboardInterrupt:
            _give_up(study, trial.number)
            raise
        except Exception as error:
            trial.set_user_attr(ERROR, _one_line(error))
            study.tell(trial, state=TrialState.FAIL)
            expected = isinstance(error, UserError | WorkError)
            log.warning(
                "trial %d failed: %s", trial.number, _one_line(error), exc_info=not expected
            )
            raise
    return value


@contextmanager
def _life(file: Path, number: int) -> Iterator[None]:
    """Held while a trial's worker lives, however that ends. filelock.Timeout where one does."""
    with FileLock(f"{file}.trial-{number}", blocking=False) as held:
        try:
            yield
        finally:
            Path(held.lock_file).unlink(missing_ok=True)


def _give_up(study: optuna.Study, number: int) -> None:
    """Fail a trial that ended with its worker, unless it is finished by now; queue its options."""
    trial = study.get_trials(deepcopy=False)[number]
    if trial.state is TrialState.RUNNING:
        study.tell(number, state=TrialState.FAIL)
        RetryHeartbeatStaleTrialCallback(max_retry=RETRIES)(study, trial)


def _ask(study: optuna.Study, spec: StudySpec) -> Trial:
    """The next trial with its options: the defaults before all others, so that the best can be
    compared with them; then one from the queue, or a new one. Where the defaults lie outside of the
    space, Optuna is not asked."""
    trials, space = study.get_trials(deepcopy=False), space_of(study)
    if not any(DEFAULTS in t.user_attrs and t.state is not TrialState.FAIL for t in trials):
        defaults = options_of(spec.search, list(space))
        study.enqueue_trial(defaults, user_attrs={DEFAULTS: defaults})
    queue = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
    number, attributes = (queue[0].number, queue[0].user_attrs) if queue else (len(trials), {})
    drawn = np.random.SeedSequence([spec.seed, number]).generate_state(1)
    study.sampler = TPESampler(seed=int(drawn[0]), multivariate=True, group=True)
    defaults = attributes.get(DEFAULTS, {})
    inside = {n: v for n, v in space.items() if n not in defaults or _contains(v, defaults[n])}
    return study.ask(dict[str, BaseDistribution](inside))


def _contains(values: Distribution, value: Any) -> bool:
    try:
        create_trial(value=0.0, params={"option": value}, distributions={"option": values})
    except ValueError:
        return False
    return True


def _run_searches(
    trial: Trial, spec: StudySpec, model: Searchable, mirror: Mirror
) -> tuple[float, TrialState]:
    """The median over the searches made, and whether they are all."""
    tuning = spec.tuning
    planned = planned_searches(tuning.prompts, seed=spec.seed, count=tuning.seeds, held_out=False)
    rows: list[tuple[str, int, float, float]] = []
    running = math.nan
    for step, (prompt, seed) in enumerate(planned):
        value, seconds = timed_search(model, prompt, seed, budget=tuning.evaluations)
        rows.append((prompt, seed, value, round(seconds, 4)))
        running = median(row[2] for row in rows)
        mirror.metrics(
            {"tuning/search": step, "tuning/value": value, "tuning/running_median": running}
        )
        trial.report(running, step)
        # The defaults are what all else is compared with: they run to the end.
        if step + 1 < len(planned) and DEFAULTS not in trial.user_attrs and trial.should_prune():
            break
    trial.set_user_attr(SEARCHES, rows)
    # `value` is a complete trial's only, so that it means one thing: the median over all searches.
    state = TrialState.COMPLETE if len(rows) == len(planned) else TrialState.PRUNED
    name = "value" if state is TrialState.COMPLETE else "pruned_at"
    mirror.summary({name: running, "state": state.name.lower(), "searches": len(rows)})
    return running, state


def timed_search(model: Searchable, prompt: str, seed: int, *, budget: int) -> tuple[float, float]:
    """A search's value and its seconds; WorkError where the value is no number."""
    begun = time.perf_counter()
    value = float(model.search(prompt, seed=seed, budget=budget))
    if not math.isfinite(value):
        raise WorkError(
            f"the search on {prompt} from seed {seed} ended with {value}, which is no reward"
        )
    return value, time.perf_counter() - begun


def planned_searches(
    prompts: Sequence[str], *, seed: int, count: int, held_out: bool
) -> list[tuple[str, int]]:
    """Every prompt from the first of `count` random starts, then every prompt from the second …:
    any beginning has seen all prompts alike. Seeds of starts are even in trials and odd on held-out
    prompts, so that none is in both."""
    drawn = np.random.SeedSequence([seed, held_out]).generate_state(count)
    return [(prompt, 2 * int(number) + held_out) for number in drawn for prompt in prompts]
