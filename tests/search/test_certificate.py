"""What a complete pass over all single changes certifies, and what it does not."""

import math

import pytest
import torch

from pessimal.search.certificate import certify
from pessimal.search.evaluation_counter import EvaluationCounter
from pessimal.search.polish import neighbour_values, polish


def every(vocabulary: int) -> torch.Tensor:
    return torch.ones(vocabulary, dtype=torch.bool)


def second_best(objective):
    """Per position the token next after the best, and by how much it is worse."""
    top = objective.weights.topk(2, dim=1)
    return top.indices[:, 1].tolist(), (top.values[:, 0] - top.values[:, 1]).tolist()


def test_margins_of_the_additive_optimum_are_those_of_its_weights(additive):
    objective = additive(0, 4, 50)
    counter = EvaluationCounter(objective)
    certificate = certify(counter, objective.best_response, allowed=every(50), noise=1e-6, digest="abc")
    tokens, margins = second_best(objective)
    assert certificate.verdict == "1-opt"
    assert [neighbour.position for neighbour in certificate.neighbours] == [0, 1, 2, 3]
    assert [neighbour.token for neighbour in certificate.neighbours] == tokens
    assert [neighbour.margin for neighbour in certificate.neighbours] == pytest.approx(margins)
    for neighbour in certificate.neighbours:
        assert neighbour.value == pytest.approx(objective.best_value - neighbour.margin)
    assert certificate.smallest_margin == pytest.approx(min(margins))
    assert certificate.value == pytest.approx(objective.best_value)
    assert certificate.evaluations == counter.used == 1 + 4 * 49
    assert (certificate.allowed, certificate.allowed_digest, certificate.n_tied) == (50, "abc", 0)
    assert certificate.counts


@pytest.mark.parametrize("seed", range(4))
def test_what_polish_ends_with_is_1_opt_and_its_neighbours_are_not(quadratic, seed):
    objective = quadratic(seed, 3, 12)
    found = polish(EvaluationCounter(objective), torch.zeros(3, dtype=torch.long), allowed=every(12))
    certificate = certify(
        objective, torch.tensor(found.response), allowed=every(12), noise=1e-9, digest="", sweeps=found.sweeps
    )
    assert (certificate.verdict, certificate.sweeps) == ("1-opt", found.sweeps)
    best = certificate.neighbours[1]
    worse = torch.tensor(found.response)
    worse[best.position] = best.token
    other = certify(objective, worse, allowed=every(12), noise=1e-9, digest="")
    assert other.verdict == "not 1-opt"
    assert other.smallest_margin <= -best.margin + 1e-9


@pytest.mark.parametrize(
    ("noise", "verdict"), [(0.049, "1-opt"), (0.051, "tie")]
)  # the best neighbour is 0.1 worse: both values may err by the noise
def test_a_margin_has_to_exceed_the_error_of_both_values(additive, noise, verdict):
    objective = additive(0, 2, 30)
    best = objective.best_response
    objective.weights[0, (best[0] + 1) % 30] = objective.weights[0].max() - 0.1
    certificate = certify(objective, best, allowed=every(30), noise=noise, digest="")
    assert certificate.verdict == verdict
    assert certificate.n_tied == (verdict == "tie")


@pytest.mark.parametrize(("noise", "verdict"), [(0.051, "tie"), (0.049, "not 1-opt")])
def test_a_better_neighbour_within_the_error_is_a_tie_too(additive, noise, verdict):
    objective = additive(0, 2, 30)
    best = objective.best_response
    objective.weights[0, (best[0] + 1) % 30] = objective.weights[0].max() + 0.1
    assert certify(objective, best, allowed=every(30), noise=noise, digest="").verdict == verdict


def test_tied_neighbours_are_named_all_of_them_not_the_best_of_a_position(additive):
    objective = additive(0, 2, 40)
    best = objective.best_response
    twins = [token for token in range(40) if token != best[1]][:30]
    objective.weights[1, twins] = objective.weights[1].max().clone()
    objective.weights[1, twins[5]] += 1e-3
    certificate = certify(objective, best, allowed=every(40), noise=1e-3, digest="")
    assert (certificate.verdict, certificate.n_tied, len(certificate.tied)) == ("tie", 30, 20)
    assert (certificate.tied[0].position, certificate.tied[0].token) == (1, twins[5])
    assert {neighbour.token for neighbour in certificate.tied} <= set(twins)


def test_only_retokenizing_neighbours_speak_against_a_response(additive):
    objective = additive(0, 2, 30)
    tokens, _ = second_best(objective)
    third = int(objective.weights[0].topk(3).indices[2])
    response = torch.tensor([tokens[0], int(objective.best_response[1])])

    def retokenizes(responses):
        return responses[:, 0] != objective.best_response[0]

    assert certify(objective, response, allowed=every(30), noise=1e-6, digest="").verdict == "not 1-opt"
    certificate = certify(
        objective, response, allowed=every(30), retokenizes=retokenizes, noise=1e-6, digest=""
    )
    assert (certificate.verdict, certificate.neighbours[0].token) == ("1-opt", third)


def test_ties_that_do_not_retokenize_are_none(additive):
    objective = additive(0, 1, 30)
    best = int(objective.best_response[0])
    objective.weights[0, [(best + 1) % 30, (best + 2) % 30]] = objective.weights[0].max().clone()
    certificate = certify(
        objective,
        torch.tensor([best]),
        allowed=every(30),
        retokenizes=lambda responses: responses[:, 0] != (best + 1) % 30,
        noise=1e-6,
        digest="",
    )
    assert [neighbour.token for neighbour in certificate.tied] == [(best + 2) % 30]


def test_tokens_that_are_not_allowed_do_not_speak_against_it(additive):
    objective = additive(0, 2, 30)
    allowed = every(30)
    allowed[objective.best_response] = False
    found = polish(EvaluationCounter(objective), allowed.nonzero()[:2, 0], allowed=allowed)
    response = torch.tensor(found.response)
    certificate = certify(objective, response, allowed=allowed, noise=1e-6, digest="")
    assert (certificate.verdict, certificate.allowed) == ("1-opt", int(allowed.sum()))
    assert certify(objective, response, allowed=every(30), noise=1e-6, digest="").verdict == "not 1-opt"


def test_a_result_from_elsewhere_is_marked_where_it_does_not_count(additive):
    objective = additive(0, 2, 30)
    allowed = every(30)
    allowed[objective.best_response[0]] = False
    outside = certify(objective, objective.best_response, allowed=allowed, noise=1e-6, digest="")
    assert (outside.verdict, outside.counts) == ("1-opt", False)
    assert outside.evaluations == 1 + 29 + 28
    refused = certify(
        objective,
        objective.best_response,
        allowed=every(30),
        retokenizes=lambda responses: torch.zeros(len(responses), dtype=torch.bool),
        noise=1e-6,
        digest="",
    )
    assert (refused.counts, refused.neighbours, refused.smallest_margin) == (False, (), math.inf)


def test_values_that_are_known_are_not_computed_again(quadratic):
    objective = quadratic(0, 3, 10)
    response = torch.tensor([1, 2, 3])
    values = neighbour_values(objective, response, every(10))
    rows = objective.rows
    known = certify(objective, response, allowed=every(10), noise=0.1, digest="x", values=values)
    assert objective.rows == rows
    assert known == certify(objective, response, allowed=every(10), noise=0.1, digest="x")
    assert known.evaluations == objective.rows - rows
