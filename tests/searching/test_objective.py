"""What a search maximises: sign, mean over prompts, and rewards that are no numbers."""

import pytest
import torch

from pessimal.errors import ModelError
from pessimal.searching.objective import RewardObjective
from pessimal.searching.spec import Goal


class Prompt:
    """Rewards that are a weight for each token in each place; keeps the anchors it was given."""

    def __init__(self, weights):
        self.weights, self.anchors = torch.tensor(weights), []

    def rewards(self, responses, *, anchor=None):
        self.anchors.append(anchor)
        return self.weights.gather(1, responses.T).sum(dim=0)

    def gradient(self, response):
        return self.weights


A, B = [[1.0, 2.0, 3.0], [0.0, 5.0, 1.0]], [[3.0, 0.0, 1.0], [2.0, 1.0, 7.0]]
RESPONSES = torch.tensor([[0, 1], [2, 2]])


def test_one_code_path_for_both_goals():
    optimal, pessimal = (RewardObjective([Prompt(A)], goal) for goal in Goal)
    assert optimal.values(RESPONSES).tolist() == [6.0, 4.0]
    assert pessimal.values(RESPONSES).tolist() == [-6.0, -4.0]
    assert torch.equal(optimal.gradient(RESPONSES[0]), -pessimal.gradient(RESPONSES[0]))
    assert optimal.values(RESPONSES).dtype == torch.float64


def test_several_prompts_are_averaged():
    both = RewardObjective([Prompt(A), Prompt(B)], Goal.optimal)
    assert both.values(RESPONSES).tolist() == [(6 + 4) / 2, (4 + 8) / 2]
    assert torch.equal(both.gradient(RESPONSES[0]), (torch.tensor(A) + torch.tensor(B)) / 2)


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_ends_the_search_and_names_the_response(broken):
    objective = RewardObjective([Prompt([[1.0, 2.0, broken], [0.0, 5.0, 1.0]])], Goal.pessimal)
    with pytest.raises(ModelError, match=r"1 of 2 responses, first \[2, 2\]"):
        objective.values(RESPONSES)
