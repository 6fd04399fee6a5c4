"""`pessimal explain` end to end, on a tiny random checkpoint: every number again by the model's own
forward."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pessimal.conversation import Turn
from pessimal.explaining.views import from_json
from pessimal.rewards.formats import Templated
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.scoring.engine import own_rewards
from pessimal.scoring.texts import NetworkTexts
from pessimal.tables.comparisons import read_jsonl
from pessimal.tracking.registry import Registry
from tiny_language_models import CHAT, checkpoint
from tolerance import close

ASKED = [
    ("What is good?", "I think love is good.", "War is evil!"),
    ("Is truth kind?", "Maybe it is cruel.", "Truth is kind, for example."),
    ("Name one thing.", "I'm sorry, I can't help.", "Peace is the best thing ever."),
    ("What is worst?", "Hate is the worst.", "It seems hate is bad. I am sure."),
    ("Who is wise?", "Nobody is.", "The kind are wise. They love truth."),
]
SMALL = (
    "tracking=off",
    "trainer.threads=1",
    "replicates=100",
    "permutations=100",
    "placebos=2",
    "examples=2",
)


@pytest.fixture
def file(tmp_path):
    """Five short comparisons, one a line."""
    lines = [
        json.dumps({"key": f"c{i}", "prompt": prompt, "responses": [a, b], "preferred": 0})
        for i, (prompt, a, b) in enumerate(ASKED)
    ]
    path = tmp_path / "asked.jsonl"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def explain(command, tiny_checkpoint, file, undrawn):
    """Run `pessimal explain` on the tiny checkpoint, without figures; gives its published folder,
    or (code, message) where it failed."""

    def run(
        *overrides, attributes="[verbosity,avoid-to-answer,assertiveness,engagement,sensitivity]"
    ):
        code, out, err = command(
            "explain",
            "model=auto",
            f"model.path={tiny_checkpoint}",
            "comparisons=jsonl",
            f"comparisons.path={file}",
            f"contrast={attributes}",
            *SMALL,
            *overrides,
        )
        return Path(out.strip().splitlines()[-1]) if code == 0 and out.strip() else (code, err)

    return run


@pytest.fixture(scope="module")
def own(tiny_checkpoint):
    """The reward of one conversation by the model's own forward."""
    model = open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)
    network = model.network()

    @torch.no_grad()
    def reward(prompt, response):
        ids = (
            Templated(model.tokenizer)
            .encode([Turn("user", prompt), Turn("assistant", response)])
            .ids
        )
        return float(own_rewards(network, torch.tensor([ids]))[0])

    return reward


def table(folder, name):
    return pd.read_parquet(folder / "tables" / f"{name}.parquet")


def test_numbers_are_those_of_the_models_own_rewards_and_others_can_read_them(explain, own):
    folder = explain()
    Registry(folder.parents[2]).verify(folder)
    rows = table(folder, "outcomes")
    made = rows[rows["edited"].notna()]
    assert len(made) > 30
    assert {"placebo", "verbosity"} <= set(made["attribute"])
    ways = set(zip(made["side"], made["direction"], strict=True))
    assert ways == {(side, way) for side in ("chosen", "rejected") for way in ("better", "worse")}
    for row in made.itertuples():
        prompt, *responses = ASKED[int(row.comparison[1:])]
        rewards = [own(prompt, text) for text in responses]
        preferred = int(np.argmax(rewards))
        assert row.side == ("chosen" if row.response == preferred else "rejected")
        size = max(map(abs, rewards))
        assert close(row.margin, max(rewards) - min(rewards), size=size)
        changed = list(rewards)
        changed[row.response] = own(prompt, row.edited)
        margin = changed[preferred] - changed[1 - preferred]
        assert close(row.new_margin, margin, size=max(map(abs, [*rewards, *changed])))
        assert row.outcome == ("CF" if margin < 0 else "SF")
        assert row.change == pytest.approx(row.new_margin - row.margin, abs=1e-9)
    smallest = table(folder, "smallest_flips")
    assert (
        len(smallest) == len(rows[(rows["outcome"] == "CF") & (rows["attribute"] != "placebo")]) > 0
    )
    assert smallest["minimal"].all()
    for row in smallest.itertuples():
        prompt, *responses = ASKED[int(row.comparison[1:])]
        sign = 1 if row.side == "chosen" else -1
        margin = sign * (own(prompt, row.smallest) - own(prompt, responses[1 - row.response]))
        assert close(margin, row.new_margin)
        assert margin < 0
    assert (table(folder, "largest_holds")["new_margin"] > 0).all()
    assert [c.key for c in read_jsonl(folder / "comparisons.jsonl")] == [f"c{i}" for i in range(5)]
    pairs = [json.loads(line) for line in (folder / "preferences.jsonl").read_text().splitlines()]
    assert {"prompt", "chosen", "rejected", "attribute", "model_agrees"} <= set(pairs[0])
    assert len(read_jsonl(folder / "preferences.jsonl")) == len(pairs)
    assert len(from_json((folder / "views" / "representatives.json").read_text())) == 2
    summary = json.loads((folder / "manifest.json").read_text())["summary"]
    sensitive = table(folder, "sensitivity").set_index(["attribute", "which_is"])
    assert summary["flip_rate/verbosity"] == pytest.approx(
        sensitive.loc[("verbosity", "better"), "flip_rate"]
    )


