"""What findings need besides score tables: lexicons, frequencies, term lists, dictionaries.

Read at once, before any table is opened, so that a wrong path is told before work begins.
"""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pessimal.config.schema import CompareConfig
from pessimal.tables.dictionaries import read_dictionary
from pessimal.tables.frequencies import Frequencies, read_frequencies
from pessimal.tables.lexicons import read_lexicon


@dataclass(frozen=True)
class Sources:
    """Everything that people, and not models, say about words."""

    lexicons: dict[str, pd.Series]
    """Valence by word, by name of the lexicon (see `tables.lexicons`)."""
    frequencies: Frequencies
    dictionaries: dict[str, pd.DataFrame]
    """Category and word, by name of the dictionary (see `tables.dictionaries`)."""


def read_sources(config: CompareConfig) -> Sources:
    """What the configuration names. Raises InputError where one cannot be read."""
    return Sources(
        lexicons={name: read_lexicon(source) for name, source in config.lexicons.items()},
        frequencies=read_frequencies(config.frequencies),
        dictionaries={name: read_dictionary(Path(p).expanduser()) for name, p in config.dictionaries.items()},
    )
