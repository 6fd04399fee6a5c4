"""The whole procedure on toys with known optima, within one budget; and its stages, each run once
and kept."""

import pytest
import torch

from pessimal.searching.objective import BudgetExceededError, EvaluationCounter, Journal, Point
from pessimal.searching.procedure import Plan, Problem, Stages, baseline, plan, search
from pessimal.searching.spec import Certify, SearchSpec


def spec(**changes):
    fields = {"search_width": 64, "top_k": 32, "evaluations": 9000}
    return SearchSpec(**(fields | changes))


def problem(objective, allowed=None, **more):
    allowed = torch.ones(objective.vocabulary, dtype=torch.bool) if allowed is None else allowed
    single = objective.weights[0].masked_fill(~allowed, -torch.inf)
    return Problem(objective.length, allowed, single, tolerance=1e-9, **more)


def run(objective, asked=None, options=None, *, seed=0):
    """The finals of one search, and its stages; what its plan keeps at the end is not used."""
    asked, options = asked or problem(objective), options or spec()
    stages = Stages(objective, asked, budget=options.evaluations)
    given = plan(asked, options, total=options.evaluations)
    return search(stages, asked, options, given, seed=seed), stages, given


def test_an_additive_reward_is_solved_from_ten_seeds_of_ten(additive):
    for seed in range(10):
        objective = additive(seed, 6, 500)
        [best, *_], _, _ = run(objective, options=spec(evaluations=15_000), seed=seed)
        assert best.point.response == tuple(objective.best_response.tolist())


@pytest.mark.parametrize("options", [{}, {"method": "gcg"}])
@pytest.mark.parametrize(("length", "evaluations"), [(2, 20), (4, 107), (4, 2000), (8, 2000)])
def test_every_evaluation_is_counted_and_none_is_of_what_the_certificate_is_kept(
    quadratic, length, evaluations, options
):
    objective = quadratic(0, length, 400)
    finals, stages, given = run(objective, options=spec(evaluations=evaluations, **options))
    assert objective.rows + 3 * objective.gradients == stages.evaluations
    assert stages.evaluations == sum(stage.evaluations for stage in stages.done)
    assert evaluations - 3 - given.certificate <= stages.evaluations
    assert stages.evaluations <= evaluations - given.certificate
    assert finals[0].point.value == stages.best


def test_by_gcg_alone_every_change_is_the_gradients_and_exact_gradients_solve_it(
    additive, quadratic
):
    objective = additive(0, 4, 200)
    [best, *_], stages, _ = run(objective, options=spec(method="gcg", momentum=0.0))
    assert best.point.response == tuple(objective.best_response.tolist())
    assert best.found_by == "gradient"
    assert {stage.name: stage.evaluations > 0 for stage in stages.done} == {
        "sweeps": False,
        "gradient": True,
        "random changes": False,
    }
    # All responses are affordable here, and are not tried by the gradient alone.
    _, stages, given = run(quadratic(1, 2, 20), options=spec(method="gcg"))
    assert not given.every
    assert "every response" not in [stage.name for stage in stages.done]


def test_where_all_responses_are_affordable_all_are_tried_and_nothing_else(quadratic):
    for length, vocabulary in ((2, 90), (3, 20)):
        objective = quadratic(1, length, vocabulary)
        [best, *_], stages, _ = run(objective)
        assert best.point.value == pytest.approx(objective.brute_force()[1])
        assert [stage.name for stage in stages.done] == ["every response"]
        assert objective.rows == vocabulary**length


@pytest.mark.parametrize(
    ("certificate", "total", "kept"),
    [
        ("rest", 3 * 1597, 1597),  # a third pays for all
        ("rest", 4000, 200),
        ("full", 4000, 1597),
        ("none", 4000, 1),  # the result itself
    ],
)
def test_the_certificate_is_kept_its_part(quadratic, certificate, total, kept):
    asked = problem(quadratic(0, 4, 400))
    given = plan(asked, spec(certificate=Certify(certificate)), total=total)
    assert given == Plan(every=False, certificate=kept)


