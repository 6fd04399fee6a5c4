"""Greedy coordinate gradient against closed forms, brute force and a plain version of itself; then its pieces."""

import logging
from dataclasses import replace

import pytest
import torch

from pessimal.config.schema import SearchSpec
from pessimal.errors import ConfigError
from pessimal.search.gcg import (
    Buffer,
    Momentum,
    Visited,
    gcg,
    sample,
    starts,
    top_tokens,
    unseen,
)
from pessimal.search.objective import GRADIENT_COST, EvaluationCounter

OPTIONS = SearchSpec(search_width=128, top_k=64)
WINNERS = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 1], [2, 2, 2], [3, 3, 3]])
ALLOWED = torch.arange(100) < 60


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def start_of(objective, seed=0):
    return torch.randint(objective.vocabulary, (objective.length,), generator=generator(1000 + seed))


def run(objective, budget, *, seed=0, options=OPTIONS, counter=None, start=None, allowed=None, **more):
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


@pytest.mark.parametrize(("length", "vocabulary"), [(3, 30), (4, 12)])
def test_with_a_few_restarts_it_reaches_the_optimum_of_brute_force(length, vocabulary, quadratic):
    for problem in range(5):
        objective = quadratic(problem, length, vocabulary)
        best = pytest.approx(objective.brute_force()[1])
        assert any(run(objective, 1500, seed=seed).value == best for seed in range(8))


def test_steps_are_those_of_the_plain_algorithm(quadratic):
    objective, plain, random = quadratic(3, 6, 2000), quadratic(3, 6, 2000), generator(0)
    allowed = torch.ones(2000, dtype=torch.bool)
    # A plain version: gradients of every step, the published momentum with the right weights, and the best so far.
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
    assert all(torch.equal(one, other) for one, other in zip(objective.seen, candidates, strict=False))
    assert len(objective.seen) > len(candidates)
    assert found.value > best_value


@pytest.mark.parametrize("budget", [1, 2, 4, 5, 100, 128 + 4, 1001])
@pytest.mark.parametrize("buffer_size", [0, 4])
def test_it_spends_its_budget_and_no_more(budget, buffer_size, quadratic):
    objective, counter = quadratic(0, 5, 300), EvaluationCounter(quadratic(0, 5, 300))
    counter.objective = objective
    run(objective, budget, counter=counter, options=replace(OPTIONS, buffer_size=buffer_size))
    assert counter.used == objective.rows + GRADIENT_COST * objective.gradients
    assert budget - GRADIENT_COST <= counter.used <= budget, "less than a gradient and a candidate is left"


def test_the_best_is_that_of_this_run_and_not_of_the_counter(additive):
    objective = additive(0, 4, 300)
    counter = EvaluationCounter(objective)
    counter.values(objective.best_response[None])
    best = run(objective, 400, counter=counter)
    assert best.value < objective.best_value
    mine = torch.cat(objective.seen[1:])
    assert best.value == pytest.approx(float(objective._values(mine).max()))
    assert best.evaluations <= counter.used


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
    best = run(objective, 2000, counter=counter, start=start, allowed=allowed, retokenizes=retokenizes)
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


def test_more_positions_are_replaced_where_nothing_is_left_until_fewer_are_due(additive):
    objective = additive(0, 3, 13)
    # From the optimum on, so that it is never left: 12 ** 3 changes of three positions, then 36 of one, before others.
    options = replace(OPTIONS, search_width=16, step_size=3, buffer_size=1)
    until = None
    for share in (1.0, None):
        objective.seen, objective.anchors = [], []
        run(
            objective,
            2200,
            start=objective.best_response,
            options=replace(options, step_size_until=share or until),
        )
        positions = replaced(objective)
        first = positions.index(1)
        assert set(positions[:first]) == {3}
        assert first > 1500
        until = (first + 10) / 2200
    # The second time one position came due in the middle of these: they are done to the last.
    assert positions[first : first + 36] == [1] * 36
    assert positions[first + 36] == 2


def test_more_tokens_are_tried_where_nothing_is_left_before_more_positions(additive):
    objective = additive(0, 3, 200)
    options = replace(OPTIONS, top_k=4, step_size=1, buffer_size=1)
    run(objective, 600, start=objective.best_response, options=options)  # 3 · 199 changes of one position
    ranks = objective.weights.argsort(dim=1, descending=True).argsort(
        dim=1
    )  # 0 for the best, where it starts
    rows = evaluated(objective)[1:]
    worst = ranks.gather(1, rows.T).max(dim=0).values  # of the one that was replaced
    assert set(replaced(objective)) == {1}
    assert worst[:12].max() == 4
    assert worst[:48].max() == 16
    assert worst[: 3 * 64].max() == 64


