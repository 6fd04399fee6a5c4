"""Pairs to train on: labelled by the edit's direction, readable by TRL and by ourselves, whatever the texts hold."""

import json

import pandas as pd
import pytest

from pessimal.errors import ConfigError, TableError
from pessimal.explain.comparison import Comparison, Turn
from pessimal.explain.preferences import Which, as_lines, preference_pairs
from pessimal.explain.sources import read_jsonl

TALK = (Turn("user", "hi"), Turn("assistant", "hello"), Turn("user", "q"))
COMPARISONS = [Comparison("k", TALK, ("long answer", "short")), Comparison("k2", TALK[:1], ("x", "y"))]


def outcome(**changes):
    """A counterfactual of the chosen response (reward 2 against 1), worsened to 0.5."""
    row = {
        **{"model": "m", "comparison": "k", "response": 0, "side": "chosen", "attribute": "clarity"},
        **{
            "direction": "worse",
            "seed": 0,
            "perturber": "rules",
            "status": "changed",
            "original": "long answer",
        },
        **{"edited": "long, er, answer", "spans": None, "note": "", "reward": 2.0, "new_reward": 0.5},
        **{"margin": 1.0, "new_margin": -0.5, "change": -1.5, "change_in_sd": -1.5, "outcome": "CF"},
        **{"syntactic": 0.3, "semantic": 0.1, "locality": float("nan"), "complied": True},
    }
    return {**row, **changes}


def table(*rows):
    return pd.DataFrame(list(rows)).astype({"complied": object})


REJECTED = {
    **{
        "response": 1,
        "side": "rejected",
        "direction": "better",
        "original": "short",
        "edited": "short but sweet",
    },
    **{"reward": 1.0, "new_reward": 2.5},
}
AGAINST = {"edited": "long long answer", "new_reward": 2.5, "new_margin": 1.5, "change": 0.5, "outcome": "SF"}


def only(pair_or_pairs):
    [pair] = pair_or_pairs.pairs
    return pair


def test_of_a_worsened_response_the_original_is_chosen():
    pair = only(preference_pairs(table(outcome()), COMPARISONS))
    assert pair["prompt"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "q"},
    ]
    assert pair["chosen"] == [{"role": "assistant", "content": "long answer"}]
    assert pair["rejected"] == [{"role": "assistant", "content": "long, er, answer"}]
    assert (pair["margin_before"], pair["margin_after"], pair["attribute"]) == (1.0, -0.5, "clarity")
    assert (pair["reward_original"], pair["reward_edited"], pair["model_agrees"]) == (2.0, 0.5, True)
    assert (pair["complied"], pair["outcome"], pair["model"]) == (True, "CF", "m")


def test_of_a_bettered_response_the_edited_one_is_chosen():
    pair = only(preference_pairs(table(outcome(**REJECTED)), COMPARISONS))
    assert pair["chosen"][0]["content"] == "short but sweet"
    assert pair["rejected"][0]["content"] == "short"
    assert pair["model_agrees"] is True


def test_no_column_is_taken_for_a_margin_of_the_loss():
    """TRL's RewardTrainer subtracts a column "margin" from the difference of rewards."""
    assert "margin" not in only(preference_pairs(table(outcome()), COMPARISONS))


def test_which_perturbations_become_pairs():
    rows = table(
        outcome(),
        outcome(**AGAINST),
        outcome(edited="same worth", new_reward=2.0, outcome="SF"),
        outcome(edited="holds", new_reward=1.9, outcome="SF"),
        outcome(**REJECTED),
        outcome(**{**REJECTED, "edited": "shorter", "new_reward": 0.5, "outcome": "SF"}),
        outcome(edited="tied", new_reward=1.0, outcome="tie"),
        outcome(attribute="placebo", edited="lengthy answer"),
        outcome(edited=None, new_reward=float("nan"), outcome=None),
    )

    def edits(which):
        pairs = preference_pairs(rows, COMPARISONS, which=which).pairs
        return [
            (pair["rejected"] if pair["direction"] == "worse" else pair["chosen"])[0]["content"]
            for pair in pairs
        ]

    assert edits(Which.counterfactuals) == ["long, er, answer", "short but sweet"]
    assert edits(Which.against) == ["long long answer", "shorter"]
    assert edits(Which.both) == ["long, er, answer", "long long answer", "short but sweet", "shorter"]
    against = preference_pairs(rows, COMPARISONS, which=Which.against).pairs
    assert [pair["model_agrees"] for pair in against] == [False, False]


