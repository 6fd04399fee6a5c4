"""Measures over training steps: those of single models at each step, and when they settle."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from artifacts import score_table
from pessimal.analyses.analysis import Options
from pessimal.analyses.trajectories import KEPT, LAST, _settled, analyse
from pessimal.errors import TableError
from pessimal.tables.table_set import Reading, table_sets

STEPS = (0, 10, 20, 30)


def named(n):
    return [f"q{chr(97 + i // 26)}{chr(97 + i % 26)}x" for i in range(n)]


@pytest.fixture(scope="module")
def valence():
    return pd.Series(np.random.default_rng(0).integers(-5, 6, 200).astype(float), index=named(200))


@pytest.fixture(scope="module")
def found(valence):
    """A run that learns valence by step 20 and stays there; another model without steps beside
    it."""
    rng, made = np.random.default_rng(1), []
    noise = rng.normal(size=200)
    learned = {0: 0.0, 10: 0.4, 20: 2.0, 30: 2.0}
    for step in STEPS:
        rewards = learned[step] * valence.to_numpy() + noise + 0.01 * rng.normal(size=200)
        made.append(score_table(named(200), rewards, model=f"run@step-{step}", step=step))
    made.append(score_table(named(200), noise, model="other"))
    (whole,) = table_sets(made)
    results = analyse(whole, Options(lexicons={"AFINN": valence}, meanings=None))
    return {result.name: result for result in results}


def test_a_measure_is_what_its_analysis_finds_at_each_step(found, valence):
    table = found["trajectory"].table
    rho = table[table["measure"] == "ρ with AFINN"].set_index("step")
    assert list(rho.index) == list(STEPS)
    assert abs(rho.loc[0, "estimate"]) < 0.2
    assert rho.loc[30, "estimate"] > 0.9
    assert set(table["run"]) == {"run"}


def test_it_settles_where_it_stays_within_the_last_interval(found):
    table = found["trajectory"].table
    own = table[table["measure"] == "ρ with AFINN"].set_index("step")
    inside = own["estimate"].between(*own.loc[30, ["low", "high"]])
    assert inside.tolist() == [False, False, True, True]
    assert own["settled_at"].tolist() == [20] * 4
    assert "within that interval from step 20 on" in found["trajectory"].headline
    # Beside itself the last step has no interval that others could be in.
    assert table[table["measure"].isin([LAST, KEPT])]["settled_at"].isna().all()


def rows_of(estimates, low, high):
    return pd.DataFrame(
        {"step": range(0, 10 * len(estimates), 10), "estimate": estimates, "low": low, "high": high}
    )


@pytest.mark.parametrize(
    ("estimates", "settled"),
    [((0.5, 0.5, 0.5), 0), ((0.5, 0.0, 0.5), 20), ((0.0, 0.45, 0.5), 10), ((0.0, 0.0, 0.5), 20)],
)
def test_settled_is_the_first_step_that_all_later_ones_agree_with(estimates, settled):
    assert _settled(rows_of(estimates, 0.4, 0.6)) == settled
    assert np.isnan(_settled(rows_of(estimates, np.nan, np.nan)))


def test_ranks_and_extremes_are_held_against_the_last_step(found):
    table = found["trajectory"].table
    tau = table[table["measure"] == LAST].set_index("step")["estimate"]
    assert tau[30] == pytest.approx(1)
    assert tau[0] < tau[10] < tau[20]
    kept = table[table["measure"] == KEPT].set_index("step")["estimate"]
    assert kept[30] == 1
    assert kept[0] < kept[20]


def test_extremes_stand_by_step(found):
    ends = found["trajectory_extremes"].table
    assert list(dict.fromkeys(ends["step"])) == list(STEPS)
    assert set(ends["rank"]) == {1, 2, 3}


def test_elo_is_followed_where_items_have_it():
    rng, made = np.random.default_rng(2), []
    elo = rng.normal(1200, 100, 120)
    for step, weight in ((0, 0.0), (5, 1.0)):
        rewards = weight * (elo - 1200) / 100 + 0.1 * rng.normal(size=120)
        made.append(
            score_table(
                named(120),
                rewards,
                model=f"run@step-{step}",
                step=step,
                candidates="people",
                mode="text",
                rows={"elo": elo, "elo_matches": 50},
            )
        )
    (whole,) = table_sets(made)
    first = analyse(whole, Options(meanings=None))[0]
    table = first.table
    assert first.estimate.label == "ρ with people's Elo"
    rho = table[table["measure"] == "ρ with people's Elo"].set_index("step")["estimate"]
    assert rho[5] == pytest.approx(stats.spearmanr(elo, rewards).statistic)
    assert abs(rho[0]) < 0.3


def test_opposite_prompts_and_several_runs_stand_apart(valence):
    made, noise = [], np.random.default_rng(3).normal(size=200)
    for run in ("one", "two"):
        for step, weight in ((10, 1.0), (100, 3.0)):  # 100 sorts before 10 as text
            for prompt, sign in (("greatest", 1), ("worst", -1)):
                rewards = sign * weight * valence.to_numpy() + noise
                made.append(
                    score_table(
                        named(200), rewards, model=f"{run}@step-{step}", step=step, prompt=prompt
                    )
                )
    made.append(
        score_table(named(200), noise, model="one@step-500", step=500, prompt="third")
    )  # alone on its prompt
    (whole,) = table_sets(made, Reading(polarity={"greatest": 1, "worst": -1}))
    first, ends = analyse(whole, Options(lexicons={"AFINN": valence}, meanings=None))
    rho = first.table[first.table["measure"] == "ρ with AFINN"]
    assert set(rho["prompt"]) == {"greatest", "worst", "greatest − worst"}
    assert rho.groupby(["run", "prompt"])["step"].agg(list).map(tuple).unique().tolist() == [
        (10, 100)
    ]
    assert first.headline.startswith("one: ρ with AFINN on greatest − worst is 1.00 at step 100")
    assert set(ends.table["prompt"]) == {"greatest", "worst"}


def test_checkpoints_of_a_language_model_are_followed_too(valence):
    noise = np.random.default_rng(4).normal(size=200)
    made = [
        score_table(
            named(200),
            -50 + step * valence + noise,
            model=f"lm@step-{step}",
            step=step,
            score="log_probability",
        )
        for step in (0, 2, 3)
    ]
    (whole,) = table_sets(made)
    options = Options(lexicons={"AFINN": valence}, meanings=None)
    assert not analyse.needs.missing(whole, options)
    table = analyse(whole, options)[0].table
    assert set(table["measure"]) == {"ρ with AFINN", LAST, KEPT}


def test_one_checkpoint_is_no_trajectory():
    (whole,) = table_sets([score_table(named(60), np.arange(60.0), model="run@step-5", step=5)])
    with pytest.raises(TableError, match="no run with several"):
        analyse(whole, Options(meanings=None))
