"""Agreement of models on what is good: rank statistics of every pair, rank-biased overlap, and the
noise floor.

Ties: overlaps take tied items in every order at once. An item of a group of equals that spans ranks
t to b counts (d − t + 1) / (b − t + 1) at a depth d inside it, the share of orders that have it so
high. Sorting ties one way or the other, as published, moves the result by chance.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import (
    Needs,
    Options,
    align,
    analysis,
    check_rewards,
    check_varied,
    map_prompts,
    quoted,
)
from pessimal.analyses.nulls import Dependence
from pessimal.analyses.ranks import dependence, rank_correlations, ranked, spearman
from pessimal.errors import TableError
from pessimal.plots import Heatmap
from pessimal.tables import ScoreTable
from pessimal.tables.result import Effect, Result
from pessimal.tables.table_set import TableSet

TAUS = Heatmap(value="kendall", symmetric=True, order=True, label="Kendall's τ-b")
RBO_PERSISTENCE = 0.9
RBO_DEPTH = 132
"""Both as published."""
TOP = 20
ENDS = ["rbo", "top_overlap", "bottom_overlap"]
"""Columns that only look at the ends of two rankings."""
STATISTICS = ["kendall", "low", "high", "spearman", "rbo", "top", *ENDS[1:]]


def agreement(
    rewards: pd.DataFrame,
    *,
    dependent: Dependence | None = None,
    persistence: float = RBO_PERSISTENCE,
    depth: int = RBO_DEPTH,
    top: int = TOP,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Kendall's tau-b, Spearman's rho, rank-biased overlap and the shared ends of every pair of
    models.

    Ties: tau-b corrects for them, rho takes mid-ranks, overlaps are means over all orders of ties.
    Each row counts as one item. The intervals (see `nulls.intervals`) are over clusters of
    `dependent` items, or over items where it is None: they say how far another draw of as many
    would move the number. Overlaps rest on
    the few items at one end, of which a vocabulary holds no other draw: they have no interval, and
    are to be read beside those of a model with its own rescan (see `noise_floor`).

    Args:
        rewards: items × models, float, none missing.
        dependent: which items are not independent.
        confidence: of the intervals.
        persistence, depth: of rank-biased overlap; the depth in ranks.
        top: k, items at each end.

    Returns:
        One row per unordered pair, in the order of the columns: model_a, model_b, n (items),
            kendall, low,
        high (of Kendall's tau), spearman, spearman_low, spearman_high, rbo (not extrapolated, as
        published), top (k, less where there are fewer items), top_overlap,
        bottom_overlap (shares of k).

    Raises:
        TableError: fewer than two models or three items, a missing reward, a model with one reward
            for all, or a persistence or depth of which there is no overlap.

    Source: Christian et al. 2025, Figures 2A and A1.
    """
    check_rewards(rewards, least_models=2)
    check_varied(rewards)
    if not 0 < persistence < 1 or depth < 1 or top < 1:
        raise TableError(
            "Rank-biased overlap needs a persistence between 0 and 1, and depths of at least 1; "
            f"given were persistence={persistence}, depth={depth}, top={top}"
        )
    columns = {model: rewards[model].to_numpy() for model in rewards}
    top = min(top, len(rewards))
    ranks = {model: ranked(values) for model, values in columns.items()}
    begun = {model: head(values, depth=depth) for model, values in columns.items()}
    best = {model: head(values, depth=top) for model, values in columns.items()}
    worst = {model: head(-values, depth=top) for model, values in columns.items()}
    pairs = list(combinations(columns, 2))
    correlations = rank_correlations(
        ranks, pairs, dependent, measures=[spearman], confidence=confidence
    )
    table = pd.DataFrame(pairs, columns=["model_a", "model_b"])
    table = table.assign(n=len(rewards), **correlations)
    table["rbo"] = [
        rank_biased_overlap(begun[a], begun[b], persistence=persistence) for a, b in pairs
    ]
    table["top"] = top
    for name, ends in (("top_overlap", best), ("bottom_overlap", worst)):
        table[name] = [top_overlap(ends[a], ends[b], k=top) for a, b in pairs]
    return table


def as_matrix(agreement: pd.DataFrame, value: str) -> pd.DataFrame:
    """One column of `agreement` as a symmetric model × model matrix with a unit diagonal."""
    models = list(dict.fromkeys([*agreement["model_a"], *agreement["model_b"]]))
    matrix = pd.DataFrame(np.eye(len(models)), index=models, columns=models)
    for a, b, number in agreement[["model_a", "model_b", value]].itertuples(index=False):
        matrix.loc[a, b] = matrix.loc[b, a] = number
    return matrix


def tau_matrix(tables: TableSet, prompt: str) -> pd.DataFrame:
    """Kendall's tau-b of every two models, model × model; computed once for all analyses.

    Raises:
        TableError: see `agreement`.
    """
    if ("tau", prompt) not in tables.memo:
        tables.memo["tau", prompt] = as_matrix(agreement(tables.matrix(prompt)), "kendall")
    return tables.memo["tau", prompt]


