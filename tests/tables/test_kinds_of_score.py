"""Log-probabilities are another kind of score: their tables are distinguished, and those of rewards stay what they were."""

from dataclasses import replace

import pandas as pd
import pytest

from pessimal.errors import TableError
from pessimal.tables import ScoreProvenance, ScoreTable, read_score_table, write_score_table
from pessimal.tables.score_table import (
    LOG_PROBABILITY,
    PLAIN_TEXT,
    PLAIN_TEXT_ALL_THE_SAME,
    read_provenance,
)

REWARDS = ScoreProvenance(
    model="m", prompt="greatest", prompt_text="?", candidates="vocabulary", candidates_digest="d", mode="ids", source="scan",
    weights_digest="w", dtype="bfloat16", certain=100, software={"torch": "2"},
)  # fmt: skip
PROBABILITIES = replace(REWARDS, score=LOG_PROBABILITY)


def table(provenance):
    rows = pd.DataFrame(
        {
            "candidate_id": [0, 1], "token": ["a", "b"], "text": ["a", "b"], "kind": "normal",
            "survives": pd.array([None, None], dtype="boolean"), "reward": [-0.5, -1.0], "certified": False,
        }
    )  # fmt: skip
    return ScoreTable(provenance, rows)


def test_tables_of_rewards_keep_the_key_that_they_had_before_there_were_others():
    # Computed with the version that knew no other kind of score.
    assert REWARDS.key() == "39ac2175e7e87cdb90f6beec6b0fa163124cf6bf6ff61996d6b9090c61f9031d"
    assert "score" not in REWARDS.fields()


def test_file_of_rewards_does_not_speak_of_kinds_and_is_read_as_one_of_rewards(tmp_path):
    path = write_score_table(table(REWARDS), tmp_path / "scores.parquet")
    assert b'"score"' not in path.read_bytes()
    assert read_score_table(path).provenance == REWARDS


def test_log_probabilities_have_a_key_and_a_name_of_their_own_and_come_back_as_what_they_are(tmp_path):
    assert PROBABILITIES.key() != REWARDS.key()
    assert PROBABILITIES.name == "m--greatest--log_probability--bfloat16"
    path = write_score_table(table(PROBABILITIES), tmp_path / "scores.parquet")
    assert read_score_table(path).provenance == PROBABILITIES


def test_chat_model_asked_after_plain_text_has_a_name_of_its_own_and_a_base_model_has_not():
    chat, base, apart = (
        replace(PROBABILITIES, template_digest=digest)
        for digest in ("a digest", PLAIN_TEXT, PLAIN_TEXT_ALL_THE_SAME)
    )
    assert chat.name == base.name == PROBABILITIES.name
    assert apart.name == "m--greatest--log_probability--plain--bfloat16"
    assert len({provenance.key() for provenance in (chat, base, apart)}) == 3


def test_identity_is_read_without_the_rows(tmp_path):
    path = write_score_table(table(PROBABILITIES), tmp_path / "scores.parquet")
    assert read_provenance(path) == read_provenance(tmp_path) == PROBABILITIES
    with pytest.raises(TableError, match="no score table"):
        read_provenance(tmp_path / "nothing")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(TableError, match="not a score table"):
        read_provenance(tmp_path / "other.parquet")
