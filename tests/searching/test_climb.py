"""The climb, way by way and together, against closed forms and brute force; and the passes that
prove what it ends with."""

import pytest
import torch

from pessimal.searching.climb import WAYS, climb, passes
from pessimal.searching.exact import NOT_ONE_OPT, ONE_OPT, PARTLY, UNTRIED, certify
from pessimal.searching.objective import EvaluationCounter
from pessimal.searching.spec import SearchSpec


def every(n):
    return torch.ones(n, dtype=torch.bool)


def climbed(objective, budget, *, seed=0, allowed=None, **options):
    counter = EvaluationCounter(objective, budget=budget)
    done = climb(
        counter,
        SearchSpec(top_k=32),
        length=objective.length,
        allowed=every(objective.vocabulary) if allowed is None else allowed,
        generator=torch.Generator().manual_seed(seed),
        **options,
    )
    return counter, done


@pytest.mark.parametrize("ways", [WAYS, *[(way,) for way in WAYS]])
def test_each_way_alone_and_all_together_solve_an_additive_objective(ways, additive):
    objective = additive(0, 4, 200)
    counter, done = climbed(objective, 20_000, seed=0, ways=ways)
    assert counter.best.value == pytest.approx(objective.best_value)
    assert set(done.evaluations) == set(ways)
    assert sum(done.evaluations.values()) == counter.used


@pytest.mark.parametrize("budget", [1, 3, 67, 1000])
def test_a_budget_is_used_but_for_less_than_a_gradient_and_no_response_twice(budget, quadratic):
    objective = quadratic(0, 4, 300)
    counter, _ = climbed(objective, budget)
    assert budget - 3 <= counter.used <= budget
    rows = [tuple(row) for rows in objective.seen for row in rows.tolist()]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("ways", [WAYS, *[(way,) for way in WAYS]])
def test_it_ends_where_nothing_new_is_left(ways, quadratic):
    objective = quadratic(0, 2, 12)
    counter, _ = climbed(objective, 10**6, ways=ways)
    assert objective.rows <= 12**2
    assert counter.best.value == pytest.approx(objective.brute_force()[1])


def test_where_gradients_mislead_other_ways_have_their_turns(additive):
    class Misled(type(additive(0, 2, 2))):
        def _gradient(self, response):
            return -self.weights

    objective = Misled(0, 6, 2000)
    counter, done = climbed(objective, 20_000)
    assert done.evaluations["random changes"] > 10_000
    assert counter.best.value > 0.9 * objective.best_value
    right = additive(0, 6, 2000)
    counter, done = climbed(right, 20_000)
    assert done.evaluations["random changes"] < 10_000
    assert counter.best.value == pytest.approx(right.best_value)


def test_only_what_is_allowed_and_retokenizes_is_evaluated(quadratic):
    objective, even = quadratic(0, 3, 40), torch.arange(40) % 2 == 0

    def fourths(rows):
        return rows.sum(dim=1) % 4 == 0

    climbed(objective, 3000, allowed=even, retokenizes=fourths)
    rows = torch.cat(objective.seen)
    assert even[rows].all()
    assert fourths(rows).all()


def proven(objective, budget, start, **options):
    counter = EvaluationCounter(objective, budget=budget)
    among = {"allowed": every(objective.vocabulary), **options}
    response, values = passes(counter, start, **among)
    return counter, response, certify(values, response, noise=1e-9, **among)


@pytest.mark.parametrize("seed", range(5))
def test_passes_end_where_no_single_change_is_better_and_all_were_tried(seed, quadratic):
    objective = quadratic(seed, 4, 60)
    start = torch.randint(60, (4,), generator=torch.Generator().manual_seed(seed))
    counter, response, certificate = proven(objective, 10**5, start)
    assert certificate.verdict == ONE_OPT
    assert certificate.evaluations == 1 + 4 * 59 == 1 + certificate.changes
    assert counter.used == objective.rows
    for position in range(4):
        changes = response.repeat(60, 1)
        changes[:, position] = torch.arange(60)
        assert objective._values(changes).max() == pytest.approx(certificate.value)


@pytest.mark.parametrize("budget", [1, 100])
def test_a_budget_too_small_for_all_tries_each_positions_best_and_claims_nothing(budget, additive):
    objective = additive(0, 4, 60)
    counter, response, certificate = proven(objective, budget, objective.best_response)
    assert counter.used <= budget
    assert torch.equal(response, objective.best_response)
    assert certificate.verdict == (PARTLY if budget > 7 else UNTRIED)
    assert certificate.evaluations - 1 <= budget < certificate.changes
    if budget == 100:  # the gradient is exact here, so the best of each position was tried
        best = objective.weights.topk(2, dim=1).values
        assert len(certificate.neighbours) == 4
        margins = certificate.neighbours["margin"].to_numpy()
        assert margins == pytest.approx((best[:, 0] - best[:, 1]).numpy())


def test_a_plant_that_is_better_is_not_certified(additive):
    objective = additive(0, 3, 50)
    worse = objective.best_response.clone()
    worse[1] = int(objective.weights[1].argsort()[-2])
    values = torch.stack(
        [
            objective._values(
                worse.repeat(50, 1).index_fill(1, torch.tensor([p]), 0)
                + torch.eye(3, dtype=torch.long)[p] * torch.arange(50)[:, None]
            )
            for p in range(3)
        ]
    )
    verdict = certify(values, worse, allowed=every(50), noise=1e-9).verdict
    assert verdict == NOT_ONE_OPT
    _, response, certificate = proven(objective, 10**4, worse)
    assert torch.equal(response, objective.best_response)
    assert certificate.verdict == ONE_OPT
