"""What can be said about a model's name before anything is loaded."""

import pytest

from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import files_of


def test_hub_name_and_local_folder_are_distinguished(tiny_checkpoint):
    assert HeadSpec(path="org/reward-model").name == "reward-model"
    assert not HeadSpec(path="org/reward-model").local
    assert HeadSpec(path=str(tiny_checkpoint)).local
    assert HeadSpec(path=str(tiny_checkpoint)).name == "tiny-llama"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ConfigError, "model.package, got neither"),
        ({"path": "no such thing"}, ModelError, "no folder"),
        ({"path": "a/b", "trust_remote_code": True}, ConfigError, "pin it"),
    ],
)
def test_what_cannot_be_is_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        HeadSpec(**arguments)


@pytest.mark.parametrize("path", ["runs/family/one", "family/one"])
def test_a_model_that_is_not_trained_yet_is_opened_by_what_trains_it(tmp_path, monkeypatch, path):
    """A path of two parts is no repository here: the Hub is not asked."""
    monkeypatch.chdir(tmp_path)
    spec = HeadSpec(path=path, training_command="make one")
    assert spec.name == "one"
    with pytest.raises(ModelError, match=f"{path}.*make one"):
        files_of(spec)


@pytest.mark.parametrize(
    ("folder", "name", "step"),
    [
        ("mine/step-50", "mine@step-50", 50),
        ("mine/v0/steps/step-50", "mine@step-50", 50),
        ("mine/stepwise", "stepwise", None),
    ],
)
def test_a_checkpoint_is_called_after_its_run_and_step(tmp_path, folder, name, step):
    home = tmp_path / folder
    home.mkdir(parents=True)
    (home / "config.json").write_text("{}")
    spec = HeadSpec(path=str(home))
    assert (spec.name, spec.step) == (name, step)
    assert HeadSpec(path=str(home), name="a").name == ("a" if step is None else f"a@step-{step}")
