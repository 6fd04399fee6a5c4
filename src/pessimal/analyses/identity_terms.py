"""Words that name groups of people against other words as frequent and as positive, one model at a
time.

Measures the reward of a bare term as the whole answer. Does not see how a model treats people, nor
text about them, nor why a reward is what it is. Words of one topic are liked or disliked together,
whatever the topic, so an axis of identity terms is held against everyday topics that are matched in
the same way.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analyses.analysis import (
    Heads,
    Meanings,
    Needs,
    Options,
    States,
    analysis,
    difference,
    heads_of_model,
    of_random_heads,
    quoted,
    whose,
)
from pessimal.analyses.checks import check_rewards, check_varied
from pessimal.analyses.matching import (
    MatchedSets,
    matched_controls,
    matched_sets,
    stems_of,
)
from pessimal.analyses.nulls import random_heads
from pessimal.analyses.regression import taste
from pessimal.errors import TableError
from pessimal.plots import Forest, Heatmap
from pessimal.statistics import LEVEL, holm
from pessimal.tables.result import Effect, Result
from pessimal.tables.table_set import TableSet
from pessimal.tables.word_lists import half_sum, stem_groups, word_starts
from pessimal.texts import literal

ALL_AXES = "all"
HALF_SUM, HALF_DIFFERENCE, BOTH = "half_sum", "half_difference", "both_frames"
"""Measures of two opposite prompts, as tables name them."""
OPPOSITE = {HALF_SUM: "liked whatever is asked", HALF_DIFFERENCE: "taken for something good"}
LEAST_STEMS = 3
LEAST_TOPICS = 10
NAMED_CONTROLS = 5
BELOW, ABOVE = "farthest below", "farthest above"
NAMED = 10
"""Terms named at each end, a model."""
_LINES = (
    (files("pessimal.analyses") / "everyday_topics.txt").read_text(encoding="utf-8").splitlines()
)
TOPICS = {name: tuple(words.split()) for name, words in (line.split(": ") for line in _LINES)}
"""Everyday topics: words at home in most vocabularies that name no group of people by who they are.
Several name people by what they do, as identity terms are about people."""


@dataclass(frozen=True)
class IdentityMatches:
    """Terms and topics with their controls in one vocabulary; serves every model that has the same
    words."""

    words: pd.Index
    """All words of known frequency: those over which a model's spread of rewards is taken."""
    controls: pd.DataFrame
    """Of the terms: group (axis), term, control, distance."""
    axes: dict[str, MatchedSets]
    """By axis, and `ALL_AXES` for all in one; axes with fewer than `LEAST_STEMS` matched stems are
    left out."""
    topics: dict[str, MatchedSets]
    """By topic, likewise."""
    terms: MatchedSets
    """Every term of every axis."""
    named: pd.DataFrame
    """Of each of `terms`: axis, term, n_controls, controls (the nearest, named)."""
    meanings: np.ndarray | None
    """(words, directions) vectors of meaning."""
    design: np.ndarray
    """(words, k) what controls are matched on: 1, frequency, and of each lexicon the rating and
    whether there is one."""
    resemblance: dict[str, float]
    """By axis: how far a taste of variance 1 for each direction of meaning moves it beyond what it
    moves single words, squared. An axis of like words moves farther than one of unlike words; all
    axes together move the farther, the more they resemble one another."""
    typical: float
    """The mean of the same over topics."""


