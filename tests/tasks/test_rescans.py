"""A model scanned again in another precision or batch: the noise floor of a comparison."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from pessimal.tables import read_score_table

SCAN = ("scan", "model=auto", "tracking=off", "progress=false", "prompts=greatest")
COMPARE = ("compare", "tracking=off", "replicates=100", "permutations=200")


@pytest.fixture
def scan(command, tiny_checkpoint, tmp_path):
    """Scan the tiny model, or a copy of it under another name."""

    def run(*more: str, name: str = "tiny-llama"):
        folder = tmp_path / name
        if not folder.exists():
            shutil.copytree(tiny_checkpoint, folder)
        code, _, err = command(*SCAN, f"model.path={folder}", *more)
        assert code == 0, err

    return run


def tables(root: Path) -> Path:
    return root / "runs/registry/comparison/comparison/v0/tables"


def test_rescans_give_the_floor_and_float32_stands_for_the_model(command, scan, tmp_path):
    scan("model.dtype=bfloat16", "certain=0")
    scan()
    scan("force=true", "batch_size=7")
    scan(name="other")
    code, _, err = command(*COMPARE)
    assert code == 0, err
    assert "The noise floor, a model against its own rescan, is known for 1" in err

    floor = pd.read_parquet(tables(tmp_path) / "noise_floor.parquet").set_index("rescan")
    assert sorted(floor.index) == ["again", "bfloat16"]
    assert set(floor["model"]) == {"tiny-llama"}
    registry = tmp_path / "runs/registry/score-table"
    full, again, low = (
        read_score_table(registry / name).rows.set_index("candidate_id")["reward"]
        for name in (
            "tiny-llama--greatest/v1",
            "tiny-llama--greatest/v0",
            "tiny-llama--greatest--bfloat16/v0",
        )
    )
    assert floor.loc["bfloat16", "kendall"] == pytest.approx(full.corr(low, method="kendall"))
    assert floor.loc["bfloat16", "kendall"] < 0.999
    assert floor.loc["again", "largest_difference"] == pytest.approx((full - again).abs().max())

    extremes = pd.read_parquet(tables(tmp_path) / "extremes.parquet")
    best = extremes[(extremes["model"] == "tiny-llama") & (extremes["end"] == "top")].iloc[0]
    assert best["reward"] == full.max(), "the newest float32 scan stands for the model"


def test_without_a_rescan_the_page_says_how_to_get_one(command, scan, tmp_path):
    scan()
    scan(name="other")
    code, _, err = command(*COMPARE)
    assert code == 0, err
    assert "No noise floor: no model was scanned again" in err
    assert "pessimal scan model=other model.dtype=bfloat16" in err
    assert not (tables(tmp_path) / "noise_floor.parquet").exists()


def test_a_file_named_twice_is_one_and_no_rescan(command, scan, tmp_path):
    scan()
    scan(name="other")
    registry = tmp_path / "runs/registry/score-table"
    file = registry / "tiny-llama--greatest/v0/scores.parquet"
    code, _, err = command(*COMPARE, f"tables=[{registry},{file}]")
    assert code == 0, err
    assert len(pd.read_parquet(tables(tmp_path) / "provenance.parquet")) == 2
    assert not (tables(tmp_path) / "noise_floor.parquet").exists()