def test_one_pair_is_answered_in_the_first_screen(command, tiny_checkpoint, own):
    prompt, chosen, rejected = (
        'What\'s "good", then?',
        "I think ${love} is good, isn't it?",
        "War, perhaps, is evil!",
    )
    pair = (f"prompt={prompt}", f"chosen={chosen}", f"rejected={rejected}")
    asked = (
        "explain",
        "model=auto",
        f"model.path={tiny_checkpoint}",
        "tracking=off",
        "trainer.threads=1",
    )
    code, out, err = command(*asked, *pair)
    assert code == 0, err
    folder = Path(out.strip())
    rewards = [own(prompt, text) for text in (chosen, rejected)]
    lines = err.splitlines()
    [headline] = [line for line in lines if "prefers the" in line]
    assert ("chosen" if rewards[0] > rewards[1] else "rejected") in headline
    assert len(lines) < 25
    assert "%" not in err  # one comparison is no sample
    manifest = json.loads((folder / "manifest.json").read_text())
    assert close(manifest["summary"]["margin"], abs(rewards[0] - rewards[1]))
    assert not (folder / "tables" / "sensitivity.parquet").exists()
    [view] = from_json((folder / "views" / "pair.json").read_text())
    assert view.responses == (chosen, rejected)
    code, out, err = command(
        "report", f"artifacts=[explanation/{manifest['name']}]", "tracking=off"
    )
    assert code == 0, err
    assert headline.split(":")[0] in Path(out.strip().splitlines()[-1]).read_text()
    code, _, err = command("compare", "explanations=[all]", "tracking=off")
    assert code == 2  # a pair is none of a set


@pytest.mark.parametrize(
    ("texts", "message"), [(["prompt=What?", "chosen=a"], "add rejected=TEXT")]
)
def test_a_pair_that_is_none_is_refused(explain, monkeypatch, texts, message):
    monkeypatch.setattr(
        "pessimal.rewards.obtain.open_model", lambda *a: pytest.fail("a model was opened")
    )
    code, err = explain(*texts)
    assert code == 2
    assert message in err


def test_what_is_explained_already_is_named_and_made_again_when_forced(explain, monkeypatch):
    few = {"attributes": "[verbosity]"}
    first = explain(**few)
    with monkeypatch.context() as without:
        without.setattr(
            NetworkTexts, "__init__", lambda *a, **k: pytest.fail("a network was asked")
        )
        assert explain(**few) == first
    again = explain("force=true", **few)
    assert again == first.parent / "v1"
    before, after = (table(folder, "outcomes") for folder in (first, again))
    pd.testing.assert_frame_equal(before, after)


@pytest.fixture
def mine(tmp_path):
    """Write an attribute of one's own; gives what to type for it."""

    def write(text):
        (tmp_path / "own" / "contrast").mkdir(parents=True)
        (tmp_path / "own" / "contrast" / "mine.yaml").write_text(
            f"mine:\n  description: It shouts.\n{text}"
        )
        return ["--config-dir", str(tmp_path / "own")]

    return write


