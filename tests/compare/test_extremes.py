"""Both ends of a score table, with ties told."""

import numpy as np
import pandas as pd
import pytest

from pessimal.compare.extremes import extremes
from pessimal.errors import TableError


def scored(rewards: list[float], **more: list) -> pd.DataFrame:
    names = [f"t{place}" for place in range(len(rewards))]
    return pd.DataFrame(
        {"candidate_id": range(len(rewards)), "token": names, "text": names, "reward": rewards, **more}
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


def test_a_cut_through_equals_says_so():
    table = extremes(scored([9.0, 5.0, 5.0, 5.0, 1.0, 0.0]), k=2)
    assert table["tied"].tolist() == [False, True, False, False]
    assert table["tied_left_out"].tolist() == [0, 2, 0, 0]


@pytest.mark.parametrize(
    ("table", "k", "message"),
    [
        (scored([1.0]).drop(columns="token"), 1, "lacks token"),
        (scored([1.0]), 0, "k=0"),
        (scored([1.0, np.nan]), 1, "1 of 2 rewards are missing"),
    ],
)
def test_mistakes_are_named(table, k, message):
    with pytest.raises(TableError, match=message):
        extremes(table, k=k)
