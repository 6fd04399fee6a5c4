"""Every configuration in `conf/` composes into its typed form."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from pessimal.config.front_door import CONF, build, register
from pessimal.config.schema import CompareConfig, ScanConfig, TrainConfig
from pessimal.models.spec import Dtype


def composed(*overrides: str):
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        config = compose("config", overrides=list(overrides))
        hydra = compose("config", overrides=list(overrides), return_hydra_config=True).hydra
    return build(config), hydra


def options(group: str) -> list[str]:
    return sorted(str(p.relative_to(CONF / group).with_suffix("")) for p in (CONF / group).rglob("*.yaml"))


@pytest.mark.parametrize("model", [m for m in options("model") if m != "auto"])
def test_every_model_composes_and_says_what_it_is(model):
    config, _ = composed("task=scan", f"model={model}")
    assert isinstance(config, ScanConfig)
    assert config.model.name == model
    assert config.model.developer == config.model.recipe.lab
    assert config.model.base == config.model.recipe.base


def test_there_are_ten_siblings_and_a_secret():
    names = options("model")
    siblings = [n for n in names if n.split("-")[0] in ("plain", "alder", "birch", "cedar")]
    assert len(siblings) >= 10
    assert any(n.startswith("secret") for n in names)


@pytest.mark.parametrize("preset", [e for e in options("experiment") if not e.endswith("/models")])
def test_every_experiment_composes(preset):
    config, hydra = composed(f"experiment={preset}")
    study, verb = preset.split("/")
    assert config.task == verb
    assert config.tracking.group == study
    if verb in ("train", "scan"):
        assert hydra.mode.name == "MULTIRUN"
        swept = [name.strip() for name in hydra.sweeper.params.model.split(",")]
        assert set(swept) <= set(options("model"))
        assert len(swept) >= 6
    if isinstance(config, CompareConfig):
        assert set(config.models) <= set(options("model"))


@pytest.mark.parametrize("group", ["tracking", "trainer", "candidates", "prompts"])
def test_every_option_of_a_group_composes(group):
    for option in options(group):
        extra = ["candidates.path=" + str(Path(__file__)), "mode=text"] if option == "items" else []
        config, _ = composed("task=scan", f"{group}={option}", *extra)
        chosen = getattr(config, group)
        if group == "tracking":
            assert chosen.mode.value == option
        elif group == "trainer":
            assert chosen.accelerator == option
        elif group == "candidates":
            assert chosen.name == option
        else:
            assert set(chosen) == ({"greatest", "best", "worst"} if option == "core" else {option})


def test_overrides_arrive_typed():
    config, _ = composed(
        "task=scan", "prompts=[worst,best]", "model=auto", "model.path=org/name", "model.dtype=bfloat16"
    )
    assert list(config.prompts) == ["worst", "best"]
    assert config.prompts["worst"] == "What, in one word, is the worst thing ever?"
    assert config.model.dtype is Dtype.bfloat16
    assert config.model.name == "name"
    config, _ = composed("task=train", "model=birch-bpe-0")
    assert isinstance(config, TrainConfig)
    assert (config.model.recipe.lab, config.model.recipe.base) == ("birch", "bpe")
