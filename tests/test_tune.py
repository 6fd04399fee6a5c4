"""Studies of a search's options: what is tuned is what `pessimal.search` runs, a killed study goes
on, another one is refused, and the comparison on held-out prompts rests on prompts."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import optuna
import pandas as pd
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import TrialState
from scipy import stats

import pessimal
from hydra_plugins.pessimal_optuna.optuna_sweeper import parse_space
from pessimal.api import tune as module
from pessimal.api.tune import held_out_result, tune
from pessimal.errors import ConfigError

SPACE = {"top_k": IntDistribution(1, 300), "search_width": IntDistribution(32, 512, log=True)}
TUNED, HELD_OUT = {"dawn": "What is dawn?", "dusk": "What is dusk?"}, {"noon": "Noon?", "day": "?"}


@pytest.fixture(scope="module")
def model(tiny_checkpoint):
    return pessimal.load(str(tiny_checkpoint))


def toy_value(prompt, seed, *, top_k=256, search_width=64, **_):
    """Prompts are whole units apart, options a few tenths, starts hundredths."""
    return len(prompt) - abs(top_k - 80) / 300 + search_width / 10_000 + seed / 100


class Toy:
    """In place of `pessimal.search`: a known function of options, prompt and seed; every call is
    kept, and the one of the number `dies` ends the process as Ctrl-C does."""

    def __init__(self, dies=None):
        self.calls, self.dies = [], dies

    def __call__(self, model, prompts, *, seed, **options):
        [(key, _)] = prompts.items()
        self.calls.append((key, seed, options))
        if len(self.calls) == self.dies:
            raise KeyboardInterrupt
        return SimpleNamespace(own_values=np.array([toy_value(key, seed, **options)]))


@pytest.fixture
def study(model, tmp_path, monkeypatch):
    """study(toy, …): a study by a toy, in a file of its own; its Results by name and its digest."""

    def run(toy=None, **options):
        monkeypatch.setattr(module, "search", toy or Toy())
        given = {"prompts": TUNED, "space": SPACE, "storage": tmp_path / "s.db", "trials": 4}
        given |= {"method": "gcg", "length": 3, "evaluations": 100, "held_out": HELD_OUT}
        results, digest = tune(model, **given | options)
        return {result.name: result for result in results}, digest

    return run


def trials_of(folder):
    return optuna.load_study(study_name="study", storage=f"sqlite:///{folder}/s.db").trials


def complete(folder):
    return [
        (t.params, t.value)
        for t in trials_of(folder)
        if t.state is optuna.trial.TrialState.COMPLETE
    ]


def test_every_trial_searches_each_prompt_once_with_its_options_and_the_defaults_come_first(study):
    toy = Toy()
    trials = study(toy)[0]["trials"]
    table = trials.table
    assert len(table) == 4
    for trial, calls in zip(table.itertuples(), np.split(np.arange(8), 4), strict=True):
        searches = [toy.calls[i] for i in calls]
        assert [(key, seed) for key, seed, _ in searches] == [("dawn", 0), ("dusk", 1)]
        tried = {"top_k": trial.top_k, "search_width": trial.search_width}
        assert all(
            options == {"method": "gcg", "length": 3, "evaluations": 100} | tried
            for *_, options in searches
        )
        values = [toy_value(key, seed, **tried) for key, seed, _ in searches]
        assert trial.value == pytest.approx(np.mean(values))
    assert (table["top_k"][0], table["search_width"][0]) == (256, 64)
    assert table["defaults"].tolist() == [True, False, False, False]
    assert table["value"][table["best"]].tolist() == [table["value"].max()]
    assert trials.summary["best_value"] == table["value"].max()
    assert trials.summary["defaults_value"] == table["value"][0]


def test_a_trial_is_what_the_search_runs_with_these_options(model, tmp_path):
    options = {"method": "gcg", "length": 3, "evaluations": 150, "baselines": 0, "goal": "pessimal"}
    space = {"top_k": CategoricalDistribution([4, 64])}
    [trials], _ = tune(
        model, "greatest", space=space, storage=tmp_path / "s.db", trials=2, seed=5, **options
    )
    assert trials.notes, "nothing was held out"
    for trial in trials.table.itertuples():
        found = pessimal.search(model, "greatest", seed=5, top_k=trial.top_k, **options)
        assert trial.value == -found.reward
        assert {stage.name for stage in found.stages.done if stage.evaluations} == {
            *("noise", "gradient", "certificate")
        }


@pytest.mark.parametrize("dies", [4])
def test_a_killed_study_goes_on_and_ends_as_if_it_had_not_been(study, tmp_path, dies):
    whole, _ = study()
    trials = complete(tmp_path)
    (tmp_path / "s.db").unlink()
    with pytest.raises(KeyboardInterrupt):
        study(Toy(dies))
    # A process that has no time to say so leaves a trial that seems to run.
    optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path}/s.db").ask()
    again = Toy()
    results, _ = study(again)
    assert complete(tmp_path) == trials
    assert len(again.calls) == 2 * (4 - (dies - 1) // 2) + 4, "what was finished is not done again"
    states = [trial.state for trial in trials_of(tmp_path)]
    assert (states.count(TrialState.FAIL), len(states)) == (2, 6)
    assert results["held_out"].table.equals(whole["held_out"].table)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"goal": "pessimal"}, "search.goal"),
        ({"space": {"top_k": SPACE["top_k"]}}, "space.search_width"),
    ],
)
def test_a_study_that_was_begun_for_something_else_is_refused(study, change, name):
    study(trials=1)
    toy = Toy()
    with pytest.raises(ConfigError, match="begun for something else") as refused:
        study(toy, trials=1, **change)
    assert f"{name} was " in str(refused.value)
    assert not toy.calls
    study(trials=1, name="other", **change)


def test_other_weights_are_another_study(study, monkeypatch):
    study(trials=1)
    digests = module.model_fields
    other = {"weights_digest": "f" * 64}
    monkeypatch.setattr(module, "model_fields", lambda network: digests(network) | other)
    with pytest.raises(ConfigError, match="weights_digest was "):
        study(trials=1)


def test_held_out_prompts_are_searched_by_both_from_starts_that_no_trial_had(study):
    toy = Toy()
    study(toy)
    defaults, tuned = toy.calls[8:10], toy.calls[10:]
    starts = [(key, seed) for key, seed, _ in defaults]
    assert starts == [(key, seed) for key, seed, _ in tuned] == [("noon", 2), ("day", 3)]
    # Defaults that were best are not searched twice.
    toy = Toy()
    table = study(toy, trials=1, name="other")[0]["held_out"].table
    assert len(toy.calls) == 2 + 2
    assert (table["difference"] == 0).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": {}}, "tuning.prompts is empty"),
        ({"held_out": {"x": " What is dusk? "}}, "leave one of them out"),
    ],
)
def test_options_are_not_tuned_on_nothing_nor_compared_on_what_they_were_tuned_on(
    study, tmp_path, change, message
):
    with pytest.raises(ConfigError, match=message):
        study(**change)
    assert not list(tmp_path.iterdir()), "no study was begun"


# --- The comparison.


def compared(differences):
    rows = {"prompt": [f"p{n}" for n in range(len(differences))], "defaults": 3.0}
    table = pd.DataFrame(rows)
    return held_out_result(table.assign(tuned=table["defaults"] + differences)).estimate


def test_the_interval_is_students_over_prompts_and_p_flips_their_signs():
    differences = np.random.default_rng(0).normal(0.5, 1, 6)
    estimate = compared(differences)
    low, high = stats.ttest_1samp(differences, 0).confidence_interval()
    assert (estimate.value, estimate.n) == (pytest.approx(differences.mean()), 6)
    assert (estimate.low, estimate.high) == pytest.approx((low, high))
    flips = np.array(np.meshgrid(*[[1, -1]] * 6)).reshape(6, -1)  # all 64 patterns of signs
    exact = np.mean(abs(differences @ flips) >= abs(differences.sum()) - 1e-12)
    assert estimate.p == pytest.approx(exact)


# --- The space, as it is typed.


def parsed(*overrides: str):
    return parse_space(OverridesParser.create().parse_overrides(list(overrides)))


@pytest.mark.parametrize(
    ("typed", "values"),
    [
        ("search.step_size=range(1,4)", IntDistribution(1, 3)),
        ("search.top_k=range(64,257,64)", IntDistribution(64, 256, step=64)),
        ("search.top_k=choice(64,256)", CategoricalDistribution([64, 256])),
        ("search.top_k=tag(log,int(interval(16,512)))", IntDistribution(16, 512, log=True)),
    ],
)
def test_hydras_sweeps_are_optunas_distributions(typed, values):
    # The later override of an option counts, and a single value takes it out.
    earlier = ["search.top_k=1,2", "search.step_size=1,2", "search.step_size=2", "search.top_k=7"]
    space, fixed = parsed(*earlier, typed, "task=search")
    assert space == {typed.split("=")[0].removeprefix("search."): values}
    assert "task=search" in fixed


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("search.topk=choice(1,2)", "Did you mean 'search.top_k'?"),
        ("search.length=2,3", "search.length cannot be tuned"),
        ("search.top_k=choice(64,0.5)", "whole numbers, not 0.5"),
        ("search.top_k=64", "nothing to tune"),
    ],
)
def test_what_cannot_be_tuned_or_the_option_refuses_is_refused(typed, message):
    with pytest.raises(ConfigError) as refused:
        parsed(typed)
    assert message in str(refused.value)


# --- The command.

COMMAND = (
    *("search", "-m", "hparams_search=gcg", "model=auto", "progress=false", "trainer.threads=1"),
    *("search.evaluations=60", "search.length=2", "hydra.sweeper.n_trials=2", "tuning.study=few"),
    *("tuning.prompts=[greatest,worst]", "tuning.held_out=[best,good_time_one]"),
)


@pytest.fixture
def tuning(command, tiny_checkpoint):
    return lambda *more: command(*COMMAND, f"model.path={tiny_checkpoint}", *more)


def test_the_command_publishes_a_study_of_the_searches_that_it_would_run(
    tuning, undrawn, tmp_path, model
):
    code, out, err = tuning("tracking=off", "search.momentum=0.5", "search.top_k=choice(8,64)")
    assert code == 0, err
    folder = Path(out.splitlines()[-1])
    assert folder == tmp_path / "runs/registry/study/few/v0"
    trials = pd.read_parquet(folder / "tables/trials.parquet")
    assert set(trials["top_k"]) <= {8, 64}
    row = trials.iloc[-1]
    options = {name: row[name].item() for name in ("search_width", "top_k", "step_size")}
    options |= {"momentum": 0.5, "baselines": 0, "evaluations": 60}
    options |= {"method": "gcg", "certificate": "none"}
    values = [
        pessimal.search(model, key, length=2, seed=n, **options).reward
        for n, key in enumerate(("greatest", "worst"))
    ]
    assert row["value"] == pytest.approx(np.mean(values), abs=1e-6)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["summary"]["trials"] == 2
    assert manifest["summary"]["held_out_prompts"] == 2
    # It is published once, and shown.
    code, out, _ = tuning("tracking=off", "search.momentum=0.5", "search.top_k=choice(8,64)")
    assert out.splitlines()[-1] == str(folder)
    code, _, err = tuning("tracking=off", "search.goal=pessimal")
    assert code == 2
    assert "search.goal was 'optimal' and is now 'pessimal'" in err


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("search.topk=choice(1,2)", "Did you mean 'search.top_k'?"),
        ("tuning.prompts=[finest]", "no prompt 'finest'"),
        ("hydra.sweeper.n_jobs=2", "one process"),
    ],
)
def test_mistakes_are_reported_before_any_trial(tuning, tmp_path, argument, message):
    code, _, err = tuning(argument)
    assert code == 2
    assert message in err
    assert not list(tmp_path.rglob("studies/*")), "no study was begun"
