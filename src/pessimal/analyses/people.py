"""Models against people: rewards of named items beside the items' Elo, and how surely the Elo is
known.

The published scores come without errors, and without the matches, from which better ones could be
had. What the number of matches says of the error is a lower bound.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import false_discovery_control, norm, rankdata
from scipy.stats import t as student

from pessimal.analyses.agreement import agreement
from pessimal.analyses.analysis import (
    Heads,
    Needs,
    Options,
    analysis,
    heads_of,
    of_random_heads,
    whose,
)
from pessimal.analyses.checks import align, check_rewards, check_varied
from pessimal.analyses.ranks import bootstrapped, kendall, ranked, spearman
from pessimal.analyses.regression import heads_on_ranks
from pessimal.errors import TableError
from pessimal.plots import Forest, Heatmap, Lines
from pessimal.statistics import LEVEL, holm, median_interval
from pessimal.tables import ScoreTable
from pessimal.tables.result import Effect, Estimate, Result, weight_of
from pessimal.tables.table_set import MANY_PROMPTS, TableSet
from pessimal.texts import literal

POINTS = 400 / np.log(10)
"""Elo points to one unit of log odds: 400 points are odds of ten to one."""
ENDS = ("overvalued", "undervalued")
"""By models, as people see it."""
SHOWN, FOLLOWED, FARTHEST, BEHIND = 12, 10, 5, 60
"""Items drawn: at each end of the differences; of people's highest, at each end, and of all behind
these, from rater to rater."""
PEOPLE = "people"
FIRST, APART = "people's first ten", "farthest apart"
TAUS = ["model_a", "model_b", "n", "kendall", "low", "high"]


def human_correlation(
    rewards: pd.DataFrame,
    elo: pd.Series,
    *,
    heads: Mapping[str, Callable[[Sequence[str]], np.ndarray]] | None = None,
    **draws,
) -> pd.DataFrame:
    """Rank correlation of each model's rewards with the human scores.

    Ties take mid-ranks (Spearman) and are corrected for (Kendall's tau-b). The intervals are item
    bootstraps of the linearised statistics; the human scores' own error is not in them (see
    `reliability`). Whether a head that nobody trained would agree as much is another question
    (`random_head`, see `regression.heads_on_ranks`).

    Args:
        rewards: items × models.
        elo: human score per item, higher is better, indexed by the same items.
        heads: by model, items → the states (items, spaces, directions) that random heads would be
            on; of a model without them random_head is missing.
        draws: of the bootstrap (see `ranks.bootstrapped`).

    Returns:
        One row per model: model, n, spearman, kendall, low, high (both of Spearman's rho),
            kendall_low, kendall_high, random_head, heads_within.

    Raises:
        TableError: see `checks.check_rewards`; or the items differ, or the human scores do not
            vary.

    Source: Christian et al. 2025, Figure 5A.
    """
    check_rewards(rewards)
    check_varied(rewards)
    people = _people_like(rewards, elo)
    check_varied(people.to_frame("human scores"))
    human = ranked(people.to_numpy())
    ranks = [ranked(rewards[model].to_numpy()) for model in rewards]
    rhos = [spearman(model, human) for model in ranks]
    taus = [kendall(model, human) for model in ranks]
    estimates, low, high = bootstrapped(rhos + taus, **draws)
    rho, tau = slice(None, len(rhos)), slice(len(rhos), None)
    table = pd.DataFrame(
        {
            "model": list(rewards),
            "n": len(rewards),
            "spearman": estimates[rho],
            "kendall": estimates[tau],
            "low": low[rho],
            "high": high[rho],
            "kendall_low": low[tau],
            "kendall_high": high[tau],
            "random_head": np.nan,
            "heads_within": np.nan,
        }
    )
    if heads:
        items, held = rewards.index.tolist(), table["model"].isin(list(heads)).to_numpy()
        untrained = heads_on_ranks(
            rewards.to_numpy()[:, held],
            people.to_numpy(),
            np.arange(len(items)),
            [heads[model](items) for model in table["model"][held]],
        )
        table.loc[held, "random_head"] = untrained.share
        table.loc[held, "heads_within"] = untrained.within
    return table


def corrected_for_error(correlation: pd.DataFrame, reliability: float) -> pd.DataFrame:
    """Spearman's rho as it would be with people's true order, if their scores are so reliable
    (attenuation).

    Rho and its interval over the root of the reliability, which is taken as known; nothing is cut
    off at ±1. As `reliability` is an upper bound, all three are too near 0 rather than too far.

    Returns:
        `correlation` with reliability_at_most, spearman_corrected, spearman_corrected_low,
        spearman_corrected_high.

    Source: Spearman 1904, "The proof and measurement of association between two things".
    """
    corrected = correlation[["spearman", "low", "high"]].to_numpy() / reliability**0.5
    names = ["spearman_corrected", "spearman_corrected_low", "spearman_corrected_high"]
    return correlation.assign(
        reliability_at_most=reliability, **dict(zip(names, corrected.T, strict=True))
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
    """Each item's median rank over the models less its human rank; rank 1 is the highest, ties
    share their average.

    The people are not among the raters averaged; published was the median over models *and* people
    (`difference_published`), which pulls every difference towards zero. Medians shrink to the
    middle, so they are also ranked once more (`consensus_rank`). Three intervals, each of one item
    at a time:

    * people: the human rank as uncertain as its matches leave it at least (see `rank_intervals`);
    * models: the median of a population that the models are a sample of, from order statistics (6
        models at 95 %);
    * low, high: both, half widths joined as independent errors are, each side on its own.

    The intervals are those of the median's distance. As noise alone pulls medians to the middle, an
    interval that leaves out zero does not say that models value an item otherwise; that is tested
    by `consensus_test`.

    Args:
        rewards: items × models.
        elo: as in `human_correlation`.
        matches: number of matches behind each score; without it there are no intervals of people.
        draws, confidence, seed: of `rank_intervals`; the confidence is that of all intervals.
        paper: count the people among the raters, as published; there are no intervals then.

    Returns:
        One row per item, in the order of `rewards`: name, human_rank, model_rank (median),
            difference (model − human:
        negative where models rank the item higher), low, high, people_low, people_high, models_low,
        models_high (NaN where there is no such interval), consensus_rank, consensus_difference,
        difference_published, matches, n_models, t (positive where models rank the item lower), p,
        p_adjusted (of `consensus_test`; NaN in `paper`).

    Raises:
        TableError: see `checks.check_rewards` and `rank_intervals`; or the items differ.

    Source: Christian et al. 2025, Figure 5B; Conover 1999, section 3.2 (median); Zou & Donner 2008
        (joining).
    """
    check_rewards(rewards)
    people = _people_like(rewards, elo)
    human = rankdata(-people.to_numpy())
    # (items, models), ascending in each row.
    raters = np.sort(rankdata(-rewards.to_numpy(), axis=0), axis=1)
    median = np.median(raters, axis=1)
    published = np.median(np.column_stack([raters, human]), axis=1)
    consensus = rankdata(median)
    model = published if paper else median
    nothing = np.full(len(human), np.nan)
    human_low = human_high = model_low = model_high = played = nothing
    if matches is not None:
        played = align(
            rewards, matches, left_name="the rewards", right_name="the match counts"
        ).to_numpy()
    if matches is not None and not paper:
        counts = pd.Series(played, index=people.index)
        likely = rank_intervals(people, counts, draws=draws, confidence=confidence, seed=seed)
        human_low, human_high = likely["low"].to_numpy(), likely["high"].to_numpy()
    if not paper:
        model_low, model_high = median_interval(raters, confidence=confidence)
    tested = consensus_test(
        rewards, people, matches=None if matches is None else pd.Series(played, people.index)
    )
    # The index as it is: a list of its items would become Arrow strings, which cannot hold a lone
    # surrogate.
    return pd.DataFrame({"name": rewards.index}).assign(
        human_rank=human,
        model_rank=model,
        difference=model - human,
        low=model - human - np.hypot(model - model_low, human_high - human),
        high=model - human + np.hypot(model_high - model, human - human_low),
        people_low=model - human_high,
        people_high=model - human_low,
        models_low=model_low - human,
        models_high=model_high - human,
        consensus_rank=consensus,
        consensus_difference=consensus - human,
        difference_published=published - human,
        matches=played,
        n_models=rewards.shape[1],
        **{name: np.nan if paper else tested[name].to_numpy() for name in tested},
    )


def consensus_test(
    rewards: pd.DataFrame, elo: pd.Series, *, matches: pd.Series | None = None
) -> pd.DataFrame:
    """Tests of each item: do models place it where people do, but for the noise of either?

    Models and people each measure where an item stands among all items: the models by their mean
    normal score, with the error that the spread of the models about it gives; people by the normal
    score of their Elo, with the error that the matches leave at least. Both are divided by the root
    of their reliability, so that noise, which pulls scores to the middle, makes no difference
    between them. The difference over its error is Student's t; an item's variance over the models
    is moderated by that of all items.

    One score of each model is enough: its noise is part of the spread of the models. Models are
    taken for independent draws from a population; relatives of one base or developer are not, and
    then the test finds too much. The places are taken to be normal; where they are uniform, and the
    noise is as large as they spread, p falls below .05 in up to 11 % of the items of which nothing
    is true (else 2 to 8 %), and after correction 0 to 4 % of the items are called.

    Args:
        rewards: items × models.
        elo: human score per item, in the order of the rewards.
        matches: behind each score; without them people's order is taken for exact.

    Returns:
        Indexed as `rewards`: t, p (two-sided), p_adjusted (Benjamini & Hochberg over the items: of
            those called at .05, at
        most 5 % are expected to be false). NaN for one model, and where all models order the items
        alike: there is no noise to be seen. p is 1 for all items where the models' agreement is no
            more than chance.

    Raises:
        TableError: see `reliability`.

    Source: Smyth 2004 (moderated t); Benjamini & Hochberg 1995.
    """
    scores = _normal_scores(rewards.to_numpy())  # (items, models)
    n, models = scores.shape
    spread = scores.var(axis=1, ddof=1) if models > 1 else np.zeros(n)
    mean, people = scores.mean(axis=1), _normal_scores(elo.to_numpy(dtype=float))
    if not spread.any():
        return pd.DataFrame(np.nan, index=rewards.index, columns=["t", "p", "p_adjusted"])
    # The share of the models' mean scores that is no noise.
    model_reliability = 1 - spread.mean() / models / mean.var()
    if model_reliability <= 0:
        return pd.DataFrame({"t": 0.0, "p": 1.0, "p_adjusted": 1.0}, index=rewards.index)
    variance, freedom = moderated(spread, models - 1)
    of_models, of_people, known_people = (
        variance / models / (model_reliability * mean.var()),
        np.zeros(n),
        1.0,
    )
    if matches is not None:
        known_people = reliability(elo, matches)
        of_people = np.square(least_error(matches).to_numpy()) / (
            known_people * np.var(elo.to_numpy(dtype=float))
        )
    apart = people / known_people**0.5 - _normal_scores(mean) / model_reliability**0.5
    t = apart / np.sqrt(of_models + of_people)
    # Satterthwaite: people's error is known, the models' is estimated.
    p = 2 * student.sf(np.abs(t), freedom * (1 + of_people / of_models) ** 2)
    return pd.DataFrame(
        {"t": t, "p": p, "p_adjusted": false_discovery_control(p)}, index=rewards.index
    )


def moderated(variances: np.ndarray, freedom: int) -> tuple[np.ndarray, float]:
    """Variances (n,), not all 0, each drawn to what they have in common, and their degrees of
    freedom then.

    The true variances are taken for draws from an inverse χ² distribution, fitted by the moments of
    the logarithms. Where they vary no more than chance makes them, all are their mean, on
    infinitely many degrees of freedom.

    Source: Smyth 2004, section 6.2.
    """
    half = freedom / 2
    logs = np.log(np.maximum(variances, 1e-5 * variances.mean())) - digamma(half) + np.log(half)
    extra = logs.var(ddof=1) - polygamma(1, half)
    if extra <= 1e-6:
        return np.full(len(variances), variances.mean()), np.inf
    prior = brentq(lambda x: polygamma(1, x) - extra, 1e-6, 1e7)  # half of its degrees of freedom
    common = np.exp(logs.mean() + digamma(prior) - np.log(prior))
    return (prior * common + half * variances) / (prior + half), float(2 * (prior + half))


def _normal_scores(values: np.ndarray) -> np.ndarray:
    """Normal quantiles of the mid-ranks of each column."""
    return norm.ppf((rankdata(values, axis=0) - 0.5) / len(values))


def surely_apart(difference: pd.DataFrame) -> pd.Series:
    """Of each item, whether models surely value it otherwise than people do (bool).

    The corrected p of `consensus_test` is at most .05; medians, their order and the test say so to
    the same side; and where there is an interval (six models), it leaves out zero.
    """
    side, (low, high) = np.sign(difference["difference"]), surest_interval(difference)
    same_side = (side == np.sign(difference["consensus_difference"])) & (
        side == np.sign(difference["t"])
    )
    return same_side & (difference["p_adjusted"] <= LEVEL) & ~((low <= 0) & (high >= 0))


def most_valued(difference: pd.DataFrame, *, k: int = 20) -> pd.DataFrame:
    """The items that models overvalue most, as people see it, and those they undervalue most.

    Of those `surely_apart`; where nothing could be tested (as published, or one model), of all.
    Items are picked for being far out, so their differences are more likely too large than too
    small.

    Returns:
        At most 2k rows of `rank_difference` with, in front: end (`overvalued`, `undervalued`), rank
            (1 = the farthest).
        Equal differences keep the order of the rows.
    """
    tested = difference["p"].notna().any()
    listed = difference[surely_apart(difference)] if tested else difference
    listed = listed.sort_values("difference", kind="stable")
    over = listed[listed["difference"] < 0].head(k)
    under = (
        listed[listed["difference"] > 0]
        .sort_values("difference", ascending=False, kind="stable")
        .head(k)
    )
    ends = pd.concat([over, under], ignore_index=True)
    ends.insert(0, "end", [ENDS[0]] * len(over) + [ENDS[1]] * len(under))
    ends.insert(1, "rank", [*range(1, len(over) + 1), *range(1, len(under) + 1)])
    return ends


def surest_interval(difference: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Of each item the interval of people and models, else of models; NaN for fewer than six, as
    people's alone would leave out the models' noise."""
    low = difference["low"].fillna(difference["models_low"])
    high = difference["high"].fillna(difference["models_high"])
    return low, high


def least_error(matches: pd.Series) -> pd.Series:
    """The standard error, in Elo points, below which no unbiased estimate from so many matches can
    be.

    One match says at most a quarter of (ln 10 / 400)² about a difference in strength, when the two
    are equal; so over n matches the error (Cramér–Rao) is at least 2 · (400 / ln 10) / √n. Unequal
    opponents, their own errors, and ratings that forget old matches come on top.

    Raises:
        TableError: an item without matches, or a count that is missing.

    Source: Bradley & Terry 1952 for the model, Elo 1978 for the scale.
    """
    counts = pd.to_numeric(matches, errors="coerce").astype(float)
    if bad := int((~(counts >= 1)).sum()):
        raise TableError(
            f"{bad} of {len(counts)} items without a count of matches (first: "
            f"{counts.index[~(counts >= 1)][0]!r}). Leave them out, or give no matches at all."
        )
    return 2 * POINTS / np.sqrt(counts)


def reliability(elo: pd.Series, matches: pd.Series) -> float:
    """The share of the items' variance in Elo that is not error, at most: 1 − mean squared
    `least_error` / variance.

    A perfect judge of the items would correlate with these scores by about its root and no more.

    Raises:
        TableError: see `least_error`; or the errors are as large as the whole spread.
    """
    error = np.mean(np.square(least_error(matches).to_numpy()))
    spread = np.var(elo.to_numpy(dtype=float))
    if not error < spread:
        raise TableError(
            f"The items' Elo has a standard deviation of {np.sqrt(spread):.0f} points and, by the "
            f"match counts, an error of at least {np.sqrt(error):.0f}: the scores order nothing."
        )
    return float(1 - error / spread)


def rank_intervals(
    elo: pd.Series,
    matches: pd.Series,
    *,
    draws: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Between which ranks each item's true strength may lie, as far as the match counts say.

    True strengths are drawn from their normal posterior, given the scores, under an empirical prior
    (a normal population of items), and ranked. Adding the error to the scores instead would push
    both ends of the field inwards: with the match counts of EloEverything, the 300 items at the
    ends then had their true rank in the 95 % interval 83–86 % of the time; so it is 95 %. Errors
    are independent and the least possible, so true intervals are wider.

    Returns:
        Indexed as `elo`: rank (1 = highest, ties at their average), low, high (the interval,
            widened to the item's own
        rank where this is outside), error (the least, in Elo points).

    Raises:
        TableError: see `reliability`.
    """
    error = least_error(matches).to_numpy()
    scores = elo.to_numpy(dtype=float)
    true = reliability(elo, matches) * np.var(scores)  # τ², points²
    shrinkage = true / (true + error**2)  # weight of the item's own score
    centre, spread = (
        scores.mean() + shrinkage * (scores - scores.mean()),
        np.sqrt(shrinkage) * error,
    )
    ranks, rng = np.empty((draws, len(scores)), dtype=np.float32), np.random.default_rng(seed)
    for row in ranks:
        # Normal draws do not tie.
        order = np.argsort(-(centre + spread * rng.standard_normal(len(scores))))
        row[order] = np.arange(1, len(scores) + 1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(ranks, [tail, 1 - tail], axis=0)
    rank = rankdata(-scores)
    low, high = np.minimum(low, rank), np.maximum(high, rank)
    return pd.DataFrame({"rank": rank, "low": low, "high": high, "error": error}, index=elo.index)


def _people_like(rewards: pd.DataFrame, elo: pd.Series) -> pd.Series:
    """The human scores in the order of the rewards' items."""
    people = align(rewards, elo, left_name="the rewards", right_name="the human scores").astype(
        float
    )
    check_rewards(people.to_frame("human scores"))
    return people


@analysis("people", Needs(elo=True, prompts=0), place=140)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """How far models agree with the people who rated the items, on which items they differ, and how
    surely.

    Where bad words answer the prompt (polarity −1), a model agrees that rewards least what people
    rank highest; so rank 1 is then the lowest reward (`turned`), but in `paper`. Where the polarity
    is not known nothing is turned.
    """
    members_of = {p: [t for t in tables.by_prompt[p] if t.has_elo] for p in tables.prompts}
    rated = {prompt: members for prompt, members in members_of.items() if members}
    if not rated:
        raise TableError(
            "only wordings looked at together have Elo. Take one at a time: prompts=[KEY]"
        )
    collected: dict[str, list[pd.DataFrame]] = defaultdict(list)
    notes = _left_out(tables, rated)
    meanings = heads_of({}, options)  # one for all: they are solved together
    heads: dict[str, Heads | None] = {}
    seeded: dict[str, Any] = {"confidence": options.confidence, "seed": options.seed}
    for prompt, members in rated.items():
        rewards = tables.matrix(prompt)[[table.provenance.model for table in members]]
        people = people_of(members, rewards.index, stripped=tables.reading.stripped)
        elo, matches, sign = (
            people["elo"],
            people["elo_matches"],
            tables.reading.polarity_of(prompt),
        )
        for table in members:
            own = (
                None
                if options.paper or table.states is None
                else heads_of({prompt: [table]}, options)
            )
            heads[table.provenance.model] = own or (None if options.paper else meanings)
        here = {m: partial(own, outcome=prompt) for m in rewards if (own := heads[m]) is not None}
        correlation = human_correlation(rewards, elo, heads=here, **options.draws)
        correlation["random_head_holm"] = holm(correlation["random_head"])
        correlation["states"] = [own.of if (own := heads[m]) else "" for m in rewards]
        try:
            correlation = corrected_for_error(correlation, reliability(elo, matches))
        except TableError as error:
            notes.append(f"{prompt}: how surely people's ranks are known cannot be said. {error}")
            matches = None
        turned = sign == -1 and not options.paper
        rewards = -rewards if turned else rewards
        numbers = {
            "matches": matches,
            "draws": options.replicates,
            "paper": options.paper,
            **seeded,
        }
        difference = rank_difference(rewards, elo, **numbers).assign(turned=turned)
        valued = most_valued(difference, k=options.top)
        agreeing = correlation.sort_values("spearman", ascending=sign == -1, kind="stable")["model"]
        rhos = correlation.set_index("model")["spearman"] * (-1 if turned else 1)
        lines = _from_people_to_models(rewards[list(agreeing)], difference, valued, rhos)
        if rewards.shape[1] == 1:
            notes.append(
                f"{prompt}: of one model's scores it cannot be told which differences are noise; "
                "none is called sure"
            )
        raters = (-rewards if turned else rewards).assign(**{PEOPLE: elo})
        taus = agreement(raters, replicates=options.replicates, **seeded)[TAUS]
        pieces = {
            "correlation": correlation,
            "difference": difference,
            "valued": valued,
            "lines": lines,
            "agreement": taus,
        }
        for name, piece in pieces.items():
            collected[name].append(piece.assign(prompt=prompt, candidates=tables.candidates))
    joined = {name: pd.concat(pieces, ignore_index=True) for name, pieces in collected.items()}
    notes += whose(heads, tables.labels)
    return [
        _correlation_result(tables, joined["correlation"], list(rated), notes),
        _agreement_result(joined["agreement"]),
        _difference_result(joined["difference"], joined["lines"]),
        _valued_result(joined["valued"], len(collected["difference"][0])),
    ]


def people_of(tables: list[ScoreTable], texts: pd.Index, *, stripped: bool) -> pd.DataFrame:
    """Elo and match counts of the items with these texts: index = texts; elo, elo_matches (NaN
    where not given).

    Raises:
        TableError: two tables that give the items different ones, as one order of people is
            compared with all models.
    """
    first, *others = tables
    people = _people(first, stripped=stripped).reindex(texts)
    for other in others:
        elsewhere = _people(other, stripped=stripped).reindex(texts)
        differs = (
            (people.ne(elsewhere) & ~(people.isna() & elsewhere.isna())).any(axis=1).to_numpy()
        )
        if differs.any():
            a, b = first.provenance.model, other.provenance.model
            raise TableError(
                f"score tables {first.name!r} and {other.name!r} give {differs.sum():,} of "
                f"{len(people):,} items another Elo or number of matches (first: "
                f"{texts[int(np.argmax(differs))]!r}). Score or import one of them again from the "
                f"other's file, or compare them apart: models=[{a}], then models=[{b}]"
            )
    return people


def _people(table: ScoreTable, *, stripped: bool) -> pd.DataFrame:
    """Elo and match counts by text, for the texts that a reward matrix can hold."""
    rows = table.rows.drop_duplicates("text", keep=False)
    # As the reward matrix does: of texts that differ in outer white space only, the barest.
    if stripped:
        barest = rows.loc[rows["text"].str.len().sort_values(kind="stable").index]
        rows = barest.assign(text=barest["text"].str.strip()).drop_duplicates("text")
    return rows.set_index("text").reindex(columns=["elo", "elo_matches"]).astype(float)


def _left_out(tables: TableSet, rated: Mapping[str, list[ScoreTable]]) -> list[str]:
    """Which tables have no Elo, and prompts on which the items have another one."""
    bare = {
        p: [t.provenance.model for t in tables.by_prompt[p] if not t.has_elo]
        for p in tables.prompts
    }
    elo = {p: _people(members[0], stripped=False)["elo"] for p, members in rated.items()}
    first = next(iter(elo))
    return [
        *(
            f"{p}: no Elo in the scores of {', '.join(tables.labels[m] for m in without)}"
            for p, without in bare.items()
            if without
        ),
        *(
            f"{p}: the items have another Elo than on {first}"
            for p in elo
            if (elo[first] - elo[p]).abs().max() > 0
        ),
        *(
            [f"{len(tables.wordings)} wordings looked at together: not compared with people"]
            if tables.wordings
            else []
        ),
    ]


def _from_people_to_models(
    rewards: pd.DataFrame, difference: pd.DataFrame, listed: pd.DataFrame, rhos: pd.Series
) -> pd.DataFrame:
    """Some items' ranks by each rater, people first, then the models as given: group, name, rater,
    rank, ρ (the rater's correlation with people), behind (one of the items that stand for all,
    evenly over the logarithm of people's rank)."""
    names, people = difference["name"].to_numpy(), difference["human_rank"].to_numpy()
    farthest = set(listed.loc[listed["rank"] <= FARTHEST, "name"])
    order = people.argsort(kind="stable")
    groups = {
        FIRST: list(order[:FOLLOWED]),
        APART: [row for row, name in enumerate(names) if name in farthest],
    }
    spaced = np.unique(np.geomspace(1, len(order), BEHIND).astype(int)) - 1
    models = rankdata(-rewards.to_numpy(), axis=0)  # (items, models)
    columns = {"rater": [PEOPLE, *rewards], "ρ": [np.nan, *rhos[list(rewards)]]}
    pieces = []
    for group, rows in groups.items():
        behind = [row for row in order[spaced] if row not in rows] if rows else []
        for row in [*rows, *behind]:
            row_of = {
                "rank": [people[row], *models[row]],
                "name": names[row],
                "group": group,
                "behind": row in behind,
            }
            pieces.append(pd.DataFrame(columns | row_of))
    return pd.concat(pieces, ignore_index=True)


def _agreement_result(taus: pd.DataFrame) -> Result:
    """Kendall's tau of every two raters, people among them.

    Source: Christian et al. 2025, Figure A5.
    """
    plot = Heatmap(value="kendall", symmetric=True, order=True, label="Kendall's τ-b")
    return Result("people_agreement", taus, plot=plot, method="people")


def _correlation_result(
    tables: TableSet, correlation: pd.DataFrame, prompts: list[str], notes: list[str]
) -> Result:
    """Each model's correlation with people; the headline is on the first prompt whose polarity is
    known."""
    signs = {p: sign for p in prompts if (sign := tables.reading.polarity_of(p))}
    prompt = next(iter(signs), prompts[0])
    rows = correlation[correlation["prompt"] == prompt]
    rows = rows.assign(agreement=signs.get(prompt, 1) * rows["spearman"])
    tested = None if rows["random_head_holm"].isna().all() else "random_head_holm"
    apart = rows[tested] <= LEVEL if tested else (rows["low"] > 0) | (rows["high"] < 0)
    agreeing = rows[apart & (rows["agreement"] > 0)]
    found = agreeing if signs and len(agreeing) else rows[apart]
    how = ("disagree" if len(found) and agreeing.empty else "agree") if signs else "correlate"
    sizes = found["spearman"].abs() if len(found) else rows["agreement"]
    most = rows.loc[sizes.idxmax()]
    label, number = tables.labels[most["model"]], f"ρ = {most['spearman']:.2f}"
    number += of_random_heads(most) if tested else _interval(most)
    if found.empty:
        itself = " by itself" if tested else ""
        said = f"no model is found to {how} with people{itself}; nearest, {label}"
    elif len(rows) == 1:
        said = f"{label} {how}s with people"
    else:
        themselves = " by themselves" if tested else ""
        said = f"{len(found)} of {len(rows)} models {how} with people{themselves}; most, {label}"
    agreement = correlation["spearman"] * correlation["prompt"].map(signs).fillna(1)
    order = -agreement.groupby(correlation["model"]).transform("mean")  # closest to people first
    together = 1 < len(prompts) <= MANY_PROMPTS
    effect = Effect(
        "spearman",
        "ρ with people",
        "low",
        "high",
        p=tested,
        null=0.0,
        of=tables.things,
        symbol="spearman",
        band=tested and "heads_within",
    )
    return Result.of_row(
        most,
        "human_correlation",
        correlation,
        effect,
        f"On {prompt}, {said}: {number}.",
        plot=Forest.of(
            effect,
            data=correlation.iloc[order.argsort(kind="stable")],
            group="prompt" if together else None,
            tabs=("candidates",) if together else ("prompt",),
            xlabel="Spearman's ρ of rewards and people's Elo",
        ),
        method="people",
        notes=tuple(notes),
        summary={
            f"{r.prompt}/human_spearman/{r.model}": float(r.spearman)
            for r in correlation.itertuples()
        },
    )


def _interval(row: pd.Series) -> str:
    """` [low, high]`; empty where there are too few items for one."""
    return f" [{row['low']:.2f}, {row['high']:.2f}]" if np.isfinite(row["low"]) else ""


def _difference_result(difference: pd.DataFrame, lines: pd.DataFrame) -> Result:
    """Every item's difference in rank; the headline counts the sure ones, where there are
    intervals."""
    rows = difference[difference["prompt"] == difference["prompt"].iloc[0]]
    plot = Lines(
        data=lines,
        x="rater",
        y="rank",
        group="name",
        panel="group",
        falling=True,
        log_y=True,
        ends=True,
        marks=True,
        behind="behind",
        beside="ρ",
        ylabel="rank",
    )
    effect = Effect(
        "difference",
        "models' rank − people's rank",
        "low",
        "high",
        p="p_adjusted",
        null=0.0,
        n="n_models",
        of="models",
    )
    if rows["p"].isna().all():
        return Result("rank_difference", difference, plot=plot, method="people", effect=effect)
    apart = rows["difference"][surely_apart(rows)]
    share = len(apart) / len(rows)
    return Result(
        "rank_difference",
        difference,
        headline=f"On {rows['prompt'].iloc[0]}, models and people surely differ on {share:.0%} of "
        f"{len(rows):,} items: models rank {(apart < 0).sum():,} higher, {(apart > 0).sum():,} "
        "lower.",
        plot=plot,
        method="people",
        weight=weight_of(share, share=1 / 2),
        estimate=Estimate("share of items that differ", share, len(rows), "items"),
        effect=effect,
    )


def _valued_result(valued: pd.DataFrame, items: int) -> Result:
    """The items at both ends; the headline names the farthest on the first prompt that has any."""
    if valued.empty:
        return Result("valued", valued, method="people")
    low, high = surest_interval(valued)
    drawn = (
        valued[valued["rank"] <= SHOWN]
        .assign(low=low, high=high)
        .sort_values("difference", kind="stable")
    )
    first = valued[(valued["prompt"] == valued["prompt"].iloc[0]) & (valued["rank"] == 1)]
    named = {
        r.end: f"{literal(r.name)} ({r.model_rank:,.0f} against {r.human_rank:,.0f})"
        for r in first.itertuples(index=False)
    }
    most = drawn.loc[first["difference"].abs().idxmax()]
    size, low, high = (most[["difference", "low", "high"]] / items).astype(float)
    number = Estimate("rank difference / items", size, items, "items", low, high, null=0.0)
    return Result(
        "valued",
        valued,
        headline=f"On {most['prompt']}, models rank {named.get(ENDS[0], 'no item')} farthest "
        f"above people, {named.get(ENDS[1], 'no item')} farthest below.",
        plot=Forest(
            data=drawn, row="name", estimate="difference", xlabel="models' rank − people's rank"
        ),
        method="people",
        weight=number.weight(share=1 / 2),
        estimate=number,
    )
