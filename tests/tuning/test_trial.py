"""A trial is a median over prompts and starts; it reports to the study itself, and ends early where it has fallen behind."""

from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial

from pessimal.errors import WorkError
from pessimal.tracking.mirror import Mirror
from pessimal.tuning.pruning import FallenBehind
from pessimal.tuning.study import Trials
from pessimal.tuning.trial import SEARCHES, run_trial, searches, starts


class Context:
    """Values are a function of prompt and options; every call is noted."""

    provenance = {"weights_digest": "a"}  # noqa: RUF012

    def __init__(self, config, value):
        self.config, self.value, self.calls = config, value, []

    def search(self, prompt, *, seed, budget):
        self.calls.append((prompt, seed, budget))
        return self.value(prompt, seed, self.config.search)


def by_momentum(prompt, seed, search):
    return {"dawn": 10, "dusk": 0}.get(prompt, 5) - search.momentum + (seed % 100) / 1e5


def preparing(value=by_momentum, contexts=None):
    def prepare(config, prompts):
        context = Context(config, value)
        if contexts is not None:
            contexts.append(context)
        return context

    return prepare


class Recorded(Mirror):
    """A mirror that remembers."""

    def __init__(self):
        self.finals, self.steps = {}, []

    def summary(self, values):
        self.finals |= values

    def metrics(self, values):
        self.steps.append(values)


def test_seeds_of_trials_and_of_held_out_prompts_never_meet():
    for seed in range(50):
        tuning, held_out = starts(seed, 20, held_out=False), starts(seed, 20, held_out=True)
        assert len({*tuning, *held_out}) == 40
    assert not {s for seed in range(50) for s in starts(seed, 20, held_out=False)} & {
        s for seed in range(50) for s in starts(seed, 20, held_out=True)
    }
    assert {s % 2 for s in starts(3, 9, held_out=False)} == {0}
    assert {s % 2 for s in starts(3, 9, held_out=True)} == {1}
    assert starts(3, 5, held_out=False) == starts(3, 8, held_out=False)[:5]


def test_every_beginning_of_a_trial_sees_the_prompts_alike():
    order = searches(["a", "b", "c"], [1, 2])
    assert order == [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("b", 2), ("c", 2)]


def test_the_value_is_the_median_over_all_searches_and_the_study_knows_it(config, space, storage, job):
    config = replace(config, tuning=replace(config.tuning, storage=storage))
    trials, contexts, recorded = Trials(config, space), [], Recorded()
    with trials.taken(1, total=1) as [trial]:
        value = run_trial(job(config, trial), preparing(contexts=contexts), mirror=recorded)
    [done] = trials.all()
    seeds = starts(0, 2, held_out=False)
    calls = [(prompt, seed, 100) for seed in seeds for prompt in ("dawn", "dusk")]
    assert contexts[0].calls == calls, "each at the same budget"
    values = [by_momentum(prompt, seed, config.search) for prompt, seed, _ in calls]
    assert value == done.value == median(values)
    assert [row[:3] for row in done.user_attrs[SEARCHES]] == [
        [prompt, seed, value] for (prompt, seed, _), value in zip(calls, values, strict=True)
    ]
    assert done.intermediate_values == pytest.approx({n: median(values[: n + 1]) for n in range(4)})
    assert [step["value"] for step in recorded.steps] == values
    assert recorded.finals["value"] == value
    assert recorded.finals["search.momentum"] == 0.9


def test_a_trial_that_falls_behind_is_pruned(config, space, job):
    config = replace(config, tuning=replace(config.tuning, seeds=4))
    trials, contexts = Trials(config, space), []

    def worst_first(prompt, seed, search):
        return by_momentum(prompt, seed, search) - 5 * (search.momentum == tried)

    tried = None
    for _ in range(7):
        with trials.taken(1, total=8) as [trial]:
            run_trial(job(config, trial), preparing(worst_first, contexts))
    with trials.taken(1, total=8) as [trial]:
        tried = trial.params["search.momentum"]
        value = run_trial(job(config, trial), preparing(worst_first, contexts))
    last = trials.all()[-1]
    assert last.state is TrialState.PRUNED
    assert len(contexts[-1].calls) == 2, "each prompt once"
    assert value == last.value == median(row[2] for row in last.user_attrs[SEARCHES])
    assert trials.finished() == 8


