"""Control words for terms: other words as frequent, and as positive or negative, as people rate them.

Knows words and their covariates; knows no reward, so that what is compared cannot be chosen by its outcome.
"""

import zlib
from collections.abc import Collection, Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd

from pessimal.errors import TableError

CONTROLS = 20
LEAST_CONTROLS = 5
ZIPF_CALIPER = 0.25
"""Farthest a control's frequency may lie from the term's, in Zipf units: a factor of 1.8 either way."""
VALENCE_CALIPER = 0.5
"""Farthest its rating may lie, in standard deviations of the lexicon's ratings."""
REACHES = (1 / 16, 1 / 4, 1)
"""Slices of the frequency caliper that are searched in turn: of 30,000 words the first mostly does, ten times faster."""
SHORTEST = 3
"""Letters a control must have: shorter ones are function words, abbreviations and pieces of words."""
IRREGULAR = {
    "women": "woman",
    "men": "man",
    "gentlemen": "gentleman",
    "ladies": "lady",
    "children": "child",
}
"""Plurals among our terms that Porter's rules do not bring to their singular."""


@cache
def stem(word: str) -> str:
    """What all forms of a word share (Porter 1980, and a few irregular plurals)."""
    return _stemmer().stem(IRREGULAR.get(word, word))


@cache
def _stemmer():
    # Here and not above: the whole of nltk takes over a second to import.
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer()


def matched_controls(
    groups: Mapping[str, Sequence[str]],
    covariates: pd.DataFrame,
    *,
    banned: Collection[str] = (),
    controls: int = CONTROLS,
    least: int = LEAST_CONTROLS,
) -> pd.DataFrame:
    """The nearest control words of each term of each group.

    A control has at least three letters, shares a stem with no word of the term's group and no banned word, is rated
    by exactly those lexicons that rate the term, and lies within the calipers on frequency and on each rating. Of
    these the `controls` nearest in frequency and rating are taken (Euclidean, in units of the calipers). Frequencies
    are rounded, so many lie equally near; among those a checksum of both words decides, since the first of the
    alphabet would be words of one spelling. A word may be a control of several terms: `identity` counts that into its
    errors.

    Args:
        groups: terms by group; those without a known frequency, or not among the covariates, get no controls.
        covariates: index = word, each once; zipf, and a column of ratings a lexicon (missing: not rated).
        banned: further words that must not be controls, in any form.
        controls: how many are taken at most.
        least: terms with fewer are left out.

    Returns:
        One row per group, term and control, in the order given, nearest controls first: group, term, control,
        distance.

    Raises:
        TableError: no column zipf, or a word named twice.
    """
    if "zipf" not in covariates or not covariates.index.is_unique:
        raise TableError(
            f"Matching needs one row a word with a column 'zipf'; given are {len(covariates)} rows of "
            f"{covariates.index.nunique()} words with the columns {list(covariates.columns)}. Drop the repeated words."
        )
    words = covariates.index
    stems, known_stems = pd.factorize(np.array([stem(word) for word in words], dtype=object))
    never = np.isin(known_stems, [stem(word) for word in banned])  # by stem
    long = np.array([len(word) >= SHORTEST for word in words], dtype=bool)  # of no words numpy makes floats
    usable = covariates["zipf"].notna().to_numpy() & long & ~never[stems]
    scaled = _in_calipers(covariates)
    rated = covariates.drop(columns="zipf").notna().to_numpy() @ (1 << np.arange(covariates.shape[1] - 1))
    strata = {
        kind: _by_frequency(np.flatnonzero(usable & (rated == kind)), scaled) for kind in np.unique(rated)
    }
    pieces = []
    for group, terms in groups.items():
        own = np.isin(known_stems, [stem(term) for term in terms])[stems]
        for term, place in zip(terms, words.get_indexer(list(terms)).tolist(), strict=True):
            if place < 0 or np.isnan(scaled[place, 0]):
                continue
            rows, distance = _nearest(
                term, scaled[place], strata[rated[place]], scaled, words, own=own, count=controls
            )
            if len(rows) >= least:
                pieces += [(group, term, words[row], gap) for row, gap in zip(rows, distance, strict=True)]
    return pd.DataFrame(pieces, columns=["group", "term", "control", "distance"]).astype({"distance": float})


