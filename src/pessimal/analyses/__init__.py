"""Analyses of score tables: each a file with its statistic and the Results that it returns.

An analysis reads no file, logs nothing, draws nothing, and imports neither torch nor Hydra. Two
shapes recur:

* **rewards**: a DataFrame for one prompt; index = item (text), one float column per model, none
  missing.
* **descriptors**: a DataFrame indexed by model with base, developer (str), parameters (count), rank
  (float).
"""

import importlib
import logging
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pessimal import extensions
from pessimal.analyses.analysis import Analysis, Options
from pessimal.errors import ConfigError, MissingExtraError, TableError
from pessimal.tables.result import Result, merged
from pessimal.tables.table_set import TableSet

log = logging.getLogger(__name__)

GROUP = "pessimal.analyses"
"""Entry points under which other packages offer theirs."""


def all_analyses(additions: Sequence[str | Analysis] = ()) -> tuple[Analysis, ...]:
    """The package's analyses, those of installed packages, and additions to them, in the order of
    the page.

    Args:
        additions: an analysis, or `module:function` of a function under `@analysis(...)`.

    Raises:
        ConfigError: one cannot be imported or is no analysis, or two have one name.
    """
    modules = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)]
    builtin = [
        value
        for module in map(importlib.import_module, modules)
        for value in vars(module).values()
        if isinstance(value, Analysis) and value.function.__module__ == module.__name__
    ]
    offered = extensions.installed(GROUP)
    for path, value in offered.items():
        if not isinstance(value, Analysis):
            raise ConfigError(f"the entry point {GROUP}, {path}, is no function under @analysis()")
    load = partial(extensions.load_object, option="analyses", kind=Analysis)
    typed = [load(entry) if isinstance(entry, str) else entry for entry in additions]
    by_name: dict[str, Analysis] = {}
    for analysis in (*builtin, *offered.values(), *typed):
        other = by_name.setdefault(analysis.name, analysis)
        if other.path != analysis.path:
            raise ConfigError(
                f"two analyses are called {analysis.name!r}: {other.path} and {analysis.path}. "
                "Give one another name, in its @analysis(NAME)"
            )
    return tuple(sorted(by_name.values(), key=lambda analysis: (analysis.place, analysis.name)))


def _name_items(result: Result, tables: TableSet) -> Result:
    """The result, its headline naming the list of items that it is about."""
    headline = result.headline.removesuffix(".")
    return replace(result, headline=f"{headline} ({tables.candidates}).") if headline else result


def compare(
    sets: Sequence[TableSet],
    options: Options,
    step: Callable[[str], None] = lambda name: None,
    analyses: Sequence[Analysis] | None = None,
) -> tuple[list[Result], dict[str, str]]:
    """Every analysis over every candidate set.

    Args:
        sets: of `tables.table_set.table_sets`.
        options: of the analyses.
        step: called with an analysis' name before it begins.
        analyses: of `all_analyses`; those of the package and of installed packages where None.

    Returns:
        Results in the order of the analyses, one a name; and what could not be done, by name: why.
    """
    from pessimal.analyses.provenance import models

    results, skipped = [models(sets)], {}
    makers = {result.name: "the package" for result in results}
    for analyse in all_analyses() if analyses is None else analyses:
        step(analyse.name)
        missing = {}
        for tables in sets:
            reason = analyse.needs.missing(tables, options)
            new: list[Result] = []
            try:
                new = [] if reason else _checked(analyse, tables, options, makers)
            except (TableError, MissingExtraError) as error:
                reason = str(error)
            except Exception as error:  # one analysis that fails does not cost the others
                log.exception("the analysis %s failed", analyse.name)
                reason = f"failed: {type(error).__name__}: {error}"
            if tables.candidates != "vocabulary":
                new = [_name_items(result, tables) for result in new]
            results += new
            if reason and not new:
                missing[tables.candidates] = reason
        if len(missing) == len(sets):
            skipped[analyse.name] = min(missing.values(), key=lambda r: r.startswith("needs "))
        else:  # what nobody asked of a list of items is not missing
            failed = [row for row in missing.items() if not row[1].startswith("needs ")]
            skipped |= {f"{analyse.name}, {c}": reason for c, reason in failed}
    return merged(results), skipped


def _checked(
    analyse: Analysis, tables: TableSet, options: Options, makers: dict[str, str]
) -> list[Result]:
    """Its results; TableError where one has the name of another analysis' result, with which it
    would be mixed up."""
    results = analyse(tables, options)
    for result in results:
        if (maker := makers.setdefault(result.name, analyse.path)) != analyse.path:
            raise TableError(f"{analyse.path} and {maker} both make a result {result.name!r}")
    return results
