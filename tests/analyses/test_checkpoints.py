"""Ranks over training steps, on scores that move as planted."""

import numpy as np
import pandas as pd
import pytest

from artifacts import score_table
from pessimal.analyses.analysis import Options
from pessimal.analyses.checkpoints import analyse, rank_changes
from pessimal.errors import TableError
from pessimal.plots.draw import draw
from pessimal.tables.table_set import TableSet, runs_of, table_sets


def letters(number: int) -> str:
    return chr(97 + number // 26) + chr(97 + number % 26)


RISING, FALLING, OTHERS = (
    [f"{kind}{letters(i)}" for i in range(12)] for kind in ("up", "down", "side")
)
WORDS = [*RISING, *FALLING, *OTHERS]
OPTIONS = Options(words=["UPaa", "nowhere"], top=5)


def trained(steps, seed=0, strength=1.0, texts=WORDS) -> dict[int, pd.Series]:
    """Scores by step: words of the one kind rise, those of the other fall, with noise."""
    rng, found = np.random.default_rng(seed), {}
    start = rng.normal(size=len(texts))
    for step in steps:
        way = np.array(
            [
                1.0 if t.strip().startswith("up") else -1.0 if t.startswith("down") else 0
                for t in texts
            ]
        )
        found[step] = pd.Series(
            start + strength * way * step / 5000 + rng.normal(0, 0.1, len(texts)), index=texts
        )
    return found


def checkpoints(**runs) -> TableSet:
    """Each step of each run as a score table of its own, as `pessimal import format=checkpoints`
    makes them."""
    made = []
    for run, own in runs.items():
        for step, values in own.items():
            named = {"model": f"{run}@step-{step}", "step": step}
            made.append(score_table([str(text) for text in values.index], values, **named))
    (whole,) = table_sets(made)
    return whole


def test_checkpoints_stand_by_their_run_in_order_of_the_step():
    given = [("llama@step-300", 300), ("llama@step-20", 20), ("llama", 7), ("a@step-3", None)]
    runs = runs_of(score_table(["a"], [1.0], model=model, step=step) for model, step in given)
    assert {run: list(steps) for run, steps in runs.items()} == {"llama": [7, 20, 300]}
    assert runs["llama"][300].provenance.model == "llama@step-300"


def test_ranks_count_from_the_highest_score_and_a_rise_is_positive():
    scores = pd.DataFrame(
        {1000: [3.0, 2.0, 2.0, 0.0], 3000: [0.0, 5.0, 6.0, 7.0], 2000: 1.0}, index=list("abcd")
    )
    found = rank_changes(scores.rank(ascending=False))
    assert found.index.tolist() == ["d", "c", "b", "a"]
    assert found["change"].tolist() == [3, 0.5, -0.5, -3]
    assert found.loc["d"].tolist() == [1000, 3000, 4, 1, 3]


def test_words_and_changes_follow_what_training_did():
    steps = (1000, 2000, 9000, 10000)
    tables = checkpoints(one=trained(steps), two=trained(steps[:3], seed=1, strength=-1.0))
    assert not analyse.needs.missing(tables, OPTIONS)
    results = {result.name: result for result in analyse(tables, OPTIONS)}
    assert list(results) == ["checkpoint_words", "checkpoint_changes"]
    matrix = tables.matrix("greatest")
    named = results["checkpoint_words"].table
    assert set(named["word"]) == {"upaa"}
    assert len(named) == 7
    ranks = matrix.rank(ascending=False)
    for row in named.to_dict("records"):
        assert row["rank"] == ranks.loc["upaa", f"{row['run']}@step-{row['step']}"]
        assert row["words"] == 36
    assert "nowhere" in " ".join(note for result in results.values() for note in result.notes)

    changes = results["checkpoint_changes"].table
    assert changes.groupby("run").size().to_dict() == {"one": 10, "two": 10}
    assert set(changes.groupby("run").head(5).query("run == 'one'")["word"]) <= set(RISING)
    apart = ranks["one@step-1000"] - ranks["one@step-10000"]
    own = changes[changes["run"] == "one"].set_index("word")["change"]
    assert own.to_dict() == apart[own.index].to_dict()
    assert own.is_monotonic_decreasing
    for result in results.values():
        assert len(result.headline.split()) <= 25
        assert draw(result.plot, result.table)


def test_ranks_are_over_words_that_every_checkpoint_has_spellings_averaged():
    more = [*WORDS, " UPab", "elsewhere"]
    one, two = trained((100, 200), texts=more), trained((100, 200), seed=2)
    one[100] = one[100].drop("downaa")
    whole = checkpoints(one=one, two=two)
    results = {result.name: result for result in analyse(whole, OPTIONS)}
    assert set(results["checkpoint_changes"].table["words"]) == {35}


def test_one_checkpoint_is_no_change_and_no_checkpoint_is_not_asked(table_set):
    tables = checkpoints(one=trained((1000,)))
    with pytest.raises(TableError, match="one on greatest: one checkpoint"):
        analyse(tables, OPTIONS)
    plain = table_set({"greatest": pd.DataFrame({"m": trained((1,))[1]})})
    assert "checkpoints of a run" in analyse.needs.missing(plain, OPTIONS)
