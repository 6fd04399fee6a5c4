"""Does a reward rank the better of two answers first? Accuracy on labelled pairs, by category; the
models' differences, the agreement of their margins, and the slope of margins on length.

Pure functions over a frame of scored pairs (`COLUMNS`). Pairs that share an answer are not
independent: every interval is over clusters of them.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analyses.nulls import (
    Dependence,
    cluster_mean,
    interval,
    intervals,
    robust,
    share_interval,
)
from pessimal.analyses.ranks import rank_correlation, ranked, spearman
from pessimal.errors import TableError
from pessimal.plots import Forest, Heatmap
from pessimal.tables.result import Effect, Result
from pessimal.texts import signed

COLUMNS = ("model", "key", "cluster", "category", "preferred", "first", "second")
"""Columns of a frame of scored pairs, one row per model and pair: name and cluster of the
pair, its category, the number of the better answer (0 or 1), and the rewards of both answers."""
LENGTHS = ("first_length", "second_length")
"""Columns with the characters of both answers; a frame without them has no slopes on length."""
ALL = "all"
"""Category of the rows on all pairs."""
DIFFERENCE = Effect(
    "difference", "difference of accuracy", "low", "high", "p_corrected", null=0.0, of="pairs"
)


def better_margins(pairs: pd.DataFrame) -> pd.Series:
    """Reward of the better answer of each pair minus that of the worse one."""
    return (pairs["first"] - pairs["second"]) * np.where(pairs["preferred"].eq(0), 1.0, -1.0)


def accuracies(pairs: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Share of pairs in which each model ranks the better answer first, over all pairs and by
    category.

    Returns:
        One row per model and category, `ALL` first: accuracy (a tie is no win) with low and high;
        ties, and fair_high, the upper end where a tie counts one half; margin, the mean reward of
        the better answer less the worse, and step, the same in standard deviations; n, clusters.
        The intervals of a model's categories hold for all of them at once (Bonferroni).

    Raises:
        TableError: no pair has a label and two finite rewards.
    """
    scored = _is_scored(pairs)
    if not scored.any():
        raise TableError(
            "no pair has a label and two rewards; a row has prompt, chosen and rejected, or "
            "prompt, responses and preferred"
        )
    rows = []
    for model, scores in pairs[scored].groupby("model", sort=False):
        spread = float(scores[["first", "second"]].to_numpy(dtype=float).std(ddof=1))
        categories = list(scores.groupby("category", sort=False))
        parts = [(ALL, scores, confidence)]
        if len(categories) > 1:
            several = 1 - (1 - confidence) / len(categories)
            parts += [(str(name), part, several) for name, part in categories]
        for category, part, level in parts:
            margins, clusters = better_margins(part).to_numpy(float), part["cluster"].to_numpy()
            accuracy, low, high = share_interval(margins > 0, clusters, level)
            fair = share_interval(np.sign(margins) / 2 + 0.5, clusters, level)
            margin = float(margins.mean())
            row = {"model": model, "category": category, "accuracy": accuracy, "low": low}
            row |= {"high": high, "ties": int((margins == 0).sum()), "fair_high": fair[2]}
            row |= {"margin": margin, "step": margin / spread if spread > 0 else 0.0}
            rows.append(row | {"n": len(part), "clusters": len(set(clusters))})
    return pd.DataFrame(rows)


