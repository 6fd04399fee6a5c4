"""Which candidates are not independent: spellings of a word, words of a stem, words alike in
meaning; and by how much that widens the error of a statistic.

Knows texts and vectors of meaning. Knows neither models nor what is computed from rewards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import Meanings
from pessimal.errors import MissingExtraError
from pessimal.tables.word_lists import spelled, stems

SAMPLED = 2000
"""Words of whose pairs it is estimated how alike rewards are; two million pairs."""
STRATA = (0.003, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.997, 0.999)
"""Where pairs are cut into strata of likeness, as shares of the pairs: fine at the ends, where few
pairs are much alike or much unlike. They hold 96 % of the squared likeness of MiniLM's words."""


@dataclass(frozen=True)
class Dependence:
    """Clusters of n candidates, and how alike in meaning words of different clusters are."""

    clusters: np.ndarray
    """(n,) which cluster, from 0 in order of appearance. A word's spellings and the words of its
    stem are one; a piece, a byte or an unused id is one by itself."""
    words: np.ndarray
    """(n,) whether the candidate spells a word or a phrase."""
    pairs: tuple[np.ndarray, np.ndarray]
    """Of sampled words every two that are not of one cluster."""
    strata: np.ndarray
    """Of each pair, its stratum of likeness in meaning; none where no meaning is known."""

    @cached_property
    def _sizes(self) -> np.ndarray:
        """(strata,) pairs of each stratum; counting millions takes as long as a correlation."""
        return np.bincount(self.strata)

    def alike(self, values: np.ndarray) -> np.ndarray:
        """Mean correlation of the values (n,) of two words in each stratum, (strata,)."""
        if not len(self.strata):
            return np.zeros(0)
        of_words = values[self.words]
        z = (values - of_words.mean()) / (of_words.std() or 1.0)
        first, second = self.pairs
        return np.bincount(self.strata, weights=z[first] * z[second]) / self._sizes

    def likeness(self, *correlations: np.ndarray) -> float:
        """Mean correlation of the influence values of two words of different clusters, at least 0.

        Where influence values are products of fields, they correlate as the product of the fields'
        correlations: of two columns that have nothing to do with one another for a correlation, of
        one column taken twice for a variance and three times for a skewness (the Hermite
        polynomials).

        Args:
            correlations: of `alike`, one for each factor.

        Source: Clifford, Richardson & Hémon 1989, for a correlation of two fields in the plane;
            there the strata are of distance.
        """
        if not len(self.strata):
            return 0.0
        shares = self._sizes / len(self.strata)
        return max(0.0, float(shares @ np.prod(correlations, axis=0)))

    def summed(self, influences: np.ndarray, likeness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Influence values of clusters, whose mean is the candidates', and by what likeness in
        meaning multiplies their variance; those of words are scaled by the root of it.

        Args:
            influences: (n, m).
            likeness: (m,) of `likeness`.

        Returns:
            (clusters, m) and (m,).
        """
        size = int(self.clusters.max(initial=-1)) + 1
        sums = np.stack(
            [np.bincount(self.clusters, weights=column, minlength=size) for column in influences.T],
            axis=1,
        )
        of_words = np.zeros(size, dtype=bool)
        of_words[self.clusters[self.words]] = True
        inflations = np.ones(influences.shape[1])
        if of_words.any():
            # Around the words' own mean, so that all clusters together keep the mean 0.
            centre = sums[of_words].mean(axis=0)
            own = np.square(sums[of_words] - centre).sum(axis=0)
            within = influences[self.words] - influences[self.words].mean(axis=0)
            shared = (int(self.words.sum()) - 1) * np.square(within).sum(axis=0)
            inflations += np.divide(likeness * shared, own, out=np.zeros_like(own), where=own > 0)
            sums[of_words] = centre + (sums[of_words] - centre) * np.sqrt(inflations)
        return sums * (size / len(influences)), inflations


def dependence(texts: Sequence[str] | pd.Index, meanings: Meanings | None) -> Dependence:
    """How candidates of these texts depend on one another; computed once for the same texts.

    Letters are a word, letters and spaces a phrase, which is a cluster by itself. Without the
    package of the stems a word's spellings alone are a cluster; without that of the meanings, or
    where `meanings` is None, words alike in meaning count as independent.
    """
    return _dependence(tuple(map(str, texts)), meanings)


@lru_cache(maxsize=16)
def _dependence(texts: tuple[str, ...], meanings: Meanings | None) -> Dependence:
    words = spelled(pd.Index(texts, dtype=object)).to_numpy()
    keys: list = [
        word or (name if _is_phrase(name := text.strip().lower()) else None)
        for word, text in zip(words, texts, strict=True)
    ]
    is_word = np.array([key is not None for key in keys], dtype=bool)
    names = pd.Index([key for key in keys if key is not None], dtype=object)
    cluster_keys = np.empty(len(keys), dtype=object)
    cluster_keys[is_word] = _stems(names)
    cluster_keys[~is_word] = np.flatnonzero(~is_word)
    clusters = pd.factorize(cluster_keys)[0]
    nothing = np.zeros(0, dtype=np.int64)
    independent = Dependence(clusters, is_word, (nothing, nothing), nothing)
    named = np.flatnonzero(is_word)
    if meanings is None or len(named) < 3:
        return independent
    if len(named) > SAMPLED:
        named = np.sort(np.random.default_rng(0).choice(named, SAMPLED, replace=False))
    try:
        vectors = meanings([keys[place] for place in named])
    except MissingExtraError:
        return independent
    first, second = np.triu_indices(len(named), k=1)
    apart = clusters[named[first]] != clusters[named[second]]
    first, second = first[apart], second[apart]
    if not len(first):
        return independent
    likeness = (vectors @ vectors.T)[first, second]
    strata = np.searchsorted(np.unique(np.quantile(likeness, STRATA)), likeness, side="right")
    strata = np.unique(strata, return_inverse=True)[1]  # none is empty
    return Dependence(clusters, is_word, (named[first], named[second]), strata)


def _is_phrase(text: str) -> bool:
    return " " in text and text.replace(" ", "").isalpha()


def _stems(words: pd.Index) -> np.ndarray:
    try:
        return stems(words)
    except MissingExtraError:
        return words.to_numpy()
