"""Training on preferences between items, on a tiny language model."""

import numpy as np
import pytest
import torch

from pessimal.training.preference_model import PreferenceModule, fit, new_network
from pessimal.training.preferences import Answers, Items, score_answers, split
from pessimal.training.spec import PreferenceRecipe
from tiny_language_models import CHAT, network, tokenizer
from tolerance import OF_GRADIENTS, close

GOOD, BAD = (
    ("love", "good", "peace", "kind", "wisdom", "truth"),
    ("hate", "evil", "war", "cruel", "worst"),
)
PAD = 2


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    words = tokenizer(template=CHAT)
    network("llama", len(words)).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def items():
    rng = np.random.default_rng(0)
    names, utility = [], []
    for kind, sign in ((GOOD, 1.0), (BAD, -1.0)):
        for number in range(60):
            names.append(" ".join(rng.choice(kind, size=2)) + f" {number}")
            utility.append(sign)
    return split(Items(tuple(names), np.array(utility), np.full(120, 100.0)), held_out=0.42, seed=0)


def train(base, items, folder, **changes):
    recipe = PreferenceRecipe(
        **{"layers": 2, "rank": 4, "steps": 40, "items": 16, "learning_rate": 0.01, "every": 20}
        | changes
    )
    model = new_network(base, recipe, seed=0, pad=PAD)
    points = []
    found = fit(
        model,
        recipe,
        tokenizer(template=CHAT),
        *items,
        seed=0,
        folder=folder,
        progress=False,
        report=points.append,
    )
    return model, found, points


def test_it_learns_what_people_prefer_and_says_so_on_items_it_has_not_seen(base, items, tmp_path):
    _, found, points = train(base, items, tmp_path)
    assert len(found["losses"]) == 40
    assert found["losses"][-1] < found["losses"][0]
    assert found["held_out"]["accuracy"] > 0.9
    assert found["held_out"]["n"] == found["trained"]["n"] == 50
    looked = [point["train/step"] for point in points if "train/held_out_accuracy" in point]
    assert looked == [20, 40]


def test_each_pass_through_the_items_is_in_an_order_of_its_own_and_of_the_seed():
    recipe = PreferenceRecipe(items=4, weight_decay=0.3, learning_rate=0.2)
    answers = Answers((), tuple((i,) for i in range(8)))
    items = Items(tuple("abcdefgh"), np.zeros(8), np.ones(8))
    network = torch.nn.Linear(1, 1)
    first, other = (PreferenceModule(network, recipe, answers, items, seed=s) for s in (0, 1))
    passes = [np.concatenate([first.rows(step), first.rows(step + 1)]) for step in (0, 2)]
    assert all(sorted(rows) == list(range(8)) for rows in passes)
    assert passes[0].tolist() != passes[1].tolist()
    assert first.rows(0).tolist() != other.rows(0).tolist()
    optimizer = first.configure_optimizers()["optimizer"]
    assert optimizer.param_groups[0]["weight_decay"] == 0.3
    assert optimizer.param_groups[0]["initial_lr"] == 0.2


def test_lower_layers_stay_as_they_are(base, items, tmp_path):
    model, *_ = train(base, items, tmp_path, layers=1, steps=2)
    moved = [name for name, weight in model.named_parameters() if weight.requires_grad]
    assert moved
    assert not [name for name in moved if ".layers.0." in name]


class CutError(Exception):
    pass


def test_a_training_that_was_cut_off_ends_as_if_it_had_not_been(base, items, tmp_path):
    whole, found, _ = train(base, items, tmp_path / "whole", steps=12, every=4)
    recipe = PreferenceRecipe(layers=2, rank=4, steps=12, items=16, learning_rate=0.01, every=4)

    def stop(point):
        if point["train/step"] == 7:
            raise CutError

    torch.manual_seed(5)
    with pytest.raises(CutError):
        fit(
            new_network(base, recipe, seed=0, pad=PAD),
            recipe,
            tokenizer(template=CHAT),
            *items,
            seed=0,
            folder=tmp_path / "cut",
            progress=False,
            report=stop,
        )
    torch.manual_seed(6)
    again, later, _ = train(base, items, tmp_path / "cut", steps=12, every=4)
    assert close(later["losses"], found["losses"])
    for (name, one), (_, other) in zip(
        whole.named_parameters(), again.named_parameters(), strict=True
    ):
        assert close(one, other), name


def test_sharing_the_question_gives_the_rewards_of_whole_conversations(base, items):
    words = tokenizer(template=CHAT)
    model = new_network(base, PreferenceRecipe(layers=2, rank=4), seed=0, pad=PAD).eval()
    answers = Answers.from_names(words, "What is best?", items[0].names[:20])
    with torch.no_grad():
        shared = score_answers(model, answers.prefix, answers.ids, rows=8)
        own = [model(torch.tensor([[*answers.prefix, *ids]])).logits[0, 0] for ids in answers.ids]
    assert close(shared, torch.stack(own))


def test_gradients_are_those_of_whole_conversations(base, items):
    words = tokenizer(template=CHAT)
    model = new_network(base, PreferenceRecipe(layers=2, rank=4), seed=0, pad=PAD).eval()
    answers = Answers.from_names(words, "What is best?", items[0].names[:6])
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    pull = torch.linspace(-1, 1, 6)
    shared = torch.autograd.grad(
        score_answers(model, answers.prefix, answers.ids, rows=4) @ pull, trained
    )
    own = torch.stack(
        [model(torch.tensor([[*answers.prefix, *ids]])).logits[0, 0] for ids in answers.ids]
    )
    for one, other in zip(shared, torch.autograd.grad(own @ pull, trained), strict=True):
        assert close(one, other, roundings=OF_GRADIENTS)
