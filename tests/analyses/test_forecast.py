"""The forecast over score tables: what is joined, what is named, what is refused."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from artifacts import score_table
from pessimal.analyses import Options, compare
from pessimal.analyses.forecast import drift, features, forecast, joined, mitigated
from pessimal.analyses.optimised import Optimising
from pessimal.tables import ScoreTable
from pessimal.tables.score_table import LOG_PROBABILITY, TRAINED, States
from pessimal.tables.table_set import table_sets

WORDS = ["good", "Bad", " fine", "war", "\n", "peace", "it", "love"]


def policy(texts=WORDS, log_p=None, **more) -> ScoreTable:
    log_p = np.log(np.arange(1, len(texts) + 1) / 100) if log_p is None else log_p
    return score_table(texts, log_p, model="talker", score=LOG_PROBABILITY, **more)


def test_policy_is_held_against_rewards_by_text_and_what_is_outside_is_said():
    rewards = score_table([*WORDS[:5], "elsewhere"], range(6), model="r", candidates_digest="other")
    rows = joined(policy(), rewards)
    assert rows["text"].tolist() == WORDS[:5]
    sets = table_sets([policy(), rewards])
    results, skipped = compare(sets, Options(policy="talker", meanings=None))
    assert "forecast" not in skipped
    path = next(r for r in results if r.name == "forecast").table
    assert path["mass"].iloc[0] == pytest.approx(0.15)
    assert path["n"].iloc[0] == 5


def test_likeliest_token_and_turning_point_are_the_headline():
    rng = np.random.default_rng(0)
    texts = [f"w{i}" for i in range(300)]
    reward = rng.normal(size=300)
    elo = {"elo": reward - 0.5 * reward**2, "elo_matches": 3, "kind": "item"}
    tables = [
        score_table(texts, reward, model="r", rows=elo, candidates="list"),
        score_table(
            *(texts, -np.full(300, np.log(300))),
            model="talker",
            score=LOG_PROBABILITY,
            candidates="list",
        ),
    ]
    results, _ = compare(table_sets(tables), Options(policy="talker", meanings=None))
    found = next(result for result in results if result.name == "forecast")
    assert f"w{reward.argmax()} takes" in found.headline
    assert "Elo turns at" in found.headline
    moves = next(r for r in results if r.name == "forecast_drift").table
    turn = moves.loc[moves["feature"] == "people's Elo", "turns_at"].iloc[0]
    before = Optimising(np.zeros(300), reward)
    grid = [(at.kl, at.q @ elo["elo"]) for at in before.tilts]
    highest = max(grid, key=lambda pair: pair[1])[0]
    assert highest / 2 <= turn <= highest * 2
    said = {result.name: result.headline for result in results}
    assert said["forecast_gold"].startswith(f"people's Elo turns at a KL of {turn:.1f} (r on")
    assert f"w{reward.argmax()} goes from 0.3% to" in said["forecast_tokens"]


def test_mitigation_that_substitutes_one_bias_for_another_shows_it():
    """Length is taken out of a reward that loves length and capitals. What an audit would look at,
    the reward's slope on length, is gone in both; in one of the two capitals take its place."""
    rng = np.random.default_rng(1)
    length, capital, taste = rng.normal(size=(3, 4000))
    known = {"length": length, "capital": capital}
    before = Optimising(0.1 * rng.normal(size=4000), length + taste)
    substituted = Optimising(before.log_p, 3 * length + 2 * capital + taste)
    changes = {}
    for name, one in {"mended": before, "substituted": substituted}.items():
        after = mitigated(one, known, {}, "without:length")
        table = drift(after, known, confidence=0.95).query("kl == 1").set_index("feature")
        assert abs(table["change"]["length"]) < 0.05  # the audit's score, the same in both
        changes[name] = table["change"]["capital"]
    assert abs(changes["mended"]) < 0.1
    assert changes["substituted"] > 1


def test_drift_of_the_reward_itself_and_its_interval():
    rng = np.random.default_rng(2)
    before = Optimising(0.3 * rng.normal(size=3000), rng.normal(size=3000))
    table = drift(before, {"same": before.reward}, confidence=0.95)
    at = table[table["kl"] == 1].iloc[0]
    assert at["change"] == pytest.approx(np.sqrt(2), rel=0.15)  # of a normal reward
    assert at["low"] < at["change"] < at["high"]
    assert at["best_of_n"] < at["change"]
    few = Optimising(np.zeros(40), rng.normal(size=40))
    assert drift(few, {"same": few.reward}, confidence=0.95)["low"].isna().all()


def with_directions(reward: np.ndarray) -> tuple[ScoreTable, ScoreTable, Options]:
    """A policy and a reward of states (names a gender, names a religion, taste, rest). Of 40 words
    of religion one half lies a little towards gender and the other away from it; the policy says
    the first half ten times as often."""
    rng = np.random.default_rng(0)
    texts = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(500)]
    states = 0.05 * rng.normal(size=(500, 4))
    states[:, 2:] *= 20
    states[:40, 2:] -= states[:40, 2:].mean(axis=0)
    states[:40, 0] += 1
    states[40:60, :2] += [0.5, 1]
    states[60:80] = -states[40:60]
    log_p = np.zeros(500)
    log_p[40:60] = np.log(10)
    held = pd.DataFrame(states.astype(np.float16), pd.Index(texts, dtype=object))
    scored = score_table(texts, states @ reward, model="r")
    scored = replace(scored, states=States(TRAINED, "r", 4, 1, held))
    axes = {"gender": texts[:40], "religion": texts[40:80]}
    identity = {name: SimpleNamespace(about="", source="", terms=t) for name, t in axes.items()}
    return policy(texts, log_p), scored, Options(identity=identity, policy="talker", meanings=None)


def audited(before: Optimising, terms: np.ndarray) -> float:
    """What an audit of a list of words looks at: mean reward of terms, less that of words that name
    nobody (the last 420), in their standard deviations."""
    ordinary = before.scores[80:]
    return (before.scores[terms == 1].mean() - ordinary.mean()) / ordinary.std()


def test_bias_that_a_projection_uncovers_shows_in_the_forecast_and_in_no_audit():
    """The reward dislikes gender, and likes the religion that is said by as much as it dislikes its
    share of gender. Over the list of words religion is liked alike before and after gender is
    projected out; what the policy becomes is not."""
    said, scored, options = with_directions(np.array([-2.0, 1.0, 0.5, 0.0]))
    found = forecast(said, scored, replace(options, mitigations=["null_space:gender"]))
    rows = joined(said, scored)
    known = features(rows, options)
    before = Optimising(rows["log_p"].to_numpy(), rows["reward"].to_numpy())
    after = mitigated(before, known, {}, "null_space:gender", scored.states.rows.to_numpy(float))
    gender, religion = known["terms of gender"], known["terms of religion"]
    assert audited(before, gender) < -1
    assert abs(audited(after, gender)) < 0.05
    assert audited(after, religion) == pytest.approx(audited(before, religion), abs=0.15)
    moves = found["forecast_mitigations"].set_index(["mitigation", "feature"])["change"]
    assert abs(moves["none"]["terms of religion"]) < 0.2
    assert moves["null_space:gender"]["terms of religion"] > 0.6
    both = mitigated(before, known, {}, "null_space:identity", scored.states.rows.to_numpy(float))
    assert abs(audited(both, gender)) < 0.05
    assert abs(audited(both, religion)) < 0.05
