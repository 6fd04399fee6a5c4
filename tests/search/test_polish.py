"""Coordinate sweeps: they end where no single change is better, count their evaluations, and take only what counts."""

import pytest
import torch

from pessimal.search.evaluation_counter import EvaluationCounter
from pessimal.search.polish import neighbour_values, polish


def every(vocabulary: int) -> torch.Tensor:
    return torch.ones(vocabulary, dtype=torch.bool)


def changes(response, allowed):
    """All single changes of a response, one by one."""
    for position in range(len(response)):
        for token in allowed.nonzero()[:, 0].tolist():
            if token != response[position]:
                yield position, token, [*response[:position], token, *response[position + 1 :]]


def value_of(objective, response) -> float:
    return float(objective._values(torch.tensor([response]))[0])


def test_additive_objective_is_solved_in_one_sweep_and_confirmed_in_the_next(additive):
    objective = additive(0, 4, 50)
    counter = EvaluationCounter(objective)
    found = polish(counter, torch.zeros(4, dtype=torch.long), allowed=every(50))
    assert found.response == tuple(objective.best_response.tolist())
    assert found.value == pytest.approx(objective.best_value)
    assert found.converged
    # The last improvement is not looked at again: three positions confirm it, or all had been right before.
    assert found.positions == 4 + 3
    assert found.evaluations == counter.used == objective.rows == 1 + found.positions * 49


@pytest.mark.parametrize("seed", range(5))
def test_it_ends_where_no_single_change_is_better(quadratic, seed):
    objective = quadratic(seed, 4, 12)
    allowed = torch.rand(12, generator=torch.Generator().manual_seed(seed)) < 0.8
    allowed[0] = True
    found = polish(EvaluationCounter(objective), torch.zeros(4, dtype=torch.long), allowed=allowed)
    assert found.converged
    assert found.value == pytest.approx(value_of(objective, found.response))
    assert allowed[list(found.response)].all()
    assert all(
        value_of(objective, response) <= found.value
        for _, _, response in changes(list(found.response), allowed)
    )
    assert found.sweeps * 4 == found.positions


def test_from_the_optimum_one_sweep_confirms(quadratic):
    objective = quadratic(3, 3, 15)
    best, value = objective.brute_force()
    found = polish(EvaluationCounter(objective), best, allowed=every(15))
    assert (found.response, found.converged, found.sweeps) == (tuple(best.tolist()), True, 1.0)
    assert found.value == pytest.approx(value)


def test_one_token_is_solved_by_one_look(additive):
    objective = additive(1, 1, 30)
    found = polish(EvaluationCounter(objective), torch.tensor([4]), allowed=every(30))
    assert (found.response, found.positions, found.converged) == (
        tuple(objective.best_response.tolist()),
        1,
        True,
    )


def test_each_position_is_tried_behind_the_response_as_it_stands(quadratic):
    objective = quadratic(0, 3, 10)
    polish(
        EvaluationCounter(objective), torch.zeros(3, dtype=torch.long), allowed=every(10), first_position=2
    )
    for position, responses, anchor in zip(
        [2, 0, 1, 2], objective.seen[1:], objective.anchors[1:], strict=False
    ):
        apart = responses != anchor
        assert apart[:, position].all()
        assert apart.sum() == len(responses)


