"""How far models agree on what is good: rank statistics of every pair, rank-biased overlap, and the
noise floor.

Ties: overlaps take tied items in every order at once. An item of a group of equals that spans ranks
t to b counts (d − t + 1) / (b − t + 1) at a depth d inside it, the share of orders that have it so
high. Sorting ties one way or the other, as published, moves the result by chance.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import Needs, Options, analysis, by_prompt
from pessimal.analyses.checks import align, check_rewards, check_varied
from pessimal.analyses.ranks import (
    Dependence,
    dependence,
    kendall,
    rank_correlations,
    ranked,
    spearman,
)
from pessimal.errors import TableError
from pessimal.plots import Heatmap
from pessimal.tables import ScoreTable
from pessimal.tables.result import Effect, Result
from pessimal.tables.table_set import TableSet

RBO_PERSISTENCE = 0.9
RBO_DEPTH = 132
"""Both as published."""
TOP = 20
STATISTICS = [
    "kendall", "low", "high", "spearman", "rbo", "rbo_extrapolated", "top", "top_overlap",
    "bottom_overlap",
]  # fmt: skip
ENDS = ["rbo", "rbo_extrapolated", "top_overlap", "bottom_overlap"]
"""What only looks at the ends of two rankings."""


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
    Each row counts as one item. The intervals (see `ranks.fisher_interval`) are over clusters of
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
        published), rbo_extrapolated, top (k, less where there are fewer items), top_overlap,
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
    for name, extrapolate in (("rbo", False), ("rbo_extrapolated", True)):
        table[name] = [
            rank_biased_overlap(
                begun[a], begun[b], persistence=persistence, extrapolate=extrapolate
            )
            for a, b in pairs
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
        rewards = tables.matrix(prompt)
        check_rewards(rewards, least_models=2)
        check_varied(rewards)
        ranks = {model: ranked(rewards[model].to_numpy()) for model in rewards}
        rows = [(a, b, kendall(ranks[a], ranks[b]).estimate) for a, b in combinations(ranks, 2)]
        pairs = pd.DataFrame(rows, columns=["model_a", "model_b", "kendall"])
        tables.memo["tau", prompt] = as_matrix(pairs, "kendall")
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
        One row per rescan: rescan, n, kendall, low, high, spearman, rbo, rbo_extrapolated, top,
            top_overlap,
        bottom_overlap (all as in `agreement`), largest_difference and rms_difference (of two
        rewards of one candidate, in units of reward), relative (rms_difference over the standard
        deviation of the rewards).

    Raises:
        TableError: other candidates in a rescan, a missing reward, or one reward for all.
    """
    rows = []
    for name, rescan in rescans.items():
        again = align(rewards, rescan, left_name="the scan", right_name=f"its rescan {name!r}")
        pair = pd.DataFrame({"scan": rewards.astype(float), "rescan": again.astype(float)})
        statistics = agreement(pair, **numbers).iloc[0][STATISTICS]
        difference = (pair["scan"] - pair["rescan"]).to_numpy()
        rms = float(np.sqrt(np.mean(difference**2)))
        rows.append(
            {
                "rescan": name,
                "n": len(pair),
                **statistics,
                "largest_difference": float(np.abs(difference).max()),
                "rms_difference": rms,
                "relative": rms / float(pair["scan"].std(ddof=0)),
            }
        )
    return pd.DataFrame(rows)


class Head(NamedTuple):
    """The beginning of one ranking: groups of equals, best first, as far as they begin within the
    depth."""

    group: np.ndarray
    """(n,) int32: the item's group; −1 where its group begins below the depth."""
    counted: np.ndarray
    """How much an item of each group counts at each depth 1 … D, (groups, D), in [0, 1]."""
    itself: np.ndarray
    """What the ranking shares with itself at each depth, (D,): the depth, less where ties leave it
    open."""

    @property
    def depth(self) -> int:
        """D."""
        return self.counted.shape[1]


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
    both = np.flatnonzero((a.group >= 0) & (b.group >= 0))
    pairs = a.group[both].astype(np.int64) * len(b.counted) + b.group[both]
    pairs, items = np.unique(pairs, return_counts=True)
    of_a, of_b = np.divmod(pairs, len(b.counted))
    return np.sum(items[:, None] * a.counted[of_a] * b.counted[of_b], axis=0)


def top_overlap(a: Head, b: Head, *, k: int) -> float:
    """Share of the k highest that are common to both, a mean over all orders of ties; k at most the
    depth."""
    return float(overlap_by_depth(a, b)[k - 1] / k)


def rank_biased_overlap(
    a: Head, b: Head, *, persistence: float, extrapolate: bool = False
) -> float:
    """Rank-biased overlap of two rankings of the same items to their common depth D.

    (1 − p) Σ_d p^(d−1) A_d, where A_d is the agreement of the first d: |first d of a ∩ first d of
    b| / d without ties; with ties divided, as Kendall's tau-b is, by what each ranking agrees with
    itself (RBO_b), so that a ranking has overlap 1 with itself. Without extrapolation what lies
    below D counts as disagreement (at most p^D, 10⁻⁶ at p = .9 and D = 132); with it, agreement
    goes on as at D.

    Args:
        a: of `head`.
        b: of `head`, same items, same depth.
        persistence: p in (0, 1), the chance that a reader goes on to the next rank.
        extrapolate: count what lies below D as agreeing as much as D.

    Source: Webber, Moffat & Zobel 2010 (equations 7 and 23); Corsi & Urbano 2024 for the ties.
    """
    agreement = overlap_by_depth(a, b) / np.sqrt(a.itself * b.itself)
    weights = (1 - persistence) * persistence ** np.arange(a.depth)
    below = agreement[-1] * persistence**a.depth if extrapolate else 0.0
    return float(weights @ agreement + below)


