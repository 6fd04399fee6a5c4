"""Ranks, rank correlations together with their influence functions, and which candidates are not
independent.

The influence of item i on a statistic is the derivative of the statistic as a little weight is put
on i. Its mean over the items is 0, and its standard deviation gives the statistic's standard error.
Everything is exact and O(n log n), because the vocabularies are 30,000 to 256,000 items long and
every pair of models needs it.

Candidates depend on one another where they are spellings of a word, words of a stem, or words alike
in meaning (`Dependence`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t as student

from pessimal.analyses.analysis import Meanings
from pessimal.errors import MissingExtraError
from pessimal.tables.word_lists import spelled, stems

LEAST, SMALL = 10, 100
"""Independent items. Below the first there is no interval. Below the second a statistic at its
bound has none, as a sample in which all pairs agree says nothing of its own error."""
SAMPLED = 2000
"""Words of whose pairs it is estimated how alike rewards are; two million pairs."""
STRATA = (0.003, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97, 0.99, 0.997, 0.999)
"""Where pairs are cut into strata of likeness, as shares of the pairs: fine at the ends, where few
pairs are much alike or much unlike. They hold 96 % of the squared likeness of MiniLM's words."""


class Ranked(NamedTuple):
    """One column of values, reduced to its order. All arrays are (n,)."""

    dense: np.ndarray
    """The number of the item's distinct value, counted from 0 for the smallest (int64)."""
    below: np.ndarray
    """Number of items that are strictly smaller (int64)."""
    equal: np.ndarray
    """Number of items that have this value, itself included (int64)."""

    @property
    def tied(self) -> bool:
        """Whether any two items share a value."""
        return bool(self.dense.max() + 1 < len(self.dense))

    @property
    def centred(self) -> np.ndarray:
        """Mid-distribution function minus one half: in (−½, ½), mean exactly 0, ties sharing their
        middle."""
        n = len(self.below)
        return (self.below + 0.5 * self.equal) / n - 0.5


def ranked(values: np.ndarray) -> Ranked:
    """Reduce values (n,) to their order."""
    _, dense, sizes = np.unique(values, return_inverse=True, return_counts=True)
    return Ranked(dense=dense, below=(np.cumsum(sizes) - sizes)[dense], equal=sizes[dense])


def net_concordance(a: Ranked, b: Ranked) -> np.ndarray:
    """For each item, the number of items concordant with it minus the number discordant, (n,)
    int64.

    A pair tied in `a` or in `b` counts as neither. Summed over items and halved this is Kendall's
    numerator.
    """
    n = len(a.dense)
    same_b_below_a, _ = _below_within(b, a)
    same_a_below_b, equal_in_both = _below_within(a, b)
    both_below = _below_in_both(a, b)
    # Inclusion–exclusion over the four quadrants around the item, with the ties on their borders
    # counted out.
    return (
        4 * both_below
        + 2 * (same_b_below_a + same_a_below_b)
        + equal_in_both
        + n
        - 2 * (a.below + b.below)
        - (a.equal + b.equal)
    )


def _below_within(group: Ranked, other: Ranked) -> tuple[np.ndarray, np.ndarray]:
    """Number of items tied in `group` with each item that are below it in `other`, and equal to
    it."""
    n = len(group.dense)
    if not group.tied:  # half the time of a pair of untied columns
        return np.zeros(n, dtype=np.int64), np.ones(n, dtype=np.int64)
    joint = ranked(group.dense * n + other.dense)
    return joint.below - group.below, joint.equal


def _below_in_both(a: Ranked, b: Ranked) -> np.ndarray:
    """For each item, how many items are strictly below it in both columns, (n,) int64."""
    n = len(a.dense)
    # Walk up `a`. Among equals in `a` the larger `b` comes first, so that no equal counts as
    # "earlier and smaller".
    order = np.argsort(a.dense * n - b.dense)
    # Positions in `b`, all distinct; among equals in `b` the later in the walk takes the smaller,
    # for the same reason.
    backwards = np.argsort(b.dense[order][::-1], kind="stable")
    position = np.empty(n, dtype=np.int64)
    position[backwards] = np.arange(n)
    result = np.empty(n, dtype=np.int64)
    result[order] = earlier_smaller(position[::-1])
    return result


def earlier_smaller(permutation: np.ndarray) -> np.ndarray:
    """For each element of a permutation of 0…n−1, how many elements before it are smaller, (n,)
    int64.

    A wavelet tree taken level by level: elements stay in their order inside blocks that share their
    leading bits; at each bit, a 1 is larger than every 0 before it in its block. ⌈log₂ n⌉ passes of
    vectorised O(n) work, in 32 bits: 128,000 elements in 42 ms; in 64 bits they took 71.
    """
    n = len(permutation)
    count = np.zeros(n, dtype=np.int32)
    values, place = permutation.astype(np.int32), np.arange(n, dtype=np.int32)
    for bit in reversed(range((n - 1).bit_length())):
        is_one = (values >> bit) & 1 == 1
        block = values >> (bit + 1) << (bit + 1)  # the smallest value of a block is where it begins
        zeros = np.cumsum(~is_one, dtype=np.int32)
        zeros_before = zeros - ~is_one  # before this place, anywhere
        zeros_before -= zeros_before[block]  # before this place, in this block
        ones = np.flatnonzero(is_one)
        count[values[ones]] += zeros_before[ones]
        target = np.where(is_one, place + np.int32(1 << bit) - zeros_before, block + zeros_before)
        moved = np.empty_like(values)
        moved[target] = values
        values = moved
    return count[permutation].astype(np.int64)


