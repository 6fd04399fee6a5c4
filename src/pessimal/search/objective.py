"""What a search maximises. The optimiser sees this and nothing else of a model.

Responses are torch int64 on the CPU, values float64 on the CPU; more is better. The pessimal search is the optimal
search of the negated reward: one code path for both.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from pessimal.errors import ModelError
from pessimal.search.goal import Goal


class Objective(Protocol):
    """A value for every response, and its gradient."""

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Values (n,) float64 of `responses` (n, L) int64, L at least 1.

        `anchor` (L,) is a response that most of them differ from in a few places: what they share with it before the
        first change is computed once. It changes the speed, never the values beyond the last bits.
        """

    def gradient(self, response: Tensor) -> Tensor:
        """d value / d one-hot (L, V) float32 at one `response` (L,), on whatever device."""


class Rewarding(Protocol):
    """Rewards of responses to one prompt (`pessimal.scoring.common_prefix.CommonPrefixScorer` is one)."""

    def rewards(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor: ...

    def gradient(self, response: Tensor) -> Tensor: ...


class RewardObjective:
    """sign × raw reward; the mean of it over prompts where there are several. Never a squared error to a cap."""

    def __init__(self, prompts: Sequence[Rewarding], goal: Goal):
        self.prompts, self.sign = list(prompts), goal.sign

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        """Raises ModelError where a reward is not a number."""
        each = [prompt.rewards(responses, anchor=anchor).double().cpu() for prompt in self.prompts]
        values = self.sign * torch.stack(each).mean(dim=0)
        if not values.isfinite().all():
            bad = (~values.isfinite()).nonzero()[:, 0]
            raise ModelError(
                f"the model's reward is not a number for {len(bad)} of {len(values)} responses, first for the token ids "
                f"{responses[bad[0]].tolist()}. Try model.dtype=float32, or look at the weights: pessimal check"
            )
        return values

    def gradient(self, response: Tensor) -> Tensor:
        each = [prompt.gradient(response) for prompt in self.prompts]
        return self.sign * torch.stack(each).mean(dim=0)
