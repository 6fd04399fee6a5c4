"""Words that a lexicon rates: how steeply rewards rise with what people think of a word, above zero
and below it (`sentiment`), and whether words called positive earn more than words called negative
(`lexicon_groups`, for which a lexicon that only sorts words will do).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analyses.analysis import (
    Needs,
    Options,
    States,
    add_mean_rows,
    analysis,
    fit_lexicons,
    found_in,
    heads_by_model,
    join_fits,
    name_prefix,
    notes_on_states,
    outcome_states,
    quoted,
    random_head_clause,
    strongest,
    word_frequencies,
)
from pessimal.analyses.nulls import (
    Statistic,
    classical,
    interval_columns,
    intervals,
    p_values,
    random_heads,
    robust,
    slopes,
)
from pessimal.analyses.ranks import dependence
from pessimal.errors import TableError
from pessimal.plots import Forest, Lines, Scatter
from pessimal.statistics import LEVEL
from pessimal.tables.result import Effect, Estimate, Result, weight_of
from pessimal.tables.table_set import TableSet
from pessimal.tables.word_lists import add_half_sums, check_words, half_sum, stem_groups

ARMS = ("positive", "negative")
LEAST_WORDS = 10
"""Words that an arm or a group needs; intervals of fewer are not to be trusted."""
BINS_A_SIDE = 5
"""Number of bins of valence on each side of 0, for lexicons whose valences are not whole
numbers."""
UNIT = "reward (SD) per unit of valence"
COMBINATIONS = np.array([[0.0, 1, 0, 0], [0, 0, 0, 1], [0, 1, 0, -1]]).T
"""The slopes of both arms and their difference, of the coefficients of `_both_arms`."""


def first_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the first row's lexicon and prompt."""
    names = ["lexicon", "prompt"]
    return table[(table[names] == table[names].iloc[0]).all(axis=1)]


class Sentiment(NamedTuple):
    """The relation of one lexicon to one model's rewards. In all tables z is reward less its mean
    over all words of the vocabulary, over its standard deviation there, so that models and prompts
    can be compared."""

    slopes: pd.DataFrame
    """prompt, arm, n (words), stems, slope, low, high (reward per unit of valence), p, slope_sd,
    low_sd, high_sd (z per unit of valence), random_head, heads_within."""
    asymmetry: pd.DataFrame
    """prompt, frames (one; opposite for two prompts of opposite polarity), n, stems (of the arm
    that has fewer), steeper (how much steeper the positive arm is, in the prompt's direction), low,
    high, p, steeper_sd, low_sd, high_sd, random_head (share of random heads with as large a
    difference of slopes), heads_within (95 % of them lie within ± this, in SD). A row of opposite
    prompts is half the difference between the `steeper` of the two."""
    curve: pd.DataFrame
    """prompt, valence (middle of the bin), n, z (mean), error (of that mean, words independent)."""
    words: pd.DataFrame
    """prompt, word, valence, z, arm, fit (z of the arm's line): every rated word under every
    prompt."""