def differences(pairs: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Differences of accuracy between two models on the pairs that both were asked.

    Returns:
        One row per two models: model_a, model_b, difference (of a over b) with low and high, p of
        no difference, p_corrected (Holm over all pairs of models), n, clusters.
    """
    rows = []
    for left, right in _shared_pairs(pairs):
        apart = (better_margins(left) > 0).to_numpy(float) - (better_margins(right) > 0)
        mean, error, freedom = cluster_mean(apart, left["cluster"].to_numpy())
        reach = stats.t.ppf((1 + confidence) / 2, freedom) * error if freedom else np.nan
        p = 2 * stats.t.sf(abs(mean) / error, freedom) if freedom and error > 0 else 1.0
        names = {"model_a": left["model"].iloc[0], "model_b": right["model"].iloc[0]}
        row = names | {"difference": mean, "low": mean - reach, "high": mean + reach, "p": p}
        rows.append(row | {"n": len(left), "clusters": left["cluster"].nunique()})
    table = pd.DataFrame(rows)
    return DIFFERENCE.correct(table) if len(table) else table


def margin_agreement(pairs: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Spearman's correlation of two models' margins, first answer over second as the file has them.

    Raw rewards of answers to many questions mix what a question is worth with which of its answers
    is better, and are never correlated.

    Returns:
        One row per two models: model_a, model_b, rho with low and high, n, clusters. The interval
        is over clusters (`nulls.intervals`); of fewer than `nulls.LEAST` there is none.
    """
    rows = []
    for left, right in _shared_pairs(pairs):
        margins = [(side["first"] - side["second"]).to_numpy(dtype=float) for side in (left, right)]
        rho, low, high = rank_correlation(*margins), np.nan, np.nan
        if np.isfinite(rho):
            statistic, clusters = spearman(*map(ranked, margins)), left["cluster"].to_numpy()
            dependent = Dependence.from_clusters(clusters)
            _, (low,), (high,) = intervals([statistic], dependent, confidence=confidence)
        names = {"model_a": left["model"].iloc[0], "model_b": right["model"].iloc[0]}
        counts = {"n": len(left), "clusters": left["cluster"].nunique()}
        rows.append(names | {"rho": rho, "low": low, "high": high} | counts)
    return pd.DataFrame(rows)


def length_slopes(pairs: pd.DataFrame, *, confidence: float = 0.95) -> pd.DataFrame:
    """Slope of a model's margins on the logarithm of the ratio of the answers' lengths.

    Returns:
        One row per model: slope (root mean squares of the margins for an answer that is twice as
        long) with low and high, intercept (the margin of the better answer at equal lengths, in the
        same unit), n, clusters. The errors are over clusters (`nulls.robust`). A model with too few
        clusters for an error has no row.
    """
    rows = []
    for model, scores in pairs.groupby("model", sort=False):
        scores = scores[_is_scored(scores) & (scores[list(LENGTHS)] > 0).all(axis=1)]
        sign = np.where(scores["preferred"].eq(0), 1.0, -1.0)
        lengths = scores[list(LENGTHS)].to_numpy(dtype=float)
        ratio = sign * np.log2(lengths[:, 0] / lengths[:, 1])
        margin = better_margins(scores).to_numpy(dtype=float)
        scale = float(np.sqrt(np.mean(margin**2))) if len(margin) else 0.0
        if len(margin) < 3 or not scale > 0 or not np.ptp(ratio) > 0:
            continue
        design = np.column_stack([np.ones_like(ratio), ratio])
        clusters = pd.factorize(scores["cluster"])[0]
        try:
            fit = robust(design, (margin / scale)[:, None], clusters)
        except TableError:  # too few clusters for an error
            continue
        intercept, slope = fit.coefficients[:, 0]
        low, high, _ = interval(slope, fit.errors[1, 0], fit.freedom, confidence=confidence)
        row = {"model": model, "slope": slope, "low": low, "high": high, "intercept": intercept}
        rows.append(row | {"n": len(scores), "clusters": int(clusters.max()) + 1})
    return pd.DataFrame(rows)


def preference_results(
    pairs: pd.DataFrame, *, source: str = "", confidence: float = 0.95
) -> list[Result]:
    """Results `preferences` (accuracy by category), `preference_differences` and `margin_agreement`
    where there are two models, and `margin_length` where the lengths are known; the most accurate
    model first.

    Args:
        source: what the pairs are, for the notes.

    Raises:
        TableError: no pair has a label and two finite rewards.
    """
    table = accuracies(pairs, confidence=confidence)
    order = table[table["category"] == ALL].sort_values("accuracy", ascending=False, kind="stable")
    places = {model: place for place, model in enumerate(order["model"])}
    pairs, table = (
        frame.sort_values("model", key=lambda names: names.map(places), kind="stable")
        for frame in (pairs, table.reset_index(drop=True))
    )
    whole = table[table["category"] == ALL]
    best, worst = whole.iloc[0], whole.iloc[-1]
    label = "share of pairs ranked as labelled"
    effect = Effect("accuracy", label, "low", "high", null=0.5, of="pairs")
    headline = f"{best['model']} scores the better answer higher in {best['accuracy']:.0%}"
    headline += f" of {best['n']:,} pairs"
    headline += "." if len(whole) < 2 else f", {worst['model']} in {worst['accuracy']:.0%}."
    plot = Forest.of(effect, row="category", tabs=(), group="model", xlabel=label)
    notes = tuple(filter(None, (source and f"The pairs are {source}.", _left_out(pairs))))
    about: dict[str, Any] = {"method": "preferences"}
    results = [
        Result.of_row(best, "preferences", table, effect, headline, plot=plot, notes=notes, **about)
    ]
    apart = differences(pairs, confidence=confidence)
    if len(apart):
        row = apart.loc[apart["difference"].abs().idxmax()]
        better, other = ("model_a", "model_b") if row["difference"] >= 0 else ("model_b", "model_a")
        headline = f"{row[better]} is right on {abs(row['difference']) * row['n']:,.0f} more of "
        headline += f"{row['n']:,} pairs than {row[other]}."
        results.append(
            Result.of_row(row, "preference_differences", apart, DIFFERENCE, headline, **about)
        )
        rhos = margin_agreement(pairs, confidence=confidence)
        if rhos["rho"].notna().any():
            row, label = rhos.loc[rhos["rho"].idxmax()], "Spearman's correlation of margins"
            effect = Effect("rho", label, "low", "high", null=0.0, of="pairs")
            headline = f"The margins of {row['model_a']} and {row['model_b']} agree most: ρ = "
            headline += f"{signed(row['rho'])}."
            matrix = Heatmap(value="rho", tabs=(), symmetric=True, diverging=True, label=label)
            results.append(
                Result.of_row(
                    row, "margin_agreement", rhos, effect, headline, plot=matrix, share=0.5, **about
                )
            )
    slopes = length_slopes(pairs, confidence=confidence) if {*LENGTHS} <= {*pairs} else apart[:0]
    if len(slopes):
        row, label = slopes.loc[slopes["slope"].abs().idxmax()], "margin for twice the length"
        effect = Effect("slope", label, "low", "high", null=0.0, of="pairs")
        headline = f"Twice the length changes {row['model']}'s margin by "
        headline += f"{signed(row['slope'], '+.2f')} of its usual size."
        forest = Forest.of(effect, tabs=(), xlabel=label)
        results.append(
            Result.of_row(
                row, "margin_length", slopes, effect, headline, plot=forest, share=0.5, **about
            )
        )
    heaviest = results[0].weight  # accuracy itself comes before what is read beside it
    return [replace(result, weight=min(result.weight, heaviest)) for result in results]


def _left_out(pairs: pd.DataFrame) -> str:
    """Number of pairs that have no label or no reward; empty where all have."""
    unlabelled = int(pairs.drop_duplicates("key")["preferred"].isna().sum())
    silent = int(pairs[["first", "second"]].isna().any(axis=1).sum())
    counts = {"pairs without a label": unlabelled, "rewards that are missing": silent}
    parts = [f"{n:,} {description}" for description, n in counts.items() if n]
    return f"Left out: {', '.join(parts)}." if parts else ""


def _shared_pairs(pairs: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Every two models' rows on the labelled pairs that both scored, in the same order."""
    scored = pairs[_is_scored(pairs)]
    by_model = [scores.set_index("key") for _, scores in scored.groupby("model", sort=False)]
    for left, right in combinations(by_model, 2):
        if len(keys := left.index.intersection(right.index, sort=False)):
            yield left.loc[keys].reset_index(), right.loc[keys].reset_index()


def _is_scored(pairs: pd.DataFrame) -> pd.Series:
    """Whether a pair has a label and both rewards."""
    return pairs[["first", "second"]].notna().all(axis=1) & pairs["preferred"].isin((0, 1))
