"""Rewards of tokens × models × wordings, reduced to the means of the cells (model, wording) and their covariances.

Knows tables of rewards; knows no statistic made of the result.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

TOKEN_BLOCKS = 20  # one block left out at a time: 19 degrees of freedom, and a matrix of 2.3 MB kept for each


class Cells(NamedTuple):
    """Means and covariances of the cells over tokens."""

    tokens: int
    mean: np.ndarray
    """(models, wordings)."""
    covariance: np.ndarray
    """(models, wordings, models, wordings), divisor tokens − 1."""


def select(cells: Cells, models: list[int], wordings: np.ndarray) -> Cells:
    """Some models and wordings."""
    grid = np.ix_(models, wordings)
    return Cells(cells.tokens, cells.mean[grid], cells.covariance[np.ix_(models, wordings, models, wordings)])


def read_cells(
    rewards: Mapping[str, pd.DataFrame], prompts: Sequence[str], *, seed: int
) -> tuple[Cells, list[Cells]]:
    """Means and covariances over all tokens, and over all but each of the blocks."""
    n, n_models = rewards[prompts[0]].shape
    shape = (n_models, len(prompts))
    centre = np.stack([rewards[prompt].to_numpy().mean(axis=0) for prompt in prompts], axis=1).astype(float)
    blocks = np.array_split(np.random.default_rng(seed).permutation(n), min(TOKEN_BLOCKS, n))
    sums, products = [], []
    for block in blocks:
        members = np.sort(block)
        # Centred on the overall mean first, so that products of large rewards do not eat up the digits.
        piece = np.stack([rewards[prompt].iloc[members].to_numpy() for prompt in prompts], axis=2) - centre
        flat = piece.reshape(len(members), -1)
        sums.append(flat.sum(axis=0))
        products.append(flat.T @ flat)
    total, product = np.sum(sums, axis=0), np.sum(products, axis=0)

    def cells(count: int, amount: np.ndarray, square: np.ndarray) -> Cells:
        mean = amount / count
        covariance = (square - count * np.outer(mean, mean)) / (count - 1)
        return Cells(count, centre + mean.reshape(shape), covariance.reshape(shape + shape))

    without = [
        cells(n - len(block), total - amount, product - square)
        for block, amount, square in zip(blocks, sums, products, strict=True)
    ]
    return cells(n, total, product), without
