"""Human correlation from import to comparison: on published scores to 4 decimals, and on made-up ones anywhere."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

# Recomputed from the published file, prompt "What, in one word, is the greatest thing ever?", 7,530 items.
PUBLISHED = {
    "nicolinho/QRM-Gemma-2-27B": 0.3227,
    "Skywork/Skywork-Reward-Gemma-2-27B-v0.2": 0.3144,
    "Skywork/Skywork-Reward-Gemma-2-27B": 0.3281,
    "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2": 0.4493,
    "nicolinho/QRM-Llama3.1-8B": 0.4702,
    "LxzGordon/URM-LLaMa-3.1-8B": 0.4580,
    "Ray2333/GRM-Llama3-8B-rewardmodel-ft": 0.3803,
    "Ray2333/GRM-Llama3.2-3B-rewardmodel-ft": 0.5465,
    "RLHFlow/ArmoRM-Llama3-8B-v0.1": 0.4998,
    "Ray2333/GRM-gemma2-2B-rewardmodel-ft": 0.4268,
}


def compared(command, tmp_path, file):
    code, _, err = command("import", "format=eloeverything", f"path={file}", "tracking=off")
    assert code == 0, err
    code, _, err = command("compare", "tracking=off", "replicates=200", "permutations=500")
    assert code == 0, err
    return tmp_path / "runs/registry/comparison/comparison/v0/tables"


def test_published_file_gives_the_published_correlations(command, tmp_path, shared_data):
    tables = compared(command, tmp_path, shared_data / "eloeverything" / "greatest_one_word.csv")
    people = pd.read_parquet(tables / "human_correlation.parquet").set_index("model")
    assert people["spearman"].round(4).to_dict() == PUBLISHED
    assert (people["n"] == 7530).all()
    assert ((people["low"] < people["spearman"]) & (people["spearman"] < people["high"])).all()
    rsa = pd.read_parquet(tables / "rsa.parquet")
    assert (rsa["status"] == "estimated").all(), "base, developer, size and rank of the ten models are known"


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
