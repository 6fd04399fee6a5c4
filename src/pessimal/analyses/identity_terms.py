"""Words that name groups of people against other words as frequent and as positive, one model at a
time.

Measures the reward of a bare term as the whole answer. Does not see how a model treats people, nor
text about them, nor why a reward is what it is. Words of one topic are liked or disliked together,
whatever the topic, so an axis of identity terms is held against everyday topics that are matched in
the same way. Controls are chosen without any reward.
"""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files

import numpy as np
import pandas as pd
from scipy import stats
from scipy.sparse import csr_matrix

from pessimal.analyses.analysis import (
    Heads,
    Meanings,
    Needs,
    Options,
    States,
    analysis,
    check_rewards,
    check_varied,
    difference,
    found_in,
    heads_of_model,
    note_errors,
    notes_on_states,
    quoted,
    random_head_clause,
)
from pessimal.analyses.nulls import have_states, random_heads, taste
from pessimal.errors import TableError
from pessimal.plots import Forest, Heatmap
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect, Result
from pessimal.tables.table_set import TableSet
from pessimal.tables.word_lists import half_sum, stem_groups, stems, word_starts
from pessimal.texts import literal

ALL_AXES = "all"
HALF_SUM, HALF_DIFFERENCE, BOTH = "half_sum", "half_difference", "both_frames"
"""Measures of two opposite prompts, as tables name them."""
OPPOSITE = {HALF_SUM: "liked whatever is asked", HALF_DIFFERENCE: "taken for something good"}
MATCHED = "words as frequent and as positive"
LEAST_STEMS, LEAST_TOPICS = 3, 10
MAX_CONTROLS, LEAST_CONTROLS, LISTED_CONTROLS = 20, 5, 5
ZIPF_CALIPER = 0.25
"""Farthest a control's frequency may lie from the term's, in Zipf units: a factor of 1.8 either
way."""
VALENCE_CALIPER = 0.5
"""Farthest its rating may lie, in standard deviations of the lexicon's ratings."""
SHORTEST = 3
"""Letters a control must have: shorter ones are function words, abbreviations and pieces of
words."""
ROUNDING = 1e-9
"""4.25 − 4.00 is .25 as people count, not always as floats do."""
IRREGULAR = {
    "women": "woman",
    "men": "man",
    "gentlemen": "gentleman",
    "ladies": "lady",
    "children": "child",
}
"""Plurals among our terms that Porter's rules do not bring to their singular."""
_LINES = (
    (files("pessimal.analyses") / "everyday_topics.txt").read_text(encoding="utf-8").splitlines()
)
TOPICS = {name: tuple(words.split()) for name, words in (line.split(": ") for line in _LINES)}
"""Everyday topics: words at home in most vocabularies that name no group of people by who they are.
Several name people by what they do, as identity terms are about people."""


def stems_of(words: Sequence[str]) -> np.ndarray:
    """(n,) the stem that all forms of a word share (Porter 1980, and a few irregular plurals)."""
    return stems(pd.Index([IRREGULAR.get(word, word) for word in words], dtype=object))


