"""Trials are counted, handed out once, and kept from being mixed with what they cannot be compared
with."""

from dataclasses import replace
from pathlib import Path

import pytest
from optuna.trial import TrialState
from toy_study import parsed

from pessimal.errors import ConfigError, InputError, UserError, WorkError
from pessimal.searching.spec import Goal
from pessimal.tuning.study import DEFAULTS, Trials, check_prompts, database, load, options_tried
from pessimal.tuning.sweep import work


def finish(trials, batch):
    """What a job does at its end."""
    for trial in batch:
        trials.study.tell(trial.number, 1.0 - trial.params["search.momentum"])
    return [None] * len(batch)


def worked(config, space, *, total, at_once=1, launch=None):
    trials = Trials(config, space)
    work(trials, launch or (lambda batch: finish(trials, batch)), total=total, at_once=at_once)
    return trials


def with_tuning(config, **options):
    return replace(config, tuning=replace(config.tuning, **options))


def test_the_total_is_a_total_and_the_first_trial_is_the_defaults_even_where_the_space_leaves_them_out(
    config,
):
    space = parsed("search.top_k=choice(64,128)", "search.momentum=interval(0,0.95)")
    assert len(worked(config, space, total=3, at_once=2).all()) == 3
    trials = worked(config, space, total=4, at_once=3)
    first, *others = trials.all()
    assert options_tried(first) == {"search.top_k": 256, "search.momentum": 0.9}
    assert all(options_tried(trial)["search.top_k"] in (64, 128) for trial in others)
    assert [DEFAULTS in trial.user_attrs for trial in trials.all()] == [True, False, False, False]


def test_no_trial_is_handed_out_twice_or_beyond_the_total(config, space):
    one, two = Trials(config, space), Trials(config, space)
    with one.taken(3, total=5) as mine, two.taken(3, total=5) as others:
        assert [trial.number for trial in [*mine, *others]] == [0, 1, 2, 3, 4]
        with two.taken(1, total=5) as more:
            assert more == []


@pytest.mark.slow
def test_the_same_seed_and_past_give_the_same_options_whoever_asks(config, space, tmp_path):
    def tried(name, splits, seed=0):
        own = replace(with_tuning(config, storage=str(tmp_path / name)), seed=seed)
        for total in splits:
            trials = worked(own, space, total=total)
        return [options_tried(trial) for trial in trials.all()]

    whole = tried("a.db", [14])
    assert tried("b.db", [5, 14]) == whole
    assert tried("c.db", [14], seed=1)[1:] != whole[1:]
    assert len({tuple(options.values()) for options in whole}) == 14


def test_a_failed_trial_counts_for_nothing_and_is_not_tried_again(config, space):
    trials = Trials(config, space)

    def launch(batch):
        return [RuntimeError("it fell over")] if batch[0].number == 2 else finish(trials, batch)

    work(trials, launch, total=4, at_once=1)
    states = [trial.state for trial in trials.all()]
    assert states == [TrialState.COMPLETE] * 2 + [TrialState.FAIL] + [TrialState.COMPLETE] * 2
    assert trials.all()[2].user_attrs["error"] == "RuntimeError: it fell over"
    assert trials.all()[3].params != trials.all()[2].params


@pytest.mark.parametrize(
    ("returned", "message"),
    [(RuntimeError("no luck"), "RuntimeError: no luck"), (None, "the job ended without a value")],
)
def test_when_everything_fails_it_ends_and_says_with_what(config, space, returned, message):
    trials = Trials(config, space)
    with pytest.raises(WorkError, match=f"3 trials in a row failed, the last with: .*{message}"):
        work(trials, lambda batch: [returned] * len(batch), total=30, at_once=1)
    assert [trial.state for trial in trials.all()] == [TrialState.FAIL] * 3
    # The defaults failed each time they were tried first, and are tried first again.
    assert len(worked(config, space, total=2).all()) == 5
    assert trials.all()[3].user_attrs[DEFAULTS]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: replace(c, search=replace(c.search, goal=Goal.pessimal)),
            "search.goal was 'optimal' and is now 'pessimal'",
        ),
        (lambda c: with_tuning(c, seeds=3), "tuning.seeds was 2 and is now 3"),
        (lambda c: replace(c, prompts=c.prompts | {"dawn": "Why?"}), "tuning.prompts.dawn was"),
        (
            lambda c: replace(c, model=replace(c.model, recipe=replace(c.model.recipe, seed=1))),
            "model.recipe.seed was 0 and is now 1",
        ),
        (
            lambda c: replace(c, search=replace(c.search, top_k=9)),
            "search.top_k was 256 and is now 9",
        ),
    ],
)
def test_a_study_of_something_else_is_not_gone_on_with(config, space, change, message):
    begun = Trials(config, space).study
    with pytest.raises(ConfigError) as refused:
        Trials(change(config), space)
    assert message in str(refused.value)
    assert "tuning.study=toy-2" in str(refused.value)
    # What changes no value may change.
    other = with_tuning(config, held_out=["noon"], held_out_seeds=9)
    assert (
        Trials(replace(other, force=True, batch_size=7), space).study.user_attrs == begun.user_attrs
    )


def test_the_same_words_under_two_keys_are_not_held_out(config):
    copied = replace(config, prompts=config.prompts | {"noon": config.prompts["dawn"] + " "})
    with pytest.raises(
        ConfigError, match=r"tuning\.held_out=noon is worded exactly as tuning\.prompts=dawn"
    ):
        check_prompts(copied)
    with pytest.raises(ConfigError, match=r"tuning\.prompts is empty"):
        check_prompts(with_tuning(config, prompts=[]))
    check_prompts(config)


def test_a_storage_is_a_file_and_holds_studies(config, space, tmp_path):
    for given in ("postgresql://host/base", "sqlite:///", ""):
        with pytest.raises(ConfigError, match=r"tuning\.storage"):
            database(given)
    assert database("sqlite:////a/b.db") == Path("/a/b.db")
    (tmp_path / "bad.db").write_text("this is\nno study\n" * 100)
    with pytest.raises(InputError, match=r"cannot be read as a study's"):
        Trials(with_tuning(config, storage=str(tmp_path / "bad.db")), space)


def test_a_job_finds_its_study_or_says_which_there_are(config, space):
    with pytest.raises(InputError, match="no such file"):
        load(config)
    Trials(config, space)
    assert load(config).study_name == "toy"
    with pytest.raises(InputError, match=r"there is no study 'other' .* there are: toy"):
        load(with_tuning(config, study="other"))
    with pytest.raises(UserError, match=r"both tuning\.study"):
        load(with_tuning(config, storage=None))
