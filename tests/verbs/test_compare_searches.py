"""Searches in slots and for contexts from the command line, and what they found under other
models."""

import json
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import pessimal
from pessimal.api import search as api_search
from pessimal.catalogue import answers
from pessimal.conversation import Turn
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.scoring.texts import text_scorer
from pessimal.tracking.registry import Registry

pytestmark = pytest.mark.usefixtures("undrawn")

SMALL = ("tracking=off", "trainer.threads=1", "progress=false", "search.baselines=0")
FEW = (*SMALL, "search.evaluations=200", "search.length=1")


@pytest.fixture
def search(command, tiny_checkpoint):
    def run(*overrides):
        model = ("model=auto", f"model.path={tiny_checkpoint}")
        code, out, err = command("search", *model, *FEW, *overrides)
        return Path(out.strip().splitlines()[-1]) if code == 0 else (code, err)

    return run


def contexts(folder):
    return pd.read_parquet(folder / "tables" / "contexts.parquet")


def test_half_of_a_files_contexts_is_searched_and_half_held_out(search, tmp_path):
    file = tmp_path / "real.jsonl"
    said = ["love is good", "hate", "It is evil.", "a truth", "the best thing", "war and peace"]
    file.write_text("\n".join(json.dumps({"prompt": "Why?", "answer": one}) for one in said))
    folder = search(f"contexts={file}", "search.slot=after")
    assert "--real-3--optimal-1--after-" in str(folder)
    table = contexts(folder)
    assert table["part"].value_counts().to_dict() == {"searched": 3, "held out": 3}
    summary = json.loads((folder / "manifest.json").read_text())["summary"]
    assert summary["contexts_part"] == "held out"
    assert search(f"contexts={file}", "search.slot=after") == folder, "it is finished"
    assert search(f"contexts={file}", "search.slot=before") != folder
    code, err = search(f"contexts={file}", "search.slot=after", "search.answer=love")
    assert code == 2
    assert "goes without" in err


def test_what_searches_found_is_scored_by_other_models(command, search, tiny_checkpoint, tmp_path):
    folder = search("held_out=[worst]", "model.name=tiny")
    summary = json.loads((folder / "manifest.json").read_text())["summary"]
    asked = ("compare", "searches=[all]", f"models=[{tiny_checkpoint}]", *SMALL[:1])
    code, out, err = command(*asked, "progress=false")
    assert code == 0, err
    table = pd.read_parquet(Path(out.strip().splitlines()[-1]) / "tables" / "transfer.parquet")
    assert table["part"].tolist() == ["searched", "held out"]
    model = open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)
    prompt = json.loads(contexts(folder)["conversation"][1])[0]["content"]
    turns = [
        (Turn("user", prompt), Turn("assistant", text))
        for text in (summary["best_text"], *answers())
    ]
    found, *others = text_scorer(model, turns[:8], device=torch.device("cpu")).rewards(turns)
    row = table.iloc[1]
    assert row["reward"] == pytest.approx(found, abs=1e-4)
    assert row["z"] == pytest.approx((found - np.mean(others)) / np.std(others, ddof=1), rel=1e-3)
    assert row["above"] == (found > np.array(others)).mean()
    # One that `train` made has a name that only the registry knows.
    Registry(tmp_path / "runs/registry").publish(
        *("reward-model", "trained"), partial(shutil.copytree, tiny_checkpoint, dirs_exist_ok=True)
    )
    code, out, err = command(*asked[:2], "models=[trained]", *SMALL[:1], "progress=false")
    assert code == 0, err
    assert "Loading weights" not in err
    again = pd.read_parquet(Path(out.strip().splitlines()[-1]) / "tables" / "transfer.parquet")
    assert again["model"].tolist() == ["trained"] * 2
    assert again["reward"].equals(table["reward"])
    code, _, err = command(*asked[:1], "searches=[nothing]", *SMALL[:1])
    assert code == 2
    assert "There are: search-result/" in err


@pytest.mark.parametrize(("goal", "sign"), [("optimal", 1), ("pessimal", -1)])
def test_a_find_stands_among_answers_by_how_far_it_is_towards_its_goal(
    monkeypatch, tmp_path, goal, sign
):
    monkeypatch.setattr(api_search, "answers", lambda: ["x", "xx", "xxxx", "xxxxxx"])
    (tmp_path / "tables").mkdir()
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "{slot}"}]
    table = pd.DataFrame({"part": ["searched"], "conversation": [json.dumps(turns)]})
    table.to_parquet(tmp_path / "tables" / "contexts.parquet")
    summary = {"goal": goal, "best_text": "xxxxx", "model": "other"}
    length = pessimal.reward(lambda prompt, response: float(len(response)), name="length")
    manifest = SimpleNamespace(summary=summary, name="found")
    [row] = api_search._scored(length, tmp_path, manifest)
    assert row["reward"] == 5
    assert row["z"] == pytest.approx(sign * (5 - 3.25) / np.std([1, 2, 4, 6], ddof=1))
    assert row["above"] == {1: 0.75, -1: 0.25}[sign]
