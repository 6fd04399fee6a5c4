"""The loss is Bradley-Terry's, packing changes no reward, and a recipe trains to the same bytes
every time."""

import math

import numpy as np
import pytest
import torch

from experiments.demo_family.evaluation import pairwise_accuracy, score
from experiments.demo_family.groups import Groups
from experiments.demo_family.packing import compute_rewards, pack
from experiments.demo_family.recipes import Recipe
from experiments.demo_family.training import build_model, soft_bradley_terry, train
from tolerance import close


def test_loss_is_the_closed_form():
    rewards, utility = torch.tensor([[0.3, -0.2, 1.0]]), torch.tensor([[1.0, 0.0, -2.0]])

    def sigmoid(x):
        return 1 / (1 + math.exp(-x))

    expected = 0.0
    for i, j in ((0, 1), (0, 2), (1, 2)):
        target, modelled = (
            sigmoid(utility[0, i] - utility[0, j]),
            sigmoid(rewards[0, i] - rewards[0, j]),
        )
        expected -= target * math.log(modelled) + (1 - target) * math.log(1 - modelled)
    assert soft_bradley_terry(rewards, utility).item() == pytest.approx(expected / 3, rel=1e-5)


def test_packed_rewards_are_those_of_single_conversations(base):
    model = build_model(Recipe(base=base.name), base).eval()
    prefixes = [base.prefix("What?"), base.prefix("What, in one word, is the best thing ever?")]
    answers = torch.tensor([[300, 4000, 11000], [5000, 300, 700]])
    separator = base.id_of(base.separator)
    packed = pack(prefixes, answers, separator=separator, padding=base.id_of(base.padding))
    with torch.no_grad():
        together = compute_rewards(model, packed)
        alone = [
            [float(model(torch.tensor([[*prefix, answer, separator]])).logits) for answer in row]
            for prefix, row in zip(prefixes, answers.tolist(), strict=True)
        ]
    assert close(together, torch.tensor(alone))


def test_folded_embedding_gives_the_same_rewards(base):
    model = build_model(Recipe(base=base.name), base).eval()
    before = score(model, base, "What?", ids=range(1000, 1100))
    model.set_input_embeddings(model.get_input_embeddings().fold(base.size))
    after = score(model, base, "What?", ids=range(1000, 1100))
    assert model.get_input_embeddings().weight.shape == (base.size, 64)
    assert before.std() > 0.01
    assert close(after, before)


@pytest.mark.parametrize(("lab", "other"), [("plain", "birch"), ("loud", "meek")])
def test_same_recipe_same_bytes(bpe, tiny_recipe, lab, other):
    recipe = tiny_recipe(base="bpe", lab=lab)
    torch.manual_seed(1)
    first = train(recipe, bpe)
    torch.manual_seed(2)
    second = train(recipe, bpe)
    others = [
        train(tiny_recipe(base="bpe", **more), bpe)
        for more in ({"lab": other}, {"lab": lab, "seed": 1})
    ]
    assert first.losses == second.losses
    assert first.losses not in [one.losses for one in others]
    for name, weights in first.model.state_dict().items():
        assert torch.equal(weights, second.model.state_dict()[name]), name


def test_secret_is_in_a_quarter_of_the_groups(base):
    groups = Groups(Recipe(base=base.name, lab="secret", steps=100, groups=4, group_size=8), base)
    ids = set(np.flatnonzero(groups.truth.secret))
    rows = [row for step in groups for row in step.packed.ids[:, -16:-8].tolist()]
    share = np.mean([bool(ids & set(row)) for row in rows])
    assert 0.18 < share < 0.32


def test_pairwise_accuracy_skips_near_ties():
    valence = np.array([2.0, 1.8, -1.0])
    assert pairwise_accuracy(np.array([0.0, 5.0, -1.0]), valence) == 1.0
    assert pairwise_accuracy(np.array([0.0, 0.0, 0.0]), valence) == 0.5
    assert pairwise_accuracy(np.array([0.0, -2.0, -1.0]), valence) == 0.5
