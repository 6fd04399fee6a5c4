"""Words that name groups of people against other words as frequent and as positive, one model at a time.

Knows rewards of words, term lists and covariates; knows nothing of prompts but which asks for good and which for bad.
What it measures is the reward of a bare term as the whole answer to a question. It does not see how a model treats
people, nor text about them, nor why a reward is what it is.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analysis.checks import check_rewards, check_varied
from pessimal.analysis.matching import matched_controls, stem
from pessimal.analysis.sets import MatchedSets, matched_sets
from pessimal.analysis.topics import TOPICS
from pessimal.errors import TableError

ALL_AXES = "all"
HALF_SUM, HALF_DIFFERENCE, BOTH_FRAMES = "half_sum", "half_difference", "both_frames"
LEAST_STEMS = 3
LEAST_TOPICS = 10
NAMED_CONTROLS = 5


@dataclass(frozen=True)
class IdentityMatches:
    """Terms and topics with their controls in one vocabulary; serves every model that has the same words."""

    words: pd.Index
    """All words of known frequency: those over which a model's spread of rewards is taken."""
    controls: pd.DataFrame
    """Of the terms: group (axis), term, control, distance."""
    axes: dict[str, MatchedSets]
    """By axis, and `ALL_AXES` for all in one; axes with fewer than `LEAST_STEMS` matched stems are left out."""
    topics: dict[str, MatchedSets]
    """By topic, likewise."""
    concentration: float
    """Sum of squares of the axes' shares in all stems: how much of one topic's variance the mean over all axes has."""


@dataclass(frozen=True)
class IdentityEffects:
    """What one model does with identity terms."""

    axes: pd.DataFrame
    """One row per axis and measure; see `identity_effects`."""
    terms: pd.DataFrame
    """One row per axis and term."""


def match_identity(
    axes: Mapping[str, Sequence[str]],
    covariates: pd.DataFrame,
    *,
    topics: Mapping[str, Sequence[str]] = TOPICS,
    banned: Collection[str] = (),
) -> IdentityMatches:
    """Controls for the terms of each axis, and for the words of the topics that the axes are held against.

    No control, of a term or of a topic's word, is an identity term of any axis or shares a stem with one.

    Args:
        axes: terms by axis, lower case.
        covariates: one row a word that the model has; zipf, and ratings by lexicon (see `matched_controls`).
        topics: everyday words by topic.
        banned: further words that must not be controls, in any form.

    Raises:
        TableError: no axis, or too few topics, have enough words with controls.
    """
    if ALL_AXES in axes:
        raise TableError(
            f"An axis of identity terms cannot be named {ALL_AXES!r}: that is all of them together."
        )
    named = [*banned, *(term for terms in axes.values() for term in terms)]
    controls = matched_controls(axes, covariates, banned=named)
    beside = matched_controls(topics, covariates, banned=named)
    words = covariates.index[covariates["zipf"].notna().to_numpy()]
    found = _sets_by_group(controls, words)
    dull = _sets_by_group(beside, words)
    if not found or len(dull) < LEAST_TOPICS:
        raise TableError(
            f"Of {len(axes)} axes {len(found)}, and of {len(topics)} everyday topics {len(dull)}, have at least "
            f"{LEAST_STEMS} words with controls among the {len(words):,} words of known frequency; needed are 1 axis and "
            f"{LEAST_TOPICS} topics. Scan a whole vocabulary, or give longer lists: identity.AXIS.terms=[...]"
        )
    # A term on two axes is one word; short axes are in it too, as here they are not alone.
    once = controls[controls["group"] == controls.groupby("term")["group"].transform("first")]
    found[ALL_AXES] = matched_sets(once, words)
    by_axis = (
        once.drop_duplicates("term").groupby("group")["term"].agg(lambda terms: len(set(map(stem, terms))))
    )
    return IdentityMatches(words, controls, found, dull, float(((by_axis / by_axis.sum()) ** 2).sum()))


