"""Human correlation from import to comparison, on made-up scores (on the published ones: `tests/compare/test_people.py`)."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr


def compared(command, tmp_path, file):
    code, _, err = command("import", "format=eloeverything", f"path={file}", "tracking=off")
    assert code == 0, err
    code, _, err = command("compare", "tracking=off", "replicates=200", "permutations=500")
    assert code == 0, err
    return tmp_path / "runs/registry/comparison/comparison/v0/tables"


def test_made_up_file_gives_scipys_correlations(command, tmp_path):
    random = np.random.default_rng(0)
    elo = random.normal(1500, 100, 200).round()
    table = pd.DataFrame(
        {
            "elo_rank": range(200),
            "elo_score": elo,
            "name": [f"thing {i}" for i in range(200)],
            "elo_matches": 9,
        }
    )
    table.loc[[3, 4], "name"] = ["null", "NA"]
    for i, model in enumerate(["org/near", "org/far"]):
        table[model] = elo + random.normal(0, 60 * (1 + 5 * i), 200)
    table.to_csv(tmp_path / "made.csv", index=False)
    people = pd.read_parquet(
        compared(command, tmp_path, tmp_path / "made.csv") / "human_correlation.parquet"
    ).set_index("model")
    for model in ("org/near", "org/far"):
        assert people.loc[model, "n"] == 200
        assert people.loc[model, "spearman"] == pytest.approx(
            spearmanr(table[model], elo).statistic, abs=1e-12
        )
    assert people.loc["org/near", "low"] > people.loc["org/far", "high"]
