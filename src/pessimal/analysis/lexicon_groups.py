"""Words that a lexicon calls positive against words that it calls negative: does a model pay one group more?

Knows one model's rewards of words under several prompts, and of a lexicon only the signs of its valences, so that one
that only sorts words (Bing: ±1) will do. For how much more per unit of valence see `sentiment`.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from pessimal.analysis.regression import interval, robust
from pessimal.analysis.words import check_words, stem_groups
from pessimal.errors import TableError

GROUPS = ("positive", "negative")
LEAST_WORDS = 10
"""Words that a group needs; intervals of fewer are not to be trusted."""


class LexiconGroups(NamedTuple):
    """What the signs of one lexicon say about one model. z is reward less its mean over all words of the vocabulary,
    over its standard deviation there, so that models and prompts can be compared."""

    separation: pd.DataFrame
    """prompt, positive, negative (words), stems, auc, auc_low, auc_high, auc_p (against ½), tied (share of the pairs with
    equal rewards), difference (mean reward of the positive less that of the negative words), difference_sd,
    difference_low_sd, difference_high_sd (z), difference_p (against 0)."""
    words: pd.DataFrame
    """prompt, word, group (positive, negative), z: in the order of the words."""


def lexicon_groups(
    words: pd.DataFrame, valence: pd.Series, *, repeated: bool = False, confidence: float = 0.95
) -> LexiconGroups:
    """The probability that a positive word earns more than a negative one, and by how much they differ on average.

    The probability (AUC) is Mann and Whitney's U over the number of pairs, of one positive and one negative word each;
    equal rewards count half. ½: the groups lie alike; 1: every positive word is above every negative one; 0: below.
    Words of valence 0 are in neither group.

    Words of one stem ('love', 'loved') are taken to be dependent, of both groups as well ('hope', 'hopeless'). The
    AUC's error is DeLong's with stems for units (Obuchowski 1997; DeLong's own where no two words share a stem). Its
    interval is made on the log-odds scale, so that it stays within 0 and 1, with Student's t and as many degrees of
    freedom as the smaller group has stems, less 1. Where the groups do not overlap at all (AUC 0 or 1) the error is 0
    whatever the number of words, so that no interval and no p value is given. The difference's error is cluster-robust
    (see `regression.robust`). Intervals say how far other words would move the number, nothing of other models.

    Args:
        words: all words of the model's vocabulary × prompts, from `words.by_word` (`as_published` with `repeated`).
        valence: by word; above 0 is good.
        repeated: rows are tokens, so that the spellings of a word count each; their dependence is allowed for.
        confidence: of the intervals.

    Raises:
        TableError: see `words.check_words`; or a group has fewer than `LEAST_WORDS` words, or words of one
            stem only.

    Source: Christian et al. 2025, Figure A3, in numbers; Obuchowski 1997, Biometrics 53:567 (clusters); DeLong et al.
    1988, Biometrics 44:837.
    """
    check_words(words, repeated=repeated)
    place = valence.index.get_indexer(words.index)
    sign = np.zeros(len(words))
    sign[place >= 0] = np.sign(valence.to_numpy(dtype=float)[place[place >= 0]])
    rated = words[sign != 0]
    positive = sign[sign != 0] > 0
    for group, n in zip(GROUPS, (positive.sum(), (~positive).sum()), strict=True):
        if n < LEAST_WORDS:
            raise TableError(
                f"{n} words with a {group} valence were found; a comparison of the groups needs {LEAST_WORDS} in each. Give "
                "a lexicon that rates more of these words, or a vocabulary instead of a short list."
            )
    stems = stem_groups(rated.index)
    rows = [
        {
            "prompt": prompt,
            "positive": int(positive.sum()),
            "negative": int((~positive).sum()),
            "stems": len(np.unique(stems)),
            **_separation(rated[prompt].to_numpy(dtype=float), positive, stems, confidence=confidence),
        }
        for prompt in words
    ]
    difference = _differences(rated, positive, stems, scale=words.std(ddof=0), confidence=confidence)
    z = (rated - words.mean()) / words.std(ddof=0)
    drawn = [
        pd.DataFrame(
            {
                "prompt": prompt,
                "word": rated.index,
                "group": np.where(positive, *GROUPS),
                "z": z[prompt].to_numpy(),
            }
        )
        for prompt in words
    ]
    return LexiconGroups(
        pd.DataFrame(rows).join(difference.reset_index(drop=True)), pd.concat(drawn, ignore_index=True)
    )


def _separation(
    rewards: np.ndarray, positive: np.ndarray, stems: np.ndarray, *, confidence: float
) -> dict[str, float]:
    """The AUC with its interval and p value, and the share of tied pairs."""
    above, below = rewards[positive], rewards[~positive]
    # Of each word, the share of the other group that it beats (a positive one) or is beaten by (a negative one).
    everywhere = stats.rankdata(rewards)
    share = np.empty(len(rewards))
    share[positive] = (everywhere[positive] - stats.rankdata(above)) / len(below)
    share[~positive] = 1 - (everywhere[~positive] - stats.rankdata(below)) / len(above)
    auc = float(share[positive].mean())
    size = int(stems.max()) + 1
    sums, groups = [], []
    for inside in (positive, ~positive):
        sums.append(np.bincount(stems[inside], weights=share[inside] - auc, minlength=size) / inside.sum())
        groups.append(len(np.unique(stems[inside])))
    if min(groups) < 2:
        raise TableError(
            "All words of one group share a stem, so that no error can be given. Give other words."
        )
    every = len(np.unique(stems))
    variance = sum(g / (g - 1) * np.square(own).sum() for g, own in zip(groups, sums, strict=True))
    variance += 2 * every / (every - 1) * (sums[0] * sums[1]).sum()
    values, counts = np.unique(below, return_counts=True)
    same = np.searchsorted(values, above)
    same[same == len(values)] = 0
    tied = counts[same][values[same] == above].sum() / (len(above) * len(below))
    low = high = p = np.nan
    if 0 < auc < 1:
        odds = np.log(auc / (1 - auc))
        error = np.sqrt(max(variance, 0)) / (auc * (1 - auc))
        low, high, p = interval(odds, error, min(groups) - 1, confidence=confidence)
        low, high = 1 / (1 + np.exp(-low)), 1 / (1 + np.exp(-high))
    return {
        "auc": auc,
        "auc_low": float(low),
        "auc_high": float(high),
        "auc_p": float(p),
        "tied": float(tied),
    }


def _differences(
    rated: pd.DataFrame, positive: np.ndarray, stems: np.ndarray, *, scale: pd.Series, confidence: float
) -> pd.DataFrame:
    """Difference of the groups' means, in rewards and in z with its interval, by prompt."""
    design = np.column_stack([np.ones(len(rated)), positive])
    fit = robust(design, rated.to_numpy(dtype=float), stems)
    difference = fit.coefficients[1]
    low, high, p = interval(difference, fit.errors[1], fit.freedom, confidence=confidence)
    columns = {"difference_sd": difference, "difference_low_sd": low, "difference_high_sd": high}
    table = pd.DataFrame({name: column / scale.to_numpy() for name, column in columns.items()})
    table.insert(0, "difference", difference)
    return table.assign(difference_p=p)
