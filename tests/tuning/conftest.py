"""A search's configuration without a model, and a small space."""

from dataclasses import replace

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from pessimal.config.schema import PathsSpec, SearchConfig, SearchSpec, TuningSpec
from pessimal.models.spec import ModelSpec, RecipeSpec
from pessimal.tuning.space import Space, parse_space

DIMENSIONS = ("search.momentum=interval(0,0.95)", "search.search_width=tag(log,interval(64,1024))")


@pytest.fixture
def space() -> Space:
    return parsed(*DIMENSIONS)


def parsed(*overrides: str) -> Space:
    return parse_space(OverridesParser.create().parse_overrides(list(overrides)))


@pytest.fixture(name="parsed")
def parsed_fixture():
    return parsed


@pytest.fixture(params=["journal", "sqlite"])
def storage(request, tmp_path) -> str:
    """Either kind of storage, in a folder of its own."""
    return str(tmp_path / "s.log") if request.param == "journal" else f"sqlite:///{tmp_path / 's.db'}"


@pytest.fixture
def config(tmp_path) -> SearchConfig:
    """Two prompts to tune on and three held out; a journal."""
    prompts = {key: f"What is {key}?" for key in ("dawn", "dusk", "noon", "night", "day")}
    return SearchConfig(
        task="search",
        paths=PathsSpec(**{name: str(tmp_path / name) for name in ("root", "registry", "cache", "wandb")}),
        model=ModelSpec(name="toy", recipe=RecipeSpec()),
        prompts=prompts,
        prompt="dawn",
        search=SearchSpec(length=4, search_width=512, top_k=256, momentum=0.9),
        tuning=TuningSpec(
            study="toy",
            storage=str(tmp_path / "toy.log"),
            prompts=["dawn", "dusk"],
            held_out=["noon", "night", "day"],
            seeds=2,
            held_out_seeds=4,
            evaluations=100,
        ),
    )


@pytest.fixture
def job():
    """The configuration of one trial's job, as the sweep would make it."""
    from pessimal.tuning.space import with_options
    from pessimal.tuning.study import options_tried

    def make(config: SearchConfig, trial) -> SearchConfig:
        own = with_options(config, options_tried(trial))
        return replace(own, tuning=replace(own.tuning, trial=trial.number))

    return make
