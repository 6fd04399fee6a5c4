"""A trial is a median over prompts and starts; it reports to the study itself, and ends early where
it has fallen behind."""

from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial
from toy_study import Context, by_momentum, job, preparing, run

from pessimal.errors import WorkError
from pessimal.tracking.mirror import Mirror
from pessimal.tuning.study import Trials
from pessimal.tuning.trial import SEARCHES, FallenBehind, run_trial, starts


class Recorded(Mirror):
    """A mirror that remembers; what was logged last stands in the summary, as at W&B."""

    def __init__(self):
        self.finals, self.steps = {}, []

    def summary(self, values):
        self.finals |= values

    def metrics(self, values):
        self.steps.append(values)
        self.finals |= values


def test_the_value_is_the_median_over_all_searches_and_the_study_knows_it(config, space):
    trials, contexts, recorded = Trials(config, space), [], Recorded()
    value = run(config, trials, prepare=preparing(contexts=contexts), mirror=recorded)
    [done] = trials.all()
    calls = [
        (prompt, seed, 100) for seed in starts(0, 2, held_out=False) for prompt in ("dawn", "dusk")
    ]
    assert contexts[0].calls == calls, "each at the same budget"
    values = [by_momentum(prompt, seed, config.search) for prompt, seed, _ in calls]
    assert value == done.value == median(values)
    assert [row[:3] for row in done.user_attrs[SEARCHES]] == [
        [prompt, seed, value] for (prompt, seed, _), value in zip(calls, values, strict=True)
    ]
    assert done.intermediate_values == pytest.approx({n: median(values[: n + 1]) for n in range(4)})
    assert [step["tuning/value"] for step in recorded.steps] == values
    assert (recorded.finals["value"], recorded.finals["search.momentum"]) == (value, 0.9)


def test_a_trial_that_falls_behind_is_pruned_and_what_is_not_complete_has_no_value(config, space):
    config = replace(config, tuning=replace(config.tuning, seeds=4))
    trials, contexts = Trials(config, space), []
    for _ in range(7):
        run(config, trials, prepare=preparing(contexts=contexts))
    pruned = Recorded()
    worse = preparing(lambda *what: by_momentum(*what) - 5, contexts)
    value = run(config, trials, prepare=worse, mirror=pruned)
    last = trials.all()[-1]
    assert last.state is TrialState.PRUNED
    assert len(contexts[-1].calls) == 2, "each prompt once"
    assert value == last.value == median(row[2] for row in last.user_attrs[SEARCHES])
    assert trials.finished() == 8
    assert pruned.finals["pruned_at"] == value
    assert "value" not in pruned.finals, "a complete trial's median has that name to itself"


def test_the_defaults_are_never_pruned_however_late_and_bad(config, space):
    trials = Trials(config, space)
    for _ in range(6):  # as if the defaults had failed before
        trials.study.add_trial(
            create_trial(
                value=99.0,
                params={"search.momentum": 0.1, "search.search_width": 64},
                distributions=space.distributions,
                intermediate_values=dict.fromkeys(range(4), 99.0),
            )
        )
    run(config, trials)
    assert trials.all()[-1].state is TrialState.COMPLETE
    assert len(trials.all()[-1].user_attrs[SEARCHES]) == 4


def test_falling_behind_is_at_the_same_search_not_at_the_best_so_far(config, space):
    """All begin on an easy prompt. Optuna's own median pruner sees only that, and prunes nothing,
    ever."""
    study = Trials(config, space).study

    def add(state, *medians):
        study.add_trial(
            create_trial(
                state=state,
                value=0.0 if state is TrialState.COMPLETE else None,
                params={"search.momentum": 0.5},
                distributions={"search.momentum": FloatDistribution(0, 1)},
                intermediate_values=dict(enumerate(medians)),
            )
        )
        return study.get_trials()[-1]

    pruner = FallenBehind(searches=2, trials=3)
    for height in (1.0, 2.0, 3.0):
        add(TrialState.COMPLETE, 10.0, height, height)
    add(TrialState.FAIL, 10.0, 50.0)
    for _ in range(9):
        add(TrialState.PRUNED, 10.0)
    assert not pruner.prune(study, add(TrialState.RUNNING, -99.0)), (
        "one prompt alone decides nothing"
    )
    assert pruner.prune(study, add(TrialState.RUNNING, 10.0, 1.5))
    assert not pruner.prune(study, add(TrialState.RUNNING, 10.0, 2.5))
    last = add(TrialState.RUNNING, 10.0, 2.5, 1.5)
    assert pruner.prune(study, last)
    assert not FallenBehind(searches=2, trials=30).prune(study, last), "too few to compare with"


def test_a_search_that_finds_no_number_fails_the_trial(config, space):
    nan = preparing(lambda prompt, *_: 1.0 if prompt == "dawn" else np.nan)
    with pytest.raises(WorkError, match=r"on dusk from seed .* ended with nan"):
        run(config, Trials(config, space), prepare=nan)


def test_a_trial_given_up_meanwhile_is_not_counted(config, space):
    """A laptop that slept: another worker saw no sign of life."""
    trials, calls = Trials(config, space), []

    def value(*what):
        calls.append(what)
        if len(calls) == 2:
            trials.study.tell(0, state=TrialState.FAIL)
        return 1.0

    with pytest.raises(WorkError, match="this result does not count"):
        run(config, trials, prepare=preparing(value))
    assert trials.all()[0].state is TrialState.FAIL
    assert len(calls) == 2


def test_only_a_trial_that_runs_with_its_own_options_and_the_studys_model_can_be_run(
    config, space, monkeypatch
):
    trials = Trials(config, space)
    with trials.taken(2, total=2) as [first, second]:
        mine, other = job(config, first), job(config, second)
        with pytest.raises(WorkError, match="this job has"):
            run_trial(replace(mine, search=replace(mine.search, momentum=0.5)), preparing())
        run_trial(mine, preparing())
        monkeypatch.setattr(Context, "provenance", {"weights_digest": "b"})
        with pytest.raises(WorkError, match=r"begun with \(weights_digest\)"):
            run_trial(other, preparing())
    with pytest.raises(WorkError, match=r"tuning\.trial=0 of 'toy' is complete"):
        run_trial(mine, preparing())
    with pytest.raises(WorkError, match=r"tuning\.trial=7 of 'toy' is not there"):
        run_trial(replace(mine, tuning=replace(mine.tuning, trial=7)), preparing())
