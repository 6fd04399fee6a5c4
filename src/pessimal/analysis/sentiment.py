"""Valence and reward: how steeply rewards rise with what people think of a word, above zero and below it.

Knows one model's rewards of words under several prompts, and a lexicon. Knows no frame but its sign.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from pessimal.analysis.regression import Fit, classical, interval, robust
from pessimal.analysis.words import check_words, half_sum, stems, with_half_sums
from pessimal.errors import TableError

ARMS = ("positive", "negative")
LEAST_WORDS = 10
"""Words that an arm needs; its line has two coefficients."""
BINS_A_SIDE = 5
"""Of valence, for lexicons whose valences are not whole numbers."""


SLOPES = ["prompt", "arm", "n", "stems", "slope", "low", "high", "p"]
SLOPES += ["slope_sd", "low_sd", "high_sd", "level_sd"]
ASYMMETRY = [
    "prompt",
    "frames",
    "sign",
    "sign_from",
    "n",
    "stems",
    "difference",
    "steeper",
    "low",
    "high",
    "p",
]
ASYMMETRY += ["steeper_sd", "low_sd", "high_sd"]


class Sentiment(NamedTuple):
    """What one lexicon says about one model. In all tables z is reward less its mean over all words of the
    vocabulary, over its standard deviation there, so that models and prompts can be compared."""

    slopes: pd.DataFrame
    """prompt, arm, n (words), stems, slope, low, high (reward per unit of valence), p, slope_sd, low_sd, high_sd (z per
    unit of valence), level_sd (z of the arm's line at valence 0)."""
    asymmetry: pd.DataFrame
    """prompt, frames (one, opposite), sign, sign_from, n, stems (of the arm that has fewer), difference (slope above zero less slope below), steeper (how
    much steeper the positive arm is, in the frame's direction), low, high, p (of `steeper`), steeper_sd, low_sd, high_sd.
    A row of opposite frames is half the difference between the `steeper` of its two prompts."""
    curve: pd.DataFrame
    """prompt, valence (middle of the bin), n, z (mean), error (of that mean, words independent)."""
    influence: pd.DataFrame | None
    """index stem, a column for each prompt of the asymmetry: by how much its `steeper_sd` moves as the stem's words are
    left out. None where one stem alone decides a slope, which only `paper` lets pass."""


def sentiment(
    words: pd.DataFrame,
    valence: pd.Series,
    *,
    signs: Mapping[str, int] | None = None,
    pairs: Sequence[tuple[str, str]] = (),
    confidence: float = 0.95,
    paper: bool = False,
) -> Sentiment:
    """Separate least-squares lines of reward on valence for words above zero and words below, under each prompt.

    A word counts once, however many spellings it has. Words of one stem ('love', 'loved') are taken to be dependent:
    errors are cluster-robust (see `regression.robust`) and t has the arm's stems − 2 degrees of freedom. Words rated
    exactly 0 are in neither arm. Words that only resemble one another in meaning count as independent, so intervals are
    too narrow rather than too wide; they say how far other words would move a slope, nothing about another model.

    `steeper` is the frame's sign × (positive − negative slope): |positive| − |negative| wherever both slopes have the
    frame's sign, but without the bias that absolute values of noisy slopes have. Without a sign in `signs`, a prompt
    takes that of the sum of its two slopes (`sign_from`: frame or slopes). Its error allows for stems in both arms.

    Under one prompt `steeper` is as much the lexicon's as the model's: where raters or the lexicon's scale set bad words
    apart more finely than good ones, every model is steeper there. Opposite frames (`pairs`) take that out. Of the
    half-sum of the two prompts the positive arm less the negative one is half the difference between the two
    `steeper`: 0 for a model that turns its rewards round with the frame, whatever the lexicon; above 0 where each
    frame is steeper on the words that it asks for.

    With `paper`, rows are tokens (`words.as_published`), a zero belongs to the negative arm, and errors are textbook
    ones, which count the spellings of a word as independent. `influence` is of whole stems there too.

    Args:
        words: all words of the model's vocabulary × prompts, from `words.by_word` (`as_published` with `paper`).
        valence: by word, above 0 is good.
        signs: 1 for a prompt that good words answer, −1 for one that bad words do.
        pairs: prompts with opposite frames, the positive one first; both columns of `words`.
        confidence: of the intervals.
        paper: follow the published procedure.

    Raises:
        TableError: see `words.check_words` and `words.with_half_sums`; or an arm has fewer than `LEAST_WORDS` words, one valence
            for all of them, or no line through them.

    Source: Christian et al. 2025, Figures 3A–C and A4.
    """
    check_words(words, repeated=paper)
    prompts = list(words)
    outcomes, scales = with_half_sums(words, pairs)
    place = valence.index.get_indexer(words.index)  # ten times as fast as `isin` on an index of Arrow strings
    inside_lexicon = place >= 0
    values = valence.to_numpy(dtype=float)[place[inside_lexicon]]
    groups, names = pd.factorize(stems(words.index[inside_lexicon]))
    rated = outcomes[inside_lexicon]
    arms = {"positive": values > 0, "negative": values <= 0 if paper else values < 0}
    fits = {arm: _arm(rated, values, groups, inside, arm=arm, paper=paper) for arm, inside in arms.items()}
    counts = {arm: len(np.unique(groups[inside])) for arm, inside in arms.items()}
    slopes = [
        _slopes(fits[arm], confidence).assign(
            prompt=list(outcomes),
            arm=arm,
            n=int(inside.sum()),
            stems=counts[arm],
            level_sd=(fits[arm].coefficients[0] - outcomes.mean().to_numpy()) / scales.to_numpy(),
        )
        for arm, inside in arms.items()
    ]
    # Prompts as given, the positive arm first; half-sums only in the asymmetry, where they mean something.
    slopes = pd.concat(slopes).sort_index(kind="stable").query("prompt in @prompts")
    asymmetry = _asymmetry(
        fits, list(outcomes), dict(signs or {}), [half_sum(*pair) for pair in pairs], confidence, paper=paper
    )
    asymmetry["stems"] = min(counts.values())
    asymmetry["n"] = int(sum(inside.sum() for inside in arms.values()))
    z = (rated[prompts] - words.mean()) / scales[prompts]
    moves = _moves(fits["positive"], fits["negative"])
    if moves is not None:
        there = np.unique(np.concatenate([groups[inside] for inside in arms.values()]))
        moves = pd.DataFrame(moves[there], pd.Index(names[there], name="stem"), list(outcomes))
        moves *= asymmetry["sign"].to_numpy() / scales[list(outcomes)].to_numpy()
    return Sentiment(
        _standardised(slopes, "slope", scales)[SLOPES].reset_index(drop=True),
        _standardised(asymmetry, "steeper", scales)[ASYMMETRY],
        _curve(z, values),
        moves,
    )


def _arm(
    rated: pd.DataFrame, values: np.ndarray, groups: np.ndarray, inside: np.ndarray, *, arm: str, paper: bool
) -> Fit:
    """The line of one arm, under every prompt; stems keep their numbers, so that arms can be joined."""
    if inside.sum() < LEAST_WORDS:
        raise TableError(
            f"{inside.sum()} words with a {arm} valence were found; a slope needs {LEAST_WORDS}. Give a lexicon that "
            "rates more of these words, or a vocabulary instead of a short list."
        )
    one = values[inside]
    if np.ptp(one) == 0:
        raise TableError(
            f"No slope by valence: every {arm} word has the valence {one[0]:g}. A lexicon that only sorts words into good and "
            "bad tells how far apart the two groups lie (`lexicon_groups`), not how rewards rise with valence."
        )
    design = np.column_stack([np.ones(inside.sum()), values[inside]])
    outcomes = rated[inside].to_numpy(dtype=float)
    try:
        textbook = classical(design, outcomes) if paper else None
        stems_out = robust(design, outcomes, groups[inside])
    except TableError as error:
        if paper and textbook is not None:
            return textbook  # one stem alone decides the slope: no error over stems
        raise TableError(f"No slope over the {inside.sum()} words with a {arm} valence: {error}") from error
    return textbook._replace(deviations=stems_out.deviations) if paper else stems_out


def _slopes(fit: Fit, confidence: float) -> pd.DataFrame:
    slope = fit.coefficients[1]
    low, high, p = interval(slope, fit.errors[1], fit.freedom, confidence=confidence)
    return pd.DataFrame({"slope": slope, "low": low, "high": high, "p": p})


def _asymmetry(
    fits: Mapping[str, Fit],
    prompts: list[str],
    signs: Mapping[str, int],
    halves: Sequence[str],
    confidence: float,
    *,
    paper: bool,
) -> pd.DataFrame:
    positive, negative = fits["positive"], fits["negative"]
    together = np.sign(positive.coefficients[1] + negative.coefficients[1])
    known = {**signs, **dict.fromkeys(halves, 1)}
    sign = np.array([known.get(prompt, own or 1) for prompt, own in zip(prompts, together, strict=True)])
    difference = positive.coefficients[1] - negative.coefficients[1]
    textbook = positive.errors[1] ** 2 + negative.errors[1] ** 2  # no word in both arms
    error = np.sqrt(textbook if paper else np.square(_moves(positive, negative)).sum(axis=0))
    freedom = min(positive.freedom, negative.freedom)
    low, high, p = interval(sign * difference, error, freedom, confidence=confidence)
    return pd.DataFrame(
        {
            "prompt": prompts,
            "frames": ["opposite" if prompt in halves else "one" for prompt in prompts],
            "sign": sign.astype(int),
            "sign_from": ["frame" if prompt in known else "slopes" for prompt in prompts],
            "difference": difference,
            "steeper": sign * difference,
            "low": low,
            "high": high,
            "p": p,
        }
    )


def _moves(positive: Fit, negative: Fit) -> np.ndarray | None:
    """(stems, m) by how much the two slopes' difference moves as a stem is left out; one with words in both arms moves
    both. None where that is not known of an arm."""
    if positive.deviations is None or negative.deviations is None:
        return None
    size = max(len(positive.deviations), len(negative.deviations))
    moves = np.zeros((size, positive.errors.shape[1]))
    moves[: len(positive.deviations)] += positive.deviations[:, 1]
    moves[: len(negative.deviations)] -= negative.deviations[:, 1]
    return moves


def _standardised(table: pd.DataFrame, estimate: str, scales: pd.Series) -> pd.DataFrame:
    """With the estimate and its bounds in standard deviations of the prompt's rewards as well."""
    scale = table["prompt"].map(scales).astype(float)
    return table.assign(**{f"{column}_sd": table[column] / scale for column in (estimate, "low", "high")})


def _curve(z: pd.DataFrame, values: np.ndarray) -> pd.DataFrame:
    """Mean z by bin of valence, prompts under one another."""
    bins = z.groupby(_middles(values))
    n, mean, spread = bins.size(), bins.mean(), bins.std(ddof=1)
    pieces = [
        pd.DataFrame(
            {
                "prompt": prompt,
                "valence": n.index,
                "n": n.to_numpy(),
                "z": mean[prompt].to_numpy(),
                "error": (spread[prompt] / np.sqrt(n)).to_numpy(),
            }
        )
        for prompt in z
    ]
    return pd.concat(pieces, ignore_index=True)


def _middles(values: np.ndarray) -> np.ndarray:
    """The middle of each valence's bin: itself where all are whole numbers, else that of one of ten equal bins around 0;
    an exact 0 is a bin of its own."""
    if (values == np.round(values)).all():
        return values
    width = np.abs(values).max() / BINS_A_SIDE
    place = np.clip(np.floor(values / width), -BINS_A_SIDE, BINS_A_SIDE - 1)
    return np.where(values == 0, 0.0, (place + 0.5) * width)
