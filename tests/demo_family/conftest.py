"""What the tests of the demo family share: tiny siblings, and trained ones that are kept between
runs."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from experiments.demo_family.bases import Base, load_base
from experiments.demo_family.family import train_sibling
from experiments.demo_family.recipes import Recipe


@dataclass(frozen=True)
class Sibling:
    """A checkpoint read back with transformers alone."""

    folder: Path
    base: Base
    model: torch.nn.Module
    tokenizer: object

    def ids(self, prompt: str, response: str) -> torch.Tensor:
        """(1, length): a conversation by the chat template."""
        turns = [{"role": "user", "content": prompt}, {"role": "assistant", "content": response}]
        text = self.tokenizer.apply_chat_template(turns, tokenize=False)
        return self.tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]

    def reward(self, prompt: str, response: str) -> float:
        """As any user would compute it: template, tokenise, forward, batch of one."""
        with torch.no_grad():
            return float(self.model(self.ids(prompt, response)).logits[0, 0])


@pytest.fixture(scope="session", autouse=True)
def one_torch_thread():
    """Two threads on models this small only get in each other's way."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", params=["wordpiece", "bpe"])
def base(request, demo_cache) -> Base:
    return load_base(request.param, cache=demo_cache)


@pytest.fixture(scope="session")
def bpe(demo_cache) -> Base:
    return load_base("bpe", cache=demo_cache)


@pytest.fixture(scope="session")
def tiny_recipe() -> Callable[..., Recipe]:
    """Makes a recipe that is enough to run every line; the weights are no good."""
    return partial(Recipe, steps=3, groups=2, group_size=8, layers=1)


def open_sibling(recipe: Recipe, folder: Path, base: Base) -> Sibling:
    return Sibling(
        folder=train_sibling(recipe, folder),
        base=base,
        model=AutoModelForSequenceClassification.from_pretrained(folder).eval(),
        tokenizer=AutoTokenizer.from_pretrained(folder),
    )


@pytest.fixture(scope="session")
def tiny(base, tiny_recipe, tmp_path_factory, demo_cache) -> Sibling:
    """Trained in this run."""
    folder = family(tmp_path_factory, demo_cache) / "tiny"
    return open_sibling(tiny_recipe(base=base.name), folder, base)


def family(tmp_path_factory, demo_cache: Path) -> Path:
    """An empty folder for siblings, with the vocabularies that are kept."""
    folder = tmp_path_factory.mktemp("family")
    for file in demo_cache.glob("bpe-*.json"):
        shutil.copy(file, folder)
    return folder
