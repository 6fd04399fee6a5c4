"""Published layouts: tokens stay tokens, wrong files are named, and the real ones are read whole."""

import re

import pandas as pd
import pytest

from pessimal.errors import InputError
from pessimal.tables import ModelDescription
from pessimal.tables.published import read_eloeverything, read_factorial54, read_vocabulary

PROMPTS = {"greatest": "What, in one word, is the greatest thing ever?"}


def test_eloeverything_gives_one_table_a_model_with_the_peoples_scores(tmp_path):
    path = tmp_path / "greatest.csv"
    path.write_text(
        "elo_rank,elo_score,name,elo_matches,org/one,org/two\n"
        '1,1600,null,12,0.5,-1\n2,1500,NA,3,1.5,-2\n3,1400,"Salt, pepper",7,-0.25,-3.125\n'
    )
    one, two = read_eloeverything(
        path, prompt="greatest", prompts=PROMPTS, models={"org/one": ModelDescription(label="One")}
    )
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
    path = tmp_path / "big2_rewards_org_some-model.parquet"
    pd.DataFrame(
        {"response": ["null", "love"], "best_ever_one": [0.5, 1.5], "worst_ever_one": [2.5, -1.0]}
    ).to_parquet(path)
    best, worst = read_factorial54(path, prompts=PROMPTS, models={"org/some-model": ModelDescription()})
    assert best.provenance.model == "org/some-model"
    assert (best.provenance.prompt, worst.provenance.prompt) == ("best_ever_one", "worst_ever_one")
    assert best.provenance.prompt_text is None, "no wording is made up"
    assert best.provenance.candidates == "big2"
    assert worst.rows.set_index("text")["reward"].to_dict() == {"null": 2.5, "love": -1.0}


def test_vocabulary_keeps_every_token_a_string(tmp_path):
    path = tmp_path / "some-model.csv"
    pd.DataFrame(
        {
            "token_id": range(7),
            "token_name": ["null", "nan", "NA", "<0x0A>", "<|reserved_special_token_1|>", "Ġ1e5", ""],
            "token_decoded": ["null", "nan", "NA", "\n", "<|reserved_special_token_1|>", " 1e5", ""],
            "greatest": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7],
            "worst": [1, 2, 3, 4, 5, 6, 7],
        }
    ).to_csv(path, index=False)
    greatest, worst = read_vocabulary(path, model=None, prompts=PROMPTS, models={})
    assert greatest.rows["text"].tolist() == [
        "null",
        "nan",
        "NA",
        "\n",
        "<|reserved_special_token_1|>",
        " 1e5",
        "",
    ]
    assert greatest.rows["kind"].tolist() == [
        "normal",
        "normal",
        "normal",
        "byte",
        "unused",
        "normal",
        "normal",
    ]
    assert greatest.provenance.model == "some-model"
    assert worst.rows["reward"].tolist() == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read as a CSV"),
        ("a,b\n1,2\n", "expected .'elo_rank'"),
        ("elo_rank,elo_score,name,elo_matches\n1,2,a,3\n", "at least one column of rewards"),
        (
            "elo_rank,elo_score,name,elo_matches,m\n1,2,a,3,0.5\n2,2,b,3,high\n",
            "column 'm', row 2: 'high' is not a number",
        ),
        ("elo_rank,elo_score,name,elo_matches,m\n1,2,a,3,\n", "row 1: '' is not a number"),
    ],
)
def test_wrong_files_are_named(tmp_path, content, message):
    (tmp_path / "f.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        read_eloeverything(tmp_path / "f.csv", prompt="greatest", prompts=PROMPTS, models={})


@pytest.mark.parametrize("wrong", ["99999999999", "0.7", "-1"])
def test_token_ids_that_are_none_are_refused(tmp_path, wrong):
    (tmp_path / "m.csv").write_text(f"token_id,token_name,token_decoded,greatest\n0,a,a,1\n{wrong},b,b,2\n")
    with pytest.raises(InputError, match="column 'token_id', row 2"):
        read_vocabulary(tmp_path / "m.csv", model=None, prompts={}, models={})


def test_published_models_have_the_size_in_their_name():
    from hydra import compose, initialize_config_dir

    from pessimal.cli.arguments import CONF
    from pessimal.cli.compose import build, register

    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = build(compose("config", overrides=["task=import", "format=vocabulary", f"path={CONF}"]))
    assert len(config.published) == 10
    for spec in config.published.values():
        size = re.search(r"-(\d+)[bB]", spec.path) or re.search(r"(\d+)B", spec.name)
        assert spec.parameters == float(size[1]) * 1e9, spec.path


def test_real_files_are_read_whole(shared_data):
    tables = read_eloeverything(
        shared_data / "eloeverything" / "greatest_one_word.csv", prompt="greatest", prompts=PROMPTS, models={}
    )
    assert len(tables) == 10
    assert {len(t.rows) for t in tables} == {7530}
    files = sorted((shared_data / "big_two").glob("*.parquet"))
    assert len(files) == 10
    for file in files:
        tables = read_factorial54(file, prompts={}, models={})
        assert len(tables) == 54
        assert {len(t.rows) for t in tables} == {265}
