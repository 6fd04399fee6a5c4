"""Small score tables for tests of analyses."""

from collections.abc import Mapping

import pandas as pd
import pytest

from pessimal.tables.score_table import ModelDescription, ScoreProvenance, ScoreTable, items_digest
from pessimal.tables.table_set import Reading, TableSet, table_sets


@pytest.fixture
def table_set():
    """Makes a TableSet of rewards by prompt: index = text, one column a model."""

    def make(
        rewards: Mapping[str, pd.DataFrame],
        *,
        candidates: str = "vocabulary",
        mode: str = "ids",
        people: pd.DataFrame | None = None,
        described: Mapping[str, dict] | None = None,
        **reading,
    ) -> TableSet:
        tables = []
        for prompt, matrix in rewards.items():
            for model in matrix:
                tables.append(score_table(matrix[model], prompt=prompt, candidates=candidates, mode=mode, people=people,
                                          **(described or {}).get(model, {})))  # fmt: skip
        return table_sets(tables, Reading(**reading))[0]

    return make


def score_table(
    rewards: pd.Series,
    *,
    prompt: str = "greatest",
    candidates: str = "vocabulary",
    mode: str = "ids",
    people: pd.DataFrame | None = None,
    score: str = "reward",
    dtype: str | None = "float32",
    measured: dict | None = None,
    **described,
) -> ScoreTable:
    """One table of a model named as the series; `people` has elo and elo_matches by text."""
    texts = [str(text) for text in rewards.index]
    rows = pd.DataFrame(
        {
            "candidate_id": range(len(texts)),
            "token": texts,
            "text": texts,
            "kind": "normal" if candidates == "vocabulary" else "item",
            "survives": pd.array([True] * len(texts), dtype="boolean"),
            "reward": rewards.to_numpy(dtype=float),
            "certified": True,
        }
    )
    if people is not None:
        rows = rows.assign(**people.reindex(texts)[["elo", "elo_matches"]].reset_index(drop=True))
    provenance = ScoreProvenance(
        model=str(rewards.name), prompt=prompt, prompt_text=f"{prompt}?", candidates=candidates,
        candidates_digest=items_digest(rows), mode=mode, source="scan", dtype=dtype, score=score,
    )  # fmt: skip
    return ScoreTable(provenance, rows, ModelDescription(**described), measured or {})
