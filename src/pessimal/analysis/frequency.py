"""Word frequency and reward: does a model like a word because it is common, whatever it means?

Knows one model's rewards of words under several prompts, how often words are used, and a lexicon.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pessimal.analysis.regression import Fit, classical, interval, robust
from pessimal.analysis.words import check_words, stem_groups, with_half_sums
from pessimal.errors import TableError

SETS = ("rated", "unrated")
LEAST_LETTERS, LEAST_ZIPF = 3, 4.0
"""Of an unrated word: so many letters, and 10 uses per million words. What a vocabulary holds below that is more often a
name, an abbreviation or a piece of words, and a model that dislikes pieces would pass for one that likes frequent words:
in siblings of the demo family without a plant the slope is +.04 to +.16 from 1 use per million on, -.01 to +.01 from 10."""
LEAST_WORDS = 30
COLUMNS = ["words", "frames", "prompt", "n", "stems", "slope", "low", "high", "p"]
COLUMNS += ["slope_sd", "low_sd", "high_sd"]


def frequency_slopes(
    words: pd.DataFrame,
    zipf: pd.Series,
    valence: pd.Series,
    *,
    pairs: Sequence[tuple[str, str]] = (),
    unrated: pd.Index | None = None,
    least_zipf: float = LEAST_ZIPF,
    confidence: float = 0.95,
) -> pd.DataFrame:
    """Reward per Zipf unit (a factor of ten in use), over two sets of words, under each prompt and in opposite frames.

    - `rated`: words of the lexicon. Controlled for valence and its absolute value, since rewards rise at one slope above
      zero and at another below (see `sentiment`). Somebody listed them, so all are words.
    - `unrated`: words in no lexicon, with at least `LEAST_LETTERS` letters and a frequency of `least_zipf`. Whatever
      valence they have is not known, so it cannot be controlled for.

    A slope under one prompt is biased: good words are used more than bad ones, and no lexicon knows all of their
    valence, so a prompt that good words answer gains from frequency and its opposite loses. The half-sum of the two
    (`frames` is opposite) takes valence out whatever it is, provided that the model turns it round with the frame.

    A word counts once. Errors are cluster-robust by stem (see `regression.robust`), t has stems − coefficients degrees
    of freedom. Words alike in meaning count as independent, so intervals are too narrow rather than too wide; they say
    how far other words would move the slope, nothing about another training run. Associations, not causes.

    Args:
        words: all words of the model's vocabulary × prompts, from `words.by_word`.
        zipf: by word; words that are missing or NaN are not used.
        valence: by word, of the lexicon whose words are `rated`.
        pairs: prompts with opposite frames, both columns of `words`.
        unrated: words that may count as `unrated`: in no lexicon, and words rather than pieces. By default all that
            `valence` lacks.
        least_zipf: of the words that count as `unrated`.
        confidence: of the intervals.

    Returns:
        One row per set and prompt or pair: words, frames (one, opposite), prompt (a pair is `a × b`), n, stems, slope,
        low, high, p, slope_sd, low_sd, high_sd (over the standard deviation of the rewards of all words of the
        vocabulary; for a pair the mean of its two). A set with fewer than `LEAST_WORDS` words has no rows.

    Raises:
        TableError: see `words.check_words` and `words.with_half_sums`; or no set has enough words.

    Source: Christian et al. 2025, Figure 3D (rated words, one frame; see `published_frequency_slopes`).
    """
    check_words(words)
    outcomes, scales = with_half_sums(words, pairs)
    used = zipf.reindex(words.index).astype(float)
    values = valence.reindex(words.index)
    free = values.isna()
    if unrated is not None:
        free &= (
            unrated.get_indexer(words.index) >= 0
        )  # ten times as fast as `isin` on an index of Arrow strings
    long_enough = words.index.str.len() >= LEAST_LETTERS
    chosen = {
        "rated": values.notna() & used.notna(),
        "unrated": free & long_enough & (used >= least_zipf),
    }
    pieces = []
    for name in SETS:
        inside = chosen[name].to_numpy()
        if inside.sum() < LEAST_WORDS:
            continue
        design = np.column_stack([np.ones(inside.sum()), used[inside]])
        if name == "rated":
            design = np.column_stack([design, *_controls(values[inside].to_numpy(dtype=float))])
        groups = stem_groups(words.index[inside])
        fit = robust(design, outcomes[inside].to_numpy(), groups)
        pieces.append(
            _rows(fit, name, outcomes, scales, n=int(inside.sum()), groups=groups, confidence=confidence)
        )
    if not pieces:
        counted = ", ".join(f"{name} {int(chosen[name].sum())}" for name in SETS)
        raise TableError(
            f"Too few words whose frequency is known ({counted}); a slope needs {LEAST_WORDS}. Scan a vocabulary, or "
            "give a frequency list that knows these words."
        )
    return pd.concat(pieces, ignore_index=True).assign(
        frames=lambda table: np.where(table["prompt"].isin(words.columns), "one", "opposite")
    )[COLUMNS]


def published_frequency_slopes(
    tokens: pd.DataFrame, per_million: pd.Series, valence: pd.Series, *, confidence: float = 0.95
) -> pd.DataFrame:
    """The published regression: reward on the natural logarithm of uses per million and on valence, a prompt at a time.

    Rows are tokens whose text in lower case stands in the lexicon, outer white space included, and in the frequency
    list; a word that the list has several times (once a part of speech) multiplies its rows, as in the published join.
    Errors are textbook ones, and count all of these rows as independent: they are too small.

    Args:
        tokens: of `words.as_published`, × prompts.
        per_million: uses per million words, by word; a word may occur several times.
        valence: by word.

    Returns:
        As `frequency_slopes`, all rows `rated` and of one frame; n counts joined rows; slopes are per unit of the
        natural logarithm: × 2.303 for a Zipf unit.

    Raises:
        TableError: see `words.check_words`; or fewer than `LEAST_WORDS` rows are joined.

    Source: the code of Christian et al. 2025, Figure 3D.
    """
    check_words(tokens, repeated=True)
    rated = tokens[tokens.index.isin(valence.index)]
    known = per_million[per_million > 0].rename("per_million")
    joined = rated.join(known, how="inner")
    if len(joined) < LEAST_WORDS:
        raise TableError(
            f"{len(joined)} rows are left of {len(tokens)} tokens after the joins with the lexicon and the frequency list; "
            f"a slope needs {LEAST_WORDS}. The published joins lose tokens with a leading space: try paper=false."
        )
    control = valence.reindex(joined.index).to_numpy(dtype=float)
    design = np.column_stack([np.ones(len(joined)), np.log(joined["per_million"]), control])
    fit = classical(design, joined[list(tokens)].to_numpy(dtype=float))
    groups = stem_groups(joined.index)
    rows = _rows(
        fit, "rated", tokens, tokens.std(ddof=0), n=len(joined), groups=groups, confidence=confidence
    )
    return rows.assign(frames="one")[COLUMNS]


def _controls(valence: np.ndarray) -> list[np.ndarray]:
    """Valence, and its absolute value where that is something else."""
    both = (valence > 0).any() and (valence < 0).any()
    return [valence, np.abs(valence)] if both else [valence]


def _rows(
    fit: Fit,
    name: str,
    outcomes: pd.DataFrame,
    scales: pd.Series,
    *,
    n: int,
    groups: np.ndarray,
    confidence: float,
) -> pd.DataFrame:
    """The coefficient of frequency, the design's second column, for each outcome."""
    slope = fit.coefficients[1]
    low, high, p = interval(slope, fit.errors[1], fit.freedom, confidence=confidence)
    scale = scales[list(outcomes)].to_numpy()
    return pd.DataFrame(
        {
            "words": name,
            "prompt": list(outcomes),
            "n": n,
            "stems": len(np.unique(groups)),
            "slope": slope,
            "low": low,
            "high": high,
            "p": p,
            "slope_sd": slope / scale,
            "low_sd": low / scale,
            "high_sd": high / scale,
        }
    )
