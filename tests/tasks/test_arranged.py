"""Which score table stands for a model, what is a rescan of it, and what is refused before work begins."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from pessimal.config.schema import CompareConfig
from pessimal.errors import TableError
from pessimal.report.contents import Contents
from pessimal.tables import ScoreIdentity, ScoreTable, write_score_table
from pessimal.tasks.findings.arranged import arrange
from pessimal.tasks.findings.between_models import agreement_of_models
from pessimal.tasks.findings.group import Scene


def made(model: str = "m", *, seed: int = 0, noise: float = 0.0, **identity) -> ScoreTable:
    n = 60
    rewards = np.random.default_rng(seed).normal(size=n)
    rewards = rewards + noise * np.random.default_rng(99).normal(size=n)
    texts = [f"w{i}" for i in range(n)]
    rows = pd.DataFrame(
        {
            "candidate_id": np.arange(n, dtype=np.int32), "token": texts, "text": texts, "kind": "normal",
            "survives": pd.array([True] * n, dtype="boolean"), "reward": rewards, "certified": True,
        }
    )  # fmt: skip
    known = {
        "prompt": "greatest", "prompt_text": "?", "candidates": "vocabulary", "candidates_digest": "d", "mode": "ids",
        "source": "scan", "dtype": "float32", "weights_digest": model, "config_digest": "c",
    }  # fmt: skip
    return ScoreTable(ScoreIdentity(model=model, **(known | identity)), rows)


KEY = ("vocabulary", "greatest", "m")


def test_float32_stands_for_the_model_whatever_the_order():
    exact, low = made(), made(noise=0.01, dtype="bfloat16")
    for tables in ([exact, low], [low, exact]):
        arranged = arrange(tables)
        assert arranged.groups[0].tables == [exact]
        assert arranged.rescans == {KEY: {"bfloat16": low}}
        assert arranged.no_rescans == {}


@pytest.mark.parametrize("field", ["weights_digest", "config_digest", "template_digest"])
def test_another_model_under_one_name_is_no_rescan_and_is_named(field):
    arranged = arrange([made(), made(noise=0.01, dtype="bfloat16", **{field: "other"})])
    assert arranged.rescans == {}
    (told,) = arranged.no_rescans[KEY]
    assert "bfloat16: of another model under the same name" in told
    assert field in told
    assert "force=true" in told


def test_a_copy_is_no_rescan():
    arranged = arrange([made(), made()])
    assert arranged.rescans == {}
    assert arranged.no_rescans[KEY] == ["m, again: the same to the last digit"]


def test_several_rescans_are_told_apart():
    tables = [made(), made(noise=0.01), made(noise=0.02), made(noise=0.03, dtype="bfloat16")]
    assert list(arrange(tables).rescans[KEY]) == ["again", "again 2", "bfloat16"]


def test_log_probabilities_stand_for_no_reward_model():
    arranged = arrange([made(), made("lm", score="log_probability")])
    assert [table.identity.model for table in arranged.groups[0].tables] == ["m"]
    assert [table.identity.model for table in arranged.language] == ["lm"]


@pytest.mark.parametrize("certain", [0, 100])
def test_tails_that_were_scored_again_in_float32_say_nothing_of_the_noise_at_the_ends(certain):
    tables = [made(), made(noise=0.2, dtype="bfloat16", certain=certain), made("other", seed=1)]
    arranged = arrange(tables)
    (group,) = arranged.groups
    rewards = pd.DataFrame({t.identity.model: t.rows.set_index("text")["reward"] for t in group.tables})
    contents = Contents()
    scene = Scene(group, rewards, CompareConfig(replicates=100), contents, contents.section("s", "s"))
    agreement_of_models(scene, {"m": arranged.rescans[KEY]})
    row = contents.whole_tables()["noise_floor"].iloc[0]
    assert row["tails_again"] == bool(certain)
    assert np.isnan(row["rbo"]) == np.isnan(row["top_overlap"]) == bool(certain)
    assert 0 < row["kendall"] < 1


def stored(tables, folder):
    for number, table in enumerate(tables):
        write_score_table(table, folder / f"{number}.parquet")
    return f"tables={folder}/*.parquet"


def test_a_mode_asked_for_leaves_language_models_in(command, tmp_path):
    tables = [made(mode="text"), made("other", seed=1, mode="text"), made("lm", score="log_probability")]
    code, _, err = command("compare", stored(tables, tmp_path), "mode=text", "tracking=off", "replicates=100")
    assert code == 0, err
    assert "comparing 3 score tables of 3 models" in err


def test_what_is_asked_for_and_left_out_by_other_choices_is_told(command, tmp_path):
    tables = [made(), made("other", seed=1, mode="text")]
    code, _, err = command(
        "compare", stored(tables, tmp_path), "models=[m,other]", "mode=ids", "tracking=off"
    )
    assert code == 2
    assert "model 'other' has score tables" in err
    assert "mode: ids" in err


def test_tables_that_cannot_be_put_side_by_side_are_told_before_work_begins():
    with pytest.raises(TableError, match="differ in more than the mode"):
        arrange([made(), dataclasses.replace(made(mode="text", tokenizer_digest="t"))])


@pytest.mark.parametrize("option", ["+lexicons.mine", "+dictionaries.mine", "frequencies"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfew\x00"])
def test_a_file_that_is_no_table_of_text_is_refused_at_once(command, tmp_path, option, content):
    file = tmp_path / "mine.csv"
    file.write_bytes(content)
    code, _, err = command("compare", f"{option}={file}", "tracking=off")
    assert code == 2
    assert "mine.csv cannot be read as a CSV file" in err


@pytest.mark.parametrize(
    ("factors", "told"),
    [
        ("{token:[a,b]}", "token means something else here"),
        ("{tone:[]}", "tone has no levels"),
        ("{tone:[a,b],size:[b,c]}", "the level 'b' is named twice"),
        ("{tone:[very_a]}", "'very_a' cannot stand in a key"),
    ],
)
def test_factors_that_could_not_be_told_apart_are_refused(command, factors, told):
    code, _, err = command("compare", "~wording", f"+wording.factors={factors}", "tracking=off")
    assert code == 2
    assert told in err
