"""Where the truly best change stands in the gradient's order."""

import math

import numpy as np
import pytest
import torch

from pessimal.search.gradient_quality import gradient_quality
from pessimal.search.polish import neighbour_values


def every(vocabulary: int) -> torch.Tensor:
    return torch.ones(vocabulary, dtype=torch.bool)


def quality_of(objective, response, allowed, *, top_k, gradient=None):
    values = neighbour_values(objective, response, allowed)
    gradient = objective.gradient(response) if gradient is None else gradient
    return gradient_quality(values, gradient, response, top_k=top_k)


def test_where_the_objective_is_linear_the_gradient_is_never_wrong(additive):
    objective = additive(0, 3, 40)
    table = quality_of(objective, torch.tensor([1, 2, 3]), every(40), top_k=1)
    assert table["best_id"].tolist() == objective.best_response.tolist()
    assert table["gradient_rank"].tolist() == [1, 1, 1]
    assert table["within_top_k"].all()
    assert table["regret"].tolist() == [0.0, 0.0, 0.0]
    assert table["spearman"].tolist() == pytest.approx([1.0, 1.0, 1.0])
    assert table["n"].tolist() == [39, 39, 39]
    gains = objective.weights.max(dim=1).values - objective.weights[torch.arange(3), [1, 2, 3]]
    assert table["gain"].tolist() == pytest.approx(gains.tolist())


def test_ranks_and_regret_by_hand():
    response, allowed = torch.tensor([0]), every(5)
    values = torch.tensor([[1.0, 1.5, 4.0, 3.0, 2.0]], dtype=torch.float64)
    gradient = torch.tensor([[9.0, 3.0, 1.0, 2.0, 4.0]])  # its order: 4, 1, 3, 2
    (row,) = gradient_quality(values, gradient, response, top_k=3).to_dict("records")
    assert row | {"spearman": None} == {
        "position": 0, "best_id": 2, "gain": 3.0, "gradient_rank": 4, "within_top_k": False, "regret": 1.0,
        "spearman": None, "n": 4, "top_k": 3,
    }  # fmt: skip
    assert row["spearman"] == pytest.approx(1 - 6 * (4 + 9 + 1 + 4) / (4 * 15))
    (row,) = gradient_quality(values, gradient, response, top_k=4).to_dict("records")
    assert (row["within_top_k"], row["regret"]) == (True, 0.0)
    assert allowed.all()


def test_a_gradient_that_says_nothing_promises_no_rank(additive):
    objective = additive(0, 2, 30)
    table = quality_of(objective, torch.tensor([1, 2]), every(30), top_k=5, gradient=torch.zeros(2, 30))
    assert table["gradient_rank"].tolist() == [29, 29]
    assert not table["within_top_k"].any()
    assert table["spearman"].isna().all()


def test_a_gradient_that_points_the_wrong_way(additive):
    objective = additive(0, 2, 30)
    table = quality_of(objective, torch.tensor([1, 2]), every(30), top_k=5, gradient=-objective.weights)
    assert table["gradient_rank"].tolist() == [29, 29]
    assert table["spearman"].tolist() == pytest.approx([-1.0, -1.0])
    assert (table["regret"] > 0).all()


def test_tokens_that_are_not_allowed_and_the_one_that_stands_there_are_not_compared(additive):
    objective = additive(0, 2, 30)
    allowed = every(30)
    allowed[objective.best_response] = False
    start = objective.best_response.clone()
    start[0] = allowed.nonzero()[0, 0]
    table = quality_of(objective, start, allowed, top_k=5)
    best = objective.weights.masked_fill(~allowed, -torch.inf).argmax(dim=1)
    assert table["best_id"].tolist() == best.tolist()
    assert table["n"].tolist() == [int(allowed.sum()) - 1, int(allowed.sum())]
    assert table["gain"][1] < 0  # the position is at its optimum already: the best change loses


@pytest.mark.parametrize("seed", range(3))
def test_the_gradients_first_k_hold_what_regret_says(quadratic, seed):
    objective = quadratic(seed, 3, 60)
    response = torch.tensor([0, 1, 2])
    values = neighbour_values(objective, response, every(60))
    gradient = objective.gradient(response)
    table = gradient_quality(values, gradient, response, top_k=4)
    for row in table.to_dict("records"):
        place = row["position"]
        others = [token for token in range(60) if token != response[place]]
        kept = sorted(others, key=lambda token: -float(gradient[place, token]))[:4]
        best = max(others, key=lambda token: float(values[place, token]))
        assert row["best_id"] == best
        assert row["within_top_k"] == (best in kept)
        assert row["regret"] == pytest.approx(
            float(values[place, best]) - max(float(values[place, token]) for token in kept)
        )
        ranks = [
            np.argsort(np.argsort([float(x[place, token]) for token in others])) for x in (gradient, values)
        ]
        assert row["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])


def test_positions_without_a_change_are_left_out(additive):
    allowed = torch.zeros(30, dtype=torch.bool)
    allowed[[3, 4]] = True
    objective = additive(0, 2, 30)
    table = quality_of(objective, torch.tensor([3, 4]), allowed, top_k=5)
    assert table["n"].tolist() == [1, 1]
    assert all(math.isnan(value) for value in table["spearman"])
    allowed[5] = True
    table = quality_of(objective, torch.tensor([3, 4]), allowed, top_k=5)
    assert table["n"].tolist() == [2, 2]
    assert all(math.isnan(value) for value in table["spearman"]), (
        "two changes are always in one order or the other"
    )
    allowed[5] = False
    allowed[4] = False
    table = quality_of(objective, torch.tensor([3, 4]), allowed, top_k=5)
    assert table["position"].tolist() == [1]
    assert list(quality_of(objective, torch.tensor([3, 3]), allowed, top_k=5).columns) == list(table.columns)
