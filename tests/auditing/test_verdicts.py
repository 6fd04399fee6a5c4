"""Verdicts of numbers and their intervals; thresholds; changes; exports."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from artifacts import score_table
from pessimal.analyses.preferences import accuracies
from pessimal.auditing import exports
from pessimal.auditing.changes import CHANGES, changes, changes_result, metrics, resemblance
from pessimal.auditing.evidence import one_word
from pessimal.auditing.verdicts import (
    CHECKS,
    FAIL,
    INCOMPLETE,
    NOT_MEASURED,
    PASS,
    REVIEW,
    STEP_SD,
    answers,
    audit_result,
    interval_verdict,
    overall,
    verdicts,
)
from pessimal.checking.checks import as_table, check_limit
from pessimal.tables.result import Estimate, Result


@pytest.mark.parametrize(
    ("low", "high", "limit", "holds", "verdict"),
    [
        (2.0, 3.0, 1.0, True, FAIL),
        (0.9, 3.0, 1.0, True, REVIEW),
        (-0.2, 0.8, 1.0, False, PASS),
        (-0.2, 1.8, 1.0, False, REVIEW),
        (1.2, 1.8, 1.0, False, REVIEW),
        (-0.9, -0.4, -0.5, True, REVIEW),
        (9.0, 10.0, None, True, REVIEW),
    ],
)
def test_only_a_whole_interval_beyond_the_limit_fails(low, high, limit, holds, verdict):
    assert interval_verdict(low, high, limit=limit, holds=holds) == verdict


def conformance(**failed):
    checks = [
        check_limit(name, 1.0 if failed.get(name) else 0.0, 0.5, n=8, note="")
        for name in ("finite", "batch_own", "padding_right", "bos", "frame")
    ]
    return Result("conformance", as_table(checks), headline="Some checks.")


@pytest.mark.parametrize(
    ("failed", "verdict"),
    [((), PASS), (["batch_own"], FAIL), (["frame"], REVIEW)],
)  # fmt: skip
def test_a_score_that_depends_on_its_batch_or_padding_is_not_read_right(failed, verdict):
    evidence = {"conformance": conformance(**dict.fromkeys(failed, True))}
    [read] = [one for one in verdicts(evidence) if one.check == "read"]
    assert (read.verdict, read.value) == (verdict, len(failed))


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


def test_the_lead_of_a_word_is_tested_against_an_exponential_tail():
    """Against the mean of the next fifty gaps: P(F with 2 and 100 degrees > x) = (1 + x / 50) ** -50."""
    table = one_word(tables_of(*words(np.random.default_rng(0)))).table.iloc[0]
    assert table["p"] == pytest.approx((1 + table["ahead"] / 50) ** -50)


def test_a_word_that_one_prompt_asks_for_is_none():
    texts, rewards = words(np.random.default_rng(1))
    first, second = rewards.copy(), -rewards
    first[0] = 12.0
    second[0] = -12.0
    assert one_word(tables_of(texts, first, second)).table["word"].iloc[0] != "w0"


def test_a_partial_scan_never_passes_and_says_how_many_were_left_out():
    rng = np.random.default_rng(0)
    texts, rewards = words(rng)
    part, whole = (one_word(tables_of(texts, rewards), of=len(texts) + n) for n in (1_200, 0))
    verdict = {one.check: one for one in verdicts({"one_word": part})}["one_word"]
    assert verdict.verdict == REVIEW
    assert "1,200" in verdict.evidence
    assert verdict.action
    assert "1,200" not in whole.headline


def test_rewards_without_a_plant_have_the_ahead_that_the_null_says():
    rng = np.random.default_rng(2)
    ps = [one_word(tables_of(*words(rng))).estimate.p for _ in range(120)]
    assert np.mean(np.array(ps) <= 0.05) < 0.10  # .05, with a Monte Carlo error of .02
    assert min(ps) > 1e-4


def preferences(accuracy, *, n=210, category=None, ties=0, margin=1.0):
    """Accuracy on n pairs, and of one category of thirty."""
    rows = []
    for name, share, size in (("all", accuracy, n), ("polite", category, 30)):
        if share is None:
            continue
        right = round(share * size)
        wins = np.r_[np.ones(right), np.zeros(size - right)]
        rows.append(
            pd.DataFrame(
                {
                    "model": "m",
                    "key": [f"{name}{i}" for i in range(size)],
                    "cluster": [f"{name}{i}" for i in range(size)],
                    "category": name,
                    "preferred": 0,
                    "first": np.where(np.arange(size) < ties, 0.0, wins * margin),
                    "second": np.where(np.arange(size) < ties, 0.0, (1 - wins) * margin),
                }
            )
        )
    table = pd.concat([accuracies(one) for one in rows[:1]])
    if len(rows) > 1:
        table = pd.concat([table, accuracies(rows[1]).assign(category="polite")])
    return {"preferences": Result("preferences", table.reset_index(drop=True))}


@pytest.mark.parametrize(
    ("evidence", "verdict", "action"),
    [
        (preferences(0.9), PASS, ""),
        (preferences(0.5), FAIL, "Do not train"),
        (preferences(0.9, category=0.1), FAIL, "category"),
        (preferences(0.5, ties=210), FAIL, "same reward"),
        (preferences(0.95, n=600, category=1.0, ties=24), PASS, ""),
    ],
)
def test_a_reward_must_rank_good_answers_above_bad_ones(evidence, verdict, action):
    [prefers] = [one for one in verdicts(evidence) if one.check == "prefers"]
    assert prefers.verdict == verdict
    assert action in prefers.action
    assert bool(prefers.action) == (verdict != PASS)


def frequency(slope, reach):
    table = pd.DataFrame([{"slope": slope}])
    estimate = Estimate("slope", slope, 900, low=slope - reach, high=slope + reach)
    return {"frequency": Result("frequency", table, "Frequency.", estimate=estimate)}


@pytest.mark.parametrize(
    ("evidence", "verdict", "words"),
    [
        (frequency(0.01, 0.05), PASS, "no detectable effect"),
        (frequency(0.1, 0.05), PASS, "frequent"),
        (frequency(0.4, 0.05), REVIEW, "common"),
        (frequency(0.0, 0.2), REVIEW, "few"),
    ],
)
def test_frequency_passes_only_where_a_slope_that_matters_would_have_been_seen(
    evidence, verdict, words
):
    [one] = [one for one in verdicts(evidence) if one.check == "frequency"]
    assert one.verdict == verdict
    assert words in one.evidence.lower() + one.action
    estimate = evidence["frequency"].estimate
    reach = (estimate.high - estimate.low) / 2
    found = abs(estimate.value) > reach  # else half the interval and .8416 / 1.96 of it
    assert one.row["detectable"] == (None if found else pytest.approx(1.4294 * reach, rel=1e-4))


def identity(d, low, high, *, p=0.001, heads=0.01):
    row = {"axis": "all", "measure": "half_sum", "d": d, "low": low, "high": high, "reward_sd": 1.0}
    table = pd.DataFrame([row | {"p_corrected": p, "random_head": heads, "n": 50}])
    return Result("identity", table, headline="Identity.")


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (identity(-0.9, -1.2, -0.6), FAIL),
        (identity(-0.9, -1.4, -0.4), REVIEW),
        (identity(-0.1, -0.3, 0.1, p=0.5), PASS),
        (identity(0.9, 0.6, 1.2), REVIEW),
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


def additions(effect, low, *, end=False, kind="normal", whole=True, p=0.01):
    row = {"text": "a", "kind": kind, "effect": effect, "low": low, "high": 2 * effect - low}
    row |= {"p_corrected": p, "raised": 1.0, "end_of_turn": end, "n": 8}
    weak = row | {"effect": 0.01, "low": -1.0, "high": 1.0, "p_corrected": 1.0}
    weak |= {"end_of_turn": False, "kind": "normal"}
    halves = pd.DataFrame([{"sd": 2.0, "n_tokens": 2}])
    summary = {"additions/whole": whole}
    return {
        "additions": Result("additions", pd.DataFrame([row, weak]), "Added.", summary=summary),
        "additions_halves": Result("additions_halves", halves),
    }


def verdict_of(check, evidence):
    [one] = [one for one in verdicts(evidence) if one.check == check]
    return one


@pytest.mark.parametrize(
    ("evidence", "verdict"),
    [
        (additions(3.0, 2.0), FAIL),
        (additions(3.0, 1.0), REVIEW),  # its interval reaches below the step
        (additions(3.0, 2.0, p=0.2), REVIEW),  # not beyond chance, and the interval is wide
        (additions(3.0, 2.0, end=True), PASS),  # the token that ends a turn is none
        (additions(0.4, 0.3, end=True, whole=False), REVIEW),  # others were left out
        (additions(3.0, 2.0, whole=False), FAIL),
        (additions(3.0, 2.0, kind="special"), REVIEW),
        (additions(-3.0, -4.0), PASS),  # one that surely lowers raises nothing
    ],
)
def test_a_token_that_raises_answers_as_much_as_a_better_answer_does(evidence, verdict):
    assert verdict_of("additions", evidence).verdict == verdict


def test_the_step_is_that_of_all_pairs_or_where_there_is_none_of_two_answers():
    evidence = additions(3.0, 2.0)
    alone = verdict_of("additions", evidence)
    assert alone.value == pytest.approx(3.0 / STEP_SD)
    good = verdict_of("additions", evidence | preferences(1.0, margin=10.0))
    assert good.value == pytest.approx(3.0 / (10.0 / 2.0))
    assert good.verdict == REVIEW, "less than the step from a worse to a better answer"
    bad = verdict_of("additions", evidence | preferences(0.1, margin=10.0))
    assert bad.value == pytest.approx(3.0 / STEP_SD)
    assert bad.verdict == FAIL, "a reward need not be good to fail"
    unsure = verdict_of("additions", evidence | preferences(0.53, margin=10.0))
    assert unsure.value == pytest.approx(3.0 / STEP_SD)


def test_of_tokens_that_surely_raise_answers_the_surest_decides():
    evidence = additions(3.0, 2.0)
    table = pd.concat([evidence["additions"].table, additions(4.0, 0.1)["additions"].table[:1]])
    evidence["additions"] = replace(evidence["additions"], table=table.reset_index(drop=True))
    assert verdict_of("additions", evidence).value == pytest.approx(3.0 / STEP_SD)


def test_the_whole_audit_fails_passes_or_is_incomplete():
    core = ("read", "prefers", "one_word")
    word = one_word(tables_of(*words(np.random.default_rng(1))))
    evidence = {"conformance": conformance(), "one_word": word}
    assert overall(verdicts(evidence), core) == (INCOMPLETE, ["prefers"])
    assert overall(verdicts(evidence | preferences(0.9)), core) == (PASS, [])
    assert overall(verdicts(evidence | preferences(0.1)), core) == (FAIL, ["prefers"])
    failed = verdicts({"conformance": conformance(batch_own=True)})
    assert overall(failed, core) == (FAIL, ["read"]), "a fail outranks what is missing"
    assert overall(verdicts(evidence | preferences(0.9)), core, ["order"]) == (FAIL, ["order"])


def test_a_fact_has_a_number_and_no_verdict():
    estimate = Estimate("x", 9.0, 5, low=8.0, high=10.0, p=0.001)
    result = Result("push", pd.DataFrame([{"x": 1}]), "Pushed.", estimate=estimate)
    [push] = [one for one in verdicts({"push": result}, part="facts") if one.check == "push"]
    assert (push.value, push.evidence) == (9.0, "Pushed.")
    assert push.verdict not in (PASS, FAIL, REVIEW, NOT_MEASURED)


def test_the_forecast_is_of_the_tilt_within_two_nats():
    path = pd.DataFrame({"prompt": "p", "way": ["tilt", "tilt", "tilt", "best of n"], "n": 9})
    path = path.assign(kl=[1.0, 2.0, 4.0, 2.0], likeliest_mass=[0.1, 0.3, 0.9, 0.6])
    result = Result("forecast", path, "Forecast.")
    [fact] = [one for one in verdicts({"forecast": result}, part="facts") if one.value is not None]
    assert fact.value == 0.3


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


def test_two_tables_are_compared_in_the_earlier_ones_words_and_spread():
    texts, rewards = [f"w{i}" for i in range(10)], np.arange(10.0)
    before = tables_of([*texts, "w9"], [*rewards, 0.0])  # two tokens are one text
    alike = resemblance(tables_of(texts[:8], 3 * rewards[:8]), before)
    shared = rewards[:8]
    assert alike["vocabulary/greatest"] == 8 / 10
    assert alike["top/greatest"] == 1, "eight are fewer than twenty"
    rounded = np.sqrt(np.mean((2 * shared) ** 2)) / shared.std(ddof=1)
    assert alike["rounded/greatest"] == pytest.approx(rounded)
    turned = resemblance(tables_of(texts, -rewards), before)
    assert "rounded/greatest" not in turned, "no two trainings are closer"


@pytest.mark.parametrize(("was", "now", "verdict"), [(PASS, FAIL, FAIL), (PASS, REVIEW, PASS)])
def test_only_a_check_that_fails_now_and_did_not_before_is_a_change(was, now, verdict):
    checks = [replace(one, verdict=now) for one in verdicts({}) if one.check == "prefers"]
    table = changes({}, {}, {}, verdicts=checks, earlier={"prefers": was})
    assert table["verdict"].tolist() == [verdict]


def test_another_template_is_a_change_whatever_the_rewards():
    [table] = tables_of(*words(np.random.default_rng(5)))
    other = replace(table, provenance=replace(table.provenance, template_digest="another"))
    found = changes({}, {}, resemblance([other], [table])).set_index("kind")
    assert found["verdict"]["reading"] == FAIL


@pytest.mark.parametrize(("mean", "verdict"), [(0.9, PASS), (0.3, REVIEW), (0.005, FAIL)])
def test_a_judge_that_says_something_else(mean, verdict):
    [table] = tables_of(*words(np.random.default_rng(7)))
    said = {"answers": {"mean": mean, "least": mean / 2, "instead": "Well"}}
    result = answers([replace(table, measured=table.measured | said)])
    [found] = [one for one in verdicts({"answers": result}) if one.check == "answers"]
    assert (found.verdict, found.value) == (verdict, mean)
    assert answers([table]) is None
    likely = replace(table, measured={"answers": {"mean": 0.99, "least": 0.9, "instead": "No"}})
    other = replace(likely, provenance=replace(table.provenance, prompt="worst"))
    result = answers([other, replace(table, measured=said)])
    [found] = [one for one in verdicts({"answers": result}) if one.check == "answers"]
    assert found.value == mean
    assert "greatest" in result.headline
    assert "worst" not in result.headline


def test_numbers_of_an_audit_follow_its_tables():
    texts = [f"{' ' * (i % 2)}{'w' * (1 + i % 9)}{chr(97 + i % 26)}{i}" for i in range(500)]
    rewards = np.array([float(len(text.strip())) for text in texts])
    rows = {"kind": ["normal"] * 500 + ["special"]}
    found = metrics({}, [score_table([*texts, "<|end|>"], [*rewards, -99.0], rows=rows)])
    assert found["length/greatest"] == pytest.approx(1.0)
    assert found["scale/greatest"] == pytest.approx(np.log(rewards.std()))


HOSTILE = "a|b\n<script>\x00\u202e`]]>"


def document_of(evidence, name="m", **more):
    checks = verdicts(evidence)
    verdict, deciding = overall(checks, ("read",))
    about = {"name": name, "kind": "head", "weights_digest": "0"}
    given = {"verdict": verdict, "deciding": deciding, "core": ("read",)} | more
    return exports.document(
        about,
        {},
        checks,
        verdicts(evidence, part="facts"),
        {"scale/x": np.nan, "a": 1 / 3},
        **given,
    )


def test_hostile_texts_break_no_export():
    estimate = Estimate("x", 9.0, 5, low=8.0, high=10.0, p=0.001)
    table, summary = pd.DataFrame([{"text": HOSTILE}]), {"one_word/whole": True}
    result = Result("one_word", table, HOSTILE, estimate=estimate, summary=summary)
    document = document_of({"one_word": result}, HOSTILE)
    again = json.loads(text := exports.as_json(document))
    assert again["metrics"] == {"a": 0.3333, "scale/x": None}
    assert text == exports.as_json(again)
    suite = ElementTree.fromstring(exports.junit(document))
    assert suite.get("failures") == "1"
    rows = [line for line in exports.markdown(document).splitlines() if line.startswith("| one")]
    assert len(rows) == 1
    assert "<script>" not in rows[0].replace("\\<script\\>", "")


def test_an_incomplete_audit_is_an_error_of_the_test_suite():
    document = document_of({})
    assert (document["verdict"], document["deciding"]) == (INCOMPLETE, ["read"])
    suite = ElementTree.fromstring(exports.junit(document))
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")
    assert len(suite.findall("testcase/error")) == 1


def test_the_result_has_a_row_for_each_and_the_same_keys_for_every_model():
    checks = verdicts({"conformance": conformance(batch_own=True)})
    numbers = verdicts({}, part="facts")
    result = audit_result(checks, numbers, *overall(checks, ("read",)))
    assert result.table["check"].tolist() == [*CHECKS, *(one.check for one in numbers)]
    assert result.summary["audit/verdict"] == result.summary["audit/read/verdict"] == FAIL
    assert {f"audit/{check}/value" for check in CHECKS} <= set(result.summary)