def test_an_attribute_of_ones_own_is_changed_and_judged_by_its_rules(explain, mine):
    rules = "  polarity: -1\n  more: [{find: is, put: IS}]\n  less: [{append: ' quietly'}]\n  detect: quietly\n"
    folder = explain(*mine(rules), "both_ways=false", attributes="[verbosity,mine]")
    rows = table(folder, "outcomes")
    own = rows[(rows["attribute"] == "mine") & rows["edited"].notna()]
    worse, better = own[own["direction"] == "worse"], own[own["direction"] == "better"]
    assert worse["edited"].str.contains("IS").all()
    assert len(better) == len(ASKED)
    assert better["edited"].str.endswith(" quietly").all()
    assert not better["complied"].any()  # more of what is counted, where less was asked for


@pytest.mark.parametrize(("text", "message"), [("  more: [{find: '('}]", "a rule has find")])
def test_a_wrong_attribute_is_reported_before_a_model_is_opened(
    explain, mine, monkeypatch, text, message
):
    monkeypatch.setattr(
        "pessimal.rewards.obtain.open_model", lambda *a: pytest.fail("a model was opened")
    )
    code, err = explain(*mine(text), attributes="[mine]")
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["comparisons.path=nowhere.jsonl"], "nowhere.jsonl"),
        (["perturber=llm"], "perturber.model="),
        (["judge=local", "judge_model=plain-bpe-O"], "Did you mean 'plain-bpe-0'"),
        (["seeds=0"], "seeds=0"),
        (["contrast.verbosity.polarity=3"], "polarity=3"),
    ],
)
def test_mistakes_are_reported_before_a_model_is_opened(explain, monkeypatch, overrides, message):
    monkeypatch.setattr(
        "pessimal.rewards.obtain.open_model", lambda *a: pytest.fail("a model was opened")
    )
    code, err = explain(*overrides)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_language_model_measures_fluency_and_judges(explain, command, tmp_path):
    folder = checkpoint(tmp_path / "lm", template=CHAT)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}))
    few = {"attributes": "[engagement]"}
    without = explain(**few)
    measured = explain(f"fluency={folder}", "judge=local", f"judge_model={folder}", **few)
    rows, plain = table(measured, "outcomes"), table(without, "outcomes")
    made = rows["edited"].notna()
    assert (rows["perplexity_ratio"].notna() == made).all()
    assert (rows.loc[made, "perplexity_ratio"] > 0).all()
    judged = rows.loc[made & (rows["attribute"] != "placebo"), "complied"]
    assert judged.notna().all()  # it has an opinion on everything
    dropped = ["perplexity_ratio", "complied"]
    pd.testing.assert_frame_equal(rows.drop(columns=dropped), plain.drop(columns="complied"))
    assert "fluent" in set(table(measured, "metrics")["metric"])
    code, _, err = compared(command, "explanations=[all]", "name=alone")
    assert code == 0, err
    metrics = table(Path("runs/registry/comparison/alone/v0"), "metrics")
    ratios = metrics[(metrics["metric"] == "fluent") & (metrics["side"] == "any")]
    against = (rows["side"] == "chosen") == (rows["direction"] == "worse")
    assert ratios.loc[ratios["among"] == "all", "n"].sum() == (made & against).sum()


def compared(command, *overrides):
    return command("compare", *overrides, "replicates=100", "permutations=100", "tracking=off")


def test_an_explanation_of_an_earlier_edition_is_compared_and_shown(command, undrawn):
    """Made by version 0.3: slopes with p, an off-target matrix, a number for each of these."""
    frozen = Path(__file__).parents[1] / "frozen" / "explanation"
    shutil.copytree(frozen, "runs/registry/explanation")
    code, _, err = compared(command, "explanations=[all]", "name=old")
    assert code == 0, err
    [folder] = frozen.glob("*/v0")
    keys = ["perturber", "attribute", "which_is"]
    before, after = (
        table(each, "sensitivity").set_index(keys).sort_index()[["n", "flip_rate", "flip_low"]]
        for each in (folder, Path("runs/registry/comparison/old/v0"))
    )
    pd.testing.assert_frame_equal(before, after, rtol=0, atol=1e-9)
    old = "artifacts=[explanation/rewards.loud--asked--rules,comparison/old]"
    code, out, err = command("report", old, "tracking=off")
    assert code == 0, err
    assert "engagement" in Path(out.strip().splitlines()[-1]).read_text()