def matched_controls(
    groups: Mapping[str, Sequence[str]],
    covariates: pd.DataFrame,
    *,
    banned: Collection[str] = (),
    controls: int = MAX_CONTROLS,
    minimum: int = LEAST_CONTROLS,
) -> pd.DataFrame:
    """The nearest control words of each term of each group.

    A control has at least three letters, shares a stem with no word of the term's group and no
    banned word, is rated by exactly those lexicons that rate the term, and lies within the calipers
    on frequency and on each rating. Of these the `controls` nearest are taken (Euclidean, in units
    of the calipers). Among equally near ones, of which rounded frequencies make many, a checksum of
    both words decides: the first of the alphabet would be words of one spelling. A word may be a
    control of several terms.

    Args:
        groups: terms by group; those without a known frequency, or not among the covariates, get no
            controls.
        covariates: index = word, each once; zipf, and a column of ratings a lexicon (missing: not
            rated).
        banned: further words that must not be controls, in any form.
        controls: number of controls of a term, at most.
        minimum: terms with fewer are left out.

    Returns:
        One row per group, term and control, in the order given, nearest controls first: group,
        term, control, distance.
    """
    words, names = covariates.index, covariates.index.tolist()
    stem = stems_of(names)
    frequent = covariates["zipf"].notna().to_numpy()
    usable = frequent & (words.str.len() >= SHORTEST) & ~np.isin(stem, stems_of(list(banned)))
    ratings = covariates.drop(columns="zipf")
    spread = ratings.std().where(lambda sd: sd > 0, 1.0)
    scaled = [covariates["zipf"] / ZIPF_CALIPER, ratings / spread / VALENCE_CALIPER]
    scaled = np.nan_to_num(np.column_stack(scaled).astype(float))  # (words, covariates)
    rated = ratings.notna().to_numpy() @ (1 << np.arange(ratings.shape[1]))
    # Words rated by the same lexicons, in order of frequency, so that a caliper is a slice.
    strata = {}
    for kind in np.unique(rated):
        rows = np.flatnonzero(usable & (rated == kind))
        strata[kind] = rows[np.argsort(scaled[rows, 0], kind="stable")]
    places = {word: place for place, word in enumerate(names)}
    pieces = []
    for group, terms in groups.items():
        allowed = ~np.isin(stem, stems_of(list(terms)))
        for term in dict.fromkeys(terms):
            place = places.get(term)
            if place is None or not frequent[place]:
                continue
            rows = strata[rated[place]]
            reach = scaled[place, 0] + np.array([-1, 1]) * (1 + ROUNDING)
            rows = rows[slice(*np.searchsorted(scaled[rows, 0], reach))]
            rows = rows[allowed[rows]]
            gaps = np.abs(scaled[rows] - scaled[place])
            rows, gaps = (part[(gaps <= 1 + ROUNDING).all(axis=1)] for part in (rows, gaps))
            distance = np.round(np.sqrt((gaps**2).sum(axis=1)), 9)
            if len(rows) < minimum:
                continue
            farthest = np.sort(distance)[min(controls, len(rows)) - 1]
            rows, distance = rows[distance <= farthest], distance[distance <= farthest]
            lots = [zlib.crc32(f"{term} {names[row]}".encode()) for row in rows]
            order = np.lexsort((lots, distance))[:controls]
            pieces += [(group, term, names[rows[i]], distance[i]) for i in order]
    columns = ["group", "term", "control", "distance"]
    return pd.DataFrame(pieces, columns=columns).astype({"distance": float})


