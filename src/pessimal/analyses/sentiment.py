"""Valence and reward: how steeply rewards rise with what people think of a word, above zero and
below it.

Of one model `sentiment`, of several `asymmetry_across_models`: all models see the same words, so
whatever sets these words apart from others moves all of them together.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import (
    MEAN,
    Needs,
    Options,
    States,
    analysis,
    by_heads,
    by_lexicon,
    heads_by_model,
    of_random_heads,
    several,
    whose,
    with_mean,
)
from pessimal.analyses.nulls import WITHIN, random_heads
from pessimal.analyses.nulls import slopes as coefficients
from pessimal.analyses.regression import (
    Fit,
    classical,
    interval,
    robust,
    share_beyond,
)
from pessimal.errors import TableError
from pessimal.plots import Forest, Lines, Scatter
from pessimal.statistics import LEVEL, holm
from pessimal.tables.result import Effect, Estimate, Result, weight_of
from pessimal.tables.table_set import TableSet
from pessimal.tables.word_lists import check_words, half_sum, stems, with_half_sums

ARMS = ("positive", "negative")
LEAST_WORDS = 10
"""Words that an arm needs; its line has two coefficients."""
BINS_A_SIDE = 5
"""Of valence, for lexicons whose valences are not whole numbers."""
SLOPES = [
    "prompt", "arm", "n", "stems", "slope", "low", "high", "p", "slope_sd", "low_sd", "high_sd",
    "level_sd", "random_head", "heads_within",
]  # fmt: skip
ASYMMETRY = [
    "prompt", "frames", "sign", "sign_from", "n", "stems", "difference", "steeper", "low", "high",
    "p", "steeper_sd", "low_sd", "high_sd", "random_head", "heads_within",
]  # fmt: skip


class Sentiment(NamedTuple):
    """What one lexicon says about one model. In all tables z is reward less its mean over all words
    of the vocabulary, over its standard deviation there, so that models and prompts can be
    compared."""

    slopes: pd.DataFrame
    """prompt, arm, n (words), stems, slope, low, high (reward per unit of valence), p, slope_sd,
    low_sd, high_sd (z per unit of valence), level_sd (z of the arm's line at valence 0),
    random_head, heads_within."""
    asymmetry: pd.DataFrame
    """prompt, frames (one; opposite for two prompts of opposite polarity), sign, sign_from, n,
    stems (of the arm that has fewer), difference (slope above zero less slope below), steeper (how
    much steeper the positive arm is, in the prompt's direction), low, high, p (of `steeper`),
    steeper_sd, low_sd, high_sd, random_head (share of random heads with as large a difference),
    heads_within (95 % of them lie within ± this, in SD). A row of opposite prompts is half the
    difference between the `steeper` of the two."""
    curve: pd.DataFrame
    """prompt, valence (middle of the bin), n, z (mean), error (of that mean, words independent)."""
    words: pd.DataFrame
    """prompt, word, valence, z: every rated word under every prompt."""
    influence: pd.DataFrame | None
    """index stem, a column for each prompt of the asymmetry: by how much its `steeper_sd` moves as
    the stem's words are left out. None where one stem alone decides a slope, which only `paper`
    lets pass."""


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
    errors allow for words of one stem ('love', 'loved'), t has the arm's stems − 2 degrees of
    freedom. Random heads are held against the same slopes (`nulls.random_heads`).

    `steeper` is the prompt's sign × (positive − negative slope), free of the bias that absolute
    values of noisy slopes have. A prompt of unknown polarity takes the sign of the sum of its
    slopes (`sign_from`: frame or slopes). Under one prompt it is as much the lexicon's as the
    model's; of the half-sum of opposite prompts (`pairs`) it is 0 for a model that turns its
    rewards round with the prompt, whatever the lexicon, and above 0 where each prompt is steeper on
    the words that it asks for.

    Args:
        words: all words of the model's vocabulary × prompts, from `words.by_word` (`as_published`
            with `paper`).
        valence: by word, above 0 is good.
        polarity: 1 for a prompt that good words answer, −1 for one that bad words do.
        pairs: prompts of opposite polarity, the positive one first; both columns of `words`.
        heads: states that random heads would be on; without them random_head is missing.
        paper: rows are tokens, a zero belongs to the negative arm, and errors are textbook ones, as
            published; `influence` is of whole stems there too.

    Raises:
        TableError: see `words.check_words`; or an arm has fewer than
            `LEAST_WORDS` words, one valence for all of them, or no line through them.

    Source: Christian et al. 2025, Figures 3A–C and A4.
    """
    check_words(words)
    outcomes, scales = with_half_sums(words, pairs)
    # Ten times as fast as `isin` on an index of Arrow strings.
    place = valence.index.get_indexer(words.index)
    is_rated = place >= 0
    values = valence.to_numpy(dtype=float)[place[is_rated]]
    groups, names = pd.factorize(stems(words.index[is_rated]))
    rated = outcomes.to_numpy(dtype=float)[is_rated]  # (rated words, prompts and half-sums)
    inside = dict(zip(ARMS, (values > 0, values <= 0 if paper else values < 0), strict=True))
    fits = {
        arm: _arm(rated[rows], values[rows], groups[rows], arm=arm, paper=paper)
        for arm, rows in inside.items()
    }
    counts = {arm: len(np.unique(groups[rows])) for arm, rows in inside.items()}
    spread = scales[list(outcomes)].to_numpy()
    both = inside["positive"] | inside["negative"]
    share = within = np.full((3, len(spread)), np.nan)
    if heads is not None:
        names_of_both = words.index[is_rated][both].tolist()
        design = _both_arms(values[both])
        combinations = np.array([[0.0, 1, 0, 0], [0, 0, 0, 1], [0, 1, 0, -1]]).T
        untrained = random_heads(
            coefficients(design, combinations),
            rated[both],
            [heads(names_of_both, outcome) for outcome in outcomes],
            design,
            groups[both],
        )
        share, within = untrained.share, untrained.within / spread

    pieces = []
    for number, (arm, fit) in enumerate(fits.items()):
        low, high, p = interval(
            fit.coefficients[1], fit.errors[1], fit.freedom, confidence=confidence
        )
        level = (fit.coefficients[0] - outcomes.mean().to_numpy()) / spread
        constants = {
            "arm": arm,
            "n": int(inside[arm].sum()),
            "stems": counts[arm],
            "level_sd": level,
            "random_head": share[number],
            "heads_within": within[number],
        }
        numbers = {"slope": fit.coefficients[1], "low": low, "high": high, "p": p}
        pieces.append(
            _standardised(
                pd.DataFrame({"prompt": list(outcomes), **numbers, **constants}), "slope", spread
            )
        )
    # Prompts as given, the positive arm first; half-sums only in the asymmetry, where they mean
    # something.
    slopes = pd.concat([piece[: words.shape[1]] for piece in pieces]).sort_index(kind="stable")

    halves = [half_sum(*pair) for pair in pairs]
    asymmetry, moves = _asymmetry(
        fits, list(outcomes), polarity or {}, halves, confidence, paper=paper
    )
    asymmetry = asymmetry.assign(
        n=sum(int(rows.sum()) for rows in inside.values()),
        stems=min(counts.values()),
        random_head=share[2],
        heads_within=within[2],
    )
    if moves is not None:
        used = np.unique(np.concatenate([groups[rows] for rows in inside.values()]))
        influence = moves[used] * asymmetry["sign"].to_numpy() / spread
        moves = pd.DataFrame(influence, pd.Index(names[used], name="stem"), list(outcomes))
    z = (rated[:, : words.shape[1]] - words.mean().to_numpy()) / spread[: words.shape[1]]
    return Sentiment(
        slopes[SLOPES].reset_index(drop=True),
        _standardised(asymmetry, "steeper", spread)[ASYMMETRY],
        _curve(z, values, list(words)),
        pd.DataFrame(
            {
                "prompt": np.repeat(list(words), len(values)),
                "word": np.tile(words.index[is_rated], words.shape[1]),
                "valence": np.tile(values, words.shape[1]),
                "z": z.T.ravel(),
            }
        ),
        moves,
    )


def _both_arms(values: np.ndarray) -> np.ndarray:
    """(n, 4): level and valence of the words above zero, and of the others."""
    above = (values > 0).astype(float)
    return np.column_stack([above, above * values, 1 - above, (1 - above) * values])


def _arm(
    rated: np.ndarray,
    values: np.ndarray,
    groups: np.ndarray,
    *,
    arm: str,
    paper: bool,
) -> Fit:
    """The line of one arm, under every prompt; stems keep their numbers, so that arms can be
    joined."""
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
    design = np.column_stack([np.ones(len(values)), values])
    try:
        textbook = classical(design, rated) if paper else None
        stems_out = robust(design, rated, groups)
    except TableError as error:
        if paper and textbook is not None:
            return textbook  # one stem alone decides the slope: no error over stems
        raise TableError(
            f"No slope over the {len(values)} words with a {arm} valence: {error}"
        ) from error
    return textbook._replace(deviations=stems_out.deviations) if textbook else stems_out


def _asymmetry(
    fits: Mapping[str, Fit],
    prompts: list[str],
    polarity: Mapping[str, int],
    halves: Sequence[str],
    confidence: float,
    *,
    paper: bool,
) -> tuple[pd.DataFrame, np.ndarray | None]:
    """How much steeper the positive arm is; and by how much the slopes' difference moves as a stem,
    which may be in both arms, is left out (stems, prompts). None where that is not known of an
    arm."""
    positive, negative = (fits[arm] for arm in ARMS)
    difference = positive.coefficients[1] - negative.coefficients[1]
    together = np.sign(positive.coefficients[1] + negative.coefficients[1])
    signs = {**polarity, **dict.fromkeys(halves, 1)}
    sign = np.array(
        [
            signs.get(prompt, fallback or 1)
            for prompt, fallback in zip(prompts, together, strict=True)
        ]
    )
    moves = None
    if positive.deviations is not None and negative.deviations is not None:
        moves = np.zeros((max(len(positive.deviations), len(negative.deviations)), len(prompts)))
        moves[: len(positive.deviations)] += positive.deviations[:, 1]
        moves[: len(negative.deviations)] -= negative.deviations[:, 1]
    textbook = positive.errors[1] ** 2 + negative.errors[1] ** 2  # no word in both arms
    over_stems = textbook if moves is None else np.square(moves).sum(axis=0)
    error = np.sqrt(textbook if paper else over_stems)
    freedom = min(positive.freedom, negative.freedom)
    low, high, p = interval(sign * difference, error, freedom, confidence=confidence)
    table = pd.DataFrame(
        {
            "prompt": prompts,
            "frames": ["opposite" if prompt in halves else "one" for prompt in prompts],
            "sign": sign.astype(int),
            "sign_from": ["frame" if prompt in signs else "slopes" for prompt in prompts],
            "difference": difference,
            "steeper": sign * difference,
            "low": low,
            "high": high,
            "p": p,
        }
    )
    return table, moves


def _standardised(table: pd.DataFrame, estimate: str, spread: np.ndarray) -> pd.DataFrame:
    """With the estimate and its bounds in standard deviations of the prompt's rewards as well."""
    return table.assign(
        **{f"{column}_sd": table[column] / spread for column in (estimate, "low", "high")}
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


def asymmetry_across_models(
    asymmetry: pd.DataFrame,
    influences: Mapping[tuple[str, str], pd.DataFrame | None],
    *,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Is the positive arm steeper, over models: the mean of `steeper_sd`, by lexicon and prompt.

    Both models and words are samples. The standard error is the root of two variances,
    `error_models`² (of the mean over models) and `error_words`² (of the same mean as one stem at a
    time is left out in all models that have it). What happens to one model on one word is in both,
    so intervals are too wide rather than too narrow. Degrees of freedom after Satterthwaite; with
    two models they are little known themselves. Models of one family count as independent. p is
    corrected over all rows (Holm). The random heads that the mean is held against are taken to be
    one head in all models: the mean of their standard deviations, which is the most cautious.

    Args:
        asymmetry: those of several models, with the columns model and lexicon.
        influences: of the same models, by model and lexicon.

    Returns:
        lexicon, prompt, n (models), stems (in any of them), mean, error_models, error_words,
        freedom, low, high, p, above (models with a steeper positive arm), random_head,
        heads_within, states, p_holm, random_head_holm. error_models is
        missing for one model, error_words where a model's influences are; low, high and p where
        either is.

    Source: Owen 2007 (The pigeonhole bootstrap) for adding the variances; Satterthwaite 1946.
    """
    rows = []
    for (lexicon, prompt), part in asymmetry.groupby(["lexicon", "prompt"], sort=False):
        values, n = part["steeper_sd"].to_numpy(), len(part)
        within = float(part["heads_within"].mean(skipna=False))
        moves, names = _moves_of_mean(part, influences)
        models = values.var(ddof=1) / n if n > 1 else np.nan
        words, freedom = np.square(moves).sum(), int(part["stems"].min()) - 2
        total = models + words  # not a number where either variance is unknown
        if total > 0:
            freedom = total**2 / (models**2 / (n - 1) + words**2 / freedom)
        low, high, p = interval(values.mean(), np.sqrt(total), freedom, confidence=confidence)
        rows.append(
            {
                "lexicon": lexicon,
                "prompt": prompt,
                "n": n,
                "stems": names,
                "mean": values.mean(),
                "error_models": np.sqrt(models),
                "error_words": np.sqrt(words),
                "freedom": float(freedom) if total >= 0 else np.nan,
                "low": float(low),
                "high": float(high),
                "p": float(p),
                "above": int((values > 0).sum()),
                "random_head": float(share_beyond(values.mean(), np.array(within / WITHIN))),
                "heads_within": within,
                "states": several(part["states"]) if "states" in part else "",
            }
        )
    table = pd.DataFrame(rows)
    return table.assign(p_holm=holm(table["p"]), random_head_holm=holm(table["random_head"]))


def _moves_of_mean(
    part: pd.DataFrame, influences: Mapping[tuple[str, str], pd.DataFrame | None]
) -> tuple[np.ndarray, int]:
    """By how much the models' mean moves as each stem is left out of all of them, and how many
    stems there are.

    Not a number where a model's influences are unknown.
    """
    lexicon, prompt = part["lexicon"].iloc[0], part["prompt"].iloc[0]
    columns = [influences[model, lexicon] for model in part["model"]]
    available = [moves[prompt] for moves in columns if moves is not None]
    total = pd.concat(available).groupby(level=0).sum() if available else pd.Series(dtype=float)
    complete = len(available) == len(part)
    return (total.to_numpy() / len(part) if complete else np.array([np.nan])), len(total)


@analysis("sentiment", Needs(lexicons=True), place=100)
def analyse(tables: TableSet, options: Options) -> list[Result]:
    """Slopes by valence of each model, prompt and lexicon; which side is steeper; rewards by
    valence."""
    heads, of = heads_by_model(tables, options)
    fits, notes = by_lexicon(
        tables,
        options,
        lambda model, words, valence: sentiment(
            words,
            valence,
            polarity=tables.polarity,
            pairs=tables.pairs_of(model),
            heads=heads[model],
            confidence=options.confidence,
            paper=options.paper,
        ),
    )

    def joined(name: str) -> pd.DataFrame:
        rows = pd.concat(
            {key: getattr(fit, name) for key, fit in fits.items()},
            names=["model", "lexicon", "row"],
        )
        rows = rows.reset_index().drop(columns="row").assign(candidates=tables.candidates)
        return rows.assign(states=rows["model"].map(of)) if "random_head" in rows else rows

    slopes, curve, asymmetry = joined("slopes"), joined("curve"), joined("asymmetry")
    asymmetry["p_holm"] = holm(asymmetry["p"])
    asymmetry["random_head_holm"] = holm(asymmetry["random_head"])
    influences = {key: fit.influence for key, fit in fits.items()}
    across = asymmetry_across_models(asymmetry, influences, confidence=options.confidence)
    across["candidates"] = tables.candidates
    lexicon, prompt = slopes.loc[0, ["lexicon", "prompt"]]
    first = slopes[(slopes["lexicon"] == lexicon) & (slopes["prompt"] == prompt)]
    above, below = (first.loc[first["arm"] == arm, "slope_sd"].mean() for arm in ARMS)
    # The pair of opposite prompts where there is one.
    pairs = asymmetry.loc[asymmetry["frames"] == "opposite", "prompt"].unique()
    shown = across[across["prompt"].isin(pairs if len(pairs) else [prompt])]
    side = shown[shown["lexicon"] == lexicon].iloc[0]
    # One row below the models' in each panel.
    means = across[across["n"] > 1].rename(
        columns={"mean": "steeper_sd", "low": "low_sd", "high": "high_sd"}
    )
    tested, band = by_heads(across)
    # The words of the first lexicon, each with the line of its arm.
    dots = joined("words").query("lexicon == @lexicon")
    dots = dots.assign(arm=np.select([dots["valence"] > 0, dots["valence"] < 0], ARMS, "none"))
    lines = slopes[slopes["lexicon"] == lexicon][["model", "prompt", "arm", "slope_sd", "level_sd"]]
    dots = dots.merge(lines, on=["model", "prompt", "arm"], how="left")
    dots["fit"] = dots.pop("level_sd") + dots.pop("slope_sd") * dots["valence"]
    prefix = "" if tables.candidates == "vocabulary" else f"{tables.candidates}-"
    figure: dict[str, Any] = {"panel": "prompt", "tabs": ("lexicon",)}
    unit = "reward (SD) per unit of valence"
    effect = Effect(
        "steeper_sd",
        unit,
        "low_sd",
        "high_sd",
        p=tested,
        null=0.0,
        of="words",
        unit="SD",
        band=band,
    )
    over_models = Effect("mean", unit, "low", "high", p=tested, null=0.0, of="models", band=band)
    number = over_models.at(side)
    n_models = first["model"].nunique()
    of_models = (
        f"mean of {n_models} models" if n_models > 1 else tables.labels[first["model"].iloc[0]]
    )
    mean = f"{side['mean']:+.2f} SD per unit{of_random_heads(side)}"
    return [
        Result(
            "sentiment",
            slopes,
            headline=f"On {prompt}, a unit of {lexicon} valence is worth {above:+.2f} SD of reward "
            f"above zero and {below:+.2f} below ({of_models}).",
            plot=Forest(
                data=with_mean(slopes, "slope_sd", by=["lexicon", "prompt", "arm"]),
                estimate="slope_sd",
                low="low_sd",
                high="high_sd",
                group="arm",
                xlabel=unit,
                **figure,
            ),
            method="sentiment",
            weight=weight_of((above + below) / 2, share=1 / 2),  # expected of every model
            estimate=Estimate(f"{unit}, above zero", above, first["model"].nunique(), "models"),
            notes=(*tables.without_columns(), *whose(heads, tables.labels), *notes),
        ),
        Result(
            "sentiment_asymmetry",
            asymmetry,
            headline=f"On {side['prompt']}, rewards rise more steeply with {lexicon} valence on "
            f"{'the words asked for' if len(pairs) else 'positive words'}: {mean}."
            if side[tested] <= LEVEL and side["mean"] > 0
            else f"On {side['prompt']}, no steeper side of {lexicon} valence is found: {mean}.",
            plot=Forest.of(
                effect,
                data=pd.concat([asymmetry, means.assign(model=MEAN)], ignore_index=True),
                xlabel="difference of slopes (SD per unit of valence)",
                **figure,
            ),
            method="sentiment",
            weight=number.weight(share=1 if len(pairs) else 1 / 2),  # of one prompt: the lexicon's
            estimate=number,
            summary={
                f"{prefix}sentiment/{row.lexicon}/{row.prompt}/steeper": float(row.mean)
                for row in across.itertuples()
            },
            effect=effect,
        ),
        Result("sentiment_models", across, method="sentiment", effect=over_models),
        Result(
            "sentiment_words",
            dots,
            plot=Scatter(
                x="valence",
                y="z",
                panel="model",
                line="fit",
                group="arm",
                dense=True,
                xlabel=f"{lexicon} valence",
                ylabel="reward (SD)",
                across=5,
            ),
            method="sentiment",
        ),
        Result(
            "sentiment_curve",
            curve,
            plot=Lines(
                x="valence",
                y="z",
                thin="model",
                marks=True,
                reference=0.0,
                xlabel="valence",
                ylabel="reward (SD)",
                **figure,
            ),
            method="sentiment",
        ),
    ]