def noise_floor(rewards: pd.Series, rescans: Mapping[str, pd.Series], **numbers) -> pd.DataFrame:
    """Agreement of one model with itself, between the scan that stands for it and each other scan
    of the same.

    Args:
        rewards: index = candidate_id.
        rescans: rewards of the same candidates, by how the rescan differs from the first
            (`bfloat16`).
        numbers: of `agreement`.

    Returns:
        One row per rescan: rescan, n, kendall, low, high, spearman, rbo, top, top_overlap,
        bottom_overlap (all as in `agreement`), largest_difference (of two rewards of one
        candidate, in units of reward).

    Raises:
        TableError: other candidates in a rescan, a missing reward, or one reward for all.
    """
    rows = []
    for name, rescan in rescans.items():
        again = align(rewards, rescan, left_name="the scan", right_name=f"its rescan {name!r}")
        pair = pd.DataFrame({"scan": rewards.astype(float), "rescan": again.astype(float)})
        statistics = agreement(pair, **numbers).iloc[0][STATISTICS]
        largest = float((pair["scan"] - pair["rescan"]).abs().max())
        rows.append({"rescan": name, "n": len(pair), **statistics, "largest_difference": largest})
    return pd.DataFrame(rows)


class Head(NamedTuple):
    """The beginning of one ranking: groups of equals, best first, as far as they begin within the
    depth."""

    group: np.ndarray
    """(n,) int32: the item's group; −1 where its group begins below the depth."""
    counted: np.ndarray
    """Share by which an item of each group counts at each depth 1 … D, (groups, D)."""
    itself: np.ndarray
    """Number of items that the ranking shares with itself at each depth, (D,): the depth, less
    where ties leave it open."""


def head(values: np.ndarray, *, depth: int) -> Head:
    """The `depth` highest of values (n,), ties whole; a depth beyond n is n."""
    n = len(values)
    depth = min(depth, n)
    threshold = np.partition(values, n - depth)[n - depth]
    items = np.flatnonzero(values >= threshold)
    _, inverse, size = np.unique(-values[items], return_inverse=True, return_counts=True)
    group = np.full(n, -1, dtype=np.int32)
    group[items] = inverse
    # Rank, counted from 0, at which the group begins; the last may reach beyond the depth.
    first = np.cumsum(size) - size
    counted = np.clip((np.arange(1, depth + 1) - first[:, None]) / size[:, None], 0, 1)
    return Head(group, counted, np.sum(size[:, None] * counted**2, axis=0))


def overlap_by_depth(a: Head, b: Head) -> np.ndarray:
    """Items that both rankings hold among their first d, for d = 1 … D, (D,): a mean over all
    orders of ties."""
    # Few of the items, so nothing below is large.
    common = np.flatnonzero((a.group >= 0) & (b.group >= 0))
    pairs = a.group[common].astype(np.int64) * len(b.counted) + b.group[common]
    pairs, items = np.unique(pairs, return_counts=True)
    of_a, of_b = np.divmod(pairs, len(b.counted))
    return np.sum(items[:, None] * a.counted[of_a] * b.counted[of_b], axis=0)


def top_overlap(a: Head, b: Head, *, k: int) -> float:
    """Share of the k highest that are common to both, a mean over all orders of ties; k at most the
    depth."""
    return float(overlap_by_depth(a, b)[k - 1] / k)


def rank_biased_overlap(a: Head, b: Head, *, persistence: float) -> float:
    """Rank-biased overlap of two rankings of the same items to their common depth D.

    (1 − p) Σ_d p^(d−1) A_d, where A_d is the agreement of the first d: |first d of a ∩ first d of
    b| / d without ties; with ties divided, as Kendall's tau-b is, by what each ranking agrees with
    itself (RBO_b), so that a ranking has overlap 1 with itself. What lies below D counts as
    disagreement (at most p^D, 10⁻⁶ at p = .9 and D = 132).

    Args:
        a: of `head`.
        b: of `head`, same items, same depth.
        persistence: p in (0, 1), the chance that a reader goes on to the next rank.

    Source: Webber, Moffat & Zobel 2010 (equations 7 and 23); Corsi & Urbano 2024 for the ties.
    """
    agreement = overlap_by_depth(a, b) / np.sqrt(a.itself * b.itself)
    weights = (1 - persistence) * persistence ** np.arange(len(agreement))
    return float(weights @ agreement)


def _overlap(tables: TableSet, prompt: str, n: int) -> list[str]:
    """Share of each vocabulary that is compared, where they differ."""
    members = tables.by_prompt[prompt]
    sizes, stripped = sorted({len(table.rows) for table in members}), tables.stripped(members)
    if tables.candidates != "vocabulary" or not (stripped or len(sizes) > 1):
        return []
    space = "without outer white space" if stripped else "with their white space"
    among = f"{sizes[0]:,}" + (f" to {sizes[-1]:,}" if len(sizes) > 1 else "")
    return [f"Vocabularies differ: {n:,} texts, compared {space}, are in all; each has {among}."]