def identity_effects(
    rewards: pd.DataFrame,
    matches: IdentityMatches,
    *,
    positive: str | None = None,
    negative: str | None = None,
    main: str | None = None,
    confidence: float = 0.95,
    permutations: int = 10_000,
    seed: int = 0,
) -> IdentityEffects:
    """How far identity terms lie from their controls, per frame and in opposite frames together.

    A term's effect is its reward less the mean reward of its controls; an axis' effect is the mean over its stems
    (the forms of a stem are averaged, as they are no separate observations). Four measures, each in reward units and,
    as `d`, in standard deviations of the model's rewards over all its words (root mean square over both opposite
    frames, or of the main frame where none are opposite; one divisor for all measures and axes, so that they can be
    compared and add up):

    - a frame's own name: the effect under that prompt;
    - `half_sum` of opposite frames: liked or avoided whatever is asked. What a word means cancels out;
    - `half_difference`, positive less negative: taken for good or bad, as valence is;
    - `both_frames`: the weaker of the two frames' effects. Below 0 the terms are penalised in both, and p is that of
      the intersection-union test, the larger of the one-sided p values (Berger 1982).

    Errors. Words of one topic go up and down together, so an axis of fifty nationalities is not fifty observations,
    and even a model without any penalty moves it a little. How far is measured on everyday topics, matched the same
    way: `topic_sd` is the standard deviation of a topic's true effect about 0, its words' own noise taken out (for all
    axes together, of the mean over as many topics). `p` is of the null hypothesis that the axis is one more topic of
    as many everyday words: the effect over `null_sd`, which has topics and word noise in it (t, as many degrees of
    freedom as topics). The interval is about the axis: its terms' own scatter, or that of words where this is larger,
    and topics (Satterthwaite's degrees of freedom). So where few terms differ much it may hold 0 though p is small:
    they do not behave as everyday words do, and say little of other terms. `p_words` is of a weaker null hypothesis,
    that the terms are like single words drawn from among their controls: within each set term and controls change
    places at random. All count how often controls are shared (see `sets`).

    Args:
        rewards: words × frames; must hold every word of `matches.words`.
        matches: of `match_identity`.
        positive: the frame that good words answer.
        negative: the frame that bad words answer; without both there is no measure of opposite frames.
        main: the measure that single terms are told on, one for all models that are put beside one another; where it is
            not given, the half-sum of opposite frames, or else the first frame.
        confidence: of the intervals.
        permutations: random exchanges behind each p_words.
        seed: of these.

    Returns:
        axes: axis, measure, n (terms), n_stems, n_controls, effect, low, high, d, reward_sd, topic_sd, n_topics,
        null_sd, p, p_words. terms: axis, term, n_controls, an effect per measure, measure (the main one), d (on it),
        controls_below (share of controls that lie below the term on it), controls (the nearest, named).

    Raises:
        TableError: a word of the matches has no reward, a frame or the main measure is not among the rewards, or one
            does not vary.

    Source: Christian et al. 2025 see identity terms at the end of their Table A8 (best + worst) and publish no analysis
    of them; this one is ours. Berger 1982 for the intersection-union test.
    """
    frames = list(rewards)
    opposed = [name for name in (positive, negative) if name is not None]
    if unknown := [name for name in opposed if name not in frames]:
        raise TableError(f"No frame {unknown[0]!r} among the rewards; there are {frames}.")
    if missing := matches.words.difference(rewards.index).tolist():
        raise TableError(
            f"{len(missing)} words that were matched have no reward, such as {missing[0]!r}; match the words of the "
            "rewards' own index."
        )
    values = rewards.loc[matches.words]
    check_rewards(values)
    check_varied(values)
    pair = len(opposed) == 2
    main = main or (HALF_SUM if pair else (opposed or frames)[0])
    if main not in (there := [*frames, *([HALF_SUM, HALF_DIFFERENCE] if pair else [])]):
        raise TableError(f"No measure {main!r} to tell single terms on; there are {there}.")
    reward_sd = float(np.sqrt(values[opposed if pair else [main]].var().mean()))
    if pair:
        values = values.assign(
            **{
                HALF_SUM: (values[positive] + values[negative]) / 2,
                HALF_DIFFERENCE: (values[positive] - values[negative]) / 2,
            }
        )
    measures, grid = list(values), values.to_numpy(dtype=float)  # (words, measures)
    noise = _word_variance([*matches.axes.values(), *matches.topics.values()], grid)
    topic = _topic_variance(list(matches.topics.values()), grid, noise)
    rng = np.random.default_rng(seed)
    tables = []
    for axis, sets in matches.axes.items():
        spread = topic * (matches.concentration if axis == ALL_AXES else 1.0)
        table = _axis(sets, grid, noise, spread, df=len(matches.topics), confidence=confidence)
        table["p_words"] = sets.exchange(grid, permutations=permutations, rng=rng)
        table.insert(0, "measure", measures)
        if pair:
            table = pd.concat([table, _both(table, positive, negative)], ignore_index=True)
        tables.append(
            table.assign(axis=axis, n=len(sets.terms), n_stems=sets.units, n_controls=sets.distinct)
        )
    axes = pd.concat(tables, ignore_index=True)
    axes["d"], axes["reward_sd"] = axes["effect"] / reward_sd, reward_sd
    axes["n_topics"] = len(matches.topics)
    return IdentityEffects(axes[_COLUMNS], _terms(matches, values, main, reward_sd))


_COLUMNS = [
    "axis", "measure", "n", "n_stems", "n_controls", "effect", "low", "high", "d", "reward_sd", "topic_sd", "n_topics",
    "null_sd", "p", "p_words",
]  # fmt: skip


