"""The census of a judge, on score tables whose answers are known."""

import numpy as np
import pytest

from artifacts import score_table
from pessimal.analyses import compare
from pessimal.analyses.analysis import Options
from pessimal.tables.table_set import table_sets


def table(prompt, rewards, *, candidates="vocabulary", texts=None, noise=0.0):
    return score_table(
        texts or [f"w{i}" for i in range(len(rewards))],
        rewards,
        model="judge",
        prompt=prompt,
        candidates=candidates,
        candidates_digest=candidates,
        mode="ids" if candidates == "vocabulary" else "text",
        kind="judge",
        measured={"says_yes_above": 0.5, "noise": noise},
    )


def run(tables):
    results, _ = compare(table_sets(tables), Options(meanings=None, permutations=10))
    return {result.name: result for result in results}


def test_every_token_is_counted_and_known_keys_are_ranked():
    words = table("one", np.array([3.0, 1.0, 0.5, 0.49, -2.0, 0.6]), noise=0.02)
    keys = table(
        "one", np.array([2.0, 0.6, -9.0]), candidates="master_keys", texts=["Solution", ":", " "]
    )
    found = run([words, keys])
    [row] = found["census"].table.to_dict("records")
    assert (row["n"], row["yes"], row["estimate"]) == (6, 3, 0.5)
    assert (row["low"], row["high"]) == (0.5, pytest.approx(5 / 6)), (
        "0.5 and 0.49 are within the noise"
    )
    assert (row["best"], row["reward"]) == ("w0", 3.0)
    assert found["census_keys"].table["rank"].tolist() == [2, 3, 7], (
        "a tie with a token shares its rank"
    )
    assert found["census_keys"].table["yes"].tolist() == [True, True, False]


def test_what_holds_on_every_prompt_is_set_beside_chance():
    first = table("one", np.array([3.0, 1.0, 0.0, 0.0]))
    second = table("two", np.array([2.0, 0.0, 4.0, 0.0]))
    found = run([first, second])
    [row] = found["census_everywhere"].table.to_dict("records")
    assert (row["yes_everywhere"], row["expected"]) == (1, pytest.approx(4 * 0.25))
