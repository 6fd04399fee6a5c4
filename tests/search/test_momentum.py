"""The running mean of gradients."""

import pytest
import torch

from pessimal.search.momentum import Momentum


def gradients(n):
    return torch.randn(n, 4, 30, generator=torch.Generator().manual_seed(0))


def test_without_momentum_it_is_the_last_gradient_to_the_bit():
    momentum = Momentum(0.0)
    for gradient in gradients(4):
        assert torch.equal(momentum.update(gradient), gradient)


def test_the_first_mean_is_the_first_gradient():
    (first,) = gradients(1)
    assert torch.equal(Momentum(0.9).update(first), first)


@pytest.mark.parametrize("share", [0.3, 0.9, 0.99])
def test_each_gradient_counts_by_its_age_alone(share):
    momentum = Momentum(share)
    given = gradients(12)
    for gradient in given:
        mean = momentum.update(gradient)
    weights = share ** torch.arange(11, -1, -1.0)
    expected = torch.einsum("n,nlv->lv", weights, given) / weights.sum()
    torch.testing.assert_close(mean, expected)


def test_after_long_it_is_the_published_update():
    momentum, published = Momentum(0.9), None
    for gradient in gradients(200):
        published = gradient if published is None else 0.9 * published + 0.1 * gradient
        mean = momentum.update(gradient)
    torch.testing.assert_close(mean, published)


def test_a_slope_that_is_no_number_does_not_stay():
    momentum = Momentum(0.9)
    broken, sound = torch.tensor([[torch.nan, 1.0, torch.inf]]), torch.ones(1, 3)
    momentum.update(broken)
    assert momentum.update(sound).isfinite().all()


def test_the_gradient_given_is_left_as_it_was():
    given = gradients(3)
    before = given.clone()
    momentum = Momentum(0.9)
    for gradient in given:
        momentum.update(gradient)
    assert torch.equal(given, before)
