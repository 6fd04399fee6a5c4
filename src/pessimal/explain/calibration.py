"""Is the instrument right? Whether planted tastes come out on top, and whether a placebo flips no more than it should.

Knows the table of outcomes and what was planted in which model. Does not know how models are planted.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from pessimal.errors import TableError
from pessimal.explain.attribute import PLACEBO
from pessimal.explain.flip_rate import USED, sums, valid_rows
from pessimal.explain.metrics import check_resampling, cluster_index, draws, percentiles
from pessimal.explain.outcomes import COUNTERFACTUAL, as_table, check_outcomes, groups
from pessimal.explain.slopes import drawn_slopes

POOLED = "all"
RETURNED = ["perturber", "model", "planted", "auc", "low", "high", "others", "comparisons", "reason"]
NULL = ["model", "perturber", "n", "comparisons", "counterfactuals", "flip_rate", "expected", "null_low"]
NULL += ["null_high", "p", "within"]


Sizes = Callable[[pd.DataFrame, Sequence[str], np.ndarray], tuple[list[str], np.ndarray, np.ndarray]]
"""From one model's rows, comparisons, and how often each is drawn (replicates, comparisons): the attributes, a number each
(k,), and those of the draws (replicates, k)."""


def mean_changes(
    rows: pd.DataFrame, clusters: Sequence[str], weights: np.ndarray
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Mean Δm of the edits along each attribute, in standard deviations of the reward, as they come."""
    rows = rows[rows["attribute"] != PLACEBO]
    names = list(dict.fromkeys(rows["attribute"]))
    found = sums(rows, clusters, names)
    return names, found.of(found.change), found.replicated(found.change, weights)