def test_a_known_response_is_begun_from_and_never_made_worse(quadratic):
    objective = quadratic(2, 4, 60)
    best, value = objective.brute_force(torch.arange(60) < 12)
    options = spec(evaluations=300)
    [worse, *_], _, _ = run(objective, options=options)
    assert worse.point.value < value, "or nothing is tested"
    held = problem(objective, warm_starts={tuple(best.tolist()): "search-result/x:v0"})
    finals, _, _ = run(objective, held, options)
    assert finals[0].point.value >= value
    assert any(final.found_by == "search-result/x:v0" for final in finals)


def test_what_a_stage_evaluated_and_did_not_hand_on_is_among_the_finals(additive, monkeypatch):
    from pessimal.searching import procedure
    from pessimal.searching.climb import Climbed

    objective = additive(0, 3, 50)

    def forgetful(counter, *_, **__):
        counter.values(objective.best_response[None])
        return Climbed()

    monkeypatch.setattr(procedure, "climb", forgetful)
    [best, *_], _, _ = run(objective, options=spec(evaluations=40))
    assert best.point.response == tuple(objective.best_response.tolist())


def test_the_same_seed_gives_the_same_search_and_another_seed_another(quadratic):
    def curve(seed):
        _, stages, _ = run(quadratic(1, 4, 30), seed=seed)
        done = [(stage.name, stage.evaluations) for stage in stages.done]
        return done, stages.counter.curve

    assert curve(0) == curve(0)
    assert curve(0) != curve(1)


def test_the_baseline_spends_the_budget_it_is_given_and_none_of_the_searchs(quadratic):
    objective = quadratic(0, 4, 30)
    stages = Stages(objective, problem(objective), budget=100)
    [final] = baseline(stages, problem(objective), budget=700, seed=0)
    assert final.found_by == "baseline: random search"
    assert [(stage.evaluations, stage.baseline) for stage in stages.done] == [(700, True)]
    assert stages.evaluations == 0


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


def test_what_was_evaluated_is_read_back_in_the_same_order_and_not_made_again(tmp_path):
    file, first = tmp_path / "work" / "evaluations", Sum()
    kept = Journal(first, file)
    made = [kept.values(torch.tensor([[n], [n + 1]])) for n in range(4)]
    objective = Sum()
    again = Journal(objective, file)
    for n in range(4):
        assert torch.equal(again.values(torch.tensor([[n], [n + 1]])), made[n])
    assert objective.rows == 0
    assert again.values(torch.tensor([[7]])).tolist() == [7.0]
    assert objective.rows == 1


def test_a_torn_record_is_made_again_and_those_before_it_are_kept(tmp_path):
    file = tmp_path / "evaluations"
    kept = Journal(Sum(), file)
    for n in range(3):
        kept.values(torch.tensor([[n]]))
    file.write_bytes(file.read_bytes()[:-1])
    objective = Sum()
    again = Journal(objective, file)
    assert [again.values(torch.tensor([[n]])).item() for n in range(3)] == [0, 1, 2]
    assert objective.rows == 1
    assert Journal(Sum(), file).values(torch.tensor([[2]])).item() == 2


def test_the_curve_counts_all_evaluations_and_only_rises_and_improvements_are_told_as_they_come():
    told, counted = [], []
    stages = Stages(
        Sum(), ANY, budget=9, on_best=lambda *point: told.append(point), on_count=counted.append
    )
    stages.run("a", asks(3, 5, 1))
    stages.run("b", asks(4, 8))
    stages.baseline("c", asks(99), budget=5)
    curve = [(p.evaluations, p.value) for p in stages.counter.curve]
    assert curve == told == [(1, 3.0), (2, 5.0), (5, 8.0)]
    assert stages.evaluations == 5
    assert sum(counted) == 6, "the bar counts baselines too"
    assert stages.best == 8


def test_a_long_call_is_made_in_parts_that_are_counted_one_by_one():
    counted = []
    counter = EvaluationCounter(Sum(), budget=2000, on_count=counted.append)
    values = counter.values(torch.arange(1300)[:, None])
    assert values.tolist() == list(range(1300))
    assert counted == [512, 512, 276]
    with pytest.raises(BudgetExceededError):
        counter.values(torch.arange(701)[:, None])
    assert counter.used == 1300, "nothing of what is not affordable is made"
