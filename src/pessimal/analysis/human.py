"""Models against people: rewards of named items beside the items' human Elo scores.

Knows a reward matrix and one human score per item; knows nothing of who the people were, nor how surely their
scores are known (see `elo`).
"""

import numpy as np
import pandas as pd
from scipy.stats import binom, rankdata

from pessimal.analysis import influence
from pessimal.analysis.bootstrap import intervals
from pessimal.analysis.checks import align, check_rewards, check_varied
from pessimal.analysis.elo import rank_intervals
from pessimal.analysis.ranks import ranked
from pessimal.errors import TableError

ENDS = ("overvalued", "undervalued")
"""By models, as people see it."""


def human_correlation(
    rewards: pd.DataFrame, elo: pd.Series, *, replicates: int = 1000, confidence: float = 0.95, seed: int = 0
) -> pd.DataFrame:
    """Rank correlation of each model's rewards with the human scores.

    Ties take mid-ranks (Spearman) and are corrected for (Kendall's tau-b). The intervals are item bootstraps of
    the linearised statistics; all models see the same items, so differences between models are surer than
    overlapping intervals suggest. The human scores' own error is not in them: it lowers all correlations alike
    (see `elo.reliability`).

    Args:
        rewards: items × models.
        elo: human score per item, higher is better, indexed by the same items.
        replicates: bootstrap draws of items.
        confidence: of both intervals.
        seed: of the draws.

    Returns:
        One row per model: model, n, spearman, kendall, low, high (both of Spearman's rho), kendall_low,
        kendall_high.

    Raises:
        TableError: see `checks.check_rewards`; or the items differ, or the human scores do not vary.

    Source: Christian et al. 2025, Figure 5A.
    """
    check_rewards(rewards)
    check_varied(rewards)
    people = align(rewards, elo, left_name="the rewards", right_name="the human scores").astype(float)
    check_rewards(people.to_frame("human scores"))
    check_varied(people.to_frame("human scores"))
    human = ranked(people.to_numpy())
    ranks = [ranked(rewards[model].to_numpy()) for model in rewards]
    rhos = [influence.spearman(model, human) for model in ranks]
    taus = [influence.kendall(model, human) for model in ranks]
    estimates = np.array([statistic.estimate for statistic in rhos + taus])
    influences = np.stack([statistic.influence for statistic in rhos + taus], axis=1)  # (n, 2 · models)
    low, high = intervals(estimates, influences, replicates=replicates, confidence=confidence, seed=seed)
    rho, tau = slice(None, len(rhos)), slice(len(rhos), None)
    return pd.DataFrame(
        {
            "model": list(rewards),
            "n": len(rewards),
            "spearman": estimates[rho],
            "kendall": estimates[tau],
            "low": low[rho],
            "high": high[rho],
            "kendall_low": low[tau],
            "kendall_high": high[tau],
        }
    )


def corrected_for_error(correlation: pd.DataFrame, reliability: float) -> pd.DataFrame:
    """Spearman's rho as it would be with people's true order in place of their scores, if these are so reliable.

    Rho and both ends of its interval over the root of the reliability (Spearman's correction for attenuation). The
    interval is conditional on the reliability: the items are resampled, and the reliability is taken as known. As
    `elo.reliability` is an upper bound, all three lie too near to 0 rather than too far. Nothing is cut off at ±1:
    what lies beyond says that the scores are more reliable than that.

    Args:
        correlation: of `human_correlation`.
        reliability: share of the variance of the human scores that is not error.

    Returns:
        `correlation` with reliability_at_most, spearman_corrected, spearman_corrected_low, spearman_corrected_high.

    Raises:
        TableError: the reliability is not in (0, 1].

    Source: Spearman 1904, "The proof and measurement of association between two things".
    """
    if not 0 < reliability <= 1:
        raise TableError(
            f"reliability={reliability} is no share of a variance; give that of `elo.reliability`, above 0 and at most 1."
        )
    known = {
        "spearman_corrected": "spearman",
        "spearman_corrected_low": "low",
        "spearman_corrected_high": "high",
    }
    return correlation.assign(
        reliability_at_most=reliability,
        **{name: correlation[column] / reliability**0.5 for name, column in known.items()},
    )