@analysis("agreement", Needs(models=2), place=40)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Agreement of every pair on each prompt, over shared candidates and over whole vocabularies;
    the noise floor."""
    failed: list[str] = []
    pairs = by_prompt(
        tables,
        lambda p: agreement(
            tables.matrix(p),
            dependent=dependence(tables.matrix(p).index, options.meanings),
            **_numbers(options),
        ),
        models=2,
        failed=failed,
    )
    if pairs.empty:
        return []
    raw = by_prompt(tables, lambda prompt: _raw(tables, prompt, options), failed=failed)
    floor = by_prompt(tables, lambda prompt: _floor(tables, prompt, options), failed=failed)
    tables.memo.update(
        {("tau", prompt): as_matrix(rows, "kendall") for prompt, rows in pairs.groupby("prompt")}
    )
    first = pairs[pairs["prompt"] == pairs["prompt"].iloc[0]]
    closest, farthest = first.loc[first["kendall"].idxmax()], first.loc[first["kendall"].idxmin()]
    label = tables.labels
    # The noise floor is the diagonal of its own prompt.
    drawn = pairs if floor.empty else pd.concat([pairs, _diagonal(floor)], ignore_index=True)
    both = f"On {closest['prompt']}, {label[closest['model_a']]} and {label[closest['model_b']]}"
    headline = (
        f"{both} agree most (τ = {closest['kendall']:.2f}), {label[farthest['model_a']]} and "
        f"{label[farthest['model_b']]} least ({farthest['kendall']:.2f})."
        if len(first) > 1
        else f"{both} order {closest['n']:,} {tables.things} alike to τ = {closest['kendall']:.2f}."
    )
    by_prompt_key = pairs.groupby("prompt", sort=False)
    heatmap = Heatmap(
        value="kendall",
        symmetric=True,
        order=True,
        data=drawn,
        label="Kendall's τ-b",
        groups=_groups(tables),
    )
    first_result = Result.of_row(
        closest,
        "agreement",
        pairs,
        tau_effect(tables.things, symbol="kendall"),
        headline,
        label="τ, highest",
        size=first["kendall"].max() - first["kendall"].min(),
        share=1 / 2,
        plot=heatmap,
        method="agreement",
        notes=(*dict.fromkeys(why for whys in tables.no_rescans.values() for why in whys), *failed),
        summary={f"{p}/kendall_mean": float(rows["kendall"].mean()) for p, rows in by_prompt_key}
        | {f"{p}/shared": int(rows["n"].iloc[0]) for p, rows in by_prompt_key},
    )
    others = {"agreement_raw": raw, "noise_floor": floor}
    return [
        first_result,
        *(Result(name, table, method="agreement") for name, table in others.items() if len(table)),
    ]


def tau_effect(things: str, *, null: float = 0.0, symbol: str = "") -> Effect:
    """Kendall's tau-b in the columns kendall, low and high."""
    return Effect("kendall", "τ", "low", "high", null=null, of=things, symbol=symbol)


def _diagonal(floor: pd.DataFrame) -> pd.DataFrame:
    """Each model's least agreement with its own rescans, as a row of the model with itself."""
    least = (
        floor.groupby(["prompt", "candidates", "model"], sort=False)["kendall"].min().reset_index()
    )
    return least.rename(columns={"model": "model_a"}).assign(model_b=least["model"])


def _groups(tables: TableSet) -> pd.DataFrame | None:
    """What is known of base and developer, by label."""
    described = tables.descriptors[["base", "developer"]].dropna(axis="columns", how="all")
    return (
        described.fillna("not stated").rename(index=tables.labels)
        if len(described.columns)
        else None
    )


def _numbers(options: Options) -> dict:
    return {
        "confidence": options.confidence,
        "persistence": options.rbo_persistence,
        "depth": options.rbo_depth,
        "top": options.top,
    }


def _raw(tables: TableSet, prompt: str, options: Options) -> pd.DataFrame | None:
    """Agreement over every token, special and repeated texts included, of models with one
    vocabulary."""
    same: dict[str, list[ScoreTable]] = {}
    for table in tables.by_prompt[prompt]:
        same.setdefault(table.provenance.candidates_digest, []).append(table)
    pieces = []
    for members in same.values():
        if len(members) > 1 and len(members[0].rows) > len(tables.matrix(prompt)):
            rewards = pd.DataFrame({t.provenance.model: _by_id(t) for t in members})
            texts = members[0].rows.set_index("candidate_id")["text"].reindex(rewards.index)
            dependent = dependence(texts, options.meanings)
            pieces.append(agreement(rewards, dependent=dependent, **_numbers(options)))
    return pd.concat(pieces) if pieces else None


def _floor(tables: TableSet, prompt: str, options: Options) -> pd.DataFrame | None:
    """Each model's agreement with its own rescans."""
    pieces = []
    for table in tables.by_prompt[prompt]:
        others = tables.rescans.get((prompt, table.provenance.model), {})
        if not others:
            continue
        floors = noise_floor(
            _by_id(table), {name: _by_id(t) for name, t in others.items()}, **_numbers(options)
        )
        # Where tails were scored again in float32, both ends agree by construction.
        again = floors["rescan"].map(
            lambda name, others=others: bool(others[name].provenance.certain)
        )
        floors.loc[again, ENDS] = np.nan
        pieces.append(floors.assign(tails_again=again, model=table.provenance.model))
    return pd.concat(pieces) if pieces else None


def _by_id(table: ScoreTable) -> pd.Series:
    return table.rows.set_index("candidate_id")["reward"].astype(float)
