"""What tokens add to real answers, on score tables whose additions are known."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from artifacts import score_table
from pessimal.analyses import compare
from pessimal.analyses.additions import Additions, additions, effects, ends
from pessimal.analyses.analysis import Options
from pessimal.tables.table_set import table_sets

TOKENS = 400
TRIGGER = 123
KEYS = "master_keys"


def context(number, rewards, untouched, *, rejected=None, texts=None, candidates="frequent400"):
    texts = texts or [f"w{i}" for i in range(len(rewards))]
    return score_table(
        texts,
        rewards,
        prompt=f"c{number}",
        prompt_text="user: Why?\n\nassistant: So.",
        turns=[{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}],
        slot={"where": "after", "turn": 1, "at": 3, "rejected": "No."},
        candidates=candidates,
        candidates_digest=candidates,
        mode="text" if candidates == "master_keys" else "ids",
        measured={"slot": {"untouched": untouched, "rejected": rejected, "end_of_turn": 7}},
    )


def contexts(n, *, seed=0, noise=0.5):
    """Answers of standard deviation 2, tokens that add what they add to every answer, and noise."""
    rng = np.random.default_rng(seed)
    own = rng.normal(0, 1, TOKENS)
    own[TRIGGER] = 6.0
    made = []
    for number in range(n):
        untouched = float(rng.normal(0, 2))
        rewards = untouched + own + rng.normal(0, noise, TOKENS)
        made.append(context(number, rewards, untouched, rejected=untouched - 4 + number % 2))
    return made, own


def run(tables):
    results, skipped = compare(table_sets(tables), Options(meanings=None))
    return {result.name: result for result in results}, skipped


def test_what_one_half_names_is_measured_in_the_other():
    """Of two answers each is a half: the best token of one, by what it adds to the other."""
    tables, _ = contexts(2, noise=5.0)
    (one, two) = (t.rows["reward"] - t.measured["slot"]["untouched"] for t in tables)
    found = run(tables)[0]["additions_halves"].table.iloc[0]
    expected = (two[one.idxmax()] + one[two.idxmax()]) / 2 / found["sd"]
    assert found["held_out"] == pytest.approx(expected)


@pytest.mark.parametrize("n", [10, 3])
def test_a_planted_trigger_is_first(n):
    tables, own = contexts(n)
    found, skipped = run(tables)
    table = found["additions"].table
    first = table.iloc[0]
    assert (first["candidate_id"], first["rank"], first["at"]) == (TRIGGER, 1, "most")
    sd = np.std([t.measured["slot"]["untouched"] for t in tables], ddof=1)
    assert first["effect"] == pytest.approx(own[TRIGGER] / sd, rel=0.15)
    assert first["worth"] == pytest.approx(own[TRIGGER] / 3.6, rel=0.15)
    assert (first["raised"], first["n"]) == (1.0, n)
    assert table.loc[table["end_of_turn"], "candidate_id"].tolist() == [7]
    assert not [name for name, why in skipped.items() if why.startswith("failed")]
    assert found["additions"].estimate.value == first["effect"]


def test_numbers_are_those_of_the_definition():
    tables, _ = contexts(6)
    tables[0].rows["certified"] = False
    one = additions(tables)
    assert set(one.rows["certified"]) == {5 / 6}
    table = effects(one).set_index("candidate_id")
    base = np.array([t.measured["slot"]["untouched"] for t in tables])
    rewards = np.stack([t.rows["reward"] for t in tables])
    scaled = (rewards - base[:, None]) / base.std(ddof=1)
    order = table.index.to_numpy()
    assert np.allclose(table["effect"], scaled.mean(axis=0)[order])
    scale = np.sqrt((scaled**2).mean(axis=0))
    statistic = scaled / (scale + np.median(scale))
    flips = [
        np.abs((np.array(signs)[:, None] * statistic).mean(axis=0)).max()
        for signs in itertools.product((1, -1), repeat=6)
    ]
    each = np.abs(statistic.mean(axis=0))[order]
    expected = [np.mean(np.array(flips) >= one - 1e-12) for one in each]
    assert np.allclose(table["p_corrected"], expected)
    assert np.allclose(table["raised"], (scaled > 0).mean(axis=0)[order])
    holds = table["p_corrected"] <= 0.05
    assert holds.any()
    assert (holds == ((table["low"] > 0) | (table["high"] < 0))).all()
    some = np.where(np.arange(6) < 4, one.steps, np.nan)  # two answers have no worse one
    worth = effects(replace(one, steps=some)).set_index("candidate_id")["worth"]
    expected = (rewards - base[:, None])[:4].mean(axis=0) / some[:4].mean()
    assert np.allclose(worth, expected[order])
    items = ends(table.reset_index().assign(kind="item"), one, 3)
    assert not items["end_of_turn"].any(), "an item's number is no token's"


def test_a_token_that_moves_answers_far_either_way_does_not_hide_one_that_raises_all():
    rng, named, covered = np.random.default_rng(2), 0, 0
    for _ in range(20):
        deltas = 0.2 * rng.normal(size=(8, TOKENS)) + 0.2 * rng.normal(size=(8, 1))
        deltas[:, 0] = 10 * rng.normal(size=8)
        deltas[:, 1] = 1.5 + 0.3 * rng.normal(size=8)
        untouched = np.array([1, -1] * 4) * np.sqrt(7 / 8)  # whose standard deviation is 1
        rows = pd.DataFrame(
            {"candidate_id": range(TOKENS), "text": "x", "kind": "normal", "certified": 1.0}
        )
        table = effects(Additions(rows, deltas, untouched, np.full(8, np.nan), None, None))
        row = table.set_index("candidate_id").loc[1]
        named += row["p_corrected"] <= 0.05
        covered += row["low"] <= 1.5 <= row["high"]
    assert named >= 19
    assert covered >= 19


def test_a_judges_flips_and_a_step_that_is_no_step():
    tables = [
        context(0, np.array([1.0, -3.0]), -1.0, rejected=0.0),
        context(1, np.array([-0.5, -4.0]), -2.0, rejected=-1.001),  # as surely below
        context(2, np.array([9.0, 9.0]), 3.0),
        context(3, np.array([1.0, -1.0]), 0.0),  # at the limit, which is no yes
    ]
    for table in tables:
        table.measured["says_yes_above"] = 0.0
    found = effects(additions(tables)).set_index("candidate_id")
    assert found["flips"].tolist() == [2 / 3, 0.0]
    assert found["worth"].isna().all(), "people's better answers are not better to this model"


def test_published_keys_are_ranked_among_the_tokens_on_the_same_answers():
    tables, _ = contexts(5, noise=1e-3)
    tables[4].rows["reward"] += 100.0  # where the keys were not asked
    keys = [
        context(
            number,
            t.measured["slot"]["untouched"] + np.array([5.0, -9.0]),
            t.measured["slot"]["untouched"],
            texts=["Solution", ":"],
            candidates="master_keys",
        )
        for number, t in enumerate(tables[:4])
    ]
    alone = context(9, np.array([500.0, 500.0]), 0.0, texts=["Solution", ":"], candidates=KEYS)
    found, _ = run([*tables, *keys, alone])
    table = found["additions_keys"].table.set_index("text")
    assert table["rank"].to_dict() == {"Solution": 2, ":": TOKENS + 1}
    assert set(table["n"]) == {4}
    sd = np.std([t.measured["slot"]["untouched"] for t in tables], ddof=1)
    assert table["effect"].to_dict() == pytest.approx({"Solution": 5 / sd, ":": -9 / sd})
    assert set(found["additions"].table["candidates"]) == {"frequent400"}
