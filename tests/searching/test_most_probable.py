"""The most probable answer of a language model, proven, where a search is asked for it; and the
ceiling that a search's result is held to."""

import itertools

import pytest
import torch

import pessimal
import tiny_language_models
from pessimal.rewards.log_probability import ReferenceOptions
from pessimal.searching.results import ALL_SCORED, HOLDS
from pessimal.searching.spec import Filter

OPTIONS = {"length": 2, "baselines": 0, "allowed": [Filter.words]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_language_models.checkpoint(
        tmp_path_factory.mktemp("tiny") / "llama", template=tiny_language_models.CHAT
    )


@pytest.fixture(scope="module")
def model(folder):
    return pessimal.load(str(folder), kind="log_probability")


def proof(found) -> dict:
    rows = found.tables["checks"].set_index("check")
    return rows.loc[ALL_SCORED].to_dict()


@pytest.mark.parametrize("mode", ["text"])
def test_a_search_for_log_probability_proves_its_answer(model, mode):
    found = pessimal.search(model, "greatest", evaluations=2_000, mode=mode, **OPTIONS)
    assert found.exact
    assert found.found_by == "most probable"
    assert proof(found)["verdict"] == HOLDS
    tokens = found.context.allowed.nonzero()[:, 0].tolist()
    every = torch.tensor(list(itertools.product(tokens, repeat=2)))
    if mode == "text":
        every = every[found.context.retokenizes(every)]
    values = found.stages.objective.values(every)
    assert tuple(every[values.argmax()].tolist()) == found.response
    assert found.reward == pytest.approx(float(values.max()), abs=1e-4)
    assert found.evaluations < 500


@pytest.fixture(scope="module")
def implicit(folder, tmp_path_factory):
    other = tiny_language_models.checkpoint(
        tmp_path_factory.mktemp("tiny") / "other", template=tiny_language_models.CHAT, seed=1
    )
    spec = ReferenceOptions(reference=str(other), beta=2.0, closing=False)
    return pessimal.load(str(folder), kind="implicit", implicit=spec)


@pytest.mark.parametrize(
    ("kind", "mode", "goal"),
    [
        ("implicit", "ids", "optimal"),
        ("implicit", "text", "pessimal"),
        ("log_probability", "ids", "pessimal"),
        ("log_probability", "text", "optimal"),
    ],
)
def test_all_pairs_of_a_sum_over_tokens_cost_one_forward_a_first_token(
    request, model, kind, mode, goal
):
    model = model if kind == "log_probability" else request.getfixturevalue("implicit")
    found = pessimal.search(
        model, "greatest", evaluations=500, mode=mode, goal=goal, certificate="none", **OPTIONS
    )
    tokens = found.context.allowed.nonzero()[:, 0].tolist()
    assert len(tokens) ** 2 > 500 > found.evaluations
    assert found.exact
    assert proof(found)["verdict"] == HOLDS
    assert "forwards rule out" in proof(found)["measured"]
    every = torch.tensor(list(itertools.product(tokens, repeat=2)))
    if mode == "text":
        every = every[found.context.retokenizes(every)]
    values = found.stages.objective.values(every)
    assert tuple(every[values.argmax()].tolist()) == found.response
    assert found.sign * found.reward == pytest.approx(float(values.max()), abs=1e-4)


def test_a_budget_that_proves_nothing_falls_back_and_says_so(model, caplog):
    with caplog.at_level("INFO"):
        found = pessimal.search(model, "greatest", evaluations=20, **OPTIONS)
    assert not found.exact
    assert "do not prove" in caplog.text
    assert proof(found)["verdict"] != HOLDS


@pytest.mark.parametrize("goal", ["optimal"])
def test_a_search_says_how_far_its_head_could_go(tiny_checkpoint, goal):
    model = pessimal.load(str(tiny_checkpoint))
    found = pessimal.search(model, length=2, evaluations=3_000, baselines=0, goal=goal)
    bounds = pessimal.ceiling(model)
    sign = 1 if goal == "optimal" else -1
    assert found.ceiling == pytest.approx(bounds.high if sign > 0 else bounds.low)
    rows = found.tables["result"]
    middle = (bounds.low + bounds.high) / 2
    shares = (rows["reward"] - middle) / (rows["ceiling"] - middle)
    assert rows["ceiling_share"].tolist() == pytest.approx(shares.tolist())
    assert 0 < rows["ceiling_share"][0] < 1
    assert found.results[0].summary["ceiling_share"] == rows["ceiling_share"][0]