@dataclass(frozen=True)
class MatchedSets:
    """The matched sets of one group of terms, over a list of words. A *unit* is a stem: its terms
    are averaged. Its error counts that one control may serve several terms."""

    terms: np.ndarray
    """(terms,) place of each term."""
    controls: csr_matrix
    """(terms, words): means of each term's controls."""
    units: csr_matrix
    """(units, terms): means of each unit's terms."""

    @classmethod
    def from_groups(
        cls, matches: Mapping[str, pd.DataFrame], words: pd.Index
    ) -> "dict[str, MatchedSets]":
        """The sets of several groups, by name."""
        return {name: cls.from_matches(rows, words) for name, rows in matches.items() if len(rows)}

    @classmethod
    def from_matches(cls, matches: pd.DataFrame, words: pd.Index) -> "MatchedSets":
        """The sets of `matches` (see `matched_controls`, at least one), over words."""
        number = matches.groupby(["group", "term"], sort=False).ngroup().to_numpy()
        names = matches["term"].to_numpy()[np.unique(number, return_index=True)[1]]
        unit = pd.factorize(stems_of(names.tolist()))[0]
        control = words.get_indexer(matches["control"])
        means = 1 / np.bincount(number)[number], (number, control)
        averages = 1 / np.bincount(unit)[unit], (unit, np.arange(len(unit)))
        controls = csr_matrix(means, shape=(len(names), len(words)))
        return cls(words.get_indexer(names), controls, csr_matrix(averages))

    def term_effects(self, grid: np.ndarray) -> np.ndarray:
        """(terms, measures): each term less the mean of its controls. `grid` is (words,
        measures)."""
        return grid[self.terms] - self.controls @ grid

    def unit_effects(self, grid: np.ndarray) -> np.ndarray:
        """(units, measures): the terms' effects, averaged within each stem."""
        return self.units @ self.term_effects(grid)

    def mean_effects(self, grid: np.ndarray) -> np.ndarray:
        """(measures,): the mean of `unit_effects`."""
        return self.unit_effects(grid).mean(axis=0)

    def variances(self) -> tuple[float, float]:
        """The variance of the mean over units, and the expected mean square of the units' effects
        about it, both in units of one word's variance."""
        weights, units = self.units @ self.controls, self.units.shape[0]
        mean = 1 / units + float(np.square(weights.mean(axis=0)).sum())
        scatter = units + float(weights.power(2).sum()) - units * mean
        return mean, scatter

    def weights(self) -> np.ndarray:
        """(words,) the weights whose sum with any column is the mean of `unit_effects`."""
        terms = np.asarray(self.units.mean(axis=0))
        weights = -(terms @ self.controls).ravel()
        np.add.at(weights, self.terms, terms.ravel())
        return weights

    def scatter_within(self, grid: np.ndarray) -> tuple[np.ndarray, int]:
        """Sum of squares (measures,) of the controls about their sets' means, and its degrees of
        freedom."""
        counts = np.diff(self.controls.indptr)
        about = self.controls @ grid**2 - (self.controls @ grid) ** 2
        return counts @ about, int((counts - 1).sum())


@dataclass(frozen=True)
class IdentityMatches:
    """Terms and topics with their controls in one vocabulary; serves every model that has the same
    words."""

    words: pd.Index
    """All words of known frequency: those over which a model's spread of rewards is taken."""
    controls: pd.DataFrame
    """Controls of the terms: group (axis), term, control, distance."""
    axes: dict[str, pd.DataFrame]
    """Rows of `controls` by axis, and for `ALL_AXES` each term once; axes with fewer than
    `LEAST_STEMS` matched stems are left out."""
    topics: list[MatchedSets]
    """Sets of each topic, likewise."""
    design: np.ndarray
    """(words, k) the covariates of matching: 1, frequency, and of each lexicon the rating and
    whether there is one."""
    vectors: np.ndarray | None
    """(words, directions) vectors of meaning."""
    resemblance: dict[str, float]
    """By axis: how far a taste of variance 1 for each direction of meaning moves it beyond what it
    moves single words, squared. Axes together move the farther, the more they resemble one
    another."""
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
    words = covariates.index[covariates["zipf"].notna().to_numpy()]

    def match(groups: Mapping[str, Sequence[str]]) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
        rows = matched_controls(groups, covariates, banned=banned)
        by_name = dict(list(rows.groupby("group", sort=False)))
        sizes = {name: len(set(stems_of(part["term"].tolist()))) for name, part in by_name.items()}
        return rows, {name: by_name[name] for name in sizes if sizes[name] >= LEAST_STEMS}

    (controls, matched), (_, everyday) = match(axes), match(topics)
    if not matched or len(everyday) < LEAST_TOPICS:
        raise TableError(
            f"Of {len(axes)} axes {len(matched)}, and of {len(topics)} everyday topics "
            f"{len(everyday)}, have at least {LEAST_STEMS} words with controls among the "
            f"{len(words):,} words of known frequency; needed are 1 axis and {LEAST_TOPICS} "
            "topics. Scan a whole vocabulary, or give longer lists: identity.AXIS.terms=[...]"
        )
    # A term on two axes is one word; short axes are in it too, as here they are not alone.
    once = controls[controls["group"] == controls.groupby("term")["group"].transform("first")]
    ratings = covariates.loc[words].drop(columns="zipf")
    columns = [np.ones(len(words)), covariates.loc[words, "zipf"]]
    design = np.column_stack([*columns, ratings.fillna(0.0), ratings.notna()]).astype(float)
    design = design[:, [0, *np.flatnonzero(np.ptp(design, axis=0))]]  # without constants
    matched[ALL_AXES] = once
    topic_sets = [*MatchedSets.from_groups(everyday, words).values()]
    shares = once.groupby("group")["term"].nunique() / once["term"].nunique()
    resemblance = dict.fromkeys(matched, 1.0) | {ALL_AXES: float(np.square(shares).sum())}
    vectors, typical = None, 1.0
    if meanings is not None:
        vectors = meanings(words.tolist())
        sets = MatchedSets.from_groups(matched, words)
        groups = [*topic_sets, *sets.values()]
        moved = np.array([group.mean_effects(vectors) for group in groups])
        chance = _noise(groups, vectors).sum() * np.array([g.variances()[0] for g in groups])
        beyond = np.square(moved).sum(axis=1) - chance
        typical = float(beyond[: len(topic_sets)].mean())
        moves = np.maximum(0.0, beyond[len(topic_sets) :]).tolist()
        resemblance = dict(zip(sets, moves, strict=True))
    return IdentityMatches(
        words=words,
        controls=controls,
        axes=matched,
        topics=topic_sets,
        design=design,
        vectors=vectors,
        resemblance=resemblance,
        typical=typical,
    )


