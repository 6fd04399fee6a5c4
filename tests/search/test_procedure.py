"""The whole procedure on toys with known optima: the first of the checks."""

import pytest
import torch

from pessimal.search.evaluation_counter import Point
from pessimal.search.gcg import GCGOptions
from pessimal.search.procedure import SEARCH, Final, Plan, Problem, _by_turns, baselines, one_token, search
from pessimal.search.stages import Stages

OPTIONS = GCGOptions(search_width=64, top_k=32, step_size=2, step_size_until=0.8, momentum=0.9, buffer_size=4)


def plan(seed, **changes):
    fields = {
        "gcg": OPTIONS, "evaluations": 4000, "restarts": 8, "beam_width": 2, "polish": 4, "pairs": 20, "seed": seed
    }  # fmt: skip
    return Plan(**(fields | changes))


def problem(objective, allowed=None, retokenizes=None):
    allowed = torch.ones(objective.vocabulary, dtype=torch.bool) if allowed is None else allowed
    single = objective.weights[0].masked_fill(~allowed, -torch.inf)
    return Problem(objective.length, allowed, single, retokenizes, tolerance=1e-9)


def test_an_additive_reward_is_solved_from_ten_seeds_of_ten(additive):
    for seed in range(10):
        objective = additive(seed, 6, 500)
        best = search(Stages(objective), problem(objective), plan(seed))[0]
        assert best.point.response == tuple(objective.best_response.tolist())
        assert best.one_opt


def test_the_gradient_phase_alone_solves_an_additive_reward_from_ten_seeds_of_ten(additive):
    for seed in range(10):
        objective = additive(seed, 4, 500)
        stages = Stages(objective)
        search(stages, problem(objective), plan(seed, restarts=2, beam_width=0, polish=1))
        found = max(stage.best.value for stage in stages.done if stage.phase == "gradient")
        assert found == pytest.approx(objective.best_value)


def test_brute_force_is_reached_with_interactions(quadratic):
    hits = 0
    for seed in range(10):
        objective = quadratic(seed, 3, 20)
        best = search(Stages(objective), problem(objective), plan(seed))[0]
        hits += best.point.value == pytest.approx(objective.brute_force()[1])
    assert hits == 10


def test_two_tokens_are_exact_where_all_are_among_the_best(quadratic):
    for seed in range(5):
        objective = quadratic(seed, 2, 20)
        stages = Stages(objective)
        best = search(stages, problem(objective), plan(seed))[0]
        assert best.point.value == pytest.approx(objective.brute_force()[1])
        assert stages.done[0].name == "pairs"
        assert stages.done[0].details["label"] == "exact"


def test_only_allowed_and_retokenizing_responses_are_found(quadratic):
    objective = quadratic(0, 3, 20)
    allowed = torch.arange(20) % 2 == 0
    even = problem(objective, allowed, retokenizes=lambda responses: responses.sum(dim=1) % 4 == 0)
    for final in search(Stages(objective), even, plan(0)):
        assert all(token % 2 == 0 for token in final.point.response)
        assert sum(final.point.response) % 4 == 0


def test_a_polished_result_has_no_better_neighbour(quadratic):
    objective = quadratic(3, 4, 30)
    for final in search(Stages(objective), problem(objective), plan(3, evaluations=400)):
        if final.one_opt:
            response = torch.tensor(final.point.response)
            for position in range(4):
                neighbours = response.repeat(30, 1)
                neighbours[:, position] = torch.arange(30)
                assert objective.values(neighbours).max() <= final.point.value + 1e-9


def test_the_same_seed_gives_the_same_search_and_another_seed_another(quadratic):
    def curve(seed):
        stages = Stages(quadratic(1, 4, 30))
        search(stages, problem(quadratic(1, 4, 30)), plan(seed, beam_width=0))
        return [(stage.name, stage.evaluations, stage.curve) for stage in stages.done]

    assert curve(0) == curve(0)
    assert curve(0) != curve(1)


def test_baselines_spend_the_budget_they_are_given_and_no_more(quadratic):
    objective = quadratic(0, 4, 30)
    stages = Stages(objective)
    made = baselines(stages, problem(objective), plan(0), budget=700)
    assert [stage.name for stage in made] == ["random search", "coordinate ascent", "beam search"]
    assert all(stage.evaluations <= 700 for stage in made)
    assert made[0].evaluations == made[1].evaluations == 700
    assert stages.evaluations(phases=SEARCH) == 0


def test_one_token_is_found_by_gradients_where_they_are_exact(additive):
    objective = additive(0, 1, 300)
    hits, evaluations = one_token(Stages(objective), problem(objective), plan(0), best=objective.best_value)
    assert hits == 8
    assert evaluations <= 4000 / 8


def test_polish_takes_the_best_of_each_kind_of_start_first():
    finals = [
        Final(number, start, Point(1, value, (number,)))
        for number, (start, value) in enumerate(
            [("beam", 9), ("beam", 8), ("random", 7), ("repeat", 6), ("random", 5)]
        )
    ]
    assert [final.restart for final in _by_turns(finals)] == [0, 2, 3, 1, 4]