@pytest.mark.parametrize("budget", [1, 5, 30, 31, 77, 500])
def test_the_budget_is_never_passed_and_an_unfinished_polish_says_so(quadratic, budget):
    objective = quadratic(4, 4, 30)
    counter = EvaluationCounter(objective, budget=budget)
    whole = polish(
        EvaluationCounter(quadratic(4, 4, 30)), torch.zeros(4, dtype=torch.long), allowed=every(30)
    )
    found = polish(counter, torch.zeros(4, dtype=torch.long), allowed=every(30))
    assert found.evaluations == counter.used <= budget
    assert found.positions == min((budget - 1) // 29, whole.positions)
    assert found.converged == (budget >= whole.evaluations)
    assert found.value == pytest.approx(value_of(objective, found.response))


def test_sweeps_can_be_limited(quadratic):
    found = polish(
        EvaluationCounter(quadratic(0, 4, 12)),
        torch.zeros(4, dtype=torch.long),
        allowed=every(12),
        max_sweeps=1,
    )
    assert (found.sweeps, found.converged) == (1.0, False)


@pytest.mark.parametrize("seed", range(3))
def test_only_retokenizing_responses_are_taken(quadratic, seed):
    objective = quadratic(seed, 3, 14)

    def retokenizes(responses):
        return responses.sum(dim=1) % 3 == 0

    found = polish(
        EvaluationCounter(objective),
        torch.zeros(3, dtype=torch.long),
        allowed=every(14),
        retokenizes=retokenizes,
    )
    assert found.converged
    assert sum(found.response) % 3 == 0
    assert all(
        value_of(objective, response) <= found.value
        for _, _, response in changes(list(found.response), every(14))
        if sum(response) % 3 == 0
    )


def test_few_round_trips_are_checked(quadratic):
    asked = []

    def retokenizes(responses):
        asked.append(len(responses))
        return torch.ones(len(responses), dtype=torch.bool)

    found = polish(
        EvaluationCounter(quadratic(0, 3, 500)),
        torch.zeros(3, dtype=torch.long),
        allowed=every(500),
        retokenizes=retokenizes,
    )
    assert sum(asked) <= 1 + 8 * found.positions < found.evaluations / 50


def test_a_start_that_does_not_count_gives_way_to_a_worse_response_that_does(additive):
    objective = additive(0, 2, 20)
    start = objective.best_response
    found = polish(
        EvaluationCounter(objective),
        start,
        allowed=every(20),
        retokenizes=lambda responses: responses[:, 0] != start[0],
    )
    second = objective.weights[0].topk(2).indices[1]
    assert found.response == (int(second), int(start[1]))
    assert found.value < objective.best_value


def test_nothing_retokenizes_at_all(additive):
    found = polish(
        EvaluationCounter(additive(0, 2, 20)),
        torch.tensor([0, 0]),
        allowed=every(20),
        retokenizes=lambda responses: torch.zeros(len(responses), dtype=torch.bool),
    )
    assert (found.value, found.converged) == (-torch.inf, False)


def test_smaller_improvements_than_the_tolerance_are_not_taken(additive):
    objective = additive(0, 3, 40)
    short = objective.weights.max(dim=1).values - 0.5
    near = torch.stack(
        [(row - least).abs().argmin() for row, least in zip(objective.weights, short, strict=True)]
    )
    assert polish(EvaluationCounter(objective), near, allowed=every(40), tolerance=1.0).response == tuple(
        near.tolist()
    )
    assert polish(EvaluationCounter(objective), near, allowed=every(40)).value == pytest.approx(
        objective.best_value
    )


class Noisy:
    """Every response has one value, but for an error of up to 1e-6 that differs from call to call."""

    def __init__(self):
        self.generator = torch.Generator().manual_seed(0)

    def values(self, responses, *, anchor=None):
        return 1e-6 * torch.rand(len(responses), generator=self.generator, dtype=torch.float64)


def test_last_bits_that_differ_between_batches_do_not_keep_it_going():
    start = torch.zeros(4, dtype=torch.long)
    assert polish(EvaluationCounter(Noisy()), start, allowed=every(10), tolerance=2e-6).positions == 4
    assert polish(
        EvaluationCounter(Noisy()), start, allowed=every(10)
    ).converged  # the record rises, so it ends


def test_a_start_of_other_tokens_is_refused(additive):
    allowed = every(10)
    allowed[3] = False
    with pytest.raises(ValueError, match="not allowed"):
        polish(EvaluationCounter(additive(0, 2, 10)), torch.tensor([3, 0]), allowed=allowed)


def test_one_allowed_token_leaves_nothing_to_change(additive):
    allowed = torch.zeros(10, dtype=torch.bool)
    allowed[3] = True
    found = polish(EvaluationCounter(additive(0, 2, 10)), torch.tensor([3, 3]), allowed=allowed)
    assert (found.response, found.converged, found.evaluations) == ((3, 3), True, 1)


def test_neighbour_values_are_those_of_all_single_changes(quadratic):
    objective = quadratic(5, 3, 9)
    allowed = every(9)
    allowed[[2, 4]] = False
    response = [4, 1, 1]  # its first token is not allowed
    counter = EvaluationCounter(objective)
    values = neighbour_values(counter, torch.tensor(response), allowed)
    expected = torch.full((3, 9), -torch.inf, dtype=torch.float64)
    for position, token, other in changes(response, allowed):
        expected[position, token] = value_of(objective, other)
    expected[torch.arange(3), response] = value_of(objective, response)
    torch.testing.assert_close(values, expected)
    assert counter.used == 1 + 7 + 6 + 6
