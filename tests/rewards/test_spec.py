"""What can be said about a model's name before anything is loaded."""

import pytest

from pessimal.errors import ConfigError, ModelError
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import files_of
from pessimal.rewards.spec import PackageSpec


def test_hub_name_and_local_folder_are_distinguished(tiny_checkpoint):
    assert HeadSpec(path="org/reward-model").name == "reward-model"
    assert not HeadSpec(path="org/reward-model").local
    assert HeadSpec(path=str(tiny_checkpoint)).local
    assert HeadSpec(path=str(tiny_checkpoint)).name == "tiny-llama"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ConfigError, "model.package, got neither"),
        ({"path": "a/b", "package": PackageSpec()}, ConfigError, "got path and package"),
        ({"path": "no such thing"}, ModelError, "no folder"),
        ({"path": "/nowhere/at/all"}, ModelError, "no folder"),
        ({"path": "a/b", "trust_remote_code": True}, ConfigError, "pin it"),
        ({"path": "a/b", "trust_remote_code": True, "revision": "main"}, ConfigError, "pin it"),
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


def test_local_folder_has_no_revision_and_may_run_its_own_code(tiny_checkpoint):
    with pytest.raises(ConfigError, match="leave it out"):
        HeadSpec(path=str(tiny_checkpoint), revision="a" * 40)
    assert HeadSpec(path=str(tiny_checkpoint), trust_remote_code=True).trust_remote_code


def test_folder_without_a_checkpoint_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"config\.json"):
        HeadSpec(path=str(tmp_path))


@pytest.mark.parametrize(
    ("folder", "name", "step"),
    [
        ("mine/step-50", "mine@step-50", 50),
        ("mine/checkpoint-500", "mine@step-500", 500),
        ("mine/v0/steps/step-50", "mine@step-50", 50),
        ("mine/checkpoints/global_step7", "mine@step-7", 7),
        ("mine/stepwise", "stepwise", None),
        ("mine/v0", "mine", None),
    ],
)
def test_a_checkpoint_is_called_after_its_run_and_step(tmp_path, folder, name, step):
    home = tmp_path / folder
    home.mkdir(parents=True)
    (home / "config.json").write_text("{}")
    spec = HeadSpec(path=str(home))
    assert (spec.name, spec.step) == (name, step)
    assert HeadSpec(path=str(home), name="a").name == ("a" if step is None else f"a@step-{step}")


def test_a_revision_says_the_step_too():
    assert HeadSpec(path="org/pythia", revision="step1000").name == "pythia@step-1000"
    assert HeadSpec(path="org/olmo", revision="step1000-tokens4B").step == 1000
    assert HeadSpec(path="org/olmo", revision="main").name == "olmo"
