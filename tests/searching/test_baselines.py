"""The baseline, which searches without a gradient: random changes."""

import pytest
import torch

from pessimal.searching.objective import EvaluationCounter
from pessimal.searching.procedure import random_changes


def walk(objective, budget, *, seed=0, allowed=None, retokenizes=None):
    counter = EvaluationCounter(objective, budget=budget)
    random_changes(
        counter,
        length=objective.length,
        allowed=torch.ones(objective.vocabulary, dtype=torch.bool) if allowed is None else allowed,
        generator=torch.Generator().manual_seed(seed),
        retokenizes=retokenizes,
    )
    return counter


def evaluated(objective):
    return [tuple(row) for rows in objective.seen for row in rows.tolist()]


def test_no_response_is_evaluated_twice_and_all_of_a_small_space_are(quadratic):
    objective = quadratic(0, 3, 6)
    counter = walk(objective, 10_000)
    rows = evaluated(objective)
    assert len(rows) == len(set(rows)) == 6**3
    assert counter.best.value == pytest.approx(objective.brute_force()[1])
    walk(
        objective := quadratic(0, 3, 40),
        600,
        allowed=(even := torch.arange(40) % 2 == 0),
        retokenizes=fourths,
    )
    assert even[rows := torch.tensor(evaluated(objective))].all()
    assert fourths(rows).all()


def fourths(rows):
    return rows.sum(dim=1) % 4 == 0


@pytest.mark.parametrize("seed", range(3))
def test_it_climbs_where_uniform_chance_does_not(seed, additive):
    objective = additive(seed, 6, 300)
    uniform = torch.randint(300, (4000, 6), generator=torch.Generator().manual_seed(seed))
    assert walk(objective, 4000, seed=seed).best.value > float(objective._values(uniform).max()) + 2


@pytest.mark.parametrize("budget", [1, 100])
def test_the_budget_is_used_to_the_last_evaluation(budget, quadratic):
    counter = walk(quadratic(0, 3, 20), budget)
    assert counter.used == counter.objective.rows == budget
    assert counter.objective.gradients == 0


def test_nothing_is_walked_where_nothing_retokenizes(additive):
    assert walk(additive(0, 3, 40), 600, retokenizes=lambda rows: rows[:, 0] < 0).used == 0