@analysis("agreement", Needs(models=2), place=40)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Agreement of every pair on each prompt, over shared candidates; the noise floor.

    Tables:
        agreement: How alike two models order the candidates that both have.
            - as everywhere: model_a, model_b, n, kendall, spearman, spearman_low, spearman_high,
                rbo, top, top_overlap, bottom_overlap, prompt, candidates
            - low: lower end of the interval of τ
            - high: upper end of the interval of τ
        noise_floor: A model against its own further scans.
            - as everywhere: n, kendall, spearman, rbo, top, top_overlap, bottom_overlap, model,
                prompt, candidates
            - rescan: what differs from the first scan
            - low: lower end of the interval of τ
            - high: upper end of the interval of τ
            - largest_difference: of two rewards of one candidate, in units of reward
            - tails_again: candidates at the ends that were scored again in float32
    """
    failed: list[str] = []
    numbers: dict[str, Any] = {
        "confidence": options.confidence,
        "persistence": options.rbo_persistence,
        "depth": options.rbo_depth,
        "top": options.top,
    }

    def compare(prompt: str) -> pd.DataFrame:
        rewards = tables.matrix(prompt)
        dependent = dependence(rewards.index, options.meanings)
        return agreement(rewards, dependent=dependent, **numbers)

    pairs = map_prompts(tables, compare, models=2, failed=failed)
    if pairs.empty:
        return []
    floor = map_prompts(tables, lambda prompt: _floor(tables, prompt, numbers), failed=failed)
    by_key = pairs.groupby("prompt", sort=False)
    tables.memo.update({("tau", prompt): as_matrix(rows, "kendall") for prompt, rows in by_key})
    first = pairs[pairs["prompt"] == pairs["prompt"].iloc[0]]
    shared = _overlap(tables, first["prompt"].iloc[0], int(first["n"].iloc[0]))
    closest, farthest = first.loc[first["kendall"].idxmax()], first.loc[first["kendall"].idxmin()]
    label = tables.labels
    who, apart = (
        f"{label[row['model_a']]} and {label[row['model_b']]}" for row in (closest, farthest)
    )
    high, low = closest["kendall"], farthest["kendall"]
    verdict = f"{who} rank {tables.things} most alike (τ = {high:.2f}), {apart} least ({low:.2f})"
    if len(first) == 1:
        verdict = f"{who} order {closest['n']:,} {tables.things} alike to τ = {high:.2f}"
    # The noise floor is the diagonal of its own prompt.
    cells = pairs if floor.empty else pd.concat([pairs, _diagonal(floor)], ignore_index=True)
    heatmap = replace(TAUS, data=cells)
    summary = {f"{p}/kendall_mean": float(rows["kendall"].mean()) for p, rows in by_key}
    summary |= {f"{p}/shared": int(rows["n"].iloc[0]) for p, rows in by_key}
    notes = (*shared, *dict.fromkeys(chain(*tables.no_rescans.values())), *failed)
    result = Result.of_row(
        closest,
        "agreement",
        pairs,
        tau_effect(tables.things, symbol="kendall"),
        f"On {quoted(closest['prompt'])}, {verdict}.",
        plot=heatmap,
        method="agreement",
        notes=notes,
        summary=summary,
        label="τ, highest",
        size=high - low,
        share=1 / 2,
    )
    floors = [] if floor.empty else [Result("noise_floor", floor, method="agreement")]
    return [result, *floors]


def tau_effect(things: str, *, null: float = 0.0, symbol: str = "") -> Effect:
    """Kendall's tau-b in the columns kendall, low and high."""
    return Effect("kendall", "τ", "low", "high", null=null, of=things, symbol=symbol)


def _diagonal(floor: pd.DataFrame) -> pd.DataFrame:
    """Each model's least agreement with its own rescans, as a row of the model with itself."""
    smallest = floor.groupby(["prompt", "candidates", "model"], sort=False)["kendall"].min()
    smallest = smallest.reset_index()
    return smallest.rename(columns={"model": "model_a"}).assign(model_b=smallest["model"])


def _floor(tables: TableSet, prompt: str, numbers: dict) -> pd.DataFrame | None:
    """Each model's agreement with its own rescans."""
    pieces = []
    for table in tables.by_prompt[prompt]:
        rescans = tables.rescans.get((prompt, table.provenance.model), {})
        if rescans:
            rewards = {name: _rewards(rescan) for name, rescan in rescans.items()}
            floors = noise_floor(_rewards(table), rewards, **numbers)
            # Where tails were scored again in float32, both ends agree by construction.
            again = {name: bool(rescan.provenance.certain) for name, rescan in rescans.items()}
            floors["tails_again"] = floors["rescan"].map(again)
            floors.loc[floors["tails_again"], ENDS] = np.nan
            pieces.append(floors.assign(model=table.provenance.model))
    return pd.concat(pieces) if pieces else None


def _rewards(table: ScoreTable) -> pd.Series:
    return table.rows.set_index("candidate_id")["reward"].astype(float)
