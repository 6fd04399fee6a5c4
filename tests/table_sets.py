"""Small score tables for tests of analyses."""

from collections.abc import Mapping
from hashlib import sha256

import pandas as pd
import pytest

from artifacts import score_table
from pessimal.tables import ScoreTable
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
                known = (described or {}).get(model, {})
                tables.append(
                    of_series(
                        matrix[model],
                        prompt=prompt,
                        candidates=candidates,
                        mode=mode,
                        people=people,
                        described=known,
                    )
                )
        return table_sets(tables, Reading(**reading))[0]

    return make


def of_series(
    rewards: pd.Series,
    *,
    candidates: str,
    people: pd.DataFrame | None,
    described: dict,
    **provenance,
) -> ScoreTable:
    """One table of a model named as the series; `people` has elo and elo_matches by text."""
    texts = [str(text) for text in rewards.index]
    rows = {} if candidates == "vocabulary" else {"kind": "item"}
    if people is not None:
        rows |= (
            people.reindex(texts)[["elo", "elo_matches"]].reset_index(drop=True).to_dict("series")
        )
    digest = sha256("\n".join(texts).encode()).hexdigest()
    return score_table(
        texts,
        rewards,
        model=str(rewards.name),
        candidates=candidates,
        candidates_digest=digest,
        rows=rows,
        described=described,
        **provenance,
    )
