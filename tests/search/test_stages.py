"""Stages: each is run once, kept, and joined into one curve."""

import json

import pytest
import torch

from pessimal.search.evaluation_counter import BudgetExceededError, EvaluationCounter, Point
from pessimal.search.stages import Stages, joined


class Sum:
    """The sum of the ids; counts what it was asked."""

    def __init__(self):
        self.rows = 0

    def values(self, responses, *, anchor=None):
        self.rows += len(responses)
        return responses.sum(dim=1).double()

    def gradient(self, response):
        return torch.arange(10.0).repeat(len(response), 1)


def asks(*totals):
    """Work that evaluates one response of each total."""

    def work(counter):
        for total in totals:
            counter.values(torch.tensor([[total]]))
        return [counter.best], {"asked": len(totals)}

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


def test_the_curve_holds_only_improvements():
    counter = EvaluationCounter(Sum())
    for total in (3, 1, 7, 7, 9):
        counter.values(torch.tensor([[total]]))
    assert [(p.evaluations, p.value) for p in counter.curve] == [(1, 3.0), (3, 7.0), (5, 9.0)]


def test_a_finished_stage_is_read_back_and_not_run_again(tmp_path):
    first = Stages(Sum(), tmp_path)
    made = first.run("restart 0", "gradient", asks(2, 6))
    objective = Sum()
    again = Stages(objective, tmp_path).run("restart 0", "gradient", lambda _: pytest.fail("run again"))
    assert again == made
    assert objective.rows == 0
    assert again.details == {"asked": 2}
    assert again.best == Point(2, 6.0, (6,))


def test_a_stage_that_fails_keeps_nothing_and_those_before_it_stay(tmp_path):
    stages = Stages(Sum(), tmp_path)
    stages.run("restart 0", "gradient", asks(4))
    with pytest.raises(KeyboardInterrupt):
        stages.run("restart 1", "gradient", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    assert [file.name for file in tmp_path.iterdir()] == ["restart-0.json"]


def test_a_torn_file_is_made_again(tmp_path):
    Stages(Sum(), tmp_path).run("beam", "start", asks(4))
    (tmp_path / "beam.json").write_text('{"name": "be')
    assert Stages(Sum(), tmp_path).run("beam", "start", asks(5)).best.value == 5
    assert json.loads((tmp_path / "beam.json").read_text())["evaluations"] == 1


def test_each_stage_has_the_budget_it_is_given():
    stages = Stages(Sum())
    with pytest.raises(BudgetExceededError):
        stages.run("restart 0", "gradient", asks(1, 2, 3), budget=2)


def test_joined_curves_count_all_evaluations_and_only_rise():
    stages = Stages(Sum())
    stages.run("a", "start", asks(3, 5, 1))
    stages.run("b", "gradient", asks(4, 8))
    stages.run("c", "baseline", asks(100))
    curve = joined([stage for stage in stages.done if stage.phase != "baseline"])
    assert [(p.evaluations, p.value) for p in curve] == [(1, 3.0), (2, 5.0), (5, 8.0)]
    assert stages.evaluations(phases=("start", "gradient")) == 5