def sentiment(
    words: pd.DataFrame,
    valence: pd.Series,
    *,
    polarity: Mapping[str, int] | None = None,
    pairs: Sequence[tuple[str, str]] = (),
    heads: States | None = None,
    confidence: float = 0.95,
    paper: bool = False,
) -> Sentiment:
    """Separate least-squares lines of reward on valence for words above zero and words below, under
    each prompt.

    Words rated exactly 0 are in neither arm. Intervals and p are for other words of the language:
    errors allow for words of one stem ('love', 'loved'), which may be in both arms; t has the arm's
    stems − 2 degrees of freedom. Random heads are held against the same slopes
    (`nulls.random_heads`).

    `steeper` is the prompt's sign × (positive − negative slope), free of the bias that absolute
    values of noisy slopes have. A prompt of unknown polarity takes the sign of the sum of its
    slopes. Under one prompt it is as much the lexicon's as the model's; of the half-sum of opposite
    prompts (`pairs`) it is 0 for a model that turns its rewards round with the prompt, whatever the
    lexicon, and above 0 where each prompt is steeper on the words that it asks for.

    Args:
        words: all words of the model's vocabulary × prompts, from `word_means` (`as_published`
            with `paper`).
        valence: by word, above 0 is good.
        polarity: 1 for a prompt that good words answer, −1 for one that bad words do.
        pairs: prompts of opposite polarity, the positive one first; both columns of `words`.
        heads: states that random heads would be on; without them random_head is missing.
        paper: rows are tokens, a zero belongs to the negative arm, and errors are textbook ones, as
            published.

    Raises:
        TableError: see `words.check_words`; or an arm has fewer than `LEAST_WORDS` words, one
            valence for all of them, or no line through them.

    Source: Christian et al. 2025, Figures 3A–C and A4.
    """
    check_words(words)
    outcomes, scales = add_half_sums(words, pairs)
    # Ten times as fast as `isin` on an index of Arrow strings.
    place = valence.index.get_indexer(words.index)
    rated = words.index[place >= 0]
    values = valence.to_numpy(dtype=float)[place[place >= 0]]
    rewards = outcomes.to_numpy(dtype=float)[place >= 0]  # (rated words, prompts and half-sums)
    inside = {"positive": values > 0, "negative": values <= 0 if paper else values < 0}
    for arm, rows in inside.items():
        _check_arm(values[rows], arm)
    in_arms = inside["positive"] | inside["negative"]
    design, groups = _both_arms(values[in_arms]), stem_groups(rated[in_arms])
    arms = {arm: rows[in_arms] for arm, rows in inside.items()}
    stems = np.array([len(np.unique(groups[rows])) for rows in arms.values()])
    spread = scales[list(outcomes)].to_numpy()
    coefficients = np.linalg.pinv(design) @ rewards[in_arms]
    estimates = COMBINATIONS.T @ coefficients
    if paper:  # the textbook's, of each line by itself
        lines = zip(arms.values(), (design[:, :2], design[:, 2:]), strict=True)
        fits = [classical(line[rows], rewards[in_arms][rows]) for rows, line in lines]
        above, below = (fit.errors[1] for fit in fits)
        errors = np.array([above, below, np.hypot(above, below)])
    else:
        deviations = np.asarray(robust(design, rewards[in_arms], groups).deviations)
        moved = np.einsum("gkm,kq->gqm", deviations, COMBINATIONS)
        errors = np.sqrt(np.square(moved).sum(axis=0))
    states = outcome_states(heads, rated[in_arms].tolist(), outcomes)
    measure = slopes(design, COMBINATIONS)
    share, reach = random_heads(measure, rewards[in_arms], states, design, groups)
    reach = reach / spread
    halves = [half_sum(*pair) for pair in pairs]
    signs = {**(polarity or {}), **dict.fromkeys(halves, 1)}
    sums = np.sign(estimates[:2].sum(axis=0))
    sign = [signs.get(prompt, fallback) for prompt, fallback in zip(outcomes, sums, strict=True)]
    sizes = np.array([rows.sum() for rows in arms.values()])
    freedom = sizes - 2 if paper else stems - 2

    def table(row: int, name: str, n: int, fewest: int, freedom: int) -> pd.DataFrame:
        estimate = estimates[row] * (np.array(sign) if name == "steeper" else 1)
        columns = {"prompt": list(outcomes), "n": n, "stems": fewest}
        columns |= interval_columns(
            name, estimate, errors[row], freedom, scales=spread, confidence=confidence
        )
        return pd.DataFrame(columns | {"random_head": share[row], "heads_within": reach[row]})

    arm_rows = [
        table(row, "slope", sizes[row], stems[row], freedom[row]).assign(arm=arm)
        for row, arm in enumerate(ARMS)
    ]
    asymmetry = table(2, "steeper", sizes.sum(), stems.min(), freedom.min())
    # Prompts as given, the positive arm first; half-sums only in the asymmetry, where they mean
    # something.
    arm_rows = [rows[: words.shape[1]] for rows in arm_rows]
    frames = np.where(asymmetry["prompt"].isin(halves), "opposite", "one")
    m, centre = words.shape[1], words.mean().to_numpy()
    z = (rewards[:, :m] - centre) / spread[:m]
    fit = np.full(z.shape, np.nan)
    fit[in_arms] = (design @ coefficients[:, :m] - centre) / spread[:m]
    arm_of_words = np.select([*inside.values()], ARMS, "none")
    dots = pd.DataFrame({"word": rated, "valence": values, "arm": arm_of_words})
    dots = pd.concat([dots.assign(prompt=p, z=z[:, j], fit=fit[:, j]) for j, p in enumerate(words)])
    lines = pd.concat(arm_rows).sort_index(kind="stable").reset_index(drop=True)
    curve = _curve(z, values, list(words))
    dots = dots[["prompt", "word", "valence", "z", "arm", "fit"]].reset_index(drop=True)
    return Sentiment(lines, asymmetry.assign(frames=frames), curve, dots)