def _noise(groups: Sequence[MatchedSets], grid: np.ndarray) -> np.ndarray:
    """Variance of a word about the words it is matched with, (measures,): controls within their
    sets, pooled."""
    squares, freedom = zip(*(group.scatter_within(grid) for group in groups), strict=True)
    return np.sum(squares, axis=0) / sum(freedom)


def identity_effects(
    rewards: pd.DataFrame,
    matches: IdentityMatches,
    *,
    pair: tuple[str, str] | None = None,
    main: str | None = None,
    heads: States | None = None,
    confidence: float = 0.95,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """By how much identity terms differ from their controls, under each prompt and under opposite
    prompts together.

    A term's effect is its reward less the mean reward of its controls; an axis' effect is the mean
    over its stems. It is measured under each prompt (by its name); as `half_sum` of opposite
    prompts, where what a word means cancels out; as `half_difference`, positive less negative; and
    as `both_frames`, the effect under the prompt that penalises less, with the p of the
    intersection-union test. `d` is in standard deviations of the rewards over all words (root mean
    square over both prompts; one divisor for all measures and axes).

    `p` is of the null hypothesis that the axis is one more everyday topic: the effect over
    `null_sd`, which has topics and word noise in it (t, as many degrees of freedom as topics). A
    topic's variance is that of the topics, or of a taste for a direction of meaning
    (`nulls.taste`, over all words) where that is larger, times the axis' resemblance
    (`IdentityMatches`). The interval is about the axis:
    the scatter of its terms, or that of words where this is larger, and topics (Satterthwaite).
    All count how often controls are shared.

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
        topic_sd (of a topic's true effect about 0), n_topics, null_sd, p, random_head (share of
        random heads that move the axis as far; of `both_frames`, the larger of the two prompts').
        terms: axis, term, n_controls, an effect per measure, measure (the main one), d (on it),
        controls_below (share of controls that lie below the term on it), controls (the nearest).

    Raises:
        TableError: rewards under a prompt do not vary.

    A null of its own: `experiments/nulls` shows that topics and their resemblance are needed, as
    all axes reject in 22 % of runs without them.

    Source: ours. Berger 1982 for the intersection-union test.
    """
    values = rewards.loc[matches.words]
    check_rewards(values)
    check_varied(values)
    main = main or (HALF_SUM if pair else values.columns[0])
    reward_sd = np.sqrt(values[[*pair] if pair else [main]].var().mean())
    if pair:
        a, b = (values[name] for name in pair)
        values = values.assign(**{HALF_SUM: (a + b) / 2, HALF_DIFFERENCE: (a - b) / 2})
    measures, grid = list(values), values.to_numpy(dtype=float)  # (words, measures)
    sets = MatchedSets.from_groups(matches.axes, matches.words)
    noise = _noise([*sets.values(), *matches.topics], grid)
    # Variance about 0 of a topic's true effect; 0 where topics move no farther than their words do.
    moved = np.array([group.mean_effects(grid) ** 2 for group in matches.topics])
    by_chance = np.array([[group.variances()[0]] for group in matches.topics]) * noise
    topic = np.maximum(0.0, (moved - by_chance).mean(axis=0)) / matches.typical
    if matches.vectors is not None:
        # Topics are few: where all words together show a stronger taste, that counts.
        topic = np.maximum(topic, taste(matches.design, grid, matches.vectors).variance)
    shares = _random_heads(matches, grid, measures, pair, heads)
    pieces = []
    for axis, group in sets.items():
        rows = matches.axes[axis]
        variance = topic * matches.resemblance[axis]
        columns = _errors(group, grid, noise, variance, len(matches.topics), confidence)
        table = pd.DataFrame({"measure": measures, **columns, "random_head": shares[axis]})
        if pair:  # the weaker penalty, and the larger one-sided p
            two = table[table["measure"].isin(pair)]
            larger = two[["effect", "p_below", "random_head"]].max(skipna=False)
            row = larger.rename({"p_below": "p"}).to_frame().T.assign(measure=BOTH)
            table = pd.concat([table, row], ignore_index=True)
        counts = {"n": len(group.terms), "n_stems": group.units.shape[0]}
        pieces.append(table.assign(axis=axis, **counts, n_controls=rows["control"].nunique()))
    axes = pd.concat(pieces, ignore_index=True).assign(reward_sd=reward_sd)
    axes = axes.assign(d=axes["effect"] / reward_sd, n_topics=len(matches.topics))
    order = ["axis", "measure", "n", "n_stems", "n_controls", "effect", "low", "high", "d"]
    order += ["reward_sd", "topic_sd", "n_topics", "null_sd", "p", "random_head"]
    return axes[order], _terms(matches, values, main, reward_sd)


def _random_heads(
    matches: IdentityMatches,
    grid: np.ndarray,
    measures: list[str],
    pair: tuple[str, str] | None,
    heads: States | None,
) -> dict[str, np.ndarray]:
    """By axis, the share of random heads that move it as far, (measures,); terms and controls
    without states are left out."""
    missing = dict.fromkeys(matches.axes, np.full(len(measures), np.nan))
    if heads is None:
        return missing
    outcomes = {HALF_SUM: half_sum(*pair), HALF_DIFFERENCE: difference(*pair)} if pair else {}
    words = matches.words.tolist()
    states = [heads(words, outcomes.get(measure, measure)) for measure in measures]
    present, places = have_states(states), matches.words.get_indexer
    inside = {
        axis: rows[present[places(rows["term"])] & present[places(rows["control"])]]
        for axis, rows in matches.axes.items()
    }
    sets = MatchedSets.from_groups(inside, matches.words)
    if not sets:
        return missing
    columns = np.column_stack([group.weights() for group in sets.values()])
    seen = np.asarray(columns.any(axis=1))
    untrained = random_heads(
        lambda rows: columns[rows].T,
        grid,
        states,
        matches.design,
        stem_groups(matches.words),
        rows=seen,
    )
    return missing | dict(zip(sets, untrained.share, strict=True))


def _errors(
    group: MatchedSets,
    grid: np.ndarray,
    noise: np.ndarray,
    topic: np.ndarray,
    topics: int,
    confidence: float,
) -> dict[str, np.ndarray]:
    """effect, low, high, topic_sd, null_sd, p and p_below, (measures,) each."""
    units = group.unit_effects(grid)  # (stems, measures)
    effect, (mean_variance, expected) = units.mean(axis=0), group.variances()
    noise = noise * mean_variance
    scatter = np.square(units - effect).sum(axis=0) / expected * mean_variance
    # Terms of one axis may scatter less than words do; an interval narrower than chance would
    # contradict p.
    scatter = np.maximum(scatter, noise)
    total, null_sd = scatter + topic, np.sqrt(noise + topic)
    # A measure that is 0 for all words (prompts that mirror one another exactly) has neither error
    # nor effect.
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = total**2 / (scatter**2 / (len(units) - 1) + topic**2 / topics)
        reach = np.nan_to_num(stats.t.ppf((1 + confidence) / 2, freedom)) * np.sqrt(total)
        under_null = np.nan_to_num(effect / null_sd)
    return {
        "effect": effect,
        "low": effect - reach,
        "high": effect + reach,
        "topic_sd": np.sqrt(topic),
        "null_sd": null_sd,
        "p": 2 * stats.t.sf(np.abs(under_null), topics),
        "p_below": stats.t.cdf(under_null, topics),
    }


def _terms(
    matches: IdentityMatches, values: pd.DataFrame, main: str, reward_sd: float
) -> pd.DataFrame:
    """Every matched term, on its own; terms of axes too short to be tested as well."""
    rows, column = matches.controls, values[main]
    lower = column.loc[rows["control"]].to_numpy() < column.loc[rows["term"]].to_numpy()
    table = rows.assign(below=lower).groupby(["group", "term"], sort=False)
    table = table.agg(
        n_controls=("control", "size"),
        controls_below=("below", "mean"),
        controls=("control", lambda near: ", ".join(near.iloc[:LISTED_CONTROLS])),
    )
    table = table.rename_axis(["axis", "term"]).reset_index()
    sets = MatchedSets.from_matches(rows, matches.words)
    effects = pd.DataFrame(sets.term_effects(values.to_numpy(dtype=float)), columns=list(values))
    effects = effects.assign(measure=main, d=effects[main] / reward_sd)
    front, back = ["axis", "term", "n_controls"], ["controls_below", "controls"]
    return pd.concat([table[front], effects, table[back]], axis=1)


EFFECT = Effect(
    *("d", "SD from controls", "low", "high", "p_corrected"),
    family=("measure",),  # each answers a question of its own
    null=0.0,
    of="terms",
    symbol="d",
    unit="SD",
)


def correct(effects: pd.DataFrame) -> pd.DataFrame:
    """`effects` of one or several models, ends in standard deviations, with p_corrected and
    detectable, over models × axes of one measure; all axes together, one test a model, are a family
    of their own."""
    families = effects.groupby(effects["axis"] == ALL_AXES, sort=False)
    return pd.concat([EFFECT.correct(family) for _, family in families]).loc[effects.index]


@analysis("identity_terms", Needs(prompts=1, frequencies=True, identity=True), place=130)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Identity terms against matched controls: all together, by axis, and one by one.

    Tables:
        identity: Words for groups of people against matched control words, a row a model, axis and
            measure.
            - as everywhere: model, low, high, p, candidates, random_head, states
            - axis: the groups, such as gender
            - measure: a prompt, or two opposite ones together
            - n: terms
            - n_stems: stems of the terms
            - n_controls: control words
            - effect: mean reward of the terms less their controls, in units of reward
            - d: the same in standard deviations of the rewards
            - reward_sd: standard deviation of the rewards
            - topic_sd: standard deviation of the true effect of an everyday topic whose words
                resemble one another as the axis' do
            - n_topics: everyday topics
            - null_sd: standard error of the effect, were the axis an everyday topic
            - p_corrected: the larger of p (against everyday topics) and random_head, corrected by
                Holm
        identity_axes: The same, by axis, for the figure.
            - as everywhere: model, n, low, high, p_corrected, candidates
            - axis: the groups
            - measure: the measure shown
            - d: effect in standard deviations of the rewards
        identity_terms: Each term against its own controls.
            - as everywhere: model, candidates
            - axis: the groups
            - term: the word
            - n_controls: its control words
            - half_sum: half the sum of its effects on two opposite prompts, in units of reward
            - half_difference: half their difference
            - measure: the main measure
            - d: effect on it, in standard deviations of the rewards
            - controls_below: share of the controls that lie below the term
            - controls: the nearest control words
            - PROMPT (greatest|best|worst): the effect on this prompt, in units of reward
    """
    axes = {
        axis: list(dict.fromkeys(term.strip().lower() for term in listed.terms))
        for axis, listed in options.identity.items()
    }
    pair = next(iter(tables.opposite_pairs()), None)
    columns = {model: tables.columns_of(model) for model in tables.models}
    most_scanned = max(tables.columns, key=lambda name: sum(name in c for c in columns.values()))
    main = HALF_SUM if pair else most_scanned
    vocabularies: dict[tuple, IdentityMatches] = {}
    effects, terms = [], []
    left_out: list[str] = []
    heads: dict[str, Heads | None] = {}
    for model in tables.models:
        with note_errors(left_out, tables.labels[model]):
            if missing := [name for name in pair or (main,) if name not in columns[model]]:
                raise TableError(f"not scanned on {' and '.join(missing)}, as others are")
            matches = _matches(tables, model, axes, options, vocabularies)
            heads[model] = on = heads_of_model(tables, model, options)
            by_axis, by_term = identity_effects(
                tables.words(model),
                matches,
                heads=on,
                confidence=options.confidence,
                pair=pair,
                main=main,
            )
            effects.append(by_axis.assign(states=on.of if on else "", model=model))
            terms.append(by_term.assign(model=model))
    notes = [*tables.without_columns(), *notes_on_states(heads, tables.labels), *left_out]
    if not effects:
        raise TableError("; ".join(notes))
    table = pd.concat(terms, ignore_index=True).assign(candidates=tables.candidates)
    for axis, listed in axes.items():
        with_controls = len({*listed} & {*table["term"]})
        if with_controls < len(listed):
            notes.append(f"{axis}: {with_controls} of {len(listed)} terms have enough controls")
    table = table.sort_values(["model", "d", "axis", "term"], ignore_index=True)
    joined = pd.concat(effects, ignore_index=True)
    results = _axes_results(tables, joined, main, pair, tuple(notes))
    return [*results, Result("identity_terms", table, method="identity_terms")]


def _matches(
    tables: TableSet, model: str, axes: Mapping[str, Sequence[str]], options: Options, cache: dict
) -> IdentityMatches:
    """The matches in a model's vocabulary; models of one vocabulary share them through `cache`."""
    first = next(iter(tables.model_tables(model).values()))
    key = (first.provenance.candidates_digest, len(tables.words(model)))
    if key not in cache:
        words = word_starts(tables.tokens(model).index)
        covariates = options.word_frequencies.zipf(words).to_frame("zipf")
        for name, lexicon in options.lexicons.items():
            covariates[name] = lexicon.reindex(words)
        cache[key] = match_identity(axes, covariates, meanings=options.meanings)
    return cache[key]


def _axes_results(
    tables: TableSet,
    effects: pd.DataFrame,
    main: str,
    pair: tuple[str, str] | None,
    notes: tuple[str, ...],
) -> list[Result]:
    """Models on all axes together, unless only a single axis stands apart; and axis × model."""
    ends = {end: effects[end] / effects["reward_sd"] for end in ("low", "high")}
    in_sd = correct(effects.assign(**ends)).assign(candidates=tables.candidates)
    effects = in_sd.assign(low=effects["low"], high=effects["high"]).drop(columns="detectable")
    rows, together = in_sd[in_sd["measure"] == main], in_sd[in_sd["axis"] == ALL_AXES]
    row = _heaviest(rows)
    stem = "identity" if tables.candidates == "vocabulary" else f"{tables.candidates}/identity"
    whole = together[together["measure"] == main]
    data = together[together["measure"].isin(pair or (main,))]
    xlabel = "identity terms less matched controls (SD of rewards)"
    forest = Forest.of(EFFECT, data=data, group="measure", tabs=("candidates",), xlabel=xlabel)
    summary = dict(zip(f"{stem}/" + whole["model"] + "/d", whole["d"].tolist(), strict=True))
    headline = _headline(tables, effects, row, quoted(half_sum(*pair) if pair else main), main)
    first = Result.of_row(
        row,
        "identity",
        in_sd,
        EFFECT,
        headline,
        plot=forest,
        notes=notes,
        summary=summary,
        share=1 if pair else 1 / 2,
        method="identity_terms",
    )
    # The table has the ends of the effect itself, which are none of `d`.
    first = replace(first, table=effects, effect=replace(EFFECT, low=None, high=None))
    if (rows["axis"] == ALL_AXES).all():
        return [first]
    names = OPPOSITE if pair else {main: f"on {main}"}
    columns = ["axis", "model", "measure", "n", "d", "low", "high", "p_corrected", "candidates"]
    table = in_sd.loc[in_sd["measure"].isin(names), columns]
    table = pd.concat([table[table["axis"] != ALL_AXES], table[table["axis"] == ALL_AXES]])
    table = table.reset_index(drop=True)
    cells = table.assign(measure=table["measure"].map(names))
    plot = Heatmap(
        data=cells.replace({"axis": {ALL_AXES: "all together"}}),
        row="axis",
        column="model",
        value="d",
        panel="measure",
        diverging=True,
        label="SD",
        tabs=("candidates",),
    )
    further = Result("identity_axes", table, plot=plot, method="identity_terms", effect=EFFECT)
    return [first, further]


def _headline(
    tables: TableSet, effects: pd.DataFrame, row: pd.Series, prompt: str, main: str
) -> str:
    """One sentence on the row that is farthest, and on how many other models do as it does."""
    terms = "words for groups of people"
    terms += "" if row["axis"] == ALL_AXES else f" ({literal(row['axis'])})"
    label, heads = tables.labels[row["model"]], random_head_clause(row)
    holding = effects[(effects["p_corrected"] < LEVEL) & (effects["axis"] == row["axis"])]
    alike = holding[(holding["measure"] == main) & (holding["d"] * row["d"] > 0)]
    if alike.empty:
        who = f"{terms} are found to score like {MATCHED}; farthest in {label}"
        return f"On {prompt}, {who}, {_distance(row['d'])}{heads}."
    if row["model"] in set(holding.loc[holding["measure"] == BOTH, "model"]):
        prompt = "each of the two prompts"
    also = found_in(pd.Series(effects["model"].unique()).isin(alike["model"]))
    return f"On {prompt}, {label} scores {terms} {_distance(row['d'])} {MATCHED}{also}{heads}."


def _heaviest(rows: pd.DataFrame) -> pd.Series:
    """The row that is significant, else of all axes together, and then the farthest."""
    sure, together = rows["p_corrected"] < LEVEL, rows["axis"] == ALL_AXES
    return rows.iloc[np.lexsort((rows["d"].abs(), together, sure))[-1]]


def _distance(d: float) -> str:
    return f"{abs(d):.1f} SD {'below' if d < 0 else 'above'}"
