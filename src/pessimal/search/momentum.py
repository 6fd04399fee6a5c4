"""A running mean of gradients, which is less noisy than the last one alone.

The update of Zhang & Wei 2024, "Boosting jailbreak attack with momentum" (MAC), m ← µ m + (1 − µ) g, where a gradient
counts µ to the power of its age. MAC begins at m = g, which counts the first gradient 1 / (1 − µ) times too much for its
age; this is the mean with the right weights from the first step on.
"""

from torch import Tensor


class Momentum:
    """The mean of the gradients so far, each weighted by `share` to the power of its age in steps."""

    def __init__(self, share: float):
        self.share = share
        """µ, 0 (the last gradient alone) to below 1."""
        self._weight = 0.0
        self._mean: Tensor | None = None

    def update(self, gradient: Tensor) -> Tensor:
        """The mean after one more gradient, of the same shape and on the same device; what is no number counts as 0."""
        gradient = gradient.where(gradient.isfinite(), 0.0)  # or it would stay in the mean for good
        self._weight = self.share * self._weight + 1.0
        if self._mean is None or self.share == 0.0:  # to the last bit
            self._mean = gradient
        else:
            self._mean = self._mean + (gradient - self._mean) / self._weight
        return self._mean
