"""What every analysis demands of its tables, and what it says when it does not get it.

Knows the shape of a reward matrix and of paired series; knows no statistic.
"""

import numpy as np
import pandas as pd

from pessimal.errors import TableError


def check_rewards(rewards: pd.DataFrame, *, least_models: int = 1, least_items: int = 3) -> None:
    """Refuse a reward matrix (items × models) from which no statistic can be computed.

    Raises:
        TableError: too few items or models, a model named twice, a column that is not numeric, or a
            reward that is missing or infinite.
    """
    items, models = rewards.shape
    if models < least_models or items < least_items:
        raise TableError(
            f"The reward matrix has {items} items and {models} models; at least {least_items} "
            f"items and {least_models} models are needed. Give more score tables, or tables that "
            "share more items."
        )
    if twice := sorted(rewards.columns[rewards.columns.duplicated()].map(str).unique()):
        raise TableError(
            f"Models named more than once: {', '.join(twice)}. A model is one column; drop or "
            "rename the others."
        )
    if other := [
        str(model)
        for model, kind in rewards.dtypes.items()
        if not pd.api.types.is_float_dtype(kind)
    ]:
        raise TableError(
            f"Rewards are not floats for: {', '.join(other)}. Convert the columns with "
            "`.astype(float)`."
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


def check_square(matrix: pd.DataFrame, *, name: str, least: int = 2) -> None:
    """Refuse a model × model matrix that is not square, symmetric and complete.

    Raises:
        TableError: says which of these fails.
    """
    if list(matrix.index) != list(matrix.columns) or not matrix.index.is_unique:
        raise TableError(
            f"The {name} matrix must carry the same models, each once, in the same order as rows "
            f"and columns; its rows are {list(matrix.index)}, its columns {list(matrix.columns)}."
        )
    if len(matrix) < least:
        raise TableError(
            f"The {name} matrix has {len(matrix)} models; at least {least} are needed."
        )
    values = matrix.to_numpy(dtype=float)
    if not np.isfinite(values).all() or not np.allclose(values, values.T):
        raise TableError(f"The {name} matrix must be symmetric and without missing values.")


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
    if not (left.index.is_unique and right.index.is_unique):
        raise TableError(
            f"{left_name} and {right_name} name some items twice and are ordered differently, so "
            "they cannot be matched. Make the items unique, or give both in the same order."
        )
    if len(left) != len(right) or not right.index.isin(left.index).all():
        only_left, only_right = (
            left.index.difference(right.index),
            right.index.difference(left.index),
        )
        raise TableError(
            f"{left_name} and {right_name} must hold the same items: {len(only_left)} are only in "
            f"{left_name}{_examples(only_left)}, {len(only_right)} only in "
            f"{right_name}{_examples(only_right)}. Keep the shared ones."
        )
    return right.reindex(left.index)


def _examples(items: pd.Index) -> str:
    return f" (such as {items[0]!r})" if len(items) else ""
