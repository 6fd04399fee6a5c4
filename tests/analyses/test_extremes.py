"""Both ends of a score table, with ties told."""

from dataclasses import replace

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import Options
from pessimal.analyses.extremes import analyse
from pessimal.tables.score_table import extremes
from pessimal.tables.table_set import table_sets


def scored(rewards: list[float], **more: list) -> pd.DataFrame:
    names = [f"t{place}" for place in range(len(rewards))]
    return pd.DataFrame(
        {
            "candidate_id": range(len(rewards)),
            "token": names,
            "text": names,
            "reward": rewards,
            **more,
        }
    )


def test_the_top_is_best_first_and_the_bottom_worst_first():
    table = extremes(scored([3.0, 9.0, -1.0, 5.0, 0.0]), k=2)
    assert table[["end", "rank", "text", "reward"]].to_numpy().tolist() == [
        ["top", 1, "t1", 9.0],
        ["top", 2, "t3", 5.0],
        ["bottom", 1, "t2", -1.0],
        ["bottom", 2, "t4", 0.0],
    ]
    assert not table["tied"].any()


def test_equal_rewards_come_in_the_order_of_their_ids_at_both_ends():
    shuffled = scored([1.0] * 6).sample(frac=1, random_state=0)
    table = extremes(shuffled, k=2)
    assert table["candidate_id"].tolist() == [0, 1, 0, 1]


def test_the_ends_of_what_all_models_share_are_listed_where_they_are_not_those_of_each(table_set):
    names = [f"w{i}" for i in range(40)]
    both = pd.DataFrame(
        np.random.default_rng(0).normal(size=(40, 2)), index=names, columns=["a", "b"]
    )
    same = {r.name: r for r in analyse(table_set({"best": both}), Options(top=2))}
    assert list(same) == ["extremes"]
    small = table_set({"best": both[["b"]].iloc[:20]}).tables
    tables = table_sets([*table_set({"best": both[["a"]]}).tables, *small])[0]
    found = {r.name: r.table for r in analyse(tables, Options(top=2))}
    shared = found["extremes_shared"].query("model == 'a' and end == 'top'")
    assert shared["text"].tolist() == both["a"].iloc[:20].nlargest(2).index.tolist()
    assert (found["extremes_shared"]["n"] == 20).all()
    whole = found["extremes"].query("model == 'a' and end == 'top'")
    assert whole["text"].tolist() == both["a"].nlargest(2).index.tolist()


def test_words_of_the_prompt_are_marked_and_said_in_the_headline(table_set):
    rewards = pd.DataFrame({"a": [3.0, 2.0, 1.0, 0.0, -1.0]})
    rewards.index = [" Greatest", "love", "thing", "hate", "great"]
    tables = table_set({"best": rewards}).tables
    asked = [
        replace(t, provenance=replace(t.provenance, prompt_text="What's the greatest thing?"))
        for t in tables
    ]
    (result,) = analyse(table_sets(asked)[0], Options(top=3))
    marked = result.table.set_index("text")["in_prompt"]
    assert marked[" Greatest"]
    assert not marked[["love", "hate", "great"]].any()
    best, worst = result.headline.split("(a word of the prompt)")
    assert "␣Greatest" in best
    assert "great" in worst
    drawn = result.plot.data["text"].tolist()
    assert " Greatest†" in drawn
    assert "love" in drawn
    assert " Greatest" in result.table["text"].tolist(), "the table has the text as it is"
