"""The proposals of a step: which tokens the gradient likes best, and even draws from them."""

import itertools

import pytest
import torch

from pessimal.search.sampler import random_responses, sample, top_tokens


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def by_hand(gradient, current, allowed, k):
    """The same, position by position, by sorting."""
    rows = []
    for slopes, here in zip(gradient.tolist(), current.tolist(), strict=True):
        others = [token for token in range(len(slopes)) if allowed[token] and token != here]
        rows.append(sorted(others, key=lambda token: -slopes[token])[:k])
    return torch.tensor(rows)


@pytest.mark.parametrize("seed", range(5))
def test_tokens_are_the_allowed_others_of_largest_gradient(seed):
    gradient = torch.randn(5, 60, generator=generator(seed))
    allowed = torch.rand(60, generator=generator(seed + 100)) < 0.5
    current = allowed.nonzero()[:5, 0]
    found = top_tokens(gradient, current=current, allowed=allowed, k=7)
    assert found.dtype == torch.int64
    assert torch.equal(found, by_hand(gradient, current, allowed, 7))


def test_the_gradient_is_left_as_it_was():
    gradient = torch.randn(3, 10, generator=generator())
    before = gradient.clone()
    top_tokens(gradient, current=torch.tensor([0, 1, 2]), allowed=torch.arange(10) < 5, k=3)
    assert torch.equal(gradient, before)


@pytest.mark.parametrize(("n", "kept"), [(4, 3), (1, 0)])
def test_fewer_tokens_where_few_are_allowed(n, kept):
    allowed = torch.arange(9) < n
    found = top_tokens(torch.randn(3, 9), current=torch.zeros(3, dtype=torch.int64), allowed=allowed, k=256)
    assert found.shape == (3, kept)
    assert allowed[found].all()


def test_a_start_of_tokens_that_are_not_allowed_may_be_left():
    allowed = torch.tensor([True, True, False, False])
    found = top_tokens(torch.randn(2, 4), current=torch.tensor([3, 0]), allowed=allowed, k=9)
    assert found.shape == (2, 1), "beside token 0, which stands at the second place, only token 1 is allowed"
    assert int(found[1, 0]) == 1
    assert allowed[found].all()


@pytest.mark.parametrize("broken", [torch.nan, -torch.inf])
def test_slopes_that_are_no_numbers_come_last_and_let_in_nothing_that_is_not_allowed(broken):
    gradient = torch.full((2, 6), broken)
    gradient[:, 3] = -5.0
    allowed = torch.tensor([True, False, True, True, False, True])
    found = top_tokens(gradient, current=torch.tensor([0, 2]), allowed=allowed, k=3)
    assert found[:, 0].tolist() == [3, 3]
    assert [sorted(row) for row in found.tolist()] == [[2, 3, 5], [0, 3, 5]]


@pytest.mark.parametrize(("length", "step_size"), [(1, 1), (4, 1), (4, 2), (5, 3), (6, 4), (7, 7), (3, 9)])
def test_each_row_replaces_exactly_so_many_positions_and_all_alike(length, step_size):
    current = torch.zeros(length, dtype=torch.int64)
    tokens = torch.arange(1, 1 + length * 10).reshape(length, 10)  # each position has tokens of its own
    drawn = sample(current, tokens, width=101, step_size=step_size, generator=generator())
    replaced = drawn != current
    assert (replaced.sum(dim=1) == min(step_size, length)).all()
    places = (drawn - 1) // 10
    assert (places == torch.arange(length))[replaced].all(), "a token comes from its own position's list"
    counts = replaced.int().cumsum(dim=0)  # (rows, L), of every beginning of the rows
    assert int((counts.max(dim=1).values - counts.min(dim=1).values).max()) <= 1


def test_all_sets_of_positions_are_drawn_alike():
    tokens = torch.ones(4, 1, dtype=torch.int64)
    drawn = sample(
        torch.zeros(4, dtype=torch.int64), tokens, width=12_000, step_size=2, generator=generator()
    )
    counts = torch.unique(drawn, dim=0, return_counts=True)[1]
    assert len(counts) == len(list(itertools.combinations(range(4), 2)))
    # Two rows of a turn are complements of one another, so that 6,000 turns draw one of three.
    assert (counts - 2000).abs().max() < 5 * (6000 * 1 / 3 * 2 / 3) ** 0.5


def test_tokens_are_drawn_uniformly():
    tokens = torch.arange(1, 9).repeat(3, 1)
    drawn = sample(
        torch.zeros(3, dtype=torch.int64), tokens, width=24_000, step_size=1, generator=generator()
    )
    counts = torch.bincount(drawn.sum(dim=1))[1:]
    assert (counts - 3000).abs().max() < 5 * (24_000 * 1 / 8 * 7 / 8) ** 0.5


def test_the_same_seed_gives_the_same_draws():
    tokens = torch.randint(50, (6, 20), generator=generator())
    current = torch.zeros(6, dtype=torch.int64)
    one, same, other = (
        sample(current, tokens, width=64, step_size=2, generator=generator(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_random_responses_use_all_allowed_tokens_and_no_others():
    allowed = torch.arange(40) % 3 == 0
    drawn = random_responses(500, length=4, allowed=allowed, generator=generator())
    assert drawn.shape == (500, 4)
    assert set(drawn.flatten().tolist()) == set(range(0, 40, 3))