def rank_difference(
    rewards: pd.DataFrame,
    elo: pd.Series,
    *,
    matches: pd.Series | None = None,
    draws: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    paper: bool = False,
) -> pd.DataFrame:
    """Where models and people part: each item's median rank over the models less its human rank.

    Rank 1 is the highest; ties share their average rank. The people are not among the raters averaged. The median
    of several raters shrinks towards the middle, so an item that people rank first or last can hardly show a
    difference of zero; the medians ranked once more (`consensus_rank`) are spread as evenly as people's ranks are,
    and their difference is free of that. What neither is free of: where models and people agree imperfectly, the
    items that one of them ranks highest come lower with the other. Published was the median over the models *and*
    the people (`difference_published`), which pulls every difference towards zero; `paper` makes it the main one.

    Three intervals, each of one item at a time:

    * people: the models as they are, the human rank as uncertain as its matches leave it *at least* (see `elo`);
    * models: the people as they are, the models a sample of a population whose median is asked for. Order
      statistics give it without any assumption on the ranks (the sign test turned round), for 6 models or more at
      95 %. Models of one base or developer are not independent, and the interval does not know it;
    * low, high: both. Half widths are joined as independent errors are, each side on its own.

    Args:
        rewards: items × models.
        elo: human score per item, higher is better, indexed by the same items.
        matches: number of matches behind each score; without it there are no intervals of people.
        draws: behind the people's intervals.
        confidence: of all intervals.
        seed: of the draws.
        paper: count the people among the raters, as published; there are no intervals then.

    Returns:
        One row per item, in the order of `rewards`: name, human_rank, model_rank (median), difference (model −
        human: negative where models rank the item higher than people do), low, high, people_low, people_high,
        models_low, models_high (NaN where there is no such interval), consensus_rank, consensus_difference,
        difference_published, matches (NaN where not given), n_models.

    Raises:
        TableError: see `checks.check_rewards` and `elo.rank_intervals`; or the items differ.

    Source: Christian et al. 2025, Figure 5B; Conover 1999, section 3.2, for the median; Zou & Donner 2008 for
    joining intervals.
    """
    check_rewards(rewards)
    people = align(rewards, elo, left_name="the rewards", right_name="the human scores").astype(float)
    check_rewards(people.to_frame("human scores"))
    human = rankdata(-people.to_numpy())
    raters = np.sort(
        rankdata(-rewards.to_numpy(), axis=0), axis=1
    )  # (items, models), each item's ranks ascending
    median = np.median(raters, axis=1)
    published = np.median(np.column_stack([raters, human]), axis=1)
    consensus = rankdata(median)
    model = published if paper else median
    table = pd.DataFrame({"human_rank": human, "model_rank": model, "difference": model - human})

    nothing = np.full(len(human), np.nan)
    human_low = human_high = model_low = model_high = played = nothing
    if matches is not None:
        played = align(rewards, matches, left_name="the rewards", right_name="the match counts").to_numpy()
    if matches is not None and not paper:
        counts = pd.Series(played, index=people.index)
        likely = rank_intervals(people, counts, draws=draws, confidence=confidence, seed=seed)
        human_low, human_high = likely["low"].to_numpy(), likely["high"].to_numpy()
    if not paper:
        model_low, model_high = _median_interval(raters, confidence=confidence)
    table["low"] = table["difference"] - np.hypot(model - model_low, human_high - human)
    table["high"] = table["difference"] + np.hypot(model_high - model, human - human_low)
    table["people_low"], table["people_high"] = model - human_high, model - human_low
    table["models_low"], table["models_high"] = model_low - human, model_high - human
    table["consensus_rank"], table["consensus_difference"] = consensus, consensus - human
    table["difference_published"] = published - human
    table["matches"] = played
    table["n_models"] = rewards.shape[1]
    # The index as it is: a list of its items would become Arrow strings, which cannot hold a lone surrogate.
    table.insert(0, "name", rewards.index)
    return table


def most_valued(difference: pd.DataFrame, *, k: int = 20) -> pd.DataFrame:
    """The items that models overvalue most, as people see it, and those they undervalue most.

    Only items whose difference is surely not zero: its interval, of people and models both (of one of them where
    the other has none), leaves out zero, and the difference of consensus ranks has the same sign. The intervals
    are of one item at a time and the items are picked for being far out, so their differences are more likely too
    large than too small.

    Args:
        difference: of `rank_difference`.
        k: items at each end; fewer where fewer are sure.

    Returns:
        The rows with, in front: end (`overvalued`, `undervalued`), rank (1 = the farthest); overvalued ones first.
        Equal differences keep the order of the rows.

    Raises:
        TableError: `difference` is not the table of `rank_difference`.
    """
    needed = ["difference", "low", "people_low", "models_low", "consensus_difference"]
    if missing := [name for name in needed if name not in difference]:
        raise TableError(
            f"The table of differences lacks {', '.join(missing)}; give that of `rank_difference(rewards, elo)`."
        )
    low, high = surest_interval(difference)
    same_side = difference["difference"] * difference["consensus_difference"] > 0
    sure = difference[same_side & ~((low <= 0) & (high >= 0))].sort_values("difference", kind="stable")
    over = sure[sure["difference"] < 0].head(k)
    under = sure[sure["difference"] > 0].sort_values("difference", ascending=False, kind="stable").head(k)
    ends = pd.concat([over, under])
    ends.insert(0, "end", [ENDS[0]] * len(over) + [ENDS[1]] * len(under))
    ends.insert(1, "rank", [*range(1, len(over) + 1), *range(1, len(under) + 1)])
    return ends.reset_index(drop=True)


def surest_interval(difference: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Of each item the interval with the most in it: of people and models, else of people, else of models."""
    low = difference["low"].fillna(difference["people_low"]).fillna(difference["models_low"])
    high = difference["high"].fillna(difference["people_high"]).fillna(difference["models_high"])
    return low, high


def _median_interval(ascending: np.ndarray, *, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """Exact interval of the median of a population from each row's sorted sample (items, models); NaN if too few.

    The k-th value from either end, with the largest k for which both ends together miss the median with a chance
    of at most 1 − confidence: 2 · P(Binomial(models, ½) < k).
    """
    models = ascending.shape[1]
    k = int(binom.ppf((1 - confidence) / 2, models, 0.5))
    # ppf gives the least k with P(≤ k) ≥ tail, so P(< k) < tail; where P(≤ k) equals the tail, one more will do.
    k += bool(binom.cdf(k, models, 0.5) <= (1 - confidence) / 2)
    if k < 1:
        nothing = np.full(len(ascending), np.nan)
        return nothing, nothing
    return ascending[:, k - 1], ascending[:, models - k]
