"""Looks that try every token: all responses, the most probable, and the certificate."""

import pandas as pd
import pytest
import torch

from pessimal.searching.exact import Certificate, certify, every_response, most_probable
from pessimal.searching.objective import EvaluationCounter


def every(vocabulary: int) -> torch.Tensor:
    return torch.ones(vocabulary, dtype=torch.bool)


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


def changes(response, allowed):
    """All single changes of a response, one by one."""
    for position in range(len(response)):
        for token in allowed.nonzero()[:, 0].tolist():
            if token != response[position]:
                yield position, token, [*response[:position], token, *response[position + 1 :]]


def certificate_of(objective, response, *, allowed, **options):
    """From the values of all single changes, one after the other."""
    values = torch.full((len(response), len(allowed)), -torch.inf, dtype=torch.float64)
    values[torch.arange(len(response)), response] = objective.values(response[None])[0]
    for position, token, other in changes(response.tolist(), allowed):
        values[position, token] = objective.values(torch.tensor([other]))[0]
    return certify(values, response, allowed=allowed, **options)


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


@pytest.mark.parametrize("seed", range(3))
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


@pytest.mark.parametrize("seed", range(2))
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


@pytest.mark.parametrize("seed", range(3))
def test_what_is_proven_is_the_best_and_needs_every_forward(seed):
    objective = Chain(seed, 9, sharp=0.3)
    responses = torch.cartesian_prod(*[torch.arange(9)] * 3)
    best = responses[objective.values(responses).argmax()].tolist()

    def within(budget):
        counter = EvaluationCounter(objective, budget=budget)
        return most_probable(counter, length=3, allowed=every(9))

    needed = within(2000).forwards
    found = [within(budget) for budget in range(1, needed)]
    assert any(len(each.values) and not each.proven for each in found), "found before it is proven"
    assert all(each.responses[0].tolist() == best for each in found if each.proven)


def test_within_too_small_a_budget_nothing_is_proven():
    counter = EvaluationCounter(Chain(0, 30, sharp=0.2), budget=50)
    found = most_probable(counter, length=4, allowed=every(30))
    assert not found.proven
    assert counter.used == found.forwards == 50


def test_a_response_is_1_opt_only_where_its_last_change_was_tried():
    """Six changes and the response itself are seven evaluations."""
    neighbours = pd.DataFrame({"position": [0], "token": [5], "value": [0.0], "margin": [1.0]})
    verdicts = [Certificate(1.0, n, 6, 0.1, neighbours).verdict for n in (1, 2, 6, 7)]
    assert verdicts == ["not tried", "partly tried", "partly tried", "1-opt"]
