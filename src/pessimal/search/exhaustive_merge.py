"""All blocks put together: the whole's ends, every token's own numbers, and the distribution of all rewards.

Tables from blocks, always in the order of their numbers, so that sums come out the same to the bit.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pessimal.search.exhaustive_block import Bins, Block, EachToken, Extremes
from pessimal.search.exhaustive_plan import PairPlan


@dataclass(frozen=True)
class Moments:
    """Mean and variance of all pairs' rewards, and where the variance comes from.

    The table of all pairs is complete, so its variance falls exactly into three parts: means of first tokens, means of
    second tokens, and what is left, which no sum of a number for the first and one for the second token can give.
    """

    mean: float
    """In units of reward."""
    sd: float
    """Standard deviation over all pairs, in units of reward."""
    first: float
    """Share of the variance that means of first tokens have, 0 to 1; NaN where all rewards are equal."""
    second: float
    """Share of the variance that means of second tokens have."""
    together: float
    """Share that is of the two together: 1 − first − second."""


@dataclass(frozen=True)
class Tables:
    """What all blocks say together; see `ExhaustivePairs` for the columns."""

    top: pd.DataFrame
    bottom: pd.DataFrame
    per_first: pd.DataFrame
    per_second: pd.DataFrame
    histogram: pd.DataFrame
    moments: Moments


def merge(plan: PairPlan, bins: Bins, blocks: Iterable[Block]) -> Tables:
    """Tables over all `blocks`, in the order of their numbers."""
    top = bottom = by_second = None
    by_first: list[EachToken] = []
    sds, counts = [], 0
    for block in blocks:
        top = block.top if top is None else top.merged(block.top, sign=1, keep=plan.keep)
        bottom = block.bottom if bottom is None else bottom.merged(block.bottom, sign=-1, keep=plan.keep)
        by_second = block.by_second if by_second is None else by_second.merged(block.by_second)
        by_first.append(block.by_first)
        sds.append(block.sd_by_first)
        counts = counts + block.counts
    per_first = pd.concat([_frame(part, plan, "second") for part in by_first], ignore_index=True)
    per_first.insert(0, "first", plan.tokens.astype(np.int32))
    per_first["sd"] = np.concatenate(sds)
    per_second = _frame(by_second, plan, "first")
    per_second.insert(0, "second", plan.tokens.astype(np.int32))
    return Tables(
        top=_ranked(top, sign=1),
        bottom=_ranked(bottom, sign=-1),
        per_first=per_first,
        per_second=per_second,
        histogram=_histogram(bins, counts),
        moments=_moments(per_first, per_second),
    )


def _frame(tokens: EachToken, plan: PairPlan, other: str) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "best": tokens.best.astype(np.float64),
            f"best_{other}": tokens.best_with,
            "worst": tokens.worst.astype(np.float64),
            f"worst_{other}": tokens.worst_with,
            "mean": tokens.total / len(plan.tokens),
        }
    )


def _ranked(ends: Extremes, *, sign: int) -> pd.DataFrame:
    reward = ends.reward.astype(np.float64)
    # Whatever lies strictly further out is kept too, so these are ranks among all pairs.
    rank = 1 + np.searchsorted(-sign * reward, -sign * reward, side="left")
    return pd.DataFrame({"rank": rank, "first": ends.first, "second": ends.second, "reward": reward})


def _histogram(bins: Bins, counts: np.ndarray) -> pd.DataFrame:
    edges = np.concatenate([[-np.inf], bins.edges, [np.inf]])
    return pd.DataFrame({"low": edges[:-1], "high": edges[1:], "pairs": counts})


def _moments(per_first: pd.DataFrame, per_second: pd.DataFrame) -> Moments:
    mean = float(per_first["mean"].mean())
    first = float(np.mean((per_first["mean"] - mean) ** 2))
    second = float(np.mean((per_second["mean"] - mean) ** 2))
    variance = first + float(np.mean(per_first["sd"] ** 2))
    shares = [part / variance if variance > 0 else float("nan") for part in (first, second)]
    return Moments(mean, variance**0.5, *shares, 1 - sum(shares))