@dataclass(frozen=True)
class Dependence:
    """Clusters of n candidates, and how alike in meaning words of different clusters are."""

    clusters: np.ndarray
    """(n,) which cluster, from 0 in order of appearance. A word's spellings and the words of its
    stem are one; a piece, a byte or an unused id is one by itself."""
    words: np.ndarray
    """(n,) whether the candidate spells a word or a phrase."""
    pairs: tuple[np.ndarray, np.ndarray]
    """Every two of the sampled words that are not of one cluster."""
    strata: np.ndarray
    """Stratum of each pair by likeness in meaning; none where no meaning is known."""

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
            between = np.square(sums[of_words] - centre).sum(axis=0)
            about = influences[self.words] - influences[self.words].mean(axis=0)
            shared = (int(self.words.sum()) - 1) * np.square(about).sum(axis=0)
            inflations += np.divide(
                likeness * shared, between, out=np.zeros_like(between), where=between > 0
            )
            sums[of_words] = centre + (sums[of_words] - centre) * np.sqrt(inflations)
        return sums * (size / len(influences)), inflations


def dependence(texts: Sequence[str] | pd.Index, meanings: Meanings | None) -> Dependence:
    """The dependence of candidates of these texts on one another; computed once for the same texts.

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
    spelling = np.flatnonzero(is_word)
    if meanings is None or len(spelling) < 3:
        return independent
    if len(spelling) > SAMPLED:
        spelling = np.sort(np.random.default_rng(0).choice(spelling, SAMPLED, replace=False))
    try:
        vectors = meanings([keys[place] for place in spelling])
    except MissingExtraError:
        return independent
    first, second = np.triu_indices(len(spelling), k=1)
    apart = clusters[spelling[first]] != clusters[spelling[second]]
    first, second = first[apart], second[apart]
    if not len(first):
        return independent
    likeness = (vectors @ vectors.T)[first, second]
    strata = np.searchsorted(np.unique(np.quantile(likeness, STRATA)), likeness, side="right")
    strata = np.unique(strata, return_inverse=True)[1]  # none is empty
    return Dependence(clusters, is_word, (spelling[first], spelling[second]), strata)


def _is_phrase(text: str) -> bool:
    return " " in text and text.replace(" ", "").isalpha()


def _stems(words: pd.Index) -> np.ndarray:
    try:
        return stems(words)
    except MissingExtraError:
        return words.to_numpy()


class Statistic(NamedTuple):
    """An estimate, and what each item contributes to its error."""

    estimate: float
    influence: np.ndarray
    """(n,) float64, mean 0; the estimate's standard error is about `influence.std() / sqrt(n)`,
    were items independent."""
    share: bool = False
    """Lies in [0, 1]; else, as a correlation, in [−1, 1]."""
    likeness: float = 0.0
    """Likeness in it of two words, on average (`Dependence.likeness`)."""


def intervals(
    statistics: Sequence[Statistic],
    dependence: Dependence | None = None,
    /,
    *,
    confidence: float | np.ndarray = 0.95,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Estimates, lower and upper bounds of statistics of the same n items, (m,) each.

    Bounds are Student's on Fisher's scale, on which the error hardly depends on the size of a
    statistic; `confidence` may be of each its own, (m,). At a bound (r = ±1) the interval is the
    bound itself from `SMALL` independent items on, and NaN below.

    Source: Fisher 1921 for the scale.
    """
    place, error, freedom = _places(statistics, dependence)
    half = _halves(statistics)
    reach = student.ppf((1 + np.asarray(confidence)) / 2, np.maximum(freedom, 1)) * error
    estimates = np.array([statistic.estimate for statistic in statistics])
    at_bound = np.isnan(place) & (freedom + 1 >= SMALL)
    low, high = (half + (1 - half) * np.tanh(place + sign * reach) for sign in (-1, 1))
    return estimates, np.where(at_bound, estimates, low), np.where(at_bound, estimates, high)


def p_values(statistics: Sequence[Statistic], dependence: Dependence | None = None) -> np.ndarray:
    """(m,) two-sided p of no association (a correlation of 0, a share of ½), of the same error as
    `intervals`. 0 at a bound, NaN below `LEAST` independent items."""
    place, error, freedom = _places(statistics, dependence)
    p = 2 * student.sf(np.abs(place) / error, np.maximum(freedom, 1))
    return np.where(np.isnan(place) & (freedom + 1 >= LEAST), 0.0, p)