def test_a_point_that_it_stays_at_keeps_its_gradient(quadratic):
    objective = quadratic(0, 4, 100)
    run(objective, 3000)
    pairs = zip(objective.slopes_at, objective.slopes_at[1:], strict=False)
    assert not any(torch.equal(one, other) for one, other in pairs)
    assert objective.gradients < objective.calls - 5


def test_without_a_buffer_it_goes_on_from_the_best_candidate_even_if_that_is_worse(quadratic):
    objective = quadratic(0, 4, 40)
    run(objective, 2000, options=replace(OPTIONS, buffer_size=0))
    worse = 0
    for rows, anchor, following in zip(
        objective.seen[1:], objective.anchors[1:], objective.anchors[2:], strict=False
    ):
        values = objective._values(rows)
        assert torch.equal(following, rows[values.argmax()])
        worse += float(values.max()) < float(objective._values(anchor[None])[0])
    assert worse > 0


def test_when_all_near_the_best_is_seen_it_goes_on_from_the_next(quadratic):
    objective = quadratic(0, 4, 30)
    run(objective, 3000, options=replace(OPTIONS, top_k=3, step_size=1, buffer_size=3))  # 12 changes of each
    best, left_best = -torch.inf, 0
    for rows, anchor in zip(objective.seen, objective.anchors, strict=True):
        left_best += anchor is not None and float(objective._values(anchor[None])[0]) < best
        best = max(best, float(objective._values(rows).max()))
    assert left_best > 0


def test_a_gradient_that_points_away_is_overcome_by_looking_further(additive):
    objective = additive(0, 2, 60)
    right = objective._gradient
    objective._gradient = lambda response: -right(response)
    best = run(objective, 1800, options=replace(OPTIONS, search_width=16, top_k=2))
    assert best.value == pytest.approx(objective.best_value)


@pytest.mark.parametrize("buffer_size", [0, 4])
def test_it_ends_when_everything_is_seen(buffer_size, quadratic):
    objective = quadratic(0, 3, 6)
    options = replace(OPTIONS, buffer_size=buffer_size)
    best = run(objective, 100_000, options=options)
    assert objective.rows == 6**3
    assert best.value == pytest.approx(objective.brute_force()[1])


def test_it_ends_with_its_start_where_nothing_else_is_allowed(quadratic):
    objective, start = quadratic(0, 3, 6), torch.tensor([2, 2, 2])
    best = run(objective, 1000, start=start, allowed=torch.arange(6) == 2)
    assert best.response == (2, 2, 2)
    assert objective.rows == 1


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
    for slopes, here, tokens in zip(gradient.tolist(), current.tolist(), found.tolist(), strict=True):
        others = [token for token in range(60) if allowed[token] and token != here]
        assert tokens == sorted(others, key=lambda token: -slopes[token])[: len(tokens)]


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


def test_tokens_are_drawn_uniformly():
    tokens = torch.arange(1, 9).repeat(3, 1)
    drawn = sample(
        torch.zeros(3, dtype=torch.int64), tokens, width=24_000, step_size=1, generator=generator()
    )
    counts = torch.bincount(drawn.sum(dim=1))[1:]
    assert (counts - 3000).abs().max() < 5 * (24_000 * 1 / 8 * 7 / 8) ** 0.5


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.99])
def test_each_gradient_counts_by_its_age_alone(share):
    momentum, given = Momentum(share), torch.randn(12, 4, 30, generator=generator())
    for gradient in given:
        mean = momentum.update(gradient)
    weights = share ** torch.arange(11, -1, -1.0)
    torch.testing.assert_close(mean, torch.einsum("n,nlv->lv", weights, given) / weights.sum())


def test_a_slope_that_is_no_number_does_not_stay():
    momentum = Momentum(0.9)
    broken, sound = torch.tensor([[torch.nan, 1.0, torch.inf]]), torch.ones(1, 3)
    momentum.update(broken)
    assert momentum.update(sound).isfinite().all()


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
        assert start.tolist() == {"beam": winner.tolist(), "repeat": [42] * 3}.get(label, start.tolist())
        assert label != "random" or ALLOWED[start].all()