def test_only_edits_that_complied_unless_all_are_asked_for():
    rows = table(outcome(), outcome(edited="b", complied=False), outcome(edited="c", complied=None))
    some = preference_pairs(rows, COMPARISONS)
    assert (len(some.pairs), some.not_complied) == (1, 2)
    every = preference_pairs(rows, COMPARISONS, complied_only=False)
    assert [pair["complied"] for pair in every.pairs] == [True, False, None]
    assert every.not_complied == 0
    unjudged = table(outcome(complied=None))
    with pytest.raises(ConfigError, match="no judge"):
        preference_pairs(unjudged, COMPARISONS)
    assert len(preference_pairs(unjudged, COMPARISONS, complied_only=False).pairs) == 1


def test_a_pair_stands_once_and_each_model_for_itself():
    rows = table(
        outcome(),
        outcome(attribute="coherence"),
        outcome(comparison="k2", original="x"),
        outcome(model="n", new_reward=0.25),
    )
    found = preference_pairs(rows, COMPARISONS, model="m")
    assert [(pair["comparison"], pair["attribute"]) for pair in found.pairs] == [
        ("k", "clarity"),
        ("k2", "clarity"),
    ]
    assert found.duplicates == 1
    assert only(preference_pairs(rows, COMPARISONS, model="n"))["reward_edited"] == 0.25
    with pytest.raises(ConfigError, match="several models; name one of m, n"):
        preference_pairs(rows, COMPARISONS)
    with pytest.raises(ConfigError, match="no model 'o'"):
        preference_pairs(rows, COMPARISONS, model="o")


def test_tables_that_do_not_fit_are_refused():
    with pytest.raises(TableError, match="lacks the columns complied"):
        preference_pairs(table(outcome()).drop(columns="complied"), COMPARISONS)
    with pytest.raises(TableError, match="'k'"):
        preference_pairs(table(outcome()), COMPARISONS[1:])
    assert preference_pairs(table(outcome())[:0], COMPARISONS).pairs == ()


def test_what_is_written_is_read_again(tmp_path):
    rows = table(outcome(), outcome(**REJECTED), outcome(attribute="coherence", edited="?"))
    pairs = preference_pairs(rows, COMPARISONS).pairs
    (tmp_path / "pairs.jsonl").write_text(as_lines(pairs), encoding="ascii", newline="\n")
    found = read_jsonl(tmp_path / "pairs.jsonl")
    assert [one.responses for one in found] == [
        ("long answer", "long, er, answer"),
        ("short but sweet", "short"),
        ("long answer", "?"),
    ]
    assert all(one.turns == TALK and one.preferred == 0 for one in found)
    assert [one.key for one in found] == [pair["key"] for pair in pairs]


def test_hostile_texts_survive_the_file(tmp_path):
    texts = [
        "a\u2028b\u2029c",
        "\x00",
        "<script>",
        "\r\n",
        '"}\n{"',
        "👨\u200d👩\u200d👧",
        "明天",
        " ",
        "x" * 100_000,
    ]
    rows = table(*(outcome(edited=text, seed=seed) for seed, text in enumerate(texts)))
    path = tmp_path / "pairs.jsonl"
    path.write_text(as_lines(preference_pairs(rows, COMPARISONS).pairs), encoding="ascii", newline="\n")
    content = path.read_bytes()
    assert content.isascii()
    assert len(content.splitlines()) == len(texts)
    assert [one.responses[1] for one in read_jsonl(path)] == texts
    half = table(outcome()).astype(object)  # a pandas column of texts cannot hold half a character
    half.loc[0, "edited"] = "\ud800 half"
    path.write_text(as_lines(preference_pairs(half, COMPARISONS).pairs), encoding="ascii", newline="\n")
    assert json.loads(path.read_text())["rejected"][0]["content"] == "\ud800 half"
    assert read_jsonl(path)[0].responses[1] == "\\ud800 half"
