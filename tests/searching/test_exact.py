"""Looks that try every token: all responses, pairs, coordinate sweeps, the certificate, and the
gradient beside them."""

import numpy as np
import pytest
import torch

from pessimal.searching.exact import (
    certify,
    every_response,
    gradient_quality,
    most_probable,
    neighbour_values,
    pair_sizes,
    pairs,
)
from pessimal.searching.objective import EvaluationCounter


def every(vocabulary: int) -> torch.Tensor:
    return torch.ones(vocabulary, dtype=torch.bool)


class Interacting:
    """Two tokens that interact, worth something alone too: what a token alone says of it in a pair
    is noisy."""

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
        return (
            self.first[a]
            + self.second[b]
            + self.strength * (self.left[a] * self.right[b]).sum(dim=1)
        )

    def table(self):
        both = self.left @ self.right.T
        return self.first[:, None] + self.second[None] + self.strength * both

    def alone(self):
        return self.values(torch.arange(len(self.first))[:, None])


def look(objective, *, m, vocabulary, allowed=None, **options):
    """A pruned look at pairs: responses, values, and the counter."""
    counter = EvaluationCounter(objective)
    alone = objective.alone()
    allowed = every(vocabulary) if allowed is None else allowed
    return *pairs(counter, m=m, allowed=allowed, first_values=alone, **options), counter


def multiples(divisor):
    """Responses count whose ids' sum is a multiple."""
    return lambda responses: responses.sum(dim=1) % divisor == 0


@pytest.mark.parametrize("divisor", [1, 3])
@pytest.mark.parametrize(("length", "vocabulary"), [(1, 40), (2, 60), (3, 12), (4, 7)])
def test_every_response_is_brute_force(quadratic, length, vocabulary, divisor):
    objective, allowed = quadratic(0, length, vocabulary), every(vocabulary)
    allowed[::3] = False
    counter = EvaluationCounter(objective)
    options = {"allowed": allowed, "retokenizes": multiples(divisor)}
    responses, kept = every_response(counter, length=length, keep=20, **options)
    whole = torch.cartesian_prod(*[allowed.nonzero()[:, 0]] * length).reshape(-1, length)
    assert counter.used == len(whole)
    whole = whole[multiples(divisor)(whole)]
    values, order = objective._values(whole).sort(descending=True)
    assert responses.tolist() == whole[order[:20]].tolist()
    torch.testing.assert_close(kept, values[:20])


@pytest.mark.parametrize("seed", range(5))
def test_a_tenth_of_the_tokens_is_enough_for_the_best_of_all_pairs(seed):
    objective = Interacting(seed, 400, strength=0.3)
    _, values, _ = look(objective, m=40, vocabulary=400)
    assert float(values[0]) == pytest.approx(float(objective.table().max()))


@pytest.mark.parametrize("turned", [False, True])
def test_a_pair_of_tokens_that_are_worthless_alone_is_found_through_a_partner(turned):
    alone = torch.arange(300.0, dtype=torch.float64) / 300
    table = alone[:, None] + alone[None]
    table[:, 298] += (
        5  # what goes well with a good token is no partner of 299, the best single token:
    )
    table[:, 299] -= 5
    table[0] = -10  # that is token 0, the worst beginning there is but for two ends,
    table[0, 299] = 1.5
    table[0, 1] = 30  # the other one that nothing speaks for
    if turned:
        table = table.T

    class Given:
        def values(self, responses, *, anchor=None):
            return table[responses[:, 0], responses[:, 1]]

        def alone(self):
            return alone

    found, _, _ = look(Given(), m=10, vocabulary=300)
    assert tuple(found[0].tolist()) == ((1, 0) if turned else (0, 1))


def test_each_pair_is_tried_once_and_counts_with_its_own_value():
    objective = Interacting(1, 100)
    found, values, counter = look(objective, m=20, vocabulary=100, keep=10_000)
    rows = [tuple(row) for row in found.tolist()]
    assert (
        len(set(rows))
        == len(rows)
        == counter.used
        == counter.details["tried"]
        <= 2 * 2 * 8 * 100 + 20**2
    )
    torch.testing.assert_close(values, objective.values(found))
    assert (values.diff() <= 0).all()


def test_what_a_budget_pays_for_is_what_is_tried():
    assert pair_sizes(10**6, 10_000, most=300) == (8, 300)
    assert pair_sizes(200_000, 12_000, most=300) == (3, 223)
    assert pair_sizes(2_000, 12_000, most=300) is None
    for budget in (800, 3_000, 5_000):
        width, m = pair_sizes(budget, 100, most=300)
        *_, counter = look(Interacting(0, 100), m=m, width=width, vocabulary=100)
        assert counter.used <= budget