def match_identity(
    axes: Mapping[str, Sequence[str]],
    covariates: pd.DataFrame,
    *,
    topics: Mapping[str, Sequence[str]] = TOPICS,
    banned: Collection[str] = (),
    meanings: Meanings | None = None,
) -> IdentityMatches:
    """Controls for the terms of each axis, and for the words of the topics that the axes are held
    against.

    No control, of a term or of a topic's word, is an identity term of any axis or shares a stem
    with one.

    Args:
        axes: terms by axis, lower case.
        covariates: one row a word that the model has; zipf, and ratings by lexicon (see
            `matched_controls`).
        topics: everyday words by topic.
        banned: further words that must not be controls, in any form.
        meanings: vectors of meaning of words; without it each axis is taken to move as a topic
            does, and axes to be independent.

    Raises:
        TableError: no axis, or too few topics, have enough words with controls.
    """
    if ALL_AXES in axes:
        raise TableError(f"An axis cannot be named {ALL_AXES!r}: that is all axes together.")
    banned = [*banned, *(term for terms in axes.values() for term in terms)]
    controls = matched_controls(axes, covariates, banned=banned)
    words = covariates.index[covariates["zipf"].notna().to_numpy()]
    places = {word: place for place, word in enumerate(words.tolist())}

    def by_group(matches: pd.DataFrame) -> dict[str, MatchedSets]:
        sets = {
            group: matched_sets(rows, places)
            for group, rows in matches.groupby("group", sort=False)
        }
        return {group: each for group, each in sets.items() if each.units >= LEAST_STEMS}

    matched, everyday = (
        by_group(controls),
        by_group(matched_controls(topics, covariates, banned=banned)),
    )
    if not matched or len(everyday) < LEAST_TOPICS:
        raise TableError(
            f"Of {len(axes)} axes {len(matched)}, and of {len(topics)} everyday topics "
            f"{len(everyday)}, have at least {LEAST_STEMS} words with controls among the "
            f"{len(words):,} words of known frequency; needed are 1 axis and {LEAST_TOPICS} "
            "topics. Scan a whole vocabulary, or give longer lists: identity.AXIS.terms=[...]"
        )
    # A term on two axes is one word; short axes are in it too, as here they are not alone.
    once = controls[controls["group"] == controls.groupby("term")["group"].transform("first")]
    stems = (
        once.drop_duplicates("term")
        .groupby("group")["term"]
        .agg(lambda terms: len(set(stems_of(terms))))
    )
    named = controls.groupby(["group", "term"], sort=False)["control"].agg(
        n_controls="size", controls=lambda near: ", ".join(near.iloc[:NAMED_CONTROLS])
    )
    sets = matched | {ALL_AXES: matched_sets(once, places)}
    covered = covariates.loc[words]
    rated = covered.drop(columns="zipf")
    design = np.column_stack(
        [np.ones(len(covered)), covered["zipf"], rated.fillna(0.0), rated.notna()]
    ).astype(float)
    design = design[:, [0, *np.flatnonzero(np.ptp(design, axis=0))]]  # without what does not vary
    if meanings is None:
        alike, typical, moved = (
            None,
            1.0,
            dict.fromkeys(matched, 1.0) | {ALL_AXES: float(((stems / stems.sum()) ** 2).sum())},
        )
    else:
        alike = meanings(words.tolist())
        noise = _within([*sets.values(), *everyday.values()], alike).sum()
        # What is beyond the noise of words that are matched, as it is with rewards.
        beyond = {
            name: _moved(members, alike) - noise * members.mean_variance
            for name, members in [*everyday.items(), *sets.items()]
        }
        typical = np.mean([beyond[topic] for topic in everyday])
        moved = {name: max(0.0, beyond[name]) for name in sets}
    return IdentityMatches(
        words=words,
        controls=controls,
        axes=sets,
        topics=everyday,
        terms=matched_sets(controls, places),
        named=named.rename_axis(["axis", "term"]).reset_index(),
        meanings=alike,
        design=design,
        resemblance=moved,
        typical=float(typical),
    )


def _within(groups: Sequence[MatchedSets], grid: np.ndarray) -> np.ndarray:
    """Variance of a word about the words it is matched with, (measures,): controls within their
    sets, pooled."""
    squares, freedom = zip(*(sets.within(grid) for sets in groups), strict=True)
    return np.sum(squares, axis=0) / sum(freedom)


def _moved(sets: MatchedSets, meanings: np.ndarray) -> float:
    """How far a taste of variance 1 for each direction of meaning moves the mean over the sets,
    squared."""
    return float(np.square(sets.unit_effects(meanings).mean(axis=0)).sum())


