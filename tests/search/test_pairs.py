"""Two tokens: exact over the pairs that are tried, and honest about which these are."""

import itertools

import pytest
import torch

from pessimal.errors import ConfigError
from pessimal.search.evaluation_counter import BudgetExceededError, EvaluationCounter
from pessimal.search.pairs import pairs, pairs_cost


def every(vocabulary: int) -> torch.Tensor:
    return torch.ones(vocabulary, dtype=torch.bool)


class Interacting:
    """Two tokens that interact, worth something alone too: what a token alone says of it in a pair is noisy."""

    def __init__(self, seed: int, vocabulary: int, strength: float = 0.7):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape):
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        self.first, self.second = normal(vocabulary), normal(vocabulary)
        self.left, self.right = normal(vocabulary, 4), normal(vocabulary, 4)
        self.strength = strength
        self.anchors, self.seen = [], []

    def values(self, responses, *, anchor=None):
        self.anchors.append(anchor)
        self.seen.append(responses)
        if responses.shape[1] == 1:
            return self.first[responses[:, 0]] + self.second[responses[:, 0]] / 2
        a, b = responses.T
        return self.first[a] + self.second[b] + self.strength * (self.left[a] * self.right[b]).sum(dim=1)

    def table(self):
        both = self.left @ self.right.T
        return self.first[:, None] + self.second[None] + self.strength * both