def balance(matches: pd.DataFrame, covariates: pd.DataFrame) -> pd.DataFrame:
    """How alike terms and controls are: standardised mean differences before and after the matching.

    The difference of means over the square root of the mean of both variances before matching, the same divisor
    before and after; below .1 in size is called balanced. A rating that is missing counts as 0, and whether a word is
    rated is a covariate of its own. Each term's controls weigh together as much as the term.

    Args:
        matches: of `matched_controls`.
        covariates: the same as given there.

    Returns:
        One row per covariate: covariate, n_terms, n_words (all other words of known frequency), n_controls (distinct
        words), terms, words, controls (means), before, after (standardised differences; 0 where neither varies).

    Raises:
        TableError: no term was matched.

    Source: Stuart 2010 (Matching methods for causal inference), section 4.1.
    """
    if matches.empty:
        raise TableError(
            "No term has controls, so there is no balance to look at. Give more words, or other terms."
        )
    known = covariates[covariates["zipf"].notna()]
    filled = known.fillna(0.0).join(known.drop(columns="zipf").notna().astype(float).add_suffix(" rated"))
    terms = filled.loc[matches["term"].unique()]
    others = filled.drop(index=terms.index)
    weights = 1 / matches.groupby("term")["term"].transform("size").to_numpy()
    controls = pd.Series(
        np.average(filled.loc[matches["control"]], axis=0, weights=weights), index=filled.columns
    )
    spread = np.sqrt((terms.var() + others.var()) / 2)
    before, after = terms.mean() - others.mean(), terms.mean() - controls
    table = pd.DataFrame(
        {
            "n_terms": len(terms),
            "n_words": len(others),
            "n_controls": matches["control"].nunique(),
            "terms": terms.mean(),
            "words": others.mean(),
            "controls": controls,
            "before": (before / spread).where(spread > 0, 0.0),
            "after": (after / spread).where(spread > 0, 0.0),
        }
    )
    return table.rename_axis("covariate").reset_index()


def _in_calipers(covariates: pd.DataFrame) -> np.ndarray:
    """(words, covariates): frequency first, each in units of its caliper."""
    ratings = covariates.drop(columns="zipf")
    spread = ratings.std().where(lambda s: s > 0, 1.0)
    return np.column_stack(
        [covariates["zipf"] / ZIPF_CALIPER, *((ratings / spread / VALENCE_CALIPER).to_numpy(dtype=float).T)]
    )


def _by_frequency(rows: np.ndarray, scaled: np.ndarray) -> np.ndarray:
    """Rows in order of frequency, so that a caliper is a slice."""
    return rows[np.argsort(scaled[rows, 0], kind="stable")]


def _nearest(
    term: str,
    at: np.ndarray,
    rows: np.ndarray,
    scaled: np.ndarray,
    words: pd.Index,
    *,
    own: np.ndarray,
    count: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and distances of the nearest words within all calipers; `rows` are in order of frequency."""
    for reach in REACHES:
        # A hair more: 4.25 − 4.00 is .25 as people count, not always as floats do.
        low, high = np.searchsorted(scaled[rows, 0], [at[0] - reach - 1e-9, at[0] + reach + 1e-9])
        near = rows[low:high]
        near = near[~own[near]]
        gaps = np.nan_to_num(np.abs(scaled[near] - at))  # a rating that both lack is no gap
        inside = (gaps <= 1 + 1e-9).all(axis=1)
        near, distance = near[inside], np.round(np.sqrt((gaps[inside] ** 2).sum(axis=1)), 9)
        # Nothing outside this slice is nearer than its reach, so with enough inside it there is no need to go on.
        if (distance <= reach).sum() >= count:
            break
    if len(near) > count:
        within = distance <= np.partition(distance, count - 1)[count - 1]
        near, distance = near[within], distance[within]
    lots = [zlib.crc32(f"{term} {words[row]}".encode()) for row in near]
    order = np.lexsort((lots, distance))[:count]
    return near[order], distance[order]
