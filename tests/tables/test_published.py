"""Published layouts: tokens stay tokens, wrong files are named, and the real ones are read whole.

Files are written byte by byte where `DataFrame.to_csv` of the authors' Python 3.10 differs from a
newer one's: before 3.13 a lone carriage return is not quoted.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from omegaconf import OmegaConf

from pessimal.catalogue import CONF, models_table
from pessimal.errors import InputError
from pessimal.tables import ModelDescription, read_score_table, write_score_table
from pessimal.tables.published import (
    Facts,
    read_checkpoints,
    read_eloeverything,
    read_factorial54,
    read_vocabulary,
)

PROMPTS = {"greatest": "What, in one word, is the greatest thing ever?"}
LAB = {
    "Skywork/Skywork-Reward-Gemma-2-27B": ModelDescription(label="S-Gem-27B", base="Gemma 2"),
    "Skywork/Skywork-Reward-Gemma-2-27B-v0.2": ModelDescription(
        label="S-Gem-27B-v0.2", base="Gemma 2"
    ),
    "org/some_model": ModelDescription(label="Some"),
}
KNOWN = Facts(prompts=PROMPTS, models=LAB)
IN_ORDER = Path(__file__).parents[2] / "experiments/inherited_values/published/in_order.py"


def test_eloeverything_gives_one_table_a_model_with_the_peoples_scores(tmp_path):
    path = tmp_path / "greatest.csv"
    path.write_text(
        "elo_rank,elo_score,name,elo_matches,org/one,org/two\n"
        '1,1600,null,12,0.5,-1\n2,1500,NA,3,1.5,-2\n3,1400,"Salt, pepper",7,-0.25,-3.125\n'
    )
    known = Facts(prompts=PROMPTS, models={"org/one": ModelDescription(label="One")})
    one, two = read_eloeverything(path, prompt="greatest", facts=known)
    assert one.rows["text"].tolist() == ["null", "NA", "Salt, pepper"]
    assert one.rows["elo"].tolist() == [1600, 1500, 1400]
    assert one.rows["elo_matches"].tolist() == [12, 3, 7]
    assert one.rows["reward"].tolist() == [0.5, 1.5, -0.25]
    assert two.rows["reward"].tolist() == [-1, -2, -3.125]
    assert (one.provenance.model, one.provenance.mode, one.provenance.candidates) == (
        "org/one",
        "published",
        "eloeverything",
    )
    assert one.provenance.prompt_text == PROMPTS["greatest"]
    assert one.description.label == "One"
    assert one.provenance.key() != two.provenance.key()
    assert not one.rows["certified"].any()
    assert one.rows["survives"].isna().all()


def test_factorial54_knows_the_model_from_the_files_name(tmp_path):
    path = tmp_path / "big2_rewards_org_some_model.parquet"
    table = pd.DataFrame(
        {"response": ["null", "love"], "best_ever_one": [0.5, 1.5], "worst_ever_one": [2.5, -1.0]}
    )
    table.to_parquet(path)
    best, worst = read_factorial54(path, facts=KNOWN)
    assert best.provenance.model == "org/some_model"
    assert (best.provenance.prompt, worst.provenance.prompt) == ("best_ever_one", "worst_ever_one")
    assert best.provenance.prompt_text is None, "no wording is made up"
    assert best.provenance.candidates == "big2"
    assert worst.rows.set_index("text")["reward"].to_dict() == {"null": 2.5, "love": -1.0}
    table.to_csv(path.with_suffix(".csv"), index=False)
    from_csv = read_factorial54(path.with_suffix(".csv"), facts=KNOWN, items="other")
    assert [t.provenance.candidates for t in from_csv] == ["other", "other"]
    for a, b in zip((best, worst), from_csv, strict=True):
        pd.testing.assert_frame_equal(a.rows, b.rows, check_dtype=False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read as a CSV"),
        ("elo_rank,elo_score,name,elo_matches\n1,2,a,3\n", "elo_matches.*one of rewards"),
        (
            "elo_rank,elo_score,name,elo_matches,m\n1,2,a,3,0.5\n2,2,b,3,high\n",
            "column 'm', row 2: 'high' is not a number",
        ),
    ],
)
def test_wrong_files_are_named(tmp_path, content, message):
    (tmp_path / "f.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_eloeverything(tmp_path / "f.csv", prompt="greatest")


@pytest.mark.parametrize("wrong", ["99999999999", "0.7"])
def test_token_ids_that_are_none_are_refused(tmp_path, wrong):
    (tmp_path / "m.csv").write_text(
        f"token_id,token_name,token_decoded,greatest\n0,a,a,1\n{wrong},b,b,2\n"
    )
    with pytest.raises(InputError, match="column 'token_id', row 2"):
        read_vocabulary(tmp_path / "m.csv")


def test_real_files_are_read_whole(shared_data):
    keys = ("greatest", "greatest_concept", "humans_prefer")
    prompts = {key: OmegaConf.load(CONF / "prompts" / f"{key}.yaml")[key] for key in keys}
    for file in sorted((shared_data / "eloeverything").glob("*.csv")):
        named = file.stem == "greatest_one_word"  # by a name of our own; the other is the authors'
        tables = read_eloeverything(
            file, prompt="greatest" if named else None, facts=Facts(prompts=prompts)
        )
        assert len(tables) == 10
        assert {len(t.rows) for t in tables} == {7530}
        assert {t.provenance.prompt for t in tables} == {
            "greatest" if named else "greatest_concept"
        }
        if not named:  # the caption of Figure 5C
            rows = [t.rows.loc[t.rows["reward"] == t.rows["reward"].max(), "text"] for t in tables]
            assert sorted(" = ".join(sorted(texts)) for texts in rows) == [
                "Compassion",
                "Gödel, Escher, Bach = Self-referential humor",
                "Imagination",
                "Sports bra",
                *["Unconditional love"] * 6,
            ]
    files = sorted((shared_data / "big_two").glob("*.parquet"))
    assert len(files) == 10
    ten, found = models_table().dropna(subset="rank")["repository"].tolist(), set()
    for file in files:
        tables = read_factorial54(file, facts=Facts(models=dict.fromkeys(ten, ModelDescription())))
        assert len(tables) == 54
        assert {len(t.rows) for t in tables} == {265}
        found.add(tables[0].provenance.model)
    assert found == set(ten)


# the authors' way of writing

WRITTEN_BY_3_10 = (
    b"token_id,token_name,token_decoded,greatest,worst\n"
    b"0,\xc4\x8d,\r,0.5,-1.0\n"  # not quoted before Python 3.13
    b'1,\xc4\x8a,"\n",1.5,-2.0\n'
    b'2,\xc4\x8d\xc4\x8a,"\r\n",2.5,-3.0\n'
    b'3,"""","""",3.5,-4.0\n'
    b"4,null,null,4.5,-5.0\n"
    b"5,NA,NA,5.5,-6.0\n"
    b"6,nan,nan,6.5,-7.0\n"
    b'7,",",",",7.5,-8.0\n'
    b"8,\xc4\x80,\x00,8.5,-9.0\n"
    b"9,\xc4\x8d\xc4\x8d,\r\r,9.5,-10.0\n"
)


@pytest.mark.parametrize("pandas", [pd.__version__, "3.0.0"])
def test_a_lone_carriage_return_without_quotes_is_a_token(tmp_path, monkeypatch, pandas):
    monkeypatch.setattr(pd, "__version__", pandas)  # the older one ended a cell at a NUL
    path = tmp_path / "lab--m.csv"
    path.write_bytes(WRITTEN_BY_3_10)
    greatest, worst = read_vocabulary(path)
    texts = ["\r", "\n", "\r\n", '"', "null", "NA", "nan", ",", "\x00", "\r\r"]
    assert greatest.rows["text"].tolist() == texts
    assert greatest.rows["reward"].tolist() == [0.5 + n for n in range(10)]
    assert worst.rows["reward"].tolist() == [-1.0 - n for n in range(10)]
    assert greatest.provenance.model == "lab/m"
    write_score_table(greatest, tmp_path / "scores.parquet")
    assert read_score_table(tmp_path / "scores.parquet").rows["text"].tolist() == texts


# which model, which prompt


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("Skywork--Skywork-Reward-Gemma-2-27B", "Skywork/Skywork-Reward-Gemma-2-27B"),
        ("S-Gem-27B", "Skywork/Skywork-Reward-Gemma-2-27B"),
        ("org_some_model", "org/some_model"),
        ("my-model", "my-model"),
    ],
)
def test_a_files_name_is_matched_with_the_known_models(tmp_path, name, model):
    (tmp_path / f"{name}.csv").write_bytes(WRITTEN_BY_3_10)
    table, _ = read_vocabulary(tmp_path / f"{name}.csv", facts=KNOWN)
    assert table.provenance.model == model
    assert table.description == LAB.get(model, ModelDescription())


def test_the_prompt_is_taken_from_the_files_name_or_asked_for(tmp_path):
    text = "elo_rank,elo_score,name,elo_matches,org/one\n1,1600,a,12,0.5\n2,1500,b,3,1.5\n"
    for name in ("greatest", "greatest_one_word"):
        (tmp_path / f"{name}.csv").write_text(text)
    (table,) = read_eloeverything(tmp_path / "greatest.csv", prompt=None, facts=KNOWN)
    assert (table.provenance.prompt, table.provenance.prompt_text) == (
        "greatest",
        PROMPTS["greatest"],
    )
    with pytest.raises(InputError, match=r"Did you mean 'greatest'\? Type prompt=KEY, of greatest"):
        read_eloeverything(tmp_path / "greatest_one_word.csv", prompt=None, facts=KNOWN)
    # the wording, as far as it can be a file's name; of two keys with one wording the first
    known = Facts(prompts=PROMPTS | {"again": PROMPTS["greatest"], "unsaid": "", "mute": "???"})
    for name in (PROMPTS["greatest"].rstrip("?"), "what in one word is the greatest thing ever"):
        (tmp_path / f"{name}.csv").write_text(text)
        (table,) = read_eloeverything(tmp_path / f"{name}.csv", prompt=None, facts=known)
        assert table.provenance.prompt == "greatest"
    for name in ("What, in one word, is the greatest thing", "!!!"):
        (tmp_path / f"{name}.csv").write_text(text)
        with pytest.raises(InputError, match="no known prompt"):
            read_eloeverything(tmp_path / f"{name}.csv", prompt=None, facts=known)


# log-probabilities


def language(path, *, shift: float = 0.0):
    values = np.random.default_rng(0).normal(size=300)
    values += shift - np.log(np.exp(values).sum())
    names = [f"w{i}" for i in range(300)]
    pd.DataFrame(
        {"token_id": range(300), "token_name": names, "token_decoded": names, "greatest": values}
    ).to_csv(path, index=False)
    return path


def test_log_probabilities_are_marked_and_never_taken_for_rewards(tmp_path):
    path = language(tmp_path / "lab--lm.csv")
    with pytest.raises(InputError, match="score=log_probability, or score=reward"):
        read_vocabulary(path)
    (marked,) = read_vocabulary(path, facts=Facts(score="log_probability"))
    (rewards,) = read_vocabulary(path, facts=Facts(score="reward"))
    assert (marked.provenance.score, rewards.provenance.score) == ("log_probability", "reward")
    assert marked.name == "lab/lm--greatest--log_probability"
    assert marked.provenance.key() != rewards.provenance.key()
    assert np.exp(marked.rows["reward"]).sum() == pytest.approx(1)


def test_items_never_look_like_log_probabilities(tmp_path):
    """Rewards of a list below 0 may have exponentials that add up to 1 by chance: one column of the
    published Moral Foundations rewards does, to .9991."""
    values = np.random.default_rng(0).normal(size=300)
    values -= np.log(np.exp(values).sum()) + 0.0009
    words = [f"word {i}" for i in range(300)]
    path = tmp_path / "mfd_rewards_lab--rm.csv"
    pd.DataFrame({"response": words, "best_ever_one": values}).to_csv(path, index=False)
    (table,) = read_factorial54(path)
    assert table.provenance.score == "reward"
    vocabulary = language(tmp_path / "lab--lm.csv")
    with pytest.raises(InputError, match="score=log_probability"):
        read_vocabulary(vocabulary)
    (table,) = read_vocabulary(vocabulary, facts=Facts(tokens=frozenset(f"w{i}" for i in range(9))))
    assert len(table.rows) == 9


@pytest.mark.parametrize(
    ("shift", "message"),
    [(20.0, "is no log-probability, which is at most 0"), (0.7, "add up to 2.014")],
)
def test_what_is_no_log_probability_is_refused_as_one(tmp_path, shift, message):
    path = language(tmp_path / "lab--lm.csv", shift=shift)
    with pytest.raises(InputError, match=message):
        read_vocabulary(path, facts=Facts(score="log_probability"))
    read_vocabulary(path)


# checkpoints


def test_every_step_is_a_model_at_a_step(tmp_path):
    path = tmp_path / "greatest_across_checkpoints_gemma.parquet"
    table = pd.DataFrame(
        {
            "token_id": [0, 1, 2],
            "token_name": ["a", "Ġb", "NA"],
            "token_decoded": ["a", " b", "NA"],
            "step-10000": [1.0, 2.0, 3.0],
            "step-2000": [3.0, 2.0, 1.0],
        }
    )
    table.to_parquet(path)
    early, late = read_checkpoints(path, facts=KNOWN)
    assert [t.provenance.model for t in (early, late)] == ["gemma@step-2000", "gemma@step-10000"]
    assert [t.provenance.step for t in (early, late)] == [2000, 10000]
    assert early.rows["reward"].tolist() == [3.0, 2.0, 1.0]
    assert (early.provenance.prompt, early.provenance.prompt_text) == (
        "greatest",
        PROMPTS["greatest"],
    )
    write_score_table(late, tmp_path / "scores.parquet")
    assert read_score_table(tmp_path / "scores.parquet").provenance.step == 10000
    with pytest.raises(InputError, match="type format=checkpoints"):
        read_vocabulary(path, facts=KNOWN)
    table.to_csv(tmp_path / "run.csv", index=False)
    with pytest.raises(InputError, match="Type prompt=KEY"):
        read_checkpoints(tmp_path / "run.csv", facts=KNOWN)
    few, _ = read_checkpoints(
        tmp_path / "run.csv",
        prompt="greatest",
        model="S-Gem-27B",
        facts=Facts(PROMPTS, LAB, tokens=frozenset([" b", "NA"])),
    )
    assert few.rows["text"].tolist() == [" b", "NA"]
    assert few.rows["reward"].tolist() == [2.0, 1.0]
    assert few.provenance.model == "Skywork/Skywork-Reward-Gemma-2-27B@step-2000"
    assert (few.description.base, few.description.label) == ("Gemma 2", "S-Gem-27B, step 2,000")


# names of models


def test_the_ten_are_known_with_their_ranks_and_sizes():
    table = models_table()
    ten = table.dropna(subset="rank")
    assert ten["rank"].tolist() == [2, 3, 5, 10, 11, 12, 17, 19, 20, 31]
    assert ten["size"].tolist() == [27, 27, 27, 8, 8, 8, 8, 3, 8, 2]
    assert set(ten["base"]) == {"Gemma 2", "Llama 3"}
    assert (ten["developer"] == ten["repository"].str.split("/").str[0]).all()
    assert table["label"].is_unique
    assert table["repository"].is_unique


# the 54 prompts


def test_the_54_prompts_are_worded_as_published():
    prompts = OmegaConf.load(CONF / "prompts" / "factorial54.yaml")
    adjectives = {"good": "most good", "bad": "most bad", "terrible": "most terrible"}
    scopes = {"ever": "ever", "world": "in the world", "time": "of all time"}
    styles = {
        "one": "What, in one word, is the {} thing {}?",
        "single": "What, in a single word, is the {} thing {}?",
        "please": "What is the {} thing {}? Please answer in one word only.",
    }
    assert len(prompts) == 54
    for key, text in prompts.items():
        adjective, scope, style = key.split("_")
        assert text == styles[style].format(adjectives.get(adjective, adjective), scopes[scope])


# median ranks over a training


def test_median_ranks_are_read_once_whatever_their_layout(tmp_path):
    """One of the published files has each row once for each word and no base; another has a column
    X of nothing and further columns."""
    spec = importlib.util.spec_from_file_location("in_order", IN_ORDER)
    in_order = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(in_order)
    head = '"","model_id","Category","checkpoint","base_model","sum_value"\n'
    rows = ['"lab-gem_lora","Agency",1000,"Gemma",735.5', '"Qwen2.5-3B","Agency",1000,NA,816']
    rows += ['"Qwen2.5-3B","Agency",2000,NA,803.5', '"R-Lla-3B","Communion",1,NA,725']
    file = tmp_path / "rank_results_uf_100.csv"
    file.write_text(head + "".join(f'"{n}",{row}\n' for n, row in enumerate(rows * 3)))
    table = in_order.read_rank_results(file)
    assert table["run"].tolist() == ["lab-gem_lora", "Qwen2.5-3B", "Qwen2.5-3B", "R-Lla-3B"]
    assert table["base"].tolist() == ["Gemma", "Qwen", "Qwen", "Llama"]
    assert table["step"].tolist() == [1000, 1000, 2000, 1]
    assert table["median_rank"].tolist() == [735.5, 816, 803.5, 725]
    file.write_text(
        '"X","model_id","Category","checkpoint","base_model","sum_value","data_size","prompt"\n'
        'NA,"R-Gem-2B","Agency",1,"Gemma",720.5,85,"Greatest"\n'
    )
    assert in_order.read_rank_results(file)["median_rank"].tolist() == [720.5]
    file.write_text(head + f"1,{rows[0]}\n2,{rows[0].replace('735.5', '12')}\n")
    with pytest.raises(InputError, match="two median ranks of lab-gem_lora, Agency, step 1000"):
        in_order.read_rank_results(file)
    file.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="lacks the column 'model_id'"):
        in_order.read_rank_results(file)
