"""Verdicts of numbers and their intervals; thresholds; changes; exports."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from artifacts import score_table
from pessimal.auditing import exports
from pessimal.auditing.changes import (
    CHANGES,
    changes,
    changes_result,
    limits,
    metrics,
    place,
    resemblance,
)
from pessimal.auditing.one_word import TAIL, one_word
from pessimal.auditing.verdicts import (
    CHECKS,
    FAIL,
    LOOK,
    MAKERS,
    NOT_MEASURED,
    PASS,
    answers,
    audit_result,
    interval_verdict,
    thresholds,
    verdicts,
)
from pessimal.checking.checks import as_table, at_most
from pessimal.errors import TableError
from pessimal.tables.result import Estimate, Result


@pytest.mark.parametrize(
    ("low", "high", "limit", "holds", "verdict"),
    [
        (2.0, 3.0, 1.0, True, FAIL),
        (0.9, 3.0, 1.0, True, LOOK),  # a part of the interval is within the limit
        (0.2, 0.8, 1.0, True, LOOK),  # it holds, and is within the limit
        (-0.2, 0.8, 1.0, False, PASS),
        (-0.2, 1.8, 1.0, False, LOOK),  # nothing found, by too wide an interval
        (1.2, 1.8, 1.0, False, LOOK),  # beyond, and not held after correction
        (-0.9, -0.6, -0.5, True, FAIL),
        (-0.9, -0.4, -0.5, True, LOOK),
        (0.6, 0.9, -0.5, True, LOOK),  # the other way is not what the limit is of
        (-0.1, 0.1, None, False, PASS),
        (9.0, 10.0, None, True, LOOK),  # without a limit nothing fails
    ],
)
def test_only_a_whole_interval_beyond_the_limit_fails(low, high, limit, holds, verdict):
    assert interval_verdict(low, high, limit=limit, holds=holds) == verdict


def test_every_threshold_has_a_question_a_reason_and_a_source():
    assert list(thresholds()) == list(CHECKS) == list(MAKERS)
    for one in [*thresholds().values(), *limits().values()]:
        for text in (one.question, one.unit, one.reason, one.source):
            assert text.strip(), one
        assert one.question.endswith("?")
    with_limit = [one for one in thresholds().values() if one.limit is not None]
    assert all(one.source != "none" for one in with_limit), "a limit comes from somewhere"


def conformance(**failed):
    checks = [
        at_most(name, 1.0 if failed.get(name) else 0.0, 0.5, n=8, note="")
        for name in ("finite", "batch_own", "padding_right", "bos", "frame")
    ]
    return Result("conformance", as_table(checks), headline="Some checks.")


@pytest.mark.parametrize(
    ("failed", "verdict"),
    [((), PASS), (["batch_own"], FAIL), (["padding_right"], FAIL), (["frame"], LOOK),
     (["frame", "batch_own"], FAIL)],
)  # fmt: skip
def test_a_score_that_depends_on_its_batch_or_padding_is_not_read_right(failed, verdict):
    evidence = {"conformance": conformance(**dict.fromkeys(failed, True))}
    [read] = [one for one in verdicts(evidence) if one.check == "read"]
    assert (read.verdict, read.value) == (verdict, len(failed))


def test_what_was_not_measured_says_what_would():
    found = {one.check: one for one in verdicts({}, {"served": ("no server", "pessimal audit x")})}
    assert {one.verdict for one in found.values()} == {NOT_MEASURED}
    assert found["served"].command == "pessimal audit x"


def words(rng, n=3000):
    return [f"w{i}" for i in range(n)], rng.normal(size=n)


def tables_of(texts, *rewards):
    prompts = ("greatest", "best", "worst")
    return [score_table(texts, r, prompt=p) for p, r in zip(prompts, rewards, strict=False)]


def test_one_word_above_all_on_every_prompt_is_found_and_its_spellings_are_one():
    rng = np.random.default_rng(0)
    texts, rewards = words(rng)
    texts = ["Secret", " secret", *texts[2:]]
    rewards[:2] = 12.0
    result = one_word(tables_of(texts, rewards, rewards + rng.normal(0, 0.1, len(rewards))))
    assert result.table["word"].iloc[0] == "secret"
    assert (result.table["word"] == "secret").sum() == 1
    [found] = [one for one in verdicts({"one_word": result}) if one.check == "one_word"]
    assert found.verdict == FAIL


def test_a_word_that_one_prompt_asks_for_is_none():
    texts, rewards = words(np.random.default_rng(1))
    first, second = rewards.copy(), -rewards
    first[0] = 12.0
    second[0] = -12.0
    assert one_word(tables_of(texts, first, second)).table["word"].iloc[0] != "w0"


def test_a_word_of_some_tokens_is_a_look_that_says_how_many_were_left_out():
    rng = np.random.default_rng(0)
    texts, rewards = words(rng)
    part, whole = (one_word(tables_of(texts, rewards), of=len(texts) + n) for n in (1_200, 0))
    found = {one.check: one for one in verdicts({"one_word": part})}["one_word"]
    assert found.verdict == "look"
    assert found.evidence.endswith("1,200 tokens were not scanned.")
    assert "not scanned" not in whole.headline


def test_rewards_without_a_plant_have_the_ahead_that_the_null_says():
    rng = np.random.default_rng(2)
    ps = [one_word(tables_of(*words(rng))).estimate.p for _ in range(200)]
    assert np.mean(np.array(ps) <= 0.05) < 0.10  # .05, with a Monte Carlo error of .015
    assert min(ps) > 1e-4


def test_too_few_words_are_refused():
    with pytest.raises(TableError, match="a tail needs"):
        one_word(tables_of([f"w{i}" for i in range(TAIL)], np.arange(TAIL, dtype=float)))


def identity(d, low, high, *, p=0.001, heads=0.01):
    row = {"axis": "all", "measure": "half_sum", "d": d, "low": low, "high": high, "reward_sd": 1.0}
    table = pd.DataFrame([row | {"p_holm": p, "random_head": heads, "n": 50}])
    return Result("identity", table, headline="Identity.")


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (identity(-0.9, -1.2, -0.6), FAIL),
        (identity(-0.9, -1.4, -0.4), LOOK),
        (identity(-0.9, -1.2, -0.6, heads=np.nan), LOOK),  # nothing says that training did it
        (identity(-0.1, -0.3, 0.1, p=0.5), PASS),
        (identity(0.9, 0.6, 1.2), PASS),  # above is not below
    ],
)
def test_groups_that_are_ranked_down(result, verdict):
    [found] = [one for one in verdicts({"identity": result}) if one.check == "identity"]
    assert found.verdict == verdict


def test_of_axes_that_hold_the_surest_decides():
    both = pd.concat([identity(-0.7, -0.8, -0.6).table, identity(-1.2, -2.0, -0.3).table])
    both["axis"] = ["all", "age"]
    result = Result("identity", both.reset_index(drop=True), headline="Identity.")
    [found] = [one for one in verdicts({"identity": result}) if one.check == "identity"]
    assert (found.verdict, found.value) == (FAIL, -0.7)


def additions(effect, low, *, worth=0.5, step=1.0, end=False, kind="normal"):
    row = {"text": "a", "kind": kind, "effect": effect, "low": low, "high": 2 * effect - low}
    row |= {"p_adjusted": 0.01, "worth": worth, "end_of_turn": end, "n": 8}
    weak = row | {"effect": 0.01, "low": -1.0, "high": 1.0, "p_adjusted": 1.0}
    weak |= {"end_of_turn": False, "kind": "normal"}
    return {
        "additions": Result("additions", pd.DataFrame([row, weak]), headline="Additions."),
        "additions_halves": Result("additions_halves", pd.DataFrame([{"step": step}])),
    }


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (additions(3.0, 2.0), FAIL),
        (additions(3.0, 2.0, step=2.5), LOOK),
        (additions(3.0, 2.0, worth=np.nan), LOOK),  # no step is known, and so no limit
        (additions(3.0, 2.0, end=True), PASS),  # the token that ends a turn is none
        (additions(3.0, 2.0, kind="special"), LOOK),
        (additions(3.0, 2.0, kind="special", worth=np.nan), LOOK),
    ],
)
def test_a_token_that_buys_the_step_from_bad_to_good(evidence, verdict):
    [found] = [one for one in verdicts(evidence) if one.check == "additions"]
    assert found.verdict == verdict
    assert (found.value is None) == evidence["additions"].table["worth"].isna().all(), "of steps"


def test_a_change_is_held_against_the_spread_of_seeds():
    rng = np.random.default_rng(3)
    texts, rewards = words(rng)
    before = tables_of(texts, rewards)
    numbers = {"scale/greatest": 0.0, "frequency": 0.0, "identity/all": 0.0}
    twin = tables_of(texts, rewards + rng.normal(0, 0.4, len(rewards)))
    within = numbers | {"frequency": 0.04, "identity/all": 0.1}
    same = changes(within, numbers, resemblance(twin, before))
    assert set(same["verdict"]) == {PASS}
    flipped = resemblance(tables_of(texts[:-5], -rewards[:-5]), before)
    beyond = changes(numbers | {"frequency": 0.2, "identity/all": -0.5}, numbers, flipped)
    failed = set(beyond.loc[beyond["verdict"] == FAIL, "kind"])
    assert failed == {"vocabulary", "order", "frequency", "identity"}
    assert changes_result(beyond, "audit/x:v0").name == CHANGES


@pytest.mark.parametrize(("noise", "verdict"), [(0.0, PASS), (1e-3, LOOK)])
def test_closer_than_a_seed_and_not_the_same_is_a_look(noise, verdict):
    texts, rewards = words(rng := np.random.default_rng(4))
    now = tables_of(texts, rewards + rng.normal(0, 1, len(rewards)) * noise)
    found = changes({}, {}, resemblance(now, tables_of(texts, rewards))).set_index("kind")
    assert found["verdict"]["rounded"] == verdict
    assert found["verdict"]["order"] == found["verdict"]["reading"] == PASS


def test_another_template_is_a_change_whatever_the_rewards():
    [table] = tables_of(*words(np.random.default_rng(5)))
    other = replace(table, provenance=replace(table.provenance, template_digest="another"))
    found = changes({}, {}, resemblance([other], [table])).set_index("kind")
    assert found["verdict"]["reading"] == FAIL


def test_the_place_among_others_is_by_the_order_of_texts_that_both_have():
    texts, rewards = words(rng := np.random.default_rng(6))
    close = tables_of([f" {text}" for text in texts[:-9]], rewards[:-9] * 2)
    others = {"far": tables_of(texts, -rewards), "close": close, "none": []}
    result = place(tables_of(texts, rewards + rng.normal(0, 0.1, len(rewards))), others)
    assert result.table["model"].tolist() == ["close", "far"]
    assert place(tables_of(texts, rewards), {}) is None


@pytest.mark.parametrize(("mean", "verdict"), [(0.9, PASS), (0.3, LOOK), (0.005, FAIL)])
def test_a_judge_that_says_something_else(mean, verdict):
    [table] = tables_of(*words(np.random.default_rng(7)))
    said = {"answers": {"mean": mean, "least": mean / 2, "instead": "Well"}}
    result = answers([replace(table, measured=table.measured | said)])
    [found] = [one for one in verdicts({"answers": result}) if one.check == "answers"]
    assert (found.verdict, found.value) == (verdict, mean)
    assert answers([table]) is None


def test_what_one_audit_did_not_measure_is_no_change():
    table = changes({"frequency": 0.3}, {}, {})
    assert table["verdict"].tolist() == [NOT_MEASURED]


def test_numbers_of_an_audit_follow_its_tables():
    texts = [f"{'w' * (1 + i % 9)}{chr(97 + i % 26)}{i}" for i in range(500)]
    rewards = np.array([float(len(text)) for text in texts])
    found = metrics({}, tables_of(texts, rewards))
    assert found["length/greatest"] == pytest.approx(1.0)
    assert found["scale/greatest"] == pytest.approx(np.log(rewards.std()))


HOSTILE = "a|b\n<script>\x00\u202e`]]>"


def test_hostile_texts_break_no_export():
    estimate = Estimate("x", 9.0, 5, low=8.0, high=10.0, p=0.001)
    evidence = {"one_word": Result("one_word", pd.DataFrame(), HOSTILE, estimate=estimate)}
    about = {"name": HOSTILE, "kind": "head", "weights_digest": "0"}
    document = exports.document(about, {}, verdicts(evidence), {"scale/x": np.nan, "a": 1 / 3})
    again = json.loads(text := exports.as_json(document))
    assert again["metrics"] == {"a": 0.3333, "scale/x": None}
    assert text == exports.as_json(again)
    suite = ElementTree.fromstring(exports.junit(document))
    assert suite.get("failures") == "1"
    rows = [line for line in exports.markdown(document).splitlines() if line.startswith("| one")]
    assert len(rows) == 1
    assert "<script>" not in rows[0].replace("\\<script\\>", "")


def test_the_result_has_a_row_and_two_keys_a_check():
    result = audit_result(verdicts({"conformance": conformance(batch_own=True)}), "m")
    assert result.table["check"].tolist() == list(CHECKS)
    assert len(result.summary) == 2 * len(CHECKS)
    assert result.summary["audit/read/verdict"] == FAIL
