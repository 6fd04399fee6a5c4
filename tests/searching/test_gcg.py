"""Greedy coordinate gradient against closed forms, brute force and a plain version of itself; then
its pieces."""

from dataclasses import replace

import pytest
import torch

from pessimal.errors import ConfigError
from pessimal.searching.gcg import (
    Buffer,
    Momentum,
    Visited,
    gcg,
    sample,
    starts,
    top_tokens,
    unseen,
)
from pessimal.searching.objective import GRADIENT_COST, EvaluationCounter
from pessimal.searching.spec import SearchSpec

OPTIONS = SearchSpec(search_width=128, top_k=64)
WINNERS = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1], [2, 2, 2], [3, 3, 3]])
ALLOWED = torch.arange(100) < 60


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def start_of(objective, seed=0):
    return torch.randint(
        objective.vocabulary, (objective.length,), generator=generator(1000 + seed)
    )


def run(
    objective, budget, *, seed=0, options=OPTIONS, counter=None, start=None, allowed=None, **more
):
    return gcg(
        counter or EvaluationCounter(objective),
        start_of(objective, seed) if start is None else start,
        options,
        allowed=torch.ones(objective.vocabulary, dtype=torch.bool) if allowed is None else allowed,
        budget=budget,
        generator=generator(seed),
        **more,
    )


def evaluated(objective):
    return torch.cat(objective.seen)


@pytest.mark.parametrize("seed", range(10))
def test_it_reaches_the_closed_form_optimum_of_an_additive_objective(seed, additive):
    objective = additive(seed, 4, 500)
    best = run(objective, 10_000, seed=seed)
    assert best.value == pytest.approx(objective.best_value)
    assert best.response == tuple(objective.best_response.tolist())


def test_steps_are_those_of_the_plain_algorithm(quadratic):
    objective, plain, random = quadratic(3, 6, 2000), quadratic(3, 6, 2000), generator(0)
    allowed = torch.ones(2000, dtype=torch.bool)
    # A plain version: gradients of every step, the published momentum with the right weights, and
    # the best so far.
    best, gradients, seen = start_of(plain), [], {tuple(start_of(plain).tolist())}
    best_value, candidates = float(plain.values(best[None])[0]), [best[None]]
    for _ in range(12):
        gradients.append(plain.gradient(best))
        weights = 0.9 ** torch.arange(len(gradients) - 1, -1, -1.0)
        mean = torch.einsum("n,nlv->lv", weights, torch.stack(gradients)) / weights.sum()
        tokens = top_tokens(mean, current=best, allowed=allowed, k=64)
        drawn = sample(best, tokens, width=128, step_size=2, generator=random)
        fresh = dict.fromkeys(row for row in map(tuple, drawn.tolist()) if row not in seen)
        seen |= set(fresh)
        candidates.append(torch.tensor(list(fresh)))
        values = plain.values(candidates[-1])
        if float(values.max()) > best_value:
            best, best_value = candidates[-1][values.argmax()], float(values.max())
    found = run(objective, 10_000)
    assert all(
        torch.equal(one, other) for one, other in zip(objective.seen, candidates, strict=False)
    )
    assert len(objective.seen) > len(candidates)
    assert found.value > best_value


@pytest.mark.parametrize("budget", [1, 2, 4, 5, 100, 128 + 4, 1001])
@pytest.mark.parametrize("buffer_size", [0, 4])
def test_it_spends_its_budget_and_no_more(budget, buffer_size, quadratic):
    objective, counter = quadratic(0, 5, 300), EvaluationCounter(quadratic(0, 5, 300))
    counter.objective = objective
    run(objective, budget, counter=counter, options=replace(OPTIONS, buffer_size=buffer_size))
    assert counter.used == objective.rows + GRADIENT_COST * objective.gradients
    assert budget - GRADIENT_COST <= counter.used <= budget, (
        "less than a gradient and a candidate is left"
    )


@pytest.mark.parametrize("buffer_size", [0, 1, 4])
def test_no_response_is_evaluated_twice(buffer_size, quadratic):
    objective = quadratic(0, 3, 30)
    run(objective, 6000, options=replace(OPTIONS, buffer_size=buffer_size))
    rows = evaluated(objective)
    assert len(rows.unique(dim=0)) == len(rows) > 5000


def test_only_allowed_and_retokenizing_responses_are_evaluated(quadratic):
    objective, allowed = quadratic(0, 4, 60), torch.arange(60) % 2 == 0
    counter = EvaluationCounter(objective)

    def retokenizes(rows):
        return rows.sum(dim=1) % 4 == 0

    start = torch.tensor([0, 2, 4, 2])
    best = run(
        objective, 2000, counter=counter, start=start, allowed=allowed, retokenizes=retokenizes
    )
    assert counter.used >= 2000 - GRADIENT_COST
    rows = evaluated(objective)
    assert allowed[rows].all()
    assert retokenizes(rows).all()
    assert best.value > float(objective._values(start[None])[0])


