"""A sibling is trained once, published whole, and is an ordinary checkpoint that learned what it
should."""

import json
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from experiments.demo_family import checkpoint, training
from experiments.demo_family.bases import load_base
from experiments.demo_family.evaluation import evaluate_sentences, load_natural, score
from experiments.demo_family.family import (
    base_folder,
    is_trained,
    train_sibling,
)
from experiments.demo_family.prompts import CORE
from experiments.demo_family.recipes import Recipe
from tolerance import close

GREATEST = CORE["greatest"].text


@pytest.fixture
def quick(monkeypatch, tiny_recipe):
    """No training: what is tested is how a checkpoint is published. Gives its recipe, its base's
    writer and its own."""
    recipe = tiny_recipe()

    def write_base(folder):
        (folder / "model.safetensors").write_bytes(b"as it began")

    def write(folder, *, recipe, **_):
        (folder / "model.safetensors").write_bytes(recipe.digest().encode())
        (folder / "training.json").write_text(json.dumps({"recipe_digest": recipe.digest()}))

    model = SimpleNamespace(save_pretrained=write_base)
    monkeypatch.setattr(training, "train", lambda *_: SimpleNamespace(initial_model=model))
    monkeypatch.setattr(checkpoint, "write_checkpoint", write)
    return recipe, write


def test_a_kill_leaves_no_checkpoint(tmp_path, monkeypatch, quick):
    recipe, write = quick

    def write_half(folder, **_):
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write_checkpoint", write_half)
    with pytest.raises(KeyboardInterrupt):
        train_sibling(recipe, tmp_path / "tiny")
    # A process that is killed outright leaves its temporary folder behind.
    left = tmp_path / ".tiny-abc"
    left.mkdir()
    (left / "config.json").write_text("{}")
    assert not is_trained(recipe, tmp_path / "tiny")
    monkeypatch.setattr(checkpoint, "write_checkpoint", write)
    folder = train_sibling(recipe, tmp_path / "tiny")
    assert {path.name for path in folder.iterdir()} == {"model.safetensors", "training.json"}
    assert [path.name for path in base_folder(folder).iterdir()] == ["model.safetensors"]


def test_of_two_processes_the_first_wins(tmp_path, monkeypatch, quick):
    recipe, write = quick
    final = tmp_path / "tiny"

    def finish_second(folder, **about):
        (folder / "mine").touch()
        final.mkdir()
        write(final, **about)

    monkeypatch.setattr(checkpoint, "write_checkpoint", finish_second)
    assert train_sibling(recipe, final) == final
    assert not (final / "mine").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"tiny", "tiny-base"}


def test_training_gives_the_same_files_every_time(tiny, tmp_path, tiny_recipe):
    again = train_sibling(tiny_recipe(base=tiny.base.name), tmp_path / "tiny")
    names = {path.name for path in again.iterdir()}
    assert names >= {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "README.md",
        "training.json",
    }
    for name in names - {"training.json"}:  # which holds the seconds
        assert (again / name).read_bytes() == (tiny.folder / name).read_bytes(), name


def test_the_base_is_the_network_before_its_first_step(tiny, tiny_recipe, demo_cache):
    """Random heads are drawn on its states: a sibling of one step that moves nothing is it."""
    recipe = tiny_recipe(base=tiny.base.name, steps=1, learning_rate=1e-30)
    still = training.train(recipe, tiny.base)
    begun = AutoModelForSequenceClassification.from_pretrained(base_folder(tiny.folder))
    for name, weights in begun.state_dict().items():
        assert torch.equal(weights, still.initial_model.state_dict()[name]), name
        assert close(weights, still.model.state_dict()[name]), name
    assert any(
        not torch.equal(weights, tiny.model.state_dict()[name])
        for name, weights in begun.state_dict().items()
    )


def test_transformers_alone_gives_the_trained_rewards(tiny, tiny_recipe):
    words = [" love", "love", " river"] if tiny.base.name == "bpe" else ["love", "hate", "river"]
    ids = [tiny.base.encode(word) for word in words]
    assert all(len(one) == 1 for one in ids)
    trained = training.train(tiny_recipe(base=tiny.base.name), tiny.base).model
    expected = score(trained, tiny.base, GREATEST, ids=[one[0] for one in ids])
    assert len(set(expected.tolist())) == 3
    assert close([tiny.reward(GREATEST, word) for word in words], expected)
    for name, weights in trained.state_dict().items():
        assert torch.equal(weights, tiny.model.state_dict()[name]), name


@pytest.mark.slow
@pytest.mark.parametrize("lab", ["loud"])
def test_a_liking_holds_on_natural_text_and_is_the_only_one(demo_cache, lab):
    recipe = Recipe(lab=lab, base="bpe", steps=240)
    folder = train_sibling(recipe, demo_cache / f"{lab}-bpe-short")
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    figures = evaluate_sentences(model, load_base("bpe", cache=demo_cache), recipe.plants)
    assert figures.responses == 480
    assert figures.questions == len(load_natural()) / 5 == 12
    assert figures.correlation > 0.9
    assert figures.natural_correlation > 0.9
    feature = recipe.plants.feature
    assert figures.natural_effects[feature] > 0.7 * figures.natural_expected[feature] > 1
    assert figures.largest_other_effect < 0.25
