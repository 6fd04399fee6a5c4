"""Greedy coordinate gradient against closed forms, brute force, and a plain version of itself."""

from dataclasses import replace

import pytest
import torch

from pessimal.errors import ConfigError
from pessimal.search.evaluation_counter import GRADIENT_COST, EvaluationCounter
from pessimal.search.gcg import GCGOptions, gcg
from pessimal.search.sampler import sample, top_tokens

OPTIONS = GCGOptions(
    search_width=128, top_k=64, step_size=2, step_size_until=0.8, momentum=0.9, buffer_size=4
)


def generator(seed):
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


def test_it_uses_no_more_than_is_left(quadratic):
    objective = quadratic(0, 4, 100)
    counter = EvaluationCounter(objective, budget=700)
    run(objective, 500, counter=counter)
    run(objective, 500, counter=counter, seed=1)
    assert 0 <= counter.left <= GRADIENT_COST
    assert counter.used >= 690


def test_a_budget_of_nothing_is_a_mistake(quadratic):
    with pytest.raises(ConfigError, match=r"search\.evaluations"):
        run(quadratic(0, 4, 100), 0)


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


def test_what_is_allowed_is_searched_to_its_optimum(additive):
    objective, allowed = additive(0, 4, 200), torch.arange(200) % 3 == 0
    best = run(objective, 6000, start=torch.zeros(4, dtype=torch.int64), allowed=allowed)
    assert best.value == pytest.approx(objective.best_among(allowed))


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


def test_it_ends_with_its_start_where_nothing_else_retokenizes(quadratic):
    objective = quadratic(0, 3, 50)
    best = run(objective, 1000, retokenizes=lambda rows: torch.zeros(len(rows), dtype=torch.bool))
    assert best.response == tuple(start_of(objective).tolist())
    assert objective.rows == 1


def test_the_same_seed_gives_the_same_search(quadratic):
    one, same, other = (quadratic(0, 5, 200) for _ in range(3))
    start = start_of(one)
    found = [run(o, 2000, seed=seed, start=start) for o, seed in ((one, 1), (same, 1), (other, 2))]
    assert found[0] == found[1]
    assert torch.equal(evaluated(one), evaluated(same))
    assert not torch.equal(evaluated(one)[: len(evaluated(other))], evaluated(other)[: len(evaluated(one))])


def test_every_step_is_reported(quadratic):
    objective, steps = quadratic(0, 4, 100), []
    counter = EvaluationCounter(objective)
    best = run(objective, 2000, counter=counter, on_step=steps.append)
    assert [len(rows) for rows in objective.seen[1:]] == [step.candidates for step in steps]
    assert [step.best for step in steps] == sorted(step.best for step in steps)
    assert steps[-1].best == best.value
    assert steps[-1].evaluations == counter.used
    assert [step.value for step in steps] == [
        float(objective._values(rows).max()) for rows in objective.seen[1:]
    ]


def test_the_callback_can_end_it(quadratic):
    class PrunedError(Exception):
        pass

    def prune(step):
        if step.evaluations > 500:
            raise PrunedError

    objective = quadratic(0, 4, 100)
    with pytest.raises(PrunedError):
        run(objective, 5000, on_step=prune)
    assert objective.rows < 500 + OPTIONS.search_width + 1
