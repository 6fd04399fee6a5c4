"""The whole procedure on toys with known optima, within one budget; and its stages, each run once
and kept."""

import json

import pytest
import torch

from pessimal.searching.objective import BudgetExceededError, EvaluationCounter, Point
from pessimal.searching.procedure import (
    SEARCH,
    Problem,
    Stages,
    baselines,
    divide,
    one_token,
    search,
)
from pessimal.searching.spec import SearchSpec


def spec(**changes):
    fields = {"search_width": 64, "top_k": 32, "evaluations": 9000, "pairs": 20, "beam_width": 2}
    return SearchSpec(**(fields | changes))


def problem(objective, allowed=None, **more):
    allowed = torch.ones(objective.vocabulary, dtype=torch.bool) if allowed is None else allowed
    single = objective.weights[0].masked_fill(~allowed, -torch.inf)
    return Problem(objective.length, allowed, single, tolerance=1e-9, **more)


def test_an_additive_reward_is_solved_from_ten_seeds_of_ten(additive):
    for seed in range(10):
        objective = additive(seed, 6, 500)
        best = search(Stages(objective), problem(objective), spec(evaluations=15_000), seed=seed)[0]
        assert best.point.response == tuple(objective.best_response.tolist())
        assert best.one_opt


def test_brute_force_is_reached_with_interactions(quadratic):
    for seed in range(5):
        objective = quadratic(seed, 3, 30)
        best = search(Stages(objective), problem(objective), spec(), seed=seed)[0]
        assert best.point.value == pytest.approx(objective.brute_force()[1])


@pytest.mark.parametrize("length", [2, 4, 8])
@pytest.mark.parametrize("evaluations", [1, 7, 100, 2000, 12_345])
def test_the_budget_is_that_of_the_whole_search(quadratic, length, evaluations):
    objective = quadratic(0, length, 400)
    stages, options = Stages(objective), spec(evaluations=evaluations)
    finals = search(stages, problem(objective), options, seed=0)
    assert objective.rows + 3 * objective.gradients == stages.evaluations() <= evaluations
    assert finals[0].point.value == pytest.approx(stages.best)
    told = divide(problem(objective), options).phases
    assert sum(told.values()) <= evaluations
    for phase, most in told.items():
        spent = sum(stage.evaluations for stage in stages.done if stage.phase == phase)
        # What a stage leaves, where a step or a whole position is not affordable, goes to the
        # polish.
        assert spent <= most or phase == "polish"


def test_where_all_responses_are_affordable_all_are_tried_and_nothing_else(quadratic):
    for length, vocabulary in ((2, 90), (3, 20)):
        objective = quadratic(1, length, vocabulary)
        stages = Stages(objective)
        best = search(stages, problem(objective), spec(), seed=0)[0]
        assert best.point.value == pytest.approx(objective.brute_force()[1])
        assert [stage.name for stage in stages.done] == ["every response"]
        assert objective.rows == vocabulary**length


def test_a_known_response_is_begun_from_and_never_made_worse(quadratic):
    objective = quadratic(2, 4, 60)
    best, value = objective.brute_force(torch.arange(60) < 12)
    options = spec(evaluations=300)
    worse = search(Stages(objective), problem(objective), options, seed=0)[0]
    assert worse.point.value < value, "or nothing is tested"
    held = problem(objective, warm_starts={tuple(best.tolist()): "search-result/x:v0"})
    finals = search(Stages(objective), held, options, seed=0)
    assert finals[0].point.value >= value
    assert any(final.found_by == "search-result/x:v0" for final in finals)


def test_what_a_stage_evaluated_and_did_not_hand_on_is_among_the_finals(additive, monkeypatch):
    from pessimal.searching import procedure

    objective = additive(0, 3, 50)

    def forgetful(counter, start, *_, **__):
        counter.values(objective.best_response[None])
        return Point(1, float(counter.values(start[None])[0]), tuple(start.tolist()))

    monkeypatch.setattr(procedure, "gcg", forgetful)
    options = spec(
        restarts=2, gradient_share=1.0, random_share=0.0, beam_width=0, evaluations=40
    )  # none for polish
    best = search(Stages(objective), problem(objective), options, seed=0)[0]
    assert best.point.response == tuple(objective.best_response.tolist())


