"""What a study reports, from trials whose values are known."""

import numpy as np
import pandas as pd
import pytest
from optuna.trial import TrialState, create_trial
from toy_study import parsed, preparing, run

from pessimal.errors import WorkError
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
from pessimal.tuning.study import DEFAULTS, SEARCHES, begin, options_of, space_of


def add(study, value, *, state=TrialState.COMPLETE, attributes=None, **options):
    """A finished trial with these options; the others as in the middle of the space."""
    own = {"search.momentum": 0.5, "search.search_width": 256} | {
        f"search.{k}": v for k, v in options.items()
    }
    rows = [["dawn", 2, value - 1, 0.5], ["dusk", 2, value, 0.5], ["dawn", 4, value + 3, 0.5]]
    study.add_trial(
        create_trial(
            state=state,
            value=None if state is TrialState.FAIL else value,
            params=own,
            distributions=space_of(study),
            user_attrs=(attributes or {}) | ({} if state is TrialState.FAIL else {SEARCHES: rows}),
        )
    )


@pytest.fixture
def study(spec, space):
    return begin(spec, space)


def test_the_best_is_complete_and_of_equals_the_defaults(study, spec):
    with pytest.raises(WorkError, match="no trial of the study 'toy'"):
        conclude(spec, study, preparing())
    for value, state in ((1.0, "COMPLETE"), (2.0, "COMPLETE"), (9.0, "PRUNED"), (2.0, "COMPLETE")):
        add(study, value, state=TrialState[state])
    assert best_of(study).number == 1
    add(study, 2.0, attributes={DEFAULTS: options_of(spec.search, list(space_of(study)))})
    assert best_of(study).number == 4
    add(study, 2.5)
    assert best_of(study).number == 5


def test_the_tables_say_what_each_trial_was(study, spec):
    add(study, 1.0, momentum=0.25)
    add(study, 0.0, state=TrialState.FAIL, attributes={"error": "it fell"})
    add(study, 0.5, state=TrialState.PRUNED, search_width=64)
    table = trials_table(study)
    assert table["state"].tolist() == ["complete", "failed", "pruned"]
    assert table["value"].tolist() == pytest.approx([1.0, np.nan, 0.5], nan_ok=True)
    assert table["momentum"].tolist() == [0.25, 0.5, 0.5]
    assert table["search_width"].tolist() == [256, 256, 64]
    assert table["error"].fillna("").tolist() == ["", "it fell", ""]
    assert table.loc[0, ["searches", "low", "high"]].tolist() == [3, 0.5, 2.5]
    assert table["best"].tolist() == [True, False, False]
    searched = searches_table(study)
    assert searched.groupby("trial")["value"].median().to_dict() == {0: 1.0, 2: 0.5}
    assert options_table(study, spec).to_dict("records") == [
        {"option": "momentum", "tuned": 0.25, "defaults": 0.9, "tried": "0.0 to 0.95"},
        {"option": "search_width", "tuned": 256, "defaults": 512, "tried": "64 to 1024 (log)"},
    ]


@pytest.mark.slow
def test_importance_finds_the_option_that_matters_and_its_share(study):
    random = np.random.default_rng(0)
    for number in range(40):
        momentum, width = random.uniform(0, 0.95), int(random.integers(64, 1025))
        state = TrialState.PRUNED if number % 3 == 2 else TrialState.COMPLETE
        add(study, 4 * momentum, state=state, momentum=momentum, search_width=width)
    ranked = importances(study, seed=0)
    table = ranked.set_index("option")
    assert table.loc["momentum", "importance"] > 0.9
    assert table.loc["search_width", "importance"] < 0.05
    assert (table["n"] == 40).all(), "pruned trials take part"
    assert (table["standard_error"] > 0).all()
    assert importances(study, seed=0).equals(ranked)


def test_too_few_or_equal_trials_have_no_importances(study):
    for _ in range(7):
        add(study, 1.0, momentum=float(np.random.default_rng(0).uniform(0, 0.9)))
    assert importances(study, seed=0) is None
    add(study, 1.0)
    assert importances(study, seed=0) is None


@pytest.mark.parametrize(("shift", "verb"), [(5.0, " more "), (-5.0, " LESS "), (0.0, " no more ")])
def test_held_out_prompts_decide_and_carry_their_interval(shift, verb):
    random = np.random.default_rng(5)
    rows = [(prompt, seed, shift + random.normal()) for prompt in "abcd" for seed in range(4)]
    table = pd.DataFrame(rows, columns=["prompt", "seed", "difference"])
    result = held_out_result(
        differences(table.assign(tuned=3.0, defaults=3.0, tuned_seconds=2.0, defaults_seconds=1.0))
    )
    overall, estimate = result.table.iloc[-1], result.estimate
    assert verb in result.headline
    assert estimate.n == 4
    own = [estimate.value, estimate.low, estimate.high]
    assert own == pytest.approx(overall[["difference", "low", "high"]].tolist())
    assert result.summary["held_out_low"] == pytest.approx(overall["low"])


def test_every_trial_with_a_value_is_a_point_for_each_option_and_outside_defaults_take_no_part_in_importances(
    spec,
):
    study = begin(
        spec, parsed("search.search_width=choice(64,128)", "search.momentum=interval(0,0.95)")
    )
    run(spec)
    for number in range(9):
        add(study, number / 9, momentum=number / 10, search_width=64)
    add(study, 0.0, state=TrialState.FAIL, search_width=64)
    result = trials_result(trials_table(study), ["search_width", "momentum"], ranked=True)
    assert result.table["search_width"].tolist() == [512] + [64] * 10
    assert (importances(study, seed=0)["n"] == 9).all()
    drawn = result.plot.data.groupby("option")["place"]
    assert drawn.size().tolist() == [10, 10]
    places = result.plot.data.query("option == 'momentum'")["place"]
    assert places.tolist() == pytest.approx([1.0] + [n / 10 for n in range(1, 10)])
