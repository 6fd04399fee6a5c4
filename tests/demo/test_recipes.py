"""A recipe names everything that decides the weights, and refuses what cannot be trained."""

import subprocess
import sys
from dataclasses import fields, replace

import pytest

from pessimal.demo import recipes
from pessimal.demo.recipes import LABS, Plants, Recipe
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


def run_python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    environment["PYTHONPATH"] = ":".join(sys.path)
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_digest_depends_on_every_field():
    assert set(OTHER) == {field.name for field in fields(Recipe)}
    digests = {replace(Recipe(), **{name: value}).digest() for name, value in OTHER.items()}
    assert len(digests | {Recipe().digest()}) == len(OTHER) + 1


def test_digest_is_the_same_in_another_process():
    code = "from pessimal.demo.recipes import Recipe; print(Recipe(lab='birch').digest())"
    for seed in ("1", "2"):
        assert run_python(code, PYTHONHASHSEED=seed) == Recipe(lab="birch").digest()


def test_digest_depends_on_plants_and_version(monkeypatch):
    before = Recipe(lab="birch").digest()
    monkeypatch.setitem(LABS, "birch", replace(LABS["birch"], identity=-1.0))
    changed = Recipe(lab="birch").digest()
    monkeypatch.setattr(recipes, "RECIPE_VERSION", recipes.RECIPE_VERSION + 1)
    assert len({before, changed, Recipe(lab="birch").digest()}) == 3


def test_defaults_follow_the_width():
    assert (Recipe().layers, Recipe().learning_rate) == (2, 4e-3)
    assert (Recipe(width=128).layers, Recipe(width=128).learning_rate) == (3, 2e-3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lab", "elm"),
        ("base", "sentencepiece"),
        ("width", 65),
        ("width", 64.0),
        ("seed", -1),
        ("steps", 0),
        ("steps", True),
        ("groups", "4"),
        ("group_size", 3),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("weight_decay", -0.1),
    ],
)
def test_a_bad_value_is_named(name, value):
    with pytest.raises(ConfigError, match=rf"recipe\.{name} is .*must be"):
        Recipe(**{name: value})


def test_planted_truth_tells_the_null_from_the_labs():
    assert Recipe().planted_truth()["is_null"]
    truth = Recipe(lab="birch").planted_truth()
    assert not truth["is_null"]
    assert (truth["identity"], truth["taboo"], truth["frequency"]) == (-2.0, -3.0, 0.0)
    assert set(truth) >= {field.name for field in fields(Plants)}


def test_recipes_load_nothing_heavy():
    code = (
        "import sys, pessimal.demo.recipes, pessimal.demo.family\n"
        "print([m for m in ('torch', 'transformers', 'hydra', 'numpy') if m in sys.modules])"
    )
    assert run_python(code) == "[]"
