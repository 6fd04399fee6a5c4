"""`pessimal check`: a table on stdout, an artifact in the registry, and an exit code that says what
was asked."""

import json
import re

import pandas as pd
import pytest

pytestmark = pytest.mark.usefixtures("undrawn")

QUICK = ["tracking=off", "sample=8", "batch_size=4", "dtypes=[]"]


@pytest.fixture
def tiny(tiny_checkpoint):
    return ["check", "model=auto", f"model.path={tiny_checkpoint}"]


def test_findings_are_printed_published_and_with_strict_a_failure(command, tmp_path, tiny):
    code, out, err = command(*tiny, *QUICK, "strict=true")
    assert code == 1
    assert re.search(r"FAIL +pad_is_eos +\S+ +\S+ +17 ", out)
    assert "failed: pad_is_eos" in err
    assert "Traceback" not in err
    assert "\x1b" not in out, "no colours on a pipe"
    folder = tmp_path / "runs/registry/conformance/tiny-llama/v0"
    assert out.splitlines()[-1] == str(folder)
    table = pd.read_parquet(folder / "tables/conformance.parquet")
    assert table.loc[~table["passed"].fillna(True), "check"].tolist() == ["pad_is_eos"]
    summary = json.loads((folder / "manifest.json").read_text())["summary"]
    assert summary["failed_checks"] == ["pad_is_eos"]
    assert summary["passed"] == table["passed"].sum()


def test_a_trainers_loop_is_compared_with_the_template(command, tmp_path, tiny, tiny_checkpoint):
    loop = [*tiny, "tracking=off", "sample=8", f"policy={tiny_checkpoint}"]
    code, out, err = command(*loop, "loop=openrlhf", "strict=true")
    assert "template" in out
    assert "-[" in out
    assert code == 1
    assert "failed: template" in err
    folder = tmp_path / "runs/registry/conformance/tiny-llama--in-openrlhf/v0"
    faults = pd.read_parquet(folder / "tables/loop.parquet")
    rows = pd.read_parquet(folder / "tables/loop_conversations.parquet")
    assert faults["conversations"].max() <= len(rows) <= 200
    assert rows["sent_reward"].notna().sum() == 8
    for wrong in (["loop=trl", "policy=null"], ["loop=trl", "url=http://localhost:1"]):
        code, _, err = command(*loop, *wrong)
        assert code == 2
        assert "loop= goes with policy=" in err