def test_starts_are_distinct():
    winners = torch.tensor([[5, 5, 5], [5, 5, 5], [6, 6, 6]])
    found = begun(12, winners=winners, best_token=6, allowed=torch.arange(100) < 3)
    assert labels(found) == ["beam"] * 2 + ["random"] * 10
    assert len({tuple(start.tolist()) for _, start in found}) == 12


def test_every_start_retokenizes():
    def even(responses):
        return responses.sum(dim=1) % 2 == 0

    found = begun(8, winners=WINNERS, best_token=41, retokenizes=even)
    assert labels(found) == ["beam"] * 3 + ["random"] * 5  # 41 three times is odd
    assert even(torch.stack([start for _, start in found])).all()
    assert [start.tolist() for _, start in found[:3]] == [[1, 2, 3], [7, 8, 9], [2, 2, 2]]


def test_rare_retokenizing_responses_are_found():
    def rare(responses):
        return (responses[:, 0] == 7) & (responses[:, 1] < 1)  # one of 3,600

    assert rare(torch.stack([start for _, start in begun(3, retokenizes=rare)])).all()


def test_fewer_starts_where_there_are_no_more_and_that_is_said(caplog):
    with caplog.at_level(logging.WARNING):
        found = begun(8, allowed=torch.arange(100) == 9)
    assert [start.tolist() for _, start in found] == [[9, 9, 9]]
    assert "only 1 of 8" in caplog.text


@pytest.mark.parametrize("none", ["no text", "no token", "no budget"])
def test_a_search_that_cannot_begin_is_a_mistake_that_can_be_mended(none, quadratic):
    if none == "no text":
        with pytest.raises(ConfigError, match="mode=ids"):
            begun(2, best_token=3, retokenizes=lambda rows: torch.zeros(len(rows), dtype=torch.bool))
    elif none == "no token":
        with pytest.raises(ConfigError, match=r"search.allowed=\[\]"):
            begun(2, best_token=3, allowed=torch.zeros(100, dtype=torch.bool))
    else:
        with pytest.raises(ConfigError, match=r"search\.evaluations"):
            run(quadratic(0, 4, 100), 0)


def test_unseen_are_given_once_as_many_as_are_wanted_and_only_where_they_retokenize():
    visited, asked = Visited(), []
    drawn = torch.tensor([[1], [2], [1], [3], [4], [5]])

    def odd(rows):
        asked.extend(rows[:, 0].tolist())
        return rows[:, 0] % 2 == 1

    assert unseen(drawn, visited, retokenizes=odd, most=2).tolist() == [[1], [3]]
    assert asked == [1, 2, 3, 4, 5]
    assert unseen(drawn, visited, retokenizes=odd).tolist() == [[5]], "what was not wanted stays new"
    assert asked[5:] == [5], "what does not retokenize is not tried again either"


def filled(size, *values):
    buffer = Buffer(size)
    for number, value in enumerate(values):
        buffer.add(torch.tensor([number]), value)
    return buffer


def order(buffer):
    """Numbers of the responses in the order in which the search would go on from them."""
    numbers, level = [], buffer.level
    while buffer.level == level:
        numbers.append(int(buffer.point))
        buffer.exhaust()
    return numbers


@pytest.mark.parametrize(
    ("size", "values", "expected"),
    [
        (3, (1.0, 5.0, 3.0), [1, 2, 0]),
        (2, (4.0, 5.0, 3.0), [1, 0]),
        (2, (4.0, 5.0, 4.0), [1, 0]),  # an equal stays out
        (2, (4.0, 5.0, 4.5), [1, 2]),
        (1, (5.0, 1.0), [0]),
        (0, (5.0, 1.0), [1]),  # without a buffer, the last
    ],
)
def test_a_buffer_keeps_the_best_and_goes_on_from_them_in_order(size, values, expected):
    assert order(filled(size, *values)) == expected


def test_a_new_response_goes_before_better_ones_near_which_all_is_seen():
    buffer = filled(3, 5.0, 1.0)
    buffer.exhaust()
    buffer.add(torch.tensor([7]), 2.0)
    assert order(buffer) == [7, 1]
    assert order(buffer) == [0, 7, 1], "then all of them one level up, the best first"
    assert buffer.level == 2
    buffer.renew()
    assert buffer.level == 0
    assert order(buffer) == [0, 7, 1]
