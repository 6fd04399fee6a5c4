"""Score tables keep what they are given, to the byte, and refuse what is no score table."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pessimal.errors import TableError
from pessimal.tables import (
    ModelDescription,
    ScoreProvenance,
    ScoreTable,
    read_score_table,
    reward_matrix,
    shared_items,
    write_score_table,
)
from pessimal.tables.score_table import storable

HOSTILE = [
    "null",
    "nan",
    "NA",
    "None",
    "",
    "<script>alert(1)</script>",
    "=1+1",
    "\x00\x1b[31m",
    'a\nb,"c"',
    "�",
    "🙂",
    storable("\ud800"),
]


def made(texts, rewards=None, *, model="m", prompt="greatest", **provenance):
    rows = pd.DataFrame(
        {
            "candidate_id": np.arange(len(texts), dtype=np.int32),
            "token": texts,
            "text": texts,
            "kind": "normal",
            "survives": pd.array([True] * len(texts), dtype="boolean"),
            "reward": np.arange(len(texts), dtype=float) if rewards is None else rewards,
            "certified": False,
        }
    )
    fields = {
        "prompt_text": "?",
        "candidates": "vocabulary",
        "candidates_digest": "d",
        "mode": "ids",
        "source": "scan",
    }
    return ScoreTable(
        ScoreProvenance(model=model, prompt=prompt, **fields | provenance),
        rows,
        ModelDescription(base="b", parameters=2e6),
    )


def test_what_is_written_is_read_back(tmp_path):
    table = made(HOSTILE)
    path = write_score_table(table, tmp_path / "scores.parquet")
    back = read_score_table(tmp_path)
    assert back.provenance == table.provenance
    assert back.description == table.description
    assert back.rows["text"].tolist() == HOSTILE
    assert back.rows["text"].notna().all()
    assert back.rows["reward"].tolist() == table.rows["reward"].tolist()
    assert write_score_table(back, tmp_path / "again.parquet").read_bytes() == path.read_bytes()


def test_half_a_character_is_stored_as_its_escape():
    assert storable("a\ud800") == "a\\ud800"
    assert storable("🙂é") == "🙂é"


def test_key_depends_on_everything_but_the_path_of_computation():
    provenance = made(["a"]).provenance
    assert (
        made(["a"], attention="full-forward").provenance.key()
        == made(["a"], attention="shared-prefix").provenance.key()
    )
    for change in (
        {"prompt": "best"},
        {"mode": "text"},
        {"weights_digest": "w"},
        {"software": {"torch": "1"}},
    ):
        assert made(["a"], **change).provenance.key() != provenance.key()


def test_rewards_that_are_not_numbers_are_refused():
    with pytest.raises(TableError, match=r"1 of 2 rewards .* not finite \(first: 'b'\)"):
        made(["a", "b"], [1.0, np.nan])


def test_repeated_candidates_are_refused():
    rows = made(["a", "b"]).rows.assign(candidate_id=[1, 1])
    with pytest.raises(TableError, match="repeats"):
        ScoreTable(made(["a"]).provenance, rows)


def test_other_files_are_refused_with_the_way_out(tmp_path):
    with pytest.raises(TableError, match="no score table at"):
        read_score_table(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("not parquet")
    with pytest.raises(TableError, match="cannot be read as parquet"):
        read_score_table(tmp_path / "text.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(TableError, match="pessimal import format="):
        read_score_table(tmp_path / "other.parquet")


def test_shared_vocabulary_leaves_out_what_any_model_has_twice_or_not():
    first = made(["a", "b", "c", "d", "null"])
    second = made(["d", "c", "a", "a", "null", "e"], model="n")
    assert shared_items([first, second]).tolist() == ["c", "d", "null"]
    matrix = reward_matrix([first, second])
    assert matrix.loc["d"].tolist() == [3.0, 0.0]
    assert matrix.columns.tolist() == ["m", "n"]


def test_texts_that_a_template_would_trim_to_one_input_count_once():
    texts = ["love", " love", "  love", " war", "peace"]
    tables = [made(texts, mode="published"), made(texts, mode="published", model="n")]
    assert shared_items(tables).tolist() == [" war", "love", "peace"]
    assert len(shared_items(tables, paper=True)) == 5
    exact = [made(texts), made(texts, model="n")]
    assert len(shared_items(exact)) == 5, "by id each token is an input of its own"


def test_stripped_texts_meet_across_vocabularies_and_the_barest_counts():
    a = made(["love", " love", " war", "peace", "\n", "only a"], [1, 2, 3, 4, 5, 6], model="a")
    b = made([" love", "war", "War", " peace", "  ", "only b"], [1, 2, 3, 4, 5, 6], model="b")
    assert list(shared_items([a, b])) == [" love"]
    matrix = reward_matrix([a, b], stripped=True)
    assert list(matrix.index) == ["love", "peace", "war"], "white space alone is no text"
    assert matrix["a"].tolist() == [1, 4, 3]
    assert matrix["b"].tolist() == [1, 4, 2]


def test_tables_that_cannot_be_compared_are_refused():
    with pytest.raises(TableError, match="same model"):
        reward_matrix([made(["a"]), made(["a"])])
    with pytest.raises(TableError, match="one prompt at a time"):
        reward_matrix([made(["a"]), made(["a"], model="n", prompt="worst")])
    with pytest.raises(TableError, match="share 0 candidates"):
        reward_matrix([made(["a"]), made(["b"], model="n")])