@pytest.mark.parametrize("seed", range(3))
def test_only_retokenizing_pairs_win_and_rank(seed):
    objective = Interacting(seed, 300, strength=0.3)
    counts = torch.rand(300, 300, generator=torch.Generator().manual_seed(seed)) < 0.5

    def retokenizes(responses):
        return counts[responses[:, 0], responses[:, -1]]

    found, values, _ = look(objective, m=60, vocabulary=300, retokenizes=retokenizes)
    assert retokenizes(found).all()
    best = objective.table().masked_fill(~counts, -torch.inf).max()
    assert float(values[0]) == pytest.approx(float(best))


def changes(response, allowed):
    """All single changes of a response, one by one."""
    for position in range(len(response)):
        for token in allowed.nonzero()[:, 0].tolist():
            if token != response[position]:
                yield position, token, [*response[:position], token, *response[position + 1 :]]


def value_of(objective, response) -> float:
    return float(objective._values(torch.tensor([response]))[0])


def test_neighbour_values_are_those_of_all_single_changes(quadratic):
    objective = quadratic(5, 3, 9)
    allowed = every(9)
    allowed[[2, 4]] = False
    response = [4, 1, 1]  # its first token is not allowed
    counter = EvaluationCounter(objective)
    values = neighbour_values(counter, torch.tensor(response), allowed)
    expected = torch.full((3, 9), -torch.inf, dtype=torch.float64)
    for position, token, other in changes(response, allowed):
        expected[position, token] = value_of(objective, other)
    expected[torch.arange(3), response] = value_of(objective, response)
    torch.testing.assert_close(values, expected)
    assert counter.used == 1 + 7 + 6 + 6


def certificate_of(objective, response, *, allowed, **options):
    return certify(
        neighbour_values(objective, response, allowed), response, allowed=allowed, **options
    )


def second_best(objective):
    """Per position the token next after the best, and by how much it is worse."""
    top = objective.weights.topk(2, dim=1)
    return top.indices[:, 1].tolist(), (top.values[:, 0] - top.values[:, 1]).tolist()


def test_margins_of_the_additive_optimum_are_those_of_its_weights(additive):
    objective = additive(0, 4, 50)
    counter = EvaluationCounter(objective)
    certificate = certificate_of(counter, objective.best_response, allowed=every(50), noise=1e-6)
    tokens, margins = second_best(objective)
    assert certificate.verdict == "1-opt"
    neighbours = certificate.neighbours
    assert neighbours["position"].tolist() == [0, 1, 2, 3]
    assert neighbours["token"].tolist() == tokens
    assert neighbours["margin"].to_numpy() == pytest.approx(margins)
    assert (neighbours["value"] + neighbours["margin"]).to_numpy() == pytest.approx(
        objective.best_value
    )
    assert certificate.smallest_margin == pytest.approx(min(margins))
    assert certificate.value == pytest.approx(objective.best_value)
    assert certificate.evaluations == counter.used == 1 + 4 * 49
    assert certificate.allowed == 50


@pytest.mark.parametrize(
    ("better_by", "noise", "verdict"),
    [(-0.1, 0.049, "1-opt"), (-0.1, 0.051, "tie"), (0.1, 0.051, "tie"), (0.1, 0.049, "not 1-opt")],
)
def test_a_margin_has_to_exceed_the_error_of_both_values(additive, better_by, noise, verdict):
    objective = additive(0, 2, 30)
    best = objective.best_response
    objective.weights[0, (best[0] + 1) % 30] = objective.weights[0].max() + better_by
    assert certificate_of(objective, best, allowed=every(30), noise=noise).verdict == verdict


def test_only_retokenizing_neighbours_speak_against_a_response(additive):
    objective = additive(0, 2, 30)
    tokens, _ = second_best(objective)
    response = torch.tensor([tokens[0], int(objective.best_response[1])])
    assert certificate_of(objective, response, allowed=every(30), noise=1e-6).verdict == "not 1-opt"
    options = {
        "allowed": every(30),
        "retokenizes": lambda rows: rows[:, 0] != objective.best_response[0],
    }
    certificate = certificate_of(objective, response, **options, noise=1e-6)
    third = int(objective.weights[0].topk(3).indices[2])
    assert (certificate.verdict, certificate.neighbours["token"][0]) == ("1-opt", third)


def quality_of(objective, response, allowed, *, top_k, gradient=None):
    values = neighbour_values(objective, response, allowed)
    gradient = objective.gradient(response) if gradient is None else gradient
    return gradient_quality(values, gradient, response, top_k=top_k)


