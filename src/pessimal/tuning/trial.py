"""One trial: a search from every seed on every prompt, ended early where it has fallen behind; its
value is the median.

The job reports to the study itself: whatever started it (this process, a pool, a cluster) need not
come back with the result. Sees a trial context, never a model.
"""

import math
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Protocol

import numpy as np
import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, Trial, TrialState

from pessimal.config.schema import SearchConfig
from pessimal.errors import WorkError
from pessimal.tracking.mirror import Mirror
from pessimal.tuning.space import options_of
from pessimal.tuning.study import DEFAULTS, load, options_tried, working

SEARCHES, PROVENANCE = "searches", "provenance"


class TrialContext(Protocol):
    """One model, ready to be searched on some prompts with some options."""

    provenance: dict[
        str, str
    ]  # digests of the model: values of another are not to be compared with these

    def search(self, prompt: str, *, seed: int, budget: int) -> float:
        """The best value that the search reaches on the prompt of this key, from this seed, within
        `budget` candidate evaluations. More is better; in units that prompts share."""


Prepare = Callable[[SearchConfig, list[str]], TrialContext]
"""Makes the context for the options of a configuration and prompts by their keys."""


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


def starts(seed: int, count: int, *, held_out: bool) -> list[int]:
    """Seeds of the random starts: even in trials and odd on held-out prompts, so that none is in
    both."""
    drawn = np.random.SeedSequence([seed, held_out]).generate_state(count)
    return [2 * int(number) + held_out for number in drawn]


def searches(prompts: Sequence[str], seeds: Sequence[int]) -> list[tuple[str, int]]:
    """Every prompt from the first seed, then every prompt from the second …: any beginning has seen
    all prompts alike."""
    return [(prompt, seed) for seed in seeds for prompt in prompts]


def run_trial(config: SearchConfig, prepare: Prepare, *, mirror: Mirror | None = None) -> float:
    """Run the trial that `config.tuning` names, report to its study, and return its value; of a
    pruned trial, the median so far. Raises WorkError where it is not there to be run, another
    worker has given it up, or a search gave no number."""
    tuning, mirror = config.tuning, mirror or Mirror()
    study = load(config)
    study.pruner = FallenBehind(searches=len(tuning.prompts))
    trial = _trial(study, config)
    with working(trial):
        mirror.summary({"trial": trial.number, **options_tried(trial)})
        context = same_model(study, prepare(config, tuning.prompts))
        try:
            value, state, count = _run(trial, context, config, mirror)
            study.tell(trial, value if state is TrialState.COMPLETE else None, state=state)
        except UpdateFinishedTrialError as error:
            raise WorkError(
                f"trial {trial.number} was given up by another worker, which saw no sign of life; "
                f"its options are tried "
                "again there, and this result does not count"
            ) from error
    # `value` is a complete trial's only, so that it means one thing: the median over all searches.
    name = "value" if state is TrialState.COMPLETE else "pruned_at"
    mirror.summary({name: value, "state": state.name.lower(), "searches": count})
    return value


def timed_search(
    context: TrialContext, prompt: str, *, seed: int, budget: int
) -> tuple[float, float]:
    """A search's value and its seconds; WorkError where the value is no number."""
    begun = time.perf_counter()
    value = float(context.search(prompt, seed=seed, budget=budget))
    if not math.isfinite(value):
        raise WorkError(
            f"the search on {prompt} from seed {seed} ended with {value}, which is no reward"
        )
    return value, time.perf_counter() - begun


def same_model(study: optuna.Study, context: TrialContext) -> TrialContext:
    """The context; WorkError where its model is another than in the trials before: a folder of one
    name with other weights."""
    if PROVENANCE not in study.user_attrs:
        study.set_user_attr(PROVENANCE, context.provenance)
    before, now = study.user_attrs[PROVENANCE], context.provenance
    if changed := ", ".join(name for name in now if before.get(name) != now[name]):
        raise WorkError(
            f"the model is not the one that the study {study.study_name!r} was begun with "
            f"({changed}), so trials cannot be "
            "compared. Begin another study: tuning.study=NAME"
        )
    return context


def _run(
    trial: Trial, context: TrialContext, config: SearchConfig, mirror: Mirror
) -> tuple[float, TrialState, int]:
    """The median over the searches made, whether they are all, and how many they are."""
    tuning = config.tuning
    todo = searches(tuning.prompts, starts(config.seed, tuning.seeds, held_out=False))
    rows, running = [], math.nan
    for step, (prompt, seed) in enumerate(todo):
        value, seconds = timed_search(context, prompt, seed=seed, budget=tuning.evaluations)
        rows.append([prompt, seed, value, round(seconds, 4)])
        running = median(row[2] for row in rows)
        mirror.metrics(
            {"tuning/search": step, "tuning/value": value, "tuning/running_median": running}
        )
        trial.report(running, step)
        # The defaults are what all else is compared with: they run to the end.
        if step + 1 < len(todo) and DEFAULTS not in trial.user_attrs and trial.should_prune():
            break
    trial.set_user_attr(SEARCHES, rows)
    state = TrialState.COMPLETE if len(rows) == len(todo) else TrialState.PRUNED
    return running, state, len(rows)


def _trial(study: optuna.Study, config: SearchConfig) -> Trial:
    """The trial that a job is; WorkError where it does not run, or has other options than the job,
    whose value would be booked under these."""
    number, trials = config.tuning.trial, study.get_trials(deepcopy=False)
    state = trials[number].state if number < len(trials) else None
    if state is not TrialState.RUNNING:
        how = state.name.lower() if state else "not there"
        raise WorkError(
            f"tuning.trial={number} of {study.study_name!r} is {how}; the sweep hands them out: "
            f"pessimal search "
            "-m hparams_search=gcg"
        )
    trial = Trial(study, trials[number]._trial_id)
    options = options_tried(trial)
    if (given := options_of(config, list(options))) != options:
        raise WorkError(
            f"trial {number} of {study.study_name!r} has the options {options}, this job has "
            f"{given}"
        )
    return trial
