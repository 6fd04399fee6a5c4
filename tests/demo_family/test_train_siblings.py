"""`python -m experiments.demo_family.train`: which names stand for which siblings, and what it prints."""

from experiments.demo_family.recipes import Recipe, parse_recipe


def test_a_name_says_lab_base_and_seed_or_width():
    assert parse_recipe("plain-wordpiece-3") == Recipe(seed=3)
    assert parse_recipe("wordy-bpe-1") == Recipe("wordy", "bpe", seed=1)
    assert parse_recipe("alder-bpe-large") == Recipe("alder", "bpe", width=128)
