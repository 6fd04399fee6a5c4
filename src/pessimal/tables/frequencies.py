"""How often words are used: from the wordfreq package, or from a list of one's own.

Knows the scale (Zipf: the base-10 logarithm of uses per billion words) and the layout of a list.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from pessimal.errors import InputError
from pessimal.tables.csv import check_cells, read_csv, require_columns

ZIPF_OF_ONE_PER_MILLION = 3.0


@dataclass(frozen=True)
class Frequencies:
    """Word frequencies of English."""

    source: str
    """What to cite."""
    rows: pd.DataFrame | None = None
    """A list's own rows, word and per_million; a word may have several (one a part of speech). None for wordfreq."""

    def zipf(self, words: Iterable[str]) -> pd.Series:
        """Zipf frequency by word (index `word`, in the order given); NaN for words that are not known.

        A word with several rows in a list is as frequent as these together.
        """
        words = pd.Index(words, name="word")
        if self.rows is None:
            values = np.array([_wordfreq_zipf(word) for word in words.tolist()], dtype=float)
            return pd.Series(np.where(values > 0, values, np.nan), index=words, name="zipf")
        total = self._total.reindex(words)
        return np.log10(total.where(total > 0)).add(ZIPF_OF_ONE_PER_MILLION).rename("zipf")

    @cached_property
    def _total(self) -> pd.Series:
        """Uses per million by word of a list."""
        return self.rows.groupby("word")["per_million"].sum()


def read_frequencies(source: str) -> Frequencies:
    """`wordfreq`, or a CSV file with the columns word and per_million.

    Raises:
        InputError: the file is missing, of another layout, or holds what is no frequency.
    """
    if source == "wordfreq":
        return Frequencies(source="wordfreq (Robyn Speer; data CC-BY-SA 4.0)")
    path = Path(source).expanduser()
    if not path.is_file():
        raise InputError(
            f"there is no frequency list {source!r}; give wordfreq or a CSV file with the columns word and per_million"
        )
    table = read_csv(path)
    require_columns(path, table, ("word", "per_million"), what="a frequency list has word and per_million")
    per_million = pd.to_numeric(table["per_million"], errors="coerce")
    wrong = ~((per_million >= 0) & np.isfinite(per_million))
    check_cells(str(path), table["per_million"], wrong, "is no frequency per million words")
    words = table["word"].str.strip().str.lower()
    return Frequencies(source=path.name, rows=pd.DataFrame({"word": words, "per_million": per_million}))


@cache
def _wordfreq_zipf(word: str) -> float:
    """0 for a word that is not known."""
    # Kept for good: wordfreq keeps 100,000 words, which ten vocabularies exceed, and 57,000 words then take 1 s anew.
    import wordfreq  # reads 4 MB of frequencies

    if word.isascii() and word.isalpha():  # is one word: wordfreq's taking apart takes ten times as long
        frequency = wordfreq.get_frequency_dict("en", "best").get(word.lower())
        return round(math.log10(frequency) + ZIPF_OF_ONE_PER_MILLION + 6, 2) if frequency else 0.0
    return wordfreq.zipf_frequency(word, "en")
