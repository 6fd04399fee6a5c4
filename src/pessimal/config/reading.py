"""From a checked configuration to the objects that the functions take: word lists read, tables to
be joined as asked."""

from dataclasses import fields
from pathlib import Path

from pessimal.analyses import Options
from pessimal.config.schema import CompareConfig, Join
from pessimal.tables.table_set import Reading
from pessimal.tables.word_lists import read_dictionary, read_frequencies, read_lexicons


def reading_of(config: CompareConfig) -> Reading:
    """How the tables are read."""
    return Reading(
        paper=config.paper,
        stripped=config.join is Join.stripped,
        polarity=config.polarity,
        factors=config.wording.factors,
        pairs=[(first, second) for first, second in config.pairs],
    )


def read_options(config: CompareConfig) -> Options:
    """The options of the analyses: the configuration's numbers, and what people say about words,
    read from files."""
    same = {f.name: getattr(config, f.name) for f in fields(Options) if f.name in vars(config)}
    return Options(
        **same
        | {
            "lexicons": read_lexicons(config.lexicons),
            "frequencies": read_frequencies(config.frequencies),
            "dictionaries": {
                n: read_dictionary(Path(p).expanduser()) for n, p in config.dictionaries.items()
            },
        }
    )
