"""From one person's registry through a server to another's comparison, by commands alone."""

from pathlib import Path

import pandas as pd
import pytest


@pytest.fixture
def scan(command, tiny_checkpoint):
    def run(name):
        code, _, err = command(
            "scan", "model=auto", f"model.path={tiny_checkpoint}", f"model.name={name}", "prompts=[greatest,worst]",
            "tracking=off", "paths.root=mine", "paths.registry=mine/registry",
        )  # fmt: skip
        assert code == 0, err

    return run


COMPARE = ("compare", "prompts=[greatest,worst]", "identity=[]", "~lexicons", "tracking=off", "tracking.project=p",
           "replicates=100", "permutations=100", "paths.root=theirs", "paths.registry=theirs/registry")  # fmt: skip


def test_what_one_pushes_another_compares(fake, command, scan):
    scan("one")
    scan("two")
    code, out, err = command("push", "tracking.project=p", "paths.root=mine", "paths.registry=mine/registry")
    assert code == 0, err
    assert out.count("sent") == 4
    code, _, err = command(*COMPARE, "source=wandb", "models=[one,two]")
    assert code == 0, err
    [folder] = Path("theirs/registry/comparison").glob("*/v0")
    agreement = pd.read_parquet(folder / "tables" / "agreement.parquet")
    assert set(agreement["prompt"]) == {"greatest", "worst"}
    assert agreement["kendall"].tolist() == pytest.approx([1.0, 1.0])
    own = command(*COMPARE[:-1], "paths.registry=mine/registry", "name=own")
    assert own[0] == 0
    mine = pd.read_parquet("mine/registry/comparison/own/v0/tables/agreement.parquet")
    pd.testing.assert_frame_equal(agreement, mine)


def test_a_wrong_source_and_an_absent_server_are_reported(fake, command):
    code, _, err = command(*COMPARE, "source=cloud")
    assert code == 2
    assert "registry or wandb" in err
    code, _, err = command(*COMPARE, "source=wandb", "tables=x")
    assert code == 2
    fake.stop()
    code, _, err = command(*COMPARE, "source=wandb")
    assert code == 1
    assert "Traceback" not in err


def test_a_workspace_needs_an_entity_and_a_server(fake, command):
    pytest.importorskip("wandb_workspaces")
    code, _, err = command("workspace")
    assert code == 2
    assert "tracking.entity=NAME" in err
    fake.stop()
    code, _, err = command("workspace", "tracking.entity=lab")
    assert code == 1
    assert "Traceback" not in err
