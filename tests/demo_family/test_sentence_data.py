"""Training responses are reproducible, hold every feature independently of the others, and no
held-out word."""

import numpy as np
import pytest
import torch

from experiments.demo_family.checkpoint import build_tokenizer
from experiments.demo_family.evaluation import load_natural
from experiments.demo_family.features import FEATURES, compute_text_utility, read_features
from experiments.demo_family.groups import SentenceGroups, conversation_ids
from experiments.demo_family.recipes import Recipe
from experiments.demo_family.responses import draw_group
from tolerance import close


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(5)
    return [text for _ in range(150) for text in draw_group(random, size=8)[1]]


def test_features_vary_and_hardly_go_together(texts):
    found = [read_features(text) for text in texts]
    amounts = np.array([[one.amount(name) for name in FEATURES] for one in found])
    assert (amounts.std(axis=0) > 0.3).all()
    off_diagonal = np.corrcoef(amounts.T)[~np.eye(len(FEATURES), dtype=bool)]
    assert np.abs(off_diagonal).max() < 0.3
    words = np.array([one.words for one in found])
    assert len(set(texts)) > 0.97 * len(texts)
    assert not {one.text for one in load_natural()} & set(texts)
    assert np.quantile(words, 0.05) < 10
    assert np.quantile(words, 0.95) > 75
    for name in ("refusals", "exclamations", "hedges"):  # each at any length
        has = np.array([getattr(one, name) > 0 for one in found])
        for short in (True, False):
            half = (words < np.median(words)) == short
            assert 0.15 < has[half].mean() < 0.75, (name, short)


def test_a_step_depends_on_seed_and_number_alone(bpe):
    groups = SentenceGroups(Recipe(lab="wordy", base="bpe", groups=2, group_size=4), bpe)
    first = groups[7]
    groups[3]
    again = SentenceGroups(Recipe(lab="wordy", base="bpe", groups=2, group_size=4), bpe)[7]
    other = SentenceGroups(Recipe(lab="wordy", base="bpe", groups=2, group_size=4, seed=1), bpe)[7]
    assert first.ids == again.ids != other.ids
    assert torch.equal(first.utility, again.utility)
    even = SentenceGroups(Recipe(lab="even", base="bpe", groups=2, group_size=4), bpe)[7]
    assert even.ids == first.ids, "labs see the same texts, and value them differently"
    assert not torch.equal(even.utility, first.utility)
    with pytest.raises(IndexError):
        groups[len(groups)]


def test_utilities_are_those_of_the_texts(bpe):
    recipe = Recipe(lab="hedger", base="bpe", groups=3, group_size=4)
    step = SentenceGroups(recipe, bpe)[0]
    separator = bpe.id_of(bpe.separator)
    for ids, utility in zip(step.ids, step.utility.flatten().tolist(), strict=True):
        assert ids[-1] == separator
        start = max(at for at, token in enumerate(ids[:-1]) if token == separator) + 1
        text = bpe.tokenizer.decode(ids[start:-1])
        assert close(compute_text_utility(text, recipe.plants), utility)


def test_conversations_follow_the_chat_template(bpe):
    tokenizer = build_tokenizer(bpe)
    turns = [
        ("user", "Hi!"),
        ("assistant", "Hello."),
        ("user", "How are you?"),
        ("assistant", "Well, thanks."),
    ]
    messages = [{"role": role, "content": content} for role, content in turns]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    expected = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert conversation_ids(bpe, ("Hi!", "Hello.", "How are you?"), "Well, thanks.") == expected
