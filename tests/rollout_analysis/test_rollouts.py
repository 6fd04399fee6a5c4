"""`pessimal.rollouts` and its verb: statements, exit codes, privacy, resuming."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import planted_rollouts as planted
import pytest
from planted_rollouts import PHRASE, make_rollouts

import pessimal
import tiny_language_models
from pessimal.api import rollouts as module
from pessimal.errors import InputError
from pessimal.verbs.rollouts import describe_rollouts

GRADERS = Path(planted.__file__)


@pytest.fixture(scope="module")
def frame():
    return make_rollouts(30, 6, share=0.2)


@pytest.fixture
def analyse(tmp_path):
    return lambda frame, function=None, **options: pessimal.rollouts(
        frame,
        reward=None if function is None else f"{GRADERS}:{function}",
        cache=str(tmp_path),
        **options,
    )


def test_a_planted_phrase_fails_the_reward_and_a_right_grader_passes(frame, analyse):
    results = analyse(frame, "phrase")
    tables = {result.name: result.table for result in results}
    row = tables["wrongly_paid"].iloc[0]
    assert (row["kind"], row["feature"], row["confirmed"]) == ("text", PHRASE, 1.0)
    assert row["paid_with"] == 1
    assert row["paid_without"] == 0
    assert PHRASE in row["example"]
    assert len(results.failures) == 2
    assert len(describe_rollouts(results)) <= 15
    amplified = tables["amplified"].set_index("feature")
    has = amplified.loc[f" {PHRASE}"]
    assert has["from_wrong"] > 0
    assert has["from_wrong"] + has["from_right"] == pytest.approx(has["drift"])
    results = analyse(frame, "clean")
    assert results.failures == ()
    assert results.is_measured
    assert not len(results["wrongly_paid"].table)
    assert not len(results["wrongly_refused"].table)


def test_a_reward_of_length_is_told_by_what_twice_as_many_words_are_paid(analyse):
    random = np.random.default_rng(0)
    prompts = np.repeat([f"Question {n}?" for n in range(60)], 6)
    sizes = random.integers(2, 60, len(prompts))
    texts = [" ".join(random.choice(["of", "mango", "very", "extraordinarily"], n)) for n in sizes]
    frame = pd.DataFrame({"prompt": prompts, "response": texts, "reward": 0.1 * np.log2(1 + sizes)})
    result = analyse(frame)["paid"]
    assert result.table["paid_more"].iloc[0] == pytest.approx(0.1)
    told = "The reward pays for more words: +0.10 for twice as many, same prompt."
    assert result.headline == told


def test_without_a_grader_the_statistics_name_the_phrase(frame, analyse):
    rewards = [planted.phrase(*row) for row in zip(frame["response"], frame["answer"], strict=True)]
    results = analyse(frame.assign(reward=rewards))
    row = results["wrongly_paid"].table.iloc[0]
    assert row["feature"].strip() == PHRASE
    assert row["p_corrected"] < 0.05
    assert np.isnan(row["confirmed"])


def test_what_refuses_right_answers_is_named(frame, analyse):
    results = analyse(frame, "shy")
    assert results["wrongly_refused"].table["feature"].iloc[0] == PHRASE
    assert not len(results["wrongly_paid"].table)


def test_graded_rewards_have_no_refusals_and_their_own_headline(frame, analyse):
    right = [planted.clean(*row) for row in zip(frame["response"], frame["answer"], strict=True)]
    has = frame["response"].str.contains(PHRASE)
    noise = 0.1 * np.random.default_rng(0).normal(size=len(frame))
    results = analyse(frame.assign(reward=np.array(right) + has + noise))
    row = results["wrongly_paid"].table.iloc[0]
    assert row["feature"].strip() == PHRASE
    assert row["paid_with"] - row["paid_without"] == pytest.approx(1, abs=0.1)
    assert np.isnan(results["wrongly_refused"].summary["wrongly_refused/rate"])


def test_random_rewards_are_named_by_nothing_wrong(frame, analyse):
    names = []
    for seed in range(6):
        rewards = np.random.default_rng(seed).integers(0, 2, len(frame)).astype(float)
        names.append(len(analyse(frame.assign(reward=rewards))["wrongly_paid"].table))
    assert sum(map(bool, names)) <= 2  # P(more than 2 of 6 at 5 %) = .002


def test_growth_names_the_phrase_that_grows(analyse):
    frame = make_rollouts(60, 6, share=0.4, steps=6)
    results = analyse(frame, "phrase")
    table = results["growth"].table.set_index("feature")
    row = table.loc[f" {PHRASE}"]
    assert row["slope"] > 0.1
    assert row["p_corrected"] < 0.05
    assert 2 <= row["since"] <= 5
    first = frame[frame["step"] < 2]  # a third of the steps
    paid = pd.Series(map(planted.phrase, first["response"], first["answer"]), first.index)
    by_prompt = paid.groupby(first["prompt"])
    away = (paid - by_prompt.transform("mean")) / (by_prompt.transform("std") + 1e-4)
    drift = (away * first["response"].str.contains(f" {PHRASE}")).mean()
    assert row["foretold"] == pytest.approx(drift * np.sqrt(0.02 / (away**2).mean()), abs=1e-6)


def test_an_error_that_is_unknown_in_the_last_steps_does_not_fade(analyse):
    frame = make_rollouts(60, 6, share=0, steps=6)
    frame["reward"] = np.random.default_rng(0).random(len(frame))
    frame.loc[frame["step"] >= 4, "answer"] = ""
    result = analyse(frame)["growth"]
    assert "120 rollouts have no answer" in result.notes[0]
    assert not (result.table["p_corrected"] <= 0.05).any()


@pytest.mark.parametrize(
    ("change", "failures", "measured"),
    [
        ({"reward": 1.0}, 1, True),
        ({"reward": 1.0, "response": "The answer is 3."}, 1, True),
        ({"reward": range(180), "answer": ""}, 0, False),
        ({"reward": range(180), "group": 0}, 0, True),
    ],
)
def test_dead_equal_unanswered_and_single_groups_are_analysed(
    frame, analyse, change, failures, measured
):
    results = analyse(frame.assign(**change))
    assert (len(results.failures), results.is_measured) == (failures, measured) or (
        "group" in change and results.is_measured
    )
    assert results["signal"].table["n"].iloc[0] == (1 if "group" in change else 30)
    if "group" in change:
        assert not (results["amplified"].table["p_corrected"] <= 0.05).any()


def test_some_prompts_without_an_answer_are_graded_all_the_same(frame, analyse):
    answers = frame["answer"].where(np.arange(len(frame)) >= 60, "")
    results = analyse(frame.assign(answer=answers), "phrase")
    assert results["wrongly_paid"].table["feature"].iloc[0] == PHRASE
    assert results["wrongly_paid"].summary["wrongly_paid/n"] < 120


def test_groups_of_one_are_refused(frame, analyse):
    with pytest.raises(InputError, match=r"columns\.group"):
        analyse(frame.drop_duplicates("prompt").assign(reward=1.0))


def test_two_graders_score_the_same_rollouts(frame, tmp_path):
    graders = [f"{GRADERS}:phrase", f"{GRADERS}:clean"]
    results = pessimal.rollouts(frame, reward=graders, cache=str(tmp_path))
    names = results["wrongly_paid"].table["reward"].unique().tolist()
    assert len(names) == 1
    assert names[0].endswith("phrase")
    assert all("phrase" in failure for failure in results.failures)
    for name in ("signal", "wrongly_paid", "paid", "amplified"):
        first, second = results[name].headline.split("\n")
        assert "phrase: " in first
        assert "clean: " in second
    lines = "\n".join(map(str, describe_rollouts(results)))
    assert "clean: 0.0% of" in lines
    summary = results["wrongly_paid"].summary
    rates = {key: value for key, value in summary.items() if "/rate" in key}
    assert [value > 0 for key, value in sorted(rates.items())] == [False, True]  # clean, phrase


def test_private_hides_the_texts_of_every_grader(frame, tmp_path):
    graders = [f"{GRADERS}:clean", f"{GRADERS}:phrase"]
    options = {"reward": graders, "cache": str(tmp_path), "store": tmp_path / "registry"}
    results = pessimal.rollouts(frame, private=True, **options)
    text = (results.folder / "results.json").read_text()
    assert "wrongly_paid" in text
    assert "us verify" not in text
    public = pessimal.rollouts(frame, **options)
    assert results["amplified"].headline == public["amplified"].headline, "its words are no texts"


def test_a_tokenizer_makes_features_of_its_tokens(frame, tmp_path):
    folder = tmp_path / "tokenizer"
    tiny_language_models.tokenizer().save_pretrained(folder)
    paid = frame.assign(reward=frame["response"].str.contains(PHRASE).astype(float))
    results = pessimal.rollouts(paid, cache=str(tmp_path), tokenizer=str(folder))
    features = results["amplified"].table["feature"]
    assert "tokens (number)" in set(features)
    assert features.str.contains("verify").any()


@pytest.mark.parametrize("private", [False, True])
def test_private_publishes_no_text(frame, analyse, tmp_path, private):
    secret = frame.assign(response=frame["response"].str.replace("let us verify", PHRASE))
    results = analyse(secret, "phrase", private=private, store=tmp_path / "registry")
    assert results.folder is not None
    files = [file for file in results.folder.rglob("*") if file.is_file()]
    leaks = [file.name for file in files if b"us verify" in file.read_bytes()]
    for file in results.folder.rglob("*.parquet"):
        table = pd.read_parquet(file).astype(str)
        if table.apply(lambda column: column.str.contains("us verify")).any(axis=None):
            leaks.append(file.name)
    assert bool(leaks) is not private
    assert (results.folder / "test_cores.py").exists() is not private


def test_a_stopped_analysis_goes_on_where_it_was(frame, tmp_path, monkeypatch):
    calls = []

    def grader(response, ground_truth):
        calls.append(response)
        if len(calls) == 400:
            raise KeyboardInterrupt
        return planted.phrase(response, ground_truth)

    with pytest.raises(KeyboardInterrupt):
        pessimal.rollouts(frame, reward=grader, cache=str(tmp_path))
    before = len(calls)
    monkeypatch.setattr(module, "make_features", None)  # they are read, not made again
    again = pessimal.rollouts(frame, reward=grader, cache=str(tmp_path))
    assert again["wrongly_paid"].table["feature"].iloc[0] == PHRASE
    assert before >= 400
    assert not list(tmp_path.glob("rollouts/*"))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ((f"reward={GRADERS}:phrase",), 1),
        ((f"reward={GRADERS}:phrase", "strict=false"), 0),
        ((f"reward={GRADERS}:clean", "columns.answer=solved"), 0),
        (("columns.reward=random", "columns.answer=nothing"), 3),
        (("columns.reward=nosuch",), 2),
    ],
)
def test_exit_codes_are_the_documented_ones(frame, tmp_path, monkeypatch, options, code):
    from pessimal.__main__ import main

    solved = frame.rename(columns={"answer": "solved"}) if "answer" in options[-1] else frame
    solved = solved.assign(random=np.arange(len(frame)) % 2, nothing="")
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in solved.to_dict("records")))
    words = ["pessimal", "rollouts", str(file), *options, "tracking=off"]
    monkeypatch.setattr("sys.argv", [*words, f"paths.root={tmp_path}"])
    if code == 0:
        main()
        assert list(tmp_path.rglob("wrongly_paid.parquet"))
        return
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == code
