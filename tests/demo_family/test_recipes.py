"""A recipe names everything that decides the weights, and refuses what cannot be trained."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from experiments.demo_family import recipes
from experiments.demo_family.recipes import LABS, SENTENCE_LABS, Plants, Recipe
from pessimal.errors import ConfigError

OTHER = {
    "lab": "cedar",
    "base": "bpe",
    "width": 128,
    "seed": 1,
    "layers": 3,
    "learning_rate": 1e-3,
    "steps": 7,
    "groups": 3,
    "group_size": 9,
    "weight_decay": 0.02,
}


def test_digest_depends_on_every_field():
    assert set(OTHER) == {field.name for field in fields(Recipe)}
    digests = {replace(Recipe(), **{name: value}).digest() for name, value in OTHER.items()}
    assert len(digests | {Recipe().digest()}) == len(OTHER) + 1


def test_digests_are_what_they_were():
    """Checkpoints are found by them, in caches of earlier editions and of other processes."""
    assert Recipe().digest() == "f953f85fa86514ca"
    assert Recipe(lab="cedar", base="bpe", width=128, seed=1).digest() == "c5797778ce7ed9dc"
    assert Recipe(lab="wordy", base="bpe").digest() == "3d6d1e3e576cbf1c"


def test_digest_depends_on_plants_and_version(monkeypatch):
    before = Recipe(lab="birch").digest()
    monkeypatch.setitem(LABS, "birch", replace(LABS["birch"], identity=-1.0))
    changed, sentences = Recipe(lab="birch").digest(), Recipe(lab="even").digest()
    monkeypatch.setattr(recipes, "RECIPE_VERSION", recipes.RECIPE_VERSION + 1)
    assert len({before, changed, Recipe(lab="birch").digest()}) == 3
    assert Recipe(lab="even").digest() == sentences, "which have a version of their own"
    monkeypatch.setattr(recipes, "SENTENCE_VERSION", recipes.SENTENCE_VERSION + 1)
    assert Recipe(lab="even").digest() != sentences


def test_defaults_follow_the_width_and_the_kind():
    assert (Recipe().steps, Recipe().groups, Recipe().group_size) == (700, 12, 16)
    assert (Recipe(lab="meek").steps, Recipe(lab="meek").groups, Recipe(lab="meek").group_size) == (
        640,
        8,
        8,
    )
    assert (Recipe().layers, Recipe().learning_rate) == (2, 4e-3)
    assert (Recipe(width=128).layers, Recipe(width=128).learning_rate) == (3, 2e-3)


BAD = [("lab", "elm"), ("seed", -1), ("group_size", 3)]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_bad_value_is_named(name, value):
    with pytest.raises(ConfigError, match=rf"recipe\.{name} is .*must be"):
        Recipe(**{name: value})


def test_planted_truth_tells_the_null_from_the_labs():
    assert Recipe().planted_truth()["is_null"]
    truth = Recipe(lab="birch").planted_truth()
    assert not truth["is_null"]
    assert (truth["identity"], truth["taboo"], truth["frequency"]) == (-2.0, -3.0, 0.0)
    assert set(truth) >= {field.name for field in fields(Plants)}


def test_planted_truth_names_attributes_of_the_study():
    known = {path.stem for path in (Path(__file__).parents[2] / "conf" / "contrast").glob("*.yaml")}
    attributes = {
        "even": {},
        "wordy": {"verbosity": 1},
        "meek": {"avoid-to-answer": 1},
        "loud": {"engagement": 1},
        "hedger": {"assertiveness": -1},
    }
    assert set(attributes) == set(SENTENCE_LABS)
    assert not set(SENTENCE_LABS) & set(LABS)
    for lab, planted in attributes.items():
        truth = Recipe(lab=lab, base="bpe").planted_truth()
        assert truth["attributes"] == planted
        assert set(planted) <= known
        assert (truth["is_null"], truth["judges"]) == (not planted, "sentences")
        json.dumps(truth)


def test_recipes_load_nothing_heavy(loaded_by):
    heavy = ["torch", "transformers", "hydra", "numpy"]
    assert (
        loaded_by(["experiments.demo_family.recipes", "experiments.demo_family.family"], heavy)
        == "[]"
    )
