"""Demands of every analysis on its tables, and its messages where they are not met.

Knows the shape of a reward matrix and of paired series; knows no statistic.
"""

import numpy as np
import pandas as pd

from pessimal.errors import TableError

LEAST_ITEMS = 3


def check_rewards(rewards: pd.DataFrame, *, least_models: int = 1) -> None:
    """Refuse a reward matrix (items × models) from which no statistic can be computed.

    Raises:
        TableError: too few items or models, or a reward that is missing or infinite.
    """
    items, models = rewards.shape
    if models < least_models or items < LEAST_ITEMS:
        raise TableError(
            f"The reward matrix has {items} items and {models} models; at least {LEAST_ITEMS} "
            f"items and {least_models} models are needed. Give score tables that share more."
        )
    finite = np.isfinite(rewards.to_numpy())
    if not finite.all():
        worst = ", ".join(
            f"{model} ({(~ok).sum()})"
            for model, ok in zip(rewards, finite.T, strict=True)
            if not ok.all()
        )
        raise TableError(
            f"Rewards are missing or infinite for: {worst}, of {items} items. Keep only the items "
            "every model scored: `rewards.dropna()`."
        )


def check_varied(rewards: pd.DataFrame) -> None:
    """Refuse a model that gives every item the same reward: no correlation with it is defined.

    Raises:
        TableError: names the models.
    """
    constant = [str(model) for model in rewards if rewards[model].min() == rewards[model].max()]
    if constant:
        raise TableError(
            f"The same reward for every item from: {', '.join(constant)}. No correlation is "
            "defined; leave these models out, or look at their scan with `pessimal check`."
        )


def align(
    left: pd.Series | pd.DataFrame, right: pd.Series, *, left_name: str, right_name: str
) -> pd.Series:
    """`right` in the order of `left`'s items.

    Two indices in the same order pass as they are, items named twice included. In any other order
    the items must be unique, so that which belongs to which is not a guess.

    Raises:
        TableError: the two do not hold the same items, or items are named twice in different
            orders.
    """
    if left.index.equals(right.index):
        return right
    only_left, only_right = left.index.difference(right.index), right.index.difference(left.index)
    once = left.index.is_unique and right.index.is_unique
    if len(only_left) or len(only_right) or not once:
        raise TableError(
            f"{left_name} and {right_name} must hold the same items, each once or in the same "
            f"order: {len(only_left)} are only in {left_name}{_examples(only_left)}, "
            f"{len(only_right)} only in {right_name}{_examples(only_right)}. Keep the shared ones."
        )
    return right.reindex(left.index)


def _examples(items: pd.Index) -> str:
    return f" (such as {items[0]!r})" if len(items) else ""
