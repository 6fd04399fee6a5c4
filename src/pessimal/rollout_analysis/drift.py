"""The features that training on these rewards will amplify, and those that grow over the steps.

Knows features, rewards and steps. Knows no file and no grader.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import sparse

from pessimal.analyses.nulls import interval, share_interval
from pessimal.rollout_analysis.columns import sort_by_group
from pessimal.rollout_analysis.features import Features, describe_feature, make_features
from pessimal.rollout_analysis.within import PART, center, clustered_slope
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect

KL = 0.01
"""Nats between the policy and its tilt, to which a drift is scaled."""
TRAINER_EPSILON = 1e-4
"""Added to the standard deviation by TRL's and verl's GRPO."""
DRIFT = Effect(
    *("drift", "change of the mean at a KL of .01", "low", "high", "p_corrected"), null=0.0,
    of="rollouts", correction="Benjamini-Hochberg",
)  # fmt: skip
GROWTH = Effect(
    *("slope", "change of the mean a step", "low", "high", "p_corrected"), null=0.0,
    of="rollouts", correction="Benjamini-Hochberg",
)  # fmt: skip


def describe_signal(rewards: pd.DataFrame, groups: np.ndarray) -> pd.DataFrame:
    """By reward column: shares of groups of several rollouts whose rewards do not vary (dead), of
    which all are the largest or the least reward there is, and the share of the variance that lies
    within groups."""
    sizes = np.bincount(groups)
    several = sizes > 1
    rows = []
    for name, column in rewards.items():
        values = column.to_numpy(dtype=float)
        spread = np.bincount(groups, center(values, groups) ** 2)
        means = np.bincount(groups, values) / sizes
        dead = several & (spread < 1e-12)
        total = float(((values - values.mean()) ** 2).sum())
        _, low, high = share_interval(dead[several].astype(float), np.flatnonzero(several))
        rows.append(
            {
                "reward": name,
                "dead": float(dead.sum() / several.sum()),
                "low": low,
                "high": high,
                "all_largest": float((dead & (means > values.max() - 1e-9)).sum() / several.sum()),
                "all_least": float((dead & (means < values.min() + 1e-9)).sum() / several.sum()),
                "variance_within": float(spread.sum() / total) if total > 0 else np.nan,
                "mean": float(values.mean()),
                "n": int(several.sum()),
            }
        )
    return pd.DataFrame(rows)


def advantages(rewards: np.ndarray, groups: np.ndarray, *, scaled: bool = True) -> np.ndarray:
    """(n,) GRPO's advantages: rewards less their mean in the group, over their standard deviation
    (ddof 1) where `scaled`, as in Dr. GRPO and RLOO they are not.

    Source: Shao et al. 2024 (GRPO); Liu et al. 2025 (Dr. GRPO).
    """
    centred = center(rewards, groups)
    return centred / _spreads(centred, groups) if scaled else centred


def _spreads(centred: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """(n,) standard deviation of the rewards of a rollout's group, plus the trainer's epsilon."""
    freedom = np.maximum(np.bincount(groups) - 1, 1)
    return np.sqrt(np.bincount(groups, centred**2) / freedom)[groups] + TRAINER_EPSILON


def forecast_drift(
    features: Features,
    groups: np.ndarray,
    rewards: np.ndarray,
    *,
    truth: np.ndarray | None = None,
    scaled: bool = True,
) -> pd.DataFrame:
    """By how much the mean of each feature moves as the policy is tilted by exp(η A), at a KL of
    about `KL`: η Cov(feature, A). It is no parameter's gradient.

    Args:
        groups, rewards: (n,).
        truth: (n,) trusted rewards: the drift is then the sum of what follows from these
            (`from_right`) and from what the reward pays beyond them (`from_wrong`).
        scaled: as of `advantages`.
    """
    centred = center(rewards, groups)
    advantage = advantages(rewards, groups, scaled=scaled)
    eta = np.sqrt(2 * KL / max(float(np.square(advantage).mean()), 1e-300))
    drift, error, freedom = _covariance(features, eta * advantage, groups)
    low, high, p = interval(drift, error, freedom, confidence=0.95)
    columns = {
        "feature": [feature.name for feature in features.features],
        "kind": [feature.kind for feature in features.features],
        "share": np.append(features.counts / len(rewards), features.numbers.mean()),
        **{"drift": drift, "low": low, "high": high, "p": np.where(error > 0, p, np.nan)},
    }
    if truth is not None:
        has_truth = np.isfinite(truth)
        scale = _spreads(centred, groups) if scaled else 1.0
        right = np.where(has_truth, center(np.where(has_truth, truth, 0.0), groups), 0.0) / scale
        columns["from_right"] = _covariance(features, eta * right, groups)[0]
        columns["from_wrong"] = drift - columns["from_right"]
    return DRIFT.correct(pd.DataFrame(columns).assign(n=len(rewards)))


def _moments(
    features: Features, weights: np.ndarray, groups: np.ndarray, *columns: np.ndarray
) -> np.ndarray:
    """(3 + columns, features) of the sums by group of a feature times weights (n,): their sum, sum
    of squares, how many are not 0, and products with columns (groups,)."""
    member = sparse.csr_array((weights, (np.arange(len(groups)), groups)))
    starts = range(0, features.flags, PART)  # bounds the memory
    parts = [sparse.csr_array(features.matrix[start : start + PART]) for start in starts]
    parts.append(sparse.csr_array(features.numbers.to_numpy(dtype=float).T))
    moments = []
    for part in parts:
        sums = part @ member
        sums.data[np.abs(sums.data) < 1e-12] = 0.0
        counted = (sums.sum(axis=1), sums.power(2).sum(axis=1), sums.count_nonzero(axis=1))
        moments.append(np.stack([*counted, *(sums @ column for column in columns)]))
    return np.concatenate(moments, axis=1)


def _covariance(
    features: Features, weights: np.ndarray, groups: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(features,) mean products with weights (n,) whose mean in each group is 0, their standard
    errors by group, and the degrees of freedom: the groups that a product is not 0 in, less one."""
    n, g = len(weights), int(groups.max()) + 1
    total, square, holding = _moments(features, weights, groups)
    mean, freedom = total / n, np.maximum(holding - 1, 1)
    if g == 1:
        return mean, np.full(len(mean), np.nan), freedom
    error = np.sqrt(np.maximum(square / n**2 - mean**2 / g, 0.0) * g / (g - 1))
    return mean, error, freedom


