"""Which score tables a comparison takes, from the command line: choices of mode and model, rescans,
what is refused."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from artifacts import score_table
from pessimal.tables import ScoreTable, write_score_table

pytestmark = pytest.mark.usefixtures("undrawn")

SCAN = ("scan", "model=auto", "tracking=off", "progress=false", "prompts=greatest")
COMPARE = ("compare", "tracking=off", "replicates=100", "permutations=200")


def scan(command, folder, *more):
    code, _, err = command(*SCAN, f"model.path={folder}", *more)
    assert code == 0, err


def tables(root: Path) -> dict[str, pd.DataFrame]:
    found = (root / "runs/registry/comparison/comparison/v0/tables").iterdir()
    return {path.stem: pd.read_parquet(path) for path in found}


def made(model: str = "m", *, seed: int = 0, **provenance) -> ScoreTable:
    rewards = np.random.default_rng(seed).normal(size=60)
    return score_table([f"w{i}" for i in range(60)], rewards, model=model, **provenance)


def stored(made_tables, folder) -> str:
    for number, table in enumerate(made_tables):
        write_score_table(table, folder / f"{number}.parquet")
    return f"tables={folder}/*.parquet"


def test_a_mode_asked_for_leaves_in_what_has_no_choice_of_one(command, tmp_path):
    named = stored(
        [
            made(mode="text"),
            made("other", seed=1, mode="text"),
            made("rest", seed=2),
            made("lm", score="log_probability"),
            made("imported", seed=3, mode="published"),
        ],
        tmp_path,
    )
    code, _, err = command(*COMPARE, named, "mode=text")
    assert code == 0, err
    models = sorted(tables(tmp_path)["provenance"]["model"])
    assert models == ["imported", "lm", "m", "other"]


def test_one_analysis_is_run_where_only_it_is_asked_for(command, tmp_path):
    named = stored([made(), made("other", seed=1)], tmp_path)
    code, _, err = command(*COMPARE, named, "only=agreement")
    assert code == 0, err
    assert tables(tmp_path).keys() == {"agreement", "models", "provenance"}
    code, _, err = command(*COMPARE, named, "only=[agrement]")
    assert code == 2
    assert "only: no analysis 'agrement'. Did you mean 'agreement'?" in err


def test_what_is_asked_for_and_left_out_by_other_choices_is_reported(command, tmp_path):
    named = stored([made(), made("other", seed=1, mode="text")], tmp_path)
    code, _, err = command("compare", named, "models=[m,other]", "mode=ids", "tracking=off")
    assert code == 2
    assert "model 'other' has score tables" in err
    assert "mode: ids" in err


def test_chosen_pairs_are_compared_whatever_their_names(command, tmp_path):
    keys = {"GE": 0, "GW": 1, "GA": 2}
    named = stored(
        [
            made(m, prompt=key, seed=seed + 9 * n)
            for n, m in enumerate("mn")
            for key, seed in keys.items()
        ],
        tmp_path,
    )
    code, _, err = command(*COMPARE, named, "pairs=[[GW,GE]]")
    assert code == 0, err
    found = tables(tmp_path)
    assert found["framing"][["first", "second", "model"]].to_numpy().tolist() == [
        ["GW", "GE", "m"],
        ["GW", "GE", "n"],
    ]
    within = found["prompt_agreement"]
    assert within.groupby("model").size().to_dict() == {"m": 3, "n": 3}