def _both_arms(values: np.ndarray) -> np.ndarray:
    """(n, 4): level and valence of the words above zero, and of the others."""
    above = (values > 0).astype(float)
    return np.column_stack([above, above * values, 1 - above, (1 - above) * values])


def _check_arm(values: np.ndarray, arm: str) -> None:
    if len(values) < LEAST_WORDS:
        raise TableError(
            f"{len(values)} words with a {arm} valence were found; a slope needs {LEAST_WORDS}. "
            "Give a lexicon that rates more of them, or a vocabulary instead of a list."
        )
    if np.ptp(values) == 0:
        raise TableError(
            f"No slope by valence: every {arm} word has the valence {values[0]:g}. A lexicon that "
            "only sorts words into good and bad says how far apart the two groups lie "
            "(`lexicon_groups`), not how rewards rise with valence."
        )


def _curve(z: np.ndarray, values: np.ndarray, prompts: list[str]) -> pd.DataFrame:
    """Mean z (words, prompts) by bin of valence, prompts under one another."""
    by_valence = pd.DataFrame(z, columns=prompts).groupby(_middles(values))
    pieces = {prompt: by_valence[prompt].agg(n="size", z="mean", error="sem") for prompt in prompts}
    return pd.concat(pieces, names=["prompt", "valence"]).reset_index()


def _middles(values: np.ndarray) -> np.ndarray:
    """The middle of each valence's bin: itself where all are whole numbers, else that of one of ten
    equal bins around 0; an exact 0 is a bin of its own."""
    if (values == np.round(values)).all():
        return values
    width = np.abs(values).max() / BINS_A_SIDE
    place = np.clip(np.floor(values / width), -BINS_A_SIDE, BINS_A_SIDE - 1)
    return np.where(values == 0, 0.0, (place + 0.5) * width)


