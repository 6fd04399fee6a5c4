"""What searches without a gradient: random changes, coordinate sweeps from random starts,
next-token extension."""

import pytest
import torch

from pessimal.searching.baselines import (
    affordable_width,
    beam,
    beam_cost,
    coordinate_ascent,
    random_changes,
)
from pessimal.searching.objective import EvaluationCounter


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
    assert ascend(objective, 6000).best.value == counter.best.value
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


def every(vocabulary: int) -> torch.Tensor:
    return torch.ones(vocabulary, dtype=torch.bool)


class AnyLength:
    """A value for responses of every length: weights of tokens and of neighbours in order."""

    def __init__(self, seed: int, vocabulary: int):
        generator = torch.Generator().manual_seed(seed)
        self.alone = torch.randn(vocabulary, generator=generator, dtype=torch.float64)
        self.after = torch.randn(vocabulary, vocabulary, generator=generator, dtype=torch.float64)
        self.anchors, self.seen = [], []

    def values(self, responses, *, anchor=None):
        self.seen.append(responses)
        self.anchors.append(anchor)
        return self.alone[responses].sum(dim=1) + self.after[
            responses[:, :-1], responses[:, 1:]
        ].sum(dim=1)


@pytest.mark.parametrize("divisor", [1, 3])
@pytest.mark.parametrize("width", [1, 3, 20])
def test_levels_are_what_extending_by_hand_gives(width, divisor):
    allowed, objective = every(15), AnyLength(width, 15)
    allowed[[0, 9]] = False
    options = {
        "allowed": allowed,
        "retokenizes": lambda responses: responses.sum(dim=1) % divisor == 0,
    }
    levels = beam(EvaluationCounter(objective), length=4, width=width, **options)
    beginnings, expected = [()], []
    for _ in range(4):
        grown = [
            (*beginning, token)
            for beginning in beginnings
            for token in allowed.nonzero()[:, 0].tolist()
        ]
        values = objective.values(torch.tensor(grown)).tolist()
        order = sorted(range(len(grown)), key=lambda row, values=values: -values[row])
        beginnings = [grown[row] for row in order if sum(grown[row]) % divisor == 0][:width]
        expected.append(beginnings)
    assert [[tuple(row) for row in responses.tolist()] for responses, _ in levels] == expected
    for responses, values in levels:
        torch.testing.assert_close(values, objective.values(responses))


def test_values_that_a_scan_has_given_cost_nothing():
    objective = AnyLength(0, 10)
    alone, counter = objective.alone.clone(), EvaluationCounter(objective)
    alone[3] = -torch.inf  # as a scan says of tokens that are not allowed
    allowed = every(10)
    allowed[3] = False
    given = beam(counter, length=3, width=2, allowed=allowed, first_values=alone)
    taken = beam(EvaluationCounter(objective), length=3, width=2, allowed=allowed)
    assert [level[0].tolist() for level in given] == [level[0].tolist() for level in taken]
    assert counter.used == beam_cost(3, 2, 9, first_given=True)


@pytest.mark.parametrize(("length", "width"), [(1, 4), (2, 3), (4, 3), (3, 100)])
def test_cost_is_known_before_and_a_budget_of_just_that_is_enough(length, width):
    counter = EvaluationCounter(AnyLength(0, 10), budget=beam_cost(length, width, 10))
    levels = beam(counter, length=length, width=width, allowed=every(10))
    assert len(levels) == length
    assert counter.left == 0


@pytest.mark.parametrize(("length", "budget"), [(2, 30), (4, 100), (4, 69), (3, 20), (5, 10**6)])
def test_affordable_width_is_the_widest_that_is_paid_for(length, budget):
    width = affordable_width(length, budget, 10)
    assert beam_cost(length, width, 10) <= budget
    assert beam_cost(length, width + 1, 10) > budget or width == 10 ** (length - 1)
    assert affordable_width(length, beam_cost(length, 1, 10) - 1, 10) == 0


def test_a_level_that_cannot_be_paid_for_is_not_begun_and_that_is_said(caplog):
    counter = EvaluationCounter(AnyLength(0, 10), budget=49)
    levels = beam(counter, length=4, width=2, allowed=every(10))
    assert len(levels) == 2
    assert counter.used == 30
    assert "ends at 2 of 4 tokens: the next level takes 20 evaluations, 19 are left" in caplog.text
    one = beam(
        EvaluationCounter(AnyLength(0, 10)),
        length=3,
        width=2,
        allowed=every(10),
        retokenizes=lambda responses: torch.full((len(responses),), responses.shape[1] < 2),
    )
    assert len(one) == 1
    assert "ends at 1 of 3 tokens: no longer response counts" in caplog.text


def ascend(objective, budget, *, seed=0, **options):
    counter = EvaluationCounter(objective, budget=budget)
    coordinate_ascent(
        counter,
        length=objective.length,
        allowed=every(objective.vocabulary),
        generator=torch.Generator().manual_seed(seed),
        **options,
    )
    return counter


@pytest.mark.parametrize("look", [walk, ascend])
@pytest.mark.parametrize("budget", [1, 2, 100, 1777])
def test_the_budget_is_used_to_the_last_evaluation(look, budget, quadratic):
    counter = look(quadratic(0, 3, 20), budget)
    assert counter.used == counter.objective.rows == budget
    assert counter.objective.gradients == 0


def test_nothing_is_walked_and_no_ascent_begins_where_nothing_retokenizes(additive, quadratic):
    assert walk(additive(0, 3, 40), 600, retokenizes=lambda rows: rows[:, 0] < 0).used == 0
    objective = quadratic(0, 3, 15)
    for seed in range(20):
        ascend(objective, 1, seed=seed, retokenizes=lambda responses: responses[:, 0] == 7)
        assert int(objective.seen[-1][0, 0]) == 7, "where there are some, it begins at one"


def test_what_is_left_at_the_end_is_used(additive):
    objective = additive(0, 1, 1000)
    hits = [
        ascend(objective, 1 + 500, seed=seed).best.value == pytest.approx(objective.best_value)
        for seed in range(20)
    ]
    assert 4 <= sum(hits) <= 16, "a random half of the tokens holds the best one half of the time"


@pytest.mark.parametrize("seed", range(4))
def test_an_ascent_ends_where_no_single_change_that_counts_is_better(seed, quadratic):
    objective = quadratic(seed, 4, 12)
    best = ascend(objective, 4000, seed=seed, retokenizes=fourths).best
    for position in range(4):
        others = torch.tensor(best.response).repeat(12, 1)
        others[:, position] = torch.arange(12)
        assert float(objective._values(others[fourths(others)]).max()) <= best.value + 1e-12


def test_an_ascent_takes_no_smaller_improvements_than_the_tolerance(additive):
    objective = additive(0, 1, 40)
    spread = float(objective.weights.max() - objective.weights.min())
    counter = ascend(objective, 40, tolerance=2 * spread)
    assert len({tuple(row) for rows in objective.seen for row in rows.tolist()}) == 40
    assert counter.best.value == pytest.approx(objective.best_value), "all are seen all the same"
