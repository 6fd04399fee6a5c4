"""A study without a model, and a small space."""

import pytest
from toy_study import parsed

from pessimal.searching.spec import SearchSpec
from pessimal.tuning.spec import TuningSpec
from pessimal.tuning.study import Space, StudySpec


@pytest.fixture
def space() -> Space:
    return parsed(
        "search.momentum=interval(0,0.95)", "search.search_width=tag(log,interval(64,1024))"
    )


@pytest.fixture
def spec(tmp_path) -> StudySpec:
    """Two prompts to tune on and three held out."""
    return StudySpec(
        name="toy",
        file=tmp_path / "toy.db",
        model={"recipe": {"seed": 0}},
        mode="ids",
        search=SearchSpec(length=4, search_width=512, top_k=256, momentum=0.9),
        tuning=TuningSpec(
            trials=99,
            prompts=["dawn", "dusk"],
            held_out=["noon", "night", "day"],
            seeds=2,
            held_out_seeds=4,
            evaluations=100,
        ),
        prompts={key: f"What is {key}?" for key in ("dawn", "dusk", "noon", "night", "day")},
        seed=0,
    )