def _places(
    statistics: Sequence[Statistic], dependence: Dependence | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places on Fisher's scale (atanh of r, where a share s is r = 2s − 1; NaN where the estimate
    is at its bound, or of fewer than `LEAST` units: a sample in which all pairs agree says nothing
    of its own error), their standard errors, and how many independent items there would be as sure,
    less one; (m,) each."""
    influences = np.stack([statistic.influence for statistic in statistics], axis=1)  # (n, m)
    inflations = np.ones(len(statistics))
    if dependence is not None:
        likeness = np.array([statistic.likeness for statistic in statistics])
        influences, inflations = dependence.summed(influences, likeness)
    n, half = len(influences), _halves(statistics)
    units = n / inflations
    r = (np.array([statistic.estimate for statistic in statistics]) - half) / (1 - half)
    error = np.sqrt(np.sum(influences**2, axis=0) / (n * max(n - 1, 1))) / (1 - half)
    r = np.where((np.abs(r) < 1 - 1e-12) & (units >= LEAST), r, np.nan)
    return np.arctanh(r), error / (1 - r**2), units - 1


def _halves(statistics: Sequence[Statistic]) -> np.ndarray:
    """(m,) the middle of each statistic's range: ½ of a share, 0 of a correlation."""
    return np.where([statistic.share for statistic in statistics], 0.5, 0.0)


def rank_correlations(
    ranks: Mapping[Any, Ranked],
    pairs: Sequence[tuple[Any, Any]],
    dependence: Dependence | None = None,
    /,
    *,
    measures: Sequence[Callable[..., Statistic]] = (),
    confidence: float = 0.95,
) -> dict[str, np.ndarray]:
    """Agreement of the columns of each pair in the order of the items: kendall, low, high, and each
    of further `measures` by name, with _low and _high.

    Args:
        ranks: columns by name.
        dependence: of the items, which are independent where it is None.
        confidence: of the intervals.
    """
    likenesses = [0.0] * len(pairs)
    if dependence is not None:
        alike = {name: dependence.alike(column.centred) for name, column in ranks.items()}
        likenesses = [dependence.likeness(alike[a], alike[b]) for a, b in pairs]
    columns: dict[str, np.ndarray] = {}
    for measure in (kendall, *measures):
        name = measure.__name__
        prefix = "" if measure is kendall else f"{name}_"
        statistics = [
            measure(ranks[a], ranks[b], likeness=likeness)
            for (a, b), likeness in zip(pairs, likenesses, strict=True)
        ]
        bounds = intervals(statistics, dependence, confidence=confidence)
        columns |= dict(zip((name, f"{prefix}low", f"{prefix}high"), bounds, strict=True))
    return columns


def kendall(a: Ranked, b: Ranked, *, likeness: float = 0.0) -> Statistic:
    """Kendall's tau-b of two columns without missing values, neither constant; exact, O(n log n).

    tau-b = s / sqrt(u_a · u_b): s is concordant minus discordant pairs, u the pairs untied in one
    column, each as a share of all pairs. All three are U-statistics of order two, so an item's
    influence on each is twice its own share minus the mean; the delta method joins them (Hoeffding
    1948; Kendall 1945 for the ties).
    """
    rest = len(a.dense) - 1
    # (n,): the item's own share of concordant minus discordant pairs.
    net = net_concordance(a, b) / rest
    untied_a = 1 - (a.equal - 1) / rest
    untied_b = 1 - (b.equal - 1) / rest
    scale = np.sqrt(untied_a.mean() * untied_b.mean())
    tau = net.mean() / scale
    influence = 2 * (
        net / scale - tau / 2 * (untied_a / untied_a.mean() + untied_b / untied_b.mean())
    )
    return Statistic(float(tau), influence, likeness=likeness)


def spearman(a: Ranked, b: Ranked, *, likeness: float = 0.0) -> Statistic:
    """Spearman's rho (Pearson's r of mid-ranks) of two columns, neither constant; O(n) once they
    are ranked.

    An item moves the ranks of all items above it as well as its own product of ranks; both are in
    its influence.
    """
    u, v = a.centred, b.centred
    covariance, variance_u, variance_v = np.mean(u * v), np.mean(u * u), np.mean(v * v)
    scale = np.sqrt(variance_u * variance_v)
    rho = covariance / scale
    # 3 × the mean: once for the product itself, once for each of the two distribution functions in
    # it.
    d_covariance = u * v + _mean_above(a, v) + _mean_above(b, u) - 3 * covariance
    d_variance_u = u * u + 2 * _mean_above(a, u) - 3 * variance_u
    d_variance_v = v * v + 2 * _mean_above(b, v) - 3 * variance_v
    influence = d_covariance / scale - rho / 2 * (
        d_variance_u / variance_u + d_variance_v / variance_v
    )
    return Statistic(float(rho), influence, likeness=likeness)


def _mean_above(order: Ranked, values: np.ndarray) -> np.ndarray:
    """For each item, the sum of `values` over the items above it in `order`, equals counting half,
    over n."""
    per_group = np.bincount(order.dense, weights=values)
    from_here_up = np.cumsum(per_group[::-1])[::-1]
    return (from_here_up - per_group / 2)[order.dense] / len(values)
