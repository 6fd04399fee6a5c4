"""The published heads in miniature, each made once."""

import pytest
from published.checkpoints import CHECKPOINTS, Published


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    """The tiny checkpoint of a kind, made once."""
    made: dict[str, Published] = {}

    def make(kind: str) -> Published:
        if kind not in made:
            made[kind] = CHECKPOINTS[kind](tmp_path_factory.mktemp("published") / kind)
        return made[kind]

    return make
