"""One model under two prompts: is "worst" the mirror image of "best"?

Knows two columns of rewards of the same items. A model that understood the frame would score the items along
best − worst; one that likes some tokens whatever the question scores them along best + worst.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pessimal.analysis import influence
from pessimal.analysis.bootstrap import intervals
from pessimal.analysis.checks import align, check_rewards, check_varied
from pessimal.analysis.ranks import Ranked, net_concordance, ranked
from pessimal.errors import TableError

AXES = ("difference", "sum")


def framing(
    best: pd.Series, worst: pd.Series, *, replicates: int = 1000, confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """How one model's rewards for *best* and *worst* hang together.

    The reversal score is the share of pairs of items whose order turns round from one prompt to the other: 1 for a
    mirror image, ½ for unrelated orders, 0 for one order whatever is asked. A pair that either prompt scores
    alike has no order to turn; such pairs are left out, and `tied` is their share. Where there are none, the score
    is (1 − tau) / 2.

    The shares divide the variance of the items between the axis of evaluation, best − worst, and the axis
    orthogonal to it, best + worst; they add to one. They are taken of raw rewards, because both columns are in
    one model's own units and a prompt that moves the rewards more should weigh more; of standardised rewards
    they would be (1 ∓ pearson) / 2 and say nothing new. Intervals are item bootstraps of the linearised
    statistics. Spearman takes mid-ranks, Kendall is tau-b; duplicate items count as often as given.

    Args:
        best: reward per item under the one prompt, the positive one if they are opposite.
        worst: reward per item under the other prompt, same items.
        replicates: bootstrap draws of items.
        confidence: of the intervals.
        seed: of the draws.

    Returns:
        One row: n, reversal, reversal_low, reversal_high, tied, kendall, spearman, pearson, share_difference (of
        best − worst), each of these four with _low and _high, share_sum.

    Raises:
        TableError: the items differ, a reward is missing, or one column does not vary.

    Source: Christian et al. 2025, Figure 4; Goodman & Kruskal 1954 for the pairs that are left out.
    """
    table = framings({"": (best, worst)}, replicates=replicates, confidence=confidence, seed=seed)
    return table.drop(columns="model")


def framings(
    pairs: Mapping[str, tuple[pd.Series, pd.Series]],
    *,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """`framing` of several models, the same numbers, faster: models with as many items share the bootstrap draws.

    Drawing 128,000 items a thousand times takes .7 s; for ten models with one vocabulary it is done once.

    Args:
        pairs: by model, its rewards under both prompts (see `framing`); each model over its own items.
        replicates: bootstrap draws of items.
        confidence: of the intervals.
        seed: of the draws.

    Returns:
        One row per model, in the order given: model, and the columns of `framing`.

    Raises:
        TableError: see `framing`; or there are no models.
    """
    if not pairs:
        raise TableError(
            "No model was given; a framing needs one model's rewards under two prompts at least."
        )
    rows: dict[str, dict[str, float]] = {}
    statistics: dict[int, dict[str, dict[str, influence.Statistic]]] = {}
    for model, (best, worst) in pairs.items():
        pair = _pair(best, worst)
        check_varied(pair)
        tied, found = _statistics(pair["best"].to_numpy(), pair["worst"].to_numpy())
        rows[model] = {"n": len(pair), "tied": tied}
        statistics.setdefault(len(pair), {})[model] = found
    for alike in statistics.values():
        flat = [statistic for found in alike.values() for statistic in found.values()]
        estimates = np.array([statistic.estimate for statistic in flat])
        influences = np.stack([statistic.influence for statistic in flat], axis=1)
        bounds = zip(
            *intervals(estimates, influences, replicates=replicates, confidence=confidence, seed=seed),
            strict=True,
        )
        for model, found in alike.items():
            for name, statistic in found.items():
                low, high = next(bounds)
                rows[model] |= {name: statistic.estimate, f"{name}_low": low, f"{name}_high": high}
            rows[model]["reversal_low"] = max(rows[model]["reversal_low"], 0.0)  # a share: not below 0
            rows[model]["share_difference_low"] = max(rows[model]["share_difference_low"], 0.0)
    table = pd.DataFrame([{"model": model} | row for model, row in rows.items()])
    first = ["model", "n", "reversal", "reversal_low", "reversal_high", "tied"]
    rest = [name for name in table if name not in first]
    return table[[*first, *rest]].assign(share_sum=1 - table["share_difference"])


def axes(best: pd.Series, worst: pd.Series) -> pd.DataFrame:
    """Each item's place on the two axes.

    Returns:
        One row per item, in the order of `best`: text, best, worst, difference (best − worst), total
        (best + worst).

    Raises:
        TableError: the items differ, or a reward is missing.
    """
    pair = _pair(best, worst)
    pair = pair.assign(difference=pair["best"] - pair["worst"], total=pair["best"] + pair["worst"])
    table = pair.reset_index(drop=True)
    # The index as it is: `reset_index` would make Arrow strings of it, which cannot hold a lone surrogate.
    table.insert(0, "text", pair.index)
    return table


def ends_of_axes(best: pd.Series, worst: pd.Series, *, k: int = 20) -> pd.DataFrame:
    """The items at both ends of both axes: what the frame moves most, and what is liked or disliked either way.

    Items may share a text where two tokens decode to one; they are listed as they are. Equal values keep the
    order of the rows; `tied` marks a value that is shared with an item that the cut left out.

    Args:
        best: reward per item under the one prompt.
        worst: reward per item under the other, same items.
        k: items at each end; fewer where there are not so many.

    Returns:
        One row per listed item: axis (`difference`, best − worst; `sum`, best + worst), end (`top`, `bottom`),
        rank (1 = the outermost), text, best, worst, value (on the axis), tied.

    Raises:
        TableError: the items differ, a reward is missing, or k is below 1.

    Source: Christian et al. 2025, Tables A8 (best + worst) and A9 (best − worst).
    """
    if k < 1:
        raise TableError(f"k={k} items at each end; give at least 1.")
    places = axes(best, worst)
    pieces = []
    for axis, column in zip(AXES, ("difference", "total"), strict=True):
        values = places[column].to_numpy()
        for end, sign in (("top", -1), ("bottom", 1)):
            listed = outermost(sign * values, count=k)
            last = values[listed[-1]]
            cut = np.sum(values == last) > np.sum(values[listed] == last)
            piece = places.iloc[listed][["text", "best", "worst"]].assign(value=values[listed])
            piece["tied"] = (piece["value"] == last) & cut
            piece.insert(0, "rank", range(1, len(listed) + 1))
            piece.insert(0, "end", end)
            piece.insert(0, "axis", axis)
            pieces.append(piece)
    return pd.concat(pieces, ignore_index=True)


def highest_and_lowest_in_both(best: pd.Series, worst: pd.Series) -> tuple[str, str]:
    """The item whose lower place of the two is highest, and the one whose higher place is lowest.

    Places are standardised rewards. The end of best + worst may be far out under one prompt and ordinary under the
    other; these two are what a model likes, and dislikes, under both.

    Raises:
        TableError: the items differ, a reward is missing, or one column does not vary.
    """
    pair = _pair(best, worst)
    check_varied(pair)
    places = ((pair - pair.mean()) / pair.std(ddof=0)).to_numpy()
    return str(pair.index[places.min(axis=1).argmax()]), str(pair.index[places.max(axis=1).argmin()])


def outermost(values: np.ndarray, *, count: int) -> np.ndarray:
    """Row numbers of the `count` smallest values, smallest first, equals in the order of the rows.

    A sixth of the time of sorting all 128,000 of them.
    """
    if count >= len(values):
        return np.argsort(values, kind="stable")
    near = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return near[np.argsort(values[near], kind="stable")][:count]


def _pair(best: pd.Series, worst: pd.Series) -> pd.DataFrame:
    """Both columns, item by item."""
    worst = align(best, worst, left_name="best", right_name="worst")
    pair = pd.DataFrame(
        {"best": best.to_numpy(dtype=float), "worst": worst.to_numpy(dtype=float)}, index=best.index
    )
    check_rewards(pair)
    return pair


def _statistics(x: np.ndarray, y: np.ndarray) -> tuple[float, dict[str, influence.Statistic]]:
    """The share of tied pairs, and every statistic of one model with its influence values."""
    a, b = ranked(x), ranked(y)
    tied, reversal = _reversal(a, b)
    return tied, {
        "reversal": reversal,
        "kendall": influence.kendall(a, b),
        "spearman": influence.spearman(a, b),
        "pearson": influence.pearson(x, y),
        "share_difference": _share_of_difference(x, y),
    }


def _reversal(a: Ranked, b: Ranked) -> tuple[float, influence.Statistic]:
    """The share of pairs tied in a or in b; of the others the share in opposite order, with its influence values.

    Discordant over untied pairs, both U-statistics of order two (see `influence.kendall`), joined by the delta
    method. Concordant and discordant pairs are counted exactly, O(n log n).
    """
    n = len(a.dense)
    alike = ranked(a.dense * n + b.dense).equal if a.tied and b.tied else 1
    # (n,): of all other items those that neither column ties with this one; those tied in both were taken off twice.
    untied = n - a.equal - b.equal + alike
    turned = (
        untied - net_concordance(a, b)
    ) / 2  # whole numbers, so that no turned pair is exactly no turned pair
    # Never 0: were all pairs tied in one column or the other, one of the columns would be constant.
    share = turned.sum() / untied.sum()
    value = 2 * (turned - share * untied) / untied.mean()
    return float(1 - untied.mean() / (n - 1)), influence.Statistic(float(share), value)


def _share_of_difference(x: np.ndarray, y: np.ndarray) -> influence.Statistic:
    """The share of x − y in the variance along x − y and x + y together, and its influence values."""
    x, y = x - x.mean(), y - y.mean()
    difference, both = (x - y) ** 2, 2 * (x * x + y * y)
    share = difference.mean() / both.mean()
    return influence.Statistic(float(share), (difference - share * both) / both.mean())
