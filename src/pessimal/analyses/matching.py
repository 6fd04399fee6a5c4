"""Matched controls: other words as frequent and as positive as a term; and how sure a mean over
matched sets is.

Knows words and their covariates. Controls are chosen without any reward, so that what is compared
cannot be chosen by its outcome. The error of a mean counts that one control may serve several
terms, and that forms of one stem are one observation.
"""

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pessimal.tables.word_lists import stems

CONTROLS = 20
LEAST_CONTROLS = 5
ZIPF_CALIPER = 0.25
"""Farthest a control's frequency may lie from the term's, in Zipf units: a factor of 1.8 either
way."""
VALENCE_CALIPER = 0.5
"""Farthest its rating may lie, in standard deviations of the lexicon's ratings."""
REACHES = (1 / 16, 1 / 4, 1)
"""Slices of the frequency caliper that are searched in turn: of 30,000 words the first mostly does,
ten times faster."""
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


def stems_of(words: Sequence[str]) -> np.ndarray:
    """(n,) what all forms of a word share (Porter 1980, and a few irregular plurals)."""
    return stems(pd.Index([IRREGULAR.get(word, word) for word in words], dtype=object))


def matched_controls(
    groups: Mapping[str, Sequence[str]],
    covariates: pd.DataFrame,
    *,
    banned: Collection[str] = (),
    controls: int = CONTROLS,
    least: int = LEAST_CONTROLS,
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
        controls: how many are taken at most.
        least: terms with fewer are left out.

    Returns:
        One row per group, term and control, in the order given, nearest controls first: group,
        term, control, distance.
    """
    words = covariates.index.tolist()
    places = {word: place for place, word in enumerate(words)}
    stem, known_stems = pd.factorize(stems_of(words))  # stem: (words,) its number
    numbers = {known: number for number, known in enumerate(known_stems)}

    def sharing(others: Collection[str]) -> np.ndarray:
        """(words,) bool: shares a stem with one of `others`."""
        shared = np.zeros(len(numbers), dtype=bool)
        shared[[numbers[each] for each in stems_of(list(others)) if each in numbers]] = True
        return shared[stem]

    known = covariates["zipf"].notna().to_numpy()
    long = np.fromiter((len(word) >= SHORTEST for word in words), dtype=bool, count=len(words))
    usable = known & long & ~sharing(banned)
    scaled = _in_calipers(covariates)
    rated = covariates.drop(columns="zipf").notna().to_numpy() @ (
        1 << np.arange(covariates.shape[1] - 1)
    )
    # Words rated by the same lexicons, in order of frequency, so that a caliper is a slice.
    strata = {}
    for kind in np.unique(rated):
        rows = np.flatnonzero(usable & (rated == kind))
        strata[kind] = rows[np.argsort(scaled[rows, 0], kind="stable")]
    pieces = []
    for group, terms in groups.items():
        allowed = ~sharing(terms)
        for term in dict.fromkeys(terms):
            place = places.get(term)
            if place is None or not known[place]:
                continue
            rows, distance = _nearest(
                term, scaled[place], strata[rated[place]], scaled, words, allowed, controls
            )
            if len(rows) >= least:
                pieces += [
                    (group, term, words[row], gap) for row, gap in zip(rows, distance, strict=True)
                ]
    return pd.DataFrame(pieces, columns=["group", "term", "control", "distance"]).astype(
        {"distance": float}
    )


def _in_calipers(covariates: pd.DataFrame) -> np.ndarray:
    """(words, covariates): frequency first, each in units of its caliper; 0 where not rated."""
    ratings = covariates.drop(columns="zipf")
    spread = ratings.std().where(lambda s: s > 0, 1.0)
    rated = (ratings / spread / VALENCE_CALIPER).to_numpy(dtype=float)
    return np.nan_to_num(np.column_stack([covariates["zipf"] / ZIPF_CALIPER, rated]))


def _nearest(
    term: str,
    at: np.ndarray,
    rows: np.ndarray,
    scaled: np.ndarray,
    words: Sequence[str],
    allowed: np.ndarray,
    count: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and distances of the nearest words within all calipers; `rows` are in order of
    frequency."""
    frequency = scaled[rows, 0]
    for reach in REACHES:
        low, high = np.searchsorted(frequency, [at[0] - reach - ROUNDING, at[0] + reach + ROUNDING])
        near = rows[low:high]
        near = near[allowed[near]]
        gaps = np.abs(scaled[near] - at)
        inside = (gaps <= 1 + ROUNDING).all(axis=1)
        near, distance = near[inside], np.round(np.sqrt((gaps[inside] ** 2).sum(axis=1)), 9)
        # Nothing outside this slice is nearer than its reach, so with enough inside it there is no
        # need to go on.
        if (distance <= reach).sum() >= count:
            break
    if len(near) > count:
        within = distance <= np.partition(distance, count - 1)[count - 1]
        near, distance = near[within], distance[within]
    lots = [zlib.crc32(f"{term} {words[row]}".encode()) for row in near]
    order = np.lexsort((lots, distance))[:count]
    return near[order], distance[order]


@dataclass(frozen=True)
class MatchedSets:
    """The matched sets of one group of terms, as places in a list of words. A *unit* is a stem: its
    terms are averaged."""

    terms: np.ndarray
    """(terms,) place of each term."""
    unit: np.ndarray
    """(terms,) which unit it belongs to."""
    controls: np.ndarray
    """(all controls,) places, term by term."""
    starts: np.ndarray
    """(terms,) where each term's controls begin."""
    units: int
    mean_variance: float
    """Variance of the mean over units, in units of one word's variance: 1 / units, and what the
    controls add."""
    scatter_expected: float
    """Expected sum of squares of the units' effects about their mean, in the same units."""
    distinct: int
    """Different words among the controls."""

    @property
    def counts(self) -> np.ndarray:
        """(terms,) controls of each term."""
        return np.diff(self.starts, append=len(self.controls))

    def term_effects(self, grid: np.ndarray) -> np.ndarray:
        """(terms, measures): each term less the mean of its controls. `grid` is (words,
        measures)."""
        return grid[self.terms] - self._means(grid)

    def unit_effects(self, grid: np.ndarray) -> np.ndarray:
        """(units, measures): the terms' effects, averaged within each stem."""
        sums = np.zeros((self.units, grid.shape[1]))
        np.add.at(sums, self.unit, self.term_effects(grid))
        return sums / np.bincount(self.unit)[:, None]

    def weights(self, present: np.ndarray) -> np.ndarray:
        """(words,) whose sum with any column is the mean of `unit_effects`, over terms and controls
        that are `present` (words,) alone."""
        near = np.add.reduceat(present[self.controls].astype(float), self.starts)
        whole = present[self.terms] & (near > 0)
        in_unit = np.bincount(self.unit, weights=whole, minlength=self.units)
        each = whole / np.maximum(in_unit, 1)[self.unit] / max(int((in_unit > 0).sum()), 1)
        weights = np.zeros(len(present))
        np.add.at(weights, self.terms, each)
        spread = np.repeat(each / np.maximum(near, 1), self.counts)
        np.add.at(weights, self.controls, -spread * present[self.controls])
        return weights

    def within(self, grid: np.ndarray) -> tuple[np.ndarray, int]:
        """Sum of squares (measures,) of the controls about their sets' means, and its degrees of
        freedom."""
        about = grid[self.controls] - np.repeat(self._means(grid), self.counts, axis=0)
        return (about**2).sum(axis=0), int((self.counts - 1).sum())

    def _means(self, grid: np.ndarray) -> np.ndarray:
        """(terms, measures): mean of each term's controls."""
        return np.add.reduceat(grid[self.controls], self.starts, axis=0) / self.counts[:, None]


def matched_sets(matches: pd.DataFrame, places: Mapping[str, int]) -> MatchedSets:
    """The sets of `matches` as places in a list of words, and the error of a mean over them.

    Args:
        matches: of `matched_controls`: group, term, control; at least one set.
        places: of each word in the list.
    """
    groups, terms = matches["group"].tolist(), matches["term"].tolist()
    sets = list(zip(groups, terms, strict=True))
    starts = np.array([i for i, each in enumerate(sets) if i == 0 or each != sets[i - 1]])
    counts = np.diff(starts, append=len(sets))
    terms = [terms[start] for start in starts]
    unit, distinct_stems = pd.factorize(stems_of(terms))
    units = len(distinct_stems)
    controls = np.array([places[word] for word in matches["control"].tolist()])
    distinct, number = np.unique(controls, return_inverse=True)
    # Weight of each control in its unit's effect, then in the mean over units.
    weight = np.repeat(1 / (np.bincount(unit)[unit] * counts), counts)
    pairs = np.unique(np.repeat(unit, counts) * len(distinct) + number, return_inverse=True)[1]
    in_unit = np.bincount(pairs, weights=weight)
    in_mean = np.bincount(number, weights=weight / units)
    mean_variance = 1 / units + float((in_mean**2).sum())
    return MatchedSets(
        terms=np.array([places[term] for term in terms]),
        unit=unit,
        controls=controls,
        starts=starts,
        units=units,
        mean_variance=mean_variance,
        scatter_expected=units + float((in_unit**2).sum()) - units * mean_variance,
        distinct=len(distinct),
    )
