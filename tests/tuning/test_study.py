"""Trials are counted, run once, and kept from being mixed with what they cannot be compared with; a
trial is a median over prompts and starts, ended early where it has fallen behind."""

from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from optuna.distributions import FloatDistribution
from optuna.storages import RetryHeartbeatStaleTrialCallback
from optuna.trial import TrialState, create_trial
from toy_study import Model, by_momentum, parsed, preparing, run, with_tuning

from pessimal.errors import ConfigError, InputError, WorkError
from pessimal.searching.spec import Goal
from pessimal.tracking.mirror import Mirror
from pessimal.tuning.study import (
    DEFAULTS,
    SEARCHES,
    FallenBehind,
    begin,
    check_prompts,
    database,
    finished,
    load,
    options_tried,
    planned_searches,
    work,
)


def worked(spec, space, *, total, at_once=1, prepare=None):
    """A study that one worker, whose jobs run one after the other, has brought to `total`."""
    study, job = begin(spec, space), with_tuning(spec, trials=total)

    def launch(count):
        errors = []
        for _ in range(count):
            try:
                errors.append(run(job, prepare) and None)
            except Exception as error:
                errors.append(error)
        return errors

    work(study, spec, launch, total=total, at_once=at_once)
    return study


# --- A study.


def test_the_total_is_a_total_and_the_first_trial_is_the_defaults_even_where_the_space_leaves_them_out(
    spec,
):
    space = parsed("search.top_k=choice(64,128)", "search.momentum=interval(0,0.95)")
    assert len(worked(spec, space, total=3, at_once=2).trials) == 3
    trials = worked(spec, space, total=4, at_once=3).trials
    first, *others = trials
    assert options_tried(first) == {"search.top_k": 256, "search.momentum": 0.9}
    assert all(options_tried(trial)["search.top_k"] in (64, 128) for trial in others)
    assert [DEFAULTS in trial.user_attrs for trial in trials] == [True, False, False, False]


def test_no_trial_is_begun_beyond_the_total_with_those_that_run(spec, space):
    """Three jobs of another worker begin while this one's trial runs; one of them finds it full."""
    study, two = begin(spec, space), with_tuning(spec, trials=3)
    inside = []

    def value(*what):
        if len(inside) < 3:
            inside.append(None)
            inside[len(inside) - 1] = run(two)
        return by_momentum(*what)

    run(two, preparing(value))
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3
    assert sorted(result is None for result in inside) == [False, False, True]


@pytest.mark.slow
def test_the_same_seed_and_past_give_the_same_options_whoever_asks(spec, space, tmp_path):
    def tried(name, splits, seed=0):
        for total in splits:
            study = worked(replace(spec, file=tmp_path / name, seed=seed), space, total=total)
        return [options_tried(trial) for trial in study.trials]

    whole = tried("a.db", [14])
    assert tried("b.db", [5, 14]) == whole
    assert tried("c.db", [14], seed=1)[1:] != whole[1:]
    assert len({tuple(options.values()) for options in whole}) == 14


FELL = RuntimeError("it fell over")


def failing(*trials, error=FELL):
    """A model that cannot be opened for the trials of these numbers."""
    opened = []

    def prepare(search, prompts):
        opened.append(None)
        if len(opened) - 1 in trials:
            raise error
        return Model(search, by_momentum)

    return prepare


def test_a_failed_trial_counts_for_nothing_and_is_not_tried_again(spec, space):
    trials = worked(spec, space, total=4, prepare=failing(2)).trials
    states = [trial.state for trial in trials]
    assert states == [TrialState.COMPLETE] * 2 + [TrialState.FAIL] + [TrialState.COMPLETE] * 2
    assert trials[2].user_attrs["error"] == "RuntimeError: it fell over"
    assert trials[3].params != trials[2].params


def test_when_everything_fails_it_ends_and_says_with_what(spec, space):
    with pytest.raises(WorkError, match=r"3 trials in a row failed, the last with: .*fell over"):
        worked(spec, space, total=30, prepare=failing(0, 1, 2))
    assert [trial.state for trial in load(spec).trials] == [TrialState.FAIL] * 3
    # The defaults failed each time they were tried first, and are tried first again.
    trials = worked(spec, space, total=2).trials
    assert len(trials) == 5
    assert trials[3].user_attrs[DEFAULTS]


def test_a_mistake_of_the_user_ends_the_study_at_once(spec, space):
    with pytest.raises(ConfigError, match="no such model"):
        worked(spec, space, total=30, prepare=failing(1, error=ConfigError("no such model")))
    assert len(load(spec).trials) == 2


def test_what_is_stopped_is_tried_again(spec, space):
    with pytest.raises(KeyboardInterrupt):
        worked(spec, space, total=3, prepare=failing(1, error=KeyboardInterrupt()))
    states = [trial.state.name for trial in worked(spec, space, total=3).trials]
    assert states == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    trials = load(spec).trials
    assert trials[2].params == trials[1].params
    assert RetryHeartbeatStaleTrialCallback.retried_trial_number(trials[2]) == 1