def test_the_defaults_are_never_pruned_however_late_and_bad(config, space, job):
    trials, contexts = Trials(config, space), []
    for _ in range(6):  # as if the defaults had failed before
        trials.study.add_trial(
            create_trial(
                value=99.0, params={"search.momentum": 0.1, "search.search_width": 64},
                distributions=space.distributions, intermediate_values=dict.fromkeys(range(4), 99.0),
            )
        )  # fmt: skip
    with trials.taken(1, total=7) as [trial]:
        run_trial(job(config, trial), preparing(contexts=contexts))
    assert trials.all()[-1].state is TrialState.COMPLETE
    assert len(contexts[0].calls) == 4


def test_falling_behind_is_at_the_same_search_not_at_the_best_so_far(config, space):
    """All begin on an easy prompt. Optuna's own median pruner sees only that, and prunes nothing, ever."""
    study = Trials(config, space).study
    distributions = {"search.momentum": FloatDistribution(0, 1)}

    def add(state, **at):
        study.add_trial(
            create_trial(
                state=state, value=0.0 if state is TrialState.COMPLETE else None,
                params={"search.momentum": 0.5}, distributions=distributions,
                intermediate_values={int(step[1:]): value for step, value in at.items()},
            )
        )  # fmt: skip
        return study.get_trials()[-1]

    pruner = FallenBehind(searches=2, trials=3)
    for height in (1.0, 2.0, 3.0):
        add(TrialState.COMPLETE, _0=10.0, _1=height, _2=height)
    add(TrialState.FAIL, _0=10.0, _1=50.0)
    for _ in range(9):
        add(TrialState.PRUNED, _0=10.0)
    assert not pruner.prune(study, add(TrialState.RUNNING, _0=-99.0)), "one prompt alone decides nothing"
    assert pruner.prune(study, add(TrialState.RUNNING, _0=10.0, _1=1.5))
    assert not pruner.prune(study, add(TrialState.RUNNING, _0=10.0, _1=2.5))
    assert pruner.prune(study, add(TrialState.RUNNING, _0=10.0, _1=2.5, _2=1.5))
    assert not FallenBehind(searches=2, trials=30).prune(study, study.get_trials()[-1]), (
        "too few to compare with"
    )


def test_a_search_that_finds_no_number_fails_the_trial(config, space, job):
    trials = Trials(config, space)
    with (
        trials.taken(1, total=1) as [trial],
        pytest.raises(WorkError, match=r"on dusk from seed .* ended with nan"),
    ):
        run_trial(job(config, trial), preparing(lambda prompt, *_: 1.0 if prompt == "dawn" else np.nan))


def test_a_job_with_other_options_than_its_trials_is_not_booked(config, space, job):
    trials = Trials(config, space)
    with trials.taken(1, total=1) as [trial]:
        wrong = job(config, trial)
        wrong = replace(wrong, search=replace(wrong.search, momentum=0.5))
        with pytest.raises(WorkError, match="this job has"):
            run_trial(wrong, preparing())
    assert trials.finished() == 0


def test_another_model_under_the_same_name_is_noticed(config, space, job):
    trials = Trials(config, space)
    with trials.taken(1, total=2) as [trial]:
        run_trial(job(config, trial), preparing())

    def other(config, prompts):
        context = Context(config, by_momentum)
        context.provenance = {"weights_digest": "b"}
        return context

    with (
        trials.taken(1, total=2) as [trial],
        pytest.raises(WorkError, match=r"begun with \(weights_digest\)"),
    ):
        run_trial(job(config, trial), other)


def test_only_a_trial_that_runs_can_be_run(config, space, job):
    trials = Trials(config, space)
    with trials.taken(1, total=1) as [trial]:
        mine = job(config, trial)
        run_trial(mine, preparing())
    with pytest.raises(WorkError, match=r"tuning\.trial=0 of 'toy' is complete"):
        run_trial(mine, preparing())
    with pytest.raises(WorkError, match=r"tuning\.trial=7 of 'toy' is not there"):
        run_trial(replace(mine, tuning=replace(mine.tuning, trial=7)), preparing())


def test_a_trial_given_up_meanwhile_is_not_counted(config, space, storage, job):
    """A laptop that slept: another worker saw no sign of life."""
    config = replace(config, tuning=replace(config.tuning, storage=storage))
    trials, calls = Trials(config, space), []

    def value(prompt, seed, search):
        calls.append(prompt)
        if len(calls) == 2:
            trials.study.tell(trial.number, state=TrialState.FAIL)
        return 1.0

    with trials.taken(1, total=1) as [trial], pytest.raises(WorkError, match="this result does not count"):
        run_trial(job(config, trial), preparing(value))
    assert trials.all()[0].state is TrialState.FAIL
    assert len(calls) == 2
