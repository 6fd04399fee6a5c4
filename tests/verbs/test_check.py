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


def test_findings_are_printed_published_and_no_failure_of_the_command(command, tmp_path, tiny):
    code, out, _ = command(*tiny, *QUICK)
    assert code == 0
    assert re.search(r"FAIL +pad_is_eos +\S+ +\S+ +17 ", out)
    assert "network.config.pad_token_id = ID" in out
    assert max(map(len, out.splitlines()[:-1])) <= 120
    assert "\x1b" not in out, "no colours on a pipe"
    assert out.splitlines()[-1] == str(tmp_path / "runs/registry/conformance/tiny-llama/v0")
    folder = tmp_path / "runs/registry/conformance/tiny-llama/v0"
    table = pd.read_parquet(folder / "tables/conformance.parquet")
    assert list(table) == ["check", "what", "passed", "measured", "allowed", "unit", "n", "note"]
    assert table.loc[~table["passed"].fillna(True), "check"].tolist() == ["pad_is_eos"]
    summary = json.loads((folder / "manifest.json").read_text())["summary"]
    assert summary["failed"] == 1
    assert summary["failed_checks"] == ["pad_is_eos"]
    assert summary["passed"] == table["passed"].sum()


def test_strict_makes_a_finding_a_failure_and_keeps_the_artifact(command, tmp_path, tiny):
    code, out, err = command(*tiny, *QUICK, "strict=true")
    assert code == 1
    assert re.search(r"FAIL +pad_is_eos +\S+ +\S+ +17 ", out)
    assert "pessimal: 1 of the checks of tiny-llama failed: pad_is_eos" in err
    assert "Traceback" not in err
    assert (tmp_path / "runs/registry/conformance/tiny-llama/v0/manifest.json").is_file()


def test_precisions_and_an_offline_run(command, tmp_path, tiny):
    code, out, _ = command(*tiny, "sample=8", "dtypes=[float32,bfloat16]", "prompts=core")
    assert code == 0
    assert "tiny-llama on greatest" in out, "the first of several prompts"
    folder = tmp_path / "runs/registry/conformance/tiny-llama/v0"
    assert len(pd.read_parquet(folder / "tables/precision.parquet")) == 4
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["run_id"]
    assert list((tmp_path / "runs/wandb/wandb").glob(f"offline-run-*{manifest['run_id']}"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "sample=1"], "at least 8"),
        (["check", "batch_size=1"], "at least 2"),
        (["check", "dtypes=[float64]"], "float64"),
        (["check", "trainer=gpu"], "type trainer=cpu"),
        (["check", "strict=perhaps"], "perhaps"),
    ],
)
def test_mistakes_are_reported_in_one_piece(command, tmp_path, arguments, message):
    code, out, err = command(*arguments)
    assert code == 2
    assert message in err
    assert err.startswith("pessimal: ")
    assert "Traceback" not in err
    assert out == ""
    assert not list(tmp_path.rglob("registry/*/*"))


def test_a_trainers_loop_is_compared_with_the_template(command, tmp_path, tiny, tiny_checkpoint):
    loop = [*tiny, "tracking=off", "sample=8", f"policy={tiny_checkpoint}"]
    code, out, _ = command(*loop, "loop=trl")
    assert code == 0
    assert "0 of 200" in out
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
