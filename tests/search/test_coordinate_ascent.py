"""The baseline: coordinate sweeps from random starts, for exactly the budget."""

import pytest
import torch

from pessimal.search.coordinate_ascent import coordinate_ascent
from pessimal.search.evaluation_counter import EvaluationCounter
from pessimal.search.polish import polish


def every(vocabulary: int) -> torch.Tensor:
    return torch.ones(vocabulary, dtype=torch.bool)


def ascend(counter, vocabulary, *, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return coordinate_ascent(
        counter, length=counter.objective.length, allowed=every(vocabulary), generator=generator, **options
    )


@pytest.mark.parametrize("budget", [1, 2, 20, 333, 2000])
def test_the_budget_is_used_to_the_last_evaluation(quadratic, budget):
    counter = EvaluationCounter(quadratic(0, 3, 20), budget=budget)
    results = ascend(counter, 20)
    assert counter.used == counter.objective.rows == budget
    assert sum(result.evaluations for result in results) == budget
    assert max(result.value for result in results) == counter.best.value


def test_without_a_budget_it_would_never_end(additive):
    with pytest.raises(ValueError, match="budget"):
        ascend(EvaluationCounter(additive(0, 2, 5)), 5)


@pytest.mark.parametrize("seed", range(5))
def test_restarts_find_the_optimum_of_a_small_objective(quadratic, seed):
    objective = quadratic(seed, 3, 15)
    results = ascend(EvaluationCounter(objective, budget=6000), 15, seed=seed)
    assert len(results) > 10
    assert max(result.value for result in results) == pytest.approx(objective.brute_force()[1])
    assert all(result.converged for result in results[:-1])


def test_ascents_from_different_starts_can_end_differently(quadratic):
    results = ascend(EvaluationCounter(quadratic(0, 4, 30, strength=5.0), budget=6000), 30)
    assert len({result.response for result in results}) > 1


def test_given_starts_come_first(quadratic):
    objective = quadratic(1, 3, 15)
    best, value = objective.brute_force()
    results = ascend(EvaluationCounter(objective, budget=400), 15, starts=[best])
    assert (results[0].response, results[0].value) == (tuple(best.tolist()), pytest.approx(value))
    assert results[0].evaluations == 1 + 3 * 14


def test_what_is_left_at_the_end_is_used(additive):
    objective = additive(0, 1, 1000)
    tops = []
    for seed in range(20):
        (result,) = ascend(EvaluationCounter(objective, budget=1 + 500), 1000, seed=seed)
        assert not result.converged
        assert (result.positions, result.evaluations) == (0, 501)
        tops.append(result.value == pytest.approx(objective.best_value))
    assert 4 <= sum(tops) <= 16, "a random half of the tokens holds the best one half of the time"


def test_what_is_left_goes_to_the_position_whose_turn_it_is(additive):
    objective = additive(0, 2, 100)
    for seed in range(10):
        (result,) = ascend(EvaluationCounter(objective, budget=1 + 99 + 98), 100, seed=seed)
        behind = objective.best_value - result.value
        gaps = objective.weights.topk(2, dim=1).values.diff(dim=1).abs()
        assert behind <= float(gaps.max()) + 1e-9, "all tokens but one were tried at the second position"


def test_improvements_within_the_tolerance_are_not_taken(additive):
    results = ascend(EvaluationCounter(additive(0, 2, 30), budget=500), 30, tolerance=100.0)
    assert [result.positions for result in results[:-1]] == [2] * (len(results) - 1)
    assert len({result.value for result in results}) > 3, "each stays at its random start"


def test_ascents_begin_at_responses_that_count_where_there_are_enough(quadratic):
    objective = quadratic(0, 3, 15)
    starts = []
    for seed in range(20):
        ascend(
            EvaluationCounter(objective, budget=1),
            15,
            seed=seed,
            retokenizes=lambda responses: responses[:, 0] == 7,
        )
        starts.append(int(objective.seen[-1][0, 0]))
    assert starts == [7] * 20


def test_one_seed_is_one_result(quadratic):
    runs = [ascend(EvaluationCounter(quadratic(0, 4, 20), budget=1500), 20, seed=seed) for seed in (7, 7, 8)]
    assert runs[0] == runs[1] != runs[2]


def test_only_retokenizing_responses_are_results(quadratic):
    objective = quadratic(2, 3, 15)
    counter = EvaluationCounter(objective, budget=3000)
    results = ascend(counter, 15, retokenizes=lambda responses: responses.sum(dim=1) % 3 == 0)
    assert all(sum(result.response) % 3 == 0 for result in results)
    everything = torch.cartesian_prod(*[torch.arange(15)] * 3)
    best = objective._values(everything[everything.sum(dim=1) % 3 == 0]).max()
    assert max(result.value for result in results) == pytest.approx(float(best))


def test_each_ascent_is_a_polish_of_its_start(quadratic):
    objective = quadratic(0, 1, 50)
    start = torch.tensor([3])
    (first, *_) = ascend(EvaluationCounter(objective, budget=200), 50, starts=[start])
    assert first == polish(EvaluationCounter(objective), start, allowed=every(50))
