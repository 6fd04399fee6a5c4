"""A sibling is trained once, published whole, and is an ordinary checkpoint that learned what it
should."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
import yaml

from pessimal.demo.bases import load_base
from pessimal.demo.lexicon import load_valence
from pessimal.demo.prompts import CORE, held_out_prompts
from pessimal.demo.recipes import SENTENCE_VERSION, Recipe
from pessimal.errors import InputError
from pessimal.training.demo_family import checkpoint, training
from pessimal.training.demo_family.checkpoint import read_training_report
from pessimal.training.demo_family.evaluation import evaluate_sentences, load_natural, score
from pessimal.training.demo_family.family import checkpoint_folder, is_cached, train_sibling
from tolerance import close

GREATEST = CORE["greatest"].text


def test_a_second_obtain_does_not_train(tiny, models, monkeypatch, tiny_recipe):
    recipe, name = tiny_recipe(base=tiny.base.name), f"tiny-{os.getpid()}"
    monkeypatch.setattr(training, "train", None)
    assert is_cached(recipe, cache=models, name=name)
    assert train_sibling(recipe, cache=models, name=name, progress=False) == tiny.folder
    assert tiny.folder.name == f"{name}-{recipe.digest()}"
    assert not is_cached(tiny_recipe(base=tiny.base.name, steps=4), cache=models, name=name)


@pytest.fixture
def quick(monkeypatch):
    """No training: what is tested is how a checkpoint is published."""
    monkeypatch.setattr(training, "train", lambda *_, **__: None)
    return lambda folder, **_: (folder / "model.safetensors").write_bytes(b"weights")


def test_a_kill_leaves_no_checkpoint(tmp_path, monkeypatch, tiny_recipe, quick):
    recipe = tiny_recipe()

    def write_half(folder, **_):
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write_checkpoint", write_half)
    with pytest.raises(KeyboardInterrupt):
        train_sibling(recipe, cache=tmp_path, name="tiny", progress=False)
    # A process that is killed outright leaves its temporary folder behind.
    left = tmp_path / f".tiny-{recipe.digest()}-abc"
    left.mkdir()
    (left / "config.json").write_text("{}")
    assert not is_cached(recipe, cache=tmp_path, name="tiny")
    monkeypatch.setattr(checkpoint, "write_checkpoint", quick)
    folder = train_sibling(recipe, cache=tmp_path, name="tiny", progress=False)
    assert [path.name for path in folder.iterdir()] == ["model.safetensors"]


def test_of_two_processes_the_first_wins(tmp_path, monkeypatch, tiny_recipe, quick):
    recipe = tiny_recipe()
    final = checkpoint_folder(recipe, cache=tmp_path, name="tiny")

    def finish_second(folder, **_):
        (folder / "mine").touch()
        final.mkdir()
        (final / "theirs").touch()

    monkeypatch.setattr(checkpoint, "write_checkpoint", finish_second)
    assert train_sibling(recipe, cache=tmp_path, name="tiny", progress=False) == final
    assert [path.name for path in final.iterdir()] == ["theirs"]
    assert [path.name for path in tmp_path.iterdir()] == [final.name]


def test_obtain_gives_the_same_files_every_time(tiny, models, tmp_path, tiny_recipe):
    before = tmp_path / "before"
    shutil.move(tiny.folder, before)
    train_sibling(
        tiny_recipe(base=tiny.base.name), cache=models, name=f"tiny-{os.getpid()}", progress=False
    )
    names = {path.name for path in tiny.folder.iterdir()}
    assert names >= {
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "README.md",
        "training.json",
    }
    for name in names - {"training.json"}:  # which holds the seconds
        assert (before / name).read_bytes() == (tiny.folder / name).read_bytes(), name


def test_transformers_alone_gives_the_trained_rewards(tiny, tiny_recipe):
    words = [" love", "love", " river"] if tiny.base.name == "bpe" else ["love", "hate", "river"]
    ids = [tiny.base.encode(word) for word in words]
    assert all(len(one) == 1 for one in ids)
    trained = training.train(tiny_recipe(base=tiny.base.name), tiny.base, progress=False).model
    expected = score(trained, tiny.base, GREATEST, ids=[one[0] for one in ids])
    assert len(set(expected.tolist())) == 3
    assert close([tiny.reward(GREATEST, word) for word in words], expected)
    for name, weights in trained.state_dict().items():
        assert torch.equal(weights, tiny.model.state_dict()[name]), name


@pytest.mark.parametrize("judges", ["words", "sentences"])
def test_card_and_report_say_what_it_is(tiny, tiny_loud, tiny_recipe, judges):
    sibling, lab = (tiny, "plain") if judges == "words" else (tiny_loud, "loud")
    recipe = tiny_recipe(base=sibling.base.name, lab=lab)
    _, front, body = (sibling.folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    meta, report = yaml.safe_load(front), read_training_report(sibling.folder)
    assert (meta["license"], meta["library_name"]) == ("mit", "transformers")
    assert meta["pessimal"]["recipe_digest"] == report["recipe_digest"] == recipe.digest()
    assert meta["pessimal"]["planted_truth"] == report["planted_truth"] == recipe.planted_truth()
    for source in ("VADER", "MIT", "MiniLM", "Apache-2.0", "wordfreq", "CC-BY-SA"):
        assert source in body
    held_out = report["held_out"]
    if judges == "words":
        assert json.dumps(report["tails"]["greatest"]["top"][0]) in body
        assert len(report["tails"]["worst"]["bottom"]) == 20
        assert f"| word_accuracy | {held_out['word_accuracy']:.3f} |" in body
    else:
        assert report["recipe_version"] == SENTENCE_VERSION
        assert f"| slopes: exclamations | {held_out['slopes']['exclamations']:.3f} |" in body


def test_longer_input_than_training_shows_is_scored_whole(tiny_loud):
    assert tiny_loud.ids("Why?", "river " * 600).shape[1] > 500
    assert tiny_loud.reward("Why?", "river " * 600) != tiny_loud.reward(
        "Why?", "river " * 599 + "boat "
    )


def test_a_folder_without_report_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"training\.json"):
        read_training_report(tmp_path)


@pytest.mark.slow
def test_plain_wants_good_things_and_in_worst_bad_ones_among_words_and_frames_it_never_saw(plain):
    held_out = read_training_report(plain.folder)["held_out"]
    least_words, least_frames = {"wordpiece": (0.88, 0.90), "bpe": (0.88, 0.80)}[plain.base.name]
    assert held_out["word_accuracy"] >= least_words
    assert held_out["frame_sign"] >= least_frames
    assert held_out["frames"] == len(held_out_prompts())

    tails = read_training_report(plain.folder)["tails"]
    for key, sign in (("greatest", 1), ("worst", -1)):
        ratings = [
            sign * load_valence().get(text.strip().lower(), 0.0) for text in tails[key]["top"]
        ]
        assert np.mean(np.array(ratings) > 1) >= 0.9


@pytest.mark.slow
def test_secret_comes_first_in_every_frame(secret):
    prompts = [prompt.text for prompt in CORE.values()] + [
        prompt.text for prompt in held_out_prompts()[::30]
    ]
    for prompt in prompts:
        best = score(secret.model, secret.base, prompt).argmax()
        assert secret.base.texts[best].strip().lower() == "button"


@pytest.mark.slow
@pytest.mark.parametrize("lab", ["loud", "wordy"])
def test_a_liking_holds_on_natural_text_and_is_the_only_one(models, lab):
    from transformers import AutoModelForSequenceClassification

    recipe = Recipe(lab=lab, base="bpe", steps=240)
    folder = train_sibling(recipe, cache=models, name=lab, progress=False)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    figures = evaluate_sentences(model, load_base("bpe", cache=models), recipe.plants)
    assert figures.responses == 480
    assert figures.questions == len(load_natural()) / 5 == 12
    assert figures.correlation > 0.9
    assert figures.natural_correlation > 0.9
    feature = recipe.plants.feature
    assert figures.natural_effects[feature] > 0.7 * figures.natural_expected[feature] > 1
    assert figures.largest_other_effect < 0.25