def identity_effects(
    rewards: pd.DataFrame,
    matches: IdentityMatches,
    *,
    pair: tuple[str, str] | None = None,
    main: str | None = None,
    heads: States | None = None,
    confidence: float = 0.95,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """How far identity terms lie from their controls, under each prompt and under opposite prompts
    together.

    A term's effect is its reward less the mean reward of its controls; an axis' effect is the mean
    over its stems. It is measured under each prompt (by its name); as `half_sum` of opposite
    prompts, where what a word means cancels out; as `half_difference`, positive less negative; and
    as `both_frames`, the effect under the prompt that penalises less, with the p of the
    intersection-union test. `d` is in standard deviations of the rewards over all words (root mean
    square over both prompts; one divisor for all measures and axes).

    `p` is of the null hypothesis that the axis is one more everyday topic: the effect over
    `null_sd`, which has topics and word noise in it (t, as many degrees of freedom as topics). A
    topic's variance is that of the topics, or of a taste for a direction of meaning
    (`regression.taste`, over all words) where that is larger, times the axis' resemblance
    (`IdentityMatches`). The interval is about the axis: the scatter of its terms, or that of words
    where this is larger, and topics (Satterthwaite). All count how often controls are
    shared.

    Args:
        rewards: words × prompts; must hold every word of `matches.words`.
        matches: of `match_identity`.
        pair: the prompts that good words and that bad words answer; without it there is no measure
            of opposite prompts.
        main: the measure of single terms; else the half-sum of the pair, else the first prompt.
        heads: states that random heads would be on; without them random_head is missing.
        confidence: of the intervals.

    Returns:
        axes: axis, measure, n (terms), n_stems, n_controls, effect, low, high, d, reward_sd,
            topic_sd (of a topic's true
        effect about 0), n_topics, null_sd, p, random_head (share of random heads that
        move the axis as far; of `both_frames`, the larger of the two prompts'). terms: axis, term,
        n_controls, an effect per measure, measure (the main one), d (on it), controls_below (share
        of controls that lie below the term on it), controls (the nearest).

    Raises:
        TableError: rewards under a prompt do not vary.

    Source: ours. Berger 1982 for the intersection-union test.
    """
    values = rewards.iloc[rewards.index.get_indexer(matches.words)]
    check_rewards(values)
    check_varied(values)
    main = main or (HALF_SUM if pair else values.columns[0])
    spread = np.sqrt(values.var())
    if pair:
        spread[main] = np.sqrt((spread[list(pair)] ** 2).mean())
        a, b = (values[name] for name in pair)
        values = values.assign(**{HALF_SUM: (a + b) / 2, HALF_DIFFERENCE: (a - b) / 2})
    measures, grid = list(values), values.to_numpy(dtype=float)  # (words, measures)
    reward_sd, topics = float(spread[main]), list(matches.topics.values())
    noise = _within([*matches.axes.values(), *topics], grid)
    # Variance about 0 of a topic's true effect; 0 where topics move no farther than their words do.
    # (topics, measures)
    moved = np.array([sets.unit_effects(grid).mean(axis=0) for sets in topics])
    by_chance = noise * np.array([[sets.mean_variance] for sets in topics])
    topic = np.maximum(0.0, (moved**2 - by_chance).mean(axis=0))
    liking = None if matches.meanings is None else taste(matches.design, grid, matches.meanings)
    # Topics are few: where all words together show a stronger taste, that counts.
    by_topics = np.maximum(topic / matches.typical, liking.variance if liking else 0.0)
    shares = _random_heads(matches, grid, measures, pair, heads)
    pieces = []
    for axis, sets in matches.axes.items():
        variance = by_topics * matches.resemblance[axis]
        effects = _axis(sets, grid, noise, variance, df=len(topics), confidence=confidence)
        columns: dict[str, Any] = effects | {"measure": measures, "random_head": shares[axis]}
        if pair:  # the weaker penalty, and the larger one-sided p
            two = [measures.index(name) for name in pair]
            both: dict[str, str | float] = {
                "measure": BOTH,
                "effect": effects["effect"][two].max(),
                "p": effects["p_below"][two].max(),
                "random_head": shares[axis][two].max(),
            }
            columns = {n: [*column, both.get(n, np.nan)] for n, column in columns.items()}
        counts = {"n": len(sets.terms), "n_stems": sets.units, "n_controls": sets.distinct}
        pieces.append(pd.DataFrame({"axis": axis, **counts, **columns}))
    axes = pd.concat(pieces, ignore_index=True).assign(reward_sd=reward_sd, n_topics=len(topics))
    axes["d"] = axes["effect"] / reward_sd
    return axes[_COLUMNS], _terms(matches, measures, grid, main, reward_sd)


_COLUMNS = [
    "axis", "measure", "n", "n_stems", "n_controls", "effect", "low", "high", "d", "reward_sd",
    "topic_sd", "n_topics", "null_sd", "p", "random_head",
]  # fmt: skip


def _random_heads(
    matches: IdentityMatches,
    grid: np.ndarray,
    measures: list[str],
    pair: tuple[str, str] | None,
    heads: States | None,
) -> dict[str, np.ndarray]:
    """By axis, the share of random heads that move it as far, (measures,)."""
    if heads is None:
        return dict.fromkeys(matches.axes, np.full(len(measures), np.nan))
    words = matches.words.tolist()
    both = {HALF_SUM: half_sum(*pair), HALF_DIFFERENCE: difference(*pair)} if pair else {}
    states = [heads(words, both.get(measure, measure)) for measure in measures]

    def effects(rewards: np.ndarray, rows: np.ndarray) -> np.ndarray:
        weights = np.column_stack([sets.weights(rows)[rows] for sets in matches.axes.values()])
        return weights.T @ rewards

    stems = stem_groups(matches.words)
    untrained = random_heads(effects, grid, states, matches.design, stems)
    return dict(zip(matches.axes, untrained.share, strict=True))


def _axis(
    sets: MatchedSets,
    grid: np.ndarray,
    noise: np.ndarray,
    topic: np.ndarray,
    *,
    df: int,
    confidence: float,
) -> dict[str, np.ndarray]:
    """effect, low, high, errors and p, (measures,) each."""
    units = sets.unit_effects(grid)  # (stems, measures)
    effect = units.mean(axis=0)
    scatter = ((units - effect) ** 2).sum(axis=0) / sets.scatter_expected * sets.mean_variance
    noise = noise * sets.mean_variance
    # Terms of one axis may scatter less than words do; an interval narrower than chance would
    # contradict p.
    scatter = np.maximum(scatter, noise)
    total, null_sd = scatter + topic, np.sqrt(noise + topic)
    # A measure that is 0 for all words (prompts that mirror one another exactly) has neither error
    # nor effect.
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = total**2 / (scatter**2 / (sets.units - 1) + topic**2 / df)
        reach = np.nan_to_num(stats.t.ppf((1 + confidence) / 2, freedom)) * np.sqrt(total)
        under_null = np.nan_to_num(effect / null_sd)
    p = {"p": 2 * stats.t.sf(np.abs(under_null), df), "p_below": stats.t.cdf(under_null, df)}
    errors = {"topic_sd": np.sqrt(topic), "null_sd": null_sd}
    return {"effect": effect, "low": effect - reach, "high": effect + reach, **errors, **p}


def _terms(
    matches: IdentityMatches, measures: list[str], grid: np.ndarray, main: str, reward_sd: float
) -> pd.DataFrame:
    """Every matched term, on its own; terms of axes too short to be tested as well."""
    sets, column, named = matches.terms, grid[:, measures.index(main)], matches.named
    effects = pd.DataFrame(sets.term_effects(grid), columns=measures)
    lower = column[sets.controls] < np.repeat(column[sets.terms], sets.counts)
    effects["measure"], effects["d"] = main, effects[main] / reward_sd
    effects["controls_below"] = np.add.reduceat(lower.astype(float), sets.starts) / sets.counts
    return pd.concat([named.drop(columns="controls"), effects, named["controls"]], axis=1)


def corrected(effects: pd.DataFrame) -> pd.DataFrame:
    """`effects` of one or several models with p_holm: the larger of p and random_head, corrected
    for all models × axes of one measure.

    Each measure is a family of its own, as it answers another question; so are all axes together,
    one test a model.
    """
    together = (effects["axis"] == ALL_AXES).rename("together")
    larger = effects[["p", "random_head"]].max(axis=1)
    families = larger.groupby([effects["measure"], together], sort=False)
    return effects.assign(p_holm=families.transform(holm))


@analysis("identity_terms", Needs(prompts=1, frequencies=True, identity=True), place=130)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Identity terms against matched controls: all together, by axis, and one by one."""
    axes = {
        axis: list(dict.fromkeys(t.strip().lower() for t in a.terms))
        for axis, a in options.identity.items()
    }
    pair = next(iter(tables.opposite_pairs()), None)
    columns_by_model = [tables.columns_of(model) for model in tables.models]
    main = (
        HALF_SUM
        if pair
        else max(
            tables.columns,
            key=lambda column: sum(column in columns for columns in columns_by_model),
        )
    )
    settings: dict[str, Any] = {"confidence": options.confidence, "pair": pair, "main": main}
    vocabularies: dict[tuple, IdentityMatches | TableError] = {}
    effects: list[pd.DataFrame] = []
    terms: list[pd.DataFrame] = []
    left_out: dict[str, list[str]] = {}
    by_model: dict[str, Heads | None] = {}
    for model, columns in zip(tables.models, columns_by_model, strict=True):
        try:
            if missing := [name for name in pair or (main,) if name not in columns]:
                raise TableError(f"not scanned on {' and '.join(missing)}, as others are")
            matches = _matches(tables, model, axes, options, vocabularies)
            heads = by_model[model] = heads_of_model(tables, model, options)
            tables_of = identity_effects(tables.words(model), matches, heads=heads, **settings)
            tables_of[0]["states"] = heads.of if heads else ""
        except TableError as error:
            left_out.setdefault(str(error), []).append(tables.labels[model])
            continue
        for collected, table in zip((effects, terms), tables_of, strict=True):
            collected.append(table.assign(model=model)[["model", *table]])
    notes = [*tables.without_columns(), *whose(by_model, tables.labels)]
    notes += [f"{', '.join(m)}: {why}" for why, m in left_out.items()]
    if not effects:
        raise TableError("; ".join(notes))
    table = _with_ends(pd.concat(terms, ignore_index=True)).assign(candidates=tables.candidates)
    for axis, listed in axes.items():
        with_controls = len({*listed} & {*table["term"]})
        if with_controls < len(listed):
            notes.append(f"{axis}: {with_controls} of {len(listed)} terms have enough controls")
    found = corrected(pd.concat(effects, ignore_index=True))
    return [
        *_effects(tables, found, main, pair, tuple(notes)),
        Result("identity_terms", table, method="identity_terms"),
    ]


def _matches(
    tables: TableSet, model: str, axes: Mapping[str, Sequence[str]], options: Options, cache: dict
) -> IdentityMatches:
    """The matches in a model's vocabulary; models of one vocabulary share them through `cache`."""
    first = next(iter(tables.of_model(model).values()))
    key = (first.provenance.candidates_digest, len(tables.words(model)))
    if key not in cache:
        words = word_starts(tables.tokens(model).index)
        covariates = options.word_frequencies.zipf(words).to_frame("zipf")
        for name, lexicon in options.lexicons.items():
            covariates[name] = lexicon.reindex(words)
        try:
            cache[key] = match_identity(axes, covariates, meanings=options.meanings)
        except TableError as error:
            cache[key] = error
    if isinstance(cache[key], TableError):
        raise cache[key]
    return cache[key]


def _effects(
    tables: TableSet,
    effects: pd.DataFrame,
    main: str,
    pair: tuple[str, str] | None,
    notes: tuple[str, ...],
) -> list[Result]:
    """Models on all axes together, unless only a single axis stands apart; and axis × model."""
    effects["candidates"] = tables.candidates
    in_sd = effects.assign(**{end: effects[end] / effects["reward_sd"] for end in ("low", "high")})
    rows, together = in_sd[in_sd["measure"] == main], in_sd[in_sd["axis"] == ALL_AXES]
    row = _heaviest(rows)
    sure = effects[(effects["p_holm"] < LEVEL) & (effects["axis"] == row["axis"])]
    alike = sure[(sure["measure"] == main) & (sure["d"] * row["d"] > 0)]
    in_both = row["model"] in set(sure[sure["measure"] == BOTH]["model"])
    where = "each of both prompts" if in_both else quoted(half_sum(*pair) if pair else main)
    terms = "identity terms" if row["axis"] == ALL_AXES else f"terms of {literal(row['axis'])}"
    label, far = tables.labels[row["model"]], _far(row["d"])
    stem = "identity" if tables.candidates == "vocabulary" else f"{tables.candidates}/identity"
    effect = Effect(
        "d", "SD from controls", p="p_holm", null=0.0, of="terms", symbol="d", unit="SD"
    )
    number = replace(effect, low="low", high="high")  # of the same table in standard deviations
    share = 1 if pair else 1 / 2
    estimate, n_models = number.at(row), rows["model"].nunique()
    others, heads = alike["model"].ne(row["model"]).sum(), of_random_heads(row)
    who = f"{others} of {n_models - 1} other models" if n_models > 2 else "the other model"
    besides = f"; so {'does' if others == 1 else 'do'} {who}"
    first = Result(
        "identity",
        effects,
        headline=f"On {where}, {label} ranks {terms} {far} matched words"
        f"{besides if others else ''}{heads}."
        if len(alike)
        else f"On {where}, identity terms rank like matched words; the farthest are those of "
        f"{label}, {far}{heads}.",
        plot=Forest.of(
            number,
            data=together[together["measure"].isin(pair or (main,))],
            group="measure",
            xlabel="identity terms less matched controls (SD of rewards)",
            tabs=("candidates",),
        ),
        method="identity_terms",
        weight=estimate.weight(share=share),
        estimate=estimate,
        notes=notes,
        summary={
            f"{stem}/{r.model}/d": float(r.d)
            for r in together[together["measure"] == main].itertuples()
        },
        effect=effect,
    )
    rows = rows[rows["axis"] != ALL_AXES]
    if rows.empty:
        return [first]
    names = OPPOSITE if pair else {main: f"on {main}"}
    table = in_sd[in_sd["measure"].isin(names)]
    table = table[["axis", "model", "measure", "n", "d", "low", "high", "p_holm", "candidates"]]
    table = table.sort_values(
        "axis", key=lambda axis: axis == ALL_AXES, kind="stable", ignore_index=True
    )
    shown = table.assign(measure=table["measure"].map(names)).replace(
        {"axis": {ALL_AXES: "all together"}}
    )
    row = _heaviest(rows)
    heatmap = Heatmap(
        data=shown,
        row="axis",
        column="model",
        value="d",
        panel="measure",
        diverging=True,
        label="SD",
        tabs=("candidates",),
    )
    second = Result.of_row(
        row,
        "identity_axes",
        table,
        number,
        f"{(rows['p_holm'] < LEVEL).sum()} of {len(rows)} axes × models stand apart from everyday "
        f"topics; farthest is {literal(row['axis'])} in {tables.labels[row['model']]}, "
        f"{_far(row['d'])} controls.",
        share=share / 8,  # a part of what the first result says
        plot=heatmap,
        method="identity_terms",
    )
    return [first, second]


def _heaviest(rows: pd.DataFrame) -> pd.Series:
    """The row that is significant, else of all axes together, and then the farthest."""
    ranks = rows.assign(
        sure=rows["p_holm"] < LEVEL, all=rows["axis"] == ALL_AXES, far=rows["d"].abs()
    )
    return rows.loc[ranks.sort_values(["sure", "all", "far"], kind="stable").index[-1]]


def _far(d: float) -> str:
    return f"{abs(d):.1f} SD {'below' if d < 0 else 'above'}"


def _with_ends(terms: pd.DataFrame) -> pd.DataFrame:
    """Terms by model, lowest first; `end` marks at most `NAMED` at each end, and at most half of a
    model's terms."""
    terms = terms.sort_values(["model", "d", "axis", "term"], ignore_index=True)
    place, size = (
        terms.groupby("model").cumcount(),
        terms.groupby("model")["term"].transform("size"),
    )
    named = np.minimum(NAMED, np.maximum(1, size // 2))
    below, above = (place < named) & (terms["d"] < 0), (place >= size - named) & (terms["d"] > 0)
    return terms.assign(end=np.select([below, above], [BELOW, ABOVE], ""))
