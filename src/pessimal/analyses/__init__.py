"""Analyses of score tables: each a file with its statistic and the Results that it returns.

An analysis reads no file, logs nothing, draws nothing, and imports neither torch nor Hydra. Two
shapes recur:

* **rewards**: a DataFrame for one prompt; index = item (text), one float column per model, none
  missing.
* **descriptors**: a DataFrame indexed by model with base, developer (str), parameters (count), rank
  (float).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from pessimal.analyses import (
    agreement,
    base_models,
    census,
    checkpoints,
    dictionaries,
    extremes,
    framing,
    frequency,
    geometry,
    identity_terms,
    lexicon_groups,
    modes,
    moments,
    people,
    prompt_agreement,
    provenance,
    quantisation,
    rsa,
    sentiment,
    trajectories,
    valence,
    variance_components,
    wording,
)
from pessimal.analyses.analysis import Analysis, Options
from pessimal.errors import MissingExtraError, TableError
from pessimal.tables.result import Result, merged
from pessimal.tables.table_set import TableSet

log = logging.getLogger(__name__)

ANALYSES: tuple[Analysis, ...] = (
    provenance.analyse,
    extremes.analyse,
    moments.analyse,
    agreement.analyse,
    geometry.analyse,
    rsa.analyse,
    framing.analyse,
    prompt_agreement.analyse,
    valence.analyse,
    sentiment.analyse,
    lexicon_groups.analyse,
    frequency.analyse,
    identity_terms.analyse,
    people.analyse,
    wording.analyse,
    variance_components.analyse,
    dictionaries.analyse,
    checkpoints.analyse,
    trajectories.analyse,
    census.analyse,
    modes.analyse,
    quantisation.analyse,
    base_models.analyse,
)
"""In the order of the page."""


def _of_items(result: Result, tables: TableSet) -> Result:
    """The result, its headline naming the list of items that it is about."""
    headline = result.headline.removesuffix(".")
    return replace(result, headline=f"{headline} ({tables.candidates}).") if headline else result


def compare(
    sets: Sequence[TableSet], options: Options, step: Callable[[str], None] = lambda name: None
) -> tuple[list[Result], dict[str, str]]:
    """Every analysis over every candidate set.

    Args:
        sets: of `tables.table_set.table_sets`.
        options: of the analyses.
        step: called with an analysis' name before it begins.

    Returns:
        Results in the order of `ANALYSES`, one a name; and what could not be done, by name: why.
    """
    results, skipped = [provenance.models(sets)], {}
    for analyse in ANALYSES:
        step(analyse.name)
        missing = {}
        for tables in sets:
            why, found = analyse.needs.missing(tables, options), []
            try:
                found = [] if why else analyse(tables, options)
                tables.memo.update({(result.name,): result.table for result in found})
            except (TableError, MissingExtraError) as error:
                why = str(error)
            except Exception as error:  # one analysis that fails does not cost the others
                log.exception("the analysis %s failed", analyse.name)
                why = f"failed: {type(error).__name__}: {error}"
            results += (
                found
                if tables.candidates == "vocabulary"
                else [_of_items(r, tables) for r in found]
            )
            if why and not found:
                missing[tables.candidates] = why
        if len(missing) == len(sets):
            skipped[analyse.name] = min(missing.values(), key=lambda why: why.startswith("needs "))
        else:  # what nobody asked of a list of items is not missing
            skipped |= {
                f"{analyse.name}, {c}": why
                for c, why in missing.items()
                if not why.startswith("needs ")
            }
    return merged(results), skipped