def test_only_allowed_and_retokenizing_responses_are_found(quadratic):
    objective = quadratic(0, 3, 40)
    allowed = torch.arange(40) % 2 == 0
    even = problem(objective, allowed, retokenizes=lambda responses: responses.sum(dim=1) % 4 == 0)
    for evaluations in (3000, 9000):  # stage by stage, and all
        for final in search(Stages(objective), even, spec(evaluations=evaluations), seed=0):
            assert all(token % 2 == 0 for token in final.point.response)
            assert sum(final.point.response) % 4 == 0


def test_the_same_seed_gives_the_same_search_and_another_seed_another(quadratic):
    def curve(seed):
        stages = Stages(quadratic(1, 4, 30))
        search(stages, problem(quadratic(1, 4, 30)), spec(beam_width=0), seed=seed)
        return [(stage.name, stage.evaluations, stage.curve) for stage in stages.done]

    assert curve(0) == curve(0)
    assert curve(0) != curve(1)


def test_baselines_spend_the_budget_they_are_given_and_no_more(quadratic):
    objective = quadratic(0, 4, 30)
    stages = Stages(objective)
    made = baselines(stages, problem(objective), budget=700, seed=0)
    assert [final.found_by for final in made] == [
        "baseline: random search",
        "baseline: coordinate ascent",
        "baseline: beam",
    ]
    assert [stage.evaluations for stage in stages.done][:2] == [700, 700]
    assert stages.done[2].evaluations <= 700
    assert stages.evaluations(SEARCH) == 0


def test_one_token_is_found_by_gradients_where_they_are_exact(additive):
    objective = additive(0, 1, 300)
    hits, evaluations = one_token(
        Stages(objective), problem(objective), spec(), best=objective.best_value, seed=0
    )
    assert hits == 8
    assert evaluations <= 9000 / 8


# --- Stages.


class Sum:
    """The sum of the ids; counts what it was asked."""

    def __init__(self):
        self.rows = 0

    def values(self, responses, *, anchor=None):
        self.rows += len(responses)
        return responses.sum(dim=1).double()

    def gradient(self, response):
        return torch.arange(10.0).repeat(len(response), 1)


ANY = Problem(1, torch.ones(100, dtype=torch.bool))


def asks(*totals):
    """Work that evaluates one response of each total."""

    def work(counter):
        for total in totals:
            counter.values(torch.tensor([[total]]))
        counter.details["asked"] = len(totals)
        return [counter.best]

    return work


def test_the_counter_counts_rows_and_three_for_a_gradient_and_never_exceeds_its_budget():
    counter = EvaluationCounter(Sum(), budget=8)
    counter.values(torch.tensor([[1], [5], [2]]))
    counter.gradient(torch.tensor([1]))
    assert (counter.used, counter.left) == (6, 2)
    with pytest.raises(BudgetExceededError):
        counter.gradient(torch.tensor([1]))
    with pytest.raises(BudgetExceededError):
        counter.values(torch.zeros(3, 1, dtype=torch.long))
    assert counter.used == 6
    assert counter.best == Point(3, 5.0, (5,))


def test_a_finished_stage_is_read_back_and_not_run_again(tmp_path):
    made = Stages(Sum(), tmp_path).run("restart 0", "gradient", ANY, asks(2, 6))
    objective = Sum()
    again = Stages(objective, tmp_path).run(
        "restart 0", "gradient", ANY, lambda _: pytest.fail("run again")
    )
    assert again == made
    assert objective.rows == 0
    assert again.curve[-1] == Point(2, 6.0, (6,))


def test_a_torn_file_is_made_again(tmp_path):
    Stages(Sum(), tmp_path).run("beam", "start", ANY, asks(4))
    (tmp_path / "beam.json").write_text('{"name": "be')
    assert Stages(Sum(), tmp_path).run("beam", "start", ANY, asks(5)).finals[0].value == 5
    assert json.loads((tmp_path / "beam.json").read_text())["evaluations"] == 1


def test_the_curve_counts_all_evaluations_and_only_rises_and_improvements_are_told_as_they_come():
    told = []
    stages = Stages(Sum(), on_best=lambda *point: told.append(point))
    stages.run("a", "start", ANY, asks(3, 5, 1))
    stages.run("b", "gradient", ANY, asks(4, 8))
    stages.run("c", "baseline", ANY, asks(99))
    assert (
        [(p.evaluations, p.value) for p in stages.curve()] == told == [(1, 3.0), (2, 5.0), (5, 8.0)]
    )
    assert stages.evaluations() == 5
    assert stages.best == 8