def replaced(objective):
    """Positions that each evaluated response but the start replaces."""
    steps = zip(objective.seen[1:], objective.anchors[1:], strict=True)
    return torch.cat([(rows != anchor).sum(dim=1) for rows, anchor in steps]).tolist()


@pytest.mark.parametrize("used_before", [0, 3000])
def test_two_positions_are_replaced_and_one_in_the_end_of_this_run(used_before, quadratic):
    objective = quadratic(1, 6, 500)
    counter = EvaluationCounter(objective)
    counter.used = used_before
    run(objective, 4000, counter=counter)
    positions = replaced(objective)
    assert set(positions[:2900]) == {2}, "of 3,200, the gradients included"
    assert set(positions[3400:]) == {1}


def test_a_gradient_that_points_away_is_overcome_by_looking_further(additive):
    objective = additive(0, 2, 60)
    right = objective._gradient
    objective._gradient = lambda response: -right(response)
    best = run(objective, 1800, options=replace(OPTIONS, search_width=16, top_k=2))
    assert best.value == pytest.approx(objective.best_value)


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


@pytest.mark.parametrize(
    ("length", "step_size"), [(1, 1), (4, 1), (4, 2), (5, 3), (6, 4), (7, 7), (3, 9)]
)
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


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.99])
def test_each_gradient_counts_by_its_age_alone(share):
    momentum, given = Momentum(share), torch.randn(12, 4, 30, generator=generator())
    for gradient in given:
        mean = momentum.update(gradient)
    weights = share ** torch.arange(11, -1, -1.0)
    torch.testing.assert_close(mean, torch.einsum("n,nlv->lv", weights, given) / weights.sum())


def begun(n, *, seed=0, **options):
    options = {"length": 3, "allowed": ALLOWED, **options}
    return starts(n, generator=torch.Generator().manual_seed(seed), **options)


def labels(found):
    return [label for label, _ in found]


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (1, ["beam"]),
        (2, ["beam", "repeat"]),
        (3, ["beam", "repeat", "random"]),
        (8, ["beam"] * 4 + ["repeat"] + ["random"] * 3),
    ],
)
def test_winners_first_up_to_half_then_the_best_token_repeated_then_chance(n, expected):
    found = begun(n, winners=WINNERS, best_token=42)
    assert labels(found) == expected
    for (label, start), winner in zip(found, [*WINNERS, *WINNERS], strict=False):
        assert start.tolist() == {"beam": winner.tolist(), "repeat": [42] * 3}.get(
            label, start.tolist()
        )
        assert label != "random" or ALLOWED[start].all()


def test_unseen_are_given_once_as_many_as_are_wanted_and_only_where_they_retokenize():
    visited, asked = Visited(), []
    drawn = torch.tensor([[1], [2], [1], [3], [4], [5]])

    def odd(rows):
        asked.extend(rows[:, 0].tolist())
        return rows[:, 0] % 2 == 1

    assert unseen(drawn, visited, retokenizes=odd, most=2).tolist() == [[1], [3]]
    assert asked == [1, 2, 3, 4, 5]
    assert unseen(drawn, visited, retokenizes=odd).tolist() == [[5]], (
        "what was not wanted stays new"
    )
    assert asked[5:] == [5], "what does not retokenize is not tried again either"


def test_no_start_and_no_budget_are_mistakes_that_can_be_mended(quadratic):
    with pytest.raises(ConfigError, match="mode=ids"):
        begun(2, best_token=3, retokenizes=lambda rows: torch.zeros(len(rows), dtype=torch.bool))
    with pytest.raises(ConfigError, match=r"search\.evaluations"):
        run(quadratic(0, 4, 100), 0)


@pytest.mark.parametrize(
    ("size", "values", "expected"),
    [
        (3, (1.0, 5.0, 3.0), [1, 2, 0]),
        (2, (4.0, 5.0, 4.0), [1, 0]),  # an equal stays out
        (2, (4.0, 5.0, 4.5), [1, 2]),
        (0, (5.0, 1.0), [1]),  # without a buffer, the last
    ],
)
def test_a_buffer_keeps_the_best_and_goes_on_from_them_in_order_level_by_level(
    size, values, expected
):
    buffer, seen = Buffer(size), []
    for number, value in enumerate(values):
        buffer.add(torch.tensor([number]), value)
    for _ in range(2 * len(expected)):
        seen.append(int(buffer.next.response))
        buffer.next.level += 1
    assert seen == 2 * expected
    buffer.add(torch.tensor([7]), 9.0)
    assert int(buffer.next.response) == 7, "near a new one all is to be seen"
    buffer.renew()
    assert buffer.next.level == 0
