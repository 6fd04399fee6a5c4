"""`python -m experiments.demo_family.train`: which names stand for which siblings, and what it prints."""

import pytest

from experiments.demo_family import train
from experiments.demo_family.family import family_folder
from experiments.demo_family.recipes import Recipe, parse_recipe
from pessimal.catalogue import CONF
from pessimal.errors import ConfigError


def test_a_name_says_lab_base_and_seed_or_width():
    assert parse_recipe("plain-wordpiece-3") == Recipe(seed=3)
    assert parse_recipe("wordy-bpe-1") == Recipe("wordy", "bpe", seed=1)
    assert parse_recipe("alder-bpe-large") == Recipe("alder", "bpe", width=128)


@pytest.mark.parametrize(
    "name", ["plain", "plain-bpe", "oak-bpe-0", "plain-bpe-small", "plain-bpe-0-1"]
)
def test_another_name_is_refused(name):
    with pytest.raises(ConfigError):
        parse_recipe(name)


def test_groups_are_the_files_of_conf_model():
    words, sentences = train.sibling_names(["words"]), train.sibling_names(["sentences"])
    assert (len(words), len(sentences)) == (16, 10)
    assert train.sibling_names(["all"]) == [*words, *sentences]
    assert set(train.QUICKSTART) < set(words)
    assert train.sibling_names(["plain-bpe-7", *words, "plain-bpe-7"]) == ["plain-bpe-7", *words]
    for name in (*words, *sentences):
        assert (CONF / "model" / f"{name}.yaml").is_file()
        assert parse_recipe(name).judges_sentences == (name in sentences)


def test_the_folder_is_that_of_the_presets(monkeypatch):
    monkeypatch.delenv("DEMO_FAMILY", raising=False)
    assert str(family_folder()) == "runs/demo_family"
    monkeypatch.setenv("DEMO_FAMILY", "/somewhere")
    assert str(family_folder()) == "/somewhere"