def sorted_pairs(table: torch.Tensor, keep: int) -> list[list[int]]:
    order = table.flatten().argsort(descending=True, stable=True)[:keep]
    return [[int(i) // table.shape[1], int(i) % table.shape[1]] for i in order]


def test_with_all_tokens_it_is_brute_force():
    objective = Interacting(0, 30)
    counter = EvaluationCounter(objective)
    found = pairs(counter, m=30, allowed=every(30), keep=50)
    assert found.top.tolist() == sorted_pairs(objective.table(), 50)
    assert found.best_value == pytest.approx(float(objective.table().max()))
    assert (found.label, found.complete, found.m) == ("exact", True, 30)
    assert found.evaluations == counter.used == 900 == pairs_cost(30, 30)
    assert found.best_response == tuple(found.top[0].tolist())


@pytest.mark.parametrize("seed", range(10))
def test_a_tenth_of_the_tokens_is_enough_for_the_best_of_all_pairs(seed):
    objective = Interacting(seed, 400, strength=0.3)
    found = pairs(EvaluationCounter(objective), m=40, allowed=every(400))
    assert found.best_value == pytest.approx(float(objective.table().max()))
    assert (found.label, found.m) == ("pruned", 40)


def test_tokens_rank_by_what_they_bring_in_pairs_not_alone():
    objective = Interacting(0, 400, strength=0.0)
    objective.second[:] = torch.arange(400) / 40
    objective.first[:] = -objective.second / 2  # alone, every token is worth nothing
    found = pairs(EvaluationCounter(objective), m=20, allowed=every(400), keep=10**6)
    assert found.best_response == (0, 399)
    tried = {tuple(row) for row in found.top.tolist()}
    assert tried >= set(itertools.product(range(20), range(380, 400)))
    assert tuple(found.top[1].tolist()) == (1, 399)


def test_where_tokens_interact_strongly_the_pruned_best_may_be_missed_and_is_labelled():
    values = []
    for seed in range(10):
        objective = Interacting(seed, 400)
        found = pairs(EvaluationCounter(objective), m=40, allowed=every(400))
        assert found.label == "pruned"
        values.append((found.best_value, float(objective.table().max())))
    assert all(found <= best + 1e-9 for found, best in values)
    assert sum(found == pytest.approx(best) for found, best in values) >= 7


@pytest.mark.parametrize("turned", [False, True])
def test_a_pair_of_tokens_that_are_worthless_alone_is_found_through_a_partner(turned):
    alone = torch.arange(300.0, dtype=torch.float64) / 300
    table = alone[:, None] + alone[None]
    table[:, 298] += 5  # what goes well with a good token is no partner of 299, the best single token:
    table[:, 299] -= 5
    table[0] = -10  # that is token 0, the worst beginning there is but for two ends,
    table[0, 299] = 1.5
    table[0, 1] = 30  # the other one that nothing speaks for
    if turned:
        table = table.T

    class Given:
        def values(self, responses, *, anchor=None):
            return (
                table[responses[:, 0], responses[:, 1]] if responses.shape[1] == 2 else alone[responses[:, 0]]
            )

    found = pairs(EvaluationCounter(Given()), m=10, allowed=every(300))
    assert found.best_response == ((1, 0) if turned else (0, 1))


def test_each_pair_counts_once_with_its_own_value():
    objective = Interacting(1, 100)
    found = pairs(EvaluationCounter(objective), m=20, allowed=every(100), keep=10_000)
    rows = [tuple(row) for row in found.top.tolist()]
    assert len(set(rows)) == len(rows)
    torch.testing.assert_close(found.values, objective.values(found.top))
    assert (found.values.diff() <= 0).all()
    grid = len(rows) - (16 + 16) * 100 + 16 * 16
    assert 0 < grid <= 400
    assert found.evaluations == pairs_cost(20, 100) == 100 + 2 * 2 * 8 * 100 + 400


def test_pairs_of_good_tokens_are_all_tried():
    objective = Interacting(2, 60, strength=0.0)  # without interaction, the tokens' own values rank the pairs
    found = pairs(EvaluationCounter(objective), m=12, allowed=every(60), keep=144)
    firsts, seconds = (weights.topk(12).indices.tolist() for weights in (objective.first, objective.second))
    tried = {
        tuple(row)
        for row in pairs(EvaluationCounter(objective), m=12, allowed=every(60), keep=9999).top.tolist()
    }
    assert set(itertools.product(firsts, seconds)) <= tried
    assert found.best_response == (firsts[0], seconds[0])


def test_values_that_a_scan_has_given_cost_nothing():
    objective = Interacting(3, 80)
    alone = objective.values(torch.arange(80)[:, None])
    given = pairs(EvaluationCounter(objective), m=10, allowed=every(80), first_values=alone)
    taken = pairs(EvaluationCounter(objective), m=10, allowed=every(80))
    assert given.top.tolist() == taken.top.tolist()
    assert given.evaluations == pairs_cost(10, 80, first_given=True) == taken.evaluations - 80


def test_pairs_that_begin_alike_share_the_beginning():
    objective = Interacting(3, 80)
    pairs(EvaluationCounter(objective), m=20, allowed=every(80))
    shared = [call for call in zip(objective.anchors, objective.seen, strict=True) if call[0] is not None]
    assert len(shared) == 16 + 20
    assert all((responses[:, 0] == anchor[0]).all() for anchor, responses in shared)


def test_only_allowed_tokens_are_tried():
    objective = Interacting(4, 60)
    allowed = every(60)
    allowed[::2] = False
    objective.first[0] = objective.second[0] = 100.0
    found = pairs(EvaluationCounter(objective), m=30, allowed=allowed)
    assert found.complete
    assert (found.top % 2 == 1).all()
    table = objective.table().masked_fill(~(allowed[:, None] & allowed[None]), -torch.inf)
    assert found.top.tolist() == sorted_pairs(table, len(found.top))


@pytest.mark.parametrize("seed", range(5))
def test_only_retokenizing_pairs_win_and_rank(seed):
    objective = Interacting(seed, 300, strength=0.3)

    counts = torch.rand(300, 300, generator=torch.Generator().manual_seed(seed)) < 0.5

    def retokenizes(responses):
        return counts[responses[:, 0], responses[:, -1]]

    found = pairs(EvaluationCounter(objective), m=60, allowed=every(300), retokenizes=retokenizes)
    assert retokenizes(found.top).all()
    best = objective.table().masked_fill(~counts, -torch.inf).max()
    assert found.best_value == pytest.approx(float(best))


def test_tokens_that_no_text_gives_do_not_take_the_places_of_others():
    objective = Interacting(0, 100, strength=0.0)
    objective.first[:30] += 10
    objective.second[:30] += 10

    def retokenizes(responses):
        return (responses >= 30).all(dim=1)

    found = pairs(EvaluationCounter(objective), m=20, allowed=every(100), retokenizes=retokenizes, keep=10**6)
    firsts, seconds = (
        (30 + weights[30:].topk(20).indices).tolist() for weights in (objective.first, objective.second)
    )
    assert {tuple(row) for row in found.top.tolist()} >= set(itertools.product(firsts, seconds))


def test_pieces_that_count_only_together_are_found():
    objective = Interacting(0, 100)

    def retokenizes(responses):
        if responses.shape[1] == 1:
            return torch.zeros(len(responses), dtype=torch.bool)
        return responses[:, 0] > responses[:, 1]

    found = pairs(EvaluationCounter(objective), m=20, allowed=every(100), retokenizes=retokenizes)
    assert (found.top[:, 0] > found.top[:, 1]).all()


def test_where_no_pair_counts_it_is_said_what_to_type():
    def refuse(responses):
        return torch.zeros(len(responses), dtype=torch.bool)

    with pytest.raises(ConfigError, match="mode=ids"):
        pairs(EvaluationCounter(Interacting(0, 50)), m=20, allowed=every(50), retokenizes=refuse)


def test_a_budget_that_does_not_pay_for_it_is_left_alone():
    counter = EvaluationCounter(Interacting(0, 50), budget=pairs_cost(20, 50) - 1)
    with pytest.raises(BudgetExceededError):
        pairs(counter, m=20, allowed=every(50))
    assert counter.used == 0
