"""One trial: a search from every seed on every prompt, ended early where it has fallen behind; its value is the median.

The job reports to the study itself: whatever started it (this process, a pool, a cluster) need not come back with the result.
Sees a trial context, never a model.
"""

import logging
import math
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Protocol

import numpy as np
import optuna
from optuna.exceptions import UpdateFinishedTrialError
from optuna.trial import Trial, TrialState

from pessimal.config.schema import SearchConfig
from pessimal.errors import WorkError
from pessimal.tracking.mirror import Mirror
from pessimal.tuning.space import Options, options_of
from pessimal.tuning.study import DEFAULTS, load, options_tried

log = logging.getLogger(__name__)

SEARCHES, PROVENANCE = "searches", "identity"


class TrialContext(Protocol):
    """One model, ready to be searched on some prompts with some options."""

    provenance: dict[str, str]
    """Digests of the model: values of another are not to be compared with these."""

    def search(self, prompt: str, *, seed: int, budget: int) -> float:
        """The best value that the search reaches on the prompt of this key, from this seed, within `budget` candidate
        evaluations. More is better; in units that prompts share."""


Prepare = Callable[[SearchConfig, list[str]], TrialContext]
"""Makes the context for the options of a configuration and prompts by their keys."""


def starts(seed: int, count: int, *, held_out: bool) -> list[int]:
    """Seeds of the random starts: even in trials and odd on held-out prompts, so that none is in both."""
    drawn = np.random.SeedSequence([seed, held_out]).generate_state(count)
    return [2 * int(number) + held_out for number in drawn]


def searches(prompts: Sequence[str], seeds: Sequence[int]) -> list[tuple[str, int]]:
    """Every prompt from the first seed, then every prompt from the second …: any beginning has seen all prompts alike."""
    return [(prompt, seed) for seed in seeds for prompt in prompts]


def run_trial(config: SearchConfig, prepare: Prepare, *, mirror: Mirror | None = None) -> float:
    """Run the trial that `config.tuning` names, report to its study, and return its value; of a pruned trial, the median so far.

    Raises:
        WorkError: the trial is not there to be run, another worker has given it up, or a search gave no number.
    """
    tuning, mirror = config.tuning, mirror or Mirror()
    study, storage = load(config)
    trial = _trial(study, tuning.trial)
    with storage.stale_trials(study).working(trial):
        options = _checked(study, trial, config)
        mirror.summary({"trial": trial.number, **options})
        context = same_model(study, prepare(config, tuning.prompts))
        try:
            value, state, count = _run(trial, context, config, mirror)
            study.tell(trial, value if state is TrialState.COMPLETE else None, state=state)
        except UpdateFinishedTrialError as error:
            raise WorkError(
                f"trial {trial.number} was given up by another worker, which saw no sign of life; its options are tried "
                "again there, and this result does not count"
            ) from error
    mirror.summary({"value": value, "state": state.name.lower(), "searches": count})
    return value


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
        mirror.metrics({"search": step, "value": value, "running_median": running})
        trial.report(running, step)
        # The defaults are what all else is compared with: they run to the end.
        if step + 1 < len(todo) and DEFAULTS not in trial.user_attrs and trial.should_prune():
            break
    trial.set_user_attr(SEARCHES, rows)
    state = TrialState.COMPLETE if len(rows) == len(todo) else TrialState.PRUNED
    log.info("trial %d: %s with %.4f after %d searches", trial.number, state.name.lower(), running, len(rows))
    return running, state, len(rows)


def timed_search(context: TrialContext, prompt: str, *, seed: int, budget: int) -> tuple[float, float]:
    """A search's value and its seconds; WorkError where the value is no number."""
    begun = time.perf_counter()
    value = float(context.search(prompt, seed=seed, budget=budget))
    if not math.isfinite(value):
        raise WorkError(f"the search on {prompt} from seed {seed} ended with {value}, which is no reward")
    return value, time.perf_counter() - begun


def _trial(study: optuna.Study, number: int) -> Trial:
    trials = study.get_trials(deepcopy=False)
    if number >= len(trials) or trials[number].state is not TrialState.RUNNING:
        state = trials[number].state.name.lower() if number < len(trials) else "not there"
        raise WorkError(
            f"tuning.trial={number} of {study.study_name!r} is {state}; trials are handed out by the sweep: pessimal search "
            "-m hparams_search=gcg"
        )
    return Trial(study, trials[number]._trial_id)


def _checked(study: optuna.Study, trial: Trial, config: SearchConfig) -> Options:
    """The trial's options; WorkError where the job was given others, whose value would be booked under these."""
    options = options_tried(trial)
    given = options_of(config, list(options))
    if given != options:
        raise WorkError(
            f"trial {trial.number} of {study.study_name!r} has the options {options}, this job has {given}"
        )
    return options


def same_model(study: optuna.Study, context: TrialContext) -> TrialContext:
    """The context; WorkError where its model is another than in the trials before: a folder of one name with other weights."""
    if PROVENANCE not in study.user_attrs:
        study.set_user_attr(PROVENANCE, context.provenance)
    before = study.user_attrs[PROVENANCE]
    if before != context.provenance:
        changed = ", ".join(
            name for name in context.provenance if before.get(name) != context.provenance[name]
        )
        raise WorkError(
            f"the model is not the one that the study {study.study_name!r} was begun with ({changed}), so trials cannot be "
            "compared. Begin another study: tuning.study=NAME"
        )
    return context
