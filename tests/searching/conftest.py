"""Toy objectives: one with a closed-form optimum, one for brute force. Each counts what it was
asked."""

import itertools

import pytest
import torch
from torch import Tensor


class Counting:
    """An objective that keeps what it was asked; `_values` and `_gradient` are its mathematics."""

    def __init__(self, length: int, vocabulary: int):
        self.length, self.vocabulary = length, vocabulary
        self.calls = self.rows = self.gradients = 0
        self.seen: list[Tensor] = []  # responses (n, L) of each call of `values`
        self.anchors: list[Tensor | None] = []  # and its anchor
        self.slopes_at: list[Tensor] = []  # the response of each call of `gradient`

    def values(self, responses: Tensor, *, anchor: Tensor | None = None) -> Tensor:
        assert responses.dtype == torch.int64
        assert responses.ndim == 2
        self.calls += 1
        self.rows += len(responses)
        self.seen.append(responses.clone())
        self.anchors.append(None if anchor is None else anchor.clone())
        return self._values(responses)

    def gradient(self, response: Tensor) -> Tensor:
        assert response.shape == (self.length,)
        self.gradients += 1
        self.slopes_at.append(response.clone())
        return self._gradient(response).float()


class Additive(Counting):
    """The sum of a weight for each token in each place. Its gradient is the weights, everywhere.

    best_response (L,) and best_value: the closed-form optimum.
    """

    def __init__(self, seed: int, length: int, vocabulary: int):
        super().__init__(length, vocabulary)
        generator = torch.Generator().manual_seed(seed)
        self.weights = torch.randn(
            length, vocabulary, generator=generator, dtype=torch.float64
        )  # (L, V)
        self.best_response = self.weights.argmax(dim=1)
        self.best_value = float(self._values(self.best_response[None]))

    def best_among(self, allowed: Tensor) -> float:
        """The optimum over tokens of a bool mask (V,)."""
        best = self.weights.masked_fill(~allowed, -torch.inf).argmax(dim=1)
        return float(self._values(best[None]))

    def _values(self, responses: Tensor) -> Tensor:
        return self.weights.gather(1, responses.T).sum(dim=0)

    def _gradient(self, response: Tensor) -> Tensor:
        return self.weights


class Quadratic(Counting):
    """Additive, and a quadratic form of h = Σ A_i e(x_i), tokens' embeddings mapped by their place:
    tokens interact across places, and the gradient is a linearisation even for a single change.

    `strength`: standard deviation of the quadratic part over that of the additive one.
    """

    def __init__(self, seed: int, length: int, vocabulary: int, strength: float = 1.0):
        super().__init__(length, vocabulary)
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        hidden = 4
        self.weights = normal(length, vocabulary)  # (L, V)
        maps, embeddings, form = (
            normal(length, hidden, hidden),
            normal(vocabulary, hidden),
            normal(hidden, hidden),
        )
        self.states = torch.einsum("lij,vj->lvi", maps, embeddings)  # (L, V, hidden): A_i e(v)
        self.form = (form + form.T) / 2
        sample = torch.randint(0, vocabulary, (2048, length), generator=generator)
        self.form *= strength * self._additive(sample).std() / self._interaction(sample).std()

    def brute_force(self, allowed: Tensor | None = None) -> tuple[Tensor, float]:
        """The best response (L,) and its value, from all V**L; nothing is counted. `allowed`: bool
        (V,)."""
        tokens = range(self.vocabulary) if allowed is None else allowed.nonzero()[:, 0].tolist()
        every = torch.tensor(list(itertools.product(tokens, repeat=self.length)))
        values = self._values(every)
        best = int(values.argmax())
        return every[best], float(values[best])

    def _additive(self, responses: Tensor) -> Tensor:
        return self.weights.gather(1, responses.T).sum(dim=0)

    def _hidden(self, responses: Tensor) -> Tensor:
        places = torch.arange(responses.shape[1])
        return self.states[places, responses].sum(dim=1)  # (n, hidden)

    def _interaction(self, responses: Tensor) -> Tensor:
        hidden = self._hidden(responses)
        return ((hidden @ self.form) * hidden).sum(dim=1)

    def _values(self, responses: Tensor) -> Tensor:
        return self._additive(responses) + self._interaction(responses)

    def _gradient(self, response: Tensor) -> Tensor:
        (hidden,) = self._hidden(response[None])
        return self.weights + 2 * self.states @ (self.form @ hidden)


@pytest.fixture
def additive():
    """additive(seed, length, vocabulary): an objective with a closed-form optimum."""
    return Additive


@pytest.fixture
def quadratic():
    """quadratic(seed, length, vocabulary): an objective small enough for brute force."""
    return Quadratic