@analysis("sentiment", Needs(lexicons=True), place=100)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Slopes by valence of each model, prompt and lexicon; which side is steeper; rewards by
    valence.

    Tables:
        sentiment: Reward by valence, a row a model, lexicon, prompt and arm.
            - as everywhere: model, lexicon, prompt, n, stems, low, high, p, candidates,
                random_head, heads_within, states
            - arm: positive or negative words
            - slope: reward per unit of valence
            - slope_sd: the same in standard deviations of the rewards
            - low_sd: lower end of its interval
            - high_sd: upper end of its interval
        sentiment_asymmetry: Whether the slope is steeper on good words or on bad ones.
            - as everywhere: model, lexicon, prompt, n, stems, low, high, p, candidates,
                p_corrected, detectable, random_head, heads_within, states
            - frames: one prompt, or two opposite ones averaged
            - steeper: slope on positive less slope on negative words, reward per unit of valence;
                the other way round for a prompt that bad words answer
            - steeper_sd: the same in standard deviations of the rewards
            - low_sd: lower end of its interval
            - high_sd: upper end of its interval
        sentiment_curve: Mean reward by valence, for the figure.
            - as everywhere: model, lexicon, prompt, n, candidates
            - valence: in the lexicon's units
            - z: mean reward, in standard deviations from the mean of all words
            - error: its standard error
        sentiment_words: Every word that the first lexicon rates, under every prompt, for the
            figure.
            - as everywhere: model, lexicon, prompt, candidates
            - word: the word, its spellings averaged
            - valence: in the lexicon's units
            - z: reward, in standard deviations from the mean of all words
            - arm: the arm that the word is in, `positive` or `negative`; `none` at valence 0
            - fit: z on the arm's line
    """
    heads, states = heads_by_model(tables, options)

    def fit(model: str, words: pd.DataFrame, valence: pd.Series) -> Sentiment:
        return sentiment(
            words,
            valence,
            pairs=tables.pairs_of(model),
            heads=heads[model],
            confidence=options.confidence,
            paper=options.paper,
            polarity=tables.polarity,
        )

    fits, notes = fit_lexicons(tables, options, fit)
    lines, asymmetry, curve, words = (
        join_fits(tables, dict(zip(fits, frames, strict=True)), states)
        for frames in zip(*fits.values(), strict=True)
    )
    lexicon = lines["lexicon"].iloc[0]
    words = words[words["lexicon"] == lexicon].reset_index(drop=True)
    figure: dict[str, Any] = {"panel": "prompt", "tabs": ("lexicon",)}
    notes = (*tables.without_columns(), *notes_on_states(heads, tables.labels), *notes)
    scatter = Scatter(
        x="valence",
        y="z",
        panel="model",
        line="fit",
        group="arm",
        dense=True,
        xlabel=f"{lexicon} valence",
        ylabel="reward (SD)",
        across=5,
    )
    curves = Lines(
        x="valence",
        y="z",
        thin="model",
        marks=True,
        reference=0.0,
        xlabel="valence",
        ylabel="reward (SD)",
        **figure,
    )
    words, curve = (table.drop(columns="states") for table in (words, curve))
    return [
        _slopes_result(tables, lines, notes, figure),
        _asymmetry_result(tables, asymmetry, figure),
        Result("sentiment_words", words, plot=scatter, method="sentiment"),
        Result("sentiment_curve", curve, plot=curves, method="sentiment"),
    ]


def _slopes_result(
    tables: TableSet, lines: pd.DataFrame, notes: tuple[str, ...], figure: dict[str, Any]
) -> Result:
    """The slopes of both arms; the headline is about the first lexicon and prompt."""
    lexicon, prompt = lines.loc[0, ["lexicon", "prompt"]]
    first = first_rows(lines)
    above, below = (first.loc[first["arm"] == arm, "slope_sd"].mean() for arm in ARMS)
    n = first["model"].nunique()
    who = f"mean of {n} models" if n > 1 else tables.labels[first["model"].iloc[0]]
    return Result(
        "sentiment",
        lines,
        headline=f"On {quoted(prompt)}, one point more of {lexicon} valence moves the reward by "
        f"{above:+.2f} SD among positive words, by {below:+.2f} among negative ones ({who}).",
        plot=Forest(
            data=add_mean_rows(lines, "slope_sd", by=["lexicon", "prompt", "arm"]),
            estimate="slope_sd",
            low="low_sd",
            high="high_sd",
            group="arm",
            xlabel=UNIT,
            **figure,
        ),
        method="sentiment",
        weight=weight_of((above + below) / 2, share=1 / 2),  # expected of every model
        estimate=Estimate(f"{UNIT}, above zero", above, n, "models"),
        notes=notes,
    )


def _asymmetry_result(tables: TableSet, table: pd.DataFrame, figure: dict[str, Any]) -> Result:
    """The steeper side; the headline is about the first lexicon, on opposite prompts where
    there are such."""
    effect = Effect(
        "steeper_sd",
        UNIT,
        "low_sd",
        "high_sd",
        p="p_corrected",
        null=0.0,
        of="words",
        unit="SD",
        band="heads_within",
    )
    table = effect.correct(table)
    paired = (table["frames"] == "opposite").any()
    rows = first_rows(table[table["frames"] == ("opposite" if paired else "one")])
    holds = (rows["p_corrected"] <= LEVEL) & (rows["steeper_sd"] > 0)
    row = strongest(rows, "steeper_sd", "p_corrected", positive=True)
    label = tables.labels[row["model"]]
    number = f"{row['steeper_sd']:+.2f} SD per point{random_head_clause(row)}"
    sides = ("words that the prompt asks for (good or bad)", "the others")
    side, other = sides if paired else ("positive words", "negative ones")
    where = f"more with {row['lexicon']}'s ratings among {side} than among {other}"
    verdict = f"the reward of {label} rises {where}: {number}{found_in(holds)}"
    if not holds.any():
        verdict = f"no model's reward is found to rise {where}; nearest, {label}: {number}"
    data = add_mean_rows(table, "steeper_sd", by=["lexicon", "prompt"])
    xlabel = "difference of slopes (SD per unit of valence)"
    headline = f"On {quoted(row['prompt'])}, {verdict}."
    share = 1 if paired else 1 / 2  # of one prompt it is the lexicon's too
    return Result.of_row(
        row,
        "sentiment_asymmetry",
        table,
        effect,
        headline,
        share=share,
        plot=Forest.of(effect, data=data, xlabel=xlabel, **figure),
        method="sentiment",
        summary=_means(tables, table, "steeper_sd", "steeper"),
    )


def _means(tables: TableSet, table: pd.DataFrame, column: str, name: str) -> dict[str, float]:
    """The mean of a column over models, by lexicon and prompt, for the summary."""
    means = table.groupby(["lexicon", "prompt"], sort=False)[column].mean()
    start = f"{name_prefix(tables)}sentiment"
    return {f"{start}/{lexicon}/{prompt}/{name}": mean for (lexicon, prompt), mean in means.items()}


def lexicon_groups(
    words: pd.DataFrame,
    valence: pd.Series,
    *,
    heads: States | None = None,
    zipf: pd.Series | None = None,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """The probability that a positive word earns more than a negative one.

    The probability (AUC) is Mann and Whitney's U over the number of pairs; equal rewards count
    half. Words of valence 0 are in neither group. Intervals and p (`nulls.intervals`, for an
    AUC on the scale of log odds) are for other words of the language; words of one stem are taken
    to be dependent, of both groups as well ('hope', 'hopeless').

    Good words are used more than bad ones. So random heads are held against the AUC among words of
    like frequency: ½ and the difference of the groups' mean ranks within fifths of frequency.

    Args:
        words: all words of the model's vocabulary × prompts, from `word_means` (`as_published`
            where rows are tokens: the spellings of a word then count each, as dependent ones).
        valence: by word; above 0 is good.
        heads: states that random heads would be on; without them random_head is missing.
        zipf: frequency by word; without it all words count as equally frequent.

    Returns:
        One row per prompt: prompt, positive, negative (words), stems, auc, auc_low, auc_high, auc_p
            (against ½), auc_matched (among words of like frequency), random_head (share of random
            heads whose auc_matched is as far from ½), heads_within (95 % of them lie within ± this
            of ½).

    Raises:
        TableError: see `words.check_words`; or a group has fewer than `LEAST_WORDS` words.

    Source: Christian et al. 2025, Figure A3; Obuchowski 1997 (clusters).
    """
    check_words(words)
    sign = np.sign(valence.reindex(words.index).to_numpy(dtype=float))  # NaN where not rated
    inside = np.abs(sign) == 1
    rated, positive = words[inside], sign[inside] > 0
    counts = {"positive": int(positive.sum()), "negative": int((~positive).sum())}
    for group, n in counts.items():
        if n < LEAST_WORDS:
            raise TableError(
                f"{n} words with a {group} valence were found; a comparison of the groups needs "
                f"{LEAST_WORDS} in each. Give a lexicon that rates more of these words."
            )
    groups, rewards = stem_groups(rated.index), rated.to_numpy(dtype=float)
    statistics = [_separation(column, positive) for column in rewards.T]
    dependent = dependence(rated.index, None)
    auc, low, high = intervals(statistics, dependent, confidence=confidence)
    p = p_values(statistics, dependent)
    apart = (auc <= 0) | (auc >= 1)  # groups that do not overlap say nothing of an error
    low, high, p = (np.where(apart, np.nan, column) for column in (low, high, p))
    ranks = stats.rankdata(rewards, axis=0) / len(rewards)
    design = np.column_stack([np.ones(len(rated)), positive, *_fifths(rated.index, zipf)])
    matched = np.linalg.lstsq(design, ranks, rcond=None)[0][1]
    table = pd.DataFrame({"prompt": list(words), **counts, "stems": int(groups.max()) + 1})
    table = table.assign(auc=auc, auc_low=low, auc_high=high, auc_p=p, auc_matched=0.5 + matched)
    states = outcome_states(heads, rated.index.tolist(), words)
    untrained = random_heads(slopes(design), ranks, states, design, groups)
    return table.assign(random_head=untrained.share[1], heads_within=untrained.band[1])


def _fifths(words: pd.Index, zipf: pd.Series | None) -> list[np.ndarray]:
    """A column of 0 and 1 for each fifth of the words by frequency but the first; words of unknown
    frequency are in the first."""
    if zipf is None:
        return []
    used = zipf.reindex(words).fillna(0.0).to_numpy(dtype=float)
    edges = np.unique(np.quantile(used, [0.2, 0.4, 0.6, 0.8]))
    place = np.searchsorted(edges, used, side="right")
    return [(place == fifth).astype(float) for fifth in np.unique(place)[1:]]


def _separation(rewards: np.ndarray, positive: np.ndarray) -> Statistic:
    """The AUC with its influence values."""
    everywhere, share = stats.rankdata(rewards), np.empty(len(rewards))
    for group in (positive, ~positive):  # the share of the other group that a word beats
        share[group] = (everywhere[group] - stats.rankdata(rewards[group])) / (~group).sum()
    share[~positive] = 1 - share[~positive]
    auc = float(share[positive].mean())
    sizes = np.where(positive, positive.sum(), (~positive).sum())
    return Statistic(auc, (share - auc) * len(rewards) / sizes, share=True)


@analysis("lexicon_groups", Needs(lexicons=True), place=110)
def analyse_groups(tables: TableSet, options: Options) -> list[Result]:
    """The separation of each lexicon's positive words from its negative ones by each model's
    rewards.

    Tables:
        lexicon_groups: Do words called good earn more than words called bad?
            - as everywhere: prompt, stems, model, lexicon, candidates, random_head, heads_within,
                detectable, states
            - positive: positive words
            - negative: negative words
            - auc: probability that a positive word earns more than a negative one
            - auc_low: lower end of its interval
            - auc_high: upper end of its interval
            - auc_p: p of auc against ½
            - auc_matched: auc among words of like frequency, which random heads are held against
            - auc_p_corrected: the larger of auc_p and random_head, corrected by Holm
    """
    heads, states = heads_by_model(tables, options)
    zipf = None
    if options.frequencies is not None:
        zipf = word_frequencies(tables, tables.models, options)
    pieces, notes = fit_lexicons(
        tables,
        options,
        lambda model, words, valence: lexicon_groups(
            words, valence, heads=heads[model], zipf=zipf, confidence=options.confidence
        ),
    )
    table = join_fits(tables, pieces, states)
    effect = Effect(
        "auc",
        "AUC",
        "auc_low",
        "auc_high",
        p="auc_p_corrected",
        null=0.5,
        family=("lexicon",),
        n="stems",
        of="stems",
        symbol="auc",
        band="heads_within",
    )
    table = effect.correct(table)
    lexicon, prompt = table.loc[0, ["lexicon", "prompt"]]
    first = first_rows(table)
    holds = first[effect.p] <= LEVEL
    row = strongest(first, "auc", "auc_p_corrected", null=0.5)
    label = tables.labels[row["model"]]
    side = "below" if row["auc"] < 0.5 else "above"
    words = f"{lexicon}'s positive words {side} its negative ones"
    verdict = f"{label} scores {words}"
    if not holds.any():
        verdict = f"no model is found to score {words}; nearest, {label}"
    headline = f"On {quoted(prompt)}, {verdict}: in {0.5 + abs(row['auc'] - 0.5):.0%} of pairs"
    headline += f"{random_head_clause(row)}{found_in(holds)}."
    notes = (*tables.without_columns(), *notes_on_states(heads, tables.labels), *notes)
    xlabel = "AUC, positive against negative words"
    plot = Forest.of(effect, panel="prompt", xlabel=xlabel, tabs=("lexicon",))
    return [
        Result.of_row(
            row,
            "lexicon_groups",
            table,
            effect,
            headline,
            share=1 / 2,  # expected of every model
            method="lexicon_groups",
            plot=plot,
            notes=notes,
            summary=_means(tables, table, "auc", "auc"),
        )
    ]
