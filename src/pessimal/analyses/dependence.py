"""Which candidates are not independent: spellings of a word, words of a stem, words alike in
meaning; and by how much that widens the error of a statistic.

Knows texts and vectors of meaning. Knows neither models nor what is computed from rewards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd

from pessimal.analyses.analysis import Meanings
from pessimal.errors import MissingExtraError
from pessimal.tables.words import spelled, stems

SAMPLED = 2000
"""Words of whose pairs it is estimated how alike rewards are; two million pairs."""
STRATA = (0.003, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.997, 0.999)
"""Where pairs are cut into strata of likeness, as shares of the pairs: fine at the ends, where few
pairs are much alike or much unlike. They hold 96 % of the squared likeness of MiniLM's words."""


@dataclass(frozen=True)
class Dependence:
    """Clusters of n candidates, and how alike in meaning the clusters of words are."""

    clusters: np.ndarray
    """(n,) which cluster, from 0 in order of appearance. A word's spellings and the words of its
    stem are one; a piece, a byte or an unused id is one by itself."""
    words: np.ndarray
    """(clusters,) whether the cluster is of words."""
    pairs: tuple[np.ndarray, np.ndarray]
    """Of sampled clusters of words every two."""
    strata: np.ndarray
    """Of each pair, its stratum of likeness in meaning."""

    def alike(self, values: np.ndarray) -> np.ndarray:
        """Mean correlation of the values (n,) of two words in each stratum, (strata,); none where
        no meaning is known.

        A word's value is the mean of its spellings and of the words of its stem.
        """
        if not len(self.strata):
            return np.zeros(0)
        sums = np.bincount(self.clusters, weights=values)
        means = sums / np.bincount(self.clusters)
        of_words = means[self.words]
        z = (means - of_words.mean()) / (of_words.std() or 1.0)
        first, second = self.pairs
        return np.bincount(self.strata, weights=z[first] * z[second]) / np.bincount(self.strata)

    def inflation(self, *correlations: np.ndarray) -> float:
        """By what the variance of a statistic over words is multiplied, as these are not
        independent; at least 1.

        Its influence values being products of fields, two words' influence correlates as the
        product of the fields' correlations: of one field for a mean, of two for a correlation of
        unrelated columns, of the same one three times for a skewness (the third Hermite
        polynomial).

        Args:
            correlations: of `alike`, one for each factor.

        Source: Clifford, Richardson & Hémon 1989, for a correlation of fields in the plane; the
            strata are of distance there.
        """
        if not len(self.strata):
            return 1.0
        shares = np.bincount(self.strata) / len(self.strata)
        likeness = float(shares @ np.prod(correlations, axis=0))
        return max(1.0, 1.0 + (int(self.words.sum()) - 1) * likeness)

    def summed(self, influences: np.ndarray, inflations: np.ndarray) -> np.ndarray:
        """(clusters, m): influence values (n, m) as those of clusters, so that their mean over
        clusters is the candidates', those of words scaled by the root of the m inflations."""
        size = len(self.words)
        sums = np.stack(
            [np.bincount(self.clusters, weights=column, minlength=size) for column in influences.T],
            axis=1,
        )
        return sums * (size / len(influences)) * np.where(self.words[:, None], inflations**0.5, 1.0)


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
    clusters, unique = pd.factorize(cluster_keys)
    firsts = np.unique(clusters, return_index=True)[1]
    of_words = is_word[firsts]
    nothing = np.zeros(0, dtype=np.int64)
    if meanings is None or of_words.sum() < 3:
        return Dependence(clusters, of_words, (nothing, nothing), nothing)
    named = np.flatnonzero(of_words)
    if len(named) > SAMPLED:
        named = np.sort(np.random.default_rng(0).choice(named, SAMPLED, replace=False))
    try:
        vectors = meanings([keys[place] for place in firsts[named]])
    except MissingExtraError:
        return Dependence(clusters, of_words, (nothing, nothing), nothing)
    first, second = np.triu_indices(len(named), k=1)
    likeness = (vectors @ vectors.T)[first, second]
    edges = np.unique(np.quantile(likeness, STRATA))
    strata = np.searchsorted(edges, likeness, side="right")
    strata = np.unique(strata, return_inverse=True)[1]  # none is empty
    return Dependence(clusters, of_words, (named[first], named[second]), strata)


def _is_phrase(text: str) -> bool:
    return " " in text and text.replace(" ", "").isalpha()


def _stems(words: pd.Index) -> np.ndarray:
    try:
        return stems(words)
    except MissingExtraError:
        return words.to_numpy()
