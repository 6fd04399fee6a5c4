"""Score tables and what is done with their files: schema, reading and writing, joining,
importing."""

from pessimal.tables.score_table import (
    ModelDescription,
    ScoreProvenance,
    ScoreTable,
    read_score_table,
    write_score_table,
)
from pessimal.tables.table_set import reward_matrix

__all__ = [
    "ModelDescription",
    "ScoreProvenance",
    "ScoreTable",
    "read_score_table",
    "reward_matrix",
    "write_score_table",
]
