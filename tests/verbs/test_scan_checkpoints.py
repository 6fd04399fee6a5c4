"""`pessimal scan` of a training's checkpoints, and `pessimal compare` with the step as an axis."""

import pandas as pd
import pytest

from pessimal.tables import read_score_table

pytestmark = pytest.mark.usefixtures("undrawn")

ASKED = ("prompts=greatest", "mode=text", "candidates=items", "progress=false")
WORDS = [
    f"{word} {n}" for n in range(20) for word in ("love", "good", "peace", "hate", "evil", "war")
]


@pytest.fixture
def training(command, tmp_path):
    """The published folder of a tiny training, with an adapter of each of the steps 0 and 4."""
    from tiny_language_models import CHAT, network, tokenizer

    words = tokenizer(template=CHAT)
    words.add_special_tokens({"pad_token": "<|bos|>"})
    network("llama", len(words)).save_pretrained(tmp_path / "base")
    words.save_pretrained(tmp_path / "base")
    lines = [
        f"{name},{1100 + 200 * name.startswith(('love', 'good', 'peace'))},50" for name in WORDS
    ]
    (tmp_path / "elo.csv").write_text("\n".join(["name,elo_score,elo_matches", *lines]) + "\n")
    code, out, err = command(
        "train",
        "recipe=human_elo",
        f"base={tmp_path / 'base'}",
        f"data={tmp_path / 'elo.csv'}",
        "recipe.layers=1",
        "recipe.steps=4",
        "recipe.items=8",
        "recipe.every=4",
        "recipe.held_out=0.45",
        "progress=false",
    )
    assert code == 0, err
    return tmp_path / out.strip().splitlines()[-1]


def tables(tmp_path):
    files = (tmp_path / "runs/registry/score-table").glob("*/v*")
    return {table.provenance.model: table for table in map(read_score_table, sorted(files))}


def test_a_trainings_adapters_are_one_sweep_and_are_compared_by_step(command, training, tmp_path):
    steps = ",".join(str(folder) for folder in sorted((training / "steps").iterdir()))
    code, _, err = command(
        "scan",
        "-m",
        "model=adapter",
        f"model.adapter={steps}",
        f"model.path={tmp_path / 'base'}",
        *ASKED,
        f"candidates.path={tmp_path / 'elo.csv'}",
    )
    assert code == 0, err
    run = training.parent.name  # training is .../RUN/v0
    found = tables(tmp_path)
    assert {name: table.provenance.step for name, table in found.items()} == {
        f"{run}@step-{step}": step for step in (0, 4)
    }
    ends = [found[f"{run}@step-{step}"].rows["reward"] for step in (0, 4)]
    assert (ends[0] - ends[1]).abs().max() > 1e-4

    code, _, err = command("compare", "progress=false")
    assert code == 0, err
    folder = next((tmp_path / "runs/registry/comparison").glob("*/v*/tables"))
    table = pd.read_parquet(folder / "step_agreement.parquet")
    assert set(table["model"]) == {run}
    assert list(zip(table["step_a"], table["step_b"], strict=True)) == [(0, 4)]
    people = pd.read_parquet(folder / "human_correlation.parquet")
    assert {f"{run}@step-{step}" for step in (0, 4)} <= set(people["model"])
    tokens = pd.read_parquet(folder / "changed_tokens.parquet").query("differs == 'step'")
    assert set(tokens["a"] + tokens["b"]) == {"04"}