def test_tokens_that_are_not_allowed_and_the_one_that_stands_there_are_not_compared(additive):
    objective = additive(0, 2, 30)
    allowed = every(30)
    allowed[objective.best_response] = False
    start = objective.best_response.clone()
    start[0] = allowed.nonzero()[0, 0]
    table = quality_of(objective, start, allowed, top_k=5)
    best = objective.weights.masked_fill(~allowed, -torch.inf).argmax(dim=1)
    assert table["best_id"].tolist() == best.tolist()
    assert table["n"].tolist() == [int(allowed.sum()) - 1, int(allowed.sum())]
    assert table["gain"][1] < 0  # the position is at its optimum already: the best change loses


@pytest.mark.parametrize("seed", range(3))
def test_the_gradients_first_k_hold_what_regret_says(quadratic, seed):
    objective = quadratic(seed, 3, 60)
    response = torch.tensor([0, 1, 2])
    values = neighbour_values(objective, response, every(60))
    gradient = objective.gradient(response)
    table = gradient_quality(values, gradient, response, top_k=4)
    for row in table.to_dict("records"):
        place = row["position"]
        others = [token for token in range(60) if token != response[place]]
        kept = sorted(others, key=lambda token: -float(gradient[place, token]))[:4]
        best = max(others, key=lambda token: float(values[place, token]))
        assert row["best_id"] == best
        assert row["within_top_k"] == (best in kept)
        assert row["regret"] == pytest.approx(
            float(values[place, best]) - max(float(values[place, token]) for token in kept)
        )
        ranks = [
            np.argsort(np.argsort([float(x[place, token]) for token in others]))
            for x in (gradient, values)
        ]
        assert row["spearman"] == pytest.approx(np.corrcoef(*ranks)[0, 1])


class Chain:
    """Log-probabilities of a random chain that looks back two tokens: a language model in
    miniature."""

    def __init__(self, seed: int, vocabulary: int, sharp: float = 2.0):
        generator, self.vocabulary = torch.Generator().manual_seed(seed), vocabulary
        shape = (vocabulary + 1, vocabulary + 1, vocabulary)
        logits = sharp * torch.randn(*shape, generator=generator)
        self.table = logits.double().log_softmax(dim=-1)

    def following(self, beginnings):
        start = torch.full((len(beginnings), 2), self.vocabulary)
        last = torch.cat([start, beginnings], dim=1)[:, -2:]
        return self.table[last[:, 0], last[:, 1]]

    def values(self, responses, *, anchor=None):
        steps = [self.following(responses[:, :n]) for n in range(responses.shape[1])]
        chosen = [step.gather(1, responses[:, [n]])[:, 0] for n, step in enumerate(steps)]
        return torch.stack(chosen).sum(dim=0)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("length", [1, 2, 4])
def test_the_most_probable_response_is_that_of_brute_force(seed, length):
    objective, allowed = Chain(seed, 9), every(9)
    allowed[seed] = False
    tokens = allowed.nonzero()[:, 0]
    responses = torch.cartesian_prod(*[tokens] * length).view(-1, length)
    values = objective.values(responses)
    counter = EvaluationCounter(objective, budget=2000)
    found = most_probable(counter, length=length, allowed=allowed)
    assert found.proven
    assert found.responses[0].tolist() == responses[values.argmax()].tolist()
    assert float(found.values[0]) == pytest.approx(float(values.max()))
    assert found.forwards == counter.used
    # Its bound lets it leave out beginnings.
    assert found.forwards <= length + sum(len(tokens) ** n for n in range(length))


@pytest.mark.parametrize("seed", range(4))
def test_of_the_most_probable_only_responses_that_a_text_gives_count(seed):
    objective = Chain(seed, 7)

    def odd(responses):
        return responses.sum(dim=1) % 4 == 1

    responses = torch.cartesian_prod(*[torch.arange(7)] * 3)
    values = objective.values(responses).masked_fill(~odd(responses), -torch.inf)
    counter = EvaluationCounter(objective, budget=500)
    found = most_probable(counter, length=3, allowed=every(7), retokenizes=odd)
    assert found.proven
    assert found.responses[0].tolist() == responses[values.argmax()].tolist()


def test_within_too_small_a_budget_nothing_is_proven():
    counter = EvaluationCounter(Chain(0, 30, sharp=0.2), budget=50)
    found = most_probable(counter, length=4, allowed=every(30))
    assert not found.proven
    assert counter.used == found.forwards == 50
