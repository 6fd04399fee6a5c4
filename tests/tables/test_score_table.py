"""Score tables keep what they are given, to the byte, and refuse what is no score table."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packaging.version import Version

from pessimal.errors import TableError
from pessimal.tables import (
    ModelDescription,
    ScoreProvenance,
    ScoreTable,
    read_score_table,
    reward_matrix,
    write_score_table,
)
from pessimal.tables.score_table import LOG_PROBABILITY, SharedColumns, items_digest
from pessimal.texts import storable

PLACES = [(1, "a"), (2, "a"), (1, " a"), (1, "A")]
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


def made(texts, rewards=None, *, model="m", prompt="greatest", tokens=None, **provenance):
    rows = pd.DataFrame(
        {
            "candidate_id": np.arange(len(texts), dtype=np.int32),
            "token": tokens or texts,
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


def test_a_digest_of_candidates_tells_their_ids_texts_and_spaces():
    rows = [pd.DataFrame({"candidate_id": [i, 7], "text": [text, "b"]}) for i, text in PLACES]
    assert len({items_digest(one) for one in rows}) == len(PLACES)


def test_other_files_are_refused_with_the_way_out(tmp_path):
    with pytest.raises(TableError, match="no score table at"):
        read_score_table(tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("not parquet")
    with pytest.raises(TableError, match="is no parquet file"):
        read_score_table(tmp_path / "text.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(TableError, match="pessimal import format="):
        read_score_table(tmp_path / "other.parquet")


def test_shared_vocabulary_leaves_out_what_any_model_has_twice_or_not():
    first = made(["a", "b", "c", "d", "null"])
    second = made(["d", "c", "a", "a", "null", "e"], model="n")
    matrix = reward_matrix([first, second])
    assert matrix.index.tolist() == ["c", "d", "null"]
    assert matrix.loc["d"].tolist() == [3.0, 0.0]
    assert matrix.columns.tolist() == ["m", "n"]


def test_texts_that_a_template_would_trim_to_one_input_count_once():
    texts = ["love", " love", "  love", " war", "peace"]
    tables = [made(texts, mode="published"), made(texts, mode="published", model="n")]
    assert reward_matrix(tables).index.tolist() == [" war", "love", "peace"]
    assert len(reward_matrix(tables, paper=True)) == 5
    listed = [made(texts, mode="text", candidates="things", model=model) for model in "mn"]
    assert len(reward_matrix(listed)) == 5, "items of a list are what they are"
    exact = [made(texts), made(texts, model="n")]
    assert len(reward_matrix(exact)) == 5, "by id each token is an input of its own"


def test_stripped_texts_meet_across_vocabularies_and_the_barest_counts():
    a = made(["love", " love", " war", "peace", "\n", "only a"], [1, 2, 3, 4, 5, 6], model="a")
    b = made([" love", "war", "War", " peace", "  ", "only b"], [1, 2, 3, 4, 5, 6], model="b")
    matrix = reward_matrix([a, b], stripped=True)
    assert list(matrix.index) == ["love", "peace", "war"], "white space alone is no text"
    assert matrix["a"].tolist() == [1, 4, 3]
    assert matrix["b"].tolist() == [1, 4, 2]


# Log-probabilities are another kind of score, and tables of rewards stay what they were.

REWARDS = ScoreProvenance(
    model="m",
    prompt="greatest",
    prompt_text="?",
    candidates="vocabulary",
    candidates_digest="d",
    mode="ids",
    source="scan",
    weights_digest="w",
    dtype="bfloat16",
    certain=100,
    software={"torch": "2"},
)
PROBABILITIES = replace(REWARDS, score=LOG_PROBABILITY)


def with_provenance(provenance):
    return replace(made(["a", "b"], [-0.5, -1.0]), provenance=provenance)


def test_tables_of_rewards_keep_the_key_that_they_had_before_there_were_others():
    # Computed with the version that knew no other kind of score.
    assert REWARDS.key() == "39ac2175e7e87cdb90f6beec6b0fa163124cf6bf6ff61996d6b9090c61f9031d"
    assert "score" not in REWARDS.fields()


def test_log_probabilities_have_a_key_and_a_name_of_their_own_and_come_back_as_what_they_are(
    tmp_path,
):
    assert PROBABILITIES.key() != REWARDS.key()
    assert PROBABILITIES.name == "m--greatest--log_probability--bfloat16"
    path = write_score_table(with_provenance(PROBABILITIES), tmp_path / "scores.parquet")
    assert read_score_table(path).provenance == PROBABILITIES


# Tables of one vocabulary share its columns in memory, and nothing of their content changes.


@pytest.mark.skipif(
    Version(pd.__version__) < Version("3"), reason="before pandas 3 a new column copies the others"
)
def test_texts_are_held_once_and_rewards_are_ones_own():
    shared, first, second = (
        SharedColumns(),
        made(["a", "b"], prompt="best"),
        made(["a", "b"], [3.0, 1.0], prompt="worst"),
    )
    one, two = shared.share(first), shared.share(second)
    for original, table in ((first, one), (second, two)):
        pd.testing.assert_frame_equal(table.rows, original.rows)
    assert np.shares_memory(one.rows["candidate_id"], two.rows["candidate_id"])
    assert not np.shares_memory(one.rows["reward"], two.rows["reward"])


def test_tables_that_only_look_alike_keep_their_own_columns():
    shared = SharedColumns()
    shared.share(made(["a", "b"]))
    other = made(["a", "b"], tokens=["\u0120a", "b"])
    assert shared.share(other).rows["token"].tolist() == ["\u0120a", "b"]
    apart = made(["x", "y"], candidates_digest="e")
    assert shared.share(apart).rows["text"].tolist() == ["x", "y"]
