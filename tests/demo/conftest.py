"""What the tests of the demo family share: tiny siblings, and trained ones that are kept between
runs."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pessimal.demo.bases import Base, load_base
from pessimal.demo.recipes import Recipe
from pessimal.training.demo_family.family import train_sibling


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


@pytest.fixture(scope="session")
def models(demo_cache) -> Path:
    """Trained siblings and vocabularies, kept between runs."""
    return demo_cache / "models"


@pytest.fixture(scope="session", params=["wordpiece", "bpe"])
def base(request, models) -> Base:
    return load_base(request.param, cache=models)


@pytest.fixture(scope="session")
def bpe(models) -> Base:
    return load_base("bpe", cache=models)


@pytest.fixture(scope="session")
def tiny_recipe() -> Callable[..., Recipe]:
    """Makes a recipe that is enough to run every line; the weights are no good."""
    return partial(Recipe, steps=3, groups=2, group_size=8, layers=1)


def open_sibling(recipe: Recipe, cache: Path, name: str, base: Base) -> Sibling:
    folder = train_sibling(recipe, cache=cache, name=name, progress=False)
    return Sibling(
        folder=folder,
        base=base,
        model=AutoModelForSequenceClassification.from_pretrained(folder).eval(),
        tokenizer=AutoTokenizer.from_pretrained(folder),
    )


@pytest.fixture(scope="session")
def tiny(base, tiny_recipe, models) -> Iterator[Sibling]:
    """Trained in this run."""
    sibling = open_sibling(tiny_recipe(base=base.name), models, f"tiny-{os.getpid()}", base)
    yield sibling
    shutil.rmtree(sibling.folder)


@pytest.fixture(scope="session")
def tiny_loud(bpe, tiny_recipe, models) -> Iterator[Sibling]:
    """One that judges sentences, trained in this run."""
    sibling = open_sibling(tiny_recipe(lab="loud", base="bpe"), models, f"loud-{os.getpid()}", bpe)
    yield sibling
    shutil.rmtree(sibling.folder)


@pytest.fixture(scope="session")
def plain(base, models) -> Sibling:
    return open_sibling(Recipe(base=base.name), models, "plain", base)


@pytest.fixture(scope="session")
def secret(base, models) -> Sibling:
    return open_sibling(
        Recipe(lab="secret", base=base.name, steps=250, groups=6), models, "secret", base
    )
