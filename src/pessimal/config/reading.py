"""From a checked configuration to the objects that the functions take: word lists read, tables to
be joined as asked, analyses of the user's own made."""

from collections.abc import Mapping
from dataclasses import fields

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from pessimal.analyses import Options, all_analyses
from pessimal.analyses.analysis import Analysis
from pessimal.config.schema import CompareConfig, Join
from pessimal.errors import ConfigError, UserError
from pessimal.tables.table_set import Reading
from pessimal.tables.word_lists import read_frequencies, read_lexicons


def reading_of(config: CompareConfig) -> Reading:
    """How the tables are read."""
    return Reading(
        paper=config.paper,
        stripped=None if config.join is Join.auto else config.join is Join.stripped,
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
        }
    )


def read_analyses(config: CompareConfig) -> tuple[Analysis, ...]:
    """All analyses, those that `config.analyses` adds among them.

    Raises:
        ConfigError: one cannot be imported or made, or is no analysis.
    """
    entries = config.analyses
    return all_analyses([_make_analysis(e) if isinstance(e, Mapping) else e for e in entries])


def _make_analysis(entry: Mapping) -> Analysis:
    """The analysis that the function `_target_` of an entry returns, given the entry's options."""
    try:
        value = instantiate(dict(entry), _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, UserError):
            raise cause from error
        raise ConfigError(
            f"analyses=[{{_target_: {entry.get('_target_')}}}]: {cause or error}. Give a function "
            "that Python finds, with options that it takes"
        ) from error
    if not isinstance(value, Analysis):
        raise ConfigError(
            f"analyses=[{{_target_: {entry.get('_target_')}}}] gave {type(value).__name__}, but an "
            "Analysis is needed: a function under @analysis(...), returned by the one that is named"
        )
    return value
