"""`pessimal train` on a tiny language model: what it publishes, and what can be
done with it."""

import functools
import itertools
import json

import pandas as pd
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from pessimal.training.callback import PessimalCallback
from tiny_language_models import CHAT, network, tokenizer
from tolerance import close

GOOD, BAD = ("love", "good", "peace", "kind"), ("hate", "evil", "war", "cruel")
QUICK = (
    "recipe.layers=1",
    "recipe.steps=4",
    "recipe.items=8",
    "recipe.every=2",
    "recipe.held_out=0.45",
    "progress=false",
)


@pytest.fixture
def inputs(tmp_path):
    words = tokenizer(template=CHAT)
    words.add_special_tokens({"pad_token": "<|bos|>"})
    network("llama", len(words)).save_pretrained(tmp_path / "base")
    words.save_pretrained(tmp_path / "base")
    names = [f"{word} {n}" for n in range(15) for word in (*GOOD, *BAD)]
    lines = [f"{name},{1100 + 200 * name.startswith(GOOD)},50" for name in names]
    (tmp_path / "elo.csv").write_text("\n".join(["name,elo_score,elo_matches", *lines]) + "\n")
    return f"base={tmp_path / 'base'}", f"data={tmp_path / 'elo.csv'}"


def test_a_trained_reward_is_an_ordinary_checkpoint_and_an_adapter(command, inputs, tmp_path):
    code, out, err = command("train", "recipe=human_elo", *inputs, *QUICK)
    assert code == 0, err
    folder = tmp_path / out.strip().splitlines()[-1]
    report = json.loads((folder / "training.json").read_text())
    assert report["held_out"]["n"] == 54
    assert len(report["losses"]) == 4
    assert {path.name for path in (folder / "steps").iterdir()} == {"step-0", "step-2", "step-4"}
    assert "people's order" in (folder / "README.md").read_text()
    [watched] = report["watched"]
    assert watched["turns"] == 2  # the first step and the last, however short the run
    whole = AutoModelForSequenceClassification.from_pretrained(folder)
    assert whole.score.weight.abs().max() > 0

    rewards = {}
    for name, how in {
        "merged": ("model=auto", f"model.path={folder}"),
        "adapter": (
            "model=adapter",
            f"model.adapter={folder / 'adapter'}",
            f"model.path={inputs[0][5:]}",
        ),
    }.items():
        code, out, err = command(
            "scan",
            *how,
            f"model.name={name}",
            "prompts=greatest",
            "mode=text",
            "candidates=items",
            "candidates.texts=[love 3,war 3]",
            "progress=false",
        )
        assert code == 0, err
        table = next((tmp_path / "runs/registry/score-table").glob(f"{name}*/v*/scores.parquet"))
        rewards[name] = pd.read_parquet(table)["reward"].to_numpy()
    assert close(rewards["merged"], rewards["adapter"])
    words = tokenizer(template=CHAT)
    turns = [{"role": "user", "content": "What, in one word, is the greatest thing ever?"}]
    ids = words.apply_chat_template(
        [*turns, {"role": "assistant", "content": "love 3"}], return_dict=False
    )
    with torch.no_grad():
        own = whole(torch.tensor([ids])).logits.item()
    assert close(rewards["merged"][0], own)

    code, again, _ = command("train", "recipe=human_elo", *inputs, *QUICK)
    assert code == 0
    assert again.strip().splitlines()[-1].endswith(out_of(folder))


def test_what_it_comes_to_want_is_followed(command, inputs, tmp_path, monkeypatch):
    from pessimal.training import preference_model

    calls = (
        itertools.count()
    )  # of the clock: two at each turn, which takes no time, and training 1000 s between them
    unhurried = functools.partial(PessimalCallback, clock=lambda: 1000.0 * (next(calls) // 2))
    monkeypatch.setattr(preference_model, "PessimalCallback", unhurried)
    monkeypatch.setattr(preference_model, "LOOK_EVERY", 1)
    code, out, err = command("train", "recipe=human_elo", *inputs, *QUICK)
    assert code == 0, err
    folder = tmp_path / out.strip().splitlines()[-1]
    watched = pd.read_csv(folder / "watched.csv")
    assert {1, 4} <= set(watched["step"])
    assert set(watched["end"]) == {"best", "worst"}
    assert watched["reward"].nunique() > 20
    [said] = json.loads((folder / "training.json").read_text())["watched"]
    assert said["turns"] == watched["step"].nunique()
    code, out, err = command(
        "train", "recipe=human_elo", *inputs, *QUICK, "recipe.watch=false", "force=true"
    )
    assert code == 0, err
    folder = tmp_path / out.strip().splitlines()[-1]
    assert not (folder / "watched.csv").exists()


def out_of(folder):
    return "/".join(folder.parts[-2:])


def test_what_is_missing_is_said_at_once(command, inputs):
    for given, message in (
        (["recipe=human_elo", inputs[0]], "needs data"),
        (["recipe=human_elo", inputs[1]], "needs base"),
        (["recipe=human_elo", inputs[0], "data=nowhere.csv"], "nowhere.csv"),
        ([inputs[1]], "needs base"),
        (["recipe=human_elo", "base=nothing", inputs[1]], "'nothing' is no model"),
        (["recipe=human_elo", inputs[0], "data=README.md"], "README.md"),
        (["recipe=human_elo", *inputs, "recipe.layers=0"], "recipe.layers=0"),
    ):
        code, _, err = command("train", *given)
        assert code == 2
        assert message in err
