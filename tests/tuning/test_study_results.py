"""What a study reports, from trials whose values are known."""

import numpy as np
import pandas as pd
import pytest
from optuna.trial import TrialState, create_trial
from toy_study import parsed, preparing, run

from pessimal.errors import WorkError
from pessimal.plots.draw import save_figures
from pessimal.tuning.held_out import differences
from pessimal.tuning.results import (
    best_of,
    conclude,
    held_out_result,
    importances,
    options_table,
    searches_table,
    trials_result,
    trials_table,
)
from pessimal.tuning.space import options_of
from pessimal.tuning.study import DEFAULTS, Trials
from pessimal.tuning.trial import SEARCHES


def add(trials, value, *, state=TrialState.COMPLETE, attributes=None, **options):
    """A finished trial with these options; the others as in the middle of the space."""
    own = {"search.momentum": 0.5, "search.search_width": 256} | {
        f"search.{k}": v for k, v in options.items()
    }
    rows = [["dawn", 2, value - 1, 0.5], ["dusk", 2, value, 0.5], ["dawn", 4, value + 3, 0.5]]
    trials.study.add_trial(
        create_trial(
            state=state,
            value=None if state is TrialState.FAIL else value,
            params=own,
            distributions=trials.space.distributions,
            user_attrs=(attributes or {}) | ({} if state is TrialState.FAIL else {SEARCHES: rows}),
        )
    )


@pytest.fixture
def trials(config, space):
    return Trials(config, space)


def test_the_best_is_complete_and_of_equals_the_defaults(trials, config):
    assert best_of(trials.study) is None
    with pytest.raises(WorkError, match="no trial of the study 'toy'"):
        conclude(config, trials.study, preparing())
    for value, state in ((1.0, "COMPLETE"), (2.0, "COMPLETE"), (9.0, "PRUNED"), (2.0, "COMPLETE")):
        add(trials, value, state=TrialState[state])
    assert best_of(trials.study).number == 1
    add(trials, 2.0, attributes={DEFAULTS: options_of(config, list(trials.space.distributions))})
    assert best_of(trials.study).number == 4
    add(trials, 2.5)
    assert best_of(trials.study).number == 5


def test_the_tables_say_what_each_trial_was(trials, config):
    add(trials, 1.0, momentum=0.25)
    add(trials, 0.0, state=TrialState.FAIL, attributes={"error": "it fell"})
    add(trials, 0.5, state=TrialState.PRUNED, search_width=64)
    table = trials_table(trials.study)
    assert table["state"].tolist() == ["complete", "failed", "pruned"]
    assert table["value"].tolist() == pytest.approx([1.0, np.nan, 0.5], nan_ok=True)
    assert table["momentum"].tolist() == [0.25, 0.5, 0.5]
    assert table["search_width"].tolist() == [256, 256, 64]
    assert table["error"].fillna("").tolist() == ["", "it fell", ""]
    assert table.loc[0, ["searches", "low", "high"]].tolist() == [3, 0.5, 2.5]
    assert table["best"].tolist() == [True, False, False]
    searched = searches_table(trials.study)
    assert searched.groupby("trial")["value"].median().to_dict() == {0: 1.0, 2: 0.5}
    assert options_table(trials.study, config).to_dict("records") == [
        {"option": "momentum", "tuned": 0.25, "defaults": 0.9, "tried": "0.0 to 0.95"},
        {"option": "search_width", "tuned": 256, "defaults": 512, "tried": "64 to 1024 (log)"},
    ]


@pytest.mark.slow
def test_importance_finds_the_option_that_matters_and_its_share(trials):
    random = np.random.default_rng(0)
    for number in range(40):
        momentum, width = random.uniform(0, 0.95), int(random.integers(64, 1025))
        state = TrialState.PRUNED if number % 3 == 2 else TrialState.COMPLETE
        add(trials, 4 * momentum, state=state, momentum=momentum, search_width=width)
    ranked = importances(trials.study, seed=0)
    table = ranked.set_index("option")
    assert table.loc["momentum", "importance"] > 0.9
    assert table.loc["search_width", "importance"] < 0.05
    assert (table["n"] == 40).all(), "pruned trials take part"
    assert (table["standard_error"] > 0).all()
    assert importances(trials.study, seed=0).equals(ranked)


@pytest.mark.slow
def test_interactions_take_their_share_of_the_variance(trials):
    random = np.random.default_rng(0)
    for _ in range(40):
        momentum, width = random.uniform(0, 0.95), int(2 ** random.uniform(6, 10))
        add(trials, float((momentum > 0.5) == (width > 256)), momentum=momentum, search_width=width)
    assert importances(trials.study, seed=0)["importance"].sum() < 0.8


def test_too_few_or_equal_trials_have_no_importances(trials):
    for _ in range(7):
        add(trials, 1.0, momentum=float(np.random.default_rng(0).uniform(0, 0.9)))
    assert importances(trials.study, seed=0) is None
    add(trials, 1.0)
    assert importances(trials.study, seed=0) is None


def test_defaults_outside_of_the_space_are_in_the_tables_but_not_in_the_importances(config):
    trials = Trials(config, parsed("search.search_width=choice(64,128)", "search.momentum=interval(0,0.95)"))
    run(config, trials)
    for number in range(9):
        add(trials, number / 9, momentum=number / 10, search_width=64)
    assert trials_table(trials.study)["search_width"].tolist() == [512] + [64] * 9
    assert (importances(trials.study, seed=0)["n"] == 9).all()


@pytest.mark.parametrize(("shift", "verb"), [(5.0, " more "), (-5.0, " LESS "), (0.0, " no more ")])
def test_held_out_prompts_decide_and_carry_their_interval(shift, verb):
    random = np.random.default_rng(5)
    found = held_out_result(
        differences(
            pd.DataFrame(
                [
                    {"prompt": prompt, "seed": seed, "difference": shift + random.normal()}
                    for prompt in "abcd" for seed in range(4)
                ]
            ).assign(tuned=3.0, defaults=3.0, tuned_seconds=2.0, defaults_seconds=1.0)
        )
    )  # fmt: skip
    overall = found.table.iloc[-1]
    assert verb in found.headline
    assert found.estimate.n == 4
    assert [found.estimate.value, found.estimate.low, found.estimate.high] == pytest.approx(
        overall[["difference", "low", "high"]].tolist()
    )
    assert found.summary["held_out_low"] == pytest.approx(overall["low"])


def test_every_trial_with_a_value_is_a_point_for_each_option_between_its_ends(trials, tmp_path):
    random = np.random.default_rng(3)
    for number in range(12):
        state = TrialState.PRUNED if number % 4 == 3 else TrialState.COMPLETE
        width = int(2 ** random.uniform(6, 10))
        add(trials, random.normal(2), state=state, momentum=random.uniform(0, 0.95), search_width=width)
    add(trials, 0.0, state=TrialState.FAIL)
    found = trials_result(trials.study, ranked=False)
    valued, drawn = found.table[found.table["value"].notna()], found.plot.data
    widths = drawn[drawn["option"] == "search_width"].set_index("trial")["place"]
    logs = np.log(valued.set_index("trial")["search_width"])
    assert widths.to_numpy() == pytest.approx(((logs - logs.min()) / np.ptp(logs)).to_numpy())
    assert len(drawn) == 2 * len(valued) == 24
    assert set(save_figures([found], tmp_path)) == {"trials"}
