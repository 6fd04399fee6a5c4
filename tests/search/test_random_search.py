"""The baseline of chance."""

import pytest
import torch

from pessimal.search.evaluation_counter import EvaluationCounter
from pessimal.search.random_search import random_search


def run(objective, budget, *, seed=0, allowed=None, retokenizes=None):
    counter = EvaluationCounter(objective, budget=budget)
    random_search(
        counter,
        length=objective.length,
        allowed=torch.ones(objective.vocabulary, dtype=torch.bool) if allowed is None else allowed,
        generator=torch.Generator().manual_seed(seed),
        retokenizes=retokenizes,
    )
    return counter


def evaluated(objective):
    return [tuple(row) for rows in objective.seen for row in rows.tolist()]


@pytest.mark.parametrize("budget", [1, 100, 1000, 1777])
def test_the_budget_is_used_to_the_last_evaluation(budget, additive):
    objective = additive(0, 4, 50)
    assert run(objective, budget).left == 0
    assert objective.rows == budget
    assert objective.gradients == 0


def test_no_response_is_evaluated_twice_and_all_of_a_small_space_are(quadratic):
    objective = quadratic(0, 3, 6)
    counter = run(objective, 10_000)
    rows = evaluated(objective)
    assert len(rows) == len(set(rows)) == 6**3
    assert counter.best.value == pytest.approx(objective.brute_force()[1])


def test_only_allowed_and_retokenizing_responses_are_evaluated(additive):
    objective, allowed = additive(0, 3, 40), torch.arange(40) % 2 == 0
    run(objective, 600, allowed=allowed, retokenizes=lambda rows: rows.sum(dim=1) % 4 == 0)
    rows = torch.tensor(evaluated(objective))
    assert len(rows) == 600
    assert allowed[rows].all()
    assert (rows.sum(dim=1) % 4 == 0).all()


def test_it_ends_where_nothing_retokenizes(additive):
    none = run(additive(0, 3, 40), 600, retokenizes=lambda rows: rows[:, 0] < 0)
    assert none.used == 0


def test_the_same_seed_gives_the_same_search(quadratic):
    one, same, other = (run(quadratic(0, 4, 12), 500, seed=seed).curve for seed in (5, 5, 6))
    assert one == same
    assert one != other


def test_it_goes_on_from_its_best_response(additive):
    objective = additive(0, 4, 200)
    run(objective, 2000)
    best, best_value = None, -torch.inf
    for rows, anchor in zip(objective.seen, objective.anchors, strict=True):
        if anchor is None:  # a start: the first, or another when all changes have been tried
            best, best_value = None, -torch.inf
        else:
            assert torch.equal(anchor, best)
            assert ((rows != best).sum(dim=1) == 1).all()
        values = objective._values(rows)
        if float(values.max()) > best_value:
            best, best_value = rows[int(values.argmax())], float(values.max())


@pytest.mark.parametrize("seed", range(3))
def test_it_climbs_where_uniform_chance_does_not(seed, additive):
    objective = additive(seed, 6, 300)
    uniform = torch.randint(300, (4000, 6), generator=torch.Generator().manual_seed(seed))
    assert run(objective, 4000, seed=seed).best.value > float(objective._values(uniform).max()) + 2
