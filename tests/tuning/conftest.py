"""A search's configuration without a model, and a small space."""

import pytest
from toy_study import parsed

from pessimal.config.schema import PathsSpec, SearchConfig
from pessimal.demo.recipes import Recipe
from pessimal.rewards.spec import ModelSpec
from pessimal.searching.spec import SearchSpec
from pessimal.tuning.space import Space
from pessimal.tuning.spec import TuningSpec


@pytest.fixture
def space() -> Space:
    return parsed(
        "search.momentum=interval(0,0.95)", "search.search_width=tag(log,interval(64,1024))"
    )


@pytest.fixture
def config(tmp_path) -> SearchConfig:
    """Two prompts to tune on and three held out."""
    prompts = {key: f"What is {key}?" for key in ("dawn", "dusk", "noon", "night", "day")}
    return SearchConfig(
        task="search",
        paths=PathsSpec(
            **{name: str(tmp_path / name) for name in ("root", "registry", "cache", "wandb")}
        ),
        model=ModelSpec(name="toy", recipe=Recipe()),
        prompts=prompts,
        prompt="dawn",
        search=SearchSpec(length=4, search_width=512, top_k=256, momentum=0.9),
        tuning=TuningSpec(
            study="toy",
            storage=str(tmp_path / "toy.db"),
            prompts=["dawn", "dusk"],
            held_out=["noon", "night", "day"],
            seeds=2,
            held_out_seeds=4,
            evaluations=100,
        ),
    )
