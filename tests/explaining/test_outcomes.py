"""Outcomes: margins, sides and flips of texts whose rewards are set by hand; and the tables the
neighbouring tests use."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from pessimal.errors import TableError
from pessimal.explaining.attribute import Attribute
from pessimal.explaining.outcomes import (
    COLUMNS,
    against_polarity,
    as_lines,
    outcome_of,
    outcomes,
    preference_pairs,
    requests_for,
)
from pessimal.explaining.perturbers import Perturbation, Request, Status
from pessimal.tables.comparisons import Comparison, Turn, read_jsonl

LENGTH = Attribute("length", "It is long.", 1)
TONE = Attribute("tone", "It is kind.", 1)


def made(rows: list[dict]) -> pd.DataFrame:
    """A table of outcomes from what differs: comparison, attribute, change (in reward; its SD is 1)
    and whatever else."""
    usual = {
        "model": "m",
        "perturber": "rules",
        "side": "chosen",
        "seed": 0,
        "margin": 1.0,
        "tie": 0.0,
        "status": "changed",
        "syntactic": math.nan,
        "semantic": math.nan,
        "locality": math.nan,
        "complied": None,
        "preferred": 0,
    }
    whole = []
    for given in rows:
        row = usual | given
        new_margin = row["margin"] + row.get("change", math.nan)
        text = None if math.isnan(new_margin) else f"{row['attribute']} {row['seed']}"
        other = row["side"] != "chosen"
        row |= {
            "response": row["preferred"] ^ other,
            "direction": row.get("direction", "better" if other else "worse"),
            "amount": row.get("amount", "more" if other else "less"),
            "status": "failed" if text is None and row["status"] == "changed" else row["status"],
            "original": "as it was",
            "edited": row.get("edited", text),
            "spans": None,
            "note": "",
            "reward": 0.0,
            "new_reward": new_margin,
            "new_margin": new_margin,
            "change": new_margin - row["margin"],
            "change_in_sd": new_margin - row["margin"],
            "outcome": outcome_of(new_margin, tie=row["tie"]),
        }
        whole.append(row)
    return pd.DataFrame(
        {
            name: pd.Series([row[name] for row in whole], dtype=COLUMNS.get(name, object))
            for name in [*COLUMNS, "syntactic", "semantic", "locality", "complied"]
        }
    )


def comparison(key: str, *responses: str) -> Comparison:
    return Comparison(key, (Turn("user", "Why?"),), responses or (f"{key} one", f"{key} two"))


def change(
    request: Request, text: str | None, status: Status = Status.changed, **more
) -> Perturbation:
    return Perturbation(request, status, text, **more)


def run(asked, rewards, new, *, tie=0.0, model="m", perturber="p"):
    return outcomes(model, rewards, asked, new, perturber=perturber, tie=tie)


@pytest.mark.parametrize(
    ("new_margin", "outcome"), [(-0.2, "CF"), (-0.1, "tie"), (0.2, "SF"), (math.nan, None)]
)
def test_what_lies_within_the_noise_is_a_tie(new_margin, outcome):
    assert outcome_of(new_margin, tie=0.1) == outcome


def test_against_brute_force_over_random_rewards():
    rng = np.random.default_rng(3)
    pairs = [comparison(f"k{number}") for number in range(30)]
    rewards = {pair.key: tuple(rng.normal(size=2).round(1)) for pair in pairs}
    asked = requests_for(pairs, rewards, [LENGTH, TONE], [0, 1], 0.15)
    new = rng.normal(size=len(asked)).round(1)
    rows = run([change(r, "new") for r in asked], rewards, new, tie=0.15)
    undecided = {key for key, (a, b) in rewards.items() if abs(a - b) <= 0.15}
    assert 0 < len(undecided) < 30
    assert set(rows["comparison"]) == set(rewards) - undecided
    assert len(rows) == (30 - len(undecided)) * 2 * 2 * 2
    sd = pd.Series([r for both in rewards.values() for r in both]).std()
    assert (rows["change_in_sd"] * sd).to_numpy() == pytest.approx(rows["change"].to_numpy())
    for row, reward in zip(rows.itertuples(), new, strict=True):
        after = list(rewards[row.comparison])
        preferred = int(after[1] > after[0])
        assert row.margin == pytest.approx(abs(after[0] - after[1]))
        after[row.response] = reward
        assert row.new_margin == pytest.approx(after[preferred] - after[1 - preferred])
        assert (row.side == "chosen") == (row.response == preferred)
        assert row.outcome == (
            "CF" if row.new_margin < -0.15 else "SF" if row.new_margin > 0.15 else "tie"
        )


def test_both_ways_each_side_is_changed_in_both_directions():
    asked = requests_for([comparison("k")], {"k": (1.0, 0.0)}, [LENGTH], [0], 0.0, both_ways=True)
    assert [(r.response, r.direction.value) for r in asked] == [
        (0, "worse"),
        (0, "better"),
        (1, "better"),
        (1, "worse"),
    ]
    rows = run([change(r, "x") for r in asked], {"k": (1.0, 0.0)}, [2.0] * 4)
    assert rows["amount"].tolist() == ["less", "more", "more", "less"]
    assert against_polarity(rows).tolist() == [True, False, True, False]


def test_what_gave_no_text_keeps_its_row_its_status_and_its_reason():
    pair = comparison("k")
    asked = requests_for([pair], {"k": (1.0, 0.0)}, [LENGTH, TONE], [0], 0.0)
    statuses = [Status.refused, Status.failed, Status.not_applicable, Status.changed]
    made_of = [
        change(r, "new" if s is Status.changed else None, s, note=s.name, spans=((0, 2),))
        for r, s in zip(asked, statuses, strict=True)
    ]
    table = run(made_of, {"k": (1.0, 0.0)}, [None, None, math.nan, 3.0])
    assert table["status"].tolist() == ["refused", "failed", "not applicable", "changed"]
    assert table["note"].tolist() == [s.name for s in statuses]
    assert table["outcome"].tolist() == [None, None, None, "CF"]
    assert table["new_margin"].isna().tolist() == [True, True, True, False]
    assert [json.loads(spans) for spans in table["spans"]] == [[[0, 2]]] * 4


def test_rewards_in_single_precision_are_subtracted_in_double():
    pair, rewards = comparison("k"), {"k": np.array([2.0**27, 1.0], dtype=np.float32)}
    asked = requests_for([pair], rewards, [LENGTH], [0], 0.0)[:1]
    new = np.float32([2.0**27])
    table = run([change(asked[0], "new")], rewards, new)
    assert table["margin"].tolist() == table["new_margin"].tolist() == [2.0**27 - 1]


def test_what_contradicts_itself_is_refused():
    rewards = {"k": (1.0, 0.0)}
    request = requests_for([comparison("k")], rewards, [LENGTH], [0], 0.0)[0]
    good = change(request, "new")
    assert len(run([good], rewards, [0.5])) == 1
    with pytest.raises(TableError, match="more than once"):
        run([good, good], rewards, [0.5, 0.5])
    for one, reward in (
        (change(request, request.text), 0.5),
        (change(request, "new", Status.refused), 0.5),
        (change(request, None), None),
        (change(request, None, Status.failed), 0.5),
        (good, None),
        (good, math.inf),
    ):
        with pytest.raises(
            TableError, match=r"A perturbation \(length, response 0 of comparison 'k'\)"
        ):
            run([one], rewards, [reward])


TALK = (Turn("user", "hi"), Turn("assistant", "hello"), Turn("user", "q"))
TALKED = {"k": Comparison("k", TALK, ("long answer", "short"))}


def edit(text: str | None, new_reward: float = 0.5, **changed) -> dict:
    """A row of an edit of the chosen response (reward 2 against 1), made worse; by default it
    flips."""
    side = changed.get("side", "chosen")
    reward, other = (2.0, 1.0) if side == "chosen" else (1.0, 2.0)
    new_margin = (new_reward - other) * (1 if side == "chosen" else -1)
    return {
        "model": "m",
        "comparison": "k",
        "response": int(side != "chosen"),
        "side": side,
        "attribute": "clarity",
        "direction": "worse" if side == "chosen" else "better",
        "seed": 0,
        "perturber": "rules",
        "original": "long answer" if side == "chosen" else "short",
        "edited": text,
        "reward": reward,
        "new_reward": new_reward,
        "margin": 1.0,
        "new_margin": new_margin,
        "outcome": None if text is None else outcome_of(new_margin, tie=0.0),
        "complied": True,
    } | changed


def paired(*rows: dict) -> list[dict]:
    return preference_pairs(pd.DataFrame(list(rows), dtype=object), TALKED)


def test_a_pair_is_labelled_by_the_edits_direction():
    worse, better = paired(edit("long, er, answer"), edit("short but sweet", 2.5, side="rejected"))
    assert [turn["content"] for turn in worse["prompt"]] == ["hi", "hello", "q"]
    assert worse["chosen"] == [{"role": "assistant", "content": "long answer"}]
    assert worse["rejected"][0]["content"] == "long, er, answer"
    assert (worse["margin_before"], worse["margin_after"], worse["outcome"]) == (1.0, -0.5, "CF")
    assert (better["chosen"][0]["content"], better["rejected"][0]["content"]) == (
        "short but sweet",
        "short",
    )
    assert worse["model_agrees"] is better["model_agrees"] is True
    assert "margin" not in worse  # TRL's RewardTrainer would subtract it in its loss


def test_pairs_are_of_flips_and_of_rewards_that_go_the_wrong_way_each_once():
    pairs = paired(
        edit("flips"),
        edit("flips", attribute="coherence"),
        edit("longer", 2.5),
        edit("same worth", 2.0),
        edit("holds", 1.9),
        edit("shorter", 0.5, side="rejected"),
        edit("neutral", attribute="placebo"),
        edit(None, math.nan),
    )
    texts = [
        (pair["rejected"] if pair["direction"] == "worse" else pair["chosen"])[0]["content"]
        for pair in pairs
    ]
    assert texts == ["flips", "longer", "shorter"]
    assert [pair["model_agrees"] for pair in pairs] == [True, False, False]


def test_pairs_of_hostile_texts_are_read_again(tmp_path):
    texts = [
        "a\u2028b\u2029c",
        "\x00",
        "<script>",
        "\r\n",
        '"}\n{"',
        "👨\u200d👩\u200d👧",
        " ",
        "\ud800 half",
    ]
    pairs = paired(*(edit(text, seed=seed) for seed, text in enumerate(texts)))
    path = tmp_path / "pairs.jsonl"
    path.write_text(as_lines(pairs), encoding="ascii", newline="\n")
    found = read_jsonl(path)
    assert [one.responses[1] for one in found] == [
        text.replace("\ud800", "\\ud800") for text in texts
    ]
    assert all(one.turns == TALK and one.preferred == 0 for one in found)
    assert [one.key for one in found] == [pair["key"] for pair in pairs]
