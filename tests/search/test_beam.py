"""Next-token extension: exact at each level, shared beginnings, predictable in what it costs."""

import itertools

import pytest
import torch

from pessimal.search.beam import affordable_width, beam, beam_cost
from pessimal.search.evaluation_counter import EvaluationCounter


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
        return self.alone[responses].sum(dim=1) + self.after[responses[:, :-1], responses[:, 1:]].sum(dim=1)


def by_hand(objective, length, width, tokens, counts=lambda response: True):
    """Winners of each level, without sharing, batches or laziness."""
    beginnings, levels = [()], []
    for _ in range(length):
        grown = [(*beginning, token) for beginning in beginnings for token in tokens]
        values = objective.values(torch.tensor(grown)).tolist()
        order = sorted(range(len(grown)), key=lambda row: -values[row])
        beginnings = [grown[row] for row in order if counts(grown[row])][:width]
        levels.append(beginnings)
    return levels


@pytest.mark.parametrize("width", [1, 3, 20])
def test_levels_are_what_extending_by_hand_gives(width):
    allowed = every(15)
    allowed[[0, 9]] = False
    levels = beam(EvaluationCounter(AnyLength(width, 15)), length=4, width=width, allowed=allowed)
    expected = by_hand(AnyLength(width, 15), 4, width, allowed.nonzero()[:, 0].tolist())
    assert [[tuple(row) for row in level.responses.tolist()] for level in levels] == expected
    assert [level.length for level in levels] == [1, 2, 3, 4]
    for level in levels:
        torch.testing.assert_close(level.values, AnyLength(width, 15).values(level.responses))
        assert (level.best_response, level.best_value) == (
            tuple(level.responses[0].tolist()),
            float(level.values[0]),
        )


def test_as_wide_as_the_vocabulary_two_tokens_are_exact():
    objective = AnyLength(0, 12)
    best = beam(EvaluationCounter(objective), length=2, width=12, allowed=every(12))[-1]
    whole = torch.tensor(list(itertools.product(range(12), repeat=2)))
    assert best.best_value == pytest.approx(float(objective.values(whole).max()))


def test_continuations_of_a_winner_share_their_beginning_with_the_anchor():
    objective = AnyLength(0, 10)
    beam(EvaluationCounter(objective), length=3, width=2, allowed=every(10))
    assert len(objective.seen) == 1 + 2 + 2
    for responses, anchor in zip(objective.seen, objective.anchors, strict=True):
        assert anchor.shape == responses[0].shape
        assert (responses[:, :-1] == anchor[:-1]).all()
        assert responses[:, -1].tolist() == list(range(10))


def test_values_that_a_scan_has_given_cost_nothing():
    objective = AnyLength(0, 10)
    alone, counter = objective.alone.clone(), EvaluationCounter(objective)
    alone[3] = -torch.inf  # as a scan says of tokens that are not allowed
    allowed = every(10)
    allowed[3] = False
    given = beam(counter, length=3, width=2, allowed=allowed, first_values=alone)
    taken = beam(EvaluationCounter(objective), length=3, width=2, allowed=allowed)
    assert [level.responses.tolist() for level in given] == [level.responses.tolist() for level in taken]
    assert given[0].evaluations == 0
    assert counter.used == beam_cost(3, 2, 9, first_given=True) == sum(level.evaluations for level in given)


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
    assert [level.length for level in levels] == [1, 2]
    assert counter.used == 30
    assert "ends at 2 of 4 tokens: the next level takes 20 evaluations, 19 are left" in caplog.text


@pytest.mark.parametrize("seed", range(3))
def test_winners_of_every_level_retokenize(seed):
    def retokenizes(responses):
        return responses.sum(dim=1) % 4 != 1

    levels = beam(
        EvaluationCounter(AnyLength(seed, 15)), length=3, width=4, allowed=every(15), retokenizes=retokenizes
    )
    expected = by_hand(AnyLength(seed, 15), 3, 4, range(15), lambda response: sum(response) % 4 != 1)
    assert [[tuple(row) for row in level.responses.tolist()] for level in levels] == expected


def test_where_nothing_longer_counts_the_beam_ends_and_says_so(caplog):
    levels = beam(
        EvaluationCounter(AnyLength(0, 10)),
        length=3,
        width=2,
        allowed=every(10),
        retokenizes=lambda responses: torch.full((len(responses),), responses.shape[1] < 2),
    )
    assert [level.length for level in levels] == [1]
    assert "ends at 1 of 3 tokens: no longer response counts" in caplog.text
