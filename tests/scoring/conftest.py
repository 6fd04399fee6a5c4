"""A tiny model opened, and its vocabulary in one frame."""

import pytest

from pessimal.rewards.formats import Templated
from pessimal.rewards.head import HeadSpec
from pessimal.rewards.obtain import open_model
from pessimal.scoring.candidates import vocabulary

PROMPT = "What, in one word, is the greatest thing ever?"


@pytest.fixture(scope="session")
def model(tiny_checkpoint):
    return open_model(HeadSpec(path=str(tiny_checkpoint)), tiny_checkpoint)


@pytest.fixture(scope="session")
def network(model):
    return model.network()


@pytest.fixture(scope="session")
def frame(model):
    return Templated(model.tokenizer).frame(PROMPT)


@pytest.fixture(scope="session")
def words(model):
    return vocabulary(model.tokenizer, size=model.embedding_rows)