def measure_growth(features: Features, groups: np.ndarray, step: np.ndarray) -> pd.DataFrame:
    """The slope of each feature's mean on the step, between prompts, with errors by group; a
    feature that few groups have has as few degrees of freedom."""
    about, n, g = step - step.mean(), len(step), int(groups.max()) + 1
    squares = float((about**2).sum())
    # A group's part of the error is its sum less mean * first less slope * second.
    first, second = np.bincount(groups, about), np.bincount(groups, about**2)
    total, square, holding, by_first, by_second = _moments(features, about, groups, first, second)
    mean, slope = np.append(features.counts / n, features.numbers.mean()), total / squares
    line = mean**2 * (first @ first) + 2 * mean * slope * (first @ second)
    line += slope**2 * (second @ second)
    parts = square - 2 * (mean * by_first + slope * by_second) + line
    error = np.sqrt(np.maximum(parts, 0.0) * g / max(g - 1, 1)) / squares
    freedom = np.maximum(holding - 2, 1)
    low, high, p = interval(slope, error, freedom, confidence=0.95)
    table = pd.DataFrame(
        {
            "feature": [feature.name for feature in features.features],
            "kind": [feature.kind for feature in features.features],
            "slope": slope,
            "low": low,
            "high": high,
            "p": np.where(error > 0, p, np.nan),
            "n": n,
        }
    )
    return GROWTH.correct(table)


def first_growth(values: np.ndarray, groups: np.ndarray, step: np.ndarray) -> float:
    """The step from which on the interval of the slope over all steps so far excludes 0; NaN where
    it never does to the end."""
    since = np.nan
    for end in np.unique(step)[2:]:
        rows = step <= end
        about = step[rows] - step[rows].mean()
        centred = values[rows] - values[rows].mean()
        labels = np.unique(groups[rows], return_inverse=True)[1]
        slope, error = clustered_slope(about, centred, labels)
        freedom = max(int(labels.max()) - 1, 1)
        low, high, _ = interval(np.array(slope), np.array(error), freedom, confidence=0.95)
        if low <= 0 <= high:
            since = np.nan
        elif np.isnan(since):
            since = float(end)
    return since


def count_foretold(
    drift: pd.DataFrame, growth: pd.DataFrame, rows: Sequence[int]
) -> tuple[int, int]:
    """Counts of some features, by number: those that moved as their drift in the first steps said,
    and those that have both."""
    signs = np.sign(drift["drift"].to_numpy()[rows]) * np.sign(growth["slope"].to_numpy()[rows])
    return int((signs > 0).sum()), int((signs != 0).sum())


def describe_training(
    responses: Sequence[str],
    prompts: Sequence[str],
    rewards: np.ndarray,
    step: np.ndarray,
) -> tuple[float, str]:
    """The share of dead groups of a running training's rollouts, and in words the feature that grew
    fastest among those that are paid; nothing where none did beyond its error.

    Args:
        responses, prompts, rewards, step: (n,); rollouts of one prompt at one step are a group.
    """
    columns = {"response": responses, "group": prompts, "reward": rewards, "step": step}
    frame, groups = sort_by_group(pd.DataFrame(columns))
    rewards, step = (frame[name].to_numpy(float) for name in ("reward", "step"))
    dead = float(describe_signal(pd.DataFrame({"reward": rewards}), groups)["dead"].iloc[0])
    if len(np.unique(step)) < 3:
        return dead, ""
    features = make_features(frame["response"].tolist(), frame["group"].tolist(), groups)
    drift = forecast_drift(features, groups, rewards)
    growth = measure_growth(features, groups, step)
    paid = (drift["drift"] > 0) & (drift["p_corrected"] <= LEVEL) & (growth["slope"] > 0)
    grew = paid & (growth["p_corrected"] <= LEVEL) & (growth.index < features.flags)
    if not grew.any():
        return dead, ""
    best = int(growth["slope"].where(grew).idxmax())
    values, third = features.values(best), np.quantile(step, (1 / 3, 2 / 3))
    early, late = values[step <= third[0]].mean(), values[step >= third[1]].mean()
    words = describe_feature(features.features[best].kind, features.features[best].name)
    return dead, f"{words} is paid, and grew from {early:.0%} to {late:.0%} of the responses"
