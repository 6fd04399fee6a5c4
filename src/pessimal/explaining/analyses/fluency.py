"""How fluent edits are: the perplexity of the edited response beside that of the response as it
stands.

Knows log-probabilities as a scorer gives them, and the table of outcomes. Does not know which
language model gave them.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from pessimal.conversation import Conversation
from pessimal.explaining.analyses.flips import SHARES, clustered_share
from pessimal.explaining.analyses.intervals import cluster_index, draws, median_interval
from pessimal.rewards.frame import Encoded

RATIO = "perplexity_ratio"
"""Column of the table of outcomes: perplexity of the edited response over that of the response; NaN
without a text."""
FLUENT = 1.5
"""Largest ratio of a fluent edit. No threshold is published; this is half as much again as the
response had."""
MEDIANS = ["median", "median_low", "median_high"]

Perplexities = Callable[[Sequence[Conversation]], np.ndarray]
"""Perplexities float64 (n,) of the responses of conversations, each after its prompt; NaN for what
is too long."""


def perplexities(
    scorer, encode: Callable[[Conversation], Encoded], conversations: Sequence[Conversation]
) -> np.ndarray:
    """exp(−log p(response | prompt) / tokens of the response), float64 (n,); NaN for what is longer
    than the model reads.

    Args:
        scorer: gives log p(response | prompt), in nats, as rewards.
        encode: the ids of a conversation, with how many of them are the response's.

    Source: Nguyen et al. 2024 (CEval), who report the perplexity of the edited text under GPT-2.
    """
    tokens = np.array([encode(one).n_response for one in conversations], dtype=float)
    return np.exp(-scorer.rewards(conversations) / tokens)


def fluency(
    outcomes: pd.DataFrame,
    *,
    by: Sequence[str] = ("perturber", "attribute"),
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """The median perplexity ratio of edits and the share that is fluent (a ratio of at most
    `FLUENT`), a row a group of `by`.

    Args:
        outcomes: with the column `RATIO`; each edit once.

    Returns:
        The columns of `by`; median, median_low, median_high (bootstrap over comparisons); n (edits
        with a ratio), comparisons, share, low, high (see `share_interval`).
    """
    rows = []
    for key, group in outcomes.dropna(subset=[RATIO]).groupby(list(by), sort=False):
        values, clusters = group[RATIO].to_numpy(dtype=float), sorted(set(group["comparison"]))
        weights = draws(len(clusters), replicates=replicates, seed=seed)
        index = cluster_index(group["comparison"], clusters)
        ends = median_interval(values, index, weights, confidence=confidence)
        middle = dict(zip(MEDIANS, (float(np.median(values)), *ends), strict=True))
        share = clustered_share(group[RATIO] <= FLUENT, group["comparison"], confidence=confidence)
        rows.append(dict(zip(by, key, strict=True)) | middle | share)
    return pd.DataFrame(rows, columns=[*by, *MEDIANS, *SHARES])