def held_slopes(
    rows: pd.DataFrame, clusters: Sequence[str], weights: np.ndarray
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The slope of an attribute with all others held still; see `slopes.slopes`."""
    return drawn_slopes(valid_rows(rows), clusters, weights)


def recovery(
    table: pd.DataFrame,
    planted: Mapping[str, str],
    *,
    by: Sizes = mean_changes,
    replicates: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """AUC of finding the planted attribute of each model: the share of its other attributes of smaller size.

    Ties count half. 1: the planted one moves the model most; .5: no better than chance. The row `all` pools the pairs
    (planted, other) of all models; attributes are compared within a model only. Other attributes that go with the planted
    one (informativeness with length) are counted as others all the same. Attributes without a valid perturbation are left
    out; the placebo is none.

    The intervals are percentile bootstraps over comparisons: the model's own, and for `all` those of any of its models, drawn
    for all models together. They say how far other comparisons would move the number; nothing about other plants or
    attributes, and with few of these an AUC of 1 in all draws has no width.

    Args:
        table: of outcomes; models that are not in `planted` are left out.
        planted: the attribute planted in each model.
        by: what is compared: `mean_changes` of the edits that were asked for, or `held_slopes`, which hold all other attributes
            still (the table then needs what the detectors saw move).
        replicates: bootstrap draws of comparisons.
        confidence: of the intervals.
        seed: of the draws; every row starts from it anew.

    Returns:
        One row per perturber and planted model asked about with it, and one, `all`, of them together: perturber, model, planted (missing for
        `all`), auc, low, high (NaN for fewer than two comparisons), others (pairs behind the AUC), comparisons, reason (what
        is missing, of `all` for which models; empty otherwise).

    Raises:
        TableError: a planted model that the table lacks, or one named `all`; nothing planted; a column is missing, a
            perturbation is there twice, or no such bootstrap.
    """
    check_outcomes(table, columns=USED)
    check_resampling(replicates=replicates, confidence=confidence)
    known = set(table["model"])
    if not planted or POOLED in planted or not set(planted) <= known:
        raise TableError(
            f"Recovery needs models with something planted, none of them named {POOLED!r}, all in the table; given were "
            f"{', '.join(map(str, planted)) or 'none'}, and the table has {', '.join(sorted(map(str, known)))}."
        )
    rows = []
    is_planted = np.array([model in planted for model in table["model"]], dtype=bool)
    for (perturber,), made in groups(table[(table["attribute"] != PLACEBO) & is_planted], ["perturber"]):
        of_models = {model: own for (model,), own in groups(made, ["model"])}
        for name, models in [
            *((model, {model: own}) for model, own in of_models.items()),
            (POOLED, of_models),
        ]:
            row = _recovered(models, planted, by, replicates=replicates, confidence=confidence, seed=seed)
            rows.append(
                {
                    "perturber": perturber,
                    "model": name,
                    "planted": None if name == POOLED else planted[name],
                    **row,
                }
            )
    return as_table(rows, RETURNED)


def placebo_null(table: pd.DataFrame, tie: Mapping[str, float], *, confidence: float = 0.95) -> pd.DataFrame:
    """Whether the placebo flips no more of a model's preferences than undirected noise of the same size would.

    Null: an edit that keeps the meaning moves the margin by noise that has no direction, so with every comparison's Δm (all
    of its placebo rows together) turned round it would have been seen as often. A comparison then gives either the flips it
    gave, or those that m − Δm < −tie gives, with equal chance, and the number of flips is a sum of such independent numbers:
    its distribution is computed exactly, by convolution. No binomial null is used, as nobody knows the chance of one flip by
    noise: it depends on each margin. The null interval leaves at most half of 1 − `confidence` on either side.

    Beyond the interval does not mean that the placebo changes the meaning. The chosen response was chosen for its reward,
    wording included, so other words lower it on average (regression to the mean); long edits, or a taste for certain words,
    do the same. It means that this flip rate, not 0 and not the null's, is what attributes have to exceed, which is what the
    tests in `flip_rate` ask. Within it on few comparisons says little: the interval shows what could be distinguished.

    Args:
        table: of outcomes, with placebo rows.
        tie: of each model, as in `outcomes`, in reward.
        confidence: of the null interval.

    Returns:
        One row per model and perturber of the placebo: model, perturber, n (valid placebo edits), comparisons,
        counterfactuals, flip_rate, expected (mean of the null), null_low, null_high, p (two-sided, twice the smaller tail),
        within (bool). Empty where there is no valid placebo edit.

    Raises:
        TableError: a column is missing, a perturbation is there twice, a model has no tie, or its ties are not those of the
            table; a confidence outside (0, 1).
    """
    check_outcomes(table, columns=[*USED, "margin", "new_margin", "change"])
    check_resampling(replicates=1000, confidence=confidence)
    rows = []
    valid = valid_rows(table[table["attribute"] == PLACEBO])
    for (model, perturber), own in groups(valid, ["model", "perturber"]):
        if model not in tie:
            raise TableError(f"No tie is given for {model}; give the numerical noise of its rewards.")
        seen = (own["outcome"] == COUNTERFACTUAL).to_numpy()
        if not np.array_equal(own["new_margin"].to_numpy() < -tie[model], seen):
            raise TableError(
                f"The outcomes of {model} were not made with tie={tie[model]}; give the one that was used."
            )
        turned = (own["margin"] - own["change"] < -tie[model]).to_numpy()
        clusters = sorted(set(own["comparison"]))
        index = cluster_index(own["comparison"], clusters)
        as_seen = np.bincount(index, weights=seen).astype(int)
        as_turned = np.bincount(index, weights=turned).astype(int)
        chances = flips_by_chance(as_seen, as_turned)
        below = np.cumsum(chances)  # P(K ≤ k)
        above = np.cumsum(chances[::-1])[::-1]  # P(K ≥ k)
        tail = (1 - confidence) / 2 + 1e-12
        low = int(np.flatnonzero(below > tail)[0])
        high = int(np.flatnonzero(above > tail)[-1])
        n, flips = len(own), int(seen.sum())
        rows.append(
            {
                "model": model,
                "perturber": perturber,
                "n": n,
                "comparisons": len(clusters),
                "counterfactuals": flips,
                "flip_rate": flips / n,
                "expected": float((as_seen.sum() + as_turned.sum()) / 2 / n),
                "null_low": low / n,
                "null_high": high / n,
                "p": float(min(1.0, 2 * min(below[flips], above[flips]))),
                "within": low <= flips <= high,
            }
        )
    return as_table(rows, NULL)


def flips_by_chance(as_seen: np.ndarray, as_turned: np.ndarray) -> np.ndarray:
    """Distribution of the number of flips if each cluster (clusters,) gives one or the other number with equal chance.

    Returns:
        (most + 1,): the chance of 0, 1, … flips.
    """
    chances = np.ones(1)
    for one, other in zip(as_seen.tolist(), as_turned.tolist(), strict=True):
        step = np.zeros(max(one, other) + 1)
        step[one] += 0.5
        step[other] += 0.5
        chances = np.convolve(chances, step)
    return chances


def _recovered(
    models: Mapping[str, pd.DataFrame],
    planted: Mapping[str, str],
    by: Sizes,
    *,
    replicates: int,
    confidence: float,
    seed: int,
) -> dict[str, float | int | str]:
    """AUC of some models together, with its interval."""
    clusters = sorted(set().union(*(own["comparison"] for own in models.values())))
    weights = draws(len(clusters), replicates=replicates, seed=seed)
    estimated, drawn, missing = [], [], []
    for model, own in models.items():
        names, sizes, replicas = by(own, clusters, weights)
        index = names.index(planted[model]) if planted[model] in names else None
        if index is None or np.isnan(sizes[index]):
            missing.append(f"{planted[model]} has no valid perturbation in {model}")
            continue
        estimated.append(wins(sizes[None], index))
        drawn.append(wins(replicas, index))
    (auc,), others = _shares(estimated, 1)
    if not missing and not others[0]:
        missing.append("there is no other attribute")
    low, high = np.nan, np.nan
    if len(clusters) > 1:
        low, high = percentiles(_shares(drawn, replicates)[0], confidence=confidence)
    return {
        "auc": float(auc),
        "low": low,
        "high": high,
        "others": int(others[0]),
        "comparisons": len(clusters),
        "reason": "; ".join(missing),
    }


def wins(changes: np.ndarray, index: int) -> tuple[np.ndarray, np.ndarray]:
    """How many attributes have a smaller |change| than the one at `index` (ties half), and of how many.

    Args:
        changes: (rows, attributes), NaN where there is none.

    Returns:
        (rows,) each; both 0 where the one at `index` is NaN.
    """
    sizes = np.abs(changes)
    own = sizes[:, [index]]
    others = np.delete(sizes, index, axis=1)
    won = (others < own).sum(axis=1) + (others == own).sum(axis=1) / 2
    return won, (~np.isnan(others) & ~np.isnan(own)).sum(axis=1)


def _shares(counted: list[tuple[np.ndarray, np.ndarray]], rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Wins over pairs, (rows,), NaN without a pair; and the pairs."""
    won = sum((won for won, _ in counted), np.zeros(rows))
    pairs = sum((pairs for _, pairs in counted), np.zeros(rows))
    return np.divide(won, pairs, out=np.full(rows, np.nan), where=pairs > 0), pairs
