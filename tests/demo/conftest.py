"""What the tests of the demo family share: one tiny sibling and one trained sibling of each base."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pessimal.demo.bases import Base, load_base
from pessimal.demo.family import obtain
from pessimal.demo.recipes import Recipe


@dataclass(frozen=True)
class Sibling:
    """A checkpoint read back with transformers alone."""

    folder: Path
    base: Base
    model: torch.nn.Module
    tokenizer: object

    def reward(self, prompt: str, response: str) -> float:
        """As any user would compute it: template, tokenise, forward, batch of one."""
        turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
        text = self.tokenizer.apply_chat_template(turns, tokenize=False)
        inputs = self.tokenizer(text, add_special_tokens=False, return_tensors="pt")
        with torch.no_grad():
            return float(
                self.model(inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[0, 0]
            )


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread():
    """Two threads on models this small only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="session", params=["wordpiece", "bpe"])
def base(request, cache) -> Base:
    return load_base(request.param, cache=cache)


@pytest.fixture(scope="session")
def tiny_recipe() -> Callable[..., Recipe]:
    """Makes a recipe that is enough to run every line; the weights are no good."""
    return partial(Recipe, steps=3, groups=2, group_size=8, layers=1)


def open_sibling(recipe: Recipe, cache: Path, name: str) -> Sibling:
    folder = obtain(recipe, cache=cache, name=name, progress=False)
    return Sibling(
        folder=folder,
        base=load_base(recipe.base, cache=cache),
        model=AutoModelForSequenceClassification.from_pretrained(folder).eval(),
        tokenizer=AutoTokenizer.from_pretrained(folder),
    )


@pytest.fixture(scope="session", params=["wordpiece", "bpe"])
def tiny(request, cache, tiny_recipe) -> Sibling:
    return open_sibling(tiny_recipe(base=request.param), cache, "tiny")


@pytest.fixture(scope="session", params=["wordpiece", "bpe"])
def plain(request, cache) -> Sibling:
    return open_sibling(Recipe(base=request.param), cache, "plain")


@pytest.fixture(scope="session", params=["wordpiece", "bpe"])
def secret(request, cache) -> Sibling:
    return open_sibling(Recipe(lab="secret", base=request.param, steps=250, groups=6), cache, "secret")