def test_a_trial_whose_worker_died_while_its_options_were_drawn_is_not_waited_for(spec, space):
    begin(spec, space).ask()  # without a worker
    states = [trial.state.name for trial in worked(spec, space, total=2).trials]
    assert states == ["FAIL", "COMPLETE", "COMPLETE"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: replace(s, search=replace(s.search, goal=Goal.pessimal)),
            "search.goal was 'optimal' and is now 'pessimal'",
        ),
        (lambda s: with_tuning(s, seeds=3), "tuning.seeds was 2 and is now 3"),
        (lambda s: replace(s, prompts={**s.prompts, "dawn": "Why?"}), "tuning.prompts.dawn was"),
        (
            lambda s: replace(s, model={"recipe": {"seed": 1}}),
            "model.recipe.seed was 0 and is now 1",
        ),
        (
            lambda s: replace(s, search=replace(s.search, top_k=9)),
            "search.top_k was 256 and is now 9",
        ),
    ],
)
def test_a_study_of_something_else_is_not_gone_on_with(spec, space, change, message):
    begun = begin(spec, space)
    with pytest.raises(ConfigError) as refused:
        begin(change(spec), space)
    assert message in str(refused.value)
    assert "tuning.study=toy-2" in str(refused.value)
    # What changes no value may change.
    other = with_tuning(spec, held_out=["noon"], held_out_seeds=9)
    assert begin(other, space).user_attrs == begun.user_attrs


def test_the_same_words_under_two_keys_are_not_held_out(spec):
    copied = replace(spec, prompts={**spec.prompts, "noon": spec.prompts["dawn"] + " "})
    with pytest.raises(
        ConfigError, match=r"tuning\.held_out=noon is worded exactly as tuning\.prompts=dawn"
    ):
        check_prompts(copied)
    with pytest.raises(ConfigError, match=r"tuning\.prompts is empty"):
        check_prompts(with_tuning(spec, prompts=[]))
    check_prompts(spec)


def test_a_storage_is_a_file_and_holds_studies(spec, space, tmp_path):
    for given in ("postgresql://host/base", "sqlite:///", ""):
        with pytest.raises(ConfigError, match=r"tuning\.storage"):
            database(given)
    assert database("sqlite:////a/b.db") == Path("/a/b.db")
    (tmp_path / "bad.db").write_text("this is\nno study\n" * 100)
    with pytest.raises(InputError, match=r"cannot be read as a study's"):
        begin(replace(spec, file=tmp_path / "bad.db"), space)


def test_a_job_finds_its_study_or_says_which_there_are(spec, space):
    with pytest.raises(InputError, match=r"there is no study 'toy' .* there are: none"):
        load(spec)
    assert not spec.file.exists()
    begin(spec, space)
    assert load(spec).study_name == "toy"
    with pytest.raises(InputError, match=r"there is no study 'other' .* there are: toy"):
        load(replace(spec, name="other"))


# --- A trial.


class Recorded(Mirror):
    """A mirror that remembers; what was logged last stands in the summary, as at W&B."""

    def __init__(self):
        self.finals, self.steps = {}, []

    def summary(self, values):
        self.finals |= values

    def metrics(self, values):
        self.steps.append(values)
        self.finals |= values


def test_the_value_is_the_median_over_all_searches_and_the_study_knows_it(spec, space):
    study, models, recorded = begin(spec, space), [], Recorded()
    value = run(spec, preparing(models=models), recorded)
    [done] = study.trials
    calls = [
        (prompt, seed, 100)
        for prompt, seed in planned_searches(["dawn", "dusk"], seed=0, count=2, held_out=False)
    ]
    assert models[0].calls == calls, "each at the same budget"
    values = [by_momentum(prompt, seed, spec.search) for prompt, seed, _ in calls]
    assert value == done.value == median(values)
    assert [row[:3] for row in done.user_attrs[SEARCHES]] == [
        [prompt, seed, value] for (prompt, seed, _), value in zip(calls, values, strict=True)
    ]
    assert done.intermediate_values == pytest.approx({n: median(values[: n + 1]) for n in range(4)})
    assert [step["tuning/value"] for step in recorded.steps] == values
    assert (recorded.finals["value"], recorded.finals["search.momentum"]) == (value, 0.9)


def test_a_trial_that_falls_behind_is_pruned_and_what_is_not_complete_has_no_value(spec, space):
    spec, models = with_tuning(spec, seeds=4), []
    study = begin(spec, space)
    for _ in range(7):
        run(spec)
    pruned = Recorded()
    worse = preparing(lambda *what: by_momentum(*what) - 5, models)
    value = run(spec, worse, pruned)
    last = study.trials[-1]
    assert last.state is TrialState.PRUNED
    assert len(models[-1].calls) == 2, "each prompt once"
    assert value == last.value == median(row[2] for row in last.user_attrs[SEARCHES])
    assert len(finished(study)) == 8
    assert pruned.finals["pruned_at"] == value
    assert "value" not in pruned.finals, "a complete trial's median has that name to itself"


def test_the_defaults_are_never_pruned_however_late_and_bad(spec, space):
    study = begin(spec, space)
    for _ in range(6):  # as if the defaults had failed before
        study.add_trial(
            create_trial(
                value=99.0,
                params={"search.momentum": 0.1, "search.search_width": 64},
                distributions=space,
                intermediate_values=dict.fromkeys(range(4), 99.0),
            )
        )
    run(spec)
    assert study.trials[-1].state is TrialState.COMPLETE
    assert len(study.trials[-1].user_attrs[SEARCHES]) == 4


def test_falling_behind_is_at_the_same_search_not_at_the_best_so_far(spec, space):
    """All begin on an easy prompt. Optuna's own median pruner sees only that, and prunes nothing,
    ever."""
    study = begin(spec, space)

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
        return study.trials[-1]

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


def test_a_search_that_finds_no_number_fails_the_trial(spec, space):
    begin(spec, space)
    nan = preparing(lambda prompt, *_: 1.0 if prompt == "dawn" else np.nan)
    with pytest.raises(WorkError, match=r"on dusk from seed .* ended with nan"):
        run(spec, nan)


def test_trials_of_another_model_are_refused(spec, space, monkeypatch):
    begin(spec, space)
    run(spec)
    monkeypatch.setattr(Model, "provenance", {"weights_digest": "b"})
    with pytest.raises(WorkError, match=r"begun with \(weights_digest\)"):
        run(spec)
