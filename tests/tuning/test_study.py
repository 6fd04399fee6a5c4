"""Trials are counted, handed out once, and kept from being mixed with what they cannot be compared with."""

from dataclasses import replace
from pathlib import Path

import pytest
from optuna.trial import TrialState
from toy_study import parsed

from pessimal.errors import ConfigError, InputError, UserError, WorkError
from pessimal.search import Goal
from pessimal.tuning.study import DEFAULTS, Trials, check_prompts, database, load, located, options_tried
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


def test_the_total_is_a_total(config, space):
    assert len(worked(config, space, total=3, at_once=2).all()) == 3
    assert len(worked(config, space, total=3).all()) == 3
    assert len(worked(config, space, total=5, at_once=4).all()) == 5


def test_the_first_trial_is_the_defaults_even_where_the_space_leaves_them_out(config):
    space = parsed("search.top_k=choice(64,128)", "search.momentum=interval(0,0.95)")
    trials = worked(config, space, total=4)
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


def test_a_users_mistake_ends_it_at_once(config, space):
    trials = Trials(config, space)
    with pytest.raises(InputError, match="no such model"):
        work(trials, lambda batch: [InputError("no such model")], total=30, at_once=1)
    assert [trial.state for trial in trials.all()] == [TrialState.FAIL]


@pytest.mark.slow
def test_a_batch_that_is_lost_is_tried_again_with_the_same_options(config, space, impatient):
    trials = Trials(config, space)
    lost = []

    def launch(batch):
        if len(lost) < 2 and batch[0].number > 0:
            lost.append([options_tried(trial) for trial in batch])
            finish(trials, batch[:1])  # the first was reported before the pool died
            raise RuntimeError("the pool died")
        return finish(trials, batch)

    work(trials, launch, total=6, at_once=3)
    done = [trial for trial in trials.all() if trial.state is TrialState.COMPLETE]
    assert len(done) == 6
    for options in [o for batch in lost for o in batch]:
        assert [options_tried(trial) for trial in done].count(options) == 1


@pytest.mark.slow
def test_what_is_interrupted_is_tried_again_the_defaults_too(config, space, impatient):
    def interrupt(_batch):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worked(config, space, total=2, launch=interrupt)
    done = worked(config, space, total=2).all()
    assert [trial.state.name for trial in done] == ["FAIL", "COMPLETE", "COMPLETE"]
    [again] = [trial for trial in done if trial.system_attrs.get("failed_trial") == 0]
    assert again.user_attrs[DEFAULTS] == done[0].user_attrs[DEFAULTS]
    assert again.params == done[0].params


@pytest.mark.slow
def test_options_that_end_their_worker_every_time_are_given_up(config, space, impatient):
    trials = Trials(config, space)

    def launch(batch):
        if batch[0].number == 0:
            return finish(trials, batch)
        raise RuntimeError("out of memory")

    for _ in range(3):  # three lost batches in a row end a worker; the same command goes on
        with pytest.raises(WorkError, match="out of memory"):
            work(trials, launch, total=2, at_once=1)
    tried = [tuple(options_tried(trial).values()) for trial in trials.all()[1:]]
    assert max(tried.count(options) for options in tried) == 4  # once, and three times again
    assert len(set(tried)) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: replace(c, search=replace(c.search, length=5)), "search.length was 4 and is now 5"),
        (lambda c: replace(c, search=replace(c.search, goal=Goal.pessimal)),
         "search.goal was 'optimal' and is now 'pessimal'"),
        (lambda c: with_tuning(c, seeds=3), "tuning.seeds was 2 and is now 3"),
        (lambda c: replace(c, prompts=c.prompts | {"dawn": "Why?"}), "tuning.prompts.dawn was"),
        (lambda c: replace(c, seed=1), "seed was 0 and is now 1"),
        (lambda c: replace(c, model=replace(c.model, recipe=replace(c.model.recipe, seed=1))),
         "model.recipe.seed was 0 and is now 1"),
        (lambda c: replace(c, search=replace(c.search, top_k=9)), "search.top_k was 256 and is now 9"),
    ],
)  # fmt: skip
def test_a_study_of_something_else_is_not_gone_on_with(config, space, change, message):
    Trials(config, space)
    with pytest.raises(ConfigError) as refused:
        Trials(change(config), space)
    assert message in str(refused.value)
    assert "tuning.study=toy-2" in str(refused.value)


def test_another_space_is_another_study_and_what_changes_no_value_may_change(config, space):
    begun = Trials(config, space).study
    with pytest.raises(ConfigError, match=r"params\.search\.momentum was .* and is now None"):
        Trials(config, parsed("search.search_width=tag(log,interval(64,1024))"))
    other = with_tuning(config, held_out=["noon"], held_out_seeds=9)
    assert Trials(replace(other, force=True, batch_size=7), space).study.user_attrs == begun.user_attrs


def test_a_study_without_a_name_is_called_after_what_it_is_about(config):
    tuning = located(with_tuning(config, study=None, storage=None)).tuning
    assert tuning.study == "gcg-toy-optimal-4"
    assert tuning.storage == f"sqlite:///{config.paths.root}/studies/gcg-toy-optimal-4.db"


def test_the_same_words_under_two_keys_are_not_held_out(config):
    copied = replace(config, prompts=config.prompts | {"noon": config.prompts["dawn"] + " "})
    with pytest.raises(ConfigError, match=r"tuning\.held_out=noon is worded exactly as tuning\.prompts=dawn"):
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
