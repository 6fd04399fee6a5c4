"""The whole path in one process, on a tiny random model: scan, compare, report; and what W&B was
sent."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from pessimal.scoring.scan import NetworkScanner
from pessimal.tables import read_score_table
from recorded_runs import run_records


@pytest.fixture(scope="module")
def twin(tiny_checkpoint, tmp_path_factory):
    """The tiny model with another head: a second model over the same vocabulary."""
    import torch
    from transformers import AutoModelForSequenceClassification

    folder = shutil.copytree(tiny_checkpoint, tmp_path_factory.mktemp("twin") / "tiny-twin")
    network = AutoModelForSequenceClassification.from_pretrained(folder)
    torch.manual_seed(1)
    network.score.weight.data += 0.3 * torch.randn_like(network.score.weight)
    network.save_pretrained(folder)
    return folder


def scan(command, folder, *more):
    return command("scan", "model=auto", f"model.path={folder}", "progress=false", *more)


def sent_to_wandb(root: Path) -> dict[str, list[dict[str, list]]]:
    """Records of the offline runs by kind, by the runs' job type."""
    runs: dict[str, list[dict[str, list]]] = {}
    for file in sorted((root / "runs/wandb/wandb").glob("offline-run-*/*.wandb")):
        records = run_records(file)
        runs.setdefault(records["run"][0].job_type, []).append(records)
    return runs


def test_scan_compare_report(command, tiny_checkpoint, twin, tmp_path):
    asked = "prompts=[greatest,worst]"
    assert scan(command, tiny_checkpoint, asked)[0] == 0
    assert scan(command, twin, "tracking=off", asked)[0] == 0
    tables = sorted((tmp_path / "runs/registry/score-table").glob("*/v0"))
    assert [t.parent.name for t in tables] == sorted(
        f"{model}--{prompt}"
        for model in ("tiny-llama", "tiny-twin")
        for prompt in ("greatest", "worst")
    )
    table = read_score_table(tables[0])
    assert table.provenance.attention == "shared-prefix"

    code, _, err = command("compare", "name=both", "replicates=100", "permutations=200")
    assert code == 0, err
    folder = tmp_path / "runs/registry/comparison/both/v0"
    agreement = pd.read_parquet(folder / "tables/agreement.parquet")
    assert set(agreement["prompt"]) == {"greatest", "worst"}
    row = agreement[agreement["prompt"] == "greatest"].iloc[0]
    a, b = (
        read_score_table(
            tmp_path / f"runs/registry/score-table/{m}--greatest/v0"
        ).rows.drop_duplicates("text", keep=False)
        for m in ("tiny-llama", "tiny-twin")
    )
    assert row["n"] == len(a)
    assert row["kendall"] == pytest.approx(a["reward"].corr(b["reward"], method="kendall"))
    assert row["low"] < row["kendall"] < row["high"]
    assert (folder / "figures/agreement--worst.svg").is_file()
    assert (folder / "figures/agreement--greatest.png").is_file()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert "score-table/tiny-llama--greatest:v0" in manifest["inputs"]
    assert manifest["run_id"]
    sent = sent_to_wandb(tmp_path)
    [scanned] = sent["scan"]
    assert [one.type for one in scanned["artifact"]].count("score-table") == 2
    told = str(scanned["artifact"] + scanned["summary"] + scanned["history"])
    assert all(name in told for name in ("scores.parquet", "greatest/optimal", "greatest/extremes"))
    config = {one.key: json.loads(one.value_json) for one in scanned["run"][0].config.update}
    assert config["model"]["name"] == "tiny-llama"
    assert config["mode"] == "ids"
    told = str(sent["compare"])
    for name in (
        "greatest/kendall_mean",
        "figures/agreement--greatest",
        "tables/agreement.parquet",
        "figures/agreement--worst.svg",
    ):
        assert name in told

    code, out, err = command("report")
    assert code == 0, err
    html = Path(out.strip()).read_text()
    assert html.count("<svg") >= 4
    assert "tiny-twin" in html


def test_second_scan_finds_the_first_and_force_does_it_again(command, tiny_checkpoint, tmp_path):
    arguments = ["prompts=greatest", "tracking=off"]
    scan(command, tiny_checkpoint, *arguments)
    first = tmp_path / "runs/registry/score-table/tiny-llama--greatest"
    scan(command, tiny_checkpoint, *arguments)
    assert [p.name for p in first.iterdir()] == ["v0"]
    scan(command, tiny_checkpoint, *arguments, "force=true")
    assert sorted(p.name for p in first.iterdir()) == ["v0", "v1"]
    assert (first / "v0/scores.parquet").read_bytes() == (first / "v1/scores.parquet").read_bytes()
    assert not list((tmp_path / "runs/cache/scans").iterdir()), (
        "shards of a published table are gone"
    )


def test_name_stands_for_one_model_in_every_precision_and_on_every_prompt(
    command, tiny_checkpoint, twin, tmp_path
):
    turned = shutil.copytree(tiny_checkpoint, tmp_path / "turned")
    config = json.loads((turned / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] *= 10
    (turned / "config.json").write_text(json.dumps(config))
    options = ["tracking=off", "model.name=m"]
    low = [*options, "model.dtype=bfloat16", "certain=0", "prompts=greatest"]
    assert scan(command, tiny_checkpoint, *low)[0] == 0
    for folder, more in ((turned, "prompts=worst"), (twin, "mode=text")):
        code, _, err = scan(command, folder, *options, more)
        assert code == 2
        assert "stands for other weights" in err
        assert "m--greatest--bfloat16/v0" in err
        assert "model.name=m-2" in err
    code, _, err = scan(command, tiny_checkpoint, *options, "prompts=worst")
    assert code == 0, err


def test_what_was_asked_for_and_is_not_there_is_named(command, tiny_checkpoint, tmp_path):
    scan(command, tiny_checkpoint, "prompts=greatest", "tracking=off")
    files = "tables=runs/registry/score-table"
    for arguments in (["models=[typo,tiny-llama]"], ["prompts=[greatest,worst]", files]):
        code, _, err = command("compare", "tracking=off", *arguments)
        assert code == 2
        assert "no score table of" in err
    (tmp_path / "empty").mkdir()
    code, _, err = command("compare", "tracking=off", "tables=empty")
    assert code == 2
    assert "tables='empty'" in err, "the folder is named"


def test_fault_of_ours_exits_with_4_and_keeps_what_was_finished(
    command, tiny_checkpoint, tmp_path, monkeypatch
):
    inner = NetworkScanner.scan

    def fail_on_the_second(scanner, provenance):
        if provenance.prompt == "best":
            raise RuntimeError("out of memory")
        return inner(scanner, provenance)

    monkeypatch.setattr(NetworkScanner, "scan", fail_on_the_second)
    code, _, err = scan(command, tiny_checkpoint, "tracking=off")
    assert code == 4
    assert "Traceback" in err
    assert "RuntimeError: out of memory" in err
    assert [p.name for p in (tmp_path / "runs/registry/score-table").iterdir()] == [
        "tiny-llama--greatest"
    ]
