"""Tables of one vocabulary share its columns in memory, and nothing of their content changes."""

import numpy as np
import pandas as pd

from pessimal.tables import ScoreProvenance, ScoreTable
from pessimal.tables.score_table import SharedColumns


def made(prompt: str, texts: list[str], *, tokens: list[str] | None = None, digest: str = "d") -> ScoreTable:
    rows = pd.DataFrame(
        {
            "candidate_id": np.arange(len(texts), dtype=np.int32),
            "token": tokens or texts,
            "text": texts,
            "kind": "normal",
            "survives": pd.array([True] * len(texts), dtype="boolean"),
            "reward": np.random.default_rng(len(prompt)).normal(size=len(texts)),
            "certified": True,
        }
    )
    provenance = ScoreProvenance(
        model="m", prompt=prompt, prompt_text=None, candidates="vocabulary", candidates_digest=digest, mode="ids",
        source="scan",
    )  # fmt: skip
    return ScoreTable(provenance, rows)


def test_texts_are_held_once_and_rewards_are_ones_own():
    shared, first, second = SharedColumns(), made("best", ["a", "b"]), made("worst", ["a", "b"])
    one, two = shared.of(first), shared.of(second)
    for original, table in ((first, one), (second, two)):
        pd.testing.assert_frame_equal(table.rows, original.rows)
    assert np.shares_memory(one.rows["candidate_id"], two.rows["candidate_id"])
    assert not np.shares_memory(one.rows["reward"], two.rows["reward"])


def test_tables_that_only_look_alike_keep_their_own_columns():
    shared = SharedColumns()
    shared.of(made("best", ["a", "b"]))
    other = made("worst", ["a", "b"], tokens=["\u0120a", "b"])
    assert shared.of(other).rows["token"].tolist() == ["\u0120a", "b"]
    apart = made("worst", ["x", "y"], digest="e")
    assert shared.of(apart).rows["text"].tolist() == ["x", "y"]
