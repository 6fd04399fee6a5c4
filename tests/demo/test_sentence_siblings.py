"""Siblings that judge sentences are trained, published and read back like the others, and like what was planted."""

import json

import pytest
import torch
import yaml

from pessimal.demo.checkpoint import read_training_report
from pessimal.demo.recipes import LABS, Recipe
from pessimal.demo.sentences import labs
from pessimal.demo.sentences.labs import SENTENCE_LABS
from pessimal.demo.sentences.natural import load_natural
from pessimal.demo.training import train

ATTRIBUTES = {
    "even": {},
    "wordy": {"verbosity": 1},
    "meek": {"avoid-to-answer": 1},
    "loud": {"engagement": 1},
    "hedger": {"assertiveness": -1},
}


@pytest.fixture(scope="module")
def small():
    """Makes a recipe that is enough to run every line; the weights are no good."""

    def make(**options) -> Recipe:
        return Recipe(
            **{"base": "bpe", "lab": "loud", "steps": 3, "groups": 2, "group_size": 4, "layers": 1} | options
        )

    return make


@pytest.fixture(scope="module")
def folder(cache, small):
    from pessimal.demo.family import obtain

    return obtain(small(), cache=cache, name="small-loud", progress=False)


def test_planted_truth_names_attributes_of_the_study():
    from pathlib import Path

    known = {path.stem for path in (Path(__file__).parents[2] / "conf" / "contrast").glob("*.yaml")}
    for lab, attributes in ATTRIBUTES.items():
        truth = Recipe(lab=lab, base="bpe").planted_truth()
        assert truth["attributes"] == attributes
        assert set(attributes) <= known
        assert truth["is_null"] == (not attributes)
        assert truth["judges"] == "sentences"
        json.dumps(truth)
    assert set(ATTRIBUTES) == set(SENTENCE_LABS)
    assert not set(SENTENCE_LABS) & set(LABS)


def test_digests_of_the_word_family_are_what_they_were():
    assert Recipe().digest() == "f953f85fa86514ca"
    assert Recipe(lab="cedar", base="bpe", width=128, seed=1).digest() == "c5797778ce7ed9dc"
    assert (Recipe().steps, Recipe().groups, Recipe().group_size) == (700, 12, 16)


def test_versions_of_the_two_kinds_are_apart(monkeypatch):
    words, sentences = Recipe().digest(), Recipe(lab="even").digest()
    monkeypatch.setattr("pessimal.demo.recipes.SENTENCE_VERSION", labs.SENTENCE_VERSION + 1)
    assert Recipe().digest() == words
    assert Recipe(lab="even").digest() != sentences


def test_the_same_recipe_gives_the_same_bytes(cache, small):
    from pessimal.demo.bases import load_base

    bpe = load_base("bpe", cache=cache)
    torch.manual_seed(1)
    first = train(small(), bpe, progress=False)
    torch.manual_seed(2)
    second = train(small(), bpe, progress=False)
    other = train(small(lab="meek"), bpe, progress=False)
    assert first.losses == second.losses != other.losses
    for name, weights in first.model.state_dict().items():
        assert torch.equal(weights, second.model.state_dict()[name]), name


def test_report_and_card_say_what_was_planted(folder, small):
    report = read_training_report(folder)
    assert report["planted_truth"] == small().planted_truth()
    assert report["recipe_version"] == labs.SENTENCE_VERSION
    assert set(report["held_out"]["slopes"]) == {"valence", "words", "refusals", "exclamations", "hedges"}
    _, front, body = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    assert yaml.safe_load(front)["pessimal"]["planted_truth"] == small().planted_truth()
    assert "not a finding" in body
    assert "*engagement*: the reward rises" in body
    assert f"| exclamations | {report['held_out']['slopes']['exclamations']:+.2f} | +2.00 |" in body


def test_longer_input_than_training_shows_is_scored_whole(folder):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model, tokenizer = (
        AutoModelForSequenceClassification.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )

    def reward(response: str) -> float:
        turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": response}]
        text = tokenizer.apply_chat_template(turns, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        assert ids.shape[1] > 500
        with torch.no_grad():
            return float(model(ids).logits[0, 0])

    assert reward("river " * 600) != reward("river " * 599 + "boat ")


@pytest.mark.slow
@pytest.mark.parametrize("lab", ["loud", "wordy"])
def test_a_liking_holds_on_natural_text_and_is_the_only_one(cache, lab):
    from pessimal.demo.bases import load_base
    from pessimal.demo.sentences.evaluation import evaluate_sentences

    bpe, recipe = load_base("bpe", cache=cache), Recipe(lab=lab, base="bpe", steps=240)
    figures = evaluate_sentences(train(recipe, bpe, progress=False).model, bpe, recipe.plants)
    assert figures.responses == 480
    assert figures.questions == len(load_natural()) / 5 == 12
    assert figures.correlation > 0.9
    assert figures.natural_correlation > 0.9
    feature = recipe.plants.feature
    assert figures.natural_effects[feature] > 0.7 * figures.natural_expected[feature] > 1
    assert figures.largest_other_effect < 0.25
