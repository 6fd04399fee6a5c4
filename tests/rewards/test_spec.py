"""What can be said about a model's name before anything is loaded."""

import pytest

from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.spec import ModelSpec, RecipeSpec


def test_hub_name_local_folder_and_recipe_are_distinguished(tiny_checkpoint):
    assert ModelSpec(path="org/reward-model").name == "reward-model"
    assert not ModelSpec(path="org/reward-model").local
    assert ModelSpec(path=str(tiny_checkpoint)).local
    assert ModelSpec(path=str(tiny_checkpoint)).name == "tiny-llama"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ConfigError, "model.path or model.recipe, got neither"),
        ({"path": "a/b", "recipe": RecipeSpec()}, ConfigError, "got both"),
        ({"path": "no such thing"}, ModelError, "neither a folder"),
        ({"path": "/nowhere/at/all"}, ModelError, "neither a folder"),
        ({"path": "a/b", "trust_remote_code": True}, ConfigError, "pin it"),
        ({"path": "a/b", "trust_remote_code": True, "revision": "main"}, ConfigError, "pin it"),
    ],
)
def test_what_cannot_be_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        ModelSpec(**arguments)


def test_local_folder_has_no_revision_and_may_run_its_own_code(tiny_checkpoint):
    with pytest.raises(ConfigError, match="which has none"):
        ModelSpec(path=str(tiny_checkpoint), revision="a" * 40)
    assert ModelSpec(path=str(tiny_checkpoint), trust_remote_code=True).trust_remote_code


def test_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"config\.json"):
        ModelSpec(path=str(tmp_path))