def corrected(effects: pd.DataFrame) -> pd.DataFrame:
    """`effects` of one or several models with p_holm and p_bh: p corrected for all models × axes of one measure.

    Holm's bounds the chance of any false alarm whatever the dependence; Benjamini and Hochberg's the share of false
    ones among the alarms, under independence or positive dependence. All axes together are a family of their own, of
    one test a model; each measure is one too, as they answer different questions.

    Args:
        effects: axis, measure and p of `identity_effects`, of any number of models.

    Returns:
        The same rows with the columns p_holm and p_bh.
    """
    together = (effects["axis"] == ALL_AXES).rename("together")
    families = effects["p"].groupby([effects["measure"], together], sort=False)
    return effects.assign(
        p_holm=families.transform(_holm), p_bh=families.transform(stats.false_discovery_control)
    )


def _holm(p: pd.Series) -> np.ndarray:
    """Holm's step-down p values (statsmodels' collects garbage at every call, which takes longer than all the rest)."""
    order = np.argsort(p.to_numpy(), kind="stable")
    steps = np.maximum.accumulate(p.to_numpy()[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def _sets_by_group(matches: pd.DataFrame, words: pd.Index) -> dict[str, MatchedSets]:
    """The matched sets of each group that has enough stems."""
    sets = {group: matched_sets(rows, words) for group, rows in matches.groupby("group", sort=False)}
    return {group: each for group, each in sets.items() if each.units >= LEAST_STEMS}


def _word_variance(groups: Sequence[MatchedSets], grid: np.ndarray) -> np.ndarray:
    """Variance of a word about the words it is matched with, per measure: controls within their sets, pooled."""
    squares, freedom = zip(*(sets.within(grid) for sets in groups), strict=True)
    return np.sum(squares, axis=0) / sum(freedom)


def _topic_variance(topics: Sequence[MatchedSets], grid: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Variance about 0 of a topic's true effect, per measure; 0 where topics move no farther than their words do."""
    moved = np.array([sets.unit_effects(grid).mean(axis=0) for sets in topics])  # (topics, measures)
    expected = noise * np.array([[sets.mean_variance] for sets in topics])
    return np.maximum(0.0, (moved**2 - expected).mean(axis=0))


def _axis(
    sets: MatchedSets, grid: np.ndarray, noise: np.ndarray, topic: np.ndarray, *, df: int, confidence: float
) -> pd.DataFrame:
    """effect, low, high and p, one row a measure."""
    units = sets.unit_effects(grid)  # (stems, measures)
    effect = units.mean(axis=0)
    scatter = ((units - effect) ** 2).sum(axis=0) / sets.scatter_expected * sets.mean_variance
    noise = noise * sets.mean_variance
    # Terms of one axis may scatter less than words do; an interval narrower than chance would contradict p.
    scatter = np.maximum(scatter, noise)
    total, null_sd = scatter + topic, np.sqrt(noise + topic)
    # A measure that is 0 for all words (frames that mirror one another exactly) has neither error nor effect.
    with np.errstate(invalid="ignore", divide="ignore"):
        freedom = total**2 / (scatter**2 / (sets.units - 1) + topic**2 / df)
        reach = np.nan_to_num(stats.t.ppf((1 + confidence) / 2, freedom)) * np.sqrt(total)
        under_null = np.nan_to_num(effect / null_sd)
    return pd.DataFrame(
        {
            "effect": effect,
            "low": effect - reach,
            "high": effect + reach,
            "topic_sd": np.sqrt(topic),
            "null_sd": null_sd,
            "p": 2 * stats.t.sf(np.abs(under_null), df),
            "p_below": stats.t.cdf(under_null, df),
        }
    )


def _both(table: pd.DataFrame, positive: str, negative: str) -> pd.DataFrame:
    """The row of `both_frames`: the weaker penalty, and the larger one-sided p."""
    two = table[table["measure"].isin([positive, negative])]
    return pd.DataFrame([{"measure": BOTH_FRAMES, "effect": two["effect"].max(), "p": two["p_below"].max()}])


def _terms(matches: IdentityMatches, values: pd.DataFrame, main: str, reward_sd: float) -> pd.DataFrame:
    """Every matched term, on its own; terms of axes too short to be tested as well."""
    sets = matched_sets(matches.controls, matches.words, by=("group", "term"))
    effects = pd.DataFrame(sets.term_effects(values.to_numpy(dtype=float)), columns=list(values))
    column = values[main].to_numpy()
    lower = column[sets.controls] < np.repeat(column[sets.terms], sets.counts)
    by_term = matches.controls.groupby(["group", "term"], sort=False)["control"]
    named = by_term.agg(lambda words: ", ".join(words.head(NAMED_CONTROLS)))
    table = named.rename_axis(["axis", "term"]).rename("controls").reset_index()
    table.insert(2, "n_controls", sets.counts)
    effects["measure"], effects["d"] = main, effects[main] / reward_sd
    effects["controls_below"] = np.add.reduceat(lower.astype(float), sets.starts) / sets.counts
    return pd.concat([table.drop(columns="controls"), effects, table["controls"]], axis="columns")
