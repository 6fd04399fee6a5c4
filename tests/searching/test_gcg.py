"""The pieces of greedy coordinate gradient against plain versions of themselves."""

import pytest
import torch

from pessimal.searching.climb import Momentum, Visited, sample, top_tokens, unseen


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("n", "k"), [(30, 7), (4, 256), (1, 256)])
@pytest.mark.parametrize("seed", range(3))
def test_tokens_are_the_allowed_others_of_largest_gradient(seed, n, k):
    gradient = torch.randn(5, 60, generator=generator(seed))
    allowed = torch.zeros(60, dtype=torch.bool)
    allowed[torch.randperm(60, generator=generator(seed + 100))[:n]] = True
    current = torch.arange(60)[~allowed][:5]  # a start may be made of others
    current[0] = allowed.nonzero()[0, 0]
    found = top_tokens(gradient, current=current, allowed=allowed, k=k)
    assert found.dtype == torch.int64
    assert found.shape == (5, min(k, n - 1)), (
        "as many as there are beside the one that stands at the first place"
    )
    for slopes, here, tokens in zip(
        gradient.tolist(), current.tolist(), found.tolist(), strict=True
    ):
        others = [token for token in range(60) if allowed[token] and token != here]
        assert tokens == sorted(others, key=lambda token: -slopes[token])[: len(tokens)]


@pytest.mark.parametrize(("length", "step_size"), [(1, 1), (4, 2), (6, 4)])
def test_each_row_replaces_exactly_so_many_positions_and_all_alike(length, step_size):
    current = torch.zeros(length, dtype=torch.int64)
    tokens = torch.arange(1, 1 + length * 10).reshape(
        length, 10
    )  # each position has tokens of its own
    drawn = sample(current, tokens, width=101, step_size=step_size, generator=generator())
    replaced = drawn != current
    assert (replaced.sum(dim=1) == min(step_size, length)).all()
    places = (drawn - 1) // 10
    assert (places == torch.arange(length))[replaced].all(), (
        "a token comes from its own position's list"
    )
    counts = replaced.int().cumsum(dim=0)  # (rows, L), of every beginning of the rows
    assert int((counts.max(dim=1).values - counts.min(dim=1).values).max()) <= 1


@pytest.mark.parametrize("share", [0.0, 0.9])
def test_each_gradient_counts_by_its_age_alone(share):
    momentum, given = Momentum(share), torch.randn(12, 4, 30, generator=generator())
    for gradient in given:
        mean = momentum.update(gradient)
    weights = share ** torch.arange(11, -1, -1.0)
    torch.testing.assert_close(mean, torch.einsum("n,nlv->lv", weights, given) / weights.sum())


def test_unseen_are_given_once_as_many_as_are_wanted_and_only_where_they_retokenize():
    visited, asked = Visited(), []
    drawn = torch.tensor([[1], [2], [1], [3], [4], [5]])

    def odd(rows):
        asked.extend(rows[:, 0].tolist())
        return rows[:, 0] % 2 == 1

    assert unseen(drawn, visited, retokenizes=odd, limit=2).tolist() == [[1], [3]]
    assert asked == [1, 2, 3, 4, 5]
    assert unseen(drawn, visited, retokenizes=odd).tolist() == [[5]], (
        "what was not wanted stays new"
    )
    assert asked[5:] == [5], "what does not retokenize is not tried again either"
