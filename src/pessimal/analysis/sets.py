"""Matched sets as arrays: a term, its controls, and how sure a mean over such sets is.

Knows places in a list of words; knows no term and no covariate. The error of a mean effect depends on how often one
control serves several terms, and on forms of one stem being one observation; both are counted here, once a vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pessimal.analysis.matching import stem


@dataclass(frozen=True)
class MatchedSets:
    """The matched sets of one group of terms. A *unit* is a stem: its terms' effects are averaged."""

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
    """Variance of the mean over units, in units of one word's variance: 1 / units, and what the controls add."""
    scatter_expected: float
    """Expected sum of squares of the units' effects about their mean, in the same units."""
    distinct: int
    """Different words among the controls."""

    @property
    def counts(self) -> np.ndarray:
        """(terms,) controls of each term."""
        return np.diff(self.starts, append=len(self.controls))

    def term_effects(self, grid: np.ndarray) -> np.ndarray:
        """(terms, measures): each term less the mean of its controls. `grid` is (words, measures)."""
        return grid[self.terms] - self._means(grid)

    def unit_effects(self, grid: np.ndarray) -> np.ndarray:
        """(units, measures): the terms' effects, averaged within each stem."""
        effects = self.term_effects(grid)
        sums = np.zeros((self.units, grid.shape[1]))
        np.add.at(sums, self.unit, effects)
        return sums / np.bincount(self.unit)[:, None]

    def within(self, grid: np.ndarray) -> tuple[np.ndarray, int]:
        """Sum of squares (measures,) of the controls about their sets' means, and its degrees of freedom."""
        about = grid[self.controls] - np.repeat(self._means(grid), self.counts, axis=0)
        return (about**2).sum(axis=0), int((self.counts - 1).sum())

    def exchange(self, grid: np.ndarray, *, permutations: int, rng: np.random.Generator) -> np.ndarray:
        """Two-sided p (measures,) of the mean effect when terms change places with their controls at random.

        A unit counts as one word, so it draws from the set of its first term. Drawn sets do not share controls, the
        true ones do: the reference distribution is widened by what sharing adds to the standard error.
        """
        first = np.unique(self.unit, return_index=True)[1]
        counts, starts = self.counts[first], self.starts[first]
        members = np.minimum(starts[:, None] + np.arange(counts.max() + 1), len(self.controls) - 1)
        # (units, most controls + 1); what lies beyond a unit's own controls is never drawn
        members = self.controls[members]
        members[np.arange(len(first)), counts] = self.terms[first]
        sums_of_sets = self._means(grid)[first] * counts[:, None] + grid[self.terms[first]]
        middle = sums_of_sets / (counts + 1)[:, None]
        # A member less the mean of the others is (k + 1) / k of its distance from the mean of all.
        away = (grid[members] - middle[:, None]) * ((counts + 1) / counts)[:, None, None]
        widened = np.sqrt(self.mean_variance * len(first) ** 2 / (1 + 1 / counts).sum())
        sums = np.zeros((permutations, grid.shape[1]))
        for unit, count in enumerate(counts.tolist()):
            sums += away[unit, rng.integers(count + 1, size=permutations)]
        means = np.abs(sums) / len(first) * widened
        observed = np.abs(self.unit_effects(grid).mean(axis=0))
        return (1 + (means >= observed - 1e-12).sum(axis=0)) / (1 + permutations)

    def _means(self, grid: np.ndarray) -> np.ndarray:
        """(terms, measures): mean of each term's controls."""
        return np.add.reduceat(grid[self.controls], self.starts, axis=0) / self.counts[:, None]


def matched_sets(matches: pd.DataFrame, words: pd.Index, *, by: Sequence[str] = ("term",)) -> MatchedSets:
    """The sets of `matches` (term, control; a set's controls under one another), as places in `words`.

    Args:
        matches: of `matching.matched_controls`, of one group, or of several with a set for each (group, `term`): `by`.
        words: every term and control is among them, each once.
        by: the columns that tell one set from another.
    """
    sets = matches.groupby(list(by), sort=False)["term"]
    terms, counts = sets.first().to_numpy(), sets.size().to_numpy()
    unit, stems = pd.factorize(np.array([stem(term) for term in terms], dtype=object))
    controls = words.get_indexer(matches["control"])
    # Weight of each control in its unit's effect, then in the mean over units.
    weight = np.repeat(1 / (np.bincount(unit)[unit] * counts), counts)
    in_unit = pd.Series(weight).groupby([np.repeat(unit, counts), controls]).sum()
    in_mean = np.bincount(controls, weights=weight / len(stems))
    mean_variance = 1 / len(stems) + float((in_mean**2).sum())
    return MatchedSets(
        terms=words.get_indexer(terms),
        unit=unit,
        controls=controls,
        starts=np.concatenate([[0], np.cumsum(counts)[:-1]]),
        units=len(stems),
        mean_variance=mean_variance,
        scatter_expected=len(stems) + float((in_unit**2).sum()) - len(stems) * mean_variance,
        distinct=len(np.unique(controls)),
    )
